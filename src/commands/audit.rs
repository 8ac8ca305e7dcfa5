//! `audit replay`: decides every record again, from the very robots.txt it was decided by.
//!
//! The body is known by the SHA-256 in the record, so the outcome may only differ where the program has changed, the record, or both.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Subcommand;
use serde::Deserialize;

use super::{MISUSED, evidence, url};
use crate::config::Loaded;
use crate::policy::decision;
use crate::policy::reason::Reason;
use crate::robots::RobotsTxt;

/// `audit`.
#[derive(Debug, Subcommand)]
pub(crate) enum Audit {
    /// Decide every record again, from the robots.txt it was decided by, and print the differences
    ///
    /// Exits with 0 if there are none, 1 if there are some, 2 if a body is kept no more.
    Replay {
        /// Logs, also compressed ones (.gz); default: the one of the configuration
        files: Vec<PathBuf>,
    },
}

/// What of a record is decided again.
#[derive(Deserialize)]
struct Recorded {
    id: String,
    url: String,
    agent: Option<String>,
    reason: String,
    rule: Option<String>,
    line: Option<u32>,
    robots: Option<Robots>,
}

#[derive(Deserialize)]
struct Robots {
    sha256: Option<String>,
}

/// What a file of rules says: whether, by which rule, on which line.
type Outcome = (bool, Option<String>, Option<u32>);

/// Replays records, and counts what came of them.
struct Replay {
    bodies: evidence::Bodies,
    max_bytes: usize,
    /// Each file is parsed once; `None` where its body is kept no more.
    parsed: HashMap<String, Option<RobotsTxt>>,
    same: u64,
    differ: u64,
    without_body: u64,
    without_rules: u64,
}

pub(crate) fn run(config: Option<&Path>, what: &Audit) -> anyhow::Result<ExitCode> {
    let Audit::Replay { files } = what;
    let settings = Loaded::load(config)?.settings();
    let files = match files.is_empty() {
        true => vec![settings.audit.path.context("audit.path is standard output: name the file to replay")?],
        false => files.clone(),
    };
    let mut replay = Replay {
        bodies: evidence::Bodies::of(&settings.state_dir),
        max_bytes: settings.lookup.max_bytes,
        parsed: HashMap::new(),
        same: 0,
        differ: 0,
        without_body: 0,
        without_rules: 0,
    };
    for file in &files {
        replay.file(file)?;
    }
    let Replay { same, differ, without_body, without_rules, .. } = replay;
    println!(
        "{same} decided alike, {differ} otherwise, {without_rules} without rules to decide by, {without_body} whose body is gone"
    );
    Ok(ExitCode::from(match () {
        () if without_body > 0 => MISUSED,
        () if differ > 0 => 1,
        () => 0,
    }))
}

impl Replay {
    fn file(&mut self, file: &Path) -> anyhow::Result<()> {
        for (number, line) in open(file)?.lines().enumerate() {
            let line = line.with_context(|| format!("cannot read {}", file.display()))?;
            let recorded = serde_json::from_str(&line);
            self.record(
                recorded.with_context(|| format!("{}: line {} is no audit record", file.display(), number + 1))?,
            )?;
        }
        Ok(())
    }

    fn record(&mut self, recorded: Recorded) -> anyhow::Result<()> {
        let sha256 = recorded.robots.and_then(|robots| robots.sha256);
        let (Some(sha256), Some(agent)) = (sha256, recorded.agent) else {
            self.without_rules += 1;
            return Ok(());
        };
        let path = url::split(&recorded.url)?.1;
        let Some(robots) = self.robots(&sha256)? else {
            println!("{} {}: the body {sha256} is kept no more", recorded.id, recorded.url);
            self.without_body += 1;
            return Ok(());
        };
        let verdict = decision::strictest_verdict(robots, &agent, path.as_bytes());
        let now = (verdict.allow, verdict.rule.map(|rule| rule.to_string()), verdict.rule.map(|rule| rule.line));
        let then = (recorded.reason != Reason::Disallowed.code(), recorded.rule, recorded.line);
        if now == then {
            self.same += 1;
        } else {
            println!("{} {}: recorded {}, now {}", recorded.id, recorded.url, tell(&then), tell(&now));
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

/// A log, rotated and compressed ones included.
fn open(file: &Path) -> anyhow::Result<Box<dyn BufRead>> {
    let opened = File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
    let reader: Box<dyn Read> = match file.extension().is_some_and(|extension| extension == "gz") {
        true => Box::new(flate2::read::MultiGzDecoder::new(opened)),
        false => Box::new(opened),
    };
    Ok(Box::new(BufReader::new(reader)))
}

fn tell((allow, rule, line): &Outcome) -> String {
    let verdict = if *allow { "allowed" } else { "disallowed" };
    match (rule, line) {
        (Some(rule), Some(line)) => format!("{verdict} by line {line}, \"{rule}\""),
        _ => format!("{verdict} by no rule"),
    }
}
