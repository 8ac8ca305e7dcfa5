//! Where a connection may lead, with a resolver that says what the test wants. Nothing but loopback is dialled.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::net::TcpListener;

use super::dial::{Dialer, Route};
use super::resolve::Resolver;
use super::{ConnectTo, Error, HostPort, Settings, Upstream, tls};
use crate::clock;
use crate::policy::address::PrivateAddresses;

/// Names and their addresses, as `name=address,address`; other names cannot be resolved.
fn resolver(names: &'static [&'static str]) -> Resolver {
    Resolver::asking(move |host| {
        let known = names.iter().filter_map(|line| line.split_once('=')).find(|(name, _)| *name == host.as_str());
        let found = known.map(|(_, list)| list.split(',').map(|address| address.parse().unwrap()).collect());
        async move { found.ok_or_else(|| io::Error::other("no such name")) }.boxed()
    })
}

fn place(text: &str) -> HostPort {
    text.parse().unwrap()
}

fn dialer(settings: Settings, resolver: Resolver, listeners: &[&str]) -> Dialer {
    let dialer = Dialer::new(&settings, Arc::new(resolver), &Arc::new(tls::roots(&[]).unwrap())).unwrap();
    dialer.listening_on(listeners.iter().map(|address| address.parse().unwrap()).collect());
    dialer
}

fn denying() -> Settings {
    Settings { private_addresses: PrivateAddresses::Deny, ..Settings::default() }
}

#[tokio::test]
async fn bypass_a11_every_address_of_a_name_is_checked() {
    let names = &[
        "public.test=192.175.48.6,2620:4f:8000::6",
        "private.test=10.0.0.7",
        "mixed.test=192.175.48.6,fd00::7",
        "mapped.test=::ffff:10.0.0.7",
    ];
    let dialer = dialer(denying(), resolver(names), &["127.0.0.1:3128"]);
    match dialer.find(&place("public.test:443")).await {
        Ok(Route::Direct(addresses)) => {
            let checked: Vec<SocketAddr> =
                ["192.175.48.6:443", "[2620:4f:8000::6]:443"].map(|address| address.parse().unwrap()).into();
            assert_eq!(addresses, checked);
        }
        _ => panic!("a public name is not barred"),
    }
    for (host, class) in [
        ("private.test:80", "a private address"),
        ("mixed.test:80", "a private address"),
        ("mapped.test:80", "an IPv4-mapped address"),
        ("2130706433:80", "a loopback address"),
        ("0x7f.1:80", "a loopback address"),
        ("0177.0.0.1:80", "a loopback address"),
        ("127.1:80", "a loopback address"),
        ("[::ffff:127.0.0.1]:80", "an IPv4-mapped address"),
        ("[::ffff:7f00:1]:80", "an IPv4-mapped address"),
        ("[64:ff9b::7f00:1]:80", "a NAT64 address"),
        ("169.254.169.254:80", "a link-local address"),
    ] {
        match dialer.find(&place(host)).await {
            Err(Error::PrivateAddress { class: told, .. }) => assert_eq!(told, class, "{host}"),
            _ => panic!("{host} is not barred"),
        }
    }
}

#[tokio::test]
async fn a_resolver_that_fails_bars_nothing() {
    let dialer = dialer(denying(), resolver(&[]), &[]);
    assert!(matches!(dialer.find(&place("a.test:80")).await, Err(Error::Dns { .. })));
}

#[tokio::test(start_paused = true)]
async fn bypass_a13_a_name_that_moves_to_a_private_address_is_refused_each_time() {
    let asked = AtomicUsize::new(0);
    let rebinding = Resolver::asking(move |_| {
        let addresses = ["192.175.48.6", "127.0.0.1"];
        let address: IpAddr = addresses[asked.fetch_add(1, Ordering::SeqCst) % 2].parse().unwrap();
        async move { Ok(vec![address]) }.boxed()
    });
    let dialer = dialer(denying(), rebinding, &[]);
    for _ in 0..3 {
        assert!(dialer.find(&place("a.test:80")).await.is_ok(), "and what was checked is what is connected to");
        clock::sleep(Duration::from_secs(31)).await;
        assert!(matches!(dialer.find(&place("a.test:80")).await, Err(Error::PrivateAddress { .. })));
        clock::sleep(Duration::from_secs(31)).await;
    }
}

#[tokio::test]
async fn what_the_operator_names_in_connect_to_is_exempt() {
    let site = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = HostPort { host: place("127.0.0.1:1").host, port: site.local_addr().unwrap().port() };
    let connect_to = vec![ConnectTo { from: place("a.test:80"), to }];
    let dialer = dialer(Settings { connect_to, ..denying() }, resolver(&["b.test=127.0.0.1"]), &["0.0.0.0:3128"]);
    assert!(dialer.tunnel(&place("a.test:80")).await.is_ok());
    assert!(matches!(dialer.tunnel(&place("b.test:80")).await, Err(Error::PrivateAddress { .. })));
    assert!(matches!(dialer.tunnel(&place("127.0.0.1:80")).await, Err(Error::PrivateAddress { .. })));
}

