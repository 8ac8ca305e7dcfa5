//! What is allowed goes through as it is: every pair of protocols, bodies as they come, connections kept.

use std::process::Stdio;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Response, Version};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

use super::support::origin::{Origin, Raw, Reply};
use super::support::proxy::Proxy;
use super::support::wire::Wire;
use super::support::{authority, curl, in_time};

const OPEN: &str = "User-agent: *\nDisallow: /private/";

/// 20 MB in which every place is recognised.
fn large() -> Vec<u8> {
    (0..5_000_000u32).flat_map(u32::to_le_bytes).collect()
}

#[tokio::test]
async fn case_01_each_protocol_of_the_client_meets_each_of_the_origin() {
    let script = |visit: &super::support::origin::Visit| Reply::of_site(OPEN, visit);
    let one = Origin::tls(authority::every_name(&[b"http/1.1"]), script).await;
    let two = Origin::tls(authority::every_name(&[b"h2"]), script).await;
    let none = Origin::tls(authority::every_name(&[]), script).await;
    let clear = Origin::http(script).await;
    let names = [("a.test", &one), ("b.test", &two), ("c.test", &none), ("d.test", &clear)];
    let proxy = Proxy::before(&names).await;
    for (url, origin, spoken) in [
        ("https://a.test", &one, Version::HTTP_11),
        ("https://b.test", &two, Version::HTTP_2),
        ("https://c.test", &none, Version::HTTP_11),
        ("http://d.test", &clear, Version::HTTP_11),
    ] {
        for (option, got) in [("--http1.0", "1"), ("--http1.1", "1.1"), ("--http2", "2")] {
            let expected = if url.starts_with("http:") && got == "2" { "1.1" } else { got };
            let page = proxy.curl(&[option, &format!("{url}/page?q=1")]).await;
            assert_eq!((page.exit, page.status), (0, 200), "{option} {url}: {}", page.error);
            assert_eq!(page.text(), "page /page?q=1", "{option} {url}");
            if got != "1" {
                assert_eq!(page.version, expected, "{option} {url}");
            }
            let refused = proxy.curl(&[option, &format!("{url}/private/")]).await;
            assert_eq!((refused.exit, refused.status), (0, 403), "{option} {url}: {}", refused.error);
        }
        assert!(origin.visits().iter().all(|visit| visit.version == spoken), "{url}");
        assert!(
            origin.pages().iter().all(|visit| visit.path == "/page?q=1" && visit.authority == url[url.len() - 6..])
        );
    }
}

#[tokio::test]
async fn bypass_c1_every_method_is_decided_alike_and_passed_on() {
    let site = Origin::https(|visit| Reply::of_site(OPEN, visit)).await;
    let proxy = Proxy::before(&[("a.test", &site)]).await;
    for method in ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "PROPFIND"] {
        for option in ["--http1.1", "--http2"] {
            let refused = proxy.curl(&[option, "--request", method, "https://a.test/private/x"]).await;
            assert_eq!(refused.status, 403, "{option} {method}");
            let page = proxy.curl(&[option, "--request", method, "https://a.test/page"]).await;
            assert_eq!(page.status, 200, "{option} {method}");
            assert_eq!(site.pages().pop().unwrap().method, method);
        }
    }
}

#[tokio::test]
async fn bypass_c6_h2c_does_not_lead_past_the_proxy() {
    let site = Origin::http(|visit| Reply::of_site(OPEN, visit)).await;
    let proxy = Proxy::before(&[("a.test", &site)]).await;
    // curl asks for the upgrade in clear text.
    assert_eq!(proxy.curl(&["--http2", "http://a.test/x"]).await.status, 200);
    let visit = site.pages().pop().unwrap();
    for name in ["upgrade", "http2-settings", "connection"] {
        assert!(!visit.headers.contains_key(name), "{name}");
    }
    let quic = Origin::https(|_| Reply::with(200, &[("alt-svc", "h3=\":443\"")], "")).await;
    let proxy = Proxy::before(&[("a.test", &quic)]).await;
    assert_eq!(proxy.curl(&["https://a.test/x"]).await.header("alt-svc"), "");
}

