//! `[ca]`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::units::{Span, Text};
use crate::ca::{self, Permit};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Ca {
    dir: PathBuf,
    leaf_ttl: Span,
    permitted: Vec<Text<Permit>>,
}

impl Default for Ca {
    fn default() -> Ca {
        Ca { dir: "certs".into(), leaf_ttl: Span(Duration::from_secs(7 * 24 * 3600)), permitted: Vec::new() }
    }
}

impl Ca {
    /// Relative paths start from `base`.
    pub(super) fn settings_in(&self, base: &Path) -> ca::Settings {
        ca::Settings {
            dir: base.join(&self.dir),
            leaf_ttl: self.leaf_ttl.0,
            permitted: self.permitted.iter().map(|permit| permit.0.clone()).collect(),
        }
    }
}
