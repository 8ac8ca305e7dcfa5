//! A certificate for every host, minted at the first handshake.
//!
//! Clients refuse certificates that live too long, reuse a serial or do not say who signed them, and each client has
//! its own list. What is minted here passes the strictest that we know: at most 45 days from end to end, 128 random
//! bits of serial, the issuer's own key identifier, and the one name asked for; never a wildcard, or a browser would
//! send a second host's requests down the first host's connection. All leaves share one key, made at start and never
//! written: minting is then one signature, and the CA's key never talks to a client.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use moka::ops::compute::{CompResult, Op};
use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose, SanType};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::sign::{CertifiedKey, SigningKey};

use super::{Ca, Error, Permitted, Settings, serial};
use crate::clock;

/// Mints certificates and keeps them while they are fresh.
pub struct Leaves {
    ca: Arc<Ca>,
    terms: ArcSwap<Terms>,
    key: KeyPair,
    signing: Arc<dyn SigningKey>,
    kept: Cache<ServerName<'static>, Arc<Leaf>>,
    minted: AtomicU64,
}

/// What the settings say of leaves.
struct Terms {
    life: Duration,
    permitted: Permitted,
}

impl Terms {
    fn of(settings: &Settings) -> Terms {
        Terms { life: settings.leaf_ttl.clamp(SHORTEST, LONGEST), permitted: Permitted::new(&settings.permitted) }
    }
}

impl Leaves {
    /// Makes the key that all leaves share.
    pub fn new(ca: Arc<Ca>, settings: &Settings) -> Result<Leaves, Error> {
        let key = KeyPair::generate()?;
        let der = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let signing = aws_lc_rs::sign::any_ecdsa_type(&der)?;
        // Least recently used, since moka's default would rather keep a host that is asked for often than admit a new
        // one, and a crawl meets new hosts all the time.
        let kept = Cache::builder().max_capacity(KEPT).eviction_policy(EvictionPolicy::lru()).build();
        let terms = ArcSwap::from_pointee(Terms::of(settings));
        Ok(Leaves { ca, terms, key, signing, kept, minted: AtomicU64::new(0) })
    }

    /// Takes another life of leaves and another list of what may be signed for; `dir` stays as it was. Those that live too long by the
    /// new settings are minted anew.
    pub fn reload(&self, settings: &Settings) {
        let terms = Terms::of(settings);
        let before = self.terms.swap(Arc::new(terms));
        if before.life != self.terms.load().life {
            self.kept.invalidate_all();
        }
    }

    /// A certificate for this host, a name or an address (IPv6 with or without brackets), that is valid now.
    pub fn certificate(&self, host: &str) -> Result<Arc<CertifiedKey>, Error> {
        self.certificate_at(host, clock::wall())
    }

    /// The same at a given time.
    pub fn certificate_at(&self, host: &str, now: SystemTime) -> Result<Arc<CertifiedKey>, Error> {
        let name = self.admit(host)?;
        if let Some(leaf) = self.kept.get(&name)
            && leaf.is_fresh_at(now)
        {
            return Ok(leaf.certified.clone());
        }
        // One asker a name is in here at a time; those who waited find what the first one minted.
        let outcome = self.kept.entry_by_ref(&name).and_try_compute_with(|entry| match entry {
            Some(entry) if entry.value().is_fresh_at(now) => Ok(Op::Nop),
            _ => self.mint(&name, now).map(|leaf| Op::Put(Arc::new(leaf))),
        })?;
        match outcome {
            CompResult::Inserted(entry) | CompResult::ReplacedWith(entry) | CompResult::Unchanged(entry) => {
                Ok(entry.into_value().certified.clone())
            }
            CompResult::StillNone(_) | CompResult::Removed(_) => {
                unreachable!("the closure puts, or leaves what is there")
            }
        }
    }

    /// Whether a certificate for this host can be made: by the setting, and by the CA's own certificate, which clients go by.
    ///
    /// # Errors
    /// It cannot be named in a certificate, or may not.
    pub fn check(&self, host: &str) -> Result<(), Error> {
        self.admit(host).map(drop)
    }

