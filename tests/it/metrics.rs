//! What is counted is what is recorded.

use std::collections::BTreeMap;
use std::time::Duration;

use robots_proxy::policy::enforcement::Mode;
use robots_proxy::policy::pacing;
use serde_json::Value;

use super::support::origin::{Origin, Raw, Reply};
use super::support::proxy::Proxy;
use super::support::until;
use super::support::wire::Wire;

const ROBOTS: &str =
    "User-agent: *\nDisallow: /private/\n\nUser-agent: SlowBot\nCrawl-delay: 30\nDisallow: /private/\n";

/// Numbers by decision and reason.
type Sums = BTreeMap<(String, String), u64>;

/// The samples of `/metrics`: name with labels, and value.
pub(super) async fn samples(proxy: &Proxy) -> BTreeMap<String, f64> {
    let got = proxy.look("/metrics", &[]).await;
    assert_eq!(got.header("content-type"), "application/openmetrics-text; version=1.0.0; charset=utf-8");
    let text = got.text();
    assert!(text.ends_with("# EOF\n"), "{text}");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| line.rsplit_once(' ').unwrap())
        .map(|(name, value)| (name.to_owned(), value.parse().unwrap()))
        .collect()
}

async fn counted(proxy: &Proxy) -> Sums {
    let label =
        |name: &str, key: &str| name.split(&format!("{key}=\"")).nth(1).unwrap().split('"').next().unwrap().to_owned();
    let samples = samples(proxy).await.into_iter().filter(|(name, _)| name.starts_with("robots_proxy_requests_total{"));
    samples.map(|(name, value)| ((label(&name, "decision"), label(&name, "reason")), value as u64)).collect()
}

fn recorded(records: &[Value]) -> Sums {
    let word = |record: &Value, field: &str| record[field].as_str().unwrap().to_owned();
    let mut sums = Sums::new();
    for record in records {
        *sums.entry((word(record, "decision"), word(record, "reason"))).or_default() += 1;
    }
    sums
}

/// Requests of every kind, and what becomes of them in records and metrics.
async fn ask_everything(observe: bool) -> (Proxy, Origin, Sums) {
    let shop = Origin::http(|visit| Reply::of_site(ROBOTS, visit)).await;
    let closed =
        Origin::http(|visit| if visit.is_robots() { Reply::status(403, "") } else { Reply::text("page") }).await;
    let broken = Origin::raw(|visit| if visit.is_robots() { Raw::ok("") } else { Raw::Close(b"what?".to_vec()) }).await;
    let silent = Origin::raw(|visit| if visit.is_robots() { Raw::ok("") } else { Raw::Silence }).await;
    let names = [("shop.test", &shop), ("closed.test", &closed), ("broken.test", &broken), ("silent.test", &silent)];
    let proxy = Proxy::seen_inside(&names, None, |settings| {
        settings.mode = if observe { Mode::Observe } else { Mode::Enforce };
        settings.pace = pacing::Settings { max_wait: Duration::from_secs(5), ..settings.pace };
    })
    .await;
    let as_slow: &[&str] = &["--user-agent", "SlowBot/1.0"];
    for (url, arguments, times) in [
        ("http://shop.test/", &[][..], 5),
        ("http://shop.test/private/x", &[], 7),
        ("http://shop.test/robots.txt", &[], 2),
        ("http://closed.test/", &[], 3),
        ("http://broken.test/", &[], 2),
        ("http://nowhere.invalid/", &[], 2),
        ("http://shop.test/slow", as_slow, 3),
        ("http://shop.test/trace", &["--request", "TRACE"], 1),
    ] {
        for _ in 0..times {
            proxy.curl(&[&[url], arguments].concat()).await;
        }
    }
    proxy.curl(&["http://silent.test/", "--max-time", "1"]).await;
    let mut wire = Wire::to(&proxy).await;
    wire.send("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").await;
    let records = proxy.records(27).await;
    let counted = until_equal(&proxy, recorded(&records)).await;
    (proxy, shop, counted)
}

/// Waits for counts, which come a moment before or after the records.
async fn until_equal(proxy: &Proxy, recorded: Sums) -> Sums {
    for _ in 0..50 {
        if counted(proxy).await == recorded {
            return recorded;
        }
    }
    panic!("{:?} is not {recorded:?}", counted(proxy).await);
}

