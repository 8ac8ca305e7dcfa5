//! Ways round a proxy that enforces robots.txt, each named for its row: none of them leads anywhere.
//!
//! Rows that are tested elsewhere: A3 and A4 in `tunnels.rs`, A11, A13 and A15 beside `upstream`, C5 in `websockets.rs`, C7 to C9 in
//! `tunnels.rs`, the rest of C15 in `connects.rs`.

use std::time::Duration;

use robots_proxy::policy::identity::MapEntry;
use serde_json::json;

use super::support::http2::Frames;
use super::support::origin::{Origin, Reply};
use super::support::proxy::Proxy;
use super::support::wire::{Wire, exchange};

const RULES: &str = "User-agent: *\nDisallow: /private/\nDisallow: /*?sort=\nDisallow: /caf%C3%A9\nDisallow: /a%2Fb\n\n\
                     User-agent: OpenBot\nDisallow: /closed/\n";

async fn sites() -> (Origin, Origin, Proxy) {
    let clear = Origin::http(|visit| Reply::of_site(RULES, visit)).await;
    let tls = Origin::https(|visit| Reply::of_site(RULES, visit)).await;
    let names = [("b.test", &clear), ("a.test", &tls), ("c.test", &tls)];
    let proxy = Proxy::with(&names, |settings| settings.limits.header_timeout = Duration::from_secs(2)).await;
    (clear, tls, proxy)
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or_default()
}

/// Sends a request whose connection ends with it, and returns all that comes.
async fn ask(proxy: &Proxy, line: &str, fields: &str) -> String {
    exchange(proxy, format!("{line} HTTP/1.1\r\n{fields}Connection: close\r\n\r\n")).await
}

#[tokio::test]
async fn bypass_a1_the_url_wins_over_host() {
    let (clear, _tls, proxy) = sites().await;
    let got = ask(&proxy, "GET http://b.test/private/", "Host: a.test\r\n").await;
    assert_eq!(status(&got), "403");
    let got = ask(&proxy, "GET http://b.test/x", "Host: a.test\r\n").await;
    assert_eq!(status(&got), "200");
    assert_eq!(clear.pages()[0].authority, "b.test");
}

#[tokio::test]
async fn bypass_a2_no_host_two_hosts_or_a_strange_host_is_400() {
    let (clear, _tls, proxy) = sites().await;
    for fields in ["", "Host:\r\n", "Host: b.test\r\nHost: b.test\r\n", "Host: b.test\r\nhost: a.test\r\n"]
        .into_iter()
        .chain(["Host: b.test/x\r\n", "Host: u@b.test\r\n", "Host: b.test, a.test\r\n", "Host: b.test:80:80\r\n"])
        .chain(["Host: b%2etest\r\n", "Host: b..test\r\n", "Host: b.test:+80\r\n", "Host: b test\r\n"])
    {
        let got = ask(&proxy, "GET http://b.test/x", fields).await;
        assert_eq!(status(&got), "400", "{fields}: {got}");
        let mut wire = Wire::tunnel(&proxy, "b.test:80").await;
        wire.send(format!("GET /x HTTP/1.1\r\n{fields}\r\n")).await;
        assert_eq!(status(&wire.answer().await.0), "400", "{fields}");
    }
    assert!(clear.visits().is_empty());
}

