//! The audit log: one JSON object a line for each request that matters.
//!
//! Whoever answers for scrapers must be able to say what they did and why, so a [`Record`] begins with the request and is written
//! when it is dropped: a client that hangs up in the middle of a wait is recorded like any other. A refusal is on disk before the
//! client has it. Credentials and cookies have no field here, so they cannot be written.

pub mod chain;
mod entry;
pub mod feed;
mod json;
mod log;
mod query;
mod record;
mod rotated;
#[cfg(test)]
mod tests;
mod writer;

use std::path::PathBuf;
use std::time::Duration;

pub use self::query::Query;
pub use self::record::{Asked, Record};
pub use self::rotated::{compressed, files, open as open_rotated};
pub use self::writer::{Audit, OpenError, Prepared};
use crate::policy::reason::Reason;

/// Where records go, and which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The file; `None` is standard output.
    pub path: Option<PathBuf>,
    /// Which requests are recorded.
    pub record: Which,
    /// The file is rotated when it has so many octets; 0 is never.
    pub rotate: u64,
    /// So many rotated files stay.
    pub keep: usize,
    /// What becomes of query strings.
    pub query: Query,
    /// What a disk that takes no records means.
    pub on_failure: OnFailure,
    /// Each record names the hash of the one before it.
    pub chain: bool,
    /// What each record says of the configuration.
    pub config: String,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            path: None,
            record: Which::default(),
            rotate: 100 << 20,
            keep: 10,
            query: Query::default(),
            on_failure: OnFailure::default(),
            chain: false,
            config: String::new(),
        }
    }
}

/// What a disk that takes no records means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// Requests are served all the same.
    #[default]
    Serve,
    /// No request is served until it takes records again.
    Stop,
}

impl OnFailure {
    fn consequence(self) -> &'static str {
        match self {
            OnFailure::Serve => "requests are served all the same",
            OnFailure::Stop => "requests are refused until it takes records again",
        }
    }
}

/// Which requests are recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Which {
    /// Those that did not get through.
    #[default]
    Blocked,
    /// All.
    All,
}

/// How a request reached the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// A request with a whole URL, in clear text.
    Plain,
    /// Inside a CONNECT.
    Connect,
}

/// A request that has ended, recorded or not.
#[derive(Clone, Copy, Debug)]
pub struct Ended<'a> {
    /// `allow`, `refuse`, `observe` or `error`.
    pub decision: &'static str,
    /// Why.
    pub reason: Reason,
    /// What was asked for, as it is recorded.
    pub url: &'a str,
    /// The bot, where it could be told.
    pub agent: Option<&'a str>,
    /// The deciding rule.
    pub rule: Option<&'a str>,
    /// Its line.
    pub line: Option<u32>,
    /// The robots.txt that it stands in.
    pub robots_url: Option<&'a str>,
    /// How long the request waited for its turn.
    pub waited: Option<Duration>,
}
