//! The pace of a host: starts a Crawl-delay apart as the origin sees them, in order, and only there.

use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::{Either, join_all};
use robots_proxy::clock;
use serde_json::json;
use tokio::process::Command;

use super::support::origin::{Origin, Reply, Visit};
use super::support::program::{self, Serving};
use super::support::proxy::Proxy;
use super::support::{in_time, until};

const DELAY: Duration = Duration::from_millis(400);
const ROBOTS: &str = "User-agent: *\nCrawl-delay: 0.4\nDisallow: /private/\n";

/// What the origin's own clock may be late by: the proxy leaves exactly the delay, but the origin, on the same busy machine, may
/// have read an earlier request a moment after it came.
const LATE: Duration = Duration::from_millis(15);

async fn slow_site() -> Origin {
    Origin::https(|visit| Reply::of_site(ROBOTS, visit)).await
}

fn gaps(visits: &[Visit]) -> Vec<Duration> {
    visits.windows(2).map(|pair| pair[1].at - pair[0].at).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn five_at_once_reach_the_origin_a_delay_apart_and_in_order() {
    let site = slow_site().await;
    let proxy = Proxy::before(&[("a.test", &site)]).await;
    // The first fills the copy, so that the order in which the others join is the order in which they are sent.
    proxy.curl(&["https://a.test/0"]).await;
    let began = clock::now();
    let mut asking = Vec::new();
    for number in 1..=5 {
        let (proxy, url) = (&proxy, format!("https://a.test/{number}"));
        let curl = async move {
            let got = proxy.curl(&[&url]).await;
            assert_eq!(got.status, 200);
            let waited = got.header("proxy-status").strip_prefix("robots-proxy; wait_ms=").map(str::parse::<u64>);
            assert!(matches!(waited, Some(Ok(_))), "{:?}", got.headers);
        };
        asking.push(curl.boxed());
        // Each joins the line before the next one is sent; all that were sent go on meanwhile.
        let joined = proxy.until_joined(&site, number + 1).boxed();
        let mut sent = join_all(asking).boxed();
        asking = match futures_util::future::select(joined, &mut sent).await {
            Either::Left(_) => vec![sent.map(|_| ()).boxed()],
            Either::Right(_) => Vec::new(),
        };
    }
    join_all(asking).await;
    assert_eq!(site.paths(), ["/0", "/1", "/2", "/3", "/4", "/5"]);
    let gaps = gaps(&site.pages());
    assert!(gaps.iter().all(|gap| *gap >= DELAY - LATE), "{gaps:?}");
    assert!(clock::now() - began < DELAY * 5 + Duration::from_secs(5), "and no slower than need be: {gaps:?}");
    let record = proxy.record_of("/5").await;
    assert_eq!((&record["paced"], &record["crawl_delay_s"]), (&json!(true), &json!(0.4)));
    assert!(record["wait_ms"].as_u64().unwrap() > 0, "{record}");
}

#[tokio::test(flavor = "multi_thread")]
async fn both_schemes_of_a_host_share_its_pace_and_each_bot_has_its_own() {
    let (clear, tls) = (Origin::http(|visit| Reply::of_site(ROBOTS, visit)).await, slow_site().await);
    let proxy = Proxy::before(&[("a.test", &clear), ("a.test", &tls)]).await;
    let asking = ["http://a.test/1", "https://a.test/2", "http://a.test/3"].map(|url| {
        let proxy = &proxy;
        async move { assert_eq!(proxy.curl(&["-H", "Robots-Agent: OneBot", url]).await.status, 200) }
    });
    let other = async {
        until("the first visit", || clear.pages().pop().or_else(|| tls.pages().pop())).await;
        let began = clock::now();
        assert_eq!(proxy.curl(&["-H", "Robots-Agent: TwoBot", "https://a.test/other"]).await.status, 200);
        began
    };
    let (_, began) = tokio::join!(join_all(asking), other);
    let mut visits = [clear.pages(), tls.pages()].concat();
    visits.sort_by_key(|visit| visit.at);
    let (other, same): (Vec<Visit>, Vec<Visit>) = visits.into_iter().partition(|visit| visit.path == "/other");
    assert!(gaps(&same).iter().all(|gap| *gap >= DELAY - LATE), "{:?}", gaps(&same));
    assert!(other[0].at - began < DELAY, "another bot does not wait for this one");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_host_is_not_delayed() {
    let (slow, quick) = (slow_site().await, Origin::https(|visit| Reply::of_site("", visit)).await);
    let proxy = Proxy::before(&[("a.test", &slow), ("b.test", &quick)]).await;
    let slow_ones = join_all((0..4).map(|_| proxy.curl(&["https://a.test/x"])));
    let quick_ones = async {
        slow.until_pages(1).await;
        let began = clock::now();
        for _ in 0..4 {
            assert_eq!(proxy.curl(&["https://b.test/y"]).await.status, 200);
        }
        clock::now() - began
    };
    let (_, took) = tokio::join!(slow_ones, quick_ones);
    assert!(slow.pages().last().unwrap().at > quick.pages().last().unwrap().at, "they were done first: {took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn bypass_e3_a_client_that_hangs_up_in_the_line_costs_nobody_a_slot_and_is_recorded() {
    let site = slow_site().await;
    let proxy = Proxy::before(&[("a.test", &site)]).await;
    proxy.curl(&["https://a.test/first"]).await;
    let first: Instant = site.pages()[0].at;
    let mut leaving = Vec::new();
    for number in 0..3 {
        leaving.push(proxy.spawn_curl(&[&format!("https://a.test/leaving/{number}")]));
    }
    proxy.until_joined(&site, 4).await;
    for mut child in leaving {
        child.kill().await.unwrap();
    }
    let asked = clock::now();
    assert_eq!(in_time("the last", proxy.curl(&["https://a.test/last"])).await.status, 200);
    let pages = site.pages();
    let last = pages.iter().find(|visit| visit.path == "/last").unwrap();
    let before = pages.iter().filter(|visit| visit.path.starts_with("/leaving/")).count();
    assert!(before <= 1, "{:?}", site.paths());
    let slots = u32::try_from(before + 1).unwrap();
    let own_turn = (first + DELAY * slots).max(asked);
    assert!(last.at < own_turn + 2 * DELAY, "{:?} late", last.at - own_turn);
    let records = proxy.records(5 - before).await;
    let gone: Vec<_> = records.iter().filter(|record| record["reason"] == "client-gone").collect();
    assert!(gone.len() >= 2, "{records:#?}");
    assert!(gone.iter().all(|record| record["decision"] == "error" && record["status"].is_null()), "{gone:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_requests_never_enter_the_line() {
    let site = slow_site().await;
    let proxy = Proxy::before(&[("a.test", &site)]).await;
    proxy.curl(&["https://a.test/first"]).await;
    let began = clock::now();
    for _ in 0..3 {
        assert_eq!(proxy.curl(&["https://a.test/private/x"]).await.status, 403);
    }
    assert_eq!(proxy.curl(&["https://a.test/second"]).await.status, 200);
    let pages = site.pages();
    assert!(pages[1].at - pages[0].at < DELAY + (clock::now() - began).saturating_sub(DELAY) + DELAY);
    assert_eq!(site.paths(), ["/first", "/second"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_start_waits_for_the_head_of_the_previous_answer() {
    let gate = std::sync::Arc::new(tokio::sync::Semaphore::new(0));
    let shut = std::sync::Arc::clone(&gate);
    let site = Origin::https(move |visit| match visit.path.as_str() {
        "/slow" => Reply::Gated(std::sync::Arc::clone(&shut), http::Response::new("late".into())),
        _ => Reply::of_site(ROBOTS, visit),
    })
    .await;
    let proxy = Proxy::before(&[("a.test", &site)]).await;
    let slow = async { proxy.curl(&["https://a.test/slow"]).await };
    let next = async {
        site.until_pages(1).await;
        proxy.curl(&["https://a.test/next"]).await
    };
    let opening = async {
        site.until_pages(1).await;
        clock::sleep(DELAY * 2).await;
        assert_eq!(site.paths(), ["/slow"], "the host is still busy");
        gate.add_permits(1);
    };
    let (slow, next, ()) = tokio::join!(slow, next, opening);
    assert_eq!((slow.status, next.status), (200, 200));
    assert_eq!(site.paths(), ["/slow", "/next"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn bypass_e5_who_would_wait_too_long_is_told_at_once_and_when_to_come_back() {
    let site = Origin::https(|visit| Reply::of_site("User-agent: *\nCrawl-delay: 7.5\n", visit)).await;
    let proxy = Proxy::with(&[("a.test", &site)], |settings| {
        settings.pace.max_wait = Duration::from_secs(5);
    })
    .await;
    assert_eq!(proxy.curl(&["https://a.test/first"]).await.status, 200);
    let began = clock::now();
    let got = proxy.curl(&["-H", "Accept: application/json", "https://a.test/second"]).await;
    assert!(clock::now() - began < Duration::from_secs(4));
    assert_eq!((got.status, got.json()["reason"].clone()), (429, json!("wait-too-long")));
    let seconds = got.retry_after().unwrap();
    assert!((4..=8).contains(&seconds), "{seconds}");
    assert_eq!(got.json()["retry_after"], seconds);
    assert_eq!(site.paths(), ["/first"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_line_takes_nobody_more() {
    let site = Origin::https(|visit| Reply::of_site("User-agent: *\nCrawl-delay: 30\n", visit)).await;
    let proxy = Proxy::with(&[("a.test", &site)], |settings| settings.pace.max_queue = 1).await;
    assert_eq!(proxy.curl(&["https://a.test/first"]).await.status, 200);
    // Whichever of the two comes first waits, and the other one is told; the one that waits soon gives up.
    let arguments = ["--max-time", "3", "-H", "Accept: application/json", "https://a.test/more"];
    let (one, other) = tokio::join!(proxy.curl(&arguments), proxy.curl(&arguments));
    let (got, waited) = if one.status == 0 { (other, one) } else { (one, other) };
    assert_eq!(waited.exit, 28, "it ran out of time: {}", waited.error);
    assert_eq!((got.status, got.json()["reason"].clone()), (429, json!("queue-full")));
    assert!(got.retry_after().unwrap() > 30, "{:?}", got.retry_after());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delay_longer_than_max_delay_is_capped_and_recorded_so() {
    let site = Origin::https(|visit| Reply::of_site("User-agent: *\nCrawl-delay: 3600\n", visit)).await;
    let proxy = Proxy::with(&[("a.test", &site)], |settings| settings.pace.max_delay = DELAY).await;
    for path in ["/1", "/2"] {
        assert_eq!(proxy.curl(&[&format!("https://a.test{path}")]).await.status, 200);
    }
    assert!(gaps(&site.pages())[0] >= DELAY - LATE);
    let record = proxy.record_of("/2").await;
    assert_eq!((&record["capped"], &record["crawl_delay_s"]), (&json!(true), &json!(3600.0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_decided_again_when_the_rules_changed_while_it_waited() {
    let site = Origin::https(|visit| match visit.is_robots() {
        true if visit.headers.contains_key("never") => Reply::text(""),
        true => Reply::with(200, &[("cache-control", "no-store")], ROBOTS_NOW.lock().unwrap().to_string()),
        false => Reply::text("page"),
    })
    .await;
    let proxy = Proxy::with(&[("a.test", &site)], |settings| {
        settings.lookup.lifetimes.min_ttl = Duration::from_millis(500);
    })
    .await;
    assert_eq!(proxy.curl(&["https://a.test/1"]).await.status, 200);
    *ROBOTS_NOW.lock().unwrap() = "User-agent: *\nCrawl-delay: 2\nDisallow: /2";
    let got = proxy.curl(&["https://a.test/2"]).await;
    assert_eq!(got.status, 403, "{}", got.text());
    assert_eq!(site.paths(), ["/1"]);
}

static ROBOTS_NOW: std::sync::Mutex<&str> = std::sync::Mutex::new("User-agent: *\nCrawl-delay: 2");

/// After a stop the next start is where it would have been; after a kill nobody knows, so it is a whole delay away.
#[tokio::test]
async fn bypass_e7_a_restart_forgets_no_start() {
    let site = Origin::http(|visit| Reply::of_site("User-agent: *\nCrawl-delay: 3", visit)).await;
    let folder = program::folder(&format!(
        "listen = [\"127.0.0.1:0\"]\nstate_dir = \"state\"\n[upstream]\nconnect_to = {{ \"a.test:80\" = \"{0}\", \"b.test:80\" = \"{0}\" }}\n",
        site.address
    ));
    let ask = async |serving: &Serving, url: &str| {
        let url_of_proxy = format!("http://{}", serving.address());
        let curl = Command::new("curl").args(["-q", "-s", "-f", "-x", &url_of_proxy, url]).output();
        assert!(in_time("curl", curl).await.unwrap().status.success(), "{url}");
    };
    let gap = || site.pages()[site.pages().len() - 1].at - site.pages()[site.pages().len() - 2].at;

    let serving = Serving::start(folder.path(), &[]).await;
    ask(&serving, "http://a.test/1").await;
    serving.terminate().await;
    assert_eq!(serving.ended().await.exit, 0);
    let mut serving = Serving::start(folder.path(), &[]).await;
    ask(&serving, "http://a.test/2").await;
    assert!(gap() >= Duration::from_secs(3), "{:?} after a stop", gap());
    // A host that was not asked does not wait.
    let began = clock::now();
    ask(&serving, "http://b.test/3").await;
    assert!(site.pages()[2].at - began < Duration::from_secs(2));

    serving.kill().await;
    let serving = Serving::start(folder.path(), &[]).await;
    ask(&serving, "http://b.test/4").await;
    assert!(gap() >= Duration::from_secs(3), "{:?} after a kill", gap());
}
