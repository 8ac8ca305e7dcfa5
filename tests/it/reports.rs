//! What users of other crawlers and proxies have reported about robots.txt, as it must not happen here. Each test is named after its
//! report.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use robots_proxy::clock;
use serde_json::json;

use super::support::origin::{Origin, Raw, Reply};
use super::support::proxy::Proxy;

const CLOSED: &str = "User-agent: *\nDisallow: /\n";
const OPEN: &str = "User-agent: *\nAllow: /\n";

#[tokio::test]
async fn issue_p01_the_body_of_a_503_is_never_read_as_rules() {
    let origin = Origin::http(|visit| match visit.is_robots() {
        true => Reply::status(503, OPEN),
        false => Reply::text("page"),
    });
    let origin = origin.await;
    let proxy = Proxy::before(&[("a.test", &origin)]).await;
    let got = proxy.curl(&["-H", "Accept: application/json", "http://a.test/x"]).await;
    assert_eq!((got.status, got.json()["reason"].clone()), (403, json!("robots-unreachable")));
    assert!(got.retry_after().is_some_and(|seconds| seconds <= 5));
    assert_eq!(origin.paths(), [""; 0]);
}

#[tokio::test]
async fn issue_p02_every_failure_of_the_network_is_a_refusal_that_names_it() {
    let silent = Origin::raw(|_| Raw::Silence).await;
    let reset = Origin::raw(|_| Raw::Reset).await;
    let stranger = Origin::https(|_| Reply::text(OPEN)).await;
    let gone = Origin::http(|_| Reply::text(OPEN)).await;
    let names = [("silent.test", &silent), ("reset.test", &reset), ("stranger.test", &stranger), ("gone.test", &gone)];
    let proxy = Proxy::with(&names, |settings| settings.fetch.timeout = Duration::from_secs(1)).await;
    drop(gone);
    for (url, names_it) in [
        ("http://gone.test/x", "refuses connections"),
        ("http://silent.test/x", "no answer within 1 s"),
        ("http://reset.test/x", "connection ended"),
        ("https://stranger.test/x", "certificate"),
        ("http://no-such-name.invalid/x", "resolved"),
    ] {
        let got = proxy.curl(&["-H", "Accept: application/json", url]).await;
        let problem = got.json();
        assert_eq!((got.status, &problem["reason"]), (403, &json!("robots-unreachable")), "{url}");
        assert!(problem["detail"].as_str().unwrap().contains(names_it), "{url}: {problem}");
    }
    let pages = [silent.paths(), reset.paths(), stranger.paths()].concat();
    assert_eq!(pages, [""; 0]);
}

#[tokio::test]
async fn issue_p03_a_blip_closes_a_site_for_seconds_only() {
    let asked = AtomicUsize::new(0);
    let origin = Origin::raw(move |visit| match visit.is_robots() {
        true if asked.fetch_add(1, Ordering::SeqCst) == 0 => Raw::Reset,
        true => Raw::ok(OPEN),
        false => Raw::ok("page"),
    });
    let origin = origin.await;
    let names = [("a.test", &origin)];
    let proxy = Proxy::with(&names, |settings| settings.lookup.lifetimes.retry = Duration::from_secs(1)).await;
    let refused = proxy.curl(&["http://a.test/x"]).await;
    assert_eq!((refused.status, refused.retry_after()), (403, Some(1)));
    clock::sleep(Duration::from_millis(1100)).await;
    assert_eq!(proxy.curl(&["http://a.test/x"]).await.status, 200);
    assert_eq!(origin.robots().len(), 2);
}

#[tokio::test]
async fn issue_p04_a_redirect_does_not_replace_the_rules_of_its_target() {
    let target = Origin::https(|visit| match visit.path.as_str() {
        "/robots.txt" => Reply::text(CLOSED),
        "/x/robots.txt" => Reply::text(OPEN),
        _ => Reply::text("page"),
    });
    let target = target.await;
    let first = Origin::http(|visit| match visit.is_robots() {
        true => Reply::with(301, &[("location", "https://b.test/x/robots.txt")], ""),
        false => Reply::text("page"),
    });
    let first = first.await;
    let proxy = Proxy::before(&[("a.test", &first), ("b.test", &target)]).await;
    assert_eq!(proxy.curl(&["http://a.test/page"]).await.status, 200);
    assert_eq!(proxy.record_of("a.test/page").await["robots"]["final_url"], "https://b.test/x/robots.txt");
    assert_eq!(proxy.curl(&["https://b.test/page"]).await.status, 403);
}

#[tokio::test]
async fn issue_p05_a_redirect_that_may_not_be_followed_is_no_permission() {
    let origin = Origin::http(|visit| match visit.is_robots() {
        true => Reply::with(302, &[("location", "ftp://a.test/robots.txt")], ""),
        false => Reply::text("page"),
    });
    let origin = origin.await;
    let proxy = Proxy::before(&[("a.test", &origin)]).await;
    let got = proxy.curl(&["-H", "Accept: application/json", "http://a.test/x"]).await;
    assert_eq!((got.status, got.json()["reason"].clone()), (403, json!("robots-unreachable")));
}