#[tokio::test]
async fn with_a_parent_proxy_only_literal_addresses_can_be_checked() {
    let settings = Settings { proxy: Some("http://127.0.0.1:8888".parse().unwrap()), ..denying() };
    let dialer = dialer(settings, resolver(&["a.test=127.0.0.1"]), &[]);
    assert!(matches!(dialer.find(&place("a.test:80")).await, Ok(Route::Through(..))), "the parent resolves the name");
    assert!(matches!(dialer.find(&place("10.0.0.7:80")).await, Err(Error::PrivateAddress { .. })));
}

#[tokio::test]
async fn bypass_a15_an_address_of_a_listener_is_the_proxy_itself() {
    for (listener, host, itself) in [
        ("127.0.0.1:3128", "127.0.0.1:3128", true),
        ("127.0.0.1:3128", "127.0.0.1:3129", false),
        ("127.0.0.1:3128", "127.0.0.2:3128", false),
        ("127.0.0.1:3128", "0.0.0.0:3128", true),
        ("127.0.0.1:3128", "[::ffff:127.0.0.1]:3128", true),
        ("0.0.0.0:3128", "127.0.0.1:3128", true),
        ("0.0.0.0:3128", "127.9.9.9:3128", true),
        ("0.0.0.0:3128", "0.0.0.0:3128", true),
        ("[::1]:3128", "[::1]:3128", true),
        ("[::1]:3128", "[::]:3128", true),
        ("[::]:3128", "[::1]:3128", true),
        ("[::]:3128", "127.0.0.1:3128", true),
        ("[::]:3128", "[::ffff:127.0.0.1]:3128", true),
        ("[::]:3128", "a.test:3128", true),
        ("127.0.0.1:3128", "a.test:3128", true),
    ] {
        let settings = Settings { private_addresses: PrivateAddresses::Allow, ..Settings::default() };
        let dialer = dialer(settings, resolver(&["a.test=192.175.48.6,127.0.0.1"]), &[listener]);
        let found = dialer.find(&place(host)).await;
        assert_eq!(matches!(found, Err(Error::Itself { .. })), itself, "{listener} and {host}");
    }
}

#[tokio::test]
async fn a_host_whose_first_address_is_dead_is_reached_at_the_next() {
    let site = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = site.local_addr().unwrap().port();
    let dialer = dialer(Settings::default(), resolver(&["a.test=::1,127.0.0.2,127.0.0.1"]), &[]);
    assert!(dialer.tunnel(&place(&format!("a.test:{port}"))).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_resolver_that_never_answers_is_a_time_out_of_its_own() {
    let silent = Resolver::asking(|_| std::future::pending().boxed());
    let dialer = dialer(Settings::default(), silent, &[]);
    let error = dialer.tunnel(&place("a.test:80")).await.err();
    assert!(matches!(error, Some(Error::DnsTimedOut { .. })), "{error:?}");
}

#[tokio::test]
async fn a_reload_keeps_the_connections_that_the_new_settings_would_have_made() {
    let before = Settings::default();
    let upstream = Upstream::new(&before).unwrap();
    upstream.listening_on(vec!["127.0.0.1:3128".parse().unwrap()]);
    let to = |text: &str| text.parse::<HostPort>().unwrap();
    let connect_to = vec![ConnectTo { from: to("a.test:80"), to: to("127.0.0.1:1") }];
    for (settings, keeps) in [
        (before.clone(), true),
        (Settings { connect_timeout: Duration::from_secs(1), ..before.clone() }, true),
        (Settings { passthrough: vec!["a.test".parse().unwrap()], ..before.clone() }, true),
        (Settings { connect_to, ..before.clone() }, false),
        (Settings { private_addresses: PrivateAddresses::Deny, ..before.clone() }, false),
        (Settings { proxy: Some("http://127.0.0.1:1".parse().unwrap()), ..before.clone() }, false),
        (Settings { idle_timeout: Duration::from_secs(1), ..before.clone() }, false),
    ] {
        let way = upstream.prepare(&settings).unwrap();
        assert_eq!(Arc::ptr_eq(&way.pool, &upstream.way.load().pool), keeps, "{settings:?}");
        assert_eq!(
            way.dialer.find(&to("127.0.0.1:3128")).await.err().map(|error| error.to_string().contains("itself")),
            Some(true)
        );
    }
    let missing = Settings { ca_files: vec!["/nowhere/ca.pem".into()], ..before };
    assert!(upstream.prepare(&missing).is_err());
}
