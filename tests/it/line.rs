//! The line under load, and as single clients may bend it.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http::Request;
use http_body_util::Full;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use robots_proxy::clock;
use robots_proxy::policy::pacing::Shared;
use tokio::net::TcpStream;

use super::support::origin::{Origin, Reply, Visit};
use super::support::proxy::Proxy;
use super::support::wire::Wire;
use super::support::{in_time, until};

/// What the origin's clock may be late by: it is on the same busy machine, and may have read an earlier request a moment after it
/// came. The proxy leaves the delay and, where it can tell, what the request was under way.
const LATE: Duration = Duration::from_millis(15);

async fn site(robots: &'static str) -> Origin {
    Origin::http(move |visit| Reply::of_site(robots, visit)).await
}

fn gaps(visits: &[Visit]) -> Vec<Duration> {
    visits.windows(2).map(|pair| pair[1].at - pair[0].at).collect()
}

/// Sends a request on a socket of its own and returns the status and the body.
async fn get(proxy: &Proxy, url: &str, more: &str) -> (u16, String) {
    let host = url.split('/').nth(2).unwrap();
    let mut wire = Wire::to(proxy).await;
    wire.send(format!("GET {url} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n")).await;
    let (head, body) = wire.answer().await;
    (head[9..12].parse().unwrap(), body)
}

