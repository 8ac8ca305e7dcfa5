//! What becomes of a host that answers 429 or 503, as it sees it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use robots_proxy::clock;
use serde_json::json;

use super::support::origin::{Origin, Reply, Visit};
use super::support::proxy::Proxy;

/// Answers pages with `busy` until told otherwise.
async fn site(busy: impl Fn() -> Reply + Send + Sync + 'static) -> (Origin, Arc<AtomicBool>) {
    let is_busy = Arc::new(AtomicBool::new(true));
    let told = Arc::clone(&is_busy);
    let script = move |visit: &Visit| match !visit.is_robots() && told.load(Ordering::SeqCst) {
        true => busy(),
        false => Reply::of_site("", visit),
    };
    (Origin::https(script).await, is_busy)
}

fn busy(status: u16, retry_after: &'static str) -> impl Fn() -> Reply {
    move || Reply::with(status, &[("retry-after", retry_after), ("x-origin", "its own")], "enough")
}

#[tokio::test(flavor = "multi_thread")]
async fn p19_ten_answers_429_at_once_pause_the_host_once_and_for_every_bot() {
    let (site, is_busy) = site(busy(429, "2")).await;
    let proxy = Proxy::before(&[("a.test", &site)]).await;
    let urls: Vec<String> = (0..10).map(|number| format!("https://a.test/{number}")).collect();
    let answers = join_all(urls.iter().map(|url| async { proxy.curl(&[url]).await })).await;
    is_busy.store(false, Ordering::SeqCst);
    let through: Vec<_> = answers.iter().filter(|got| got.status == 429).collect();
    assert!(!through.is_empty());
    for got in through {
        assert_eq!(
            (got.header("x-origin"), got.header("retry-after"), got.text().as_str()),
            ("its own", "2", "enough")
        );
    }
    let refused_at = site.pages().iter().map(|visit| visit.at).max().unwrap();
    let answers = join_all(["OneBot", "TwoBot"].map(|bot| {
        let proxy = &proxy;
        async move { proxy.curl(&["-H", &format!("Robots-Agent: {bot}"), "https://a.test/next"]).await }
    }))
    .await;
    assert!(answers.iter().all(|got| got.status == 200), "{answers:?}");
    let next: Vec<_> = site.pages().into_iter().filter(|visit| visit.path == "/next").collect();
    for visit in next {
        let pause = visit.at - refused_at;
        assert!(pause >= Duration::from_millis(1990) && pause < Duration::from_secs(4), "{pause:?}");
    }
    assert!(proxy.record_of("/next").await["wait_ms"].as_u64().unwrap() > 500);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_cannot_wait_for_the_end_of_a_hold_is_told_what_the_site_asked_for() {
    let (site, _) = site(busy(503, "600")).await;
    let other = Origin::https(|visit| Reply::of_site("", visit)).await;
    let proxy = Proxy::before(&[("a.test", &site), ("b.test", &other)]).await;
    let began = clock::now();
    assert_eq!(proxy.curl(&["https://a.test/first"]).await.status, 503);
    let got = proxy.curl(&["-H", "Accept: application/json", "https://a.test/second"]).await;
    assert_eq!((got.status, got.json()["reason"].clone()), (429, json!("wait-too-long")));
    let detail = got.json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("503 with Retry-After (600 s)"), "{detail}");
    assert!(got.header("proxy-status").contains("503 with Retry-After"), "{}", got.header("proxy-status"));
    assert!((590..=600).contains(&got.retry_after().unwrap()), "{:?}", got.retry_after());
    let record = proxy.record_of("/second").await;
    assert_eq!((&record["decision"], &record["reason"]), (&json!("refuse"), &json!("wait-too-long")));
    assert!(record["detail"].as_str().unwrap().contains("Retry-After (600 s)"), "{record}");
    assert_eq!(proxy.curl(&["https://a.test/robots.txt"]).await.status, 429, "robots.txt is held, too");
    assert_eq!(proxy.curl(&["https://b.test/"]).await.status, 200);
    assert!(clock::now() - began < Duration::from_secs(20));
    assert_eq!(site.paths(), ["/first"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_date_is_relative_to_the_answers_own_and_hold_max_bounds_it() {
    let dates = [("date", "Mon, 30 Nov 2026 09:00:00 GMT"), ("retry-after", "Mon, 30 Nov 2026 10:00:00 GMT")];
    let (site, is_busy) = site(move || Reply::with(429, &dates, "enough")).await;
    let proxy = Proxy::with(&[("a.test", &site)], |settings| settings.pace.hold_max = Duration::from_secs(2)).await;
    assert_eq!(proxy.curl(&["https://a.test/first"]).await.status, 429);
    is_busy.store(false, Ordering::SeqCst);
    assert_eq!(proxy.curl(&["https://a.test/second"]).await.status, 200);
    let pages = site.pages();
    let pause = pages[1].at - pages[0].at;
    assert!(pause >= Duration::from_secs(2) && pause < Duration::from_secs(4), "{pause:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_503_without_retry_after_holds_nobody_until_the_third_in_a_row() {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let (site, _) = site(move || {
        counted.fetch_add(1, Ordering::SeqCst);
        Reply::status(503, "restarting")
    })
    .await;
    let proxy = Proxy::before(&[("a.test", &site)]).await;
    for _ in 0..3 {
        assert_eq!(proxy.curl(&["https://a.test/x"]).await.status, 503);
    }
    let got = proxy.curl(&["-H", "Prefer: wait=5", "https://a.test/x"]).await;
    assert_eq!(got.status, 429);
    assert!((7..=11).contains(&got.retry_after().unwrap()), "{:?}", got.retry_after());
    assert_eq!(count.load(Ordering::SeqCst), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_is_for_robots_txt_as_well() {
    let (site, _) = site(busy(429, "2")).await;
    let other = Origin::http(|visit| Reply::of_site("", visit)).await;
    let proxy =
        Proxy::with(&[("a.test", &site), ("a.test", &other)], |settings| settings.fetch.timeout = 5 * SECOND).await;
    assert_eq!(proxy.curl(&["https://a.test/"]).await.status, 429);
    let refused_at = site.pages()[0].at;
    assert_eq!(proxy.curl(&["http://a.test/"]).await.status, 200);
    let pause = other.robots()[0].at - refused_at;
    assert!(pause >= Duration::from_millis(1990), "the host was asked for robots.txt after {pause:?}");

    let short = Proxy::with(&[("a.test", &site), ("a.test", &other)], |settings| settings.fetch.timeout = SECOND).await;
    assert_eq!(short.curl(&["https://a.test/"]).await.status, 429);
    let refused = short.curl(&["-H", "Accept: application/json", "http://a.test/"]).await;
    assert_eq!((refused.status, refused.json()["reason"].clone()), (403, json!("robots-unreachable")));
    assert!(refused.retry_after().is_some_and(|seconds| (1..=5).contains(&seconds)), "{:?}", refused.retry_after());
    assert_eq!(other.robots().len(), 1);
}

const SECOND: Duration = Duration::from_secs(1);
