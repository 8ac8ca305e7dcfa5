//! Which records are meant.

use std::str::FromStr;
use std::time::SystemTime;

use clap::{Args, ValueEnum};
use time::format_description::well_known::Rfc3339;

use super::record::Record;
use crate::clock;
use crate::policy::host::HostPattern;

#[derive(Clone, Debug, Default, PartialEq, Args)]
#[command(next_help_heading = "Which records")]
pub(super) struct Filter {
    /// From this time on: 2026-11-30T18:00:00Z, 2026-11-30, or how long ago, such as 2h or 7d
    #[arg(long, value_name = "TIME")]
    since: Option<Bound>,
    /// Before this time
    #[arg(long, value_name = "TIME")]
    until: Option<Bound>,
    /// Of this host, or of those below a name: *.example.com
    #[arg(long, value_name = "HOST")]
    host: Option<HostPattern>,
    /// Of this bot; * is one that could not be told
    #[arg(long, value_name = "TOKEN")]
    agent: Option<String>,
    /// Of these decisions
    #[arg(long, value_name = "DECISION", value_delimiter = ',')]
    decision: Vec<Decision>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Decision {
    Allow,
    Refuse,
    Observe,
    Error,
}

impl Filter {
    pub(super) fn has_since(&self) -> bool {
        self.since.is_some()
    }

    pub(super) fn admits(&self, record: &Record<'_>) -> bool {
        let is_of =
            |decision: &Decision| decision.to_possible_value().is_some_and(|name| name.get_name() == record.decision);
        self.since.as_ref().is_none_or(|since| *record.time >= *since.0)
            && self.until.as_ref().is_none_or(|until| *record.time < *until.0)
            && self.host.as_ref().is_none_or(|host| host.matches(record.host()))
            && self.agent.as_ref().is_none_or(|agent| agent.eq_ignore_ascii_case(record.agent()))
            && (self.decision.is_empty() || self.decision.iter().any(is_of))
    }
}

/// A time as records have it, so that it can be compared with theirs as text.
#[derive(Clone, Debug, PartialEq)]
struct Bound(String);

impl FromStr for Bound {
    type Err = String;

    fn from_str(text: &str) -> Result<Bound, String> {
        Bound::read(text, clock::wall())
    }
}

impl Bound {
    fn read(text: &str, now: SystemTime) -> Result<Bound, String> {
        let bad = || format!("{text:?} is no time such as 2026-11-30T18:00:00Z, 2026-11-30, 2h or 7d");
        if let Ok(ago) = humantime::parse_duration(text) {
            return Ok(Bound(clock::rfc3339(now.checked_sub(ago).ok_or_else(bad)?)));
        }
        let whole = if text.len() == "2026-11-30".len() { format!("{text}T00:00:00Z") } else { text.to_owned() };
        let time = time::OffsetDateTime::parse(&whole, &Rfc3339).map_err(|_| bad())?;
        Ok(Bound(clock::rfc3339(time.into())))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn a_time_is_a_date_an_instant_or_how_long_ago() {
        let now = UNIX_EPOCH + Duration::from_secs(1_796_051_580);
        for (text, bound) in [
            ("2h", "2026-11-30T13:13:00.000Z"),
            ("1d 30m", "2026-11-29T14:43:00.000Z"),
            ("2026-11-30", "2026-11-30T00:00:00.000Z"),
            ("2026-11-30T18:00:00Z", "2026-11-30T18:00:00.000Z"),
            ("2026-11-30T18:00:00.5+02:00", "2026-11-30T16:00:00.500Z"),
        ] {
            assert_eq!(Bound::read(text, now).unwrap().0, bound);
        }
        for text in ["", "yesterday", "2026-13-01", "2h ago", "2026-11-30 18:00"] {
            assert!(Bound::read(text, now).is_err(), "{text}");
        }
    }
}