#[tokio::test]
async fn connections_to_an_origin_are_kept_and_shared() {
    let script = |visit: &super::support::origin::Visit| Reply::of_site(OPEN, visit);
    let clear = Origin::http(script).await;
    let one = Origin::tls(authority::every_name(&[b"http/1.1"]), script).await;
    let two = Origin::https(script).await;
    let proxy = Proxy::before(&[("a.test", &clear), ("b.test", &one), ("c.test", &two)]).await;
    for (url, origin) in [("http://a.test", &clear), ("https://b.test", &one), ("https://c.test", &two)] {
        for number in 0..5 {
            assert_eq!(proxy.curl(&[&format!("{url}/{number}")]).await.status, 200);
        }
        assert_eq!(
            (origin.visits().len(), origin.connections()),
            (6, 1),
            "{url}: robots.txt and pages on one connection"
        );
    }
    // HTTP/2 carries many at once on the one that is open.
    let urls: Vec<String> = (0..8).map(|number| format!("https://c.test/at-once/{number}")).collect();
    futures_util::future::join_all(urls.iter().map(|url| async { assert_eq!(proxy.curl(&[url]).await.status, 200) }))
        .await;
    assert_eq!(two.connections(), 1);
}

#[tokio::test]
async fn an_origin_is_spoken_to_as_the_client_speaks() {
    let script = |visit: &super::support::origin::Visit| Reply::of_site(OPEN, visit);
    let both = Origin::https(script).await;
    let other = Origin::https(script).await;
    let only = Origin::tls(authority::every_name(&[b"h2"]), script).await;
    let proxy = Proxy::before(&[("a.test", &both), ("b.test", &other), ("c.test", &only)]).await;
    let version = |origin: &Origin| origin.visits().last().unwrap().version;
    for (protocol, url, origin, spoken, connections) in [
        ("--http1.1", "https://a.test/", &both, Version::HTTP_11, 1),
        ("--http2", "https://a.test/", &both, Version::HTTP_2, 2),
        ("--http1.1", "https://a.test/", &both, Version::HTTP_11, 2),
        ("--http2", "https://b.test/", &other, Version::HTTP_2, 1),
        ("--http1.1", "https://b.test/", &other, Version::HTTP_2, 1),
        // Once offered HTTP/1.1 alone, in vain.
        ("--http1.1", "https://c.test/", &only, Version::HTTP_2, 2),
    ] {
        assert_eq!(proxy.curl(&[protocol, url]).await.status, 200, "{protocol} {url}");
        assert_eq!((version(origin), origin.connections()), (spoken, connections), "{protocol} {url}");
    }
}

#[tokio::test]
async fn case_02_03_a_client_connection_serves_many_requests() {
    let site = Origin::https(|visit| match visit.path.as_str() {
        "/304" => Reply::with(304, &[("etag", "\"x\"")], ""),
        "/204" => Reply::status(204, ""),
        _ => Reply::of_site(OPEN, visit),
    })
    .await;
    let proxy = Proxy::before(&[("a.test", &site)]).await;
    let mut wire = Wire::tunnel(&proxy, "a.test:443").await.tls(&proxy, "a.test", &[b"http/1.1"]).await;
    for (method, path, status) in [
        ("GET", "/304", "304"),
        ("GET", "/204", "204"),
        ("HEAD", "/page", "200"),
        ("HEAD", "/private/x", "403"),
        ("GET", "/private/x", "403"),
        ("GET", "/page", "200"),
    ] {
        wire.send(format!("{method} {path} HTTP/1.1\r\nHost: a.test\r\n\r\n")).await;
        let head = wire.head().await.to_lowercase();
        assert!(head.starts_with(&format!("http/1.1 {status} ")), "{method} {path}: {head}");
        assert!(!head.contains("transfer-encoding"), "{method} {path}: {head}");
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
        if method == "GET" && length > 0 {
            wire.read(length).await;
        }
    }
    wire.send("GET /last HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n").await;
    assert!(wire.rest().await.ends_with("page /last"), "and closes when it is asked to");
}

