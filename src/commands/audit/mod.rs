//! `audit`: reads audit logs, rotated and compressed ones included.

mod filter;
mod follow;
mod format;
mod read;
mod record;
mod replay;
mod summary;
mod verify;

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use indicatif::ProgressBar;

use self::filter::Filter;
use self::format::{Format, Printer};
use self::read::{Bad, Logs};
use self::summary::Summary;

/// `audit`.
#[derive(Debug, Args)]
pub(crate) struct Audit {
    #[command(subcommand)]
    command: Option<AuditCommand>,
    #[command(flatten)]
    show: Show,
}

#[derive(Debug, Subcommand)]
enum AuditCommand {
    /// Decide every record again, from the robots.txt it was decided by, and print the differences
    ///
    /// Exits with 0 if there are none, 1 if there are some, 2 if a body is kept no more.
    Replay(replay::Replay),
    /// Check the hash chain, and name the first line that is not as it was written
    ///
    /// The records have a chain where audit.chain is true. Exits with 0 if it holds, 1 if it does not.
    Verify(verify::Verify),
}

#[derive(Debug, Default, PartialEq, Args)]
struct Show {
    #[command(flatten)]
    filter: Filter,
    /// What the records come to, instead of the records: by decision, bot, host and rule, with the waiting
    #[arg(long, help_heading = "What is printed")]
    summary: bool,
    /// Rows in each table of the summary
    #[arg(long, value_name = "N", default_value_t = TOP, requires = "summary", help_heading = "What is printed")]
    top: usize,
    /// JSON: the records as they are, or the summary as one object
    #[arg(long, conflicts_with = "format", help_heading = "What is printed")]
    json: bool,
    /// How records are printed
    #[arg(long, value_enum, conflicts_with = "summary", help_heading = "What is printed")]
    format: Option<Format>,
    /// Begin with the last ten records, or with --since, and go on with those to come, through rotations
    #[arg(long, short, conflicts_with = "summary", help_heading = "What is printed")]
    follow: bool,
    /// Logs in the order of their records, also compressed ones, - is standard input; default: the configuration's with its rotated
    /// files
    files: Vec<PathBuf>,
}

const TOP: usize = 10;

pub(crate) async fn run(config: Option<&Path>, options: &Audit) -> anyhow::Result<ExitCode> {
    let ran = match &options.command {
        Some(_) if options.show != (Show { top: TOP, ..Show::default() }) => {
            anyhow::bail!("replay and verify take files and no other option of audit: put the files behind them")
        }
        Some(AuditCommand::Replay(replay)) => replay::run(config, replay),
        Some(AuditCommand::Verify(verify)) => verify::run(config, verify),
        None => show(config, &options.show).await.map(|()| ExitCode::SUCCESS),
    };
    // Who has seen enough closes the pipe.
    ran.or_else(|error| if is_broken_pipe(&error) { Ok(ExitCode::SUCCESS) } else { Err(error) })
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let kind =
        |cause: &(dyn std::error::Error + 'static)| match cause.downcast_ref::<csv::Error>().map(csv::Error::kind) {
            Some(csv::ErrorKind::Io(error)) => Some(error.kind()),
            _ => cause.downcast_ref::<io::Error>().map(io::Error::kind),
        };
    error.chain().any(|cause| kind(cause) == Some(io::ErrorKind::BrokenPipe))
}

async fn show(config: Option<&Path>, options: &Show) -> anyhow::Result<()> {
    let format = if options.json { Format::Json } else { options.format.unwrap_or_default() };
    let out = BufWriter::new(io::stdout());
    if options.follow {
        let path = match options.files.as_slice() {
            [] => read::configured(config)?,
            [file] => file.clone(),
            _ => anyhow::bail!("--follow follows one file: name that one alone"),
        };
        return follow::follow(&path, &options.filter, Printer::new(format, out)?).await;
    }
    let logs = Logs::of(config, &options.files)?;
    if options.summary {
        summarise(logs, options, out)
    } else {
        print(logs, &options.filter, Printer::new(format, out)?)
    }
}

fn print<W: Write>(logs: Logs, filter: &Filter, mut printer: Printer<W>) -> anyhow::Result<()> {
    let bar = logs.bar(true);
    let bad = print_records(logs, &bar, filter, &mut printer)?;
    printer.flush()?;
    bad.tell();
    Ok(())
}

fn print_records<W: Write>(
    logs: Logs,
    bar: &ProgressBar,
    filter: &Filter,
    printer: &mut Printer<W>,
) -> anyhow::Result<Bad> {
    logs.records(bar, |record, line| if filter.admits(&record) { printer.print(&record, line) } else { Ok(()) })
}

fn summarise(logs: Logs, options: &Show, mut out: impl Write) -> anyhow::Result<()> {
    let mut summary = Summary::default();
    let bar = logs.bar(false);
    let bad = logs.records(&bar, |record, _| {
        if options.filter.admits(&record) {
            summary.add(&record);
        }
        Ok(())
    })?;
    match options.json {
        true => writeln!(out, "{}", summary.json(options.top, bad.count()))?,
        false => summary.print(&mut out, options.top)?,
    }
    out.flush()?;
    bad.tell();
    Ok(())
}