    fn admit(&self, host: &str) -> Result<ServerName<'static>, Error> {
        let name = parse(host)?;
        let terms = self.terms.load();
        match [&terms.permitted, self.ca.permitted()].into_iter().find(|permitted| !permitted.admits(&name)) {
            None => Ok(name),
            Some(permitted) => Err(Error::NotPermitted { host: host.to_owned(), permitted: permitted.clone() }),
        }
    }

    /// The CA that signs.
    pub fn ca(&self) -> &Ca {
        &self.ca
    }

    /// How many were minted since start.
    pub fn minted(&self) -> u64 {
        self.minted.load(Ordering::Relaxed)
    }

    fn mint(&self, name: &ServerName<'static>, now: SystemTime) -> Result<Leaf, Error> {
        self.ca.check_dates(now)?;
        let not_before = (now - BACKDATE).max(self.ca.not_before);
        let not_after = (now + self.terms.load().life).min(self.ca.not_after);
        let certificate = params(name, not_before, not_after)?.signed_by(&self.key, &self.ca.issuer)?;

        let chain: Vec<CertificateDer<'static>> =
            std::iter::once(certificate.into()).chain(self.ca.chain.iter().cloned()).collect();
        let certified = Arc::new(CertifiedKey::new(chain, self.signing.clone()));
        self.minted.fetch_add(1, Ordering::Relaxed);
        // The last third of its life is left to clients that keep a connection, and to clocks that are ahead of ours.
        let remaining = not_after.duration_since(now).unwrap_or_default();
        Ok(Leaf { certified, not_before, renew_at: now + remaining * 2 / 3 })
    }
}

/// Hosts kept. A leaf with its chain is some 2 KiB, so this is at most 40 MB; minting anew costs one signature.
const KEPT: u64 = 20_000;

/// The clocks of virtual machines and phones are a day behind more often than one thinks (mitmproxy backdates by two
/// days).
const BACKDATE: Duration = Duration::from_secs(24 * 3600);

/// With [`BACKDATE`], 45 days from end to end, whatever `leaf_ttl` says: the CA/Browser Forum's limit is 47 from March
/// 2029, and what counts is the whole span (mitmproxy#8201).
const LONGEST: Duration = Duration::from_secs(44 * 24 * 3600);

/// Long enough that a certificate outlives the handshake and the clock skew that it was minted for.
const SHORTEST: Duration = Duration::from_secs(3600);

/// The name as a certificate holds it. Addresses are told by their text; names may have underscores, but no `*`.
fn parse(host: &str) -> Result<ServerName<'static>, Error> {
    let refused = || Error::Host(host.to_owned());
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    if let Some(bare) = bare {
        let address: IpAddr = bare.parse().map_err(|_| refused())?;
        return Ok(ServerName::from(address));
    }
    // A certificate's name has no final dot, also where the client writes one.
    let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    ServerName::try_from(name).map_err(|_| refused())
}

fn params(name: &ServerName<'_>, not_before: SystemTime, not_after: SystemTime) -> Result<CertificateParams, Error> {
    let mut params = CertificateParams::default();
    params.serial_number = Some(serial()?);
    params.not_before = not_before.into();
    params.not_after = not_after.into();
    // No common name: clients read the alternative name only, and the field holds no more than 64 characters. Not empty
    // either: that would make the alternative name critical, which old clients dislike, and the subject is where a
    // person sees who made this.
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "robots-proxy");
    params.subject_alt_names = vec![match name {
        ServerName::IpAddress(address) => SanType::IpAddress((*address).into()),
        name => SanType::DnsName(name.to_str().as_ref().try_into()?),
    }];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    // Python 3.13 refuses a certificate without it. rcgen copies the identifier of the CA, which need not be a hash of
    // its key.
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

struct Leaf {
    certified: Arc<CertifiedKey>,
    not_before: SystemTime,
    renew_at: SystemTime,
}

impl Leaf {
    /// Both ends, since the operator's clock may be set back.
    fn is_fresh_at(&self, now: SystemTime) -> bool {
        self.not_before <= now && now < self.renew_at
    }
}