#[tokio::test]
async fn case_03_head_keeps_the_origins_length() {
    let head = || Raw::Keep(b"HTTP/1.1 200 OK\r\nContent-Length: 1488324\r\n\r\n".to_vec());
    let site = Origin::raw(move |visit| if visit.is_robots() { Raw::ok("") } else { head() }).await;
    let proxy = Proxy::before(&[("a.test", &site)]).await;
    for _ in 0..2 {
        let got = proxy.curl(&["--head", "http://a.test/image"]).await;
        assert_eq!((got.exit, got.status, got.header("content-length")), (0, 200, "1488324"), "{}", got.error);
    }
    assert_eq!(site.connections(), 1);
}

#[tokio::test]
async fn large_bodies_go_through_whole_in_both_directions() {
    let file = Bytes::from(large());
    let answer = file.clone();
    let site = move |visit: &super::support::origin::Visit| match visit.path.as_str() {
        "/download" => Reply::Answer(Response::new(answer.clone())),
        "/upload" => Reply::Count(None),
        _ => Reply::of_site(OPEN, visit),
    };
    let (clear, tls) = (Origin::http(site.clone()).await, Origin::https(site).await);
    let proxy = Proxy::before(&[("a.test", &clear), ("b.test", &tls)]).await;
    let upload = proxy.folder().join("upload");
    std::fs::write(&upload, &file).unwrap();
    let data = format!("@{}", upload.display());
    for (url, option) in
        [("http://a.test", "--http1.1"), ("https://b.test", "--http1.1"), ("https://b.test", "--http2")]
    {
        let got = proxy.curl(&[option, &format!("{url}/download")]).await;
        assert_eq!((got.exit, got.body == file), (0, true), "{option} {url}: {}", got.error);
        let got = proxy.curl(&[option, "--data-binary", &data, &format!("{url}/upload")]).await;
        assert_eq!((got.exit, got.text()), (0, file.len().to_string()), "{option} {url}: {}", got.error);
        let chunked = ["--upload-file", &data[1..], "-H", "Transfer-Encoding: chunked", "-H", "Expect: 100-CONTINUE"];
        let got = proxy.curl(&[&[option], &chunked[..], &[&format!("{url}/upload")]].concat()).await;
        assert_eq!((got.exit, got.text()), (0, file.len().to_string()), "{option} {url}: {}", got.error);
    }
    let record = proxy.record_of("/download").await;
    assert_eq!(record["bytes"], file.len());
}

#[tokio::test]
async fn case_08_an_answer_arrives_piece_by_piece_as_it_is_sent() {
    for option in ["--http1.0", "--http1.1", "--http2"] {
        let (pieces, body) = mpsc::unbounded_channel();
        let body = Mutex::new(Some(body));
        let site = Origin::https(move |visit| match visit.path.as_str() {
            "/events" => Reply::Stream(Response::new(()), body.lock().unwrap().take().unwrap()),
            _ => Reply::of_site(OPEN, visit),
        })
        .await;
        let proxy = Proxy::before(&[("a.test", &site)]).await;
        let mut curl = proxy.spawn_curl(&[option, "https://a.test/events"]);
        let mut out = curl.stdout.take().unwrap();
        for number in 0..5 {
            // The next piece is sent when this one has come: a proxy that keeps them back would wait for ever.
            let piece = format!("event {number}\n");
            pieces.send(piece.clone().into()).unwrap();
            let mut came = vec![0; piece.len()];
            in_time("an event", out.read_exact(&mut came)).await.unwrap();
            assert_eq!(came, piece.as_bytes());
        }
        drop(pieces);
        let ended = in_time("curl", curl.wait()).await.unwrap();
        assert!(ended.success(), "{option}");
    }
}

