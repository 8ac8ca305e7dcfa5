//! Where the proxy never connects to: addresses that are not public, and itself.

use serde_json::json;

use robots_proxy::policy::address::PrivateAddresses;
use robots_proxy::policy::enforcement::Mode;

use super::support::curl::Got;
use super::support::origin::{Origin, Reply};
use super::support::proxy::Proxy;
use super::support::wire::Wire;

async fn open() -> Origin {
    Origin::http(|visit| Reply::of_site("", visit)).await
}

async fn ask(proxy: &Proxy, url: &str) -> Got {
    proxy.curl(&["--globoff", "-H", "Accept: application/json", url]).await
}

#[tokio::test]
async fn bypass_a11_a_private_address_is_refused_in_every_spelling_once_others_can_ask() {
    let (site, tls) = (open().await, Origin::https(|visit| Reply::of_site("", visit)).await);
    let proxy = Proxy::with(&[], |settings| settings.listen = vec!["0.0.0.0:0".parse().unwrap()]).await;
    let port = site.address.port();
    for host in ["127.0.0.1", "2130706433", "0x7f.1", "0177.0.0.1", "127.1", "localhost", "[::ffff:127.0.0.1]", "[::1]"]
    {
        for path in ["page", "robots.txt"] {
            let url = format!("http://{host}:{port}/{path}");
            let got = ask(&proxy, &url).await;
            assert_eq!((got.status, got.json()["reason"].clone()), (403, json!("private-address")), "{url}");
            assert!(got.json()["detail"].as_str().unwrap().contains("upstream.private_addresses"), "{}", got.text());
            assert!(got.header("proxy-status").contains("http_request_denied"));
            assert_eq!(got.retry_after(), None, "asking again does not help");
        }
    }
    let inside = ask(&proxy, &format!("https://127.0.0.1:{}/page", tls.address.port())).await;
    assert_eq!((inside.status, inside.json()["reason"].clone()), (403, json!("private-address")), "in a tunnel");
    assert_eq!((site.connections(), tls.connections()), (0, 0));
    let record = proxy.record_of("/page").await;
    assert_eq!((&record["decision"], &record["reason"]), (&json!("refuse"), &json!("private-address")));
}

#[tokio::test]
async fn the_setting_decides_and_connect_to_is_exempt() {
    let site = open().await;
    let literal = format!("http://{}/x", site.address);
    for (setting, status) in
        [(PrivateAddresses::Auto, 200), (PrivateAddresses::Allow, 200), (PrivateAddresses::Deny, 403)]
    {
        let proxy = Proxy::with(&[("a.test", &site)], |settings| settings.upstream.private_addresses = setting).await;
        assert_eq!(proxy.curl(&[&literal]).await.status, status, "{setting:?}");
        assert_eq!(proxy.curl(&["http://a.test/x"]).await.status, 200, "{setting:?}");
    }
}

#[tokio::test]
async fn observe_mode_lets_nobody_past_the_guard() {
    let site = open().await;
    let proxy = Proxy::with(&[], |settings| {
        settings.mode = Mode::Observe;
        settings.upstream.private_addresses = PrivateAddresses::Deny;
    })
    .await;
    let got = ask(&proxy, &format!("http://{}/x", site.address)).await;
    assert_eq!((got.status, got.json()["reason"].clone()), (403, json!("private-address")));
    assert_eq!(proxy.record_of("/x").await["decision"], "refuse");
    assert_eq!(site.connections(), 0);
}

#[tokio::test]
async fn bypass_e1_a_redirect_of_robots_txt_to_a_barred_address_is_a_failure_and_not_no_rules() {
    let inner = open().await;
    let elsewhere = format!("http://{}/robots.txt", inner.address);
    let site = Origin::http(move |visit| match visit.is_robots() {
        true => Reply::with(302, &[("location", elsewhere.as_str())], ""),
        false => Reply::text("page"),
    })
    .await;
    let proxy = Proxy::with(&[("a.test", &site)], |settings| {
        settings.upstream.private_addresses = PrivateAddresses::Deny;
    })
    .await;
    let got = ask(&proxy, "http://a.test/x").await;
    assert_eq!((got.status, got.json()["reason"].clone()), (403, json!("robots-unreachable")), "{}", got.text());
    assert!(got.json()["detail"].as_str().unwrap().contains("a loopback address"), "{}", got.text());
    assert_eq!((site.pages().len(), inner.connections()), (0, 0));
}

#[tokio::test]
async fn a_name_that_cannot_be_resolved_is_not_called_private() {
    let proxy = Proxy::with(&[], |settings| settings.upstream.private_addresses = PrivateAddresses::Deny).await;
    // No label may be so long, so that the resolver asks nobody.
    let name = format!("{}.test", "a".repeat(64));
    let page = ask(&proxy, &format!("http://{name}/x")).await;
    assert_eq!((page.status, page.json()["reason"].clone()), (403, json!("robots-unreachable")));
    let robots = ask(&proxy, &format!("http://{name}/robots.txt")).await;
    assert_eq!((robots.status, robots.json()["reason"].clone()), (502, json!("upstream-dns")));
}

#[tokio::test]
async fn bypass_a15_the_proxy_does_not_ask_itself() {
    for listener in ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0", "[::]:0"] {
        let proxy = Proxy::with(&[], |settings| {
            settings.listen = vec![listener.parse().unwrap()];
            settings.upstream.private_addresses = PrivateAddresses::Allow;
        })
        .await;
        let here = if listener.starts_with("[::1]") { "[::1]" } else { "127.0.0.1" };
        for scheme in ["http", "https"] {
            let url = format!("{scheme}://{here}:{}/x", proxy.address.port());
            let got = ask(&proxy, &url).await;
            assert_eq!((got.status, got.json()["reason"].clone()), (508, json!("loop")), "{listener} {url}");
            assert!(got.header("proxy-status").contains("proxy_loop_detected"), "{listener} {url}");
        }
    }
}

#[tokio::test]
async fn bypass_a15_a_request_that_comes_back_is_known_by_its_via() {
    let site = open().await;
    let (proxy, other) = (Proxy::before(&[("a.test", &site)]).await, Proxy::before(&[("a.test", &site)]).await);
    assert_eq!(proxy.curl(&["http://a.test/x"]).await.status, 200);
    let via = site.pages()[0].headers["via"].to_str().unwrap().to_owned();
    for (proxy, status) in [(&proxy, "508"), (&other, "200")] {
        let mut wire = Wire::to(proxy).await;
        wire.send(format!("GET http://a.test/y HTTP/1.1\r\nHost: a.test\r\nVia: 1.0 fred, {via}, 2 b\r\n\r\n")).await;
        let (head, _) = wire.answer().await;
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
    }
    assert_eq!(proxy.record_of("/y").await["reason"], "loop");
}
