//! What became of the requests of a run, in a few lines.
//!
//! Counted as requests end, whether they are recorded or not. A crawl may meet any number of rules, so only so many are told apart.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::audit::Ended;
use crate::policy::reason::Reason;

/// The count of a run.
#[derive(Debug, Default)]
pub(super) struct Tally(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    allowed: u64,
    refused: u64,
    observed: u64,
    failed: u64,
    waits: u64,
    waited: Duration,
    longest: Duration,
    /// Why requests were refused or failed, or would have been refused; how often, and for one of them the URL.
    causes: HashMap<String, (u64, String)>,
}

/// A shorter wait would be shown as 0.0 s.
const A_WAIT: Duration = Duration::from_millis(50);

/// Causes that are told apart. Chosen; far more than anybody reads.
const CAUSES_MAX: usize = 1000;

/// Causes that are shown.
const SHOWN: usize = 5;

impl Tally {
    /// Counts a request that has ended.
    pub(super) fn count(&self, ended: &Ended<'_>) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match ended.decision {
            "allow" => counts.allowed += 1,
            "refuse" => counts.refused += 1,
            "observe" => counts.observed += 1,
            _ => counts.failed += 1,
        }
        if let Some(waited) = ended.waited.filter(|waited| *waited >= A_WAIT) {
            counts.waits += 1;
            counts.waited += waited;
            counts.longest = counts.longest.max(waited);
        }
        if ended.decision != "allow" {
            let (cause, room) = (cause(ended), counts.causes.len() < CAUSES_MAX);
            match counts.causes.get_mut(&cause) {
                Some((number, _)) => *number += 1,
                None if room => drop(counts.causes.insert(cause, (1, ended.url.to_owned()))),
                None => {}
            }
        }
    }

    /// All requests so far.
    pub(super) fn requests(&self) -> u64 {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.allowed + counts.refused + counts.observed + counts.failed
    }

    /// The lines; none where nothing was asked for.
    pub(super) fn summary(&self, run: &str, audit: Option<&Path>) -> String {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lines = String::new();
        let numbers: Vec<String> = [
            (counts.allowed, "allowed"),
            (counts.refused, "refused"),
            (counts.observed, "let pass that would be refused"),
            (counts.failed, "failed"),
        ]
        .iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, what)| format!("{number} {what}"))
        .collect();
        if numbers.is_empty() {
            return lines;
        }
        let _ = write!(lines, "robots-proxy: {}", numbers.join(", "));
        if counts.waits > 0 {
            let (waits, waited, longest) = (counts.waits, counts.waited.as_secs_f64(), counts.longest.as_secs_f64());
            let _ = write!(lines, "; {waits} waited for their turn, {waited:.1} s in all, {longest:.1} s at most");
        }
        lines.push('\n');
        let mut causes: Vec<_> = counts.causes.iter().collect();
        causes.sort_by_key(|(cause, (number, _))| (std::cmp::Reverse(*number), *cause));
        for (cause, (number, url)) in causes.iter().take(SHOWN) {
            let _ = writeln!(lines, "  {number} × {cause}, such as {url}");
        }
        if causes.len() > SHOWN {
            let _ = writeln!(lines, "  and {} other reasons", causes.len() - SHOWN);
        }
        if let (Some(audit), false) = (audit, causes.is_empty()) {
            let _ = writeln!(lines, "  records: {}, user {run}", audit.display());
        }
        lines
    }
}

/// The deciding rule, or else the reason.
fn cause(ended: &Ended<'_>) -> String {
    match (ended.rule, ended.line, ended.robots_url, ended.agent) {
        (Some(rule), Some(line), Some(robots), agent) if ended.reason == Reason::Disallowed => {
            format!("{rule} (line {line} of {robots}) for {}", agent.unwrap_or("*"))
        }
        _ => format!("{} ({})", ended.reason.title(), ended.reason.code()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(decision: &'static str, reason: Reason, url: &'static str) -> Ended<'static> {
        Ended { decision, reason, url, agent: Some("NimbuBot"), rule: None, line: None, robots_url: None, waited: None }
    }

    #[test]
    fn the_summary_tells_pages_refusals_with_rule_and_line_and_waits() {
        let tally = Tally::default();
        assert_eq!((tally.summary("run-1", None), tally.requests()), (String::new(), 0));
        for waited in [0, 2500, 1500] {
            let waited = Some(Duration::from_millis(waited));
            tally.count(&Ended { waited, ..ended("allow", Reason::Allowed, "https://shop.test/") });
        }
        let rule = Ended {
            rule: Some("Disallow: /prices/"),
            line: Some(10),
            robots_url: Some("https://shop.test/robots.txt"),
            ..ended("refuse", Reason::Disallowed, "https://shop.test/prices/1")
        };
        tally.count(&rule);
        tally.count(&rule);
        // The rule that allowed it has nothing to do with why it failed.
        tally.count(&Ended {
            decision: "error",
            reason: Reason::UpstreamRefused,
            url: "https://shop.test/open",
            ..rule
        });
        assert_eq!(tally.requests(), 6);
        assert_eq!(
            tally.summary("run-1", Some(Path::new("/log/audit.jsonl"))),
            "robots-proxy: 3 allowed, 2 refused, 1 failed; 2 waited for their turn, 4.0 s in all, 2.5 s at most\n  \
             2 × Disallow: /prices/ (line 10 of https://shop.test/robots.txt) for NimbuBot, such as https://shop.test/prices/1\n  \
             1 × The host refuses connections (upstream-refused), such as https://shop.test/open\n  \
             records: /log/audit.jsonl, user run-1\n"
        );
    }

    #[test]
    fn causes_are_bounded_and_the_most_frequent_are_shown() {
        let tally = Tally::default();
        let rules: Vec<String> = (0..2 * CAUSES_MAX).map(|number| format!("Disallow: /{number}")).collect();
        for rule in &rules {
            let line = (Some(rule.as_str()), Some(1), Some("https://shop.test/robots.txt"));
            let (rule, line, robots_url) = line;
            tally.count(&Ended {
                rule,
                line,
                robots_url,
                ..ended("observe", Reason::Disallowed, "https://shop.test/x")
            });
        }
        assert_eq!(tally.0.lock().unwrap().causes.len(), CAUSES_MAX);
        let summary = tally.summary("run-1", None);
        assert!(summary.starts_with("robots-proxy: 2000 let pass that would be refused\n"), "{summary}");
        assert_eq!(summary.lines().count(), 1 + SHOWN + 1, "{summary}");
    }
}
