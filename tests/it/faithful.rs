//! Heads and framings as they were sent: spelling, fields of one connection, answers without a length, interim answers.

use bytes::Bytes;
use http::{Request, StatusCode, Version};
use http_body_util::Empty;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::support::origin::{Origin, Raw, Reply};
use super::support::proxy::Proxy;
use super::support::wire::{Wire, exchange};
use super::support::{authority, in_time};

const OPEN: &str = "User-agent: *\nDisallow: /private/";

#[tokio::test]
async fn names_of_fields_keep_their_case_in_both_directions_and_what_is_added_has_capitals() {
    let answer = "HTTP/1.1 200 OK\r\nX-Odd-CASE: y\r\ncontent-LENGTH: 2\r\n\r\nok";
    let site = Origin::raw(move |visit| match (visit.is_robots(), visit.nth) {
        (true, _) => Raw::ok(""),
        // What is sent again on another connection is spelt alike.
        (false, 2) => Raw::Close(Vec::new()),
        (false, _) => Raw::Keep(answer.into()),
    })
    .await;
    let proxy = Proxy::before(&[("a.test", &site)]).await;
    for (open, target) in [(false, "http://a.test/x"), (true, "/x")] {
        let mut wire = if open { Wire::tunnel(&proxy, "a.test:80").await } else { Wire::to(&proxy).await };
        wire.send(format!("GET {target} HTTP/1.1\r\nHOST: A.Test:80\r\nX-CamelCase: 1\r\nuser-AGENT: x\r\n\r\n")).await;
        let (head, _) = wire.answer().await;
        for line in ["X-Odd-CASE: y\r\n", "content-LENGTH: 2\r\n", "Via: 1.1 robots-proxy-"] {
            assert!(head.contains(&format!("\r\n{line}")), "{line}: {head}");
        }
    }
    assert!(site.pages().len() >= 3, "one of them was sent again");
    for visit in site.pages() {
        for line in ["HOST: A.Test:80\r\n", "X-CamelCase: 1\r\n", "user-AGENT: x\r\n", "Via: 1.1 robots-proxy-"] {
            assert!(visit.head.contains(&format!("\r\n{line}")), "{line}: {}", visit.head);
        }
    }
}

#[tokio::test]
async fn case_12_host_is_one_and_that_of_the_target() {
    let site = Origin::raw(|_| Raw::ok("")).await;
    let proxy = Proxy::before(&[("a.test", &site)]).await;
    for (host, sent) in
        [("Host: A.Test", "Host: A.Test"), ("Host: a.test:80", "Host: a.test:80"), ("Host: b.test", "Host: a.test")]
    {
        let got = proxy.curl(&["-H", host, "http://a.test/x"]).await;
        assert_eq!(got.status, 200);
        let head = site.pages().pop().unwrap().head;
        assert!(head.contains(&format!("\r\n{sent}\r\n")), "{head}");
        assert_eq!(head.to_lowercase().matches("\r\nhost:").count(), 1, "{head}");
    }
}

#[tokio::test]
async fn case_22_what_is_about_one_connection_goes_no_further_in_either_direction() {
    let answer = "HTTP/1.1 200 OK\r\nConnection: x-hop, keep-alive\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\n\
                  Proxy-Authenticate: Basic realm=\"x\"\r\nProxy-Connection: keep-alive\r\nUpgrade: h2c\r\n\
                  Alt-Svc: h3=\":443\"\r\nX-Kept: 1\r\nContent-Length: 2\r\n\r\nok";
    let site = Origin::raw(move |visit| if visit.is_robots() { Raw::ok("") } else { Raw::Keep(answer.into()) }).await;
    let proxy = Proxy::before(&[("a.test", &site)]).await;
    let request = "GET http://a.test/x HTTP/1.1\r\nHost: a.test\r\nConnection: x-secret, te\r\nX-Secret: 1\r\nKeep-Alive: 5\r\n\
                   Proxy-Connection: keep-alive\r\nProxy-Authorization: Basic dTpw\r\nTE: trailers, gzip\r\nTrailer: X-T\r\nUpgrade: h2c\r\n\
                   HTTP2-Settings: AAMAAABkAAQAAP__\r\nX-Kept: 1\r\n\r\n";
    let mut wire = Wire::to(&proxy).await;
    wire.send(request).await;
    let (head, _) = wire.answer().await;
    let sent = site.pages().pop().unwrap().head.to_lowercase();
    for (head, side) in [(head.to_lowercase(), "the client"), (sent, "the origin")] {
        assert!(head.contains("\r\nx-kept: 1\r\n"), "{head}");
        for name in [
            "connection",
            "x-hop",
            "x-secret",
            "keep-alive",
            "proxy-authenticate",
            "proxy-authorization",
            "proxy-connection",
            "trailer",
            "upgrade",
            "http2-settings",
            "alt-svc",
            "transfer-encoding",
        ] {
            assert!(!head.contains(&format!("\r\n{name}:")), "{name} reached {side}: {head}");
        }
    }
}