#[tokio::test]
async fn bypass_a5_a6_a7_http2_names_one_host_and_has_the_transports_scheme() {
    let (_clear, tls, proxy) = sites().await;
    let wire = Wire::tunnel(&proxy, "a.test:443").await.tls(&proxy, "a.test", &[b"h2"]).await;
    let mut frames = Frames::begin(wire.stream).await;
    assert!(!frames.settings.iter().any(|(number, _)| *number == 8), "case 20: no extended CONNECT is offered");
    let huge = "x".repeat(100_000);
    for (fields, wanted, what) in [
        (&[(":scheme", "https"), (":authority", "a.test"), (":path", "/1")][..], Some(200), "as it should be"),
        (
            &[(":scheme", "https"), (":authority", "a.test"), (":path", "/2"), ("host", "A.test:443")],
            Some(200),
            "two spellings",
        ),
        (&[(":scheme", "https"), (":authority", "a.test"), (":path", "/x"), ("host", "c.test")], Some(400), "A5"),
        (&[(":scheme", "https"), (":authority", "c.test"), (":path", "/x"), ("host", "a.test")], Some(400), "A5"),
        (
            &[(":scheme", "https"), (":authority", "c.test"), (":path", "/x")],
            Some(421),
            "A6: another host's connection",
        ),
        (&[(":scheme", "https"), (":authority", "a.test:444"), (":path", "/x")], Some(421), "another port"),
        (&[(":scheme", "http"), (":authority", "a.test"), (":path", "/3")], Some(200), "A7: https all the same"),
        (&[(":scheme", "http"), (":authority", "a.test"), (":path", "/private/")], Some(403), "A7"),
        (&[(":scheme", "https"), (":path", "/4"), ("host", "a.test")], Some(200), "Host alone"),
        (&[(":scheme", "https"), (":path", "/x"), ("host", "c.test")], Some(421), "Host alone, of another"),
        (&[(":scheme", "https"), (":authority", "u@a.test"), (":path", "/x")], Some(400), "user information"),
        (&[(":scheme", "https"), (":authority", "a.test"), (":path", "/x"), ("connection", "close")], None, "reset"),
        (
            &[(":scheme", "https"), (":authority", "a.test"), (":path", "/x"), ("transfer-encoding", "chunked")],
            None,
            "reset",
        ),
        (&[(":scheme", "https"), (":authority", "a.test"), (":path", "/x"), ("x", &huge)], Some(431), "over-long"),
    ] {
        let fields = [&[(":method", "GET")], fields].concat();
        assert_eq!(frames.ask(&fields).await, wanted, "{what}: {:?}", fields.iter().take(4).collect::<Vec<_>>());
    }
    assert_eq!(frames.ask(&[(":method", "CONNECT"), (":authority", "c.test:443")]).await, Some(405), "C12");
    assert_eq!(tls.paths(), ["/1", "/2", "/3", "/4"]);
    assert!(tls.pages().iter().all(|visit| visit.authority == "a.test"));
}

#[tokio::test]
async fn bypass_a8_a9_a10_spellings_of_a_host_are_one_host() {
    let (clear, _tls, proxy) = sites().await;
    for host in ["b.test", "B.TesT", "b.test.", "b.test:80", "b.test:080", "b.test:", "b.test.:00080"] {
        assert_eq!(
            status(&ask(&proxy, &format!("GET http://{host}/private/"), "Host: b.test\r\n").await),
            "403",
            "{host}"
        );
    }
    for host in
        ["ok.test@b.test", "u:p@b.test", "b.test..", ".b.test", "b%2etest", "b.test:x", "b.test:99999", "[b.test]"]
    {
        assert_eq!(status(&ask(&proxy, &format!("GET http://{host}/x"), "Host: b.test\r\n").await), "400", "{host}");
    }
    assert_eq!(clear.robots().len(), 1, "one host, one robots.txt");
    assert!(clear.pages().is_empty());
}

/// A path, the status that it gets, and why.
const PATHS: [(&str, &str, &str); 26] = [
    ("/a/../private/", "403", "B1: dot segments"),
    ("/./private/", "403", "B1"),
    ("/a/%2e%2e/private/", "403", "B1: encoded"),
    ("/a/.%2E/private/", "403", "B1"),
    ("/private/../x", "403", "B1: as sent or resolved, either closes it"),
    ("/%70rivate/", "403", "B2: unreserved characters are decoded"),
    ("/%50rivate/", "200", "B2, B10: to a capital letter"),
    ("/%2570rivate/", "200", "B2: once"),
    ("/private%2Fx", "200", "B3: reserved ones are not"),
    ("/a%2fb", "403", "B3: hex in any case"),
    ("/a/b", "200", "B3"),
    ("//private/", "200", "B4: octet by octet"),
    ("/;x/private/", "200", "B4"),
    ("/private./", "200", "B4"),
    ("/x\\private/", "200", "B4: a backslash is an octet like others"),
    ("/caf\u{e9}", "403", "B5: raw octets"),
    ("/caf%c3%a9", "403", "B5: the same encoded"),
    ("/x?sort=1", "403", "B6: the query counts"),
    ("/x?", "200", "B6"),
    ("/x?a=/private/", "200", "B6"),
    ("/x#/private/", "200", "B7: a fragment is dropped"),
    ("/private/#x", "403", "B7"),
    ("/PRIVATE/", "200", "B10: case counts"),
    ("/private", "200", "the rule has a slash"),
    ("/robots.txt", "200", "B11"),
    ("/robots.txt?x", "200", "B11: this is a page"),
];

