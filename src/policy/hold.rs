//! When a site says that it has had enough: holds.
//!
//! 429, and 503 with `Retry-After`, are about the client's address and not about one URL, so they hold the whole host, for every
//! bot. Many requests are under way when a site begins to say so, and all of them are answered alike: whatever started before the
//! hold's end is one burst and counts once, or the pause would double with each of them. A hold never ends earlier than was said
//! before. Without `Retry-After` the pauses grow from 10 s, and a site that was quiet for half an hour begins anew. Pure.

use std::fmt;
use std::time::{Duration, Instant, SystemTime};

use http::{HeaderMap, StatusCode};

use crate::robots::status::retry_after;

/// An answer that asks for less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Sign {
    status: u16,
    retry_after: Option<Duration>,
}

impl Sign {
    /// Reads it from the head of an answer; `None` where the answer asks for nothing. `wall` tells the time that stands in for a missing
    /// Date.
    pub fn read(status: StatusCode, headers: &HeaderMap, wall: impl FnOnce() -> SystemTime) -> Option<Sign> {
        // RFC 6585 §4 and RFC 9110 §15.6.4; other errors say nothing about the number of requests.
        matches!(status.as_u16(), 429 | 503)
            .then(|| Sign { status: status.as_u16(), retry_after: retry_after(headers, wall()) })
    }
}

impl fmt::Display for Sign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.retry_after {
            Some(asked) => write!(f, "{} with Retry-After ({} s)", self.status, asked.as_secs()),
            None => write!(f, "{} without Retry-After", self.status),
        }
    }
}

/// What a host's answers have asked for. The default is a host that nobody has complained at.
#[derive(Clone, Debug, Default)]
pub struct Hold {
    until: Option<Instant>,
    /// The sign that `until` comes from.
    sign: Option<Sign>,
    /// Holds without Retry-After so far; each is twice as long as the one before.
    grown: u32,
    /// 503 without Retry-After in a row.
    unavailable: u32,
    /// Nothing has been answered well since the hold.
    untried: bool,
}

/// The first hold that the site gave no length for.
const FIRST: Duration = Duration::from_secs(10);

/// A 503 is often a restart that is over at once; this many in a row are not.
const UNAVAILABLE_MAX: u32 = 3;

/// A host that was quiet for so long begins with [`FIRST`] again.
const FORGIVEN_AFTER: Duration = Duration::from_secs(30 * 60);

/// A hold that moves by less is no news to those who wait.
const NEWS: Duration = Duration::from_secs(1);

impl Hold {
    /// One that was in force before a restart.
    pub fn resumed(until: Instant, sign: Sign) -> Hold {
        Hold { until: Some(until), sign: Some(sign), untried: true, ..Hold::default() }
    }

    /// Takes in the answer to a request that started at `started`. `longest` is the longest hold; `jitter`, between −1 and 1, spreads
    /// the holds whose length is our own by 10 %, so that several proxies do not come back together. Returns whether those who
    /// wait should look again.
    pub fn answered(
        &mut self,
        sign: Option<Sign>,
        started: Instant,
        now: Instant,
        longest: Duration,
        jitter: f32,
    ) -> bool {
        if self.is_forgiven_at(now) {
            *self = Hold::default();
        }
        let in_burst = self.until.is_some_and(|until| started < until);
        let Some(sign) = sign else {
            if !in_burst {
                self.unavailable = 0;
                self.untried = false;
            }
            return false;
        };
        let length = match sign.retry_after {
            Some(asked) => asked,
            None if in_burst => return false,
            None => match self.own_length(sign.status) {
                Some(length) => length.mul_f32(1.0 + 0.1 * jitter),
                None => return false,
            },
        };
        let until = now + length.min(longest);
        let news = self.until.is_none_or(|old| old < now || until > old + NEWS);
        if self.until.is_none_or(|old| until > old) {
            self.until = Some(until);
            self.sign = Some(sign);
        }
        self.untried = true;
        news
    }

    /// The length of a hold that the site gave none for; `None` where it is too early for one.
    fn own_length(&mut self, status: u16) -> Option<Duration> {
        if status == 503 {
            self.unavailable = self.unavailable.saturating_add(1);
            if self.unavailable < UNAVAILABLE_MAX {
                return None;
            }
        }
        let length = FIRST.saturating_mul(2u32.saturating_pow(self.grown));
        self.grown = self.grown.saturating_add(1);
        Some(length)
    }

    /// Until when nothing may start, and why; `None` where it may.
    pub fn until_after(&self, now: Instant) -> Option<(Instant, Sign)> {
        self.until.filter(|until| *until > now).zip(self.sign)
    }

    /// Whether the next request is the one that tries whether the site has had enough: it goes alone.
    pub fn is_untried(&self) -> bool {
        self.untried
    }

