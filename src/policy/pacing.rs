//! The arithmetic of starts.
//!
//! A host with a Crawl-delay is asked at most once per delay, counted from start to start as the origin sees it. That is GCRA with
//! a burst of one: all that must be known is when the previous request started. Nothing is reserved for a request that still waits,
//! so one that leaves costs nobody anything. Pure: every function takes `now`.

use std::time::{Duration, Instant};

use super::hints::Hints;

/// How requests are paced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The delay at a host whose robots.txt asks for none.
    pub default_delay: Duration,
    /// No host is asked faster than this.
    pub min_delay: Duration,
    /// A longer Crawl-delay is followed up to here.
    pub max_delay: Duration,
    /// A request that would wait longer is refused at once.
    pub max_wait: Duration,
    /// The same for a browser's navigations.
    pub navigation_wait: Duration,
    /// An origin's Retry-After holds the host no longer than this.
    pub hold_max: Duration,
    /// Whether the next start may come before the head of the previous answer.
    pub overlap: bool,
    /// Who stands in one line.
    pub shared: Shared,
    /// Waiting requests per line; one more is refused.
    pub max_queue: usize,
    /// Whether what a page loads stands in line, too.
    pub requisites: Requisites,
}

/// Who stands in one line at a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shared {
    /// Each bot has a line of its own.
    #[default]
    Bot,
    /// All bots stand in one line.
    Host,
}

/// How a page's requisites are paced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Requisites {
    /// Not, within the budget of [`super::requisite`].
    #[default]
    Burst,
    /// Like everything else.
    Paced,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            default_delay: Duration::ZERO,
            min_delay: Duration::ZERO,
            max_delay: Duration::from_secs(60),
            max_wait: Duration::from_secs(120),
            // Browsers give up after 30 s.
            navigation_wait: Duration::from_secs(25),
            hold_max: Duration::from_secs(3600),
            overlap: false,
            shared: Shared::Bot,
            max_queue: 1000,
            requisites: Requisites::Burst,
        }
    }
}

/// The delay in force at a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delay {
    /// From start to start.
    pub gap: Duration,
    /// Whether the host asked for more than `max_delay`.
    pub capped: bool,
}

impl Settings {
    /// The delay in force where robots.txt asks for `crawl_delay`: at least `min_delay`, at most `max_delay`.
    pub fn delay(&self, crawl_delay: Option<Duration>) -> Delay {
        let wanted = crawl_delay.unwrap_or(self.default_delay);
        let gap = wanted.min(self.max_delay).max(self.min_delay);
        Delay { gap, capped: crawl_delay.is_some_and(|delay| delay > gap) }
    }
}

impl Settings {
    /// How long a request can wait: `max_wait`, less for a browser's navigation, and less where the client says so.
    pub fn patience(&self, hints: &Hints<'_>) -> Duration {
        let by_kind = match hints.is_browsers_navigation() {
            true => self.max_wait.min(self.navigation_wait),
            false => self.max_wait,
        };
        hints.preferred_wait.map_or(by_kind, |preferred| by_kind.min(preferred))
    }
}

/// The instant at which the next request may start: a gap after the previous one, and not while the host is held.
pub fn next_slot(previous_start: Option<Instant>, gap: Duration, held_until: Option<Instant>, now: Instant) -> Instant {
    let slot = previous_start.map_or(now, |start| (start + gap).max(now));
    held_until.map_or(slot, |until| slot.max(until))
}

/// `Retry-After` for a request that would wait for `wait`, where `refused` others were refused since the last start: each comes
/// back a gap later than the one before, so that they do not all come back together, but none is sent away for longer than five
/// times `max_wait` on their account.
pub fn staggered(wait: Duration, refused: u32, gap: Duration, max_wait: Duration) -> Duration {
    wait.saturating_add(gap.saturating_mul(refused)).min(max_wait.saturating_mul(5)).max(wait)
}

/// The latest instant at which the origin saw a request that started at `start` and whose answer's head came at `answered`. It was
/// written a moment after its start and travelled, and the next one may be quicker: that is made up for, so that no gap is shorter
/// at the origin than it is here. What takes longer than a way can is a slow server, and the gap does not wait for that.
pub fn seen_by_origin(start: Instant, answered: Instant, gap: Duration) -> Instant {
    answered.min(start + (gap / TRAVEL_SHARE).max(TRAVEL_MIN))
}