#[tokio::test]
async fn bypass_b1_to_b11_paths_are_decided_on_as_they_are_sent() {
    let (clear, _tls, proxy) = sites().await;
    let mut sent = Vec::new();
    for (path, wanted, why) in PATHS {
        let got = ask(&proxy, &format!("GET http://b.test{path}"), "Host: b.test\r\n").await;
        assert_eq!(status(&got), wanted, "{why}: {path}");
        let mut wire = Wire::tunnel(&proxy, "b.test:80").await;
        wire.send(format!("GET {path} HTTP/1.1\r\nHost: b.test\r\n\r\n")).await;
        assert_eq!(status(&wire.answer().await.0), wanted, "{why}: {path}");
        if wanted == "200" && path != "/robots.txt" {
            sent.extend([path.split('#').next().unwrap(); 2]);
        }
    }
    assert_eq!(clear.paths(), sent, "forwarded as they came");
}

#[tokio::test]
async fn bypass_b8_b9_other_forms_of_target() {
    let (clear, _tls, proxy) = sites().await;
    for (line, wanted) in [
        ("GET http://b.test/private/", "403"),
        ("GET https://b.test/private/", "403"),
        ("GET http://a.test/x", "421"),
        ("OPTIONS *", "400"),
        ("GET *", "400"),
        ("GET x", "400"),
        ("GET ftp://b.test/x", "400"),
    ] {
        let mut wire = Wire::tunnel(&proxy, "b.test:80").await;
        wire.send(format!("{line} HTTP/1.1\r\nHost: b.test\r\n\r\n")).await;
        assert_eq!(status(&wire.answer().await.0), wanted, "{line}");
    }
    assert!(clear.pages().is_empty());
}

#[tokio::test]
async fn bypass_c1_every_method_is_decided_alike_and_trace_is_405() {
    let (clear, _tls, proxy) = sites().await;
    for method in ["HEAD", "OPTIONS", "POST", "PUT", "DELETE", "PATCH", "PROPFIND", "get", "X-UNKNOWN"] {
        let got =
            ask(&proxy, &format!("{method} http://b.test/private/"), "Host: b.test\r\nContent-Length: 0\r\n").await;
        assert_eq!(status(&got), "403", "{method}");
    }
    let mut wire = Wire::to(&proxy).await;
    wire.send("TRACE http://b.test/x HTTP/1.1\r\nHost: b.test\r\n\r\n").await;
    let (head, body) = wire.answer().await;
    assert_eq!(status(&head), "405", "{head}");
    assert!(head.contains("Allow: GET, HEAD") && body.contains("method-not-allowed"), "{head}{body}");
    assert!(clear.pages().is_empty());
}

#[tokio::test]
async fn bypass_a14_ports_that_browsers_never_open_are_refused_on_the_connect() {
    let (clear, _tls, proxy) = sites().await;
    // Nothing listens there that a test may meet: a refusal is all that comes, also for robots.txt itself.
    for (line, path) in
        [("CONNECT b.test:22", ":22"), ("CONNECT 127.0.0.1:25", ":25"), ("GET http://b.test:6667/x", "/x")]
            .into_iter()
            .chain([("GET https://b.test:993/robots.txt", "/robots.txt"), ("POST http://[::1]:587/mail", "/mail")])
    {
        let got = ask(&proxy, line, "Host: b.test\r\nAccept: application/json\r\nContent-Length: 0\r\n").await;
        assert_eq!(status(&got), "403", "{line}: {got}");
        assert!(got.contains("\"port-blocked\"") && got.contains("upstream.ports"), "{got}");
        assert!(got.to_lowercase().contains("proxy-status: robots-proxy; error=http_request_denied"), "{got}");
        let record = proxy.record_of(path).await;
        assert_eq!((&record["decision"], &record["reason"]), (&json!("refuse"), &json!("port-blocked")));
    }
    assert!(clear.visits().is_empty());
    // What the operator lists, or leads elsewhere, is theirs to allow.
    let names = [("b.test:6667", &clear)];
    let listed = Proxy::with(&[], |settings| {
        settings.upstream.ports = robots_proxy::policy::port::Ports::allowing(vec![1]);
    });
    assert!(!ask(&listed.await, "GET http://127.0.0.1:1/x", "Host: 127.0.0.1:1\r\n").await.contains("port-blocked"));
    let led = Proxy::before(&names).await;
    assert_eq!(status(&ask(&led, "GET http://b.test:6667/x", "Host: b.test:6667\r\n").await), "200");
    let mut wire = Wire::tunnel(&led, "b.test:6667").await;
    wire.send("GET /private/x HTTP/1.1\r\nHost: b.test:6667\r\n\r\n").await;
    assert_eq!(status(&wire.answer().await.0), "403");
    assert_eq!(clear.paths(), ["/x"]);
}

