//! Every failure towards an origin, as the client is told of it: status, reason and RFC 9209 error type.
//!
//! robots.txt itself is asked for, since it needs no other answer first.

use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::support::origin::{Origin, Raw, Reply};
use super::support::proxy::Proxy;
use super::support::wire::Wire;
use super::support::{authority, in_time};

async fn raw(answer: impl Fn() -> Raw + Send + Sync + 'static) -> Origin {
    Origin::raw(move |_| answer()).await
}

/// A port of loopback on which nobody listens any more.
async fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port()
}

#[tokio::test]
async fn rfc9209_2_3_each_failure_has_its_status_and_error_type() {
    // Takes connections, and answers nothing: not even a handshake.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent_port = silent.local_addr().unwrap().port();
    let script = |_: &super::support::origin::Visit| Reply::text("");
    let untrusted = Origin::tls(authority::untrusted(), script).await;
    let another = Origin::tls(authority::another_name(), script).await;
    let expired = Origin::tls(authority::expired(), script).await;
    let stubborn = Origin::tls(authority::every_name(&[b"spdy/1"]), script).await;
    let clear = Origin::http(script).await;
    let closes = raw(|| Raw::Close(Vec::new())).await;
    let cuts = raw(|| Raw::Close(b"HTTP/1.1 200 OK\r\nContent-".to_vec())).await;
    let resets = raw(|| Raw::Reset).await;
    let babbles = raw(|| Raw::Close(b"220 mail.test ESMTP\r\n\r\n".to_vec())).await;
    let contradicts =
        raw(|| Raw::Close(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab".to_vec())).await;
    let says_nothing = raw(|| Raw::Silence).await;
    let names = [
        ("a.test:443", &untrusted),
        ("b.test:443", &another),
        ("a.test:444", &expired),
        ("d.test:443", &stubborn),
        ("e.test", &closes),
        ("e.test:443", &clear),
        ("f.test", &cuts),
        ("g.test", &resets),
        ("h.test", &babbles),
        ("i.test", &contradicts),
        ("j.test", &says_nothing),
    ];
    let proxy = Proxy::with(&names, |settings| {
        settings.upstream.connect_timeout = Duration::from_secs(2);
        settings.upstream.idle_timeout = Duration::from_secs(2);
    })
    .await;
    let long_label = format!("http://{}.test", "a".repeat(64));
    let refused = format!("http://127.0.0.1:{}", free_port().await);
    let no_handshake = format!("https://127.0.0.1:{silent_port}");
    for (origin, status, reason, error) in [
        (long_label.as_str(), 502, "upstream-dns", "dns_error"),
        (refused.as_str(), 502, "upstream-refused", "connection_refused"),
        (no_handshake.as_str(), 504, "upstream-connect-timeout", "connection_timeout"),
        ("https://a.test", 502, "upstream-certificate", "tls_certificate_error"),
        ("https://b.test", 502, "upstream-certificate", "tls_certificate_error"),
        ("https://a.test:444", 502, "upstream-certificate", "tls_certificate_error"),
        ("https://d.test", 502, "upstream-tls-alert", "tls_alert_received"),
        ("https://e.test", 502, "upstream-tls", "tls_protocol_error"),
        ("http://e.test", 502, "upstream-closed", "connection_terminated"),
        ("http://f.test", 502, "upstream-closed", "connection_terminated"),
        ("http://g.test", 502, "upstream-closed", "connection_terminated"),
        ("http://h.test", 502, "upstream-protocol", "http_protocol_error"),
        ("http://i.test", 502, "upstream-protocol", "http_protocol_error"),
        ("http://j.test", 504, "upstream-timeout", "http_response_timeout"),
    ] {
        let url = format!("{origin}/robots.txt");
        let got = proxy.curl(&["-H", "Accept: application/json", &url]).await;
        assert_eq!((got.exit, got.status), (0, status), "{origin}: {} {}", got.error, got.text());
        assert_eq!((got.json()["reason"].clone(), got.json()["status"].clone()), (json!(reason), json!(status)));
        assert!(got.header("proxy-status").starts_with("robots-proxy; error="), "{origin}");
        assert!(got.header("proxy-status").contains(&format!("error={error};")), "{}", got.header("proxy-status"));
        assert_eq!(proxy.record_of(&url[origin.len() - 6..]).await["decision"], "error");
    }
}

#[tokio::test]
async fn an_answer_that_is_cut_short_is_a_failure_for_every_client() {
    let site = Origin::raw(|visit| match visit.path.as_str() {
        "/length" => Raw::Close(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf".into()),
        "/chunks" => Raw::Close(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n".into()),
        "/stalls" => Raw::Keep(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf".into()),
        _ => Raw::ok(""),
    })
    .await;
    let proxy = Proxy::with(&[("a.test", &site)], |settings| {
        settings.upstream.idle_timeout = Duration::from_secs(2);
    })
    .await;
    for (path, reason) in
        [("/length", "upstream-closed"), ("/chunks", "upstream-closed"), ("/stalls", "upstream-timeout")]
    {
        for options in [&["--http1.1"][..], &["--proxytunnel", "--http2-prior-knowledge"]] {
            let got = proxy.curl(&[options, &[&format!("http://a.test{path}")]].concat()).await;
            assert_ne!(got.exit, 0, "{path} {options:?}: curl notices");
            // In HTTP/2 the reset of the stream may overtake what was to be sent on it.
            assert!("half".starts_with(&got.text()), "{path} {options:?}: {}", got.text());
        }
        assert_eq!(proxy.record_of(path).await["reason"], reason, "{path}");
    }
}

#[tokio::test]
async fn an_origin_that_goes_on_is_not_silent() {
    let (pieces, body) = mpsc::unbounded_channel::<Bytes>();
    let body = Mutex::new(Some(body));
    let site = Origin::http(move |visit| match visit.is_robots() {
        true => Reply::text(""),
        false => Reply::Stream(Response::new(()), body.lock().unwrap().take().unwrap()),
    })
    .await;
    let proxy = Proxy::with(&[("a.test", &site)], |settings| {
        settings.upstream.idle_timeout = Duration::from_millis(1500);
    })
    .await;
    let speaking = async {
        for _ in 0..6 {
            robots_proxy::clock::sleep(Duration::from_millis(400)).await;
            pieces.send("piece".into()).unwrap();
        }
        drop(pieces);
    };
    let (got, ()) = tokio::join!(proxy.curl(&["http://a.test/x"]), speaking);
    assert_eq!((got.exit, got.text().len()), (0, 30), "{}", got.error);
}

#[tokio::test]
async fn a_slow_upload_is_no_silence_of_the_origin() {
    let site = Origin::http(|visit| match visit.is_robots() {
        true => Reply::text(""),
        false => Reply::Count(None),
    })
    .await;
    let proxy = Proxy::with(&[("a.test", &site)], |settings| {
        settings.upstream.idle_timeout = Duration::from_millis(1500);
    })
    .await;
    let mut wire = Wire::to(&proxy).await;
    wire.send("POST http://a.test/x HTTP/1.1\r\nHost: a.test\r\nContent-Length: 8\r\n\r\n").await;
    for octet in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        robots_proxy::clock::sleep(Duration::from_millis(300)).await;
        wire.send(octet).await;
    }
    let (head, body) = in_time("the answer", wire.answer()).await;
    assert!(head.starts_with("HTTP/1.1 200 ") && body == "8", "{head}{body}");
}
