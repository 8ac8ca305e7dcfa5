//! What comes through a CONNECT: TLS, HTTP in clear text, and what is neither.

use std::time::Duration;

use http::Version;
use robots_proxy::policy::enforcement::Mode;
use serde_json::json;
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio_rustls::client::TlsStream;

use super::support::origin::{Origin, Reply};
use super::support::proxy::Proxy;
use super::support::wire::Wire;
use super::support::{in_time, until};

const RULES: &str = "User-agent: *\nDisallow: /private/";

async fn clear() -> Origin {
    Origin::http(|visit| Reply::of_site(RULES, visit)).await
}

async fn tls() -> Origin {
    Origin::https(|visit| Reply::of_site(RULES, visit)).await
}

#[tokio::test]
async fn case_18_bypass_c6_c7_clear_text_in_a_tunnel_is_inspected_like_any_request() {
    let site = clear().await;
    let proxy = Proxy::before(&[("a.test", &site)]).await;
    for option in ["--http1.1", "--http2-prior-knowledge"] {
        for method in ["GET", "POST", "DELETE", "PROPFIND"] {
            let arguments = ["--proxytunnel", option, "--request", method, "http://a.test/private/x"];
            assert_eq!(proxy.curl(&arguments).await.status, 403, "{option} {method}");
        }
        let got = proxy.curl(&["--proxytunnel", option, "http://a.test/x"]).await;
        assert_eq!((got.status, got.text().as_str()), (200, "page /x"), "{option}");
    }
    assert_eq!(site.paths(), ["/x", "/x"]);
    let record = proxy.record_of("/x").await;
    assert_eq!((&record["via"], &record["url"]), (&json!("connect"), &json!("http://a.test/private/x")));
}

