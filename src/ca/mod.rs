//! The certificate authority of this proxy: made once, kept in two files, replaced on command alone.
//!
//! Whoever holds `ca.key` can read the traffic of every client that trusts `ca.pem`. So the key is written with mode
//! 0600, a key that others can read is refused, and no start ever overwrites a file: two processes that start at
//! once end with one CA, and a half-present pair is reported instead of repaired. An operator's own CA works the same
//! way: what was made and what was brought are read from disk by one and the same code. Certificates for hosts are
//! minted in [`leaf`].

mod files;
pub mod forms;
pub mod leaf;
mod permitted;
mod renew;
pub mod trust;

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PublicKeyData, SerialNumber,
};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use sha2::{Digest, Sha256};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use crate::clock;

pub use files::Files;
pub use leaf::Leaves;
pub use permitted::{Permit, Permitted};
pub use renew::{Renewed, renew};

/// Where the CA is kept and how long its certificates live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The folder of `ca.pem` and `ca.key`.
    pub dir: PathBuf,
    /// The life of a minted certificate; [`leaf`] bounds it.
    pub leaf_ttl: Duration,
    /// All that it may sign for; empty is anything.
    pub permitted: Vec<Permit>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { dir: PathBuf::from("certs"), leaf_ttl: Duration::from_secs(7 * 24 * 3600), permitted: Vec::new() }
    }
}

/// A certificate authority that can sign.
#[derive(Debug)]
pub struct Ca {
    files: Files,
    pem: String,
    /// The CA's own certificate, then what else `ca.pem` holds: the way from an operator's intermediate to its root.
    chain: Vec<CertificateDer<'static>>,
    issuer: Issuer<'static, KeyPair>,
    subject: String,
    spki_sha256: [u8; 32],
    not_before: SystemTime,
    not_after: SystemTime,
    /// What its own certificate lets it sign for.
    permitted: Permitted,
    made: bool,
}

impl Ca {
    /// Reads the CA of this folder, or makes one if the folder holds neither certificate nor key.
    pub fn open(settings: &Settings, now: SystemTime) -> Result<Ca, Error> {
        let files = Files::of(&settings.dir);
        let made = files.make_unless_there(|| make(now, &Permitted::new(&settings.permitted)))?;
        let ca = Ca { made, ..Ca::load(&settings.dir)? };
        ca.check_dates(now)?;
        Ok(ca)
    }

    /// Reads the CA of this folder and never makes one; one that has expired can still be read.
    pub fn load(dir: &Path) -> Result<Ca, Error> {
        let files = Files::of(dir);
        files.check_complete()?;
        let pem = files.read_certificate()?;
        let key = files.read_key()?;
        let chain = parse_chain(&files, &pem)?;

        let (_, certificate) =
            X509Certificate::from_der(&chain[0]).map_err(|_| Error::NotACertificate(files.certificate.clone()))?;
        check_is_ca(&files, &certificate)?;
        if certificate.public_key().subject_public_key.data != key.der_bytes() {
            return Err(Error::KeyOfAnother(files));
        }

        let facts = Facts::of(&certificate);
        let issuer = Issuer::from_ca_cert_der(&chain[0], key).map_err(|_| Error::Subject(files.certificate.clone()))?;
        check_subject(&files, &certificate, &issuer)?;
        let Facts { subject, spki_sha256, not_before, not_after, permitted } = facts;
        Ok(Ca { files, pem, chain, issuer, subject, spki_sha256, not_before, not_after, permitted, made: false })
    }

    /// Where the certificate is: the file that clients are told to trust.
    pub fn certificate_path(&self) -> &Path {
        &self.files.certificate
    }

    /// Where the private key is.
    pub fn key_path(&self) -> &Path {
        &self.files.key
    }

    /// The text of [`certificate_path`](Self::certificate_path); holds no private key.
    pub fn certificate_pem(&self) -> &str {
        &self.pem
    }

