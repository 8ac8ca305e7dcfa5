//! Clients that do not send their request to the end, and sites that do not wait for it: nobody is held by them.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use http::Request;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use robots_proxy::clock;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};

use super::support::in_time;
use super::support::origin::{Origin, Raw, Reply};
use super::support::proxy::Proxy;
use super::support::wire::Wire;

const PATIENCE: Duration = Duration::from_millis(500);

/// Sites that read every body and answer with its length, and a proxy that is soon tired of waiting for clients.
async fn counting() -> (Origin, Origin, Proxy) {
    let script = |visit: &super::support::origin::Visit| match visit.is_robots() {
        true => Reply::text(""),
        false => Reply::Count(None),
    };
    let (clear, tls) = (Origin::http(script).await, Origin::https(script).await);
    let proxy = Proxy::with(&[("b.test", &clear), ("a.test", &tls)], |settings| {
        settings.limits.body_timeout = PATIENCE;
        // Shorter, so that the site could be blamed for the silence.
        settings.upstream.idle_timeout = PATIENCE / 2;
    })
    .await;
    (clear, tls, proxy)
}

async fn is_answered<S: AsyncRead + AsyncWrite + Unpin>(mut wire: Wire<S>, status: u16, says: &str) {
    let (head, body) = wire.answer().await;
    let head = head.to_lowercase();
    assert!(head.starts_with(&format!("http/1.1 {status} ")) && body.contains(says), "{head}{body}");
    assert!(head.contains("proxy-status: robots-proxy; error=http_request_error"), "{head}");
    assert!(head.contains("connection: close"), "{head}");
    assert_eq!(wire.rest().await, "", "the connection ends with it");
}

#[tokio::test]
async fn a_client_that_stops_in_the_middle_of_a_body_is_told_408() {
    let (clear, tls, proxy) = counting().await;
    for begun in ["Content-Length: 10\r\n\r\nhalf", "Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n"] {
        let mut wire = Wire::to(&proxy).await;
        wire.send(format!("POST http://b.test/plain HTTP/1.1\r\nHost: b.test\r\n{begun}")).await;
        is_answered(wire, 408, "the client sent nothing more of the request's body for 0.5 s").await;
        let mut wire = Wire::tunnel(&proxy, "a.test:443").await.tls(&proxy, "a.test", &[b"http/1.1"]).await;
        wire.send(format!("POST /tunnel HTTP/1.1\r\nHost: a.test\r\n{begun}")).await;
        is_answered(wire, 408, "request-timeout").await;
    }
    for record in proxy.records(4).await {
        let told = (&record["decision"], &record["reason"], &record["status"]);
        assert_eq!(told, (&json!("error"), &json!("request-timeout"), &json!(408)), "{record}");
    }
    // The site is rid of it, too, and serves the next.
    let got = proxy.curl(&["--data", "whole", "http://b.test/next"]).await;
    assert_eq!((got.status, got.text().as_str()), (200, "5"));
    assert_eq!((clear.pages().len(), tls.pages().len()), (3, 2));
}

#[tokio::test]
async fn a_stream_whose_body_stops_is_told_408_and_its_connection_lives_on() {
    let (_clear, _tls, proxy) = counting().await;
    let wire = Wire::tunnel(&proxy, "a.test:443").await.tls(&proxy, "a.test", &[b"h2"]).await;
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(wire.stream)).await.unwrap();
    tokio::spawn(connection);
    let first = stream::iter([Ok::<_, Infallible>(Frame::data(Bytes::from("half")))]);
    let stops = Request::post("https://a.test/stops").body(StreamBody::new(first.chain(stream::pending()).boxed()));
    let answer = in_time("a 408", sender.send_request(stops.unwrap())).await.unwrap();
    assert_eq!(answer.status(), 408);
    assert!(answer.headers()["proxy-status"].to_str().unwrap().contains("error=http_request_error"));
    let whole = stream::iter([Ok(Frame::data(Bytes::from("whole")))]);
    let next = Request::post("https://a.test/next").body(StreamBody::new(whole.boxed())).unwrap();
    let answer = in_time("the next", sender.send_request(next)).await.unwrap();
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "5");
}

