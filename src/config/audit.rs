//! `[audit]`.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::units::Size;
use crate::audit;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Audit {
    path: PathBuf,
    record: Which,
    rotate: Size,
    keep: usize,
    query: Query,
    on_failure: OnFailure,
    chain: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Which {
    Blocked,
    All,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Query {
    Keep,
    Strip,
    Hash,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum OnFailure {
    Serve,
    Stop,
}

impl Default for Audit {
    fn default() -> Audit {
        let audit = audit::Settings::default();
        Audit {
            path: "audit.jsonl".into(),
            record: Which::Blocked,
            rotate: Size(usize::try_from(audit.rotate).unwrap_or(usize::MAX)),
            keep: audit.keep,
            query: Query::Keep,
            on_failure: OnFailure::Serve,
            chain: audit.chain,
        }
    }
}

impl Audit {
    /// Relative paths start from `base`; `config` is what records say of the configuration.
    pub(super) fn settings_in(&self, base: &Path, config: String) -> audit::Settings {
        audit::Settings {
            path: (self.path != Path::new("-")).then(|| base.join(&self.path)),
            record: match self.record {
                Which::Blocked => audit::Which::Blocked,
                Which::All => audit::Which::All,
            },
            rotate: self.rotate.0 as u64,
            keep: self.keep,
            query: match self.query {
                Query::Keep => audit::Query::Keep,
                Query::Strip => audit::Query::Strip,
                Query::Hash => audit::Query::Hash,
            },
            on_failure: match self.on_failure {
                OnFailure::Serve => audit::OnFailure::Serve,
                OnFailure::Stop => audit::OnFailure::Stop,
            },
            chain: self.chain,
            config,
        }
    }
}
