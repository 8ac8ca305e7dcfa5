//! Which addresses are off limits to a proxy that strangers can use.
//!
//! Whoever may ask a proxy for any URL may ask for those inside its own network: cloud metadata, a router's page, a database. So an
//! address must be ordinary unicast on the public Internet, by IANA's special-purpose registries (RFC 6890). Everything that embeds
//! an IPv4 address (mapped, NAT64, 6to4, Teredo) is barred as a whole, as smokescreen does: no public site needs it, and each is a
//! second spelling of a private address. Pure: names are resolved, and every address asked about, in [`crate::upstream`].

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What `upstream.private_addresses` says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PrivateAddresses {
    /// Connect to any address.
    Allow,
    /// Connect to public addresses only.
    Deny,
    /// Any address while nobody but this machine can ask: while every listener is on loopback.
    #[default]
    Auto,
}

impl PrivateAddresses {
    /// Whether special addresses are barred, for a proxy that listens there.
    pub fn bars(self, listeners: impl IntoIterator<Item = IpAddr>) -> bool {
        match self {
            PrivateAddresses::Allow => false,
            PrivateAddresses::Deny => true,
            PrivateAddresses::Auto => !listeners.into_iter().all(|listener| listener.to_canonical().is_loopback()),
        }
    }
}

/// What is special about an address, in a few words; `None` for an ordinary public one.
pub fn special_use(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => {
            let bits = u32::from(address);
            V4.iter().find(|(network, length, _)| (bits ^ u32::from(*network)) >> (32 - length) == 0).map(|row| row.2)
        }
        IpAddr::V6(address) => {
            let bits = u128::from(address);
            let within = |network: Ipv6Addr, length: u32| (bits ^ u128::from(network)) >> (128 - length) == 0;
            let row = V6.iter().find(|(network, length, _)| within(*network, *length)).map(|row| row.2);
            row.or((!within(GLOBAL_UNICAST, 3)).then_some("not a global unicast address"))
        }
    }
}

/// RFC 4291 §2.4: what IANA gives out of IPv6 for unicast.
const GLOBAL_UNICAST: Ipv6Addr = Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0);

const fn v4(a: u8, b: u8, c: u8, d: u8) -> Ipv4Addr {
    Ipv4Addr::new(a, b, c, d)
}

/// IANA's IPv4 special-purpose registry, and multicast.
const V4: [(Ipv4Addr, u32, &str); 16] = [
    (v4(0, 0, 0, 0), 8, "an unspecified address"),
    (v4(10, 0, 0, 0), 8, "a private address"),
    (v4(100, 64, 0, 0), 10, "an address shared behind carrier-grade NAT"),
    (v4(127, 0, 0, 0), 8, "a loopback address"),
    (v4(169, 254, 0, 0), 16, "a link-local address"),
    (v4(172, 16, 0, 0), 12, "a private address"),
    (v4(192, 0, 0, 0), 24, "an address for protocol assignments"),
    (v4(192, 0, 2, 0), 24, "a documentation address"),
    (v4(192, 88, 99, 0), 24, "a 6to4 relay address"),
    (v4(192, 168, 0, 0), 16, "a private address"),
    (v4(198, 18, 0, 0), 15, "a benchmarking address"),
    (v4(198, 51, 100, 0), 24, "a documentation address"),
    (v4(203, 0, 113, 0), 24, "a documentation address"),
    (v4(224, 0, 0, 0), 4, "a multicast address"),
    (v4(255, 255, 255, 255), 32, "the broadcast address"),
    (v4(240, 0, 0, 0), 4, "a reserved address"),
];

const fn v6(a: u16, b: u16, c: u16, d: u16, e: u16, f: u16) -> Ipv6Addr {
    Ipv6Addr::new(a, b, c, d, e, f, 0, 0)
}