/// One part in twenty, chosen: a quarter of a second for a Crawl-delay of five, more than any round trip.
const TRAVEL_SHARE: u32 = 20;

/// Chosen: with short delays it is a busy machine rather than the network that is late. Measured on one with four times as much to do
/// as it has processors: up to 80 ms.
const TRAVEL_MIN: Duration = Duration::from_millis(100);

/// `Retry-After` of a wait: whole seconds, rounded up, at least one (RFC 9110 §10.2.3).
pub fn retry_after_seconds(wait: Duration) -> u64 {
    (wait.as_secs() + u64::from(wait.subsec_nanos() > 0)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_delay_in_force_is_bounded_on_both_sides() {
        let settings = Settings {
            min_delay: SECOND / 2,
            max_delay: 10 * SECOND,
            default_delay: 2 * SECOND,
            ..Settings::default()
        };
        for (asked, gap, capped) in [
            (None, 2.0, false),
            (Some(0.0), 0.5, false),
            (Some(0.2), 0.5, false),
            (Some(7.5), 7.5, false),
            (Some(10.0), 10.0, false),
            (Some(10.1), 10.0, true),
        ] {
            let delay = settings.delay(asked.map(Duration::from_secs_f64));
            assert_eq!((delay.gap, delay.capped), (Duration::from_secs_f64(gap), capped), "{asked:?}");
        }
    }

    #[test]
    fn a_wait_is_rounded_up_to_whole_seconds() {
        for (wait, seconds) in [(0.0, 1), (0.2, 1), (1.0, 1), (1.001, 2), (300.0, 300)] {
            assert_eq!(retry_after_seconds(Duration::from_secs_f64(wait)), seconds, "{wait}");
        }
    }

    #[test]
    fn who_is_refused_later_comes_back_later() {
        for (wait, refused, expected) in [(10, 0, 10), (10, 1, 12), (10, 3, 16), (10, 1000, 600), (3600, 1, 3600)] {
            let wait = staggered(wait * SECOND, refused, 2 * SECOND, 120 * SECOND);
            assert_eq!(wait.as_secs(), expected, "{wait:?} {refused}");
        }
    }

    #[test]
    fn rfc7240_4_3_prefer_wait_lowers_the_patience() {
        let patience = |fields: &[(&'static str, &str)]| {
            let fields =
                fields.iter().map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap()));
            Settings::default().patience(&Hints::of(&fields.collect())).as_secs()
        };
        for (prefer, expected) in [
            ("wait=10", 10),
            ("WAIT = \"10\"", 10),
            ("respond-async, wait=0", 0),
            ("wait=10; foo=bar", 10),
            ("wait=10, wait=20", 10),
            ("wait=500", 120),
            ("wait=99999999999999999999999", 120),
            ("wait=ten", 120),
            ("wait=-1", 120),
            ("wait=1.5", 120),
            ("wait", 120),
            ("wait=", 120),
            ("handling=lenient", 120),
        ] {
            assert_eq!(patience(&[("prefer", prefer)]), expected, "{prefer}");
        }
        assert_eq!(patience(&[("prefer", "return=minimal"), ("prefer", "wait=7")]), 7);
        assert_eq!(patience(&[("sec-fetch-mode", "navigate")]), 25);
        assert_eq!(patience(&[("sec-fetch-mode", "navigate"), ("prefer", "wait=60")]), 25);
    }

    #[test]
    fn the_way_to_the_origin_counts_up_to_a_share_of_the_gap() {
        let start = crate::clock::now();
        for (gap, answered, seen) in [(1, 0, 0), (1, 40, 40), (1, 8000, 100), (5, 200, 200), (5, 8000, 250)] {
            let answered = start + Duration::from_millis(answered);
            assert_eq!(seen_by_origin(start, answered, gap * SECOND), start + Duration::from_millis(seen));
        }
    }

    proptest! {
        #[test]
        fn a_slot_is_never_past_nor_closer_than_the_gap_nor_held(idle in 0u64..100_000, gap in 0u64..100_000, held in 0u64..200_000) {
            let start = crate::clock::now();
            let [now, gap_end, held] = [idle, gap, held].map(|millis| start + Duration::from_millis(millis));
            let slot = next_slot(Some(start), gap_end - start, Some(held), now);
            prop_assert_eq!(slot, now.max(gap_end).max(held));
        }
    }
}
