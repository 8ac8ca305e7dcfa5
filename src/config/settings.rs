//! From the shape of the file to the settings of the parts.

use std::path::Path;

use super::{Addresses, Audit, Config, Limits, MapEntry, Mode, Policy, Requisites, Shared, Upstream, Which};
use crate::app;
use crate::audit;
use crate::auth;
use crate::ca;
use crate::lookup::{self, fetch};
use crate::policy::address::PrivateAddresses;
use crate::policy::{identity, pacing};
use crate::proxy::limits;
use crate::robots::status::{Lifetimes, StatusPolicy};
use crate::upstream::{self, ConnectTo};

impl Config {
    /// The settings of the parts; relative paths start from `base`, and `state` is the state folder where none is named.
    pub fn settings_in(&self, base: &Path, state: &Path) -> app::Settings {
        app::Settings {
            listen: self.listen.clone(),
            observe: self.mode == Mode::Observe,
            state_dir: self.state_dir.as_ref().map_or_else(|| state.to_owned(), |folder| base.join(folder)),
            ca: ca::Settings {
                dir: base.join(&self.ca.dir),
                leaf_ttl: self.ca.leaf_ttl.0,
                permitted: self.ca.permitted.iter().map(|permit| permit.0.clone()).collect(),
            },
            auth: auth::Settings { htpasswd: self.auth.htpasswd.as_ref().map(|file| base.join(file)) },
            identity: self.identity(),
            lookup: self.lookup(),
            fetch: self.fetch(),
            pace: self.pace(),
            audit: self.audit.settings_in(base),
            upstream: self.upstream.settings_in(base),
            limits: self.limits.settings(),
        }
    }

    fn identity(&self) -> identity::Settings {
        identity::Settings {
            order: self.identity.order.iter().map(|source| source.0).collect(),
            header: self.identity.header.0.clone(),
            default: self.identity.default.0.clone(),
            map: self.identity.map.iter().map(MapEntry::settings).collect(),
        }
    }

    fn lookup(&self) -> lookup::Settings {
        let robots = &self.robots;
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

    fn fetch(&self) -> fetch::Settings {
        let robots = &self.robots;
        fetch::Settings {
            user_agent: robots.user_agent.clone(),
            timeout: robots.timeout.0,
            max_bytes: robots.max_bytes.0,
            max_redirects: robots.max_redirects,
        }
    }

    fn pace(&self) -> pacing::Settings {
        let pace = &self.pace;
        pacing::Settings {
            default_delay: pace.default_delay.0,
            min_delay: pace.min_delay.0,
            max_delay: pace.max_delay.0,
            max_wait: pace.max_wait.0,
            navigation_wait: pace.navigation_wait.0,
            hold_max: pace.hold_max.0,
            overlap: pace.overlap,
            shared: match pace.shared {
                Shared::Bot => pacing::Shared::Bot,
                Shared::Host => pacing::Shared::Host,
            },
            max_queue: pace.max_queue,
            requisites: match pace.requisites {
                Requisites::Burst => pacing::Requisites::Burst,
                Requisites::Paced => pacing::Requisites::Paced,
            },
        }
    }
}

impl Audit {
    fn settings_in(&self, base: &Path) -> audit::Settings {
        audit::Settings {
            path: (self.path != Path::new("-")).then(|| base.join(&self.path)),
            record: match self.record {
                Which::Blocked => audit::Which::Blocked,
                Which::All => audit::Which::All,
            },
        }
    }
}

impl Upstream {
    fn settings_in(&self, base: &Path) -> upstream::Settings {
        upstream::Settings {
            ca_files: self.ca_files.iter().map(|file| base.join(file)).collect(),
            connect_to: (self.connect_to.iter())
                .map(|(from, to)| ConnectTo { from: from.0.clone(), to: to.0.clone() })
                .collect(),
            proxy: self.proxy.as_ref().map(|url| url.0.clone()),
            private_addresses: match self.private_addresses {
                Addresses::Allow => PrivateAddresses::Allow,
                Addresses::Deny => PrivateAddresses::Deny,
                Addresses::Auto => PrivateAddresses::Auto,
            },
            passthrough: self.passthrough.iter().map(|pattern| pattern.0.clone()).collect(),
            connect_timeout: self.connect_timeout.0,
            idle_timeout: self.idle_timeout.0,
        }
    }
}

impl Limits {
    fn settings(&self) -> limits::Settings {
        limits::Settings {
            connections: self.connections,
            per_client: self.per_client.0.number.map(|number| (number, self.per_client.0.period)),
            header_timeout: self.header_timeout.0,
            header_bytes: self.header_bytes.0,
            drain: self.drain.0,
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
