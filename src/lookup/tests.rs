//! Hours of robots.txt, played against a scripted origin in paused time.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use http::StatusCode;

use super::*;
use crate::policy::decision::{Decision, decide};
use crate::upstream::Speech;

const HOUR: Duration = Duration::from_secs(3600);

/// An answer to robots.txt: status, header fields, body; `None` is a network error.
type Answer = Option<(u16, &'static [(&'static str, &'static str)], &'static str)>;

/// An origin that gives the answers of its script, one a fetch, each after a while; the last one again and again.
#[derive(Default)]
struct Script {
    answers: Mutex<VecDeque<Answer>>,
    takes: Duration,
    fetches: AtomicUsize,
    /// What each fetch was conditional on.
    validators: Mutex<Vec<Option<Validators>>>,
}

impl Fetch for Script {
    fn fetch(
        &self,
        _: &Origin,
        _: Speech,
        validators: Option<Validators>,
    ) -> BoxFuture<'static, Result<Fetched, FetchError>> {
        self.fetches.fetch_add(1, Ordering::Relaxed);
        self.validators.lock().unwrap().push(validators);
        let mut answers = self.answers.lock().unwrap();
        let answer = if answers.len() > 1 { answers.pop_front().unwrap() } else { answers[0] };
        let takes = self.takes;
        Box::pin(async move {
            clock::sleep(takes).await;
            let Some((status, fields, body)) = answer else { return Err(FetchError::TimedOut(takes)) };
            let status = StatusCode::from_u16(status).unwrap();
            let headers = fields.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
            Ok(Fetched { status, headers, body: body.as_bytes().to_vec(), final_url: None, too_many_redirects: false })
        })
    }
}

/// An answer without header fields.
const fn plain(status: u16, body: &'static str) -> Answer {
    Some((status, &[], body))
}

struct Site {
    lookup: Lookup,
    script: Arc<Script>,
    origin: Origin,
    began: Instant,
}

impl Site {
    fn with(answers: &[Answer], takes: Duration) -> Site {
        Site::stored(answers, takes, None)
    }

    fn stored(answers: &[Answer], takes: Duration, store: Option<Store>) -> Site {
        let answers = Mutex::new(answers.iter().copied().collect());
        let script = Arc::new(Script { answers, takes, ..Script::default() });
        let lookup = Lookup::new(Settings::default(), Arc::clone(&script) as Arc<dyn Fetch>, store);
        let origin = Origin::of(&"https://bazaar.nimbu.test/".parse().unwrap()).unwrap();
        Site { lookup, script, origin, began: clock::now() }
    }

    fn fetches(&self) -> usize {
        self.script.fetches.load(Ordering::Relaxed)
    }

    async fn at(&self, hours: f64) -> &Site {
        clock::sleep_until(self.began + HOUR.mul_f64(hours)).await;
        self
    }

    async fn ask(&self, path: &str) -> Decision {
        let standing = self.lookup.standing(&self.origin, Speech::Http2).await;
        decide("NimbuBot", path.as_bytes(), &standing, clock::now())
    }
}