#[tokio::test]
async fn bypass_c2_a_method_in_a_field_changes_nothing_and_goes_on() {
    let (clear, _tls, proxy) = sites().await;
    let field = "Host: b.test\r\nX-HTTP-Method-Override: DELETE\r\nContent-Length: 0\r\n";
    assert_eq!(status(&ask(&proxy, "POST http://b.test/private/x", field).await), "403");
    assert_eq!(status(&ask(&proxy, "POST http://b.test/x", field).await), "200");
    let visits = clear.pages();
    assert_eq!((visits.len(), visits[0].method.as_str()), (1, "POST"));
    assert_eq!(visits[0].headers["x-http-method-override"], "DELETE");
}

#[tokio::test]
async fn bypass_c3_fields_that_name_another_path_stay_behind_and_are_recorded() {
    let (clear, _tls, proxy) = sites().await;
    let fields =
        "Host: b.test\r\nX-Original-URL: /private/\r\nX-Rewrite-Url: /private/\r\nX-Forwarded-Host: a.test\r\n";
    assert_eq!(status(&ask(&proxy, "GET http://b.test/x", fields).await), "200");
    let visit = clear.pages().pop().unwrap();
    let names = ["x-original-url", "x-rewrite-url", "x-forwarded-host"];
    assert!(names.iter().all(|name| !visit.headers.contains_key(*name)), "{:?}", visit.headers);
    assert_eq!(proxy.record_of("/x").await["stripped"], json!(names));
    ask(&proxy, "GET http://b.test/plain", "Host: b.test\r\n").await;
    assert_eq!(proxy.record_of("/plain").await.get("stripped"), None);
}

#[tokio::test]
async fn bypass_c4_a_part_or_a_condition_is_decided_like_the_whole() {
    let (clear, _tls, proxy) = sites().await;
    for field in [
        "Range: bytes=0-3",
        "If-None-Match: \"x\"",
        "If-Modified-Since: Mon, 30 Nov 2026 00:00:00 GMT",
        "If-Range: \"x\"",
    ] {
        let fields = format!("Host: b.test\r\n{field}\r\n");
        assert_eq!(status(&ask(&proxy, "GET http://b.test/private/x", &fields).await), "403", "{field}");
        assert_eq!(status(&ask(&proxy, "GET http://b.test/x", &fields).await), "200", "{field}");
        let (name, value) = field.split_once(": ").unwrap();
        assert_eq!(clear.pages().pop().unwrap().headers[name], value);
    }
    assert!(clear.paths().iter().all(|path| path == "/x"));
}

#[tokio::test]
async fn bypass_c11_no_answer_leads_to_quic() {
    for protocols in [&[&b"h2"[..]][..], &[b"http/1.1"]] {
        let tls = super::support::authority::every_name(protocols);
        let site = Origin::tls(tls, |_| Reply::with(200, &[("alt-svc", "h3=\":443\""), ("x-kept", "1")], "")).await;
        let proxy = Proxy::before(&[("a.test", &site)]).await;
        for option in ["--http1.1", "--http2"] {
            let got = proxy.curl(&[option, "https://a.test/x"]).await;
            assert_eq!((got.header("alt-svc"), got.header("x-kept")), ("", "1"), "{option}");
        }
    }
}

