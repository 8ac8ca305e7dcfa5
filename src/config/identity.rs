//! `[identity]` and its `[[identity.map]]`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::units::Text;
use crate::policy::host::HostPattern;
use crate::policy::identity::{self, Source, Token};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Identity {
    order: Vec<Text<Source>>,
    header: Text<http::HeaderName>,
    default: Text<Token>,
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

impl Identity {
    pub(super) fn settings(&self) -> identity::Settings {
        identity::Settings {
            order: self.order.iter().map(|source| source.0).collect(),
            header: self.header.0.clone(),
            default: self.default.0.clone(),
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
