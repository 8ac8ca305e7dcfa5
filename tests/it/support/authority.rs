//! The certificate authority of the origins: made once per test run, trusted by the proxy through `upstream.ca_files`.

use std::sync::{Arc, LazyLock};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

/// The authority that the proxy is told to trust.
pub(crate) static TRUSTED: LazyLock<Authority> = LazyLock::new(|| Authority::new("Origins' CA"));

/// One that it is not told of.
static STRANGER: LazyLock<Authority> = LazyLock::new(|| Authority::new("Nobody's CA"));

/// A certificate authority that can sign for any name.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        Authority { issuer }
    }

    /// The certificate, PEM.
    pub(crate) fn pem(&self) -> String {
        self.issuer.pem()
    }

    fn config(&self, names: Vec<String>, alpn: &[&[u8]]) -> Arc<ServerConfig> {
        self.config_of(CertificateParams::new(names).unwrap(), alpn)
    }

    fn config_of(&self, params: CertificateParams, alpn: &[&[u8]]) -> Arc<ServerConfig> {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
        Arc::new(config)
    }
}

/// TLS of an origin that has every name of the tests, and the addresses of loopback.
pub(crate) fn every_name(alpn: &[&[u8]]) -> Arc<ServerConfig> {
    let letters = ('a'..='z').map(|letter| format!("{letter}.test"));
    let others = ["*.nimbu.test", "127.0.0.1", "::1"].map(str::to_owned);
    TRUSTED.config(letters.chain(others).collect(), alpn)
}

/// TLS of an origin with every name that lets in who shows a certificate of [`TRUSTED`], and nobody else.
pub(crate) fn demanding(alpn: &[&[u8]]) -> Arc<ServerConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(TRUSTED.issuer.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build().unwrap();
    let mut config = Arc::unwrap_or_clone(every_name(alpn));
    config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::clone(&config.cert_resolver));
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    Arc::new(config)
}

/// A certificate of a client, and its key, PEM.
pub(crate) fn client() -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["nimbubot.example".into()]).unwrap();
    (params.signed_by(&key, &TRUSTED.issuer).unwrap().pem(), key.serialize_pem())
}

/// TLS of an origin whose certificate nobody vouches for.
pub(crate) fn untrusted() -> Arc<ServerConfig> {
    STRANGER.config(vec!["*.nimbu.test".into(), "a.test".into()], &[b"http/1.1"])
}

/// TLS of an origin that shows the certificate of another.
pub(crate) fn another_name() -> Arc<ServerConfig> {
    TRUSTED.config(vec!["another.example".into()], &[b"http/1.1"])
}

/// TLS of an origin whose certificate ended years ago.
pub(crate) fn expired() -> Arc<ServerConfig> {
    let mut params = CertificateParams::new(vec!["a.test".into()]).unwrap();
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(2021, 1, 1);
    TRUSTED.config_of(params, &[b"http/1.1"])
}
