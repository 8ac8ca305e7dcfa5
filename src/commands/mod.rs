//! The subcommands, one file each.

pub(crate) mod ca;
pub(crate) mod check;
pub(crate) mod config;
pub(crate) mod demo;
pub(crate) mod serve;

/// Exit status of bad configuration and bad usage, as clap has it.
pub(crate) const MISUSED: u8 = 2;
