//! The latest records, for who looks at the proxy while it works.
//!
//! A ring of what ended last, recorded or not, numbered so that a reader who comes back goes on where it was. Readers wait for a
//! number and then read the ring: a slow one misses what has left it, and holds up nobody. The ring is bounded in records and in
//! octets, because a URL may be as long as a request head.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::Ended;

/// Records kept. Chosen: what a person scrolls through, and minutes of a busy proxy's refusals.
const RECORDS_MAX: usize = 1000;

/// Octets kept: a thousand records of the usual 1 KiB, and room for long URLs.
const OCTETS_MAX: usize = 4 << 20;

/// A record as it is shown.
#[derive(Debug)]
pub struct Shown {
    /// Its number, counted from 1 since the start.
    pub number: u64,
    /// `allow`, `refuse`, `observe` or `error`.
    pub decision: &'static str,
    /// The code of its reason.
    pub reason: &'static str,
    /// The bot.
    pub agent: Option<String>,
    /// The host that was asked for; what the request line held where that is no URL.
    pub host: String,
    /// The record, as in the log.
    pub json: String,
}

/// The ring.
#[derive(Debug)]
pub struct Feed {
    ring: Mutex<Ring>,
    latest: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Ring {
    shown: VecDeque<Arc<Shown>>,
    octets: usize,
    number: u64,
}

impl Default for Feed {
    fn default() -> Feed {
        Feed { ring: Mutex::default(), latest: watch::Sender::new(0) }
    }
}

impl Feed {
    /// Takes a record in.
    pub(super) fn push(&self, ended: &Ended<'_>, json: String) {
        let mut ring = self.lock();
        ring.number += 1;
        let number = ring.number;
        ring.octets += json.len();
        ring.shown.push_back(Arc::new(Shown {
            number,
            decision: ended.decision,
            reason: ended.reason.code(),
            agent: ended.agent.map(str::to_owned),
            host: host_of(ended.url).to_owned(),
            json,
        }));
        while ring.shown.len() > RECORDS_MAX || ring.octets > OCTETS_MAX && ring.shown.len() > 1 {
            let gone = ring.shown.pop_front().map_or(0, |shown| shown.json.len());
            ring.octets -= gone;
        }
        // Under the lock, so that numbers come in order.
        self.latest.send_replace(number);
    }

    /// What is kept of the records after a number, the oldest first.
    pub fn after(&self, number: u64) -> Vec<Arc<Shown>> {
        let ring = self.lock();
        let first = ring.shown.partition_point(|shown| shown.number <= number);
        ring.shown.range(first..).cloned().collect()
    }

    /// Follows the number of the latest record.
    pub fn follow(&self) -> watch::Receiver<u64> {
        self.latest.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The host in the URL of a record, or in the target of a CONNECT.
fn host_of(url: &str) -> &str {
    let authority = url.split_once("://").map_or(url, |(_, rest)| rest).split(['/', '?']).next().unwrap_or_default();
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|octet| octet.is_ascii_digit()) => host,
        _ => authority,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::reason::Reason;

    fn push(feed: &Feed, json: String) {
        let ended = Ended {
            decision: "refuse",
            reason: Reason::Disallowed,
            url: "https://a.test/",
            agent: None,
            rule: None,
            line: None,
            robots_url: None,
            waited: None,
        };
        feed.push(&ended, json);
    }

    #[test]
    fn the_latest_are_kept_and_the_oldest_go() {
        let feed = Feed::default();
        (0..RECORDS_MAX + 5).for_each(|number| push(&feed, number.to_string()));
        let kept = feed.after(0);
        assert_eq!((kept.len(), kept[0].number, kept[0].json.as_str()), (RECORDS_MAX, 6, "5"));
        assert_eq!(*feed.follow().borrow(), RECORDS_MAX as u64 + 5);
        assert_eq!(feed.after(RECORDS_MAX as u64 + 3).len(), 2);
        assert!(feed.after(RECORDS_MAX as u64 + 5).is_empty());
    }

    #[test]
    fn long_records_leave_room_for_fewer() {
        let feed = Feed::default();
        (0..20).for_each(|_| push(&feed, "x".repeat(OCTETS_MAX / 4)));
        assert_eq!(feed.after(0).len(), 4);
        push(&feed, "x".repeat(2 * OCTETS_MAX));
        assert_eq!(feed.after(0).len(), 1, "the latest is always kept");
        push(&feed, "short".into());
        assert_eq!(feed.after(0)[0].json, "short");
    }

    #[test]
    fn hosts_are_found_in_urls_and_in_targets_of_connect() {
        for (url, host) in [
            ("https://a.test/x?y", "a.test"),
            ("http://a.test:8080/", "a.test"),
            ("https://[::1]:8443/", "[::1]"),
            ("https://[::1]/", "[::1]"),
            ("a.test:443", "a.test"),
            ("/only/a/path", ""),
            ("", ""),
        ] {
            assert_eq!(host_of(url), host, "{url}");
        }
    }
}
