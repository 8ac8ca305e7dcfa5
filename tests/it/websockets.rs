//! WebSockets, and the upgrades that are none.

use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};

use super::support::origin::{Origin, Raw, Reply, Visit};
use super::support::proxy::Proxy;
use super::support::wire::Wire;
use super::support::{authority, in_time};

const RULES: &str = "User-agent: *\nDisallow: /private/";

const GRANTED: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                         Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nX-Origin: yes\r\n\r\n";

/// Echoes on `/ws`, and grants other things elsewhere.
fn echo(visit: &Visit) -> Raw {
    match visit.path.as_str() {
        "/robots.txt" => Raw::ok(RULES),
        "/h2c" => Raw::Echo(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n".into()),
        "/unasked" => Raw::Echo(GRANTED.into()),
        "/no" => Raw::Keep(b"HTTP/1.1 426 Upgrade Required\r\nContent-Length: 2\r\n\r\nno".into()),
        path if path.starts_with("/ws") => Raw::Echo(GRANTED.into()),
        _ => Raw::ok("page"),
    }
}

/// In clear text and inside TLS, where the origin would rather speak HTTP/2.
async fn sites(change: impl FnOnce(&mut robots_proxy::app::Settings)) -> (Origin, Origin, Proxy) {
    let clear = Origin::raw(echo).await;
    let tls = Origin::raw_tls(authority::every_name(&[b"http/1.1"]), echo).await;
    let proxy = Proxy::with(&[("b.test", &clear), ("a.test", &tls)], change).await;
    (clear, tls, proxy)
}

fn handshake(target: &str, host: &str) -> String {
    format!(
        "GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: chat\r\n\r\n"
    )
}

async fn converse<S: AsyncRead + AsyncWrite + Unpin>(wire: &mut Wire<S>) {
    let head = wire.head().await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    for field in ["upgrade: websocket", "connection: upgrade", "sec-websocket-accept: s3pp", "x-origin: yes", "via: "] {
        assert!(head.to_lowercase().contains(field), "{field}: {head}");
    }
    for number in 0..3 {
        // Also octets that look like an answer which hyper makes.
        let message = format!("HTTP/1.1 400 Bad Request\r\nnumber: {number}\r\n\r\n");
        wire.send(&message).await;
        assert_eq!(wire.read(message.len()).await, message);
    }
}

#[tokio::test]
async fn bypass_c5_a_websocket_is_decided_on_by_its_path_and_then_copied_both_ways() {
    let (clear, tls, proxy) = sites(|_| ()).await;
    let mut plain = Wire::to(&proxy).await;
    plain.send(handshake("http://b.test/private/ws", "b.test")).await;
    assert!(plain.answer().await.0.starts_with("HTTP/1.1 403 "));
    // The connection is still good for a page, and for a WebSocket.
    plain.send("GET http://b.test/page HTTP/1.1\r\nHost: b.test\r\n\r\n").await;
    assert_eq!(plain.answer().await.1, "page");
    plain.send(handshake("http://b.test/ws1", "b.test")).await;
    converse(&mut plain).await;
    drop(plain);

    let mut inside = Wire::tunnel(&proxy, "b.test:80").await;
    inside.send(handshake("/private/ws", "b.test")).await;
    assert!(inside.answer().await.0.starts_with("HTTP/1.1 403 "));
    inside.send(handshake("/ws2", "b.test")).await;
    converse(&mut inside).await;
    drop(inside);

    let mut secret = Wire::tunnel(&proxy, "a.test:443").await.tls(&proxy, "a.test", &[b"http/1.1"]).await;
    secret.send(handshake("/private/ws", "a.test")).await;
    assert!(secret.answer().await.0.starts_with("HTTP/1.1 403 "));
    secret.send(handshake("/ws3", "a.test")).await;
    converse(&mut secret).await;
    drop(secret);

    assert_eq!((clear.paths(), tls.paths()), (vec!["/page".into(), "/ws1".into(), "/ws2".into()], vec!["/ws3".into()]));
    for (number, via) in [(1, "http"), (2, "connect"), (3, "connect")] {
        let record = proxy.record_of(&format!("/ws{number}")).await;
        let octets = 3 * "HTTP/1.1 400 Bad Request\r\nnumber: 0\r\n\r\n".len();
        assert_eq!((&record["status"], &record["bytes"], &record["via"]), (&json!(101), &json!(octets), &json!(via)));
        assert_eq!((&record["decision"], &record["reason"]), (&json!("allow"), &json!("allowed")));
    }
    let asked = &tls.pages()[0].headers;
    for (name, value) in [
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-protocol", "chat"),
        ("sec-websocket-version", "13"),
    ] {
        assert_eq!(asked[name], value);
    }
}

#[tokio::test]
async fn a_websocket_is_paced_as_one_request() {
    let site = Origin::raw(|visit| match visit.is_robots() {
        true => Raw::ok("User-agent: *\nCrawl-delay: 0.4"),
        false => echo(visit),
    })
    .await;
    let proxy = Proxy::before(&[("b.test", &site)]).await;
    for number in 0..3 {
        let mut wire = Wire::to(&proxy).await;
        wire.send(handshake(&format!("http://b.test/ws{number}"), "b.test")).await;
        converse(&mut wire).await;
    }
    let pages = site.pages();
    let gaps: Vec<_> = pages.windows(2).map(|pair| pair[1].at - pair[0].at).collect();
    assert!(gaps.iter().all(|gap| gap.as_millis() >= 385), "{gaps:?}");
}

#[tokio::test]
async fn an_origin_that_wants_no_websocket_answers_as_it_likes() {
    let (_clear, _tls, proxy) = sites(|_| ()).await;
    let mut wire = Wire::to(&proxy).await;
    for _ in 0..2 {
        wire.send(handshake("http://b.test/no", "b.test")).await;
        let (head, body) = wire.answer().await;
        assert_eq!((head.split(' ').nth(1), body.as_str()), (Some("426"), "no"));
        assert!(!head.to_lowercase().contains("upgrade: websocket"), "{head}");
    }
}

#[tokio::test]
async fn case_21_no_other_upgrade_is_passed_on_or_back() {
    let site = Origin::http(|visit| Reply::of_site(RULES, visit)).await;
    let (_clear, _tls, proxy) = sites(|settings| {
        let lead = format!("c.test:80={}", site.address);
        let (from, to) = lead.split_once('=').unwrap();
        let rule = robots_proxy::upstream::ConnectTo { from: from.parse().unwrap(), to: to.parse().unwrap() };
        settings.upstream.connect_to.push(rule);
    })
    .await;
    let got = proxy.curl(&["--http2", "http://c.test/x"]).await;
    assert_eq!((got.status, got.version.as_str(), got.text().as_str()), (200, "1.1", "page /x"));
    for upgrade in ["h2c", "websocket, h2c", "h2c, websocket", "TLS/1.0", "foo"] {
        let mut wire = Wire::to(&proxy).await;
        wire.send(format!(
            "GET http://c.test/x HTTP/1.1\r\nHost: c.test\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: {upgrade}\r\n\
             HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n"
        ))
        .await;
        assert_eq!(wire.answer().await.1, "page /x", "{upgrade}");
    }
    for visit in site.pages() {
        for name in ["upgrade", "http2-settings", "connection"] {
            assert!(!visit.headers.contains_key(name), "{:?}", visit.headers);
        }
    }
    // An origin that switches to what nobody asked for is not believed.
    let mut wire = Wire::to(&proxy).await;
    wire.send(handshake("http://b.test/h2c", "b.test")).await;
    assert!(wire.answer().await.0.starts_with("HTTP/1.1 502 "));
    wire.send("GET http://b.test/unasked HTTP/1.1\r\nHost: b.test\r\n\r\n").await;
    assert!(wire.answer().await.0.starts_with("HTTP/1.1 502 "));
    assert_eq!(proxy.record_of("/unasked").await["reason"], "upstream-protocol");
}

#[tokio::test]
async fn a_stop_closes_quiet_websockets_and_records_them() {
    let (_clear, _tls, mut proxy) = sites(|_| ()).await;
    let mut wire = Wire::to(&proxy).await;
    wire.send(handshake("http://b.test/ws", "b.test")).await;
    converse(&mut wire).await;
    assert!(in_time("the stop", proxy.stop()).await, "it finished in time");
    assert_eq!(wire.rest().await, "");
    assert_eq!(proxy.record_of("/ws").await["status"], 101);
}
