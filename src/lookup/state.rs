//! What is known of one origin, and what time makes of it.
//!
//! A good copy is fresh, then due (asked for anew while it still serves), then old; an old one serves on only while the file cannot
//! be had, up to `stale_for` after its last confirmation (RFC 9309 §2.3.1.4, §2.4). A failure is asked about again at growing gaps, and
//! then requests wait for the answer: it may bring rules that close what the old copy left open. All of it is comparisons with a
//! `now` that comes in.

use std::num::NonZeroU16;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::Settings;
use super::copy::{Copy, Judged, no_evidence};
use super::fetch::Validators;
use crate::clock;
use crate::policy::reason::Reason;
use crate::policy::standing::{Effect, Evidence, Standing};
use crate::policy::target::Origin;
use crate::robots::{RobotsTxt, status};

/// The share of a copy's life after which it is asked for anew in the background.
const REFRESH_AT: f64 = 0.9;

/// What is known of one origin.
#[derive(Debug, Default)]
pub(super) struct State {
    good: Option<Good>,
    failure: Option<Failure>,
    /// Failures since the last good answer.
    failures: u32,
}

#[derive(Debug)]
struct Good {
    copy: Copy,
    standing: Arc<Standing>,
    /// How old it was when, by the clock that nobody sets.
    age: (Duration, Instant),
    due_at: Instant,
    fresh_until: Instant,
    stale_until: Instant,
}

#[derive(Debug)]
struct Failure {
    standing: Arc<Standing>,
    ask_again_at: Instant,
}

/// An origin whose answer means that there are no rules, and told nothing more: a million of them are kept, in 24 octets each.
#[derive(Clone, Debug)]
pub(super) struct Plain {
    status: NonZeroU16,
    /// In seconds.
    lifetime: u32,
    /// In nanoseconds since 1970.
    fetched_at: u64,
    /// The same by the clock that nobody sets, in nanoseconds from [`BEGAN`].
    since: i64,
}

/// Some instant to count from.
static BEGAN: LazyLock<Instant> = LazyLock::new(clock::now);

/// What a request gets from what is known.
#[derive(Debug)]
pub(super) enum Known {
    /// This, and nothing is to be done.
    Holds(Arc<Standing>),
    /// This, but the origin should be asked anew meanwhile.
    Due(Arc<Standing>),
    /// Nothing: the origin must be asked first.
    Nothing,
}

/// What has to be written down after a fetch.
#[derive(Debug)]
pub(super) struct ToKeep {
    pub(super) copy: Copy,
    /// The body, where it is a new one.
    pub(super) body: Option<Vec<u8>>,
}

impl State {
    /// What holds at `now`.
    pub(super) fn at(&self, now: Instant) -> Known {
        match (&self.failure, &self.good) {
            (Some(failure), _) if now < failure.ask_again_at => Known::Holds(Arc::clone(&failure.standing)),
            (None, Some(good)) if now < good.due_at => Known::Holds(Arc::clone(&good.standing)),
            (None, Some(good)) if now < good.fresh_until => Known::Due(Arc::clone(&good.standing)),
            _ => Known::Nothing,
        }
    }

    /// The copy in force, if there is one.
    pub(super) fn copy(&self) -> Option<&Copy> {
        self.good.as_ref().map(|good| &good.copy)
    }

    /// The rules of the copy in force, if it has any.
    pub(super) fn rules(&self) -> Option<&RobotsTxt> {
        match &self.good.as_ref()?.standing.effect {
            Effect::Rules(rules) => Some(rules),
            _ => None,
        }
    }

    /// What the next fetch may be conditional on.
    pub(super) fn validators(&self) -> Option<Validators> {
        self.copy()?.validators()
    }

    /// Takes in a copy from the store, unless it was a permission by another status table only. One from the future (the clock was set
    /// back) has no life left.
    pub(super) fn recall(&mut self, copy: Copy, body: &[u8], settings: &Settings, now: Instant, wall: SystemTime) {
        if !copy.holds_under(settings) {
            return;
        }
        let copy = copy.within(settings);
        let age = wall.duration_since(copy.confirmed_at).unwrap_or(copy.lifetime);
        let effect = copy.effect(body, settings);
        self.good = Some(Good::new(copy, effect, age, settings, now));
    }

    /// Goes by other settings: a copy that they would not have made is dropped, and a failure that may be none by another status table is
    /// asked about anew.
    pub(super) fn reconsider(&mut self, settings: &Settings, other_meaning: bool, now: Instant) {
        if other_meaning {
            self.failure = None;
        }
        self.good = self.good.take().filter(|good| good.copy.holds_under(settings)).map(|good| {
            let (age_then, then) = good.age;
            let (age, effect) = (age_then + now.duration_since(then), good.standing.effect.clone());
            Good::new(good.copy.within(settings), effect, age, settings, now)
        });
    }