#[tokio::test(start_paused = true)]
async fn one_copy_serves_for_a_day_and_an_old_one_while_the_file_is_away() {
    let (first, second) =
        ("User-agent: *\nDisallow: /prices/\nAllow: /prices/today", "User-agent: *\nDisallow: /prices/");
    let site = Site::with(&[plain(200, first), plain(503, ""), plain(200, second)], Duration::ZERO);
    for (hour, path, want, fetches) in [
        (0.0, "/prices/today", Reason::Allowed, 1),
        (2.0, "/prices/history", Reason::Disallowed, 1),
        (21.0, "/prices/today", Reason::Allowed, 1),
        (24.5, "/prices/today", Reason::Allowed, 2),
        (25.5, "/prices/today", Reason::Disallowed, 3),
    ] {
        assert_eq!(site.at(hour).await.ask(path).await.reason, want, "hour {hour}");
        assert_eq!(site.fetches(), fetches, "hour {hour}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_copy_is_asked_for_anew_before_it_is_too_old_and_nobody_waits() {
    let site = Site::with(&[plain(404, ""), plain(200, "User-agent: *\nDisallow: /")], Duration::from_secs(9));
    site.ask("/").await;
    let before = clock::now();
    assert_eq!(site.at(22.0).await.ask("/").await.reason, Reason::NoRules);
    assert_eq!(clock::now().duration_since(before).as_secs(), 22 * 3600 - 9);
    assert_eq!(site.at(22.1).await.ask("/").await.reason, Reason::Disallowed);
    assert_eq!(site.fetches(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_never_a_permission_and_is_asked_about_ever_more_rarely() {
    let site = Site::with(&[None, plain(500, ""), plain(200, "")], Duration::ZERO);
    let refused = site.ask("/").await;
    assert_eq!((refused.reason, refused.retry_after), (Reason::RobotsUnreachable, Some(Duration::from_secs(5))));
    clock::sleep(Duration::from_secs(4)).await;
    assert_eq!((site.ask("/").await.reason, site.fetches()), (Reason::RobotsUnreachable, 1));
    clock::sleep(Duration::from_secs(1)).await;
    let refused = site.ask("/").await;
    assert_eq!((refused.reason, refused.retry_after), (Reason::RobotsUnreachable, Some(Duration::from_secs(15))));
    clock::sleep(Duration::from_secs(15)).await;
    assert_eq!((site.ask("/").await.reason, site.fetches()), (Reason::Allowed, 3));
}

#[tokio::test(start_paused = true)]
async fn an_old_copy_ends_after_thirty_days() {
    let site = Site::with(&[plain(200, "User-agent: *\nAllow: /"), None], Duration::ZERO);
    site.ask("/").await;
    assert_eq!(site.at(24.0 * 29.9).await.ask("/").await.reason, Reason::Allowed);
    assert_eq!(site.at(24.0 * 30.1).await.ask("/").await.reason, Reason::RobotsUnreachable);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_waiting_requests_cause_one_fetch_that_outlives_its_first_one() {
    let site = Arc::new(Site::with(&[plain(200, "User-agent: *\nDisallow: /")], Duration::from_secs(1)));
    let asking: Vec<_> = (0..1000)
        .map(|_| {
            let site = Arc::clone(&site);
            tokio::spawn(async move { site.ask("/").await.reason })
        })
        .collect();
    tokio::task::yield_now().await;
    for (number, task) in asking.into_iter().enumerate() {
        match number {
            0 => task.abort(),
            _ => assert_eq!(task.await.unwrap(), Reason::Disallowed),
        }
    }
    assert_eq!(site.fetches(), 1);
}

#[tokio::test(start_paused = true)]
async fn six_hours_of_503_and_weeks_of_it() {
    let site = Site::with(&[plain(200, "User-agent: *\nDisallow: /prices/"), plain(503, "")], Duration::ZERO);
    site.ask("/").await;
    // Asked about every five minutes at most once the gaps have grown, however many requests come.
    for minute in 0..6 * 60 {
        let standing =
            site.at(24.0 + f64::from(minute) / 60.0).await.lookup.standing(&site.origin, Speech::Http2).await;
        assert!(standing.stale, "minute {minute}");
        assert_eq!(decide("NimbuBot", b"/prices/", &standing, clock::now()).reason, Reason::Disallowed);
        assert_eq!(decide("NimbuBot", b"/", &standing, clock::now()).reason, Reason::Allowed);
    }
    assert!((70..=80).contains(&site.fetches()), "{}", site.fetches());
    for day in [7, 14, 29] {
        assert_eq!(site.at(24.0 * f64::from(day)).await.ask("/").await.reason, Reason::Allowed, "day {day}");
    }
    for day in [31, 60] {
        assert_eq!(site.at(24.0 * f64::from(day)).await.ask("/").await.reason, Reason::RobotsUnreachable, "day {day}");
    }
}

#[tokio::test(start_paused = true)]
async fn rfc9110_13_1_a_refresh_is_conditional_and_304_renews() {
    let first: Answer = Some((
        200,
        &[("etag", "\"v1\""), ("last-modified", "Mon, 30 Nov 2026 10:00:00 GMT")],
        "User-agent: *\nDisallow: /",
    ));
    let site = Site::with(&[first, Some((304, &[("cache-control", "max-age=3600")], ""))], Duration::ZERO);
    assert_eq!(site.ask("/").await.reason, Reason::Disallowed);
    assert_eq!(site.at(25.0).await.ask("/").await.reason, Reason::Disallowed);
    let conditional = Validators {
        url: "https://bazaar.nimbu.test/robots.txt".into(),
        etag: Some("\"v1\"".into()),
        last_modified: Some("Mon, 30 Nov 2026 10:00:00 GMT".into()),
    };
    assert_eq!(*site.script.validators.lock().unwrap(), [None, Some(conditional)]);
    assert_eq!((site.at(25.8).await.ask("/").await.reason, site.fetches()), (Reason::Disallowed, 2));
    assert_eq!((site.at(26.1).await.ask("/").await.reason, site.fetches()), (Reason::Disallowed, 3));
}

#[tokio::test(start_paused = true)]
async fn issue_p14_a_cdn_does_not_keep_a_permissive_copy_in_force() {
    let aged: Answer = Some((200, &[("age", "3599"), ("cache-control", "max-age=3600")], "User-agent: *\nAllow: /"));
    let site = Site::with(&[aged, plain(200, "User-agent: *\nDisallow: /")], Duration::ZERO);
    assert_eq!(site.ask("/").await.reason, Reason::Allowed);
    clock::sleep(Duration::from_secs(301)).await;
    assert_eq!(site.ask("/").await.reason, Reason::Disallowed);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_copy_is_fetched_again_and_a_refresh_asks_at_once() {
    let site =
        Site::with(&[plain(200, "User-agent: *\nAllow: /"), plain(200, "User-agent: *\nDisallow: /")], Duration::ZERO);
    assert_eq!(site.ask("/").await.reason, Reason::Allowed);
    site.lookup.refresh(&site.origin).await;
    assert_eq!((site.ask("/").await.reason, site.fetches()), (Reason::Disallowed, 2));
    assert!(site.lookup.forget(&site.origin) && !site.lookup.forget(&site.origin));
    assert_eq!((site.ask("/").await.reason, site.fetches()), (Reason::Disallowed, 3));
}

/// Reads of the store go through another thread, for which paused time would not wait.
#[tokio::test]
async fn a_copy_survives_a_restart_and_a_failure_is_never_stored_as_permission() {
    let folder = tempfile::tempdir().unwrap();
    let limits = store::Limits { copies: 100, body_bytes: 1 << 20 };
    let store = || Some(Store::open(folder.path(), limits).unwrap());
    let site = Site::stored(&[plain(200, "User-agent: *\nDisallow: /prices/")], Duration::ZERO, store());
    assert_eq!(site.ask("/prices/").await.reason, Reason::Disallowed);
    site.lookup.store().unwrap().flush();
    drop(site);

    let site = Site::stored(&[None], Duration::ZERO, store());
    assert_eq!((site.ask("/prices/").await.reason, site.ask("/").await.reason), (Reason::Disallowed, Reason::Allowed));
    assert_eq!(site.fetches(), 0);
    site.lookup.refresh(&site.origin).await;
    site.lookup.store().unwrap().flush();
    drop(site);

    let site = Site::stored(&[None], Duration::ZERO, store());
    assert_eq!((site.ask("/prices/").await.reason, site.fetches()), (Reason::Disallowed, 0));
    site.lookup.forget(&site.origin);
    assert_eq!(site.ask("/").await.reason, Reason::RobotsUnreachable);
}

impl Site {
    fn reload(&self, settings: Settings) {
        self.lookup.reload(settings, Arc::clone(&self.script) as Arc<dyn Fetch>);
    }
}

#[tokio::test(start_paused = true)]
async fn a_reload_keeps_copies_and_gives_them_the_life_of_the_new_settings() {
    let site = Site::with(&[plain(200, "User-agent: *\nDisallow: /a")], Duration::ZERO);
    site.ask("/").await;
    site.reload(Settings::default());
    assert_eq!((site.at(1.0).await.ask("/a").await.reason, site.fetches()), (Reason::Disallowed, 1));
    let lifetimes = Lifetimes { ttl: HOUR * 2, ..Settings::default().lifetimes };
    site.reload(Settings { lifetimes, ..Settings::default() });
    assert_eq!((site.at(1.5).await.ask("/a").await.reason, site.fetches()), (Reason::Disallowed, 1));
    assert_eq!((site.at(2.5).await.ask("/a").await.reason, site.fetches()), (Reason::Disallowed, 2));
}

#[tokio::test(start_paused = true)]
async fn a_reload_to_the_careful_table_ends_what_a_403_permitted_and_back() {
    let [careful, by_rfc] = [StatusPolicy::Careful, StatusPolicy::Rfc9309]
        .map(|status_policy| Settings { status_policy, ..Settings::default() });
    let site = Site::with(&[plain(403, "")], Duration::ZERO);
    for (settings, reason, fetches) in [
        (by_rfc.clone(), Reason::NoRules, 1),
        (careful.clone(), Reason::RobotsUnavailable, 2),
        (careful, Reason::RobotsUnavailable, 2),
        (by_rfc, Reason::NoRules, 3),
    ] {
        site.reload(settings);
        assert_eq!((site.ask("/").await.reason, site.fetches()), (reason, fetches));
    }
}
