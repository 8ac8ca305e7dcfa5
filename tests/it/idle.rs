//! Connections that pause: what an idle one holds is given back, and nobody notices.

use std::sync::Arc;
use std::time::Duration;

use robots_proxy::clock;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;

use super::support::in_time;
use super::support::origin::{Origin, Reply};
use super::support::proxy::Proxy;
use super::support::wire::Wire;

/// Longer than it takes until a connection counts as idle (`MOMENT` of `src/proxy/http1.rs`, twice).
const PAUSE: Duration = Duration::from_millis(700);

async fn site(gate: &Arc<Semaphore>) -> Origin {
    let gate = Arc::clone(gate);
    Origin::http(move |visit| match visit.path.as_str() {
        "/gated" => Reply::Gated(Arc::clone(&gate), http::Response::new("at last".into())),
        "/count" => Reply::Count(None),
        _ => Reply::of_site("", visit),
    })
    .await
}

/// Requests in pieces, a pause between any two of them, and what is answered.
const EXCHANGES: &[(&[&str], &[&str])] = &[
    (&["GET /1 HTTP/1.1\r\nHost: a.test\r\n\r\n"], &["page /1"]),
    (&["G", "ET /2 HTTP/1.1\r\nHo", "st: a.test\r\n\r", "\n"], &["page /2"]),
    (&["POST /count HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\n", "he", "llo"], &["5"]),
    (
        &["POST /count HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nh", "e\r\n0\r\n", "\r\n"],
        &["2"],
    ),
    (
        &[
            "GET /3 HTTP/1.1\r\nHost: a.test\r\n\r\nGET /4 HTTP/1.1\r\nHost: a.test\r\n\r\nGET /5",
            " HTTP/1.1\r\nHost: a.test\r\n\r\n",
        ],
        &["page /3", "page /4", "page /5"],
    ),
    (&["\r\n", "GET /6 HTTP/1.1\r\nHost: a.test\r\n\r\n"], &["page /6"]),
];

async fn pauses<S: AsyncRead + AsyncWrite + Unpin>(mut wire: Wire<S>, gate: &Semaphore) {
    for (pieces, pages) in EXCHANGES {
        clock::sleep(PAUSE).await;
        wire.send(pieces[0]).await;
        for piece in &pieces[1..] {
            clock::sleep(PAUSE).await;
            wire.send(piece).await;
        }
        for page in *pages {
            assert_eq!(wire.answer().await.1, *page, "{pieces:?}");
        }
    }
    wire.send("GET /gated HTTP/1.1\r\nHost: a.test\r\n\r\n").await;
    clock::sleep(PAUSE).await;
    gate.add_permits(1);
    assert_eq!(wire.answer().await.1, "at last");
    clock::sleep(PAUSE).await;
    // Counted from the beginning of the connection, whatever pauses there were.
    wire.send("GET /7 HTTP/1.1\r\nHost: a.test\r\n\r\n").await;
    assert_eq!(wire.answer().await.1, "page /7");
    wire.send("POST /8 HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
        .await;
    let rest = wire.rest().await;
    assert!(rest.starts_with("HTTP/1.1 400 "), "{rest}");
}

#[tokio::test]
async fn requests_are_answered_whatever_pauses_there_are_between_and_in_them() {
    let gate = Arc::new(Semaphore::new(0));
    let clear = site(&gate).await;
    let proxy = Proxy::with(&[("a.test", &clear)], |_| ()).await;
    let plain = Wire::tunnel(&proxy, "a.test:80").await;
    let tls = async {
        let tls = Origin::https(|visit| match visit.path.as_str() {
            "/count" => Reply::Count(None),
            "/gated" => Reply::text("at last"),
            _ => Reply::of_site("", visit),
        })
        .await;
        let proxy = Proxy::with(&[("a.test", &tls)], |_| ()).await;
        let wire = Wire::tunnel(&proxy, "a.test:443").await.tls(&proxy, "a.test", &[b"http/1.1"]).await;
        pauses(wire, &Semaphore::new(0)).await;
    };
    tokio::join!(pauses(plain, &gate), tls);
}

#[tokio::test]
async fn an_idle_connection_ends_in_peace() {
    let gate = Arc::new(Semaphore::new(0));
    let clear = site(&gate).await;
    let mut proxy =
        Proxy::with(&[("a.test", &clear)], |settings| settings.limits.header_timeout = Duration::from_secs(2)).await;
    let asked = async || {
        let mut wire = Wire::to(&proxy).await;
        wire.send("GET http://a.test/x HTTP/1.1\r\nHost: a.test\r\n\r\n").await;
        assert_eq!(wire.answer().await.1, "page /x");
        wire
    };
    // By the proxy, when it has waited long enough.
    let wire = asked().await;
    assert_eq!(in_time("the end of patience", wire.rest()).await, "");
    // Not by it as long as somebody takes no more than that for each request.
    let mut wire = asked().await;
    for _ in 0..3 {
        clock::sleep(Duration::from_millis(1500)).await;
        wire.send("GET http://a.test/x HTTP/1.1\r\nHost: a.test\r\n\r\n").await;
        assert_eq!(wire.answer().await.1, "page /x");
    }
    // By a stop, at once.
    let idle = asked().await;
    clock::sleep(PAUSE).await;
    let running = proxy.take();
    assert!(in_time("the stop", running.stop()).await);
    assert_eq!((idle.rest().await, wire.rest().await), (String::new(), String::new()));
}
