//! Which hosts are held. Nearly every answer asks for nothing and finds nothing here, so that one is a look into a small table.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use crate::policy::hold::{Hold, Sign};
use crate::policy::target::Host;

#[derive(Debug, Default)]
pub(super) struct Holds {
    by_host: HashMap<Host, Hold>,
    /// The number of hosts at which forgiven ones are looked for: twice what was left the last time.
    sweep_at: usize,
}

/// Fewer hosts than this are not worth a search for forgiven ones.
const SWEEP_MIN: usize = 64;

impl Holds {
    /// Whether no host has asked for less lately.
    pub(super) fn is_empty(&self) -> bool {
        self.by_host.is_empty()
    }

    /// Whether a host has asked for less lately. One that has not needs neither a clock nor a place here.
    pub(super) fn knows(&self, host: &Host) -> bool {
        self.by_host.contains_key(host)
    }

    /// Takes in the head of an answer. Returns the hold where those who wait should look again.
    pub(super) fn answered(
        &mut self,
        host: &Host,
        sign: Option<Sign>,
        started: Instant,
        now: Instant,
        longest: Duration,
    ) -> Option<(Instant, Sign)> {
        self.sweep(now);
        let hold = self.by_host.entry(host.clone()).or_default();
        let news = hold.answered(sign, started, now, longest, chance());
        hold.until_after(now).filter(|_| news)
    }

    /// The hold on a host.
    pub(super) fn in_force(&self, host: &Host, now: Instant) -> Option<(Instant, Sign)> {
        self.by_host.get(host).and_then(|hold| hold.until_after(now))
    }

    pub(super) fn until(&self, host: &Host, now: Instant) -> Option<Instant> {
        self.in_force(host, now).map(|(until, _)| until)
    }

    /// Whether nothing was answered well since the last hold on the host.
    pub(super) fn is_untried(&self, host: &Host) -> bool {
        self.by_host.get(host).is_some_and(Hold::is_untried)
    }

    /// All that are in force.
    pub(super) fn all(&self, now: Instant) -> impl Iterator<Item = (&Host, Instant, Sign)> {
        self.by_host.iter().filter_map(move |(host, hold)| {
            let (until, sign) = hold.until_after(now)?;
            Some((host, until, sign))
        })
    }

    /// A hold from before a restart.
    pub(super) fn resume(&mut self, host: Host, until: Instant, sign: Sign) {
        self.by_host.insert(host, Hold::resumed(until, sign));
    }

    fn sweep(&mut self, now: Instant) {
        if self.by_host.len() >= self.sweep_at.max(SWEEP_MIN) {
            self.by_host.retain(|_, hold| !hold.is_forgiven_at(now));
            self.sweep_at = 2 * self.by_host.len();
        }
    }

    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.by_host.len()
    }
}

/// Between −1 and 1. Nothing secret depends on it, so the seed of a hash map will do.
fn chance() -> f32 {
    let random = RandomState::new().hash_one(());
    (random % 2001) as f32 / 1000.0 - 1.0
}
