//! The subcommands, one file each.

pub(crate) mod audit;
pub(crate) mod ca;
pub(crate) mod check;
pub(crate) mod config;
pub(crate) mod copies;
pub(crate) mod demo;
mod evidence;
pub(crate) mod lines;
pub(crate) mod man;
pub(crate) mod run;
pub(crate) mod serve;

/// Exit status of bad configuration and bad usage, as clap has it.
pub(crate) const MISUSED: u8 = 2;

/// An error and its causes in one line. A cause that the message before it has told already is not told twice.
pub(crate) fn told(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |told, cause| match told.as_str() {
        "" => cause,
        before if before.contains(&cause) => told,
        _ => format!("{told}: {cause}"),
    })
}