    /// The certificate of the CA.
    pub fn certificate_der(&self) -> &CertificateDer<'static> {
        &self.chain[0]
    }

    /// What Chromium's `--ignore-certificate-errors-spki-list` wants: the SHA-256 of the public key, in base64.
    pub fn spki_sha256_base64(&self) -> String {
        BASE64.encode(self.spki_sha256)
    }

    /// The SHA-256 of the certificate as browsers show it: `AB:CD:…`.
    pub fn fingerprint(&self) -> String {
        let hash = Sha256::digest(self.certificate_der());
        hash.iter().map(|byte| format!("{byte:02X}")).collect::<Vec<_>>().join(":")
    }

    /// The name by which trust stores know the certificate, such as `robots-proxy-1f3a9c04`: from its own hash.
    pub fn trust_name(&self) -> String {
        trust::name_of(self.certificate_der())
    }

    /// The name of the CA, as in `O=robots-proxy, CN=robots-proxy CA 1f3a9c04`.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// When the certificate becomes valid.
    pub fn not_before(&self) -> SystemTime {
        self.not_before
    }

    /// When the certificate expires.
    pub fn not_after(&self) -> SystemTime {
        self.not_after
    }

    /// What the certificate lets it sign for.
    pub fn permitted(&self) -> &Permitted {
        &self.permitted
    }

    /// What to tell the operator where the certificate and `ca.permitted` say different things.
    pub fn constraints_differ(&self, settings: &Settings) -> Option<String> {
        let wanted = Permitted::new(&settings.permitted);
        let path = self.files.certificate.display();
        (wanted != self.permitted).then(|| {
            format!(
                "ca.permitted says {wanted}, but {path} is made for {}: both hold until you run `robots-proxy ca renew --new-key`, restart, \
                 and have clients trust the new CA",
                self.permitted
            )
        })
    }

    /// What to tell the operator of a certificate that is about to end.
    pub fn ends_soon(&self, now: SystemTime) -> Option<String> {
        (now + WARNING > self.not_after).then(|| {
            format!(
                "{} ends at {}: run `robots-proxy ca renew`, restart, and have clients trust the new certificate before then",
                self.files.certificate.display(),
                clock::rfc3339(self.not_after)
            )
        })
    }

    /// Whether [`open`](Self::open) made this CA: nobody trusts it yet.
    pub fn was_made(&self) -> bool {
        self.made
    }

    fn check_dates(&self, now: SystemTime) -> Result<(), Error> {
        if now >= self.not_after {
            return Err(Error::Expired {
                certificate: self.files.certificate.clone(),
                at: clock::rfc3339(self.not_after),
            });
        }
        if now < self.not_before {
            return Err(Error::Early {
                certificate: self.files.certificate.clone(),
                at: clock::rfc3339(self.not_before),
            });
        }
        Ok(())
    }
}

/// What is read out of the certificate once.
struct Facts {
    subject: String,
    spki_sha256: [u8; 32],
    not_before: SystemTime,
    not_after: SystemTime,
    permitted: Permitted,
}

impl Facts {
    fn of(certificate: &X509Certificate<'_>) -> Facts {
        Facts {
            subject: certificate.subject().to_string(),
            spki_sha256: Sha256::digest(certificate.public_key().raw).into(),
            not_before: unix_time(certificate.validity().not_before.timestamp()),
            not_after: unix_time(certificate.validity().not_after.timestamp()),
            permitted: Permitted::of(certificate),
        }
    }
}

/// Certificates hold years 0 to 9999, so neither arm can overflow.
fn unix_time(seconds: i64) -> SystemTime {
    let distance = Duration::from_secs(seconds.unsigned_abs());
    if seconds < 0 { UNIX_EPOCH - distance } else { UNIX_EPOCH + distance }
}

fn parse_chain(files: &Files, pem: &str) -> Result<Vec<CertificateDer<'static>>, Error> {
    // SECURITY: this text is handed out by `ca export` and the pages of the proxy, so it must not hold the key.
    if pem.contains("PRIVATE KEY-----") {
        return Err(Error::KeyInCertificate(files.clone()));
    }
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    match chain {
        Ok(chain) if !chain.is_empty() => Ok(chain),
        _ => Err(Error::NotACertificate(files.certificate.clone())),
    }
}

/// A CA flag, and a key usage that lets it sign certificates (absent means any, RFC 5280 §4.2.1.3): clients check both.
fn check_is_ca(files: &Files, certificate: &X509Certificate<'_>) -> Result<(), Error> {
    let may_sign = match certificate.key_usage() {
        Ok(Some(usage)) => usage.value.key_cert_sign(),
        Ok(None) => true,
        Err(_) => false,
    };
    if certificate.is_ca() && may_sign { Ok(()) } else { Err(Error::NotACa(files.certificate.clone())) }
}

/// rcgen keeps one value of each kind in a name, so it cannot write a subject such as `DC=example, DC=com`. Clients
/// compare the issuer of a certificate with the subject of the CA byte by byte: better to say so at start than to fail
/// in every handshake.
fn check_subject(
    files: &Files,
    certificate: &X509Certificate<'_>,
    issuer: &Issuer<'static, KeyPair>,
) -> Result<(), Error> {
    let probe = CertificateParams::default().signed_by(issuer.key(), issuer)?;
    match X509Certificate::from_der(probe.der()) {
        Ok((_, probe)) if probe.issuer().as_raw() == certificate.subject().as_raw() => Ok(()),
        _ => Err(Error::Subject(files.certificate.clone())),
    }
}

/// A new CA: its key and its certificate, in PEM.
fn make(now: SystemTime, permitted: &Permitted) -> Result<(String, String), Error> {
    let key = KeyPair::generate()?;
    let mut params = root(now)?;
    params.name_constraints = permitted.constraints();
    let certificate = params.self_signed(&key)?;
    Ok((key.serialize_pem(), certificate.pem()))
}

fn root(now: SystemTime) -> Result<CertificateParams, Error> {
    let mut params = CertificateParams::default();
    let id: [u8; 4] = random()?;
    let id = u32::from_be_bytes(id);
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, ORGANIZATION);
    // A name of its own: a client that trusts an older CA with the same name and another key reports a bad signature.
    params.distinguished_name.push(DnType::CommonName, format!("robots-proxy CA {id:08x}"));
    params.serial_number = Some(serial()?);
    params.not_before = (now - BACKDATE).into();
    params.not_after = (now + LIFE).into();
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

