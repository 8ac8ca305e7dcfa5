//! `[auth]`.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::auth;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Auth {
    #[serde(skip_serializing_if = "Option::is_none")]
    htpasswd: Option<PathBuf>,
}

impl Auth {
    /// Relative paths start from `base`.
    pub(super) fn settings_in(&self, base: &Path) -> auth::Settings {
        auth::Settings { htpasswd: self.htpasswd.as_ref().map(|file| base.join(file)) }
    }
}
