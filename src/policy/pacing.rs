//! The arithmetic of starts.
//!
//! A host with a Crawl-delay is asked at most once per delay, counted from start to start as the origin sees it. That is GCRA with
//! a burst of one: all that must be known is when the previous request started. Nothing is reserved for a request that still waits,
//! so one that leaves costs nobody anything. Pure: every function takes `now`.

use std::time::{Duration, Instant};

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
    /// Whether the next start may come before the head of the previous answer.
    pub overlap: bool,
    /// Waiting requests per line; one more is refused.
    pub max_queue: usize,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            default_delay: Duration::ZERO,
            min_delay: Duration::ZERO,
            max_delay: Duration::from_secs(60),
            max_wait: Duration::from_secs(120),
            overlap: false,
            max_queue: 1000,
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

/// The instant at which the next request may start.
pub fn next_slot(previous_start: Option<Instant>, gap: Duration, now: Instant) -> Instant {
    previous_start.map_or(now, |start| (start + gap).max(now))
}

/// How long a request would wait that finds `ahead` others in front of it.
pub fn predicted_wait(previous_start: Option<Instant>, gap: Duration, ahead: usize, now: Instant) -> Duration {
    let ahead = u32::try_from(ahead).unwrap_or(u32::MAX);
    next_slot(previous_start, gap, now).duration_since(now).saturating_add(gap.saturating_mul(ahead))
}

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

    proptest! {
        #[test]
        fn a_slot_is_never_in_the_past_nor_closer_than_the_gap(idle in 0u64..100_000, gap in 0u64..100_000, ahead in 0usize..2000) {
            let start = crate::clock::now();
            let (now, gap) = (start + Duration::from_millis(idle), Duration::from_millis(gap));
            let slot = next_slot(Some(start), gap, now);
            prop_assert!(slot >= now && slot >= start + gap);
            prop_assert_eq!(predicted_wait(Some(start), gap, ahead, now), slot - now + gap * ahead as u32);
        }
    }
}