/// By which a CA of our own making is known.
const ORGANIZATION: &str = "robots-proxy";

/// Ten years: as mkcert and mitmproxy do, since replacing a root means visiting every client.
const LIFE: Duration = Duration::from_secs(3650 * 24 * 3600);

/// Chosen: long enough to visit every client, short enough not to be overlooked as usual.
const WARNING: Duration = Duration::from_secs(60 * 24 * 3600);

/// More than the backdating of a leaf, which begins no earlier than its CA.
const BACKDATE: Duration = Duration::from_secs(2 * 24 * 3600);

/// 128 random bits, positive. Firefox refuses a second certificate with the same issuer and serial (goproxy#311), and
/// rcgen's own choice is a hash of the public key, which all our leaves share.
fn serial() -> Result<SerialNumber, Error> {
    let mut bytes: [u8; 16] = random()?;
    bytes[0] = bytes[0] & 0x7f | 0x40;
    Ok(SerialNumber::from_slice(&bytes))
}

fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    aws_lc_rs::default_provider().secure_random.fill(&mut bytes).map_err(|_| Error::Random)?;
    Ok(bytes)
}

/// Why there is no CA, or no certificate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Neither file is there.
    #[error("no CA in {}: `robots-proxy serve` makes one on its first start", .0.display())]
    Absent(PathBuf),
    /// A certificate without its key.
    #[error("{} has no key: put its key at {}, or move the certificate away to have a new CA made", .0.certificate.display(), .0.key.display())]
    KeyMissing(Files),
    /// A key without its certificate.
    #[error("{} has no certificate: put its certificate at {}, or move the key away to have a new CA made", .0.key.display(), .0.certificate.display())]
    CertificateMissing(Files),
    /// Somebody but the owner can read the key.
    #[error("{} can be read by others (mode {mode:04o}): run `chmod 600 '{}'`, or make a new CA if it may have been copied", key.display(), key.display())]
    KeyReadable {
        /// The key file.
        key: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Two files that are no pair.
    #[error("{} is not the key of {}: put the two that belong together there, or move both away to have a new CA made", .0.key.display(), .0.certificate.display())]
    KeyOfAnother(Files),
    /// The file that is handed out holds the secret.
    #[error("{} holds a private key and is given to clients: move the key to {}", .0.certificate.display(), .0.key.display())]
    KeyInCertificate(Files),
    /// Not PEM, or not X.509.
    #[error("{} holds no certificate that can be read: it must be X.509 in PEM", .0.display())]
    NotACertificate(PathBuf),
    /// Not PEM, encrypted, or of a kind that cannot sign.
    #[error("{} holds no key that can be used: it must be unencrypted PEM (`openssl pkey -in OLD -out NEW`), RSA, ECDSA or Ed25519", .0.display())]
    NotAKey(PathBuf),
    /// A certificate of a host, or a CA that may not sign.
    #[error("{} is not the certificate of a CA: it needs basicConstraints CA:TRUE and, if it has a keyUsage, keyCertSign", .0.display())]
    NotACa(PathBuf),
    /// A subject that cannot be repeated as issuer.
    #[error("the subject of {} names one attribute twice or several in one: use a CA with a simpler subject", .0.display())]
    Subject(PathBuf),
    /// An operator's own.
    #[error("{} was not made by robots-proxy: have its authority make a new pair, and put that there", .0.display())]
    NotOurs(PathBuf),
    /// The CA is too old.
    #[error("{} expired at {at}: run `robots-proxy ca renew`, or put a new pair there", certificate.display())]
    Expired {
        /// The certificate file.
        certificate: PathBuf,
        /// RFC 3339.
        at: String,
    },
    /// The CA is not valid yet.
    #[error("{} is not valid before {at}: check this machine's clock", certificate.display())]
    Early {
        /// The certificate file.
        certificate: PathBuf,
        /// RFC 3339.
        at: String,
    },
    /// The file system said no.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// A verb.
        action: &'static str,
        /// To what.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Not a name that a certificate can hold.
    #[error("{0:?} is neither a DNS name nor an IP address: no certificate can name it")]
    Host(String),
    /// A host that the CA may not sign for.
    #[error("no certificate for {host}: the CA may sign for {permitted} only (ca.permitted)")]
    NotPermitted {
        /// The host.
        host: String,
        /// What it may sign for.
        permitted: Permitted,
    },
    /// The provider failed to make or use a key.
    #[error("cannot sign a certificate")]
    Sign(#[from] rcgen::Error),
    /// rustls does not take the key of the leaves.
    #[error("cannot use the key of the certificates")]
    Key(#[from] rustls::Error),
    /// No randomness.
    #[error("the system gives no random numbers")]
    Random,
}

impl Error {
    fn io(action: &'static str, path: &Path, source: io::Error) -> Error {
        Error::Io { action, path: path.to_owned(), source }
    }
}

#[cfg(test)]
mod tests;
