//! Many clients that want little, and some that want to do harm: those who come meanwhile are still served.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use robots_proxy::clock;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::memory::resident;
use super::support::origin::{Origin, Reply};
use super::support::program::{self, Serving};
use super::support::proxy::Proxy;
use super::support::wire::{Wire, exchange};
use super::support::{authority, in_time};

async fn head(stream: &mut (impl AsyncReadExt + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(in_time("a head", stream.read_u8()).await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

/// An intercepted connection that has had one answer.
async fn idle(address: SocketAddr, tls: TlsConnector) -> TlsStream<TcpStream> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n").await.unwrap();
    assert!(head(&mut stream).await.starts_with("HTTP/1.1 200 "));
    let name = ServerName::try_from("a.test").unwrap();
    let mut stream = in_time("a handshake", tls.connect(name, stream)).await.unwrap();
    stream.write_all(b"GET /x HTTP/1.1\r\nHost: a.test\r\n\r\n").await.unwrap();
    stream.flush().await.unwrap();
    let answer = head(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    in_time("the page", stream.read_exact(&mut [0; "page /x".len()])).await.unwrap();
    stream
}

/// So many connections that are idle, heads that never end, and new connections a second, all at once.
async fn flood(connections: usize, halves: usize, news: usize) {
    let site = Origin::https(|visit| Reply::of_site("User-agent: *\nDisallow: /private/", visit)).await;
    let folder = program::folder(&format!(
        "listen = [\"127.0.0.1:0\"]\n[limits]\nheader_timeout = \"5m\"\nconnections = 20000\n\
         [upstream]\nca_files = [\"origins.pem\"]\nconnect_to = {{ \"a.test:443\" = \"{}\" }}\n",
        site.address
    ));
    std::fs::write(folder.path().join("origins.pem"), authority::TRUSTED.pem()).unwrap();
    let serving = Serving::start(folder.path(), &[]).await;
    let address: SocketAddr = serving.told("listens on http://").parse().unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(folder.path().join("certs/ca.pem")).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let tls = TlsConnector::from(Arc::new(config.with_root_certificates(roots).with_no_client_auth()));

    drop(idle(address, tls.clone()).await);
    let empty = resident(serving.process());
    let open: Vec<TlsStream<TcpStream>> =
        stream::iter(0..connections).map(|_| idle(address, tls.clone())).buffer_unordered(50).collect().await;
    let full = resident(serving.process());
    println!("{connections} idle intercepted connections: {} octets each", (full - empty) / connections as u64);

    let mut halves_open = Vec::new();
    for number in 0..halves {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let half: &[u8] = if number % 2 == 0 { b"GET http://a.test/ HTTP/1.1\r\nHost: " } else { b"CONNECT a.te" };
        stream.write_all(half).await.unwrap();
        halves_open.push(stream);
    }
    let over = AtomicBool::new(false);
    // They come whether or not those before them have been served.
    let coming = async {
        let (began, mut arriving, mut came) = (clock::now(), JoinSet::new(), 0);
        while !over.load(Ordering::Relaxed) {
            arriving.spawn(idle(address, tls.clone()));
            came += 1;
            clock::sleep_until(began + Duration::from_secs(1) / news as u32 * came).await;
            while let Some(served) = arriving.try_join_next() {
                served.unwrap();
            }
        }
        let span = clock::now() - began;
        while let Some(served) = arriving.join_next().await {
            served.unwrap();
        }
        f64::from(came) / span.as_secs_f64()
    };
    let asking = async {
        let mut slowest = Duration::ZERO;
        for _ in 0..20 {
            let began = clock::now();
            idle(address, tls.clone()).await;
            slowest = slowest.max(clock::now() - began);
            clock::sleep(Duration::from_millis(100)).await;
        }
        over.store(true, Ordering::Relaxed);
        slowest
    };
    let (slowest, rate) = tokio::join!(asking, coming);
    println!("meanwhile 20 new requests took {slowest:?} at most, and {rate:.0} others came a second, all served");
    assert!(slowest < Duration::from_secs(10), "{slowest:?}");
    assert!(full - empty < connections as u64 * 150_000, "{} octets", full - empty);
    drop((open, halves_open));
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_and_half_open_connections_keep_nobody_from_being_served() {
    flood(300, 50, 20).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement, minutes long: ulimit -n 20000; cargo test --release --test it five_thousand -- --ignored --nocapture"]
async fn five_thousand_idle_connections_300_halves_and_200_new_ones_a_second() {
    flood(5000, 300, 200).await;
}

#[tokio::test]
async fn beyond_limits_connections_a_client_waits_until_another_has_gone() {
    let site = Origin::http(|visit| Reply::of_site("", visit)).await;
    let proxy = Proxy::with(&[("b.test", &site)], |settings| settings.limits.connections = 2).await;
    let request = "GET /x HTTP/1.1\r\nHost: b.test\r\n\r\n";
    // Tunnels count for as long as they live: the one read by hand, and the one behind a request.
    let mut first = Wire::tunnel(&proxy, "b.test:80").await;
    first.send(request).await;
    assert_eq!(first.answer().await.1, "page /x");
    let mut second = Wire::to(&proxy).await;
    second.send("GET http://b.test/x HTTP/1.1\r\nHost: b.test\r\n\r\n").await;
    assert_eq!(second.answer().await.1, "page /x");
    second.send("CONNECT b.test:80 HTTP/1.1\r\nHost: b.test:80\r\n\r\n").await;
    second.head().await;
    second.send(request).await;
    assert_eq!(second.answer().await.1, "page /x");
    let mut third = Wire::to(&proxy).await;
    third.send("GET http://b.test/third HTTP/1.1\r\nHost: b.test\r\n\r\n").await;
    let early = clock::timeout(Duration::from_millis(300), third.stream.readable()).await;
    assert!(early.is_none(), "it is not served yet");
    drop(second);
    assert_eq!(third.answer().await.1, "page /third");
}

#[tokio::test]
async fn a_head_in_drops_is_ended_by_limits_header_timeout() {
    let site = Origin::http(|visit| Reply::of_site("", visit)).await;
    let proxy = Proxy::with(&[("b.test", &site)], |settings| {
        settings.limits.header_timeout = Duration::from_millis(500);
    })
    .await;
    for begin in ["GET http://b.test/ HTTP/1.1\r\nX: ", "CONNECT b.test:80 HTTP/1.1\r\nX: ", "PRI * HTTP/2"] {
        let mut wire = Wire::to(&proxy).await;
        wire.send(begin).await;
        let dripping = async {
            while wire.stream.write_all(b"x").await.is_ok() {
                clock::sleep(Duration::from_millis(20)).await;
            }
        };
        in_time("the end", dripping).await;
    }
    assert_eq!(
        exchange(&proxy, "GET http://b.test/x HTTP/1.1\r\nHost: b.test\r\nConnection: close\r\n\r\n")
            .await
            .matches("page /x")
            .count(),
        1
    );
}
