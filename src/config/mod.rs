//! The configuration file: the only place that knows TOML.
//!
//! The structs here have the shape of the file, and `contract` names; each part has settings of its own and does not know how they
//! are written. Defaults come from the parts, so that they stand in one place. Unknown keys are mistakes, because a misspelt limit
//! that is ignored is worse than a proxy that does not start.

mod load;
mod read;
mod settings;
mod units;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::load::{LoadError, Loaded};
pub use self::read::{Mistake, read};
use self::units::{Rate, Size, Span, Text};
use crate::ca::Permit;
use crate::lookup::{self, fetch};
use crate::policy::host::HostPattern;
use crate::policy::identity::{self, Source, Token};
use crate::policy::pacing;
use crate::proxy::limits;
use crate::upstream::{self, HostPort, ParentUrl};

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
    auth: Auth,
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
    permitted: Vec<Text<Permit>>,
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

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Auth {
    #[serde(skip_serializing_if = "Option::is_none")]
    htpasswd: Option<PathBuf>,
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
    navigation_wait: Span,
    hold_max: Span,
    overlap: bool,
    shared: Shared,
    max_queue: usize,
    requisites: Requisites,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Shared {
    Bot,
    Host,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Requisites {
    Burst,
    Paced,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    proxy: Option<Text<ParentUrl>>,
    private_addresses: Addresses,
    passthrough: Vec<Text<HostPattern>>,
    connect_timeout: Span,
    idle_timeout: Span,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Addresses {
    Allow,
    Deny,
    Auto,
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
            auth: Auth::default(),
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
        Ca { dir: "certs".into(), leaf_ttl: Span(Duration::from_secs(7 * 24 * 3600)), permitted: Vec::new() }
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
            navigation_wait: Span(pace.navigation_wait),
            hold_max: Span(pace.hold_max),
            overlap: pace.overlap,
            shared: Shared::Bot,
            max_queue: pace.max_queue,
            requisites: Requisites::Burst,
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
            proxy: None,
            private_addresses: Addresses::Auto,
            passthrough: Vec::new(),
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

    #[test]
    fn credentials_of_a_parent_proxy_are_not_shown() {
        let config = read("[upstream]\nproxy = \"http://user:secret@parent:3128\"\n").unwrap();
        let shown = toml::to_string(&config).unwrap();
        assert!(shown.contains("proxy = \"http://***@parent:3128\"") && !shown.contains("secret"), "{shown}");
        let mistakes = read("[upstream]\nproxy = \"gopher://user:secret@parent:3128\"\n").unwrap_err();
        assert!(mistakes[0].message.contains("socks5") && !mistakes[0].to_string().contains("secret"), "{mistakes:?}");
    }
}
