//! A CA that may sign for some hosts only.

use serde_json::json;
use tokio::process::Command;

use super::support::in_time;
use super::support::origin::{Origin, Reply};
use super::support::proxy::Proxy;
use super::support::wire::Wire;

#[tokio::test]
async fn hosts_that_the_ca_may_not_sign_for_are_refused_on_the_connect() {
    let tls = Origin::https(|visit| Reply::of_site("", visit)).await;
    let clear = Origin::http(|visit| Reply::of_site("", visit)).await;
    let names = [("b.nimbu.test", &tls), ("a.test", &tls), ("127.0.0.1:443", &tls), ("a.test:80", &clear)];
    let proxy = Proxy::with(&names, |settings| settings.ca.permitted = vec!["nimbu.test".parse().unwrap()]).await;
    let got = proxy.curl(&["https://b.nimbu.test/x"]).await;
    assert_eq!((got.status, got.text().as_str()), (200, "page /x"), "{}", got.error);
    for arguments in [&["http://a.test/x"][..], &["--proxytunnel", "http://a.test/x"]] {
        assert_eq!(proxy.curl(arguments).await.status, 200, "clear text needs no certificate");
    }
    let mut wire = Wire::to(&proxy).await;
    wire.send("CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\nAccept: application/json\r\n\r\n").await;
    let (head, body) = wire.answer().await;
    let problem: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert!(head.starts_with("HTTP/1.1 403 ") && head.to_lowercase().contains("http_request_denied"), "{head}");
    assert_eq!(problem["reason"], "ca-not-permitted");
    assert!(problem["detail"].as_str().unwrap().contains("nimbu.test only (ca.permitted)"), "{body}");
    let record = proxy.record_of("a.test:443").await;
    assert_eq!((&record["method"], &record["decision"]), (&json!("CONNECT"), &json!("refuse")));
    // An address may carry a permitted name, or none that is.
    let mut wire = Wire::tunnel(&proxy, "127.0.0.1:443").await.tls(&proxy, "b.nimbu.test", &[b"http/1.1"]).await;
    wire.send("GET /x HTTP/1.1\r\nHost: b.nimbu.test\r\n\r\n").await;
    assert!(wire.head().await.starts_with("HTTP/1.1 200 "));
    let openssl = Command::new("openssl")
        .args(["s_client", "-proxy", &proxy.address.to_string(), "-connect", "127.0.0.1:443", "-servername", "a.test"])
        .stdin(std::process::Stdio::null())
        .output();
    let output = in_time("openssl", openssl).await.unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("alert access denied"), "{output:?}");
    assert_eq!(proxy.record_of("127.0.0.1:443").await["reason"], "ca-not-permitted");
}
