//! Requests that no decent client sends: each gets a clear answer, nothing of them reaches an origin, and the proxy lives on.

use std::time::Duration;

use serde_json::json;

use super::support::origin::{Origin, Reply};
use super::support::proxy::Proxy;
use super::support::wire::{Wire, exchange};

async fn site() -> (Origin, Proxy) {
    let site = Origin::http(|visit| Reply::of_site("User-agent: *\nDisallow: /private/", visit)).await;
    let proxy =
        Proxy::with(&[("a.test", &site)], |settings| settings.limits.header_timeout = Duration::from_secs(2)).await;
    (site, proxy)
}

/// What is sent, and the status that comes back with a word of its explanation.
const MALFORMED: [(&str, &str, u16, &str); 15] = [
    ("two Hosts", "GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\nHost: a.test\r\n\r\n", 400, "two Host"),
    ("no Host", "GET http://a.test/ HTTP/1.1\r\n\r\n", 400, "no Host"),
    ("an empty Host", "GET http://a.test/ HTTP/1.1\r\nHost:\r\n\r\n", 400, "host"),
    ("a Host with a path", "GET http://a.test/ HTTP/1.1\r\nHost: a.test/x\r\n\r\n", 400, "a.test/x"),
    ("user information", "GET http://ok.test@a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n", 400, "user information"),
    ("user information in Host", "GET http://a.test/ HTTP/1.1\r\nHost: u@a.test\r\n\r\n", 400, "user information"),
    ("no absolute URL", "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n", 400, "this is a proxy"),
    ("another scheme", "GET ftp://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n", 400, "neither http nor https"),
    ("an impossible port", "GET http://a.test:99999/ HTTP/1.1\r\nHost: a.test\r\n\r\n", 400, "port"),
    ("an empty label", "GET http://a..test/ HTTP/1.1\r\nHost: a.test\r\n\r\n", 400, "a..test"),
    ("CONNECT without a port", "CONNECT a.test HTTP/1.1\r\nHost: a.test\r\n\r\n", 400, "port"),
    ("CONNECT to an impossible port", "CONNECT a.test:99999 HTTP/1.1\r\nHost: a.test\r\n\r\n", 400, "port"),
    ("CONNECT with user information", "CONNECT u@a.test:443 HTTP/1.1\r\nHost: a.test\r\n\r\n", 400, "user information"),
    ("OPTIONS *", "OPTIONS * HTTP/1.1\r\nHost: a.test\r\n\r\n", 400, ""),
    ("a path in CONNECT", "CONNECT http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n", 400, "host:port"),
];

#[tokio::test]
async fn what_can_be_read_in_two_ways_or_in_none_is_400() {
    let (site, proxy) = site().await;
    for (what, request, status, says) in MALFORMED {
        let mut wire = Wire::to(&proxy).await;
        wire.send(request).await;
        let (head, body) = wire.answer().await;
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{what}: {head}");
        assert!(head.to_lowercase().contains("proxy-status: robots-proxy; error=http_request_error"), "{what}: {head}");
        assert!(body.contains(says), "{what}: {says:?} is not in {body}");
    }
    assert!(site.visits().is_empty(), "{:?}", site.visits());
    let records = proxy.records(MALFORMED.len()).await;
    assert_eq!(records.len(), MALFORMED.len());
    assert!(records.iter().all(|record| record["reason"] == "bad-request" && record["decision"] == "error"));
    assert_eq!(proxy.curl(&["http://a.test/"]).await.status, 200, "the proxy lives on");
}

#[tokio::test]
async fn what_is_no_http_is_400_and_a_huge_head_is_431() {
    let (site, proxy) = site().await;
    let huge = format!("GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\nX: {}\r\n\r\n", "x".repeat(100_000));
    let many = format!("GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n{}\r\n", "X: y\r\n".repeat(2000));
    let mut requests = 0;
    for (what, request, status) in [
        ("a blank in the name of a field", "GET http://a.test/ HTTP/1.1\r\nHo st: a.test\r\n\r\n", 400),
        ("no version", "GET http://a.test/\r\n\r\n", 400),
        ("an octet 0", "GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\nX: \0\r\n\r\n", 400),
        (
            "a length with a sign",
            "POST http://a.test/ HTTP/1.1\r\nHost: a.test\r\nContent-Length: +5\r\n\r\nhello",
            400,
        ),
        (
            "two different lengths",
            "POST http://a.test/ HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
            400,
        ),
        (
            "an unknown transfer coding",
            "POST http://a.test/ HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: xchunked\r\n\r\n",
            400,
        ),
        ("a huge head", &huge, 431),
        ("too many fields", &many, 431),
    ] {
        requests += 1;
        let got = exchange(&proxy, request).await;
        assert!(got.starts_with(&format!("HTTP/1.1 {status} ")), "{what}: {got:?}");
        assert_eq!(got.matches("HTTP/1.1 4").count(), 1, "{what}: {got}");
        let record = proxy.records(requests).await.pop().unwrap();
        let reason = if status == 431 { "header-too-large" } else { "bad-request" };
        assert_eq!((&record["decision"], &record["reason"]), (&json!("error"), &json!(reason)), "{what}");
        let id = record["id"].as_str().unwrap();
        for fact in ["Proxy-Status: robots-proxy; error=http_request_error", "text/plain", reason, id, "send it again"]
        {
            assert!(got.contains(fact), "{what}: {fact} is not in {got}");
        }
    }
    assert!(site.visits().is_empty(), "{:?}", site.visits());
    assert_eq!(proxy.curl(&["http://a.test/"]).await.status, 200, "the proxy lives on");
}

