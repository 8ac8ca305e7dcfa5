//! `audit replay`: decides every record again, from the very robots.txt it was decided by.
//!
//! The body is known by the SHA-256 in the record, so the outcome may only differ where the program has changed, the record, or both.

use std::collections::HashMap;
use std::io::{self, StdoutLock, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use super::super::{MISUSED, evidence};
use super::read::Logs;
use super::record::Record;
use crate::config::Loaded;
use crate::policy::decision;
use crate::policy::reason::Reason;
use crate::policy::typed;
use crate::robots::RobotsTxt;

#[derive(Debug, Args)]
pub(super) struct Replay {
    /// Logs, also compressed ones; default: the configuration's with its rotated files
    files: Vec<PathBuf>,
}

/// What a file of rules says: whether, by which rule, on which line.
type Outcome = (bool, Option<String>, Option<u32>);

/// Replays records, and counts what came of them.
struct Replaying {
    out: StdoutLock<'static>,
    bodies: evidence::Bodies,
    max_bytes: usize,
    /// Each file is parsed once; `None` where its body is kept no more.
    parsed: HashMap<String, Option<RobotsTxt>>,
    same: u64,
    differ: u64,
    without_body: u64,
    without_rules: u64,
}

pub(super) fn run(config: Option<&Path>, options: &Replay) -> anyhow::Result<ExitCode> {
    let settings = Loaded::load(config)?.settings();
    let logs = Logs::of(config, &options.files)?;
    let bar = logs.bar(true);
    let mut replaying = Replaying {
        out: io::stdout().lock(),
        bodies: evidence::Bodies::of(&settings.state_dir),
        max_bytes: settings.lookup.max_bytes,
        parsed: HashMap::new(),
        same: 0,
        differ: 0,
        without_body: 0,
        without_rules: 0,
    };
    logs.records(&bar, |record, _| replaying.record(record))?.tell();
    let Replaying { mut out, same, differ, without_body, without_rules, .. } = replaying;
    writeln!(
        out,
        "{same} decided alike, {differ} otherwise, {without_rules} without rules to decide by, {without_body} whose body is gone"
    )?;
    Ok(ExitCode::from(match () {
        () if without_body > 0 => MISUSED,
        () if differ > 0 => 1,
        () => 0,
    }))
}

impl Replaying {
    fn record(&mut self, recorded: Record<'_>) -> anyhow::Result<()> {
        let sha256 = recorded.robots.and_then(|robots| robots.sha256);
        // Rules may be about the query, so without it there is nothing to decide; and a CONNECT has no path.
        let path = typed::split(&recorded.url).ok().filter(|_| recorded.query.is_none()).map(|(_, path)| path);
        let (Some(sha256), Some(agent), Some(path)) = (sha256, recorded.agent, path) else {
            self.without_rules += 1;
            return Ok(());
        };
        let Some(robots) = self.robots(&sha256)? else {
            writeln!(self.out, "{} {}: the body {sha256} is kept no more", recorded.id, recorded.url)?;
            self.without_body += 1;
            return Ok(());
        };
        let verdict = decision::strictest_verdict(robots, &agent, path.as_bytes());
        let now = (verdict.allow, verdict.rule.map(|rule| rule.to_string()), verdict.rule.map(|rule| rule.line));
        let then = (recorded.reason != Reason::Disallowed.code(), recorded.rule, recorded.line);
        if now == then {
            self.same += 1;
        } else {
            writeln!(self.out, "{} {}: recorded {}, now {}", recorded.id, recorded.url, tell(&then), tell(&now))?;
            self.differ += 1;
        }
        Ok(())
    }

    fn robots(&mut self, sha256: &str) -> anyhow::Result<Option<&RobotsTxt>> {
        if !self.parsed.contains_key(sha256) {
            let body = self.bodies.get(sha256)?;
            self.parsed.insert(sha256.to_owned(), body.map(|body| RobotsTxt::parse_within(&body, self.max_bytes)));
        }
        Ok(self.parsed[sha256].as_ref())
    }
}

fn tell((allow, rule, line): &Outcome) -> String {
    let verdict = if *allow { "allowed" } else { "disallowed" };
    match (rule, line) {
        (Some(rule), Some(line)) => format!("{verdict} by line {line}, \"{rule}\""),
        _ => format!("{verdict} by no rule"),
    }
}
