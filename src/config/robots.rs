//! `[robots]`.

use serde::{Deserialize, Serialize};

use super::units::{Size, Span};
use crate::lookup::{self, fetch};
use crate::robots::status::{Lifetimes, StatusPolicy};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Robots {
    user_agent: String,
    status_policy: Policy,
    ttl: Span,
    min_ttl: Span,
    retry: Span,
    stale_for: Span,
    timeout: Span,
    max_bytes: Size,
    max_redirects: usize,
    max_copies: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Policy {
    Careful,
    Rfc9309,
}

impl Default for Robots {
    fn default() -> Robots {
        let (lookup, fetch) = (lookup::Settings::default(), fetch::Settings::default());
        Robots {
            user_agent: fetch.user_agent,
            status_policy: Policy::Careful,
            ttl: Span(lookup.lifetimes.ttl),
            min_ttl: Span(lookup.lifetimes.min_ttl),
            retry: Span(lookup.lifetimes.retry),
            stale_for: Span(lookup.stale_for),
            timeout: Span(fetch.timeout),
            max_bytes: Size(lookup.max_bytes),
            max_redirects: fetch.max_redirects,
            max_copies: lookup.max_copies,
        }
    }
}

impl Robots {
    /// How copies are kept.
    pub(super) fn lookup(&self) -> lookup::Settings {
        lookup::Settings {
            status_policy: match self.status_policy {
                Policy::Careful => StatusPolicy::Careful,
                Policy::Rfc9309 => StatusPolicy::Rfc9309,
            },
            lifetimes: Lifetimes { ttl: self.ttl.0, min_ttl: self.min_ttl.0, retry: self.retry.0 },
            stale_for: self.stale_for.0,
            max_bytes: self.max_bytes.0,
            max_copies: self.max_copies,
        }
    }

    /// How they are asked for.
    pub(super) fn fetch(&self) -> fetch::Settings {
        fetch::Settings {
            user_agent: self.user_agent.clone(),
            timeout: self.timeout.0,
            max_bytes: self.max_bytes.0,
            max_redirects: self.max_redirects,
        }
    }
}