#[tokio::test]
async fn trailers_reach_a_client_that_takes_them() {
    let answer =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n4\r\nbody\r\n0\r\nX-Sum: 7\r\n\r\n";
    let site = Origin::raw(move |visit| if visit.is_robots() { Raw::ok("") } else { Raw::Keep(answer.into()) }).await;
    let proxy = Proxy::before(&[("a.test", &site)]).await;
    let ask = async |te: &str| {
        let request = format!("GET http://a.test/x HTTP/1.1\r\nHost: a.test\r\n{te}Connection: close\r\n\r\n");
        exchange(&proxy, request).await.to_lowercase()
    };
    let with = ask("TE: trailers\r\n").await;
    assert!(with.contains("\r\ntrailer: x-sum\r\n") && with.ends_with("0\r\nx-sum: 7\r\n\r\n"), "{with}");
    let without = ask("").await;
    assert!(!without.contains("x-sum") && without.ends_with("4\r\nbody\r\n0\r\n\r\n"), "{without}");
    let got = proxy.curl(&["--proxytunnel", "--http2-prior-knowledge", "-H", "TE: trailers", "http://a.test/x"]).await;
    assert_eq!((got.exit, got.text().as_str()), (0, "body"), "{}", got.error);
    assert_eq!(got.header("x-sum"), "7", "curl puts trailers behind the header");
}

#[tokio::test]
async fn bypass_c3_fields_that_make_servers_answer_with_another_page_are_removed() {
    let site = Origin::http(|visit| Reply::of_site(OPEN, visit)).await;
    let proxy = Proxy::before(&[("a.test", &site)]).await;
    let fields = [
        "X-Original-URL: /private/",
        "X-Rewrite-URL: /private/",
        "X-Forwarded-Host: b.test",
        "X-Original-Host: b.test",
        "X-Host: b.test",
        "X-Forwarded-Server: b.test",
        "X-Forwarded-Prefix: /private",
        "X-Forwarded-Path: /private/",
        "X-Forwarded-Uri: /private/",
        "Forwarded: host=b.test",
    ];
    let mut arguments: Vec<&str> = fields.iter().flat_map(|field| ["-H", *field]).collect();
    arguments.extend(["-H", "X-HTTP-Method-Override: DELETE", "-H", "X-Forwarded-For: 192.0.2.1", "http://a.test/x"]);
    assert_eq!(proxy.curl(&arguments).await.status, 200);
    let visit = site.pages().pop().unwrap();
    for name in fields.iter().map(|field| field.split(':').next().unwrap()) {
        assert!(!visit.headers.contains_key(name), "{name}");
    }
    for name in ["x-http-method-override", "x-forwarded-for"] {
        assert!(visit.headers.contains_key(name), "{name} changes no page's address");
    }
}

/// Asks with each protocol of a client, and returns what each got.
async fn with_each_protocol(proxy: &Proxy, options: &[&str], url: &str) -> Vec<super::support::curl::Got> {
    let mut all = Vec::new();
    for option in ["--http1.0", "--http1.1", "--http2"] {
        let got = proxy.curl(&[&[option, "--max-time", "10"], options, &[url]].concat()).await;
        assert_eq!(got.exit, 0, "{option} {url}: {}", got.error);
        all.push(got);
    }
    all
}