#[tokio::test]
async fn case_19_bypass_c8_what_is_neither_tls_nor_http_is_closed_and_recorded() {
    let site = clear().await;
    let proxy = Proxy::with(&[("a.test:22", &site)], |settings| {
        settings.limits.header_timeout = Duration::from_millis(500);
    })
    .await;
    let greetings: [&[u8]; 5] =
        [b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n", b"\x00\x01\x02", b"*1\r\n$4\r\nPING\r\n", b"<?xml?>", b""];
    for (number, greeting) in greetings.iter().enumerate() {
        let mut wire = Wire::tunnel(&proxy, "a.test:22").await;
        wire.send(greeting).await;
        let answer = wire.rest().await;
        assert_eq!(answer, "", "{greeting:?}");
        let records = proxy.records(number + 1).await;
        let record = &records[number];
        assert_eq!((&record["method"], &record["url"]), (&json!("CONNECT"), &json!("a.test:22")));
        assert_eq!((&record["decision"], &record["reason"]), (&json!("error"), &json!("not-http")), "{greeting:?}");
    }
    assert_eq!(site.connections(), 0, "nothing of it reaches anybody");
}

#[tokio::test]
async fn bypass_a3_another_host_inside_a_tunnel_is_421() {
    let (one, other) = (tls().await, tls().await);
    let proxy = Proxy::before(&[("a.test", &one), ("b.test", &other)]).await;
    for option in ["--http1.1", "--http2"] {
        let arguments = [option, "-H", "Host: b.test", "-H", "Accept: application/json", "https://a.test/x"];
        let got = proxy.curl(&arguments).await;
        assert_eq!((got.status, got.json()["reason"].clone()), (421, json!("authority-mismatch")), "{option}");
        assert!(got.header("proxy-status").contains("http_request_denied"));
        let port = proxy.curl(&[option, "-H", "Host: a.test:444", "https://a.test/x"]).await;
        assert_eq!(port.status, 421, "{option}: another port is another origin");
        let same = proxy.curl(&[option, "-H", "Host: A.Test.:443", "https://a.test/x"]).await;
        assert_eq!(same.status, 200, "{option}: another spelling is the same host");
    }
    assert_eq!((one.pages().len(), other.visits().len()), (2, 0));
    assert!(one.pages().iter().all(|visit| visit.authority == "a.test"), "{:?}", one.pages());
    assert_eq!(proxy.records(4).await.iter().filter(|record| record["reason"] == "authority-mismatch").count(), 4);
}

#[tokio::test]
async fn bypass_b8_an_absolute_url_inside_a_tunnel_must_be_of_its_host() {
    let (one, other) = (tls().await, tls().await);
    let proxy = Proxy::before(&[("a.test", &one), ("b.test", &other)]).await;
    let mut wire = Wire::tunnel(&proxy, "a.test:443").await.tls(&proxy, "a.test", &[b"http/1.1"]).await;
    for (line, status) in
        [("https://a.test/x", "200"), ("https://a.test/private/x", "403"), ("https://b.test/x", "421")]
    {
        wire.send(format!("GET {line} HTTP/1.1\r\nHost: a.test\r\n\r\n")).await;
        let (head, _) = wire.answer().await;
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{line}: {head}");
    }
    assert_eq!((one.paths(), other.visits().len()), (vec!["/x".to_owned()], 0));
}

#[tokio::test]
async fn case_14_bypass_a12_an_origin_may_be_an_address() {
    let (clear, tls) = (clear().await, tls().await);
    let proxy = Proxy::before(&[]).await;
    for (url, origin) in [(format!("http://{}", clear.address), &clear), (format!("https://{}", tls.address), &tls)] {
        let got = proxy.curl(&[&format!("{url}/x")]).await;
        assert_eq!((got.exit, got.status), (0, 200), "{url}: {}", got.error);
        assert_eq!(proxy.curl(&[&format!("{url}/private/x")]).await.status, 403);
        assert_eq!(origin.robots().len(), 1, "an address has a robots.txt of its own");
    }
}

/// Inside the tunnel `a.test` is the site, by its rules, and nobody else is.
async fn goes_by_a_test(mut wire: Wire<TlsStream<TcpStream>>, site: &Origin) {
    for (host, path, status) in [("a.test", "/x", "200"), ("a.test", "/private/x", "403"), ("b.test", "/x", "421")] {
        wire.send(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n")).await;
        let (head, _) = wire.answer().await;
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{host}{path}: {head}");
    }
    assert!(site.visits().iter().all(|visit| visit.authority == "a.test"));
}

#[tokio::test]
async fn case_13_a_tunnel_to_an_address_goes_by_the_name_inside() {
    let site = tls().await;
    let proxy = Proxy::before(&[("a.test", &site), ("127.0.0.1:443", &site)]).await;
    let wire = Wire::tunnel(&proxy, "127.0.0.1:443").await.tls(&proxy, "a.test", &[b"http/1.1"]).await;
    goes_by_a_test(wire, &site).await;
}

#[tokio::test]
async fn bypass_a4_the_certificate_follows_the_server_name_and_the_rules_the_connect() {
    let site = tls().await;
    let proxy = Proxy::before(&[("a.test", &site), ("b.test", &site)]).await;
    let wire = Wire::tunnel(&proxy, "a.test:443").await.tls(&proxy, "b.test", &[b"http/1.1"]).await;
    goes_by_a_test(wire, &site).await;
}

#[tokio::test]
async fn bypass_c9_without_a_server_name_the_certificate_is_for_the_connect() {
    let site = tls().await;
    let proxy = Proxy::before(&[("a.test", &site)]).await;
    let openssl = Command::new("openssl")
        .args(["s_client", "-proxy", &proxy.address.to_string(), "-connect", "a.test:443", "-noservername"])
        .args(["-verify_return_error", "-verify_hostname", "a.test", "-CAfile"])
        .arg(proxy.ca())
        .stdin(std::process::Stdio::null())
        .output();
    let output = in_time("openssl", openssl).await.expect("openssl is installed");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("Verify return code: 0 (ok)"), "{said}{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test]
async fn case_10_the_certificate_is_for_the_host_short_lived_and_comes_with_its_ca() {
    let site = tls().await;
    let proxy = Proxy::before(&[("a.test", &site)]).await;
    let (address, ca) = (proxy.address.to_string(), proxy.ca());
    let openssl = Command::new("openssl")
        .args(["s_client", "-proxy", &address, "-connect", "a.test:443", "-servername", "a.test", "-alpn", "h2"])
        .args(["-verify_return_error", "-verify_hostname", "a.test", "-x509_strict", "-showcerts", "-CAfile"])
        .arg(&ca)
        .stdin(std::process::Stdio::null())
        .output();
    let output = in_time("openssl", openssl).await.expect("openssl is installed");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("Verify return code: 0 (ok)"), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("ALPN protocol: h2"), "{said}");
    let pem = std::fs::read_to_string(&ca).unwrap();
    assert_eq!(said.matches("BEGIN CERTIFICATE").count(), 2, "the CA is sent along");
    assert!(said.contains(pem.lines().nth(1).unwrap()));
    assert_eq!(site.connections(), 0, "minted without asking the origin");
}

#[tokio::test]
async fn observe_mode_refuses_and_delays_nothing_and_records_what_it_would_have_done() {
    let site =
        Origin::https(|visit| Reply::of_site("User-agent: *\nDisallow: /private/\nCrawl-delay: 20", visit)).await;
    let proxy = Proxy::with(&[("a.test", &site)], |settings| settings.mode = Mode::Observe).await;
    for path in ["/private/1", "/2", "/3"] {
        assert_eq!(proxy.curl(&["--max-time", "10", &format!("https://a.test{path}")]).await.status, 200);
    }
    assert_eq!(site.paths(), ["/private/1", "/2", "/3"]);
    let private = proxy.record_of("/private/1").await;
    for (field, value) in [
        ("decision", json!("observe")),
        ("mode", json!("observe")),
        ("reason", json!("disallowed")),
        ("rule", json!("Disallow: /private/")),
        ("line", json!(2)),
        ("status", json!(200)),
    ] {
        assert_eq!(private[field], value, "{field}: {private}");
    }
    let open = proxy.record_of("/3").await;
    assert_eq!((&open["decision"], &open["reason"]), (&json!("allow"), &json!("allowed")));
    assert!(open["would_wait_ms"].is_u64(), "{open}");
}

#[tokio::test]
async fn a_client_that_sends_too_much_is_told_when_to_come_back() {
    let site = clear().await;
    let proxy = Proxy::with(&[("a.test", &site)], |settings| {
        settings.limits.per_client = Some((3.try_into().unwrap(), Duration::from_secs(60)));
    })
    .await;
    for _ in 0..3 {
        assert_eq!(proxy.curl(&["http://a.test/x"]).await.status, 200);
    }
    let got = proxy.curl(&["-H", "Accept: application/json", "http://a.test/x"]).await;
    assert_eq!((got.status, got.json()["reason"].clone()), (429, json!("client-limit")));
    assert!((1..=20).contains(&got.retry_after().unwrap()), "{:?}", got.retry_after());
    assert_eq!(site.pages().len(), 3);
}

#[tokio::test]
async fn a_stopping_proxy_answers_503_to_those_in_the_line_and_lets_the_others_finish() {
    let gate = std::sync::Arc::new(tokio::sync::Semaphore::new(0));
    let shut = std::sync::Arc::clone(&gate);
    let site = Origin::https(move |visit| match visit.path.as_str() {
        "/running" => Reply::Gated(std::sync::Arc::clone(&shut), http::Response::new("done".into())),
        _ => Reply::of_site("User-agent: *\nCrawl-delay: 30", visit),
    })
    .await;
    let mut proxy = Proxy::before(&[("a.test", &site)]).await;
    // A connection that nobody uses must not hold up the stop.
    let _idle = Wire::tunnel(&proxy, "a.test:443").await.tls(&proxy, "a.test", &[b"http/1.1"]).await;
    let _new = Wire::to(&proxy).await;
    let running = proxy.take();
    let ask =
        async |path: &str| proxy.curl(&["-H", "Accept: application/json", &format!("https://a.test{path}")]).await;
    let stopping = async {
        // The one that waits is behind the one that runs: nothing tells from outside that it is there, so it gets a moment.
        robots_proxy::clock::sleep(Duration::from_millis(500)).await;
        let stopped = tokio::spawn(running.stop());
        until("the listener to close", || std::net::TcpStream::connect(proxy.address).err()).await;
        assert_eq!(site.pages().len(), 1);
        gate.add_permits(1);
        in_time("the stop", stopped).await.unwrap()
    };
    let second = async {
        site.until_pages(1).await;
        ask("/waiting").await
    };
    let (first, second, finished) = tokio::join!(ask("/running"), second, stopping);
    assert_eq!((first.status, first.text().as_str()), (200, "done"));
    assert_eq!((second.status, second.json()["reason"].clone()), (503, json!("stopping")));
    assert!(second.retry_after().is_some());
    assert!(finished);
    assert_eq!(site.pages().len(), 1);
    assert_eq!(site.pages()[0].version, Version::HTTP_2);
    assert_eq!(proxy.records(2).await.iter().filter(|record| record["reason"] == "stopping").count(), 1);
}

#[tokio::test]
async fn a_stop_waits_no_longer_than_the_drain() {
    let site = Origin::https(|visit| match visit.is_robots() {
        true => Reply::text(""),
        false => Reply::Gated(std::sync::Arc::new(tokio::sync::Semaphore::new(0)), http::Response::default()),
    })
    .await;
    let mut proxy =
        Proxy::with(&[("a.test", &site)], |settings| settings.limits.drain = Duration::from_millis(300)).await;
    let _running = proxy.spawn_curl(&["https://a.test/x"]);
    site.until_pages(1).await;
    assert!(!proxy.stop().await, "it says that not everything finished");
}
