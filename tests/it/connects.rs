//! A CONNECT in all the forms that clients send it, and the same sent wrongly.

use std::time::Duration;

use serde_json::json;

use super::support::origin::{Origin, Reply};
use super::support::proxy::Proxy;
use super::support::wire::{Wire, exchange};

const RULES: &str = "User-agent: *\nDisallow: /private/";

async fn sites() -> (Origin, Origin, Proxy) {
    let tls = Origin::https(|visit| Reply::of_site(RULES, visit)).await;
    let clear = Origin::http(|visit| Reply::of_site(RULES, visit)).await;
    let names =
        [("a.test", &tls), ("[::1]:443", &tls), ("127.0.0.1:443", &tls), ("b.test", &clear), ("[::1]:80", &clear)];
    let proxy = Proxy::with(&names, |settings| settings.limits.header_timeout = Duration::from_secs(2)).await;
    (tls, clear, proxy)
}

fn status(head: &str) -> &str {
    head.split(' ').nth(1).unwrap_or_default()
}

#[tokio::test]
async fn case_05_forms_of_connect_that_clients_send_are_all_understood() {
    let (tls, _clear, proxy) = sites().await;
    let mut asked = 0;
    for (connect, name, host) in [
        ("CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n", "a.test", "a.test"),
        // httpx, urllib, axios, wget and Ruby.
        ("CONNECT ::1:443 HTTP/1.1\r\nHost: ::1:443\r\n\r\n", "::1", "[::1]"),
        ("CONNECT 0:0:0:0:0:0:0:1:443 HTTP/1.0\r\n\r\n", "::1", "[::1]"),
        ("CONNECT [::1]:443 HTTP/1.1\r\nHost: [::1]:443\r\n\r\n", "::1", "[::1]"),
        // Python's urllib and requests.
        ("CONNECT a.test:443 HTTP/1.0\r\n\r\n", "a.test", "a.test"),
        // Node's fetch, aiohttp and axios.
        ("CONNECT a.test:443 HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n", "a.test", "a.test"),
        // wget and curl.
        (
            "CONNECT A.TEST.:0443 HTTP/1.1\r\nHost: a.test:443\r\nProxy-Connection: keep-alive\r\n\r\n",
            "a.test",
            "a.test",
        ),
        ("CONNECT a.test:443 HTTP/1.1\r\nProxy-Connection: close\r\nContent-Length: 0\r\n\r\n", "a.test", "a.test"),
        ("CONNECT a.test:443 HTTP/1.1\n\n", "a.test", "a.test"),
    ] {
        let mut wire = Wire::to(&proxy).await;
        wire.send(connect).await;
        let head = wire.head().await;
        assert_eq!(status(&head), "200", "{connect}: {head}");
        let mut wire = wire.tls(&proxy, name, &[]).await;
        for _ in 0..2 {
            wire.send(format!("GET /x HTTP/1.1\r\nHost: {host}\r\n\r\n")).await;
            let (head, body) = wire.answer().await;
            assert_eq!((status(&head), body.as_str()), ("200", "page /x"), "{connect}");
            asked += 1;
        }
        wire.send(format!("GET /private/x HTTP/1.1\r\nHost: {host}\r\n\r\n")).await;
        assert_eq!(status(&wire.head().await), "403", "{connect}");
    }
    assert_eq!(tls.pages().len(), asked);
}

