//! What is counted for Prometheus, as handles that the counting parts own.
//!
//! A part counts where the thing happens and knows nothing of a registry; [`crate::admin`] puts the handles together when somebody
//! asks. Labels are words of the code alone, never of a request, so that no client can make the set grow. A gauge of things that are
//! open goes down when a value is dropped, since clients hang up anywhere.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;

/// What a request came to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Ending {
    /// `allow`, `refuse`, `observe` or `error`, as in its record.
    pub decision: &'static str,
    /// The code of its reason.
    pub reason: &'static str,
}

/// What a request for robots.txt came to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Outcome {
    /// `rules`, `no-rules`, `not-modified`, or the reason for which nothing may be fetched then.
    pub outcome: &'static str,
}

/// Requests by what they came to.
pub type Requests = Family<Ending, Counter>;

/// Requests for robots.txt by what they came to.
pub type Fetches = Family<Outcome, Counter>;

/// Durations.
#[derive(Clone)]
pub struct Seconds(pub Histogram);

/// From what nobody notices, over common Crawl-delays, to `pace.max_wait` and beyond. Chosen; nothing depends on it.
const BOUNDS: [f64; 14] = [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0];

impl Default for Seconds {
    fn default() -> Seconds {
        Seconds(Histogram::new(BOUNDS))
    }
}

impl fmt::Debug for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seconds")
    }
}

impl Seconds {
    /// Counts a duration.
    pub fn took(&self, duration: Duration) {
        self.0.observe(duration.as_secs_f64());
    }
}

/// How many of a thing are open.
#[derive(Clone, Debug, Default)]
pub struct Open(Arc<AtomicU64>);

impl Open {
    /// Counts one for as long as the value lives.
    pub fn one(&self) -> OneOpen {
        self.0.fetch_add(1, Ordering::Relaxed);
        OneOpen(Arc::clone(&self.0))
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// An open thing, counted until it is dropped.
#[derive(Debug)]
pub struct OneOpen(Arc<AtomicU64>);

impl Drop for OneOpen {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_open_is_counted_until_it_is_dropped() {
        let open = Open::default();
        let (one, other) = (open.one(), open.clone().one());
        assert_eq!(open.count(), 2);
        drop(one);
        assert_eq!(open.count(), 1);
        drop(other);
        assert_eq!(open.count(), 0);
    }
}
