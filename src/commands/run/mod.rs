//! `run`: one command behind a proxy of its own.
//!
//! The proxy listens on a free port of loopback, so that any number of runs and a `serve` get on side by side, also with one
//! configuration. The command learns of it through its environment alone (`env.rs` says which variables, and why); what these name
//! lies in a folder that goes with the command. The command keeps the terminal, the signals and the exit status: whoever started it
//! notices nothing but a few lines on standard error.

mod advice;
mod child;
mod env;
mod files;
mod home;
mod summary;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use tokio::process::Command;

use self::files::Files;
use self::summary::Tally;
use super::told;
use crate::app::{self, Running};
use crate::config::Loaded;
use crate::policy::identity::{self, MapEntry, Source, Token};

/// `run`.
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// The bot that CMD is, as in a "User-agent: TOKEN" line of robots.txt; goes before the entries of identity.map
    #[arg(long, value_name = "TOKEN")]
    agent: Option<Token>,
    /// Also for browsers: a home with certificate databases that Chromium and Firefox read (needs certutil)
    #[arg(long)]
    browser: bool,
    /// Also for Java: proxy and trust store through JAVA_TOOL_OPTIONS
    #[arg(long)]
    java: bool,
    /// Pass NO_PROXY on, so that CMD asks the hosts that it names past the proxy
    #[arg(long)]
    keep_no_proxy: bool,
    /// The command, and its arguments
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true)]
    command: Vec<OsString>,
}

/// Exit status where the command was never started, as env(1), nohup(1) and timeout(1) have it.
const NOT_STARTED: u8 = 125;

/// The command is gone, and nobody waits for what its requests still bring.
const DRAIN: Duration = Duration::from_secs(1);

pub(crate) async fn run(config: Option<&Path>, options: Run) -> anyhow::Result<ExitCode> {
    let settings = Loaded::load(config)?.settings();
    Ok(run_behind(settings, &options).await.unwrap_or_else(|error| {
        eprintln!("robots-proxy: {}", told(&error));
        ExitCode::from(NOT_STARTED)
    }))
}

async fn run_behind(settings: app::Settings, options: &Run) -> anyhow::Result<ExitCode> {
    let proxy = app::start(private(settings, options.agent.clone())?).await?;
    let tally = Arc::new(Tally::default());
    proxy.audit().on_end({
        let tally = Arc::clone(&tally);
        move |ended| tally.count(ended)
    });
    let user = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let name = run_name();
    let address = proxy.addresses()[0];
    let url = format!("http://{name}:x@{address}");
    let files = Files::write(proxy.ca(), &user, &url, address, options)?;
    announce(&proxy, options, &user);

    let (program, arguments) = options.command.split_first().expect("clap asks for at least one");
    let mut command = Command::new(program);
    command.args(arguments);
    for (name, value) in env::variables(&files.facts(&url, address, options.keep_no_proxy), &user) {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let exit = child::run(command, program).await;
    let (audit, broken) = (proxy.audit().path(), proxy.broken_handshakes());
    proxy.stop().await;
    if exit.was_started {
        eprint!("{}", tally.summary(&name, audit.as_deref()));
        if let Some(advice) = advice::advice(&options.command, tally.requests(), broken()) {
            eprint!("{advice}");
        }
    }
    Ok(ExitCode::from(exit.code))
}

/// The settings of a proxy that is for one command: reached by it alone, and beside others that have the same settings.
fn private(mut settings: app::Settings, agent: Option<Token>) -> anyhow::Result<app::Settings> {
    if settings.audit.path.is_none() {
        bail!("audit.path is \"-\", but standard output belongs to the command: name a file there");
    }
    settings.listen = vec![SocketAddr::from(([127, 0, 0, 1], 0)).into()];
    settings.private = true;
    settings.admin = None;
    // The clients are this user's own processes, and some (browsers, Java, git) send a password only when they are asked for it.
    settings.auth.htpasswd = None;
    settings.limits.drain = settings.limits.drain.min(DRAIN);
    if let Some(agent) = agent {
        settings.identity = named(settings.identity, agent);
    }
    Ok(settings)
}

/// `--agent` as the first entry of the map, which is asked where the configuration has it, or first.
fn named(mut identity: identity::Settings, agent: Token) -> identity::Settings {
    identity.map.insert(0, MapEntry::of(agent));
    if !identity.order.contains(&Source::Map) {
        identity.order.insert(0, Source::Map);
    }
    identity
}

/// The user name in the proxy's URL, by which records of this run can be told from others in the same log.
fn run_name() -> String {
    // The last digits of a version 7 UUID are random.
    let id = uuid::Uuid::now_v7().simple().to_string();
    format!("run-{}", &id[id.len() - 8..])
}

/// What a person would not expect.
fn announce(proxy: &Running, options: &Run, user: env::User<'_>) {
    if proxy.ca().was_made() {
        let key = proxy.ca().key_path().display();
        eprintln!(
            "robots-proxy: made a certificate authority, which only the command trusts; keep its key to yourself: {key}"
        );
    }
    if let Some((name, value)) = env::no_proxy(user) {
        let value = value.display();
        match options.keep_no_proxy {
            true => eprintln!("robots-proxy: {name}={value} is kept: these hosts are asked past the proxy"),
            false => eprintln!(
                "robots-proxy: {name}={value} is left out, so that nothing goes round the proxy (--keep-no-proxy)"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agent_goes_before_the_map_and_is_heard_where_the_order_leaves_the_map_out() {
        let token = |text: &str| text.parse::<Token>().unwrap();
        let settings = identity::Settings {
            order: vec![Source::Header, Source::Default],
            map: vec![MapEntry::of(token("OldBot"))],
            ..identity::Settings::default()
        };
        let settings = named(settings, token("NewBot"));
        assert_eq!(settings.map[0].token, token("NewBot"));
        assert_eq!(settings.order, [Source::Map, Source::Header, Source::Default]);
        let kept = named(
            identity::Settings { order: vec![Source::Header, Source::Map], ..identity::Settings::default() },
            token("NewBot"),
        );
        assert_eq!(kept.order, [Source::Header, Source::Map]);
    }
}
