//! `copies`: looks at the copies of robots.txt, of a running proxy or, for `list` and `show`, of a stopped one.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Subcommand};
use serde_json::json;

use super::evidence;
use crate::clock;
use crate::config::Loaded;
use crate::control::{self, AskError, Question, Told, told};
use crate::lookup::copy::Copy;
use crate::policy::target::Origin;

/// `copies`.
#[derive(Debug, Args)]
pub(crate) struct Copies {
    #[command(subcommand)]
    pub(crate) command: CopiesCommand,
    /// Print JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CopiesCommand {
    /// List the copies in force: when confirmed, status, hash, origin
    List,
    /// Print a copy
    Show {
        /// Such as `https://example.com`
        origin: String,
    },
    /// Ask the origin for its robots.txt now
    Refresh {
        /// Such as `https://example.com`
        origin: String,
    },
    /// Forget a copy; the next request fetches it anew
    Drop {
        /// Such as `https://example.com`
        origin: String,
    },
}

pub(crate) fn run(config: Option<&Path>, options: &Copies) -> anyhow::Result<ExitCode> {
    let folder = Loaded::load(config)?.settings().state_dir;
    match &options.command {
        CopiesCommand::List => list(&folder, options.json),
        CopiesCommand::Show { origin } => show(&folder, &parse(origin)?, options.json),
        CopiesCommand::Refresh { origin } => {
            change(&folder, Question::Refresh { origin: parse(origin)?.to_string() }, options.json)
        }
        CopiesCommand::Drop { origin } => {
            change(&folder, Question::Drop { origin: parse(origin)?.to_string() }, options.json)
        }
    }
}

fn parse(origin: &str) -> anyhow::Result<Origin> {
    let wanted = || format!("{origin:?} is no origin such as https://example.com");
    Origin::of(&origin.parse().with_context(wanted)?).with_context(wanted)
}

fn list(folder: &Path, json: bool) -> anyhow::Result<ExitCode> {
    let mut copies: Vec<(String, Copy)> = match control::ask(folder, &Question::Copies) {
        Ok(reply) => serde_json::from_value(reply.unwrap_or_default())?,
        Err(AskError::NotRunning(_)) => evidence::stopped(folder)?.list()?,
        Err(error) => return Err(error.into()),
    };
    copies.sort_by(|one, other| one.0.cmp(&other.0));
    let mut out = std::io::stdout().lock();
    for (origin, copy) in &copies {
        match json {
            true => writeln!(out, "{}", told::copy(origin, copy))?,
            false => {
                let rules = copy.sha256.as_deref().map_or("no rules", |sha256| &sha256[..12.min(sha256.len())]);
                writeln!(out, "{}  {:3}  {rules:12}  {origin}", clock::rfc3339(copy.confirmed_at), copy.status)?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn show(folder: &Path, origin: &Origin, json: bool) -> anyhow::Result<ExitCode> {
    let Some(Told { copy, body }) = evidence::copy(folder, origin, None)? else { return Ok(none(origin)) };
    let body = Told { copy: copy.clone(), body }.body();
    let text = body.as_deref().map(String::from_utf8_lossy);
    if json {
        let mut value = told::copy(&origin.to_string(), &copy);
        value["body"] = json!(text);
        println!("{value}");
        return Ok(ExitCode::SUCCESS);
    }
    println!("# {} answered {} at {}", copy.robots_url, copy.status, clock::rfc3339(copy.fetched_at));
    println!("# confirmed {}, used for {} s", clock::rfc3339(copy.confirmed_at), copy.lifetime.as_secs());
    match text {
        Some(text) if copy.sha256.is_some() => print!("{text}"),
        Some(_) => println!("# no rules"),
        None => println!("# its text is not kept"),
    }
    Ok(ExitCode::SUCCESS)
}

fn change(folder: &Path, question: Question, json: bool) -> anyhow::Result<ExitCode> {
    let reply = control::ask(folder, &question)?;
    match (reply, question) {
        (None, Question::Drop { origin } | Question::Refresh { origin }) => Ok(none(&origin)),
        (Some(reply), _) if json => {
            println!("{reply}");
            Ok(ExitCode::SUCCESS)
        }
        (Some(reply), Question::Refresh { origin }) => {
            let status = reply["status"].as_u64().map_or("no answer".to_owned(), |status| format!("answered {status}"));
            let kept = if reply["stale"] == true { ", the old copy stays" } else { "" };
            let failure = reply["failure"].as_str().map_or(String::new(), |failure| format!(" ({failure})"));
            println!("{origin}: {status}{kept}{failure}");
            Ok(ExitCode::SUCCESS)
        }
        (Some(reply), _) => {
            println!("dropped {}", reply["dropped"].as_str().unwrap_or_default());
            Ok(ExitCode::SUCCESS)
        }
        (None, _) => Ok(ExitCode::from(1)),
    }
}

fn none(origin: &impl std::fmt::Display) -> ExitCode {
    eprintln!("robots-proxy: there is no copy of {origin}");
    ExitCode::from(1)
}