#[tokio::test]
async fn bypass_e1_each_hop_of_a_redirect_is_decided_anew() {
    let clear = Origin::http(|visit| match visit.path.as_str() {
        "/hop" => Reply::with(302, &[("location", "/private/x")], ""),
        _ => Reply::of_site(RULES, visit),
    })
    .await;
    let proxy = Proxy::before(&[("b.test", &clear)]).await;
    let got = proxy.curl(&["--location", "http://b.test/hop"]).await;
    assert_eq!((got.status, clear.paths()), (403, vec!["/hop".to_owned()]));
}

#[tokio::test]
async fn bypass_e6_nothing_is_answered_out_of_a_cache() {
    let fresh = [("cache-control", "public, max-age=3600"), ("etag", "\"1\"")];
    let clear = Origin::http(move |visit| match visit.is_robots() {
        true => Reply::text(RULES),
        false => Reply::with(200, &fresh, "page"),
    })
    .await;
    let proxy = Proxy::before(&[("b.test", &clear)]).await;
    for _ in 0..2 {
        assert_eq!(proxy.curl(&["http://b.test/x"]).await.text(), "page");
    }
    assert_eq!(clear.pages().len(), 2);
}

#[tokio::test]
async fn case_22_what_is_about_one_connection_stays_on_it() {
    let (clear, tls, proxy) = sites().await;
    let url = format!("http://ann:secret@{}", proxy.address);
    for page in ["http://b.test/x", "https://a.test/x"] {
        let fields =
            ["-H", "Connection: x-secret, close", "-H", "X-Secret: 1", "-H", "Keep-Alive: 5", "-H", "TE: gzip"];
        let got = proxy.curl(&[&["--http1.1", "--proxy", &url], &fields[..], &[page]].concat()).await;
        assert_eq!((got.exit, got.status), (0, 200), "{page}: {}", got.error);
    }
    for visit in [clear.pages(), tls.pages()].concat() {
        for name in ["x-secret", "connection", "keep-alive", "te", "proxy-authorization", "proxy-connection"] {
            assert!(!visit.headers.contains_key(name), "{name}: {:?}", visit.headers);
        }
    }
}

#[tokio::test]
async fn bypass_c12_a_connect_inside_a_connect_is_405() {
    let (_clear, tls, proxy) = sites().await;
    let mut wire = Wire::tunnel(&proxy, "a.test:443").await.tls(&proxy, "a.test", &[b"http/1.1"]).await;
    wire.send("CONNECT c.test:443 HTTP/1.1\r\nHost: c.test:443\r\n\r\n").await;
    assert_eq!(status(&wire.answer().await.0), "405");
    let mut wire = Wire::tunnel(&proxy, "b.test:80").await;
    wire.send("CONNECT c.test:443 HTTP/1.1\r\nHost: c.test:443\r\n\r\n").await;
    assert_eq!(status(&wire.answer().await.0), "405");
    assert!(tls.visits().is_empty());
}

