//! Hosts whose tunnels are not looked into.

use std::sync::Arc;
use std::time::Duration;

use robots_proxy::upstream::ConnectTo;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::support::in_time;
use super::support::origin::{Origin, Raw, Reply};
use super::support::parent::{Kind, Parent};
use super::support::proxy::Proxy;
use super::support::wire::Wire;

async fn site(robots: &'static str) -> Origin {
    Origin::https(move |visit| Reply::of_site(robots, visit)).await
}

/// A proxy that passes these hosts through.
async fn passing(hosts: &[&str], names: &[(&str, &Origin)]) -> Proxy {
    let passthrough = hosts.iter().map(|host| host.parse().unwrap()).collect();
    Proxy::with(names, |settings| settings.upstream.passthrough = passthrough).await
}

/// The head and body that a CONNECT is answered with.
async fn connect(proxy: &Proxy, place: &str, fields: &str) -> (Wire, String, String) {
    let mut wire = Wire::to(proxy).await;
    wire.send(format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\nAccept: application/json\r\n{fields}\r\n")).await;
    let (head, body) = wire.answer().await;
    (wire, head, body)
}

/// The first octets of TLS to a host of this name.
fn client_hello(name: &str) -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let mut connection =
        ClientConnection::new(Arc::new(config), ServerName::try_from(name.to_owned()).unwrap()).unwrap();
    let mut hello = Vec::new();
    connection.write_tls(&mut hello).unwrap();
    hello
}

#[tokio::test]
async fn a_listed_host_is_met_itself_and_recorded_as_uninspected() {
    let site = site("User-agent: *\nDisallow: /private/").await;
    let proxy =
        passing(&["a.test", "*.nimbu.test"], &[("a.test", &site), ("b.nimbu.test", &site), ("c.test", &site)]).await;
    let origins = proxy.folder().join("origins.pem");
    let origins = ["--cacert", origins.to_str().unwrap()];
    for host in ["a.test", "b.nimbu.test"] {
        let got = proxy.curl(&[&origins[..], &[&format!("https://{host}/private/x")]].concat()).await;
        assert_eq!((got.exit, got.text().as_str()), (0, "page /private/x"), "{}", got.error);
        assert_eq!(got.header("via"), "", "nothing was touched");
        let record = proxy.record_of(&format!("{host}:443")).await;
        for (field, value) in [
            ("method", json!("CONNECT")),
            ("decision", json!("allow")),
            ("reason", json!("allowed")),
            ("status", json!(200)),
            ("agent", json!("curl")),
        ] {
            assert_eq!(record[field], value, "{field}: {record}");
        }
        assert!(record["detail"].as_str().unwrap().starts_with("uninspected"), "{record}");
        assert!(record["bytes"].as_u64().unwrap() > 500, "certificate and page: {record}");
    }
    assert_eq!(site.robots().len(), 2, "each was asked for its robots.txt");
    assert_eq!(proxy.curl(&["https://c.test/private/x"]).await.status, 403, "others are looked into");
}

#[tokio::test]
async fn a_site_that_is_closed_as_a_whole_is_refused_on_the_connect() {
    let site = site("User-agent: *\nDisallow: /private/\n\nUser-agent: Nosy\nDisallow: /\n").await;
    let proxy = passing(&["a.test"], &[("a.test", &site)]).await;
    let (_, head, body) = connect(&proxy, "a.test:443", "Robots-Agent: Nosy\r\n").await;
    let problem: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert!(head.starts_with("HTTP/1.1 403 "), "{head}");
    assert_eq!(
        (&problem["reason"], &problem["rule"], &problem["line"]),
        (&json!("disallowed"), &json!("Disallow: /"), &json!(5))
    );
    let record = proxy.record_of("a.test:443").await;
    assert_eq!((&record["method"], &record["decision"]), (&json!("CONNECT"), &json!("refuse")));
    let (_, head, _) = connect(&proxy, "a.test:443", "Robots-Agent: Polite\r\n").await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
}

#[tokio::test]
async fn a_site_that_cannot_be_asked_is_refused_on_the_connect() {
    let broken = Origin::https(|_| Reply::status(503, "")).await;
    let proxy = passing(&["a.test", "127.0.0.1"], &[("a.test", &broken)]).await;
    let (_, head, body) = connect(&proxy, "a.test:443", "").await;
    assert!(head.starts_with("HTTP/1.1 403 ") && body.contains("robots-unreachable"), "{head}{body}");
    let (_, head, body) = connect(&proxy, &format!("127.0.0.1:{}", proxy.address.port()), "").await;
    assert!(head.starts_with("HTTP/1.1 508 ") && body.contains("\"loop\""), "{head}{body}");
    // Known rules, and then the host is gone.
    let site = Origin::raw(|_| Raw::ok("")).await;
    let proxy = passing(&["b.test"], &[("b.test:80", &site)]).await;
    assert_eq!(proxy.curl(&["http://b.test/x"]).await.status, 200);
    drop(site);
    let (_, head, body) = connect(&proxy, "b.test:80", "").await;
    assert!(head.starts_with("HTTP/1.1 502 ") && body.contains("upstream-refused"), "{head}{body}");
}

