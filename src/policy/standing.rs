//! What holds at an origin now, and how we know.
//!
//! A standing is made by [`crate::lookup`] from the last good copy and the last try to get a new one, and never changes: a newer
//! one replaces it. It carries its evidence, so that an answer and a record can say since when and why.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use super::reason::Reason;
use crate::robots::RobotsTxt;
use crate::robots::status::Note;

/// What holds at an origin.
#[derive(Clone, Debug)]
pub struct Standing {
    /// What it means for a request.
    pub effect: Effect,
    /// The answer that it rests on: that of the copy in force, or, where there is none, that of the last try.
    pub evidence: Arc<Evidence>,
    /// Whether the copy is older than it should be, because the file cannot be had now.
    pub stale: bool,
    /// Why the last try failed, where it did.
    pub failure: Option<Arc<str>>,
    /// When the origin will be asked for its robots.txt again.
    pub ask_again_at: Instant,
}

impl Standing {
    /// Whether another one says the same: it rests on the same answer, and on the same try after that.
    pub fn says_the_same(&self, other: &Standing) -> bool {
        let same_effect = match (&self.effect, &other.effect) {
            (Effect::Rules(one), Effect::Rules(other)) => Arc::ptr_eq(one, other),
            (Effect::NoRules, Effect::NoRules) => true,
            (Effect::DisallowAll(one), Effect::DisallowAll(other)) => one == other,
            _ => false,
        };
        let facts = |of: &Standing| (of.stale, of.ask_again_at, of.failure.clone());
        same_effect && facts(self) == facts(other) && self.evidence == other.evidence
    }
}

/// The effect of a standing.
#[derive(Clone, Debug)]
pub enum Effect {
    /// The rules of a copy.
    Rules(Arc<RobotsTxt>),
    /// The origin has no rules.
    NoRules,
    /// Nothing may be fetched, for this reason.
    DisallowAll(Reason),
}

/// Where a standing comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// The robots.txt of the origin.
    pub robots_url: String,
    /// Where redirects led, if anywhere else.
    pub final_url: Option<String>,
    /// The status of the answer, if there was one.
    pub status: Option<u16>,
    /// When the origin last said that this holds.
    pub fetched_at: SystemTime,
    /// SHA-256 of the body, in hex.
    pub sha256: Option<String>,
    /// Whether the file was longer than `robots.max_bytes`.
    pub truncated: bool,
    /// What a reader of the record should know, in one word.
    pub note: Option<Note>,
}
