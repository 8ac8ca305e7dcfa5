//! The robots.txt in force at an origin.
//!
//! Promises: an origin is asked once at a time however many requests wait, and the request for its robots.txt outlives the client
//! that caused it; a copy is asked for anew before it is too old, so that nobody waits; a failure keeps the old copy, and never
//! becomes a permission (RFC 9309 §2.3.1.4, §2.4). What an answer means is decided in [`crate::robots::status`], and how it is
//! fetched in [`fetch`]. moka bounds the number of origins; freshness is our own comparison, since moka's clock is not ours.

pub mod fetch;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use sha2::{Digest, Sha256};
use tokio::sync::watch;

use self::fetch::{FetchError, Fetched};
use crate::clock;
use crate::policy::reason::Reason;
use crate::policy::standing::{Effect, Evidence, Standing};
use crate::policy::target::Origin;
use crate::robots::RobotsTxt;
use crate::robots::status::{self, FinalAnswer, Lifetimes, Meaning, StatusPolicy};

/// How robots.txt is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Which status table applies.
    pub status_policy: StatusPolicy,
    /// How long an answer may be used.
    pub lifetimes: Lifetimes,
    /// How long an old copy serves while the file cannot be had, counted from its last good answer.
    pub stale_for: Duration,
    /// Read and obeyed up to here, in octets.
    pub max_bytes: usize,
    /// Origins remembered; the least recently used are dropped beyond that.
    pub max_copies: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        const HOUR: Duration = Duration::from_secs(3600);
        Settings {
            status_policy: StatusPolicy::Careful,
            lifetimes: Lifetimes { ttl: 24 * HOUR, min_ttl: HOUR / 12, retry: HOUR / 12 },
            stale_for: 30 * 24 * HOUR,
            max_bytes: crate::robots::MAX_BYTES,
            max_copies: 100_000,
        }
    }
}

/// Asks an origin for its robots.txt. A trait, so that hours of it can be played in a test.
pub trait Fetch: Send + Sync + 'static {
    /// One request, with the redirects that it leads to.
    fn fetch(&self, origin: &Origin) -> BoxFuture<'static, Result<Fetched, FetchError>>;
}

/// The standing of every origin that was asked for lately.
pub struct Lookup {
    settings: Settings,
    fetch: Arc<dyn Fetch>,
    origins: moka::sync::Cache<Origin, Arc<Entry>>,
}

/// What is known of one origin. The mutex is never held across an await.
#[derive(Default)]
struct Entry {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    standing: Option<Arc<Standing>>,
    /// The last good answer, and when it came.
    good: Option<(Arc<Standing>, Instant)>,
    /// From here on a request starts a new fetch, but does not wait for it.
    refresh_at: Option<Instant>,
    /// Failures since the last good answer.
    failures: u32,
    flight: Option<Flight>,
}

/// A fetch under way: holds its result in the end.
type Flight = watch::Receiver<Option<Arc<Standing>>>;

impl Lookup {
    /// Nothing known yet.
    pub fn new(settings: Settings, fetch: Arc<dyn Fetch>) -> Lookup {
        let origins = moka::sync::Cache::new(settings.max_copies);
        Lookup { settings, fetch, origins }
    }

    /// What holds at an origin now. Waits for its robots.txt where nothing usable is known, at most for the fetch's own deadline.
    pub async fn standing(&self, origin: &Origin) -> Arc<Standing> {
        let entry = self.entry(origin);
        let mut flight = {
            let mut state = entry.lock();
            let known = state.usable_at(clock::now());
            if let (Some(standing), false) = (&known, state.is_due_at(clock::now())) {
                return Arc::clone(standing);
            }
            let flight = self.take_off(&entry, &mut state, origin);
            match known {
                Some(standing) => return standing,
                None => flight,
            }
        };
        let landed = flight.wait_for(Option::is_some).await.ok().and_then(|standing| standing.clone());
        landed.unwrap_or_else(|| Arc::new(nothing_known(origin, "the fetch of robots.txt was given up", clock::now())))
    }

    fn entry(&self, origin: &Origin) -> Arc<Entry> {
        match self.origins.get(origin) {
            Some(entry) => entry,
            None => self.origins.get_with(origin.clone(), Arc::default),
        }
    }

    /// The fetch that is under way, or a new one in a task of its own: the client that needs it may go away, the next ones will not.
    fn take_off(&self, entry: &Arc<Entry>, state: &mut State, origin: &Origin) -> Flight {
        // A task that is gone without a result (it panicked) has dropped its sender.
        if let Some(flight) = state.flight.as_ref().filter(|flight| flight.has_changed().is_ok()) {
            return flight.clone();
        }
        let (sender, flight) = watch::channel(None);
        state.flight = Some(flight.clone());
        let (settings, entry, origin) = (self.settings.clone(), Arc::clone(entry), origin.clone());
        let fetching = self.fetch.fetch(&origin);
        tokio::spawn(async move {
            let outcome = fetching.await;
            let now = clock::now();
            let standing = entry.lock().land(&settings, &origin, outcome, now);
            sender.send_replace(Some(standing));
        });
        flight
    }
}

impl Entry {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn usable_at(&self, now: Instant) -> Option<Arc<Standing>> {
        self.standing.clone().filter(|standing| now < standing.ask_again_at)
    }

