//! `check`: decides about URLs without fetching them, and explains.

mod explain;
mod rules;

use std::io::{BufRead, BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;

use self::rules::Rules;
use super::{MISUSED, told};
use crate::clock;
use crate::config::{LoadError, Loaded};
use crate::policy::decision;
use crate::policy::enforcement::Exception;
use crate::policy::explained::Explained;
use crate::policy::typed::Splitter;

/// `check`.
#[derive(Debug, Args)]
pub(crate) struct Check {
    /// The bot's product token, compared as given; * asks for the group of all others
    #[arg(long, value_name = "TOKEN", default_value = "*")]
    pub(crate) agent: String,
    /// The robots.txt to decide by, instead of that of each origin; - reads it from standard input
    #[arg(long, value_name = "FILE|URL")]
    pub(crate) robots: Option<String>,
    /// Decide by the copy that was in force at this time (RFC 3339), as the proxy kept it
    #[arg(long, value_name = "TIME")]
    pub(crate) at: Option<humantime::Timestamp>,
    /// With --at: the origin whose copy is meant, such as `https://example.com`; default: that of the first URL
    #[arg(long, value_name = "ORIGIN", requires = "at")]
    pub(crate) origin: Option<String>,
    /// List every rule that matches, the strongest first
    #[arg(long)]
    pub(crate) all: bool,
    /// Print one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
    /// URLs as they would be asked for; - reads them from standard input, one a line
    #[arg(required = true, value_name = "URL")]
    pub(crate) urls: Vec<String>,
}

pub(crate) async fn run(config: Option<&Path>, options: Check) -> anyhow::Result<ExitCode> {
    match check(config, &options).await {
        Ok(true) => Ok(ExitCode::SUCCESS),
        Ok(false) => Ok(ExitCode::from(1)),
        Err(error) => {
            eprintln!("robots-proxy: {}", told(&error));
            Ok(ExitCode::from(MISUSED))
        }
    }
}

/// Whether all URLs are allowed.
async fn check(config: Option<&Path>, options: &Check) -> anyhow::Result<bool> {
    let mut checker = Checker {
        options,
        rules: Rules::of(config, options).await?,
        exceptions: exceptions(config)?,
        splitter: Splitter::default(),
        out: BufWriter::new(std::io::stdout().lock()),
        all_allowed: true,
        first: true,
    };
    for url in &options.urls {
        match url.as_str() {
            "-" => checker.check_standard_input().await?,
            url => checker.check(url).await?,
        }
    }
    checker.out.flush()?;
    Ok(checker.all_allowed)
}

/// Those of the configuration; a file of rules can be checked where there is none, and no place for one.
fn exceptions(config: Option<&Path>) -> anyhow::Result<Vec<Exception>> {
    match Loaded::load(config) {
        Err(LoadError::NoStateDir) => Ok(Vec::new()),
        loaded => Ok(loaded?.settings().exceptions),
    }
}

struct Checker<'a, W: Write> {
    options: &'a Check,
    rules: Rules,
    exceptions: Vec<Exception>,
    splitter: Splitter,
    out: W,
    all_allowed: bool,
    first: bool,
}

impl<W: Write> Checker<'_, W> {
    async fn check_standard_input(&mut self) -> anyhow::Result<()> {
        let mut input = std::io::stdin().lock();
        let mut line = Vec::new();
        while input.read_until(b'\n', &mut line).context("cannot read URLs from standard input")? > 0 {
            let url = String::from_utf8_lossy(line.trim_ascii());
            if !url.is_empty() {
                self.check(&url).await?;
            }
            line.clear();
        }
        Ok(())
    }

    async fn check(&mut self, url: &str) -> anyhow::Result<()> {
        let (origin, path) = self.splitter.split(url)?;
        let exception = Exception::reason_for(&self.exceptions, &self.options.agent, origin.host.as_str());
        let known = self.rules.at(origin).await;
        let agent = self.options.agent.as_str();
        let decision = decision::decide(agent, path.as_bytes(), &known.standing, clock::now());
        self.all_allowed &= decision.reason.allows();
        if self.options.json {
            let mut explained =
                Explained::new(url, agent, &decision, &known.standing, &known.notes).excepted(exception);
            if self.options.all {
                explained = explained.with_matching(path.as_bytes(), &known.standing);
            }
            serde_json::to_writer(&mut self.out, &explained)?;
            writeln!(self.out)?;
            return Ok(());
        }
        if !std::mem::take(&mut self.first) {
            writeln!(self.out)?;
        }
        let explained = explain::decision(url, self.options, path.as_bytes(), &decision, exception, &known.standing);
        write!(self.out, "{explained}")?;
        let remarks = known.first_use().then(|| explain::file(known));
        Ok(write!(self.out, "{}", remarks.unwrap_or_default())?)
    }
}