fn of(sums: &Sums, decision: &str) -> u64 {
    sums.iter().filter(|((of, _), _)| of == decision).map(|(_, number)| number).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_allowed_refused_or_in_error_and_records_say_the_same() {
    let (proxy, _shop, sums) = ask_everything(false).await;
    let number =
        |decision: &str, reason: &str| sums.get(&(decision.into(), reason.into())).copied().unwrap_or_default();
    for (decision, reason, wanted) in [
        ("allow", "allowed", 6),
        ("allow", "robots-txt", 2),
        ("refuse", "disallowed", 7),
        ("refuse", "robots-unavailable", 3),
        ("refuse", "robots-unreachable", 2),
        ("refuse", "wait-too-long", 2),
        ("refuse", "method-not-allowed", 1),
        ("error", "upstream-protocol", 2),
        ("error", "client-gone", 1),
        ("error", "bad-request", 1),
    ] {
        assert_eq!(number(decision, reason), wanted, "{decision} {reason} in {sums:?}");
    }
    let total: u64 = sums.values().sum();
    assert_eq!(total, of(&sums, "allow") + of(&sums, "refuse") + of(&sums, "error"));
    assert_eq!((total, of(&sums, "observe")), (27, 0));

    let _held = Wire::tunnel(&proxy, "shop.test:80").await;
    let samples = samples(&proxy).await;
    let sample = |name: &str| *samples.get(name).unwrap_or_else(|| panic!("{name} is not in {samples:#?}"));
    for (name, value) in [
        ("robots_proxy_audit_records_total", 27.0),
        ("robots_proxy_audit_failures_total", 0.0),
        ("robots_proxy_robots_fetches_total{outcome=\"rules\"}", 3.0),
        ("robots_proxy_robots_fetches_total{outcome=\"robots-unavailable\"}", 1.0),
        ("robots_proxy_robots_fetches_total{outcome=\"robots-unreachable\"}", 1.0),
        ("robots_proxy_robots_copies", 3.0),
        ("robots_proxy_queue_length", 0.0),
        ("robots_proxy_certificates_minted_total", 0.0),
        ("robots_proxy_connections{side=\"client\"}", 1.0),
    ] {
        assert_eq!(sample(name), value, "{name}");
    }
    assert!(sample("robots_proxy_connections{side=\"upstream\"}") >= 1.0, "a kept one");
    assert!(sample("robots_proxy_wait_seconds_count") >= 1.0);
    assert!(sample("robots_proxy_upstream_seconds_count") >= 10.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn in_observe_mode_requests_are_allowed_observed_refused_or_in_error() {
    let (_proxy, _shop, sums) = ask_everything(true).await;
    let total: u64 = sums.values().sum();
    assert_eq!(total, of(&sums, "allow") + of(&sums, "observe") + of(&sums, "refuse") + of(&sums, "error"));
    assert!(of(&sums, "observe") >= 12, "{sums:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_recorded_is_counted_and_names_of_clients_are_no_labels() {
    let site = Origin::http(|visit| Reply::of_site(ROBOTS, visit)).await;
    let proxy = Proxy::seen_inside(&[("shop.test", &site)], None, |settings| {
        settings.audit.record = robots_proxy::audit::Which::Blocked;
    })
    .await;
    for number in 0..20 {
        let agent = format!("Bot{number}/1.0");
        proxy.curl(&["--user-agent", &agent, &format!("http://shop.test/{number}")]).await;
    }
    proxy.curl(&["http://shop.test/private/"]).await;
    let wanted = Sums::from([(("allow".into(), "allowed".into()), 20), (("refuse".into(), "disallowed".into()), 1)]);
    until_equal(&proxy, wanted).await;
    let samples = samples(&proxy).await;
    let of_requests = samples.keys().filter(|name| name.starts_with("robots_proxy_requests_total")).count();
    assert_eq!(of_requests, 2);
    until("the record", || {
        (std::fs::read_to_string(proxy.folder().join("audit.jsonl")).unwrap().lines().count() == 1).then_some(())
    })
    .await;
}