/// Fields of a request with a body, and the body.
const SMUGGLED: [(&str, &str, &str); 17] = [
    ("length and chunks", "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
    ("chunks and length", "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n", "0\r\n\r\n"),
    ("length 0 and chunks", "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
    ("a length with a sign", "Content-Length: +5\r\n", "hello"),
    ("a negative length", "Content-Length: -1\r\n", ""),
    ("a list of lengths", "Content-Length: 5, 5\r\n", "hello"),
    ("two lengths", "Content-Length: 5\r\nContent-Length: 6\r\n", "hello!"),
    ("a length in hex", "Content-Length: 0x5\r\n", "hello"),
    ("a coding by another name", "Transfer-Encoding: xchunked\r\n", "0\r\n\r\n"),
    ("a coding in front", "Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n"),
    ("a coding behind", "Transfer-Encoding: chunked, identity\r\n", "0\r\n\r\n"),
    ("chunks twice", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
    ("a blank before the colon", "Transfer-Encoding : chunked\r\n", "0\r\n\r\n"),
    ("a folded line", "X: y\r\n Transfer-Encoding: chunked\r\n", "0\r\n\r\n"),
    ("an octet 0", "X: a\0b\r\n", ""),
    ("a bare CR", "X: a\rTransfer-Encoding: chunked\r\n", ""),
    ("no name", ": x\r\n", ""),
];

#[tokio::test]
async fn bypass_c14_a_request_with_two_ends_is_400_and_nothing_behind_it_is_read() {
    let (clear, _tls, proxy) = sites().await;
    let hidden = "GET http://b.test/hidden HTTP/1.1\r\nHost: b.test\r\n\r\n";
    let mut number = 0;
    for (what, fields, body) in SMUGGLED {
        // The first on its connection, and behind others: without a body, with a length, with chunks.
        for before in [
            "",
            "GET http://b.test/ok HTTP/1.1\r\nHost: b.test\r\n\r\n",
            "POST http://b.test/ok HTTP/1.1\r\nHost: b.test\r\nContent-Length: 5\r\n\r\nhello",
            "POST http://b.test/ok HTTP/1.1\r\nHost: b.test\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nX: y\r\n\r\n",
        ] {
            let sent = format!("{before}POST http://b.test/x HTTP/1.1\r\nHost: b.test\r\n{fields}\r\n{body}{hidden}");
            let got = exchange(&proxy, sent).await;
            let answers: Vec<&str> = got.split("HTTP/1.1 ").skip(1).map(|answer| &answer[..3]).collect();
            let wanted: &[&str] = if before.is_empty() { &["400"] } else { &["200", "400"] };
            assert_eq!(answers, wanted, "{what}: {got}");
            assert!(
                got.to_lowercase().contains("proxy-status: robots-proxy; error=http_request_error"),
                "{what}: {got}"
            );
            number += wanted.len();
        }
    }
    assert!(clear.paths().iter().all(|path| path == "/ok"), "{:?}", clear.paths());
    let records = proxy.records(number).await;
    assert_eq!(records.iter().filter(|record| record["reason"] == "bad-request").count(), SMUGGLED.len() * 4);
    // The same inside TLS.
    let mut wire = Wire::tunnel(&proxy, "a.test:443").await.tls(&proxy, "a.test", &[b"http/1.1"]).await;
    wire.send(format!("POST /x HTTP/1.1\r\nHost: a.test\r\n{}\r\n0\r\n\r\n{hidden}", SMUGGLED[0].1)).await;
    let (head, body) = wire.answer().await;
    assert!(status(&head) == "400" && body.contains("both Content-Length and Transfer-Encoding"), "{head}{body}");
    assert_eq!(wire.rest().await, "");
}

#[tokio::test]
async fn bypass_c14_odd_but_clear_requests_are_written_anew() {
    let (clear, _tls, proxy) = sites().await;
    for request in [
        "\r\n\r\nPOST http://b.test/x HTTP/1.1\nHost: b.test\nTransfer-Encoding: chunked\nConnection: close\n\n5;ext=\"x\"\r\nhello\r\n0\r\nX: y\r\n\r\n",
        "POST http://b.test/x HTTP/1.1\r\nHost: b.test\r\nContent-Length: 5\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello",
        "POST http://b.test/x HTTP/1.1\r\nHost: b.test\r\ntransfer-ENCODING: CHUNKED\r\nConnection: close\r\n\r\n05\r\nhello\r\n000\r\n\r\n",
    ] {
        let got = exchange(&proxy, request).await;
        assert_eq!(status(&got), "200", "{request:?}: {got}");
    }
    for visit in clear.pages() {
        let lengths = visit.headers.get_all("content-length").iter().count();
        let codings = visit.headers.get_all("transfer-encoding").iter().count();
        assert_eq!(lengths + codings, 1, "one end: {:?}", visit.headers);
    }
}

#[tokio::test]
async fn bypass_d1_the_name_goes_no_further_and_d5_odd_names_are_400() {
    let (clear, _tls, proxy) = sites().await;
    let got = ask(&proxy, "GET http://b.test/private/x", "Host: b.test\r\nRobots-Agent: OpenBot/1.0\r\n").await;
    assert_eq!(status(&got), "200");
    assert!(clear.pages().iter().all(|visit| !visit.headers.contains_key("robots-agent")));
    for name in ["*", "", "Open Bot", "OpenBot, OtherBot", "\u{e9}", "OpenBot/", "OpenBot\r\nRobots-Agent: OtherBot"] {
        let got = ask(&proxy, "GET http://b.test/x", &format!("Host: b.test\r\nRobots-Agent: {name}\r\n")).await;
        assert_eq!(status(&got), "400", "{name}");
    }
    assert_eq!(clear.pages().len(), 1);
}

#[tokio::test]
async fn bypass_d2_d3_a_name_on_the_connect_holds_unless_the_request_names_another() {
    let (clear, _tls, proxy) = sites().await;
    for (connect, inside, path, wanted) in [
        ("Robots-Agent: OpenBot\r\n", "", "/private/x", "200"),
        ("Robots-Agent: OpenBot\r\n", "", "/closed/", "403"),
        ("Robots-Agent: OpenBot\r\n", "User-Agent: OtherBot/1.0\r\n", "/closed/", "403"),
        ("Robots-Agent: OpenBot\r\n", "Robots-Agent: openbot/2\r\n", "/private/x", "200"),
        // A header is a claim, wherever it stands; who must not choose is told apart by `identity.map`, which comes first.
        ("Robots-Agent: OpenBot\r\n", "Robots-Agent: OtherBot\r\n", "/private/x", "403"),
        ("Robots-Agent: OtherBot\r\n", "Robots-Agent: OpenBot\r\n", "/private/x", "200"),
        ("", "Robots-Agent: OpenBot\r\n", "/closed/", "403"),
        ("User-Agent: OpenBot/1.0\r\n", "", "/closed/", "403"),
    ] {
        let mut wire = Wire::to(&proxy).await;
        wire.send(format!("CONNECT b.test:80 HTTP/1.1\r\nHost: b.test\r\n{connect}\r\n")).await;
        wire.head().await;
        wire.send(format!("GET {path} HTTP/1.1\r\nHost: b.test\r\n{inside}\r\n")).await;
        assert_eq!(status(&wire.answer().await.0), wanted, "{connect}{inside}{path}");
    }
    assert_eq!(clear.paths(), ["/private/x", "/private/x", "/private/x"]);
}

#[tokio::test]
async fn bypass_d4_d6_the_map_knows_the_socket_and_no_header_about_it() {
    let clear = Origin::http(|visit| Reply::of_site(RULES, visit)).await;
    let proxy = Proxy::with(&[("b.test", &clear)], |settings| {
        let entry = |client: &str, token: &str| MapEntry {
            client: Some(client.parse().unwrap()),
            ..MapEntry::of(token.parse().unwrap())
        };
        settings.identity.map = vec![entry("192.0.2.0/24", "OpenBot"), entry("127.0.0.0/8", "MapBot")];
    })
    .await;
    let fields = "Host: b.test\r\nX-Forwarded-For: 192.0.2.1\r\nForwarded: for=192.0.2.1\r\nX-Real-IP: 192.0.2.1\r\n\
                  User-Agent: OpenBot/1.0\r\nRobots-Agent: OpenBot\r\n";
    assert_eq!(status(&ask(&proxy, "GET http://b.test/private/x", fields).await), "403");
    let record = proxy.record_of("/private/x").await;
    assert_eq!((&record["agent"], &record["agent_source"]), (&json!("MapBot"), &json!("map")));
    assert_eq!(record["client"], "127.0.0.1");
}

#[tokio::test]
async fn bypass_d7_credentials_are_in_no_record() {
    let (clear, _tls, proxy) = sites().await;
    let fields = "Host: b.test\r\nProxy-Authorization: Basic YW5uOmhpZGRlbg==\r\nAuthorization: Bearer hidden\r\nCookie: a=hidden\r\n";
    for path in ["/x", "/private/x"] {
        ask(&proxy, &format!("GET http://b.test{path}"), fields).await;
    }
    ask(&proxy, "GET http://ann:hidden@b.test/x", fields).await;
    ask(&proxy, "CONNECT ann:hidden@b.test:80", fields).await;
    let records = format!("{:?}", proxy.records(4).await);
    assert!(!records.contains("hidden") && !records.contains("aGlkZGVu"), "{records}");
    assert!(clear.visits().iter().all(|visit| !visit.headers.contains_key("proxy-authorization")));
}