#[tokio::test]
async fn case_01_an_h2_answer_without_a_length_ends_for_every_client() {
    let site = Origin::tls(authority::every_name(&[b"h2"]), |visit| match visit.is_robots() {
        true => Reply::text(""),
        false => {
            let (pieces, body) = tokio::sync::mpsc::unbounded_channel();
            for piece in ["one ", "two ", "three"] {
                pieces.send(piece.into()).unwrap();
            }
            Reply::Stream(http::Response::new(()), body)
        }
    })
    .await;
    let proxy = Proxy::before(&[("a.test", &site)]).await;
    for got in with_each_protocol(&proxy, &[], "https://a.test/x").await {
        assert_eq!((got.status, got.text().as_str(), got.header("content-length")), (200, "one two three", ""));
    }
    assert!(site.visits().iter().all(|visit| visit.version == Version::HTTP_2));
}

#[tokio::test]
async fn case_02_03_answers_without_a_body_stay_without_one() {
    let raw = Origin::raw(|visit| match (visit.method.as_str(), visit.path.as_str()) {
        ("HEAD", _) => Raw::Keep(b"HTTP/1.1 200 OK\r\nContent-Length: 1488324\r\n\r\n".to_vec()),
        (_, "/304") => Raw::Keep(b"HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\n\r\n".to_vec()),
        (_, "/204") => Raw::Keep(b"HTTP/1.1 204 No Content\r\n\r\n".to_vec()),
        _ => Raw::ok(""),
    })
    .await;
    let proxy = Proxy::before(&[("a.test", &raw)]).await;
    for (path, status) in [("/304", 304), ("/204", 204)] {
        for got in with_each_protocol(&proxy, &[], &format!("http://a.test{path}")).await {
            assert_eq!((got.status, got.body.len()), (status, 0), "{path}");
            for name in ["transfer-encoding", "content-length"] {
                assert_eq!(got.header(name), "", "{path} {name}");
            }
        }
    }
    for got in with_each_protocol(&proxy, &["--head"], "http://a.test/x").await {
        assert_eq!((got.status, got.header("content-length")), (200, "1488324"));
    }
}

#[tokio::test]
async fn case_02_03_over_h2_origins() {
    let site = Origin::tls(authority::every_name(&[b"h2"]), |visit| match visit.path.as_str() {
        "/304" => Reply::with(304, &[("etag", "\"x\"")], ""),
        "/204" => Reply::with(204, &[], ""),
        "/head" => Reply::with(200, &[], "a page of 24 octets long"),
        _ => Reply::text(""),
    })
    .await;
    let proxy = Proxy::before(&[("a.test", &site)]).await;
    for (path, status) in [("/304", 304), ("/204", 204)] {
        for got in with_each_protocol(&proxy, &[], &format!("https://a.test{path}")).await {
            assert_eq!((got.status, got.body.len(), got.header("transfer-encoding")), (status, 0, ""), "{path}");
        }
    }
    for got in with_each_protocol(&proxy, &["--head"], "https://a.test/head").await {
        assert_eq!((got.status, got.header("transfer-encoding"), got.header("content-length")), (200, "", "24"));
    }
    // And the connection goes on.
    let mut wire = Wire::tunnel(&proxy, "a.test:443").await.tls(&proxy, "a.test", &[b"http/1.1"]).await;
    for (method, path, status) in
        [("GET", "/304", "304"), ("HEAD", "/head", "200"), ("GET", "/204", "204"), ("GET", "/304", "304")]
    {
        wire.send(format!("{method} {path} HTTP/1.1\r\nHost: a.test\r\n\r\n")).await;
        let head = wire.head().await;
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{method} {path}: {head}");
    }
}

