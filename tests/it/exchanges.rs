//! One exchange after the other on a connection with HTTP/1.1, on both sides.

use robots_proxy::upstream::ConnectTo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::support::in_time;
use crate::support::origin::{Origin, Raw, Reply};
use crate::support::proxy::Proxy;
use crate::support::wire::{Wire, exchange};

const RULES: &str = "User-agent: *\nDisallow: /private/\n";

/// A site of which the test plays the connections by itself; its robots.txt is not there.
async fn played() -> (TcpListener, Proxy) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = listener.local_addr().unwrap().to_string().parse().unwrap();
    let connect_to = ConnectTo { from: "a.test:80".parse().unwrap(), to };
    let proxy = Proxy::with(&[], |settings| settings.upstream.connect_to.push(connect_to)).await;
    (listener, proxy)
}

/// Accepts a connection and reads the head of the first request on it.
async fn visited(listener: &TcpListener) -> (Wire, String) {
    let (stream, _) = in_time("a visit", listener.accept()).await.unwrap();
    let mut wire = Wire::over(stream);
    let head = wire.head().await;
    (wire, head)
}

const NOT_THERE: &str = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";

#[tokio::test]
async fn a_client_that_reads_nothing_before_it_has_sent_all_is_no_deadlock() {
    const LENGTH: usize = 20_000_000;
    let (listener, proxy) = played().await;
    let mut client = Wire::to(&proxy).await;
    client.send(format!("POST http://a.test/x HTTP/1.1\r\nHost: a.test\r\nContent-Length: {LENGTH}\r\n\r\n")).await;
    let (mut site, head) = visited(&listener).await;
    assert!(head.starts_with("GET /robots.txt "), "{head}");
    site.send(NOT_THERE).await;
    assert!(site.head().await.starts_with("POST /x "));
    // It answers with as much as it is sent, and does not wait for that.
    let (mut from_client, mut to_client) = tokio::io::split(site.stream);
    let answering = async {
        to_client.write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: {LENGTH}\r\n\r\n").as_bytes()).await.unwrap();
        to_client.write_all(&vec![b'y'; LENGTH]).await.unwrap();
    };
    let taking = async {
        let mut body = vec![0; LENGTH];
        from_client.read_exact(&mut body).await.unwrap();
    };
    let asking = async {
        client.send(vec![b'x'; LENGTH]).await;
        let (head, body) = client.answer().await;
        assert!(head.starts_with("HTTP/1.1 200 ") && body.len() == LENGTH, "{head}");
    };
    in_time("all of it", async { tokio::join!(answering, taking, asking) }).await;
}

#[tokio::test]
async fn a_kept_connection_that_its_site_has_closed_is_let_go() {
    let (listener, proxy) = played().await;
    let mut client = Wire::to(&proxy).await;
    client.send("GET http://a.test/x HTTP/1.1\r\nHost: a.test\r\n\r\n").await;
    let (mut site, _) = visited(&listener).await;
    site.send(NOT_THERE).await;
    assert!(site.head().await.starts_with("GET /x "), "on the connection that fetched robots.txt");
    site.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    assert!(client.head().await.starts_with("HTTP/1.1 200 "));
    site.stream.shutdown().await.unwrap();
    assert_eq!(site.rest().await, "", "the proxy has closed it, too");
    client.send("GET http://a.test/y HTTP/1.1\r\nHost: a.test\r\n\r\n").await;
    let (mut site, head) = visited(&listener).await;
    assert!(head.starts_with("GET /y "), "{head}");
    site.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    assert!(client.head().await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn an_answer_may_come_bit_by_bit_and_behind_others_that_are_not_the_last() {
    let (listener, proxy) = played().await;
    let mut client = Wire::to(&proxy).await;
    client.send("GET http://a.test/x HTTP/1.1\r\nHost: a.test\r\n\r\n").await;
    let (mut site, _) = visited(&listener).await;
    site.send(NOT_THERE).await;
    site.head().await;
    let interim = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n";
    let last = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n";
    for octet in [interim, last].concat().as_bytes() {
        site.send([*octet]).await;
        tokio::task::yield_now().await;
    }
    let head = client.head().await;
    assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("Transfer-Encoding: chunked"), "{head}");
    let chunks = client.read_to("0\r\n\r\n").await;
    let data: String = chunks.split("\r\n").skip(1).step_by(2).collect();
    assert_eq!(data, "abcde", "{chunks:?}");
}

#[tokio::test]
async fn an_http_1_0_client_keeps_its_connection_if_it_asks_to() {
    let (tell, pieces) = mpsc::unbounded_channel();
    let pieces = std::sync::Mutex::new(Some(pieces));
    let site = Origin::http(move |visit| match visit.path.as_str() {
        "/stream" => Reply::Stream(http::Response::new(()), pieces.lock().unwrap().take().unwrap()),
        _ => Reply::of_site(RULES, visit),
    })
    .await;
    let proxy = Proxy::before(&[("a.test", &site)]).await;
    let mut client = Wire::to(&proxy).await;
    for path in ["/1", "/private/2", "/3"] {
        client
            .send(format!("GET http://a.test{path} HTTP/1.0\r\nHost: a.test\r\nConnection: Keep-Alive\r\n\r\n"))
            .await;
        let (head, body) = client.answer().await;
        assert!(head.starts_with("HTTP/1.0 ") && head.to_lowercase().contains("connection: keep-alive"), "{head}");
        assert!(body.contains(path), "{body}");
    }
    // What has no length can only end with the connection, there being no chunks.
    for piece in ["one ", "two"] {
        tell.send(piece.into()).unwrap();
    }
    drop(tell);
    let request = "GET http://a.test/stream HTTP/1.0\r\nHost: a.test\r\nConnection: Keep-Alive\r\n\r\n";
    let answer = exchange(&proxy, request).await;
    assert!(answer.ends_with("\r\n\r\none two") && !answer.to_lowercase().contains("keep-alive"), "{answer}");
    let answer = exchange(&proxy, "GET http://a.test/4 HTTP/1.0\r\nHost: a.test\r\n\r\n").await;
    assert!(answer.contains("page /4"), "{answer}");
}

#[tokio::test]
async fn a_body_that_nobody_wants_is_read_if_it_is_short() {
    let site = Origin::raw(|visit| Raw::ok(if visit.is_robots() { RULES } else { "page" })).await;
    let proxy = Proxy::before(&[("a.test", &site)]).await;
    let post = |body: &str| format!("POST http://a.test/private/ HTTP/1.1\r\nHost: a.test\r\n{body}");
    let mut client = Wire::to(&proxy).await;
    for body in ["Content-Length: 5\r\n\r\nhello", "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"] {
        client.send(post(body)).await;
        assert!(client.answer().await.0.starts_with("HTTP/1.1 403 "));
    }
    client.send("GET http://a.test/next HTTP/1.1\r\nHost: a.test\r\n\r\n").await;
    assert_eq!(client.answer().await.1, "page");
    let long = post(&format!("Content-Length: 1000000\r\n\r\n{}", "x".repeat(200_000)));
    let answer = exchange(&proxy, long).await;
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("Connection: close\r\n"), "{answer}");
}
