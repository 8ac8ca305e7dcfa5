//! `[[exception]]`.

use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::units::Text;
use crate::policy::enforcement;
use crate::policy::host::HostPattern;
use crate::policy::identity::Token;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Exception {
    host: Text<HostPattern>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<Text<Token>>,
    reason: Text<Why>,
}

impl Exception {
    pub(super) fn settings(&self) -> enforcement::Exception {
        enforcement::Exception {
            host: self.host.0.clone(),
            token: self.token.as_ref().map(|token| token.0.clone()),
            reason: Arc::from(self.reason.0.0.as_str()),
        }
    }
}

/// Goes into every record, so it has to say something.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Why(String);

impl FromStr for Why {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Why, &'static str> {
        let says_something = !text.trim().is_empty();
        says_something.then(|| Why(text.to_owned())).ok_or("say why, as in \"written permission of 2026-10-02\"")
    }
}

impl std::fmt::Display for Why {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}
