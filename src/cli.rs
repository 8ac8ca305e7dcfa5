//! The command line.

use std::io::IsTerminal;
use std::num::NonZero;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::anyhow;
use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use tokio::runtime::Builder;

use crate::commands;
use crate::config::LoadError;
use crate::control::AskError;

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

/// The variable that tells how many threads there are.
const THREADS: &str = "TOKIO_WORKER_THREADS";

const EXAMPLES: &str = "Examples:
  robots-proxy run --agent MyBot -- python scrape.py
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
    Serve(commands::serve::Serve),
    /// Run a command behind a proxy of its own
    ///
    /// Starts a private proxy on a free port, tells CMD of it through the variables that common clients read, and prints a summary of
    /// the decisions on standard error at the end. CMD keeps its standard input and output, gets the signals, and gives the exit status.
    Run(commands::run::Run),
    /// Decide about URLs without fetching them, and explain
    ///
    /// Reads robots.txt of each URL's origin, or the file named with --robots, and tells the group, the deciding rule with its line,
    /// and the crawl delay. Exits with 0 if all are allowed, 1 if any is not, 2 on an error.
    Check(commands::check::Check),
    /// The local certificate authority
    #[command(subcommand)]
    Ca(commands::ca::Ca),
    /// Validate or show the configuration
    #[command(subcommand)]
    Config(commands::config::Config),
    /// The kept copies of robots.txt, of a running proxy or of a stopped one
    Copies(commands::copies::Copies),
    /// The lines of waiting requests in a running proxy
    Lines(commands::lines::Lines),
    /// The audit log: print, filter, sum up, follow, verify
    ///
    /// Reads logs, rotated and compressed ones included.
    Audit(commands::audit::Audit),
    /// Show the whole job without any network
    ///
    /// Starts a practice shop over HTTPS and the proxy on loopback, sends real requests through it, and prints each decision, the
    /// waits and the audit records.
    Demo(commands::demo::Demo),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the man page, for man -l -
    Man,
}

/// Runs the command and prints an error, if there is one, in one line.
pub fn run() -> ExitCode {
    let cli = Cli::parse();
    start_log(matches!(cli.command, Command::Run(_)));
    match dispatch(cli) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("robots-proxy: {}", commands::told(&error));
            let not_running = matches!(error.downcast_ref(), Some(AskError::NotRunning(_)));
            ExitCode::from(if error.is::<LoadError>() || not_running { commands::MISUSED } else { 1 })
        }
    }
}

fn dispatch(cli: Cli) -> anyhow::Result<ExitCode> {
    let config = cli.config.as_deref();
    match cli.command {
        Command::Serve(serve) => block_on(commands::serve::run(config, serve)),
        Command::Run(run) => block_on(commands::run::run(config, run)),
        Command::Check(check) => block_on(commands::check::run(config, check)),
        Command::Ca(ca) => commands::ca::run(config, &ca),
        Command::Config(what) => commands::config::run(config, &what),
        Command::Copies(copies) => commands::copies::run(config, &copies),
        Command::Lines(lines) => commands::lines::run(config, &lines),
        Command::Audit(audit) => block_on(commands::audit::run(config, &audit)),
        Command::Demo(demo) => block_on(commands::demo::run(demo)),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "robots-proxy", &mut std::io::stdout());
            Ok(ExitCode::SUCCESS)
        }
        Command::Man => commands::man::run(Cli::command()),
    }
}

fn block_on(command: impl Future<Output = anyhow::Result<ExitCode>>) -> anyhow::Result<ExitCode> {
    let threads = threads()?;
    // Several threads share their work by locks and wakeups, which one alone need not.
    let mut runtime = match threads.get() {
        1 => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    runtime.worker_threads(threads.get()).enable_all().build()?.block_on(command)
}

/// What the operator has set, in the variable that tokio reads too; else one for each core that the process may use.
fn threads() -> anyhow::Result<NonZero<usize>> {
    let Some(set) = std::env::var_os(THREADS) else {
        return Ok(std::thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN));
    };
    let threads = set.to_str().and_then(|set| set.parse().ok());
    threads.ok_or_else(|| anyhow!("{THREADS} is {set:?}: set it to a number of threads, at least 1, or unset it"))
}

/// The log for operators goes to standard error; `ROBOTS_PROXY_LOG` chooses what it tells. A command that shares its standard error
/// with another program is quieter.
fn start_log(shares: bool) {
    let usual = if shares { "robots_proxy=warn" } else { "robots_proxy=info" };
    let filter = tracing_subscriber::EnvFilter::try_from_env("ROBOTS_PROXY_LOG").unwrap_or_else(|_| usual.into());
    let colours = std::io::stderr().is_terminal();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(colours)
        .with_target(false)
        .init();
}
