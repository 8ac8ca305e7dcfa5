//! The subcommands, one file each.

pub(crate) mod audit;
pub(crate) mod ca;
pub(crate) mod check;
pub(crate) mod config;
pub(crate) mod copies;
pub(crate) mod demo;
mod evidence;
pub(crate) mod lines;
pub(crate) mod serve;
mod url;

/// Exit status of bad configuration and bad usage, as clap has it.
pub(crate) const MISUSED: u8 = 2;