    fn is_due_at(&self, now: Instant) -> bool {
        self.refresh_at.is_none_or(|at| now >= at)
    }

    /// Takes in the outcome of a fetch.
    fn land(
        &mut self,
        settings: &Settings,
        origin: &Origin,
        outcome: Result<Fetched, FetchError>,
        now: Instant,
    ) -> Arc<Standing> {
        self.flight = None;
        let standing = match read(settings, origin, outcome) {
            Read::Good { effect, evidence, lifetime } => {
                let standing = Standing { effect, evidence, stale: false, failure: None, ask_again_at: now + lifetime };
                let standing = Arc::new(standing);
                self.good = Some((Arc::clone(&standing), now));
                self.failures = 0;
                self.refresh_at = Some(now + lifetime.mul_f32(REFRESH_AT));
                standing
            }
            Read::Bad { reason, evidence, failure, retry_after } => {
                self.failures = self.failures.saturating_add(1);
                let ask_again_at = now + status::retry_gap(self.failures, settings.lifetimes.retry, retry_after);
                self.refresh_at = Some(ask_again_at);
                let failure = Some(Arc::from(failure));
                Arc::new(match self.good_enough_at(now, settings.stale_for) {
                    Some(good) => Standing { stale: true, failure, ask_again_at, ..(*good).clone() },
                    None => {
                        Standing { effect: Effect::DisallowAll(reason), evidence, stale: false, failure, ask_again_at }
                    }
                })
            }
        };
        self.standing = Some(Arc::clone(&standing));
        standing
    }

    fn good_enough_at(&self, now: Instant, stale_for: Duration) -> Option<Arc<Standing>> {
        let (good, at) = self.good.as_ref()?;
        (now.duration_since(*at) < stale_for).then(|| Arc::clone(good))
    }
}

/// The share of a copy's life after which it is asked for anew in the background.
const REFRESH_AT: f32 = 0.9;

enum Read {
    Good { effect: Effect, evidence: Arc<Evidence>, lifetime: Duration },
    Bad { reason: Reason, evidence: Arc<Evidence>, failure: String, retry_after: Option<Duration> },
}

/// What the outcome of a fetch means.
fn read(settings: &Settings, origin: &Origin, outcome: Result<Fetched, FetchError>) -> Read {
    let mut evidence = Evidence { fetched_at: clock::wall(), ..no_evidence(origin) };
    let fetched = match outcome {
        Ok(fetched) => fetched,
        Err(error) => {
            let (reason, failure) = (Reason::RobotsUnreachable, error.to_string());
            return Read::Bad { reason, evidence: Arc::new(evidence), failure, retry_after: None };
        }
    };
    evidence.status = Some(fetched.status.as_u16());
    evidence.final_url = fetched.final_url.filter(|url| *url != evidence.robots_url);
    let answer = FinalAnswer { status: fetched.status.as_u16(), headers: &fetched.headers, body: &fetched.body };
    let meaning = match fetched.too_many_redirects {
        true => status::TOO_MANY_REDIRECTS,
        false => status::meaning(settings.status_policy, answer),
    };
    let lifetime = status::lifetime(&fetched.headers, settings.lifetimes);
    let retry_after = status::retry_after(&fetched.headers, clock::wall());
    let failure = format!("robots.txt answered {}", fetched.status);
    match meaning {
        Meaning::Rules => {
            let rules = RobotsTxt::parse_within(&fetched.body, settings.max_bytes);
            evidence.truncated = rules.is_truncated();
            evidence.sha256 = Some(hex(&Sha256::digest(&fetched.body)));
            Read::Good { effect: Effect::Rules(Arc::new(rules)), evidence: Arc::new(evidence), lifetime }
        }
        Meaning::NoRules(note) => {
            evidence.note = note;
            Read::Good { effect: Effect::NoRules, evidence: Arc::new(evidence), lifetime }
        }
        Meaning::Withheld => {
            Read::Bad { reason: Reason::RobotsUnavailable, evidence: Arc::new(evidence), failure, retry_after }
        }
        Meaning::Unreachable(note) => {
            evidence.note = note;
            let failure = note.map_or(failure.clone(), |note| format!("{failure} with {}", describe(note)));
            Read::Bad { reason: Reason::RobotsUnreachable, evidence: Arc::new(evidence), failure, retry_after }
        }
    }
}

fn describe(note: &str) -> &str {
    match note {
        "challenge" => "a bot challenge instead of the file",
        "html" => "a web page instead of the file",
        "partial-content" => "only a part of the file",
        other => other,
    }
}

fn no_evidence(origin: &Origin) -> Evidence {
    Evidence {
        robots_url: origin.robots_url(),
        final_url: None,
        status: None,
        fetched_at: clock::wall(),
        sha256: None,
        truncated: false,
        note: None,
    }
}

fn nothing_known(origin: &Origin, failure: &str, now: Instant) -> Standing {
    Standing {
        effect: Effect::DisallowAll(Reason::RobotsUnreachable),
        evidence: Arc::new(no_evidence(origin)),
        stale: false,
        failure: Some(failure.into()),
        ask_again_at: now,
    }
}

fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

#[cfg(test)]
mod tests;
