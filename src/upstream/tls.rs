//! TLS towards origins and parent proxies: whom it trusts, what it shows of itself, and what its failures mean.
//!
//! A certificate of our own is shown to the hosts that it is configured for, and to no other, not even where one asks: it tells who is
//! asking. Each has a configuration of its own, so that no session is resumed by it elsewhere; connections are kept by origin anyway.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WantsClientCert;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{CipherSuite, ClientConfig, ConfigBuilder, RootCertStore};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::dial::{HostPort, Io};
use super::{Error, signatures};
use crate::policy::host::HostPattern;
use crate::policy::target::Host;

/// The trusted certificates cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// A file of `upstream.ca_files`.
    #[error("cannot read {}, named in upstream.ca_files: {reason}", path.display())]
    CaFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// An entry of `upstream.client_certificate`.
    #[error("cannot use {}, named in upstream.client_certificate: {reason}", path.display())]
    ClientCertificate {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        reason: String,
    },
    /// rustls does not take the settings.
    #[error("TLS towards origins cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
}

/// TLS to a host by its name.
pub(super) async fn handshake<S: Io>(tls: &TlsConnector, place: &HostPort, stream: S) -> Result<TlsStream<S>, Error> {
    let host = place.to_string();
    let name = ServerName::try_from(place.host.as_str().to_owned())
        .map_err(|error| Error::Tls { host: host.clone(), source: io::Error::other(error) })?;
    tls.connect(name, stream).await.map_err(|source| {
        let cause = source.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        match cause {
            Some(cause @ rustls::Error::InvalidCertificate(_)) => Error::Certificate { host, source: cause.clone() },
            Some(cause @ rustls::Error::AlertReceived(_)) => Error::TlsAlert { host, source: cause.clone() },
            _ => Error::Tls { host, source },
        }
    })
}

/// A certificate that tells some hosts who is asking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The hosts.
    pub host: HostPattern,
    /// The certificate and those on its way to a root, PEM.
    pub cert: PathBuf,
    /// Its private key, PEM.
    pub key: PathBuf,
}

/// TLS towards origins.
pub(super) struct Connectors {
    anonymous: Offers,
    /// The first that matches is taken.
    known: Vec<(HostPattern, Offers)>,
}

/// TLS to one host, by the protocols that are offered.
struct Offers {
    any: TlsConnector,
    /// HTTP/1.1 alone.
    http1: TlsConnector,
}

impl Connectors {
    /// # Errors
    /// A file of a certificate cannot be used.
    pub(super) fn new(
        roots: &Arc<RootCertStore>,
        certificates: &[ClientCertificate],
    ) -> Result<Connectors, SetupError> {
        let known = certificates.iter().map(|certificate| {
            Ok((certificate.host.clone(), Offers::with(|builder| certificate.show(builder), roots)?))
        });
        Ok(Connectors {
            anonymous: Offers::with(|builder| Ok(builder.with_no_client_auth()), roots)?,
            known: known.collect::<Result<_, SetupError>>()?,
        })
    }

    /// What a host is shown.
    pub(super) fn of(&self, host: &Host, http1: bool) -> &TlsConnector {
        let known = self.known.iter().find(|(pattern, _)| pattern.matches(host.as_str())).map(|(_, offers)| offers);
        let offers = known.unwrap_or(&self.anonymous);
        if http1 { &offers.http1 } else { &offers.any }
    }
}

type Builder = ConfigBuilder<ClientConfig, WantsClientCert>;

impl Offers {
    fn with(
        shown: impl Fn(Builder) -> Result<ClientConfig, SetupError>,
        roots: &Arc<RootCertStore>,
    ) -> Result<Offers, SetupError> {
        let offer = |protocols: &[&[u8]]| Ok::<_, SetupError>(offering(shown(trusting(roots)?)?, protocols));
        Ok(Offers { any: offer(&[b"h2", b"http/1.1"])?, http1: offer(&[b"http/1.1"])? })
    }
}

impl ClientCertificate {
    fn show(&self, builder: Builder) -> Result<ClientConfig, SetupError> {
        let bad = |path: &Path, reason: String| SetupError::ClientCertificate { path: path.to_owned(), reason };
        let chain = read_certificates(&self.cert).map_err(|reason| bad(&self.cert, reason))?;
        if chain.is_empty() {
            return Err(bad(&self.cert, "it holds no certificate in PEM form".into()));
        }
        check_private(&self.key).map_err(|reason| bad(&self.key, reason))?;
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(|error| match error {
            pem::Error::Io(error) => bad(&self.key, error.to_string()),
            _ => bad(&self.key, "it holds no unencrypted private key in PEM form".into()),
        })?;
        builder
            .with_client_auth_cert(chain, key)
            .map_err(|error| bad(&self.key, format!("it is no key of {}: {error}", self.cert.display())))
    }
}

/// SECURITY: with the key anybody on this machine could be taken for the one who asks.
#[cfg(unix)]
fn check_private(key: &Path) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt;

    let mode = std::fs::metadata(key).map_err(|error| error.to_string())?.permissions().mode() & 0o777;
    match mode & 0o077 {
        0 => Ok(()),
        _ => Err(format!("it can be read by others (mode {mode:04o}); run `chmod 600 '{}'`", key.display())),
    }
}

#[cfg(not(unix))]
fn check_private(_key: &Path) -> Result<(), String> {
    Ok(())
}

/// TLS with these roots, offering these protocols, without a certificate of our own.
pub(super) fn connector(roots: &Arc<RootCertStore>, protocols: &[&[u8]]) -> Result<TlsConnector, SetupError> {
    Ok(offering(trusting(roots)?.with_no_client_auth(), protocols))
}

fn trusting(roots: &Arc<RootCertStore>) -> Result<Builder, SetupError> {
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    // AES-128 first, as browsers offer it: its handshakes hash with SHA-256, for which processors have instructions, and not SHA-384.
    provider.cipher_suites.sort_by_key(|suite| suite.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256);
    provider.signature_verification_algorithms = signatures::remembered();
    let builder = ClientConfig::builder_with_provider(Arc::new(provider));
    Ok(builder.with_safe_default_protocol_versions()?.with_root_certificates(Arc::clone(roots)))
}

fn offering(mut tls: ClientConfig, protocols: &[&[u8]]) -> TlsConnector {
    tls.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    TlsConnector::from(Arc::new(tls))
}

/// The system's certificates, or Mozilla's where the machine has none, and those of the settings.
pub(super) fn roots(ca_files: &[PathBuf]) -> Result<RootCertStore, SetupError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    for path in ca_files {
        let bad = |reason: String| SetupError::CaFile { path: path.clone(), reason };
        let certificates = read_certificates(path).map_err(bad)?;
        if certificates.is_empty() {
            return Err(bad("it holds no certificate in PEM form".into()));
        }
        for certificate in certificates {
            roots.add(certificate).map_err(|error| bad(error.to_string()))?;
        }
    }
    Ok(roots)
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    CertificateDer::pem_reader_iter(BufReader::new(file)).collect::<Result<_, _>>().map_err(|error| error.to_string())
}
