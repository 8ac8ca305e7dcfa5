//! Hours of robots.txt, played against a scripted origin in paused time.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{HeaderMap, StatusCode};

use super::*;
use crate::policy::decision::{Decision, decide};

const HOUR: Duration = Duration::from_secs(3600);

/// An origin that gives the answers of its script, one a fetch, each after a while.
#[derive(Default)]
struct Script {
    answers: Mutex<VecDeque<Option<(u16, &'static str)>>>,
    takes: Duration,
    fetches: AtomicUsize,
}

impl Fetch for Script {
    fn fetch(&self, _: &Origin) -> BoxFuture<'static, Result<Fetched, FetchError>> {
        self.fetches.fetch_add(1, Ordering::Relaxed);
        let answer = self.answers.lock().unwrap().pop_front().expect("the script has an answer for every fetch");
        let takes = self.takes;
        Box::pin(async move {
            clock::sleep(takes).await;
            let Some((status, body)) = answer else { return Err(FetchError::TimedOut(takes)) };
            let status = StatusCode::from_u16(status).unwrap();
            let (headers, body) = (HeaderMap::new(), body.as_bytes().to_vec());
            Ok(Fetched { status, headers, body, final_url: None, too_many_redirects: false })
        })
    }
}

struct Site {
    lookup: Lookup,
    script: Arc<Script>,
    origin: Origin,
    began: Instant,
}

impl Site {
    fn with(answers: &[Option<(u16, &'static str)>], takes: Duration) -> Site {
        let answers = Mutex::new(answers.iter().copied().collect());
        let script = Arc::new(Script { answers, takes, fetches: AtomicUsize::new(0) });
        let lookup = Lookup::new(Settings::default(), Arc::clone(&script) as Arc<dyn Fetch>);
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
        let standing = self.lookup.standing(&self.origin).await;
        decide("NimbuBot", path.as_bytes(), &standing, clock::now())
    }
}

#[tokio::test(start_paused = true)]
async fn one_copy_serves_for_a_day_and_an_old_one_while_the_file_is_away() {
    let (first, second) =
        ("User-agent: *\nDisallow: /prices/\nAllow: /prices/today", "User-agent: *\nDisallow: /prices/");
    let site = Site::with(&[Some((200, first)), Some((503, "")), Some((200, second))], Duration::ZERO);
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
    let site = Site::with(&[Some((404, "")), Some((200, "User-agent: *\nDisallow: /"))], Duration::from_secs(9));
    site.ask("/").await;
    let before = clock::now();
    assert_eq!(site.at(22.0).await.ask("/").await.reason, Reason::NoRules);
    assert_eq!(clock::now().duration_since(before).as_secs(), 22 * 3600 - 9);
    assert_eq!(site.at(22.1).await.ask("/").await.reason, Reason::Disallowed);
    assert_eq!(site.fetches(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_never_a_permission_and_is_asked_about_ever_more_rarely() {
    let site = Site::with(&[None, Some((500, "")), Some((200, ""))], Duration::ZERO);
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
    let mut answers = vec![Some((200, "User-agent: *\nAllow: /"))];
    answers.extend([None; 4]);
    let site = Site::with(&answers, Duration::ZERO);
    site.ask("/").await;
    assert_eq!(site.at(24.0 * 29.9).await.ask("/").await.reason, Reason::Allowed);
    assert_eq!(site.at(24.0 * 30.1).await.ask("/").await.reason, Reason::RobotsUnreachable);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_waiting_requests_cause_one_fetch_that_outlives_its_first_one() {
    let site = Arc::new(Site::with(&[Some((200, "User-agent: *\nDisallow: /"))], Duration::from_secs(1)));
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