#[tokio::test]
async fn issue_p06_every_status_ends_every_wait() {
    const STATUSES: [u16; 9] = [204, 300, 301, 304, 403, 418, 500, 599, 999];
    let origins = futures_util::future::join_all(STATUSES.map(|status| {
        Origin::raw(move |visit| match visit.is_robots() {
            true => Raw::Keep(format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n").into_bytes()),
            false => Raw::ok("page"),
        })
    }));
    let continued = Origin::raw(|visit| match visit.is_robots() {
        true => Raw::Keep(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec()),
        false => Raw::ok("page"),
    });
    let mut origins = origins.await;
    origins.push(continued.await);
    let hosts: Vec<String> = (0..origins.len()).map(|number| format!("h{number}.test")).collect();
    let names: Vec<(&str, &Origin)> = hosts.iter().map(String::as_str).zip(&origins).collect();
    let proxy = Proxy::with(&names, |settings| settings.fetch.timeout = Duration::from_secs(2)).await;
    for host in &hosts {
        let urls = [format!("http://{host}/1"), format!("http://{host}/2")];
        let [one, other] = [[urls[0].as_str()], [urls[1].as_str()]];
        let began = clock::now();
        let (one, other) = futures_util::join!(proxy.curl(&one), proxy.curl(&other));
        assert!([one.status, other.status].iter().all(|status| [200, 403].contains(status)), "{host}");
        assert!(began.elapsed() < Duration::from_secs(3), "{host}");
    }
}

#[tokio::test]
async fn issue_p07_a_challenge_page_is_no_permission_and_another_page_is_noted() {
    let challenge = Origin::http(|visit| match visit.is_robots() {
        true => Reply::with(
            200,
            &[("content-type", "text/html")],
            "<!doctype html><title>Making sure you're not a bot!</title>",
        ),
        false => Reply::text("page"),
    });
    let single_page = Origin::http(|visit| match visit.is_robots() {
        true => Reply::with(200, &[("content-type", "text/html")], "<!doctype html><div id=app></div>"),
        false => Reply::text("page"),
    });
    let (challenge, single_page) = (challenge.await, single_page.await);
    let proxy = Proxy::before(&[("challenge.test", &challenge), ("app.test", &single_page)]).await;
    assert_eq!(proxy.curl(&["http://challenge.test/x"]).await.status, 403);
    assert_eq!(proxy.record_of("challenge.test/x").await["robots"]["note"], "challenge");
    assert_eq!(proxy.curl(&["http://app.test/x"]).await.status, 200);
    assert_eq!(proxy.record_of("app.test/x").await["robots"]["note"], "html");
}

#[tokio::test]
async fn issue_p08_a_202_with_a_page_is_a_failure_until_the_file_comes() {
    let asked = AtomicUsize::new(0);
    let origin = Origin::http(move |visit| match visit.is_robots() {
        true if asked.fetch_add(1, Ordering::SeqCst) == 0 => {
            Reply::with(202, &[("content-type", "text/html")], "<p>wait</p>")
        }
        true => Reply::text("User-agent: *\nDisallow: /private/\n"),
        false => Reply::text("page"),
    });
    let origin = origin.await;
    let names = [("a.test", &origin)];
    let proxy = Proxy::with(&names, |settings| settings.lookup.lifetimes.retry = Duration::from_secs(1)).await;
    assert_eq!(proxy.curl(&["http://a.test/x"]).await.status, 403);
    clock::sleep(Duration::from_millis(1100)).await;
    assert_eq!(proxy.curl(&["http://a.test/x"]).await.status, 200);
    assert_eq!(proxy.curl(&["http://a.test/private/x"]).await.status, 403);
}

#[tokio::test]
async fn issue_p09_a_missing_file_is_asked_for_once_however_many_wait() {
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let held = Arc::clone(&gate);
    let origin = Origin::http(move |visit| match visit.is_robots() {
        true => {
            Reply::Gated(Arc::clone(&held), http::Response::builder().status(404).body(bytes::Bytes::new()).unwrap())
        }
        false => Reply::text("page"),
    });
    let origin = origin.await;
    let proxy = Proxy::before(&[("a.test", &origin)]).await;
    // One curl with many transfers at once: two hundred processes would measure the machine.
    let pages = ["--parallel", "--parallel-immediate", "--parallel-max", "200", "http://a.test/[1-200]"];
    let (_, _) = futures_util::join!(proxy.curl(&pages), async {
        super::support::until("the question for robots.txt", || (origin.robots().len() == 1).then_some(())).await;
        assert_eq!(origin.pages().len(), 0, "nobody goes before the answer");
        gate.add_permits(200);
    });
    assert_eq!((origin.robots().len(), origin.pages().len()), (1, 200));
    proxy.curl(&["http://a.test/[201-300]"]).await;
    assert_eq!((origin.robots().len(), origin.pages().len()), (1, 300));
}

#[tokio::test]
async fn issue_p10_bypass_e2_a_file_that_drips_stalls_nobody_beyond_the_deadline() {
    let slow = Origin::raw(|visit| match visit.is_robots() {
        true => Raw::Drip(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n".to_vec()),
        false => Raw::ok("page"),
    });
    let (slow, quick) = (slow.await, Origin::http(|visit| Reply::of_site(OPEN, visit)).await);
    let names = [("slow.test", &slow), ("quick.test", &quick)];
    let proxy = Proxy::with(&names, |settings| settings.fetch.timeout = Duration::from_secs(2)).await;
    let began = clock::now();
    let (stalled, served) = futures_util::join!(proxy.curl(&["http://slow.test/x"]), async {
        let served = proxy.curl(&["http://quick.test/x"]).await;
        assert!(began.elapsed() < Duration::from_secs(2), "another host is not kept waiting");
        served
    });
    assert_eq!((stalled.status, served.status), (403, 200));
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
}

#[tokio::test]
async fn issue_p11_robots_txt_is_asked_for_with_a_user_agent_that_names_a_contact() {
    let origin = Origin::http(|visit| {
        let user_agent = visit.headers.get("user-agent").map_or("", |value| value.to_str().unwrap());
        match visit.is_robots() {
            true if user_agent.contains("+https://") => Reply::text(OPEN),
            true => Reply::status(403, ""),
            false => Reply::text("page"),
        }
    });
    let origin = origin.await;
    let proxy = Proxy::before(&[("a.test", &origin)]).await;
    assert_eq!(proxy.curl(&["http://a.test/x"]).await.status, 200);
    let nameless = Proxy::with(&[("a.test", &origin)], |settings| settings.fetch.user_agent = "crawler".into()).await;
    let got = nameless.curl(&["http://a.test/x"]).await;
    assert_eq!(got.status, 403);
    assert!(got.text().contains("robots.txt answered 403"), "{}", got.text());
}

#[tokio::test]
async fn issue_p12_scheme_and_port_have_rules_of_their_own() {
    let closed = |visit: &super::support::origin::Visit| Reply::of_site("User-agent: *\nDisallow: /p\n", visit);
    let (http, https, port) = (
        Origin::http(|visit| Reply::of_site(OPEN, visit)).await,
        Origin::https(closed).await,
        Origin::https(closed).await,
    );
    let names = [("a.test:80", &http), ("a.test:443", &https), ("a.test:8443", &port)];
    let urls = [("http://a.test/p", 200), ("https://a.test/p", 403), ("https://a.test:8443/p", 403)];
    for order in [[0, 1, 2], [2, 1, 0]] {
        let proxy = Proxy::before(&names).await;
        for index in order {
            assert_eq!(proxy.curl(&[urls[index].0]).await.status, urls[index].1, "{order:?} {}", urls[index].0);
        }
    }
}

#[tokio::test]
async fn issue_p13_a_long_file_is_obeyed_to_its_end_or_to_the_limit() {
    for octets in [4093, 4097, 65_535, 65_537, 511_999, 512_000, 512_001, 512_002, 2 << 20] {
        for last in [true, false] {
            let rules = "User-agent: *\nDisallow: /private\n";
            let filling = "#".repeat(octets - rules.len() - 1) + "\n";
            let file = if last { filling + rules } else { rules.to_owned() + &filling };
            assert_eq!(file.len(), octets);
            let origin = Origin::http(move |visit| Reply::of_site(&file, visit)).await;
            let proxy = Proxy::before(&[("a.test", &origin)]).await;
            let status = proxy.curl(&["http://a.test/private"]).await.status;
            // A rule beyond the limit is not read; one that the limit cuts in two is not read either, and never as a shorter one. Of
            // the file of 512,001 octets the limit cuts off nothing but the last line end.
            let obeyed = !last || octets <= 512_001;
            assert_eq!(status, if obeyed { 403 } else { 200 }, "{octets} octets, rule last: {last}");
            let truncated = proxy.record_of("/private").await["robots"]["truncated"] == json!(true);
            assert_eq!(truncated, octets > 512_000, "{octets}");
        }
    }
}

#[tokio::test]
async fn issue_p14_a_copy_is_dropped_at_once_by_command() {
    let asked = AtomicUsize::new(0);
    let origin = Origin::http(move |visit| match visit.is_robots() {
        true if asked.fetch_add(1, Ordering::SeqCst) == 0 => {
            Reply::with(200, &[("age", "100"), ("cache-control", "max-age=86400")], OPEN)
        }
        true => Reply::text(CLOSED),
        false => Reply::text("page"),
    });
    let origin = origin.await;
    let proxy = Proxy::before(&[("a.test", &origin)]).await;
    assert_eq!(proxy.curl(&["http://a.test/x"]).await.status, 200);
    let shown = proxy.command(&["copies", "--json", "show", "http://a.test"]).await;
    assert_eq!(serde_json::from_str::<serde_json::Value>(&shown.out).unwrap()["lifetime_s"], 86_300);
    assert_eq!(proxy.command(&["copies", "drop", "http://a.test"]).await.exit, 0);
    assert_eq!(proxy.curl(&["http://a.test/x"]).await.status, 403);
}