#[tokio::test]
async fn case_05_octets_right_behind_a_connect_belong_to_the_tunnel() {
    let (_tls, clear, proxy) = sites().await;
    for connect in ["CONNECT b.test:80 HTTP/1.1\r\nHost: b.test\r\n\r\n", "CONNECT ::1:80 HTTP/1.0\r\n\r\n"] {
        let host = if connect.contains("::1") { "[::1]" } else { "b.test" };
        let inside = format!("GET /private/x HTTP/1.1\r\nHost: {host}\r\n\r\nGET /x HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let mut wire = Wire::to(&proxy).await;
        wire.send(format!("{connect}{inside}")).await;
        assert_eq!(status(&wire.head().await), "200", "{connect}");
        assert_eq!(status(&wire.answer().await.0), "403");
        assert_eq!(wire.answer().await.1, "page /x");
    }
    assert_eq!(clear.paths(), ["/x", "/x"]);
}

#[tokio::test]
async fn a_connect_may_come_octet_by_octet_and_behind_other_requests() {
    let (_tls, _clear, proxy) = sites().await;
    let connect = "CONNECT b.test:80 HTTP/1.1\r\nHost: b.test\r\n\r\n";
    let inside = "GET /x HTTP/1.1\r\nHost: b.test\r\n\r\n";
    let mut wire = Wire::to(&proxy).await;
    for octet in connect.bytes() {
        wire.send([octet]).await;
    }
    assert_eq!(status(&wire.head().await), "200");
    wire.send(inside).await;
    assert_eq!(wire.answer().await.1, "page /x");

    let mut wire = Wire::to(&proxy).await;
    wire.send("GET http://b.test/first HTTP/1.1\r\nHost: b.test\r\n\r\n").await;
    assert_eq!(wire.answer().await.1, "page /first");
    wire.send(connect).await;
    assert_eq!(status(&wire.head().await), "200");
    wire.send(inside).await;
    assert_eq!(wire.answer().await.1, "page /x");
}

#[tokio::test]
async fn a_refused_connect_is_explained_and_leaves_the_connection_to_the_next() {
    let (_tls, _clear, proxy) = sites().await;
    let mut wire = Wire::to(&proxy).await;
    for target in ["a.test", "a.test:99999", "u@a.test:443", "https://a.test:443/", "::1", "fe80::1%eth0:443"] {
        wire.send(format!("CONNECT {target} HTTP/1.1\r\nHost: a.test\r\nAccept: application/json\r\n\r\n")).await;
        let (head, body) = wire.answer().await;
        assert_eq!(status(&head), "400", "{target}: {head}");
        assert!(head.contains("Proxy-Status: robots-proxy; error=http_request_error"), "{head}");
        assert!(body.contains("\"reason\": \"bad-request\""), "{target}: {body}");
        // What stands before the @ may be a password.
        let record = proxy.record_of(target.trim_start_matches("u@")).await;
        assert!(!record.to_string().contains("u@"), "{record}");
        assert_eq!((&record["method"], &record["reason"]), (&json!("CONNECT"), &json!("bad-request")));
    }
    wire.send("CONNECT b.test:80 HTTP/1.1\r\n\r\n").await;
    assert_eq!(status(&wire.head().await), "200");
    wire.send("GET /x HTTP/1.1\r\nHost: b.test\r\n\r\n").await;
    assert_eq!(wire.answer().await.1, "page /x");
    // Requests of another kind may follow a refusal, too.
    let mut wire = Wire::to(&proxy).await;
    wire.send("CONNECT a.test HTTP/1.1\r\n\r\n").await;
    assert_eq!(status(&wire.answer().await.0), "400");
    wire.send("GET http://b.test/x HTTP/1.1\r\nHost: b.test\r\n\r\n").await;
    assert_eq!(wire.answer().await.1, "page /x");
}

#[tokio::test]
async fn bypass_c15_what_stands_behind_a_refused_connect_is_no_request() {
    let (_tls, clear, proxy) = sites().await;
    let hidden = "GET http://b.test/hidden HTTP/1.1\r\nHost: b.test\r\n\r\n";
    for head in [
        "CONNECT b.test HTTP/1.1\r\n\r\n".to_owned(),
        format!("CONNECT b.test:80 HTTP/1.1\r\nContent-Length: {}\r\n\r\n", hidden.len()),
        "CONNECT b.test:80 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned(),
    ] {
        let got = exchange(&proxy, format!("{head}{hidden}")).await;
        assert_eq!(status(&got), "400", "{got}");
        assert_eq!(got.matches("HTTP/1.1 ").count(), 1, "{got}");
        assert!(got.contains("Connection: close"), "{got}");
    }
    assert!(clear.visits().is_empty());
}

#[tokio::test]
async fn the_head_of_a_connect_is_bounded_in_size_and_time() {
    let (_tls, _clear, proxy) = sites().await;
    for fields in [format!("X: {}", "x".repeat(100_000)), "X: y\r\n".repeat(2000)] {
        let got = exchange(&proxy, format!("CONNECT a.test:443 HTTP/1.1\r\n{fields}\r\n\r\n")).await;
        assert_eq!(status(&got), "431", "{got}");
        assert!(got.contains("header-too-large"), "{got}");
    }
    assert_eq!(proxy.records(2).await[1]["reason"], "header-too-large");
    assert_eq!(exchange(&proxy, "CONNECT a.test:443 HTTP/1.1\r\nHost: ").await, "");
    assert_eq!(exchange(&proxy, "CONN").await, "");
    assert_eq!(exchange(&proxy, "").await, "");
    assert_eq!(proxy.curl(&["https://a.test/x"]).await.status, 200, "the proxy lives on");
}

/// Scrapoxy's mode, and old Scrapy's: no CA is needed, since TLS begins at the proxy.
#[tokio::test]
async fn an_https_url_in_clear_is_asked_for_over_tls() {
    let (tls, clear, proxy) = sites().await;
    for (path, wanted) in [("/x", "200"), ("/private/x", "403")] {
        let fields = "Host: a.test\r\nConnection: close\r\n\r\n";
        let got = exchange(&proxy, format!("GET https://a.test{path} HTTP/1.1\r\n{fields}")).await;
        assert_eq!(status(&got), wanted, "{got}");
        assert_eq!(proxy.record_of(path).await["url"], json!(format!("https://a.test{path}")));
    }
    assert_eq!((tls.paths(), clear.visits().len()), (vec!["/x".to_owned()], 0));
}