#[tokio::test]
async fn case_08_an_upload_arrives_piece_by_piece_as_it_is_sent() {
    for option in ["--http1.1", "--http2"] {
        let (tell, mut told) = mpsc::unbounded_channel();
        let site = Origin::https(move |visit| match visit.path.as_str() {
            "/upload" => Reply::Count(Some(tell.clone())),
            _ => Reply::of_site(OPEN, visit),
        })
        .await;
        let proxy = Proxy::before(&[("a.test", &site)]).await;
        let mut command = curl::command(&proxy);
        command.args([option, "--no-buffer", "--upload-file", ".", "-H", "Expect:", "https://a.test/upload"]);
        let mut curl = command.stdin(Stdio::piped()).spawn().unwrap();
        let mut input = curl.stdin.take().unwrap();
        for _ in 0..5 {
            input.write_all(b"a piece\n").await.unwrap();
            input.flush().await.unwrap();
            let mut octets = 0;
            while octets < 8 {
                octets += in_time("a piece", told.recv()).await.unwrap();
            }
        }
        drop(input);
        let output = in_time("curl", curl.wait_with_output()).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "40", "{option}: {output:?}");
    }
}

#[tokio::test]
async fn an_answer_that_is_cut_short_is_cut_short_for_the_client_too_and_recorded() {
    let site = Origin::raw(|visit| match visit.path.as_str() {
        "/length" => Raw::Close(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf".into()),
        "/chunks" => Raw::Close(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n".into()),
        _ => Raw::ok(""),
    })
    .await;
    let proxy = Proxy::before(&[("a.test", &site)]).await;
    for path in ["/length", "/chunks"] {
        let got = proxy.curl(&[&format!("http://a.test{path}")]).await;
        assert_ne!(got.exit, 0, "{path}: curl notices");
        assert_eq!(got.text(), "half");
        let record = proxy.record_of(path).await;
        assert_eq!((&record["decision"], &record["reason"]), (&json!("error"), &json!("upstream-closed")), "{record}");
    }
}

#[tokio::test]
async fn a_page_that_cannot_be_had_is_502_and_says_why() {
    let site = Origin::raw(|visit| match visit.path.as_str() {
        "/closed" => Raw::Close(Vec::new()),
        "/reset" => Raw::Reset,
        "/garbage" => Raw::Close(b"220 mail.test ESMTP\r\n\r\n".into()),
        _ => Raw::Close(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".into()),
    })
    .await;
    let proxy = Proxy::before(&[("a.test", &site)]).await;
    for (path, reason, error) in [
        ("/closed", "upstream-closed", "connection_terminated"),
        ("/reset", "upstream-closed", "connection_terminated"),
        ("/garbage", "upstream-protocol", "http_protocol_error"),
    ] {
        let got = proxy.curl(&["-H", "Accept: application/json", &format!("http://a.test{path}")]).await;
        assert_eq!((got.status, got.json()["reason"].clone()), (502, json!(reason)), "{path}");
        assert!(got.header("proxy-status").contains(error), "{path}: {}", got.header("proxy-status"));
        assert_eq!(proxy.record_of(path).await["reason"], reason);
    }
    let address = site.address;
    drop(site);
    let gone = super::support::until("the port to be free", || std::net::TcpListener::bind(address).ok()).await;
    drop(gone);
    let got = proxy.curl(&["-H", "Accept: application/json", "http://a.test/gone"]).await;
    assert_eq!((got.status, got.json()["reason"].clone()), (502, json!("upstream-refused")));
}

/// Answers the first request of each connection, and closes when the second one comes.
async fn tired_site(delay: &'static str) -> Origin {
    Origin::raw(move |visit| match (visit.nth, visit.is_robots()) {
        (1, true) => Raw::ok(delay),
        (1, false) => Raw::ok("page"),
        _ => Raw::Close(Vec::new()),
    })
    .await
}

#[tokio::test]
async fn rfc9110_9_2_2_a_get_that_meets_a_dead_connection_is_sent_again() {
    let site = tired_site("").await;
    let proxy = Proxy::before(&[("a.test", &site)]).await;
    for _ in 0..3 {
        let got = proxy.curl(&["-H", "Accept: application/json", "http://a.test/x"]).await;
        assert_eq!((got.status, got.text().as_str()), (200, "page"));
    }
    assert!(site.connections() > 1);
}

#[tokio::test]
async fn robots_txt_that_meets_a_dead_connection_is_asked_for_again() {
    let site = tired_site("").await;
    let proxy = Proxy::with(&[("a.test", &site)], |settings| {
        settings.lookup.lifetimes.ttl = std::time::Duration::ZERO;
        settings.lookup.lifetimes.min_ttl = std::time::Duration::ZERO;
    })
    .await;
    for number in 0..3 {
        assert_eq!(proxy.curl(&[&format!("http://a.test/{number}")]).await.status, 200);
        let record = proxy.record_of(&number.to_string()).await;
        assert_eq!((&record["reason"], &record["robots"]["stale"]), (&json!("allowed"), &json!(null)), "{record}");
    }
}

#[tokio::test]
async fn what_is_sent_again_keeps_the_pace() {
    let site = tired_site("User-agent: *\nCrawl-delay: 0.4").await;
    let proxy = Proxy::before(&[("a.test", &site)]).await;
    for _ in 0..2 {
        assert_eq!(proxy.curl(&["http://a.test/x"]).await.status, 200);
    }
    let pages = site.pages();
    assert!(pages.len() > 2, "one of them was sent again");
    let gaps: Vec<_> = pages.windows(2).map(|pair| pair[1].at - pair[0].at).collect();
    assert!(gaps.iter().all(|gap| gap.as_millis() >= 385), "{gaps:?}");
}

#[tokio::test]
async fn rfc9110_9_2_2_a_post_is_not_sent_twice() {
    let site = tired_site("").await;
    let proxy = Proxy::before(&[("a.test", &site)]).await;
    let got = proxy.curl(&["--data", "x", "-H", "Accept: application/json", "http://a.test/x"]).await;
    assert_eq!((got.status, got.json()["reason"].clone()), (502, json!("upstream-closed")));
    assert_eq!(site.pages().len(), 1);
}

#[tokio::test]
async fn a_connection_that_the_origin_closes_is_not_kept() {
    let site =
        Origin::raw(|_| Raw::Close(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok".into()))
            .await;
    let proxy = Proxy::before(&[("a.test", &site)]).await;
    for _ in 0..3 {
        assert_eq!(proxy.curl(&["--data", "x", "http://a.test/x"]).await.status, 200);
    }
    assert_eq!(site.connections(), 4);
}

#[tokio::test]
async fn a_client_that_goes_away_in_the_middle_of_an_answer_is_recorded() {
    let (pieces, body) = mpsc::unbounded_channel::<Bytes>();
    let body = Arc::new(Mutex::new(Some(body)));
    let site = Origin::http(move |visit| match visit.path.as_str() {
        "/endless" => Reply::Stream(Response::new(()), body.lock().unwrap().take().unwrap()),
        _ => Reply::of_site(OPEN, visit),
    })
    .await;
    let proxy = Proxy::before(&[("a.test", &site)]).await;
    let mut curl = proxy.spawn_curl(&["http://a.test/endless"]);
    pieces.send("begun".into()).unwrap();
    let mut came = [0; 5];
    in_time("the beginning", curl.stdout.as_mut().unwrap().read_exact(&mut came)).await.unwrap();
    curl.kill().await.unwrap();
    let record = proxy.record_of("/endless").await;
    assert_eq!((&record["status"], &record["bytes"]), (&json!(200), &json!(5)), "{record}");
    in_time("the origin to be told", pieces.closed()).await;
}