    /// Whether there is nothing left to remember.
    pub fn is_forgiven_at(&self, now: Instant) -> bool {
        match self.until {
            Some(until) => now >= until + FORGIVEN_AFTER,
            None => self.unavailable == 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const HOUR: Duration = Duration::from_secs(3600);

    fn sign(status: u16, seconds: Option<u32>) -> Option<Sign> {
        Some(Sign { status, retry_after: seconds.map(|seconds| seconds * SECOND) })
    }

    /// The length of the hold after each answer, in seconds; `(sign, started, answered)`.
    fn holds(answers: &[(Option<Sign>, u32, u32)]) -> Vec<u64> {
        let (mut hold, zero) = (Hold::default(), crate::clock::now());
        answers
            .iter()
            .map(|(sign, started, answered)| {
                let now = zero + *answered * SECOND;
                hold.answered(*sign, zero + *started * SECOND, now, HOUR, 0.0);
                hold.until_after(now).map_or(0, |(until, _)| (until - now).as_secs())
            })
            .collect()
    }

    #[test]
    fn an_answer_holds_the_host_for_as_long_as_it_says() {
        let (busy, fine) = (|seconds| sign(429, seconds), None);
        let none = || sign(503, None);
        let cases = [
            (vec![(fine, 0, 1)], vec![0], "a good answer"),
            (vec![(busy(Some(2)), 0, 1)], vec![2], "429"),
            (vec![(sign(503, Some(7)), 0, 1)], vec![7], "503 with Retry-After"),
            (vec![(busy(Some(7200)), 0, 1)], vec![3600], "hold_max"),
            (vec![(busy(Some(60)), 0, 1), (busy(Some(2)), 0, 2)], vec![60, 59], "never backwards"),
            (vec![(busy(Some(2)), 0, 1), (busy(Some(60)), 0, 2)], vec![2, 60], "the longer one of a burst"),
            (vec![(busy(None), 0, 1), (busy(None), 0, 1), (busy(None), 0, 2)], vec![10, 10, 9], "a burst counts once"),
            (vec![(busy(None), 0, 0), (busy(None), 10, 10), (busy(None), 30, 30)], vec![10, 20, 40], "doubling"),
            (
                vec![(busy(None), 0, 0), (fine, 10, 10), (busy(None), 11, 11)],
                vec![10, 0, 20],
                "success forgives nothing",
            ),
            (vec![(busy(None), 0, 0), (busy(None), 1810, 1810)], vec![10, 10], "half an hour does"),
            (vec![(busy(None), 0, 0), (busy(None), 1809, 1809)], vec![10, 20], "and not less"),
            (vec![(none(), 0, 0), (none(), 1, 1), (none(), 2, 2), (none(), 12, 12)], vec![0, 0, 10, 20], "503 thrice"),
            (vec![(none(), 0, 0), (none(), 1, 1), (fine, 2, 2), (none(), 3, 3)], vec![0, 0, 0, 0], "not in a row"),
        ];
        for (answers, expected, shows) in cases {
            assert_eq!(holds(&answers), expected, "{shows}");
        }
    }

    #[test]
    fn lengths_of_our_own_are_spread_and_those_of_the_site_are_not() {
        let now = crate::clock::now();
        for (status, seconds, jitter, expected) in
            [(429, None, 1.0, 11.0), (429, None, -1.0, 9.0), (429, Some(10), 1.0, 10.0)]
        {
            let mut hold = Hold::default();
            assert!(hold.answered(sign(status, seconds), now, now, HOUR, jitter));
            assert_eq!(hold.until_after(now).unwrap().0, now + Duration::from_secs_f32(expected));
        }
    }

    #[test]
    fn the_first_request_after_a_hold_tries() {
        let (mut hold, now) = (Hold::default(), crate::clock::now());
        hold.answered(sign(429, Some(5)), now, now, HOUR, 0.0);
        hold.answered(None, now, now + SECOND, HOUR, 0.0);
        assert!(hold.is_untried(), "an answer to what started before the hold tells nothing");
        hold.answered(None, now + 5 * SECOND, now + 6 * SECOND, HOUR, 0.0);
        assert!(!hold.is_untried());
    }

    #[test]
    fn a_sign_is_429_or_503_and_malformed_lengths_are_none() {
        let wall = httpdate::parse_http_date("Mon, 30 Nov 2026 10:00:00 GMT").unwrap();
        let read = |status: u16, fields: &[(&'static str, &str)]| {
            let headers =
                fields.iter().map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap()));
            Sign::read(StatusCode::from_u16(status).unwrap(), &headers.collect(), || wall)
        };
        let (date, at) = (("date", "Mon, 30 Nov 2026 09:00:00 GMT"), "Mon, 30 Nov 2026 09:00:42 GMT");
        for (status, fields, expected) in [
            (200, &[("retry-after", "5")][..], None),
            (500, &[("retry-after", "5")], None),
            (502, &[], None),
            (429, &[], sign(429, None)),
            (429, &[("retry-after", "5")], sign(429, Some(5))),
            (503, &[("retry-after", at), date], sign(503, Some(42))),
            (429, &[("retry-after", at)], sign(429, None)),
            (429, &[("retry-after", "-5")], sign(429, None)),
            (429, &[("retry-after", "soon")], sign(429, None)),
        ] {
            assert_eq!(read(status, fields), expected, "{status} {fields:?}");
        }
    }
}