#[tokio::test]
async fn what_cannot_be_read_inside_a_tunnel_is_explained_there_and_behind_a_good_request() {
    let (site, proxy) = site().await;
    let mut wire = Wire::tunnel(&proxy, "a.test:80").await;
    wire.send("GET /x HTTP/1.1\r\nHost: a.test\r\n\r\nGET /y HTTP/1.1\r\nHo st: a.test\r\n\r\n").await;
    let (head, body) = wire.answer().await;
    assert!(head.starts_with("HTTP/1.1 200 ") && body == "page /x", "{head}{body}");
    let (head, body) = wire.answer().await;
    assert!(head.starts_with("HTTP/1.1 400 ") && body.contains("bad-request"), "{head}{body}");
    assert_eq!((wire.rest().await.as_str(), site.paths()), ("", vec!["/x".to_owned()]));
}

#[tokio::test]
async fn an_origins_own_400_is_passed_on_as_it_is() {
    let site = Origin::http(|visit| match visit.is_robots() {
        true => Reply::text(""),
        false => Reply::with(400, &[], ""),
    })
    .await;
    let proxy = Proxy::before(&[("a.test", &site)]).await;
    let got = proxy.curl(&["http://a.test/x"]).await;
    assert_eq!((got.status, got.header("proxy-status"), got.text().as_str()), (400, "", ""));
}

#[tokio::test]
async fn a_head_that_does_not_come_ends_the_connection() {
    let (_site, proxy) = site().await;
    let got = exchange(&proxy, "GET http://a.test/ HTTP/1.1\r\nHost: ").await;
    assert!(got.is_empty() || got.starts_with("HTTP/1.1 408 "), "{got}");
}

#[tokio::test]
async fn bypass_c15_bytes_behind_a_refused_body_are_no_request() {
    let (site, proxy) = site().await;
    let hidden = "GET http://a.test/hidden HTTP/1.1\r\nHost: a.test\r\n\r\n";
    let request = format!(
        "POST http://a.test/private/x HTTP/1.1\r\nHost: a.test\r\nContent-Length: {}\r\n\r\n{hidden}",
        hidden.len()
    );
    let mut wire = Wire::to(&proxy).await;
    wire.send(&request).await;
    let (head, _) = wire.answer().await;
    assert!(head.starts_with("HTTP/1.1 403 "), "{head}");
    // Closed, or ready for a request that is one.
    use tokio::io::AsyncWriteExt;
    let _ =
        wire.stream.write_all(b"GET http://a.test/next HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n").await;
    wire.rest().await;
    assert!(!site.paths().contains(&"/hidden".to_owned()), "{:?}", site.paths());
}

#[tokio::test]
async fn case_07_a_refused_upload_is_answered_without_asking_for_it() {
    let (site, proxy) = site().await;
    let mut wire = Wire::to(&proxy).await;
    wire.send("PUT http://a.test/private/x HTTP/1.1\r\nHost: a.test\r\nContent-Length: 10000000\r\nExpect: 100-continue\r\n\r\n")
        .await;
    let (head, _) = wire.answer().await;
    assert!(head.starts_with("HTTP/1.1 403 "), "{head}");
    assert!(site.pages().is_empty());
}

#[tokio::test]
async fn bypass_c13_pipelined_requests_are_each_decided_and_answered_in_order() {
    let (site, proxy) = site().await;
    let mut wire = Wire::to(&proxy).await;
    let request = |path: &str| format!("GET http://a.test{path} HTTP/1.1\r\nHost: a.test\r\n\r\n");
    wire.send([request("/1"), request("/private/2"), request("/3")].concat()).await;
    let mut statuses = Vec::new();
    for _ in 0..3 {
        let (head, _) = wire.answer().await;
        statuses.push(head.split(' ').nth(1).unwrap().to_owned());
    }
    assert_eq!(statuses, ["200", "403", "200"]);
    assert_eq!(site.paths(), ["/1", "/3"]);
}

#[tokio::test]
async fn bypass_a15_the_proxy_is_not_asked_through_itself() {
    let (_site, proxy) = site().await;
    let got = proxy.curl(&["-H", "Accept: application/json", &format!("{}/", proxy.url())]).await;
    let problem = got.json();
    assert!(matches!(got.status, 403 | 508), "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("proxy itself"), "{problem}");
}

#[tokio::test]
async fn case_16_17_spellings_of_one_target_are_decided_alike() {
    let (site, proxy) = site().await;
    for url in [
        "http://A.TEST/private/x",
        "http://a.test./private/x",
        "http://a.test:080/private/x",
        "HTTP://a.test/private/x",
        "http://a.test/%70rivate/x",
        "http://a.test/./private/x",
        "http://a.test/open/../private/x",
        "http://a.test/open/%2e%2e/private/x",
    ] {
        let request = format!("GET {url} HTTP/1.1\r\nHost: other.test\r\nConnection: close\r\n\r\n");
        let got = exchange(&proxy, request).await;
        assert!(got.starts_with("HTTP/1.1 403 "), "{url}: {got}");
    }
    assert!(site.pages().is_empty());
    let got = exchange(&proxy, "GET http://a.test/x HTTP/1.1\r\nHost: other.test\r\nConnection: close\r\n\r\n").await;
    assert!(got.starts_with("HTTP/1.1 200 "), "{got}");
    assert_eq!(site.pages()[0].authority, "a.test", "the request line decides, and Host is made to fit");
    assert_eq!(proxy.record_of("/x").await["url"], json!("http://a.test/private/x"));
}