#[tokio::test]
async fn a_slow_client_that_goes_on_is_waited_for() {
    let (_clear, _tls, proxy) = counting().await;
    let mut wire = Wire::to(&proxy).await;
    wire.send("POST http://b.test/slow HTTP/1.1\r\nHost: b.test\r\nContent-Length: 8\r\n\r\n").await;
    for _ in 0..8 {
        clock::sleep(PATIENCE / 4).await;
        wire.send("x").await;
    }
    assert_eq!(wire.answer().await.1, "8");
}

#[tokio::test]
async fn a_body_that_is_none_is_the_clients_mistake_and_not_the_sites() {
    let (_clear, _tls, proxy) = counting().await;
    for (nth, chunks) in
        ["zz\r\nhello\r\n0\r\n\r\n", "-5\r\nhello\r\n0\r\n\r\n", "2\r\nhello\r\n0\r\n\r\n", "5 6\r\nhello\r\n0\r\n\r\n"]
            .into_iter()
            .enumerate()
    {
        let mut wire = Wire::to(&proxy).await;
        let head = "POST http://b.test/x HTTP/1.1\r\nHost: b.test\r\nTransfer-Encoding: chunked\r\n\r\n";
        wire.send(format!("{head}{chunks}")).await;
        is_answered(wire, 400, "the body of the request cannot be read").await;
        assert_eq!(proxy.records(nth + 1).await[nth]["reason"], "bad-request", "{chunks:?}");
    }
}

#[tokio::test]
async fn a_site_that_answers_first_is_heard_and_the_upload_holds_up_nobody_else() {
    let site = Origin::raw(|visit| Raw::ok(if visit.is_robots() { "" } else { "enough" })).await;
    let proxy = Proxy::with(&[("b.test", &site)], |settings| settings.limits.body_timeout = Duration::MAX / 4).await;
    let mut wire = Wire::to(&proxy).await;
    wire.send("POST http://b.test/early HTTP/1.1\r\nHost: b.test\r\nContent-Length: 100\r\n\r\nhalf").await;
    assert_eq!(wire.answer().await.1, "enough");
    for _ in 0..2 {
        assert_eq!(proxy.curl(&["http://b.test/next"]).await.text(), "enough");
    }
    assert!(site.pages().iter().skip(1).all(|visit| visit.path == "/next"), "{:?}", site.paths());
}

#[tokio::test]
async fn a_client_that_stops_when_the_answer_has_begun_ends_the_exchange() {
    let site = Origin::raw(|visit| match visit.is_robots() {
        true => Raw::ok(""),
        false => Raw::Keep(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nbegun".into()),
    })
    .await;
    let proxy = Proxy::with(&[("b.test", &site)], |settings| settings.limits.body_timeout = PATIENCE).await;
    let mut wire = Wire::to(&proxy).await;
    wire.send("POST http://b.test/stops HTTP/1.1\r\nHost: b.test\r\nContent-Length: 10\r\n\r\nhalf").await;
    let got = wire.rest().await;
    assert!(got.starts_with("HTTP/1.1 200 ") && got.ends_with("begun"), "{got}");
    let record = proxy.record_of("/stops").await;
    assert_eq!((&record["decision"], &record["reason"]), (&json!("error"), &json!("request-timeout")), "{record}");
}

#[tokio::test]
async fn a_site_that_takes_no_upload_is_silent_and_the_client_is_not_blamed() {
    // Reads a head, and then nothing: the sockets' buffers fill.
    let site = Origin::raw(|visit| if visit.is_robots() { Raw::ok("") } else { Raw::Silence }).await;
    let proxy = Proxy::with(&[("b.test", &site)], |settings| settings.upstream.idle_timeout = PATIENCE).await;
    let upload = proxy.folder().join("upload");
    std::fs::write(&upload, vec![b'x'; 30_000_000]).unwrap();
    let data = format!("@{}", upload.display());
    let got = proxy.curl(&["-H", "Expect:", "--data-binary", &data, "http://b.test/x"]).await;
    assert_eq!(got.status, 504, "{}", got.error);
    assert_eq!(proxy.record_of("/x").await["reason"], "upstream-timeout");
}
