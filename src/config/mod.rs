//! The configuration file: the only place that knows TOML.
//!
//! The structs here have the shape of the file, and `contract` names; each part has settings of its own and does not know how they
//! are written. Defaults come from the parts, so that they stand in one place. Unknown keys are mistakes, because a misspelt limit
//! that is ignored is worse than a proxy that does not start.

mod read;
mod units;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::read::{Mistake, read};
use self::units::{Rate, Size, Span, Text};
use crate::app;
use crate::audit;
use crate::lookup::{self, fetch};
use crate::policy::host::HostPattern;
use crate::policy::identity::{self, Source, Token};
use crate::policy::pacing;
use crate::proxy::limits;
use crate::robots::status::{Lifetimes, StatusPolicy};
use crate::upstream::{self, ConnectTo, HostPort};

/// The whole file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where clients connect.
    pub listen: Vec<SocketAddr>,
    mode: Mode,
    #[serde(skip_serializing_if = "Option::is_none")]
    state_dir: Option<PathBuf>,
    ca: Ca,
    identity: Identity,
    robots: Robots,
    pace: Pace,
    audit: Audit,
    upstream: Upstream,
    limits: Limits,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Mode {
    #[default]
    Enforce,
    Observe,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Ca {
    dir: PathBuf,
    leaf_ttl: Span,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Identity {
    order: Vec<Text<Source>>,
    header: Text<http::HeaderName>,
    default: Text<Token>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    map: Vec<MapEntry>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MapEntry {
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<Text<Network>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user_agent: Option<Text<regex::Regex>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<Text<HostPattern>>,
    token: Text<Token>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Robots {
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

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Pace {
    default_delay: Span,
    min_delay: Span,
    max_delay: Span,
    max_wait: Span,
    overlap: bool,
    max_queue: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Audit {
    path: PathBuf,
    record: Which,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Which {
    Blocked,
    All,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Upstream {
    ca_files: Vec<PathBuf>,
    connect_to: BTreeMap<Text<HostPort>, Text<HostPort>>,
    connect_timeout: Span,
    idle_timeout: Span,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Limits {
    connections: usize,
    per_client: Text<Rate>,
    header_timeout: Span,
    header_bytes: Size,
    drain: Span,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 3128))],
            mode: Mode::Enforce,
            state_dir: None,
            ca: Ca::default(),
            identity: Identity::default(),
            robots: Robots::default(),
            pace: Pace::default(),
            audit: Audit::default(),
            upstream: Upstream::default(),
            limits: Limits::default(),
        }
    }
}

impl Default for Ca {
    fn default() -> Ca {
        Ca { dir: "certs".into(), leaf_ttl: Span(Duration::from_secs(7 * 24 * 3600)) }
    }
}

impl Default for Identity {
    fn default() -> Identity {
        let identity::Settings { order, header, default, .. } = identity::Settings::default();
        Identity {
            order: order.into_iter().map(Text).collect(),
            header: Text(header),
            default: Text(default),
            map: Vec::new(),
        }
    }
}

impl PartialEq for MapEntry {
    fn eq(&self, other: &MapEntry) -> bool {
        let pattern = |entry: &MapEntry| entry.user_agent.as_ref().map(|pattern| pattern.0.as_str().to_owned());
        (&self.user, &self.client, &self.host, &self.token) == (&other.user, &other.client, &other.host, &other.token)
            && pattern(self) == pattern(other)
    }
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

impl Default for Pace {
    fn default() -> Pace {
        let pace = pacing::Settings::default();
        Pace {
            default_delay: Span(pace.default_delay),
            min_delay: Span(pace.min_delay),
            max_delay: Span(pace.max_delay),
            max_wait: Span(pace.max_wait),
            overlap: pace.overlap,
            max_queue: pace.max_queue,
        }
    }
}

impl Default for Audit {
    fn default() -> Audit {
        Audit { path: "audit.jsonl".into(), record: Which::Blocked }
    }
}

impl Default for Upstream {
    fn default() -> Upstream {
        let upstream = upstream::Settings::default();
        Upstream {
            ca_files: Vec::new(),
            connect_to: BTreeMap::new(),
            connect_timeout: Span(upstream.connect_timeout),
            idle_timeout: Span(upstream.idle_timeout),
        }
    }
}

impl Default for Limits {
    fn default() -> Limits {
        let limits = limits::Settings::default();
        Limits {
            connections: limits.connections,
            per_client: Text(Rate { number: None, period: Duration::from_secs(1) }),
            header_timeout: Span(limits.header_timeout),
            header_bytes: Size(limits.header_bytes),
            drain: Span(limits.drain),
        }
    }
}

/// A network in CIDR notation, or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Network(ipnet::IpNet);

impl std::str::FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Network, String> {
        let address = || text.parse::<std::net::IpAddr>().map(ipnet::IpNet::from);
        text.parse()
            .or_else(|_| address())
            .map(Network)
            .map_err(|_| format!("{text:?} is no network such as \"192.0.2.0/24\""))
    }
}

impl std::fmt::Display for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// A configuration, and where it comes from.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// What it says.
    pub config: Config,
    /// The file; `None` where there is none and the defaults hold.
    pub file: Option<PathBuf>,
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file cannot be read.
    #[error("cannot read the configuration {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's words.
        source: std::io::Error,
    },
    /// The file has mistakes.
    #[error("{}", list(path, mistakes))]
    Mistakes {
        /// The file.
        path: PathBuf,
        /// All of them.
        mistakes: Vec<Mistake>,
    },
    /// There is no home folder to keep anything in.
    #[error("no folder for the proxy's state is known on this machine: set state_dir in a configuration file")]
    NoStateDir,
}

fn list(path: &Path, mistakes: &[Mistake]) -> String {
    let lines: Vec<String> = mistakes.iter().map(|mistake| format!("{}: {mistake}", path.display())).collect();
    lines.join("\n")
}

impl Loaded {
    /// Reads the file that was named or, where none was, `./config.toml` or the one in the platform's configuration folder.
    ///
    /// # Errors
    /// The file cannot be read or has mistakes.
    pub fn load(named: Option<&Path>) -> Result<Loaded, LoadError> {
        let Some(path) = named.map(Path::to_owned).or_else(default_file) else {
            return Ok(Loaded { config: Config::default(), file: None });
        };
        let text =
            std::fs::read_to_string(&path).map_err(|source| LoadError::Unreadable { path: path.clone(), source })?;
        let config = read(&text).map_err(|mistakes| LoadError::Mistakes { path: path.clone(), mistakes })?;
        Ok(Loaded { config, file: Some(path) })
    }

    /// What relative paths start from: the file's folder or, without a file, the state folder.
    fn base(&self) -> Result<PathBuf, LoadError> {
        let file = self.file.as_deref().map(std::path::absolute).transpose().ok().flatten();
        let folder = file.and_then(|file| file.parent().map(Path::to_owned));
        folder.or_else(|| self.config.state_dir.clone()).or_else(platform_state_dir).ok_or(LoadError::NoStateDir)
    }

    /// The folder of the certificate authority.
    ///
    /// # Errors
    /// No folder is known.
    pub fn ca(&self) -> Result<crate::ca::Settings, LoadError> {
        Ok(crate::ca::Settings { dir: self.base()?.join(&self.config.ca.dir), leaf_ttl: self.config.ca.leaf_ttl.0 })
    }

    /// The way to origins.
    ///
    /// # Errors
    /// No folder is known.
    pub fn upstream(&self) -> Result<upstream::Settings, LoadError> {
        let base = self.base()?;
        let upstream = &self.config.upstream;
        let connect_to =
            upstream.connect_to.iter().map(|(from, to)| ConnectTo { from: from.0.clone(), to: to.0.clone() });
        Ok(upstream::Settings {
            ca_files: upstream.ca_files.iter().map(|file| base.join(file)).collect(),
            connect_to: connect_to.collect(),
            connect_timeout: upstream.connect_timeout.0,
            idle_timeout: upstream.idle_timeout.0,
        })
    }

    /// How robots.txt is kept.
    pub fn lookup(&self) -> lookup::Settings {
        let robots = &self.config.robots;
        lookup::Settings {
            status_policy: match robots.status_policy {
                Policy::Careful => StatusPolicy::Careful,
                Policy::Rfc9309 => StatusPolicy::Rfc9309,
            },
            lifetimes: Lifetimes { ttl: robots.ttl.0, min_ttl: robots.min_ttl.0, retry: robots.retry.0 },
            stale_for: robots.stale_for.0,
            max_bytes: robots.max_bytes.0,
            max_copies: robots.max_copies,
        }
    }

    /// How robots.txt is asked for.
    pub fn fetch(&self) -> fetch::Settings {
        let robots = &self.config.robots;
        fetch::Settings {
            user_agent: robots.user_agent.clone(),
            timeout: robots.timeout.0,
            max_bytes: robots.max_bytes.0,
            max_redirects: robots.max_redirects,
        }
    }

    /// All of it, for the parts.
    ///
    /// # Errors
    /// No folder for the state is known.
    pub fn settings(&self) -> Result<app::Settings, LoadError> {
        let Config { identity, pace, audit, limits, .. } = &self.config;
        let base = self.base()?;
        Ok(app::Settings {
            listen: self.config.listen.clone(),
            observe: self.config.mode == Mode::Observe,
            ca: self.ca()?,
            identity: identity::Settings {
                order: identity.order.iter().map(|source| source.0).collect(),
                header: identity.header.0.clone(),
                default: identity.default.0.clone(),
                map: identity.map.iter().map(MapEntry::settings).collect(),
            },
            lookup: self.lookup(),
            fetch: self.fetch(),
            pace: pacing::Settings {
                default_delay: pace.default_delay.0,
                min_delay: pace.min_delay.0,
                max_delay: pace.max_delay.0,
                max_wait: pace.max_wait.0,
                overlap: pace.overlap,
                max_queue: pace.max_queue,
            },
            audit: audit::Settings {
                path: (audit.path != Path::new("-")).then(|| base.join(&audit.path)),
                record: match audit.record {
                    Which::Blocked => audit::Which::Blocked,
                    Which::All => audit::Which::All,
                },
            },
            upstream: self.upstream()?,
            limits: limits::Settings {
                connections: limits.connections,
                per_client: limits.per_client.0.number.map(|number| (number, limits.per_client.0.period)),
                header_timeout: limits.header_timeout.0,
                header_bytes: limits.header_bytes.0,
                drain: limits.drain.0,
            },
        })
    }
}

impl MapEntry {
    fn settings(&self) -> identity::MapEntry {
        identity::MapEntry {
            user: self.user.clone(),
            client: self.client.as_ref().map(|network| network.0.0),
            user_agent: self.user_agent.as_ref().map(|pattern| pattern.0.clone()),
            host: self.host.as_ref().map(|host| host.0.clone()),
            token: self.token.0.clone(),
        }
    }
}

fn platform_folders() -> Option<directories::ProjectDirs> {
    directories::ProjectDirs::from("", "", "robots-proxy")
}

fn platform_state_dir() -> Option<PathBuf> {
    let folders = platform_folders()?;
    Some(folders.state_dir().unwrap_or(folders.data_local_dir()).to_owned())
}

fn default_file() -> Option<PathBuf> {
    let here = PathBuf::from("config.toml");
    let platform = || platform_folders().map(|folders| folders.config_dir().join("config.toml"));
    Some(here).filter(|file| file.exists()).or_else(platform).filter(|file| file.exists())
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
                    user_agent = \"(?i)headless\"\nhost = \"*.example.com\"\ntoken = \"NimbuBot\"\n";
        let config = read(text).unwrap();
        assert_eq!(read(&toml::to_string(&config).unwrap()).unwrap(), config);
    }
}
