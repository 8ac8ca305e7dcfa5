//! Through a proxy to the origins.

use std::net::SocketAddr;

use robots_proxy::policy::address::PrivateAddresses;
use serde_json::json;

use super::support::curl::Got;
use super::support::origin::{Origin, Reply};
use super::support::parent::{Kind, Parent};
use super::support::proxy::Proxy;

const RULES: &str = "User-agent: *\nDisallow: /private/";

async fn sites() -> (Origin, Origin) {
    let script = |visit: &super::support::origin::Visit| Reply::of_site(RULES, visit);
    (Origin::http(script).await, Origin::https(script).await)
}

async fn behind(url: String) -> Proxy {
    Proxy::with(&[], |settings| settings.upstream.proxy = Some(url.parse().unwrap())).await
}

async fn ask(proxy: &Proxy, url: &str) -> Got {
    proxy.curl(&["--globoff", "-H", "Accept: application/json", url]).await
}

fn scheme(kind: Kind) -> &'static str {
    match kind {
        Kind::Http => "http",
        Kind::Https => "https",
        Kind::Socks5 => "socks5",
    }
}

#[tokio::test]
async fn pages_and_robots_txt_go_through_every_kind_of_parent() {
    for kind in [Kind::Http, Kind::Https, Kind::Socks5] {
        for credentials in [None, Some(("us er", "p:@ss"))] {
            let (clear, tls) = sites().await;
            let names = [("a.test:80", clear.address), ("b.test:443", tls.address), ("c.test:8080", clear.address)];
            let parent = Parent::start(kind, &names, credentials).await;
            let user = if credentials.is_some() { "us%20er:p%3A%40ss@" } else { "" };
            let proxy = behind(format!("{}://{user}{}", scheme(kind), parent.address)).await;
            for url in ["http://a.test", "https://b.test", "http://c.test:8080"] {
                let got = proxy.curl(&[&format!("{url}/x?y=1")]).await;
                assert_eq!((got.status, got.text().as_str()), (200, "page /x?y=1"), "{kind:?} {url} {}", got.error);
                assert_eq!(proxy.curl(&[&format!("{url}/private/x")]).await.status, 403, "{kind:?} {url}");
            }
            for visit in clear.visits().iter().chain(&tls.visits()) {
                // In clear text the credentials are in the request, and it is the parent that takes them out.
                let told = visit.headers.contains_key("proxy-authorization");
                assert!(!told || visit.authority != "b.test" && kind != Kind::Socks5, "{visit:?}");
                assert!(["a.test", "b.test", "c.test:8080"].contains(&visit.authority.as_str()), "{visit:?}");
            }
            assert_eq!((clear.robots().len(), tls.robots().len()), (2, 1));
            let log = parent.log().join("\n");
            let expected: &[&str] = match kind {
                Kind::Socks5 => &["SOCKS a.test:80", "SOCKS b.test:443", "SOCKS c.test:8080"],
                _ => &[
                    "GET http://a.test/robots.txt HTTP/1.1\r\n",
                    "CONNECT b.test:443 HTTP/1.1\r\nHost: b.test:443\r\n",
                    "GET http://c.test:8080/robots.txt HTTP/1.1\r\n",
                ],
            };
            for line in expected {
                assert!(log.contains(line), "{kind:?} {line}: {log}");
            }
        }
    }
}

#[tokio::test]
async fn what_the_parent_says_is_not_the_origins_word() {
    for kind in [Kind::Http, Kind::Https, Kind::Socks5] {
        let (clear, tls) = sites().await;
        let names = [("a.test:80", clear.address), ("b.test:443", tls.address)];
        let parent = Parent::start(kind, &names, Some(("user", "right"))).await;
        let proxy = behind(format!("{}://user:wrong-secret@{}", scheme(kind), parent.address)).await;
        for url in ["http://a.test", "https://b.test"] {
            let page = ask(&proxy, &format!("{url}/x")).await;
            assert_eq!((page.status, page.json()["reason"].clone()), (403, json!("robots-unreachable")), "{kind:?}");
            let robots = ask(&proxy, &format!("{url}/robots.txt")).await;
            assert_eq!((robots.status, robots.json()["reason"].clone()), (502, json!("upstream-proxy")), "{kind:?}");
            assert!(robots.text().contains("upstream.proxy") && !robots.text().contains("secret"), "{}", robots.text());
            assert_eq!(robots.header("proxy-authenticate"), "", "the client is not asked for what it does not know");
            assert!(robots.header("proxy-status").contains("destination_unavailable"));
        }
        assert!(!proxy.records(4).await.iter().any(|record| record.to_string().contains("secret")));
        assert_eq!((clear.connections(), tls.connections()), (0, 0));
    }
}

