//! `[identity]` and its `[[identity.map]]`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use http::HeaderValue;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::units::Text;
use crate::policy::enforcement::Mode;
use crate::policy::host::HostPattern;
use crate::policy::identity::{self, Source, Token};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Identity {
    order: Vec<Text<Source>>,
    header: Text<http::HeaderName>,
    default: Text<Token>,
    require: bool,
    allow: Vec<Text<Token>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    map: Vec<MapEntry>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MapEntry {
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<Text<Network>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user_agent: Option<Text<regex::Regex>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<Text<HostPattern>>,
    token: Text<Token>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<Text<Mode>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    send_user_agent: Option<Text<UserAgent>>,
}

impl Default for Identity {
    fn default() -> Identity {
        let identity::Settings { order, header, default, require, .. } = identity::Settings::default();
        Identity {
            order: order.into_iter().map(Text).collect(),
            header: Text(header),
            default: Text(default),
            require,
            allow: Vec::new(),
            map: Vec::new(),
        }
    }
}

impl PartialEq for MapEntry {
    fn eq(&self, other: &MapEntry) -> bool {
        // A regular expression has no equality of its own.
        let pattern = |entry: &MapEntry| entry.user_agent.as_ref().map(|pattern| pattern.0.as_str().to_owned());
        (&self.user, &self.client, &self.host, &self.token) == (&other.user, &other.client, &other.host, &other.token)
            && (&self.mode, &self.send_user_agent) == (&other.mode, &other.send_user_agent)
            && pattern(self) == pattern(other)
    }
}

impl Identity {
    pub(super) fn settings(&self) -> identity::Settings {
        identity::Settings {
            order: self.order.iter().map(|source| source.0).collect(),
            header: self.header.0.clone(),
            default: self.default.0.clone(),
            require: self.require,
            allow: self.allow.iter().map(|token| token.0.clone()).collect(),
            map: self.map.iter().map(MapEntry::settings).collect(),
        }
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
            mode: self.mode.as_ref().map(|mode| mode.0),
            send_user_agent: self.send_user_agent.as_ref().map(|value| value.0.0.clone()),
        }
    }
}

/// A network in CIDR notation, or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Network(IpNet);

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Network, String> {
        let address = || text.parse::<IpAddr>().map(IpNet::from);
        text.parse()
            .or_else(|_| address())
            .map(Network)
            .map_err(|_| format!("{text:?} is no network such as \"192.0.2.0/24\""))
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A User-Agent as it goes over the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
struct UserAgent(HeaderValue);

impl FromStr for UserAgent {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<UserAgent, &'static str> {
        let value =
            HeaderValue::from_str(text).ok().filter(|value| value.to_str().is_ok_and(|text| !text.trim().is_empty()));
        value
            .map(UserAgent)
            .ok_or("give a User-Agent in visible ASCII, such as \"Mozilla/5.0 (compatible; NimbuBot/1.0)\"")
    }
}

impl fmt::Display for UserAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.to_str().unwrap_or_default())
    }
}
