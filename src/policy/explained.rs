//! A decision with its grounds, as programs read it: `check --json` and the JSON API tell the same in the same words.

use serde::Serialize;

use super::decision::Decision;
use super::standing::{Effect, Standing};
use crate::robots::{Group, RobotsTxt, Rule};

/// A decision about a URL, explained.
#[derive(Debug, Serialize)]
pub struct Explained<'a> {
    url: &'a str,
    agent: &'a str,
    allow: bool,
    reason: &'static str,
    group: Option<&'a str>,
    rule: Option<String>,
    line: Option<u32>,
    crawl_delay_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exception: Option<&'a str>,
    robots: &'a str,
    remarks: &'a [String],
    sitemaps: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    matching: Option<Vec<Matching>>,
}

/// A rule that matches.
#[derive(Debug, Serialize)]
struct Matching {
    group: String,
    rule: String,
    line: u32,
}

/// What is told of a file, whatever is asked about.
#[derive(Debug, Default)]
pub struct FileNotes {
    /// Lines that were not used as written.
    pub remarks: Vec<String>,
    /// The sitemaps that it names.
    pub sitemaps: Vec<String>,
}

impl FileNotes {
    /// Of the file that a standing rests on; empty where there are no rules.
    pub fn of(standing: &Standing) -> FileNotes {
        let Some(robots) = rules(standing) else { return FileNotes::default() };
        FileNotes {
            remarks: robots.remarks().iter().map(ToString::to_string).collect(),
            sitemaps: robots.sitemaps().map(str::to_owned).collect(),
        }
    }
}

/// The rules of a standing, where there are any.
pub fn rules(standing: &Standing) -> Option<&RobotsTxt> {
    match &standing.effect {
        Effect::Rules(robots) => Some(robots),
        Effect::NoRules | Effect::DisallowAll(_) => None,
    }
}

impl<'a> Explained<'a> {
    /// Explains a decision.
    pub fn new(
        url: &'a str,
        agent: &'a str,
        decision: &'a Decision,
        standing: &'a Standing,
        notes: &'a FileNotes,
    ) -> Explained<'a> {
        Explained {
            url,
            agent,
            allow: decision.reason.allows(),
            reason: decision.reason.code(),
            group: decision.group(),
            rule: decision.rule().map(|rule| rule.to_string()),
            line: decision.rule().map(|rule| rule.line),
            crawl_delay_s: decision.crawl_delay.map(|delay| delay.as_secs_f64()),
            exception: None,
            robots: &standing.evidence.robots_url,
            remarks: &notes.remarks,
            sitemaps: &notes.sitemaps,
            matching: None,
        }
    }

    /// With the reason for which the proxy lets the bot through, whatever robots.txt says.
    pub fn excepted(mut self, exception: Option<&'a str>) -> Explained<'a> {
        self.exception = exception;
        self
    }

    /// With every rule that matches the path as sent, the strongest first.
    pub fn with_matching(mut self, path: &[u8], standing: &Standing) -> Explained<'a> {
        let told = |(group, rule): &(Group<'_>, Rule<'_>)| Matching {
            group: group.to_string(),
            rule: rule.to_string(),
            line: rule.line,
        };
        let matching = rules(standing).map(|robots| robots.matching(self.agent, path)).unwrap_or_default();
        self.matching = Some(matching.iter().map(told).collect());
        self
    }
}
