//! `lines`: who waits in front of which host, in a running proxy.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;

use crate::config::Loaded;
use crate::control::{self, Question, told};
use crate::policy::target::Host;
use crate::queue::LineReport;

/// `lines`.
#[derive(Debug, Args)]
pub(crate) struct Lines {
    /// Of this host alone
    pub(crate) host: Option<String>,
    /// Print one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn run(config: Option<&Path>, options: &Lines) -> anyhow::Result<ExitCode> {
    let folder = Loaded::load(config)?.settings().state_dir;
    let host = options.host.as_deref().map(Host::parse).transpose()?;
    let reply = control::ask(&folder, &Question::Lines { host: host.clone() })?;
    let Some(lines) = reply else {
        eprintln!("robots-proxy: nobody waits for {}", host.map_or("anything".into(), |host| host.to_string()));
        return Ok(ExitCode::from(1));
    };
    let lines: Vec<LineReport> = serde_json::from_value(lines).context("the proxy that runs is of another version")?;
    if !options.json {
        println!("{:>7}  {:>8}  {:>8}  {:>8}  host and bot", "waiting", "delay", "next in", "held for");
    }
    for line in &lines {
        println!("{}", if options.json { told::line(line).to_string() } else { shown(line) });
    }
    Ok(ExitCode::SUCCESS)
}

fn shown(line: &LineReport) -> String {
    let seconds = |duration: std::time::Duration| format!("{:.1} s", duration.as_secs_f64());
    let held = line.held_for.map_or("–".to_owned(), seconds);
    let bot = line.bot.as_deref().unwrap_or("all bots");
    let (delay, next_in) = (seconds(line.delay), seconds(line.next_in));
    format!("{:>7}  {delay:>8}  {next_in:>8}  {held:>8}  {} {bot}", line.waiting, line.host)
}
