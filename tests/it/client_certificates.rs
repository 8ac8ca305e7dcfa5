//! Origins that want to know who is asking, by a certificate.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use robots_proxy::upstream::ClientCertificate;
use serde_json::json;

use super::support::authority;
use super::support::origin::{Origin, Reply};
use super::support::program;
use super::support::proxy::Proxy;

const RULES: &str = "User-agent: *\nDisallow: /private/";

/// Writes a certificate and its key, which only their owner can read.
fn write(folder: &Path) -> (std::path::PathBuf, std::path::PathBuf) {
    let (cert, key) = (folder.join("client.pem"), folder.join("client.key"));
    let (cert_pem, key_pem) = authority::client();
    std::fs::write(&cert, cert_pem).unwrap();
    std::fs::write(&key, key_pem).unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    (cert, key)
}

#[tokio::test]
async fn an_origin_that_wants_a_certificate_is_shown_the_one_for_its_host_and_no_other_is() {
    let folder = tempfile::tempdir().unwrap();
    let (cert, key) = write(folder.path());
    for protocol in ["h2", "http/1.1"] {
        let site =
            Origin::tls(authority::demanding(&[protocol.as_bytes()]), |visit| Reply::of_site(RULES, visit)).await;
        let names = [("a.test", &site), ("shop.nimbu.test", &site), ("c.test", &site)];
        let proxy = Proxy::with(&names, |settings| {
            settings.upstream.client_certificates = ["a.test", "*.nimbu.test"]
                .map(|host| ClientCertificate { host: host.parse().unwrap(), cert: cert.clone(), key: key.clone() })
                .into();
        })
        .await;
        for (url, status) in [
            ("https://a.test/x", 200),
            ("https://a.test/private/x", 403),
            ("https://shop.nimbu.test/x", 200),
            // The same server: its kept connections are not for this host, nor are its sessions.
            ("https://c.test/x", 403),
            ("https://a.test/x", 200),
        ] {
            assert_eq!(proxy.curl(&[url]).await.status, status, "{protocol} {url}");
        }
        let refused = proxy.curl(&["-H", "Accept: application/json", "https://c.test/y"]).await.json();
        assert_eq!(refused["reason"], json!("robots-unreachable"));
        assert!(
            refused["detail"]
                .as_str()
                .unwrap()
                .contains("the host ended TLS: received fatal alert: CertificateRequired"),
            "{refused}"
        );
        let got = proxy.curl(&["-H", "Accept: application/json", "https://c.test/robots.txt"]).await;
        assert_eq!((got.status, got.json()["reason"].clone()), (502, json!("upstream-tls-alert")), "{}", got.text());
        assert!(got.header("proxy-status").contains("error=tls_alert_received"));
        assert!(site.visits().iter().all(|visit| visit.host() != "c.test"));
    }
}

#[tokio::test]
async fn a_certificate_that_cannot_be_used_stops_the_start_with_one_line() {
    let folder = program::folder(
        "listen = [\"127.0.0.1:0\"]\n[[upstream.client_certificate]]\nhost = \"a.test\"\n\
                                  cert = \"client.pem\"\nkey = \"client.key\"\n",
    );
    let says = async |words: &[&str]| {
        let ran = program::run(folder.path(), &["serve"]).await;
        assert!(ran.exit == 1 && ran.err.lines().count() == 1, "{ran:?}");
        for word in [&["upstream.client_certificate"], words].concat() {
            assert!(ran.err.contains(word), "{word}: {ran:?}");
        }
    };
    says(&["client.pem", "No such file"]).await;
    let (cert, key) = write(folder.path());
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o640)).unwrap();
    says(&["client.key", "0640", "chmod 600"]).await;
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::write(&key, "no key").unwrap();
    says(&["client.key", "no unencrypted private key"]).await;
    std::fs::write(&key, authority::client().1).unwrap();
    says(&["client.key", "no key of"]).await;
    std::fs::write(&cert, "no certificate").unwrap();
    says(&["client.pem", "no certificate"]).await;
}
