//! TLS from odd clients: what is hidden in a handshake leads nowhere.

use std::sync::Arc;

use rustls::client::{EchGreaseConfig, EchMode, EchStatus};
use rustls::crypto::aws_lc_rs::hpke::DH_KEM_X25519_HKDF_SHA256_AES_128;
use rustls::crypto::hpke::{Hpke, HpkePublicKey};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, RootCertStore};
use tokio_rustls::TlsConnector;

use super::support::in_time;
use super::support::origin::{Origin, Reply};
use super::support::proxy::Proxy;
use super::support::wire::Wire;

const RULES: &str = "User-agent: *\nDisallow: /private/";

fn roots(proxy: &Proxy) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(proxy.ca()).unwrap()).unwrap();
    roots
}

#[tokio::test]
async fn bypass_c10_a_hello_with_ech_is_read_by_its_outer_name() {
    let site = Origin::https(|visit| Reply::of_site(RULES, visit)).await;
    let proxy = Proxy::before(&[("a.test", &site)]).await;
    let suite = DH_KEM_X25519_HKDF_SHA256_AES_128;
    let (key, _) = suite.generate_key_pair().unwrap();
    let ech = EchMode::Grease(EchGreaseConfig::new(suite, HpkePublicKey(key.0)));
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()));
    let config = config.with_ech(ech).unwrap().with_root_certificates(roots(&proxy)).with_no_client_auth();
    let connector = TlsConnector::from(Arc::new(config));
    for (path, wanted) in [("/x", "200"), ("/private/x", "403")] {
        let wire = Wire::tunnel(&proxy, "a.test:443").await;
        let name = ServerName::try_from("a.test").unwrap();
        let tls = in_time("a handshake", connector.connect(name, wire.stream)).await.unwrap();
        assert_eq!(tls.get_ref().1.ech_status(), EchStatus::Grease, "it was sent");
        let mut wire = Wire::over(tls);
        wire.send(format!("GET {path} HTTP/1.1\r\nHost: a.test\r\n\r\n")).await;
        assert_eq!(wire.answer().await.0.split(' ').nth(1), Some(wanted), "{path}");
    }
    assert_eq!(site.paths(), ["/x"]);
}

/// A request in early data can be replayed by whoever saw it (RFC 8446 §8), and would run before its handshake is over.
#[tokio::test]
async fn bypass_c16_no_early_data_is_taken() {
    let site = Origin::https(|visit| Reply::of_site(RULES, visit)).await;
    let proxy = Proxy::before(&[("a.test", &site)]).await;
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()));
    let config = config.with_safe_default_protocol_versions().unwrap();
    let mut config = config.with_root_certificates(roots(&proxy)).with_no_client_auth();
    config.enable_early_data = true;
    let config = Arc::new(config);
    let connector = TlsConnector::from(Arc::clone(&config));
    for kind in [HandshakeKind::Full, HandshakeKind::Resumed] {
        let wire = Wire::tunnel(&proxy, "a.test:443").await;
        let name = ServerName::try_from("a.test").unwrap();
        let tls = in_time("a handshake", connector.connect(name, wire.stream)).await.unwrap();
        assert_eq!(tls.get_ref().1.handshake_kind(), Some(kind));
        let mut wire = Wire::over(tls);
        wire.send("GET /x HTTP/1.1\r\nHost: a.test\r\n\r\n").await;
        assert_eq!(wire.answer().await.1, "page /x");
    }
    let mut next = ClientConnection::new(config, ServerName::try_from("a.test").unwrap()).unwrap();
    assert!(next.early_data().is_none(), "the session that was given permits none");
    assert_eq!(site.paths(), ["/x", "/x"]);
}

/// Its ticket comes with the first answer (TLS 1.3), or ends the handshake (TLS 1.2).
#[tokio::test]
async fn a_client_that_has_had_an_answer_resumes_its_session() {
    let site = Origin::https(|visit| Reply::of_site(RULES, visit)).await;
    let proxy = Proxy::before(&[("a.test", &site)]).await;
    for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
        let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()));
        let config = config.with_protocol_versions(&[version]).unwrap();
        let config = config.with_root_certificates(roots(&proxy)).with_no_client_auth();
        let connector = TlsConnector::from(Arc::new(config));
        for kind in [HandshakeKind::Full, HandshakeKind::Resumed, HandshakeKind::Resumed] {
            let wire = Wire::tunnel(&proxy, "a.test:443").await;
            let name = ServerName::try_from("a.test").unwrap();
            let tls = in_time("a handshake", connector.connect(name, wire.stream)).await.unwrap();
            assert_eq!(tls.get_ref().1.handshake_kind(), Some(kind), "{version:?}");
            let mut wire = Wire::over(tls);
            for path in ["/x", "/y"] {
                wire.send(format!("GET {path} HTTP/1.1\r\nHost: a.test\r\n\r\n")).await;
                assert_eq!(wire.answer().await.1, format!("page {path}"));
            }
        }
    }
}