#[tokio::test]
async fn an_http_1_0_origin_ends_its_answer_by_closing() {
    let site = Origin::raw(|visit| match visit.is_robots() {
        true => Raw::Close(b"HTTP/1.0 200 OK\r\n\r\nUser-agent: *\nDisallow: /private/\n".to_vec()),
        false => Raw::Close(b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nan old page".to_vec()),
    })
    .await;
    let proxy = Proxy::before(&[("a.test", &site)]).await;
    for option in [&["--http1.0"][..], &["--http1.1"], &["--proxytunnel", "--http2-prior-knowledge"]] {
        let got = proxy.curl(&[option, &["http://a.test/x"]].concat()).await;
        assert_eq!((got.exit, got.status, got.text().as_str()), (0, 200, "an old page"), "{option:?} {}", got.error);
        assert_eq!(proxy.curl(&[option, &["http://a.test/private/x"]].concat()).await.status, 403, "{option:?}");
    }
    assert!(site.pages().iter().all(|visit| visit.head.contains(" HTTP/1.1\r\n")));
}

#[tokio::test]
async fn case_07_a_refused_upload_is_never_asked_to_continue() {
    let site = Origin::http(|visit| match visit.path.as_str() {
        "/upload" => Reply::Count(None),
        _ => Reply::of_site(OPEN, visit),
    })
    .await;
    let proxy = Proxy::before(&[("a.test", &site)]).await;
    for value in ["100-continue", "100-CONTINUE"] {
        let head = |path: &str| {
            format!(
                "POST http://a.test{path} HTTP/1.1\r\nHost: a.test\r\nExpect: {value}\r\nContent-Length: 10000000\r\n\r\n"
            )
        };
        let answer = in_time("a prompt refusal", exchange(&proxy, head("/private/x"))).await;
        assert!(answer.starts_with("HTTP/1.1 403 ") && !answer.contains(" 100 "), "{answer}");
        let mut wire = Wire::to(&proxy).await;
        wire.send(head("/upload")).await;
        let interim = wire.head().await;
        assert!(interim.starts_with("HTTP/1.1 100 "), "{interim}");
        wire.send(vec![b'x'; 10_000_000]).await;
        let (head, body) = wire.answer().await;
        assert!(head.starts_with("HTTP/1.1 200 ") && body == "10000000", "{head}{body}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn case_03_an_h2_origin_that_answers_every_head_with_a_body_keeps_its_connection() {
    // hyper's server does so.
    let site = Origin::https(|visit| Reply::of_site(OPEN, visit)).await;
    let proxy = Proxy::before(&[("a.test", &site)]).await;
    let wire = Wire::tunnel(&proxy, "a.test:443").await.tls(&proxy, "a.test", &[b"h2"]).await;
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(wire.stream)).await.unwrap();
    tokio::spawn(connection);
    for number in 0..1500 {
        let request = Request::head("https://a.test/x").body(Empty::<Bytes>::new()).unwrap();
        let answer = in_time("an answer", sender.send_request(request)).await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK, "{number}");
        assert_eq!(answer.headers()["content-length"], "7", "{number}");
    }
    assert_eq!(site.connections(), 1);
}

/// Answers as soon as a head has come, and reads no body.
async fn impatient(answer: &'static str, lingers: bool) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    match stream.read_u8().await {
                        Ok(octet) => head.push(octet),
                        Err(_) => return,
                    }
                }
                let robots = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
                let answer = if head.starts_with(b"GET /robots.txt ") { robots } else { answer };
                let _ = stream.write_all(answer.as_bytes()).await;
                let _ = stream.shutdown().await;
                if lingers {
                    let mut rest = Vec::new();
                    let _ = in_time("the end", stream.read_to_end(&mut rest)).await;
                }
            });
        }
    });
    address
}

#[tokio::test]
async fn an_origin_that_answers_before_the_upload_has_ended_is_heard() {
    let answer = "HTTP/1.1 413 Content Too Large\r\nContent-Length: 9\r\nConnection: close\r\n\r\ntoo large";
    for lingers in [true, false] {
        let address = impatient(answer, lingers).await;
        let proxy = Proxy::with(&[], |settings| {
            settings.upstream.connect_to.push(robots_proxy::upstream::ConnectTo {
                from: "a.test:80".parse().unwrap(),
                to: address.to_string().parse().unwrap(),
            });
        })
        .await;
        let upload = proxy.folder().join("upload");
        std::fs::write(&upload, vec![b'x'; 20_000_000]).unwrap();
        let data = format!("@{}", upload.display());
        for _ in 0..3 {
            let got = proxy.curl(&["-H", "Expect:", "--data-binary", &data, "http://a.test/x"]).await;
            assert_eq!((got.status, got.text().as_str()), (413, "too large"), "lingers {lingers}: {}", got.error);
        }
    }
}