    /// Takes in what a fetch came to.
    pub(super) fn land(
        &mut self,
        judged: Judged,
        robots_url: String,
        settings: &Settings,
        now: Instant,
        wall: SystemTime,
    ) -> (Arc<Standing>, Option<ToKeep>) {
        match (judged, self.good.take()) {
            (Judged::Good(copy, body), _) => {
                let effect = copy.effect(&body, settings);
                self.renew((*copy).clone(), effect, Some(body), settings, now)
            }
            (Judged::Confirmed(headers), Some(good)) => {
                let copy = good.copy.confirmed(&headers, settings, wall);
                self.renew(copy, good.standing.effect.clone(), None, settings, now)
            }
            // The copy that was asked about has been dropped meanwhile.
            (Judged::Confirmed(_), None) => {
                let evidence = Evidence { status: Some(304), ..no_evidence(robots_url, wall) };
                (self.fail(Reason::RobotsUnreachable, evidence, "the copy was dropped", None, settings, now), None)
            }
            (Judged::Bad { reason, evidence, failure, retry_after }, good) => {
                self.good = good.filter(|good| now < good.stale_until);
                (self.fail(reason, evidence, &failure, retry_after, settings, now), None)
            }
        }
    }

    fn renew(
        &mut self,
        copy: Copy,
        effect: Effect,
        body: Option<Vec<u8>>,
        settings: &Settings,
        now: Instant,
    ) -> (Arc<Standing>, Option<ToKeep>) {
        let good = Good::new(copy.clone(), effect, Duration::ZERO, settings, now);
        let standing = Arc::clone(&good.standing);
        *self = State { good: Some(good), failure: None, failures: 0 };
        (standing, Some(ToKeep { copy, body }))
    }

    fn fail(
        &mut self,
        reason: Reason,
        evidence: Evidence,
        failure: &str,
        retry_after: Option<Duration>,
        settings: &Settings,
        now: Instant,
    ) -> Arc<Standing> {
        self.failures = self.failures.saturating_add(1);
        let ask_again_at = now + status::retry_gap(self.failures, settings.lifetimes.retry, retry_after);
        let failure = Some(Arc::from(failure));
        let standing = Arc::new(match &self.good {
            Some(good) => Standing { stale: true, failure, ask_again_at, ..(*good.standing).clone() },
            None => Standing {
                effect: Effect::DisallowAll(reason),
                evidence: Arc::new(evidence),
                stale: false,
                failure,
                ask_again_at,
            },
        });
        self.failure = Some(Failure { standing: Arc::clone(&standing), ask_again_at });
        standing
    }
}

impl Plain {
    /// All that is known, if it is no more than this.
    pub(super) fn of(state: &State) -> Option<Plain> {
        let good = state.good.as_ref().filter(|good| state.failure.is_none() && good.copy.is_plain())?;
        let (age, then) = good.age;
        let since = then.checked_sub(age)?;
        let plain = Plain {
            status: NonZeroU16::new(good.copy.status)?,
            lifetime: u32::try_from(good.copy.lifetime.as_secs()).ok()?,
            fetched_at: u64::try_from(good.copy.fetched_at.duration_since(UNIX_EPOCH).ok()?.as_nanos()).ok()?,
            since: match since.checked_duration_since(*BEGAN) {
                Some(after) => i64::try_from(after.as_nanos()).ok()?,
                None => -i64::try_from(BEGAN.duration_since(since).as_nanos()).ok()?,
            },
        };
        (plain.lifetime() == good.copy.lifetime).then_some(plain)
    }

    /// Whether nothing is to be done at `now`.
    pub(super) fn holds_at(&self, now: Instant) -> bool {
        now < self.since() + self.lifetime().mul_f64(REFRESH_AT)
    }

    /// What holds at its origin while it holds.
    pub(super) fn standing(&self, origin: &Origin) -> Standing {
        let evidence =
            Evidence { status: Some(self.status.get()), ..no_evidence(origin.robots_url(), self.fetched_at()) };
        Standing {
            effect: Effect::NoRules,
            evidence: Arc::new(evidence),
            stale: false,
            failure: None,
            ask_again_at: self.since() + self.lifetime(),
        }
    }

    /// The copy that it was made of.
    pub(super) fn copy(&self, origin: &Origin) -> Copy {
        Copy::plain(origin.robots_url(), self.status.get(), self.fetched_at(), self.lifetime())
    }

    /// The state that it was made of, as these settings have it.
    pub(super) fn state(&self, origin: &Origin, settings: &Settings, now: Instant) -> State {
        let age = now.saturating_duration_since(self.since());
        State { good: Some(Good::new(self.copy(origin), Effect::NoRules, age, settings, now)), ..State::default() }
    }

    fn lifetime(&self) -> Duration {
        Duration::from_secs(self.lifetime.into())
    }

    fn fetched_at(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_nanos(self.fetched_at)
    }

    fn since(&self) -> Instant {
        let distance = Duration::from_nanos(self.since.unsigned_abs());
        if self.since < 0 { *BEGAN - distance } else { *BEGAN + distance }
    }
}

impl Good {
    fn new(copy: Copy, effect: Effect, age: Duration, settings: &Settings, now: Instant) -> Good {
        let from_now = |life: Duration| now + life.saturating_sub(age);
        let fresh_until = from_now(copy.lifetime);
        let evidence = Arc::new(copy.evidence());
        let standing = Standing { effect, evidence, stale: false, failure: None, ask_again_at: fresh_until };
        Good {
            standing: Arc::new(standing),
            age: (age, now),
            due_at: from_now(copy.lifetime.mul_f64(REFRESH_AT)),
            fresh_until,
            stale_until: from_now(settings.stale_for),
            copy,
        }
    }
}
