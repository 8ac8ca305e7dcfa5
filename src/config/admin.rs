//! `[admin]`.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::units::Text;
use crate::admin::{self, Secret};
use crate::proxy::socket::Listen;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Written")]
pub(super) struct Admin {
    #[serde(skip_serializing_if = "Option::is_none")]
    listen: Option<Text<Listen>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<Text<Secret>>,
}

/// The section before it is known to keep others out.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Written {
    listen: Option<Text<Listen>>,
    token: Option<Text<Secret>>,
}

impl TryFrom<Written> for Admin {
    type Error = admin::Unguarded;

    fn try_from(Written { listen, token }: Written) -> Result<Admin, admin::Unguarded> {
        let admin = Admin { listen, token };
        admin.settings().map_or(Ok(()), |settings| settings.check())?;
        Ok(admin)
    }
}

impl Admin {
    /// `None` where it is off.
    fn settings(&self) -> Option<admin::Settings> {
        let listen = self.listen.as_ref()?.0.clone();
        Some(admin::Settings { listen, token: self.token.as_ref().map(|token| token.0.clone()) })
    }

    /// The same; relative paths start from `base`.
    pub(super) fn settings_in(&self, base: &Path) -> Option<admin::Settings> {
        self.settings().map(|settings| admin::Settings { listen: settings.listen.in_folder(base), ..settings })
    }
}

#[cfg(test)]
mod tests {
    use crate::config::{Config, read};

    #[test]
    fn a_view_for_others_wants_a_token() {
        for (text, line, told) in [
            ("[admin]\nlisten = \"0.0.0.0:3129\"\n", 1, "others can reach 0.0.0.0:3129: set a token"),
            ("mode = \"observe\"\n[admin]\nlisten = \"https://192.0.2.1:3129\"\n", 2, "set a token"),
            ("[admin]\nlisten = \"127.0.0.1:3129\"\ntoken = \"\"\n", 3, "visible ASCII"),
            ("[admin]\nlisten = \"3129\"\n", 2, "is no place to listen at"),
            ("[admin]\nport = 3129\n", 2, "unknown field"),
        ] {
            let mistakes = read(text).unwrap_err();
            let [mistake] = &mistakes[..] else { panic!("{mistakes:?}") };
            assert_eq!(mistake.line, line, "{mistake}");
            assert!(mistake.key.starts_with("admin") && mistake.message.contains(told), "{mistake}");
        }
        for text in ["[admin]\n", "[admin]\nlisten = \"127.0.0.1:3129\"\n", "[admin]\nlisten = \"unix:admin.sock\"\n"] {
            assert!(read(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn the_token_is_not_shown() {
        let config: Config = read("[admin]\nlisten = \"0.0.0.0:3129\"\ntoken = \"hunter2hunter2\"\n").unwrap();
        let shown = toml::to_string(&config).unwrap();
        assert!(shown.contains("token = \"***\"") && !shown.contains("hunter2"), "{shown}");
        assert!(!format!("{config:?}").contains("hunter2"));
    }
}
