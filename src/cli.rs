//! The command line.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::commands;
use crate::config::LoadError;
use crate::control::AskError;
use crate::proxy::socket::Listen;

/// A forward proxy that makes any web client obey robots.txt
#[derive(Debug, Parser)]
#[command(name = "robots-proxy", version, max_term_width = 100, after_help = EXAMPLES)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,

    /// The configuration file; without it ./config.toml or the one in the platform's configuration folder
    #[arg(long, value_name = "FILE", global = true, env = "ROBOTS_PROXY_CONFIG", help_heading = "Everywhere")]
    config: Option<PathBuf>,
}

const EXAMPLES: &str = "Examples:
  robots-proxy serve
  curl --proxy http://127.0.0.1:3128 --cacert ca.pem https://example.com/
  robots-proxy check --agent MyBot https://example.com/page
  robots-proxy demo";

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the proxy until SIGINT or SIGTERM
    ///
    /// Works without any configuration: listens on 127.0.0.1:3128, makes its certificate authority on first start, and prints the
    /// lines to paste.
    Serve(Serve),
    /// Decide about URLs without fetching them, and explain
    ///
    /// Reads robots.txt of each URL's origin, or the file named with --robots, and tells the group, the deciding rule with its line,
    /// and the crawl delay. Exits with 0 if all are allowed, 1 if any is not, 2 on an error.
    Check(Check),
    /// The local certificate authority
    #[command(subcommand)]
    Ca(Ca),
    /// Validate or show the configuration
    #[command(subcommand)]
    Config(Config),
    /// The kept copies of robots.txt, of a running proxy or of a stopped one
    Copies(Copies),
    /// The lines of waiting requests in a running proxy
    Lines(Lines),
    /// The audit log
    #[command(subcommand)]
    Audit(Audit),
    /// Show the whole job without any network
    ///
    /// Starts a practice shop over HTTPS and the proxy on loopback, sends real requests through it, and prints each decision, the
    /// waits and the audit records.
    Demo(Demo),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
}

/// `serve`.
#[derive(Debug, Args)]
pub struct Serve {
    /// Listen here, instead of where the configuration says; may be given more than once: an address and port, https://ADDR for
    /// TLS, or unix:PATH
    #[arg(long, value_name = "ADDR")]
    pub listen: Vec<Listen>,
    /// Decide and record, but never refuse or delay
    #[arg(long)]
    pub observe: bool,
}

/// `check`.
#[derive(Debug, Args)]
pub struct Check {
    /// The bot's product token, compared as given; * asks for the group of all others
    #[arg(long, value_name = "TOKEN", default_value = "*")]
    pub agent: String,
    /// The robots.txt to decide by, instead of that of each origin; - reads it from standard input
    #[arg(long, value_name = "FILE|URL")]
    pub robots: Option<String>,
    /// Decide by the copy that was in force at this time (RFC 3339), as the proxy kept it
    #[arg(long, value_name = "TIME")]
    pub at: Option<humantime::Timestamp>,
    /// With --at: the origin whose copy is meant, such as `https://example.com`; default: that of the first URL
    #[arg(long, value_name = "ORIGIN", requires = "at")]
    pub origin: Option<String>,
    /// List every rule that matches, the strongest first
    #[arg(long)]
    pub all: bool,
    /// Print one JSON object a line
    #[arg(long)]
    pub json: bool,
    /// URLs as they would be asked for; - reads them from standard input, one a line
    #[arg(required = true, value_name = "URL")]
    pub urls: Vec<String>,
}

/// `ca`.
#[derive(Debug, Subcommand)]
pub enum Ca {
    /// Print the path of the certificate
    Path,
    /// Print what the certificate says
    Show,
    /// Print the certificate, for the trust store of a client
    Export {
        /// In which form
        #[arg(long, value_enum, default_value_t = Form::Pem)]
        format: Form,
    },
}

/// Forms of the certificate.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Form {
    /// Text, as most programs read it
    Pem,
    /// Binary, as Windows and Android read it
    Der,
    /// The hash for Chromium's --ignore-certificate-errors-spki-list
    Spki,
}

/// `config`.
#[derive(Debug, Subcommand)]
pub enum Config {
    /// Tell every mistake in the configuration
    Check,
    /// Print the configuration in force, defaults included
    Show,
}

/// `copies`.
#[derive(Debug, Args)]
pub struct Copies {
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

/// `lines`.
#[derive(Debug, Args)]
pub struct Lines {
    /// Of this host alone
    pub(crate) host: Option<String>,
    /// Print one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

/// `audit`.
#[derive(Debug, Subcommand)]
pub enum Audit {
    /// Decide every record again, from the robots.txt it was decided by, and print the differences
    ///
    /// Exits with 0 if there are none, 1 if there are some, 2 if a body is kept no more.
    Replay {
        /// Logs, also compressed ones (.gz); default: the one of the configuration
        files: Vec<PathBuf>,
    },
}

/// `demo`.
#[derive(Debug, Args)]
pub struct Demo {
    /// Keep shop and proxy running afterwards, so that you can point curl at them
    #[arg(long)]
    pub stay: bool,
}

/// Runs the command and prints an error, if there is one, in one line.
pub fn run() -> ExitCode {
    let cli = Cli::parse();
    start_log();
    match dispatch(cli) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("robots-proxy: {error:#}");
            let not_running = matches!(error.downcast_ref(), Some(AskError::NotRunning(_)));
            ExitCode::from(if error.is::<LoadError>() || not_running { commands::MISUSED } else { 1 })
        }
    }
}

fn dispatch(cli: Cli) -> anyhow::Result<ExitCode> {
    let config = cli.config.as_deref();
    match cli.command {
        Command::Serve(serve) => block_on(commands::serve::run(config, serve)),
        Command::Check(check) => block_on(commands::check::run(config, check)),
        Command::Ca(ca) => commands::ca::run(config, &ca),
        Command::Config(what) => commands::config::run(config, &what),
        Command::Copies(copies) => commands::copies::run(config, &copies),
        Command::Lines(lines) => commands::lines::run(config, &lines),
        Command::Audit(audit) => commands::audit::run(config, &audit),
        Command::Demo(demo) => block_on(commands::demo::run(demo)),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "robots-proxy", &mut std::io::stdout());
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn block_on(command: impl Future<Output = anyhow::Result<ExitCode>>) -> anyhow::Result<ExitCode> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(command)
}

/// The log for operators goes to standard error; `ROBOTS_PROXY_LOG` chooses what it tells.
fn start_log() {
    let filter =
        tracing_subscriber::EnvFilter::try_from_env("ROBOTS_PROXY_LOG").unwrap_or_else(|_| "robots_proxy=info".into());
    let colours = std::io::stderr().is_terminal();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(colours)
        .with_target(false)
        .init();
}
