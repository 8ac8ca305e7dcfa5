//! `[upstream]`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::units::{Span, Text};
use crate::policy::address::PrivateAddresses;
use crate::policy::host::HostPattern;
use crate::policy::port::Ports;
use crate::upstream::{self, ConnectTo, HostPort, ParentUrl};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Upstream {
    ca_files: Vec<PathBuf>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    client_certificate: Vec<ClientCertificate>,
    connect_to: BTreeMap<Text<HostPort>, Text<HostPort>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    proxy: Option<Text<ParentUrl>>,
    private_addresses: Addresses,
    ports: Vec<u16>,
    passthrough: Vec<Text<HostPattern>>,
    connect_timeout: Span,
    idle_timeout: Span,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClientCertificate {
    host: Text<HostPattern>,
    cert: PathBuf,
    key: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Addresses {
    Allow,
    Deny,
    Auto,
}

impl Default for Upstream {
    fn default() -> Upstream {
        let upstream = upstream::Settings::default();
        Upstream {
            ca_files: Vec::new(),
            client_certificate: Vec::new(),
            connect_to: BTreeMap::new(),
            proxy: None,
            private_addresses: Addresses::Auto,
            ports: Vec::new(),
            passthrough: Vec::new(),
            connect_timeout: Span(upstream.connect_timeout),
            idle_timeout: Span(upstream.idle_timeout),
        }
    }
}

impl Upstream {
    /// Relative paths start from `base`.
    pub(super) fn settings_in(&self, base: &Path) -> upstream::Settings {
        upstream::Settings {
            ca_files: self.ca_files.iter().map(|file| base.join(file)).collect(),
            client_certificates: self.client_certificate.iter().map(|entry| entry.settings_in(base)).collect(),
            connect_to: (self.connect_to.iter())
                .map(|(from, to)| ConnectTo { from: from.0.clone(), to: to.0.clone() })
                .collect(),
            proxy: self.proxy.as_ref().map(|url| url.0.clone()),
            private_addresses: match self.private_addresses {
                Addresses::Allow => PrivateAddresses::Allow,
                Addresses::Deny => PrivateAddresses::Deny,
                Addresses::Auto => PrivateAddresses::Auto,
            },
            ports: Ports::allowing(self.ports.clone()),
            passthrough: self.passthrough.iter().map(|pattern| pattern.0.clone()).collect(),
            connect_timeout: self.connect_timeout.0,
            idle_timeout: self.idle_timeout.0,
        }
    }
}

impl ClientCertificate {
    fn settings_in(&self, base: &Path) -> upstream::ClientCertificate {
        upstream::ClientCertificate {
            host: self.host.0.clone(),
            cert: base.join(&self.cert),
            key: base.join(&self.key),
        }
    }
}