#[tokio::test]
async fn bypass_c17_a_listed_name_is_no_ticket_to_another_host() {
    let site = site("").await;
    let proxy = passing(&["a.test"], &[("a.test", &site), ("b.test", &site)]).await;
    // Listed as the server name alone: looked into, with our certificate, and only for the tunnel's host.
    let mut wire = Wire::tunnel(&proxy, "b.test:443").await.tls(&proxy, "a.test", &[b"http/1.1"]).await;
    wire.send("GET /x HTTP/1.1\r\nHost: a.test\r\n\r\n").await;
    assert!(wire.head().await.starts_with("HTTP/1.1 421 "));
    // Listed as the CONNECT's host alone: closed with an alert.
    let mut wire = Wire::tunnel(&proxy, "a.test:443").await;
    wire.send(client_hello("b.test")).await;
    let mut alert = Vec::new();
    in_time("the end", wire.stream.read_to_end(&mut alert)).await.unwrap();
    assert_eq!(alert, [0x15, 3, 3, 0, 2, 2, 112], "unrecognized_name");
    let record = proxy.record_of("a.test:443").await;
    assert_eq!((&record["decision"], &record["reason"]), (&json!("refuse"), &json!("authority-mismatch")), "{record}");
    for near in ["a.test.evil.test:443", "xa.test:443", "sub.a.test:443"] {
        // Anything but the name itself is looked into: it speaks TLS with our certificate.
        let name = near.trim_end_matches(":443").to_owned();
        let _ours = Wire::tunnel(&proxy, near).await.tls(&proxy, &name, &[b"http/1.1"]).await;
    }
    assert!(site.pages().is_empty());
}

#[tokio::test]
async fn bypass_c18_a_listed_name_in_a_tunnel_to_an_address_is_looked_into() {
    let site = site("").await;
    let proxy = passing(&["a.test"], &[("a.test", &site), ("127.0.0.1:443", &site)]).await;
    let mut wire = Wire::tunnel(&proxy, "127.0.0.1:443").await.tls(&proxy, "a.test", &[b"http/1.1"]).await;
    wire.send("GET /x HTTP/1.1\r\nHost: a.test\r\n\r\n").await;
    assert!(wire.head().await.starts_with("HTTP/1.1 200 "));
    assert_eq!(proxy.record_of("/x").await["method"], "GET");
}

#[tokio::test]
async fn a_hello_in_pieces_is_understood_and_a_robots_txt_that_is_no_http_closes_the_site() {
    let site = site("").await;
    let greeting = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = greeting.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = greeting.accept().await {
            tokio::spawn(async move {
                // A mail server, which greets everybody.
                let _ = stream.write_all(b"220 mail.test ESMTP\r\n").await;
                let mut octets = [0; 64];
                while let Ok(came @ 1..) = stream.read(&mut octets).await {
                    let _ = stream.write_all(&octets[..came]).await;
                }
            });
        }
    });
    let proxy = Proxy::with(&[("a.test", &site)], |settings| {
        settings.upstream.passthrough = vec!["a.test".parse().unwrap(), "mail.test".parse().unwrap()];
        settings.upstream.connect_to.push(ConnectTo { from: "mail.test:25".parse().unwrap(), to: to.parse().unwrap() });
    })
    .await;
    let mut wire = Wire::tunnel(&proxy, "a.test:443").await;
    for piece in client_hello("a.test").chunks(300) {
        wire.send(piece).await;
        robots_proxy::clock::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(in_time("a ServerHello", wire.stream.read_u8()).await.unwrap(), 0x16);
    let (_, head, _) = connect(&proxy, "mail.test:25", "").await;
    assert!(head.starts_with("HTTP/1.1 403 "), "{head}");
}

#[tokio::test]
async fn a_quiet_tunnel_does_not_hold_up_a_stop_and_is_recorded() {
    let site = Origin::http(|visit| Reply::of_site("", visit)).await;
    let mut proxy = passing(&["a.test"], &[("a.test", &site)]).await;
    let mut wire = Wire::tunnel(&proxy, "a.test:80").await;
    wire.send("GET /x HTTP/1.1\r\nHost: a.test\r\n\r\n").await;
    let (_, body) = wire.answer().await;
    assert_eq!(body, "page /x");
    // Nothing has been said on this one, and nothing will.
    let _silent = Wire::tunnel(&proxy, "a.test:80").await;
    let began = robots_proxy::clock::now();
    assert!(proxy.stop().await);
    assert!(began.elapsed() < Duration::from_secs(15), "well before the drain of 30 s");
    assert_eq!(wire.rest().await, "");
    let records = proxy.records(2).await;
    let spoken = records.iter().find(|record| record["bytes"].as_u64().unwrap() > 0).unwrap();
    assert!(spoken["detail"].as_str().unwrap().contains("33 octets from the client"), "{spoken}");
}

#[tokio::test]
async fn a_passed_tunnel_goes_through_the_parent_too() {
    let site = site("").await;
    let parent = Parent::start(Kind::Socks5, &[("a.test:443", site.address)], None).await;
    let proxy = Proxy::with(&[], |settings| {
        settings.upstream.passthrough = vec!["a.test".parse().unwrap()];
        settings.upstream.proxy = Some(format!("socks5://{}", parent.address).parse().unwrap());
    })
    .await;
    let origins = proxy.folder().join("origins.pem");
    let got = proxy.curl(&["--cacert", origins.to_str().unwrap(), "https://a.test/x"]).await;
    assert_eq!((got.exit, got.text().as_str()), (0, "page /x"), "{}", got.error);
}
