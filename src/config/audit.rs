//! `[audit]`.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::audit;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Audit {
    path: PathBuf,
    record: Which,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Which {
    Blocked,
    All,
}

impl Default for Audit {
    fn default() -> Audit {
        Audit { path: "audit.jsonl".into(), record: Which::Blocked }
    }
}

impl Audit {
    /// Relative paths start from `base`.
    pub(super) fn settings_in(&self, base: &Path) -> audit::Settings {
        audit::Settings {
            path: (self.path != Path::new("-")).then(|| base.join(&self.path)),
            record: match self.record {
                Which::Blocked => audit::Which::Blocked,
                Which::All => audit::Which::All,
            },
        }
    }
}