#[tokio::test(flavor = "multi_thread")]
async fn five_hundred_clients_at_once_are_all_served_a_delay_apart() {
    let delay = Duration::from_millis(20);
    let site = site("User-agent: *\nCrawl-delay: 0.02\n").await;
    let proxy = Proxy::before(&[("a.test", &site)]).await;
    let urls: Vec<String> = (0..500).map(|number| format!("http://a.test/{number}")).collect();
    let answers = join_all(urls.iter().map(|url| get(&proxy, url, ""))).await;
    for (url, (status, body)) in urls.iter().zip(answers) {
        assert_eq!((status, body), (200, format!("page {}", url.trim_start_matches("http://a.test"))));
    }
    let pages = site.pages();
    let (mut gaps, took) = (gaps(&pages), pages[499].at - pages[0].at);
    println!(
        "500 requests in {took:?}, gaps from {:?} to {:?}",
        gaps.iter().min().unwrap(),
        gaps.iter().max().unwrap()
    );
    let too_soon = gaps.iter().filter(|gap| **gap < delay).count();
    assert!(too_soon == 0, "{too_soon} gaps are too short: {:?}", gaps.iter().min());
    assert!(took >= delay * 499, "{took:?}");
    // Within 15 % of the ten seconds that 500 slots take, by the usual gap: when the whole machine stands still for a moment, that is
    // not the line's doing.
    gaps.sort();
    assert!(gaps[gaps.len() / 2] * 500 < Duration::from_millis(11_500), "{took:?}, usually {:?}", gaps[gaps.len() / 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn p15_the_operators_longer_delay_holds_and_fills_in_where_the_site_says_nothing() {
    let slow = site("User-agent: *\nCrawl-delay: 0.1\n").await;
    let silent = site("").await;
    let proxy = Proxy::with(&[("slow.test", &slow), ("silent.test", &silent)], |settings| {
        settings.pace.min_delay = Duration::from_millis(300);
        settings.pace.default_delay = Duration::from_millis(500);
    })
    .await;
    let urls = ["http://slow.test/x", "http://silent.test/x"].repeat(4);
    join_all(urls.iter().map(|url| get(&proxy, url, ""))).await;
    for (site, delay) in [(&slow, 300), (&silent, 500)] {
        let gaps = gaps(&site.pages());
        assert!(gaps.iter().all(|gap| *gap >= Duration::from_millis(delay) - LATE), "{gaps:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn p16_a_very_long_delay_is_never_a_silent_disallow() {
    let site = site("User-agent: *\nCrawl-delay: 301\n").await;
    for (max_delay, retry_after, capped) in [(600, 301, false), (200, 200, true)] {
        let proxy = Proxy::with(&[("a.test", &site)], |settings| {
            settings.pace.max_delay = Duration::from_secs(max_delay);
        })
        .await;
        assert_eq!(get(&proxy, "http://a.test/first", "").await.0, 200);
        assert_eq!(proxy.record_of("/first").await["capped"].as_bool().unwrap_or(false), capped);
        for number in 1..4 {
            let got = proxy.curl(&["-H", "User-Agent:", "http://a.test/again"]).await;
            assert_eq!(got.status, 429, "{got:?}");
            let (told, expected) = (got.retry_after().unwrap(), (retry_after * number).min(600));
            assert!((expected - 3..=expected).contains(&told), "the {number}th is told {told}, not {expected}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn p17_bypass_d9_each_host_has_one_clock_and_no_host_anothers() {
    let sites = [site("User-agent: *\nCrawl-delay: 0.2\n").await, site("User-agent: *\nCrawl-delay: 0.2\n").await];
    let proxy = Proxy::before(&[("a.test", &sites[0]), ("b.test", &sites[1])]).await;
    let urls = ["http://a.test/x", "http://b.test/x"].repeat(25);
    let began = clock::now();
    join_all(urls.iter().map(|url| get(&proxy, url, ""))).await;
    let took = clock::now() - began;
    for site in &sites {
        let gaps = gaps(&site.pages());
        assert!(gaps.len() == 24 && gaps.iter().all(|gap| *gap >= Duration::from_millis(200) - LATE), "{gaps:?}");
    }
    assert!(took < Duration::from_millis(2 * 24 * 200 - 1500), "both at once: {took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn bypass_d8_bots_share_a_line_where_the_operator_wants_it() {
    let site = site("User-agent: *\nCrawl-delay: 0.3\n").await;
    let proxy = Proxy::with(&[("a.test", &site)], |settings| settings.pace.shared = Shared::Host).await;
    let bots = ["OneBot", "TwoBot", "ThreeBot"].map(|bot| format!("Robots-Agent: {bot}\r\n"));
    join_all(bots.iter().map(|bot| get(&proxy, "http://a.test/x", bot))).await;
    let gaps = gaps(&site.pages());
    assert!(gaps.iter().all(|gap| *gap >= Duration::from_millis(300) - LATE), "{gaps:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_rate_is_a_delay_and_the_longer_wish_counts() {
    let site = site("User-agent: *\nCrawl-delay: 0.1\nRequest-rate: 2/1s\n").await;
    let proxy = Proxy::before(&[("a.test", &site)]).await;
    join_all((0..3).map(|_| get(&proxy, "http://a.test/x", ""))).await;
    let gaps = gaps(&site.pages());
    assert!(gaps.iter().all(|gap| *gap >= Duration::from_millis(500) - LATE), "{gaps:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rfc7240_4_3_a_client_says_how_long_it_waits() {
    let site = site("User-agent: *\nCrawl-delay: 5\n").await;
    let proxy = Proxy::before(&[("a.test", &site)]).await;
    assert_eq!(get(&proxy, "http://a.test/first", "Prefer: wait=0\r\n").await.0, 200, "nothing to wait for");
    let began = clock::now();
    assert_eq!(get(&proxy, "http://a.test/second", "Prefer: respond-async, wait=2\r\n").await.0, 429);
    assert!(clock::now() - began < Duration::from_secs(2));
    assert_eq!(get(&proxy, "http://a.test/third", "Prefer: wait=soon\r\n").await.0, 200);
    assert_eq!(site.paths(), ["/first", "/third"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_slow_to_open_does_not_shorten_the_gap() {
    // Every answer closes its connection, so that each request needs a new one; every other handshake takes long.
    let site = Origin::https(|visit| match visit.is_robots() {
        true => Reply::with(200, &[("connection", "close")], "User-agent: *\nCrawl-delay: 0.3\n"),
        false => Reply::with(200, &[("connection", "close")], "page"),
    })
    .await;
    let slow = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (to, between) = (site.address, slow.local_addr().unwrap());
    let relay = tokio::spawn(async move {
        for number in 0u64.. {
            let Ok((mut from, _)) = slow.accept().await else { return };
            tokio::spawn(async move {
                clock::sleep(Duration::from_millis(100 * (number % 2))).await;
                let mut to = TcpStream::connect(to).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut from, &mut to).await;
            });
        }
    });
    let proxy = Proxy::with(&[("a.test", &site)], |settings| {
        settings.upstream.connect_to[0].to = between.to_string().parse().unwrap();
    })
    .await;
    let urls: Vec<String> = (0..8).map(|number| format!("https://a.test/{number}")).collect();
    join_all(urls.iter().map(|url| async { proxy.curl(&["--http1.1", url]).await })).await;
    relay.abort();
    let gaps = gaps(&site.pages());
    assert!(gaps.len() == 7 && gaps.iter().all(|gap| *gap >= Duration::from_millis(300) - LATE), "{gaps:?}");
}

/// A client that speaks HTTP/2 to the proxy itself, so that one connection is for many hosts.
async fn http2(proxy: &Proxy) -> http2::SendRequest<Full<Bytes>> {
    let stream = TcpStream::connect(proxy.address).await.unwrap();
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

fn post(url: &str, octets: usize) -> Request<Full<Bytes>> {
    Request::post(url).body(Full::from(vec![b'x'; octets])).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_streams_that_wait_for_one_host_do_not_block_another() {
    let (slow, quick) = (site("User-agent: *\nCrawl-delay: 1\n").await, site("").await);
    let proxy = Proxy::before(&[("slow.test", &slow), ("quick.test", &quick)]).await;
    let sender = http2(&proxy).await;
    // With bodies, which nobody reads while they wait.
    let waiting: Vec<_> =
        (0..100).map(|_| tokio::spawn(sender.clone().send_request(post("http://slow.test/x", 60_000)))).collect();
    slow.until_pages(1).await;
    let began = clock::now();
    for _ in 0..5 {
        let answer = in_time("the other host", sender.clone().send_request(post("http://quick.test/y", 60_000))).await;
        assert_eq!(answer.unwrap().status(), 200);
    }
    assert!(clock::now() - began < Duration::from_secs(2), "{:?}", clock::now() - began);
    assert!(slow.pages().len() <= 4);
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_reset_leaves_the_line() {
    let site = site("User-agent: *\nCrawl-delay: 0.5\n").await;
    let proxy = Proxy::before(&[("a.test", &site)]).await;
    let sender = http2(&proxy).await;
    let mut asking = HashMap::new();
    for number in 0..6 {
        let url = format!("http://a.test/{number}");
        asking.insert(number, tokio::spawn(sender.clone().send_request(post(&url, 0))));
        // In this order: each is in the line before the next is sent.
        clock::sleep(Duration::from_millis(20)).await;
    }
    site.until_pages(1).await;
    // Dropping the future of an HTTP/2 request resets its stream.
    (1..5).for_each(|number| asking[&number].abort());
    let last = in_time("the last", asking.remove(&5).unwrap()).await.unwrap().unwrap();
    assert_eq!(last.status(), 200);
    let pages = site.pages();
    let between = pages.len() - 2;
    assert!(between <= 1, "{:?}", site.paths());
    assert!(pages.last().unwrap().at - pages[0].at < Duration::from_millis(500 * (between as u64 + 1) + 400));
    let gone = until("records of those who left", || {
        let log = std::fs::read_to_string(proxy.folder().join("audit.jsonl")).unwrap_or_default();
        Some(log.matches("client-gone").count()).filter(|gone| *gone >= 4 - between)
    });
    gone.await;
}
