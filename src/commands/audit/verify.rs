//! `audit verify`: whether a log is as it was written.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use super::read::Logs;
use crate::audit::chain::{Check, Head};

#[derive(Debug, Args)]
pub(super) struct Verify {
    /// Logs in the order of their records, also compressed ones; default: the configuration's with its rotated files
    files: Vec<PathBuf>,
}

/// The first line that breaks the chain.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct FirstBad(String);

pub(super) fn run(config: Option<&Path>, options: &Verify) -> anyhow::Result<ExitCode> {
    let logs = Logs::of(config, &options.files)?;
    let bar = logs.bar(false);
    let mut out = io::stdout().lock();
    let mut check = Check::default();
    let (mut records, mut unfinished) = (0_u64, None);
    let checked = logs.each(
        &bar,
        |at, line| {
            records += 1;
            check.line(line).map_err(|broken| FirstBad(format!("{at}: {broken}")).into())
        },
        |at| unfinished = Some(at.to_string()),
    );
    if let Err(error) = checked {
        let bad = error.downcast::<FirstBad>()?;
        writeln!(out, "{bad}")?;
        return Ok(ExitCode::from(1));
    }
    let Some(Head { seq, hash }) = check.head() else {
        writeln!(out, "{records} records, and none is part of a chain: set audit.chain = true for those to come")?;
        return Ok(ExitCode::from(u8::from(records > 0)));
    };
    if let Some(at) = unfinished {
        writeln!(out, "{at} is unfinished: it is being written, or a crash cut it off")?;
    }
    if check.unchained() > 0 {
        writeln!(out, "{} records from before the chain began are not covered", check.unchained())?;
    }
    let first = check.first().unwrap_or_default();
    writeln!(out, "records {first} to {seq} are as they were written; the last has the hash {hash}")?;
    Ok(ExitCode::SUCCESS)
}