#[tokio::test]
async fn a_parent_that_is_gone_or_does_not_know_the_host_is_named() {
    let gone: SocketAddr = {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap()
    };
    for kind in [Kind::Http, Kind::Https, Kind::Socks5] {
        let parent = Parent::start(kind, &[], None).await;
        for address in [gone, parent.address] {
            let proxy = behind(format!("{}://{address}", scheme(kind))).await;
            let got = ask(&proxy, "https://b.test/robots.txt").await;
            assert_eq!((got.status, got.json()["reason"].clone()), (502, json!("upstream-proxy")), "{kind:?}");
            assert!(got.json()["detail"].as_str().unwrap().contains(&address.to_string()), "{}", got.text());
        }
    }
}

#[tokio::test]
async fn case_06_an_ipv6_address_stands_in_brackets_before_the_parent() {
    for kind in [Kind::Http, Kind::Socks5] {
        let (clear, tls) = sites().await;
        let names = [("[::1]:8081", clear.address), ("[::1]:8443", tls.address)];
        let parent = Parent::start(kind, &names, None).await;
        let proxy = behind(format!("{}://{}", scheme(kind), parent.address)).await;
        for url in ["http://[::1]:8081/x", "https://[::1]:8443/x"] {
            let got = proxy.curl(&["--globoff", url]).await;
            assert_eq!((got.status, got.text().as_str()), (200, "page /x"), "{url}: {}", got.error);
        }
        if kind == Kind::Http {
            let log = parent.log().join("\n");
            assert!(log.contains("CONNECT [::1]:8443 HTTP/1.1\r\nHost: [::1]:8443\r\n"), "{log}");
            assert!(log.contains("GET http://[::1]:8081/robots.txt HTTP/1.1\r\n"), "{log}");
            assert!(log.to_lowercase().contains("\r\nhost: [::1]:8081\r\n"), "{log}");
        }
    }
}

#[tokio::test]
async fn connect_to_is_asked_of_the_parent_as_curl_does() {
    let (clear, tls) = sites().await;
    let (to_clear, to_tls) = (clear.address.to_string(), tls.address.to_string());
    let names = [(to_clear.as_str(), clear.address), (to_tls.as_str(), tls.address)];
    let parent = Parent::start(Kind::Http, &names, None).await;
    let proxy = Proxy::with(&[("a.test", &clear), ("b.test", &tls)], |settings| {
        settings.upstream.proxy = Some(format!("http://{}", parent.address).parse().unwrap());
    })
    .await;
    for url in ["http://a.test/x", "https://b.test/x"] {
        assert_eq!(proxy.curl(&[url]).await.status, 200, "{url}");
    }
    assert!(parent.log().iter().all(|head| head.starts_with("CONNECT 127.0.0.1:")), "{:?}", parent.log());
}

#[tokio::test]
async fn the_guard_sees_addresses_before_the_parent_does() {
    let parent = Parent::start(Kind::Http, &[], None).await;
    let proxy = Proxy::with(&[], |settings| {
        settings.upstream.proxy = Some(format!("http://{}", parent.address).parse().unwrap());
        settings.upstream.private_addresses = PrivateAddresses::Deny;
    })
    .await;
    for url in ["http://10.0.0.7/x", "https://10.0.0.7/x", "http://[fd00::7]/x"] {
        let got = ask(&proxy, url).await;
        assert_eq!((got.status, got.json()["reason"].clone()), (403, json!("private-address")), "{url}");
    }
    assert!(parent.log().is_empty());
}

#[tokio::test]
async fn two_of_these_proxies_in_a_row_are_no_loop() {
    let (clear, tls) = sites().await;
    let inner = Proxy::before(&[("a.test", &clear), ("b.test", &tls)]).await;
    let outer = Proxy::with(&[], |settings| {
        settings.upstream.proxy = Some(inner.url().parse().unwrap());
        settings.upstream.ca_files.push(inner.ca());
    })
    .await;
    for (url, site) in [("http://a.test/x", &clear), ("https://b.test/x", &tls)] {
        let got = outer.curl(&[url]).await;
        assert_eq!((got.status, got.text().as_str()), (200, "page /x"), "{url}: {}", got.error);
        assert_eq!(site.pages()[0].headers.get_all("via").iter().count(), 2, "{url}");
    }
}
