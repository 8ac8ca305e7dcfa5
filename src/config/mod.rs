//! The configuration file: the only place that knows TOML.
//!
//! Each section has a file with the shape it has in TOML and the way from there to the settings of its part, which does not know how
//! they are written. Defaults come from the parts, so that they stand in one place. Unknown keys are mistakes, because a misspelt limit
//! that is ignored is worse than a proxy that does not start.

mod admin;
mod audit;
mod auth;
mod ca;
mod exception;
mod identity;
mod limits;
mod load;
mod pace;
mod read;
mod robots;
mod units;
mod upstream;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

pub use self::load::{LoadError, Loaded};
pub use self::read::{Mistake, read};
use self::units::Text;
use crate::app;
use crate::hex::hex;
use crate::policy::enforcement::Mode;
use crate::proxy::socket::Listen;

/// The whole file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    listen: Vec<Text<Listen>>,
    mode: Text<Mode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state_dir: Option<PathBuf>,
    ca: ca::Ca,
    identity: identity::Identity,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    exception: Vec<exception::Exception>,
    auth: auth::Auth,
    robots: robots::Robots,
    pace: pace::Pace,
    audit: audit::Audit,
    upstream: upstream::Upstream,
    admin: admin::Admin,
    limits: limits::Limits,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            listen: vec![Text(Listen::Http(SocketAddr::from(([127, 0, 0, 1], 3128))))],
            mode: Text(Mode::Enforce),
            state_dir: None,
            ca: ca::Ca::default(),
            identity: identity::Identity::default(),
            exception: Vec::new(),
            auth: auth::Auth::default(),
            robots: robots::Robots::default(),
            pace: pace::Pace::default(),
            audit: audit::Audit::default(),
            upstream: upstream::Upstream::default(),
            admin: admin::Admin::default(),
            limits: limits::Limits::default(),
        }
    }
}

impl Config {
    /// The first 12 digits of the SHA-256 of the whole, defaults included, as `config show` prints it below its first line: so that a
    /// record tells which configuration was in force.
    pub fn fingerprint(&self) -> String {
        let shown = toml::to_string(self).unwrap_or_default();
        hex(&Sha256::digest(shown.as_bytes())[..6])
    }

    /// The settings of the parts; relative paths start from `base`, and `state` is the state folder where none is named.
    pub fn settings_in(&self, base: &Path, state: &Path) -> app::Settings {
        app::Settings {
            listen: self.listen.iter().map(|listen| listen.0.in_folder(base)).collect(),
            mode: self.mode.0,
            private: false,
            state_dir: self.state_dir.as_ref().map_or_else(|| state.to_owned(), |folder| base.join(folder)),
            ca: self.ca.settings_in(base),
            auth: self.auth.settings_in(base),
            identity: self.identity.settings(),
            exceptions: self.exception.iter().map(exception::Exception::settings).collect(),
            lookup: self.robots.lookup(),
            fetch: self.robots.fetch(),
            pace: self.pace.settings(),
            audit: self.audit.settings_in(base, self.fingerprint()),
            upstream: self.upstream.settings_in(base),
            admin: self.admin.settings_in(base),
            limits: self.limits.settings(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_shows_every_key_with_its_default() {
        let example = read(include_str!("../../config.toml.example")).unwrap();
        assert_eq!(example, Config::default());
        let shown: toml::Table = toml::from_str(include_str!("../../config.toml.example")).unwrap();
        let all: toml::Table = toml::from_str(&toml::to_string(&Config::default()).unwrap()).unwrap();
        for (section, value) in &all {
            let Some(keys) = value.as_table() else { continue };
            let shown = shown[section].as_table().unwrap();
            assert_eq!(shown.keys().collect::<Vec<_>>(), keys.keys().collect::<Vec<_>>(), "[{section}]");
        }
    }

    #[test]
    fn a_shown_configuration_reads_as_the_same() {
        let text = "[upstream.connect_to]\n\"a.test:443\" = \"127.0.0.1:8443\"\n[[identity.map]]\nclient = \"192.0.2.7\"\n\
                    user_agent = \"(?i)headless\"\nhost = \"*.example.com\"\ntoken = \"NimbuBot\"\nmode = \"observe\"\n\
                    send_user_agent = \"NimbuBot/1.0\"\n[[exception]]\nhost = \"*.a.test\"\ntoken = \"NimbuBot\"\nreason = \"mine\"\n";
        let config = read(text).unwrap();
        assert_eq!(read(&toml::to_string(&config).unwrap()).unwrap(), config);
    }

    #[test]
    fn credentials_of_a_parent_proxy_are_not_shown() {
        let config = read("[upstream]\nproxy = \"http://user:secret@parent:3128\"\n").unwrap();
        let shown = toml::to_string(&config).unwrap();
        assert!(shown.contains("proxy = \"http://***@parent:3128\"") && !shown.contains("secret"), "{shown}");
        let mistakes = read("[upstream]\nproxy = \"gopher://user:secret@parent:3128\"\n").unwrap_err();
        assert!(mistakes[0].message.contains("socks5") && !mistakes[0].to_string().contains("secret"), "{mistakes:?}");
    }
}