/// IANA's IPv6 special-purpose registry, and multicast; what is not in [`GLOBAL_UNICAST`] is barred without a row, too.
const V6: [(Ipv6Addr, u32, &str); 17] = [
    (Ipv6Addr::UNSPECIFIED, 128, "an unspecified address"),
    (Ipv6Addr::LOCALHOST, 128, "a loopback address"),
    (v6(0, 0, 0, 0, 0, 0xffff), 96, "an IPv4-mapped address"),
    (v6(0, 0, 0, 0, 0, 0), 96, "an IPv4-compatible address"),
    (v6(0x64, 0xff9b, 0, 0, 0, 0), 96, "a NAT64 address"),
    (v6(0x64, 0xff9b, 1, 0, 0, 0), 48, "a NAT64 address"),
    (v6(0x100, 0, 0, 0, 0, 0), 64, "a discard-only address"),
    (v6(0x2001, 0, 0, 0, 0, 0), 32, "a Teredo address"),
    (v6(0x2001, 2, 0, 0, 0, 0), 48, "a benchmarking address"),
    (v6(0x2001, 0, 0, 0, 0, 0), 23, "an address for protocol assignments"),
    (v6(0x2001, 0xdb8, 0, 0, 0, 0), 32, "a documentation address"),
    (v6(0x3fff, 0, 0, 0, 0, 0), 20, "a documentation address"),
    (v6(0x2002, 0, 0, 0, 0, 0), 16, "a 6to4 address"),
    (v6(0xfc00, 0, 0, 0, 0, 0), 7, "a private address"),
    (v6(0xfe80, 0, 0, 0, 0, 0), 10, "a link-local address"),
    (v6(0xfec0, 0, 0, 0, 0, 0), 10, "a site-local address"),
    (v6(0xff00, 0, 0, 0, 0, 0), 8, "a multicast address"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_that_is_no_public_site_is_told() {
        for (special, addresses) in [
            ("unspecified", &["0.0.0.0", "0.1.2.3", "::"][..]),
            (
                "private",
                &["10.0.0.0", "10.255.255.255", "172.16.0.1", "172.31.255.255", "192.168.1.1", "fc00::1", "fdff::1"],
            ),
            ("carrier-grade NAT", &["100.64.0.0", "100.127.255.255"]),
            ("loopback", &["127.0.0.1", "127.255.255.254", "::1"]),
            ("link-local", &["169.254.169.254", "fe80::1", "febf::1"]),
            ("protocol assignments", &["192.0.0.8", "2001:20::1", "2001:1ff::1"]),
            ("documentation", &["192.0.2.1", "198.51.100.1", "203.0.113.255", "2001:db8::1", "3fff:fff::1"]),
            ("6to4", &["192.88.99.1", "2002:7f00:1::1", "2002:808:808::1"]),
            ("benchmarking", &["198.18.0.1", "198.19.255.255", "2001:2::1"]),
            ("multicast", &["224.0.0.1", "239.255.255.255", "ff02::1"]),
            ("reserved", &["240.0.0.1", "255.255.255.254"]),
            ("broadcast", &["255.255.255.255"]),
            ("IPv4-mapped", &["::ffff:127.0.0.1", "::ffff:8.8.8.8"]),
            ("IPv4-compatible", &["::127.0.0.1", "::8.8.8.8", "::2"]),
            ("NAT64", &["64:ff9b::7f00:1", "64:ff9b::808:808", "64:ff9b:1::1"]),
            ("discard-only", &["100::1"]),
            ("Teredo", &["2001::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2"]),
            ("site-local", &["fec0::1"]),
            ("not a global unicast", &["5f00::1", "4000::1", "64:ff9b:2::1", "1::1"]),
        ] {
            for address in addresses {
                let told = special_use(address.parse().unwrap());
                assert!(told.is_some_and(|told| told.contains(special)), "{address}: {told:?}, not {special}");
            }
        }
    }

    #[test]
    fn the_neighbours_of_each_class_are_public() {
        for address in [
            "1.0.0.0",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "191.255.255.255",
            "192.0.1.0",
            "192.0.3.0",
            "192.88.98.255",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "198.51.99.255",
            "203.0.112.255",
            "203.0.114.0",
            "223.255.255.255",
            "2000::1",
            "2001:200::1",
            "2001:db7::1",
            "2001:db9::1",
            "2003::1",
            "2606:4700::1111",
            "3ffe::1",
            "3fff:1000::1",
        ] {
            assert_eq!(special_use(address.parse().unwrap()), None, "{address}");
        }
    }

    #[test]
    fn auto_bars_as_soon_as_anybody_else_can_ask() {
        let bars = |setting: PrivateAddresses, listeners: &[&str]| {
            setting.bars(listeners.iter().map(|listener| listener.parse().unwrap()))
        };
        for (listeners, barred) in [
            (&["127.0.0.1", "::1", "::ffff:127.0.0.1"][..], false),
            (&[], false),
            (&["0.0.0.0"], true),
            (&["::"], true),
            (&["127.0.0.1", "192.0.2.1"], true),
        ] {
            assert_eq!(bars(PrivateAddresses::Auto, listeners), barred, "{listeners:?}");
            assert!(bars(PrivateAddresses::Deny, listeners) && !bars(PrivateAddresses::Allow, listeners));
        }
    }
}
