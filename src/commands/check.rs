//! `check`: decides about URLs without fetching them, and explains.
//!
//! The path of a URL is used octet for octet as typed, so that spellings can be tested; a URL library would tidy it up first.

use std::io::{BufRead, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use serde::Serialize;

use super::MISUSED;
use crate::cli::Check;
use crate::clock;
use crate::config::Loaded;
use crate::lookup::Lookup;
use crate::lookup::fetch::RobotsFetch;
use crate::policy::decision::{self, Decision};
use crate::policy::standing::{Effect, Evidence, Standing};
use crate::policy::target::Origin;
use crate::robots::RobotsTxt;
use crate::upstream::Upstream;

pub(crate) async fn run(config: Option<&Path>, options: Check) -> anyhow::Result<ExitCode> {
    match check(config, &options).await {
        Ok(allowed) => Ok(if allowed { ExitCode::SUCCESS } else { ExitCode::from(1) }),
        Err(error) => {
            eprintln!("robots-proxy: {error:#}");
            Ok(ExitCode::from(MISUSED))
        }
    }
}

/// Whether all URLs are allowed.
async fn check(config: Option<&Path>, options: &Check) -> anyhow::Result<bool> {
    let rules = match &options.robots {
        Some(file) => Rules::Given(Arc::new(read_file(file)?)),
        None => Rules::Fetched(lookup(config)?),
    };
    let mut out = std::io::stdout().lock();
    let mut all = true;
    for url in &options.urls {
        if url != "-" {
            all &= check_one(&rules, options, url, &mut out).await?;
            continue;
        }
        for line in std::io::stdin().lock().lines() {
            let line = line.context("cannot read URLs from standard input")?;
            if !line.trim().is_empty() {
                all &= check_one(&rules, options, line.trim(), &mut out).await?;
            }
        }
    }
    out.flush()?;
    Ok(all)
}

enum Rules {
    Given(Arc<Standing>),
    Fetched(Lookup),
}

impl Rules {
    async fn at(&self, origin: &Origin) -> Arc<Standing> {
        match self {
            Rules::Given(standing) => Arc::clone(standing),
            Rules::Fetched(lookup) => lookup.standing(origin).await,
        }
    }
}

fn lookup(config: Option<&Path>) -> anyhow::Result<Lookup> {
    let settings = Loaded::load(config)?.settings();
    let fetch = RobotsFetch::new(settings.fetch, Upstream::new(&settings.upstream)?);
    Ok(Lookup::new(settings.lookup, Arc::new(fetch), None))
}

fn read_file(file: &Path) -> anyhow::Result<Standing> {
    let mut body = Vec::new();
    match file == Path::new("-") {
        true => std::io::stdin().read_to_end(&mut body).context("cannot read robots.txt from standard input")?,
        false => std::fs::File::open(file)
            .and_then(|mut file| file.read_to_end(&mut body))
            .with_context(|| format!("cannot read {}", file.display()))?,
    };
    let robots = RobotsTxt::parse(&body);
    let evidence = Evidence {
        robots_url: PathBuf::from(file).display().to_string(),
        final_url: None,
        status: None,
        fetched_at: clock::wall(),
        sha256: None,
        truncated: robots.is_truncated(),
        note: None,
    };
    Ok(Standing {
        effect: Effect::Rules(Arc::new(robots)),
        evidence: Arc::new(evidence),
        stale: false,
        failure: None,
        ask_again_at: clock::now(),
    })
}

/// One line of `--json`.
#[derive(Serialize)]
struct Checked<'a> {
    url: &'a str,
    agent: &'a str,
    allow: bool,
    reason: &'static str,
    group: Option<&'a str>,
    rule: Option<&'a str>,
    line: Option<u32>,
    crawl_delay_s: Option<f64>,
    robots: &'a str,
    remarks: Vec<String>,
}

async fn check_one(rules: &Rules, options: &Check, url: &str, out: &mut impl Write) -> anyhow::Result<bool> {
    let (origin, path) = split(url)?;
    let standing = rules.at(&origin).await;
    let decision = decision::decide(&options.agent, path.as_bytes(), &standing, clock::now());
    let allow = decision.reason.allows();
    match options.json {
        true => {
            let checked = Checked {
                url,
                agent: &options.agent,
                allow,
                reason: decision.reason.code(),
                group: decision.group.as_deref(),
                rule: decision.rule.as_deref(),
                line: decision.line,
                crawl_delay_s: decision.crawl_delay.map(|delay| delay.as_secs_f64()),
                robots: &standing.evidence.robots_url,
                remarks: remarks(&standing),
            };
            writeln!(out, "{}", serde_json::to_string(&checked)?)?;
        }
        false => writeln!(out, "{}", explain(url, &options.agent, &decision, &standing))?,
    }
    Ok(allow)
}

/// The origin, and everything after the authority as typed; a fragment is never part of a request.
fn split(url: &str) -> anyhow::Result<(Origin, String)> {
    let wanted = || format!("{url:?} is no URL such as https://example.com/page");
    let (scheme, rest) = url.split_once("://").with_context(wanted)?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let origin = format!("{scheme}://{authority}/").parse().with_context(wanted)?;
    let origin = Origin::of(&origin).with_context(wanted)?;
    let path = path.split('#').next().unwrap_or_default();
    Ok((origin, if path.starts_with('/') { path.to_owned() } else { format!("/{path}") }))
}

fn remarks(standing: &Standing) -> Vec<String> {
    match &standing.effect {
        Effect::Rules(robots) => robots.remarks().iter().map(ToString::to_string).collect(),
        _ => Vec::new(),
    }
}

fn explain(url: &str, agent: &str, decision: &Decision, standing: &Standing) -> String {
    let robots = &standing.evidence.robots_url;
    let verdict = if decision.reason.allows() { "allowed" } else { "refused" };
    let why = match (&decision.rule, decision.line, &decision.group) {
        (Some(rule), Some(line), _) => format!("{robots}:{line}: {rule}"),
        (_, _, Some(group)) => format!("no rule of the group for {group} matches"),
        _ if decision.reason.allows() => format!("no group of {robots} is for {agent} ({})", decision.reason.code()),
        _ => format!("{}: {}", decision.reason.code(), standing.failure.as_deref().unwrap_or("no answer")),
    };
    let mut text = format!("{verdict}  {url}\n    for {agent}: {why}");
    if let Some(group) = decision.group.as_ref().filter(|_| decision.rule.is_some()) {
        text.push_str(&format!("\n    group: User-agent: {group}"));
    }
    if let Some(delay) = decision.crawl_delay {
        text.push_str(&format!("\n    crawl delay: {} s", delay.as_secs_f64()));
    }
    text
}
