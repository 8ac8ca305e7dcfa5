//! What the CA may ever sign for, written into its own certificate (RFC 5280 §4.2.1.10).
//!
//! A client that trusts `ca.pem` trusts it for every host, and so whoever steals its key. Name constraints take that back: made critical,
//! so that a client that does not understand them refuses the CA instead. They are fixed when the CA is made; a later change of the
//! setting is told, and until then the narrower of the two holds. A kind of name of which none is permitted is excluded as a whole,
//! since constraints on one kind say nothing of the other.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use rcgen::{CidrSubnet, GeneralSubtree, NameConstraints};
use rustls::pki_types::ServerName;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;

use crate::policy::target::Host;

/// A domain with all that is below it, or a network.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Permit {
    /// `example.com`: itself, and every name below it.
    Domain(String),
    /// `192.0.2.0/24`, or one address.
    Network(IpNet),
}

impl FromStr for Permit {
    type Err = String;

    fn from_str(text: &str) -> Result<Permit, String> {
        let address = || text.parse::<IpAddr>().map(IpNet::from).ok();
        if let Some(network) = text.parse::<IpNet>().ok().or_else(address) {
            return Ok(Permit::Network(network.trunc()));
        }
        if text.contains('*') || text.starts_with('.') {
            return Err(format!(
                "{text:?}: give the domain alone, such as \"example.com\"; what is below it is permitted, too"
            ));
        }
        match Host::parse(text) {
            Ok(host) if host.ip().is_none() => Ok(Permit::Domain(host.as_str().to_owned())),
            _ => Err(format!(
                "{text:?} is neither a domain such as \"example.com\" nor a network such as \"192.0.2.0/24\""
            )),
        }
    }
}

impl fmt::Display for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Permit::Domain(name) => f.write_str(name),
            Permit::Network(network) => network.fmt(f),
        }
    }
}

/// All that a CA may sign for; nothing written is anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Permitted(Vec<Permit>);

impl Permitted {
    /// What a setting says.
    pub fn new(permits: &[Permit]) -> Permitted {
        let mut permits = permits.to_vec();
        permits.sort();
        permits.dedup();
        Permitted(permits)
    }

    /// What a certificate says.
    pub(super) fn of(certificate: &X509Certificate<'_>) -> Permitted {
        let constraints = certificate.name_constraints().ok().flatten();
        let subtrees = constraints.and_then(|constraints| constraints.value.permitted_subtrees.as_deref());
        let permits: Vec<Permit> =
            subtrees.unwrap_or_default().iter().filter_map(|subtree| permit_of(&subtree.base)).collect();
        Permitted::new(&permits)
    }

    /// Whether a certificate for this host can be made.
    pub fn admits(&self, host: &ServerName<'_>) -> bool {
        let fits = |permit: &Permit| match (permit, host) {
            (Permit::Network(network), ServerName::IpAddress(address)) => network.contains(&IpAddr::from(*address)),
            (Permit::Domain(domain), ServerName::DnsName(name)) => {
                let name = name.as_ref().to_ascii_lowercase();
                name.strip_suffix(domain.as_str()).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
            }
            _ => false,
        };
        self.0.is_empty() || self.0.iter().any(fits)
    }

    /// The extension of the CA's certificate.
    pub(super) fn constraints(&self) -> Option<NameConstraints> {
        if self.0.is_empty() {
            return None;
        }
        let mut excluded_subtrees = Vec::new();
        if !self.0.iter().any(|permit| matches!(permit, Permit::Domain(_))) {
            // Every name is below the empty one.
            excluded_subtrees.push(GeneralSubtree::DnsName(String::new()));
        }
        if !self.0.iter().any(|permit| matches!(permit, Permit::Network(_))) {
            excluded_subtrees
                .extend([EVERY_V4.into(), EVERY_V6.into()].map(|network| GeneralSubtree::IpAddress(subnet(network))));
        }
        let permitted_subtrees = self.0.iter().map(|permit| match permit {
            Permit::Domain(name) => GeneralSubtree::DnsName(name.clone()),
            Permit::Network(network) => GeneralSubtree::IpAddress(subnet(*network)),
        });
        Some(NameConstraints { permitted_subtrees: permitted_subtrees.collect(), excluded_subtrees })
    }
}

impl fmt::Display for Permitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [] => f.write_str("any host"),
            permits => f.write_str(&permits.iter().map(Permit::to_string).collect::<Vec<_>>().join(", ")),
        }
    }
}

const EVERY_V4: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::UNSPECIFIED, 0);
const EVERY_V6: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::UNSPECIFIED, 0);

fn subnet(network: IpNet) -> CidrSubnet {
    CidrSubnet::from_addr_prefix(network.network(), network.prefix_len())
}

fn permit_of(name: &GeneralName<'_>) -> Option<Permit> {
    match name {
        GeneralName::DNSName(name) => Some(Permit::Domain(name.trim_start_matches('.').to_ascii_lowercase())),
        GeneralName::IPAddress(octets) if octets.len() == 8 => {
            let (address, mask) = octets.split_at(4);
            let [address, mask] =
                [address, mask].map(|part| Ipv4Addr::from(<[u8; 4]>::try_from(part).unwrap_or_default()));
            IpNet::with_netmask(address.into(), mask.into()).ok().map(Permit::Network)
        }
        GeneralName::IPAddress(octets) if octets.len() == 32 => {
            let (address, mask) = octets.split_at(16);
            let [address, mask] =
                [address, mask].map(|part| Ipv6Addr::from(<[u8; 16]>::try_from(part).unwrap_or_default()));
            IpNet::with_netmask(address.into(), mask.into()).ok().map(Permit::Network)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permit_is_a_domain_with_all_below_it_or_a_network() {
        let permitted =
            |texts: &[&str]| Permitted::new(&texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<_>>());
        let names = ["Example.COM.", "test", "192.0.2.9/24", "2001:db8::/32", "127.0.0.1"];
        assert_eq!(permitted(&names).to_string(), "example.com, test, 127.0.0.1/32, 192.0.2.0/24, 2001:db8::/32");
        for (host, admitted) in [
            ("example.com", true),
            ("www.EXAMPLE.com", true),
            ("a.b.example.com", true),
            ("badexample.com", false),
            ("example.com.evil.example", false),
            ("com", false),
            ("shop.test", true),
            ("192.0.2.255", true),
            ("192.0.3.1", false),
            ("127.0.0.1", true),
            ("2001:db8::7", true),
            ("::1", false),
        ] {
            let name = ServerName::try_from(host).unwrap();
            assert_eq!(permitted(&names).admits(&name), admitted, "{host}");
            assert!(Permitted::default().admits(&name));
        }
        assert!(
            !permitted(&["example.com"]).admits(&ServerName::try_from("127.0.0.1").unwrap()),
            "no address by names"
        );
        assert!(!permitted(&["127.0.0.0/8"]).admits(&ServerName::try_from("a.test").unwrap()), "no name by addresses");
        for text in ["*.example.com", ".example.com", "", "a..b", "https://a.test", "192.0.2.0/99", "a.test:443"] {
            assert!(text.parse::<Permit>().is_err(), "{text}");
        }
    }
}
