//! `http://robots-proxy.internal/`, as clients see it through the proxy.

use std::process::Stdio;

use serde_json::json;
use tokio::process::Command;

use super::support::in_time;
use super::support::origin::{Origin, Reply};
use super::support::proxy::Proxy;

const OWN: &str = "http://robots-proxy.internal";

#[tokio::test(flavor = "multi_thread")]
async fn it_tells_what_a_client_needs_by_any_spelling_of_its_name_and_asks_nobody() {
    let decoy = Origin::http(|visit| Reply::of_site("User-agent: *\nDisallow: /\n", visit)).await;
    let names = [("robots-proxy.internal", &decoy), ("robots-proxy.internal:443", &decoy)];
    let proxy = Proxy::with(&names, |settings| {
        settings.upstream.passthrough = vec!["*.internal".parse().unwrap(), "robots-proxy.internal".parse().unwrap()];
    })
    .await;
    let shown = proxy.command(&["ca", "show"]).await.out;
    for url in [
        "http://robots-proxy.internal/",
        "http://ROBOTS-proxy.internal./",
        "http://robots-proxy.internal:8080/?x",
        "https://robots-proxy.internal/",
        "https://robots-proxy.internal:8443/",
    ] {
        let got = proxy.curl(&[url]).await;
        assert_eq!(
            (got.exit, got.status, got.header("content-type")),
            (0, 200, "text/plain; charset=utf-8"),
            "{url}: {got:?}"
        );
        let text = got.text();
        let sha256 = text.lines().find_map(|line| line.trim().strip_prefix("SHA-256 ")).unwrap();
        assert!(shown.contains(sha256), "{shown} has another certificate than {sha256}");
        assert!(text.contains(&format!("curl --proxy {} -o", proxy.url())) && !text.contains('{'), "{text}");
        let record = proxy.records(1).await.pop().unwrap();
        assert_eq!((&record["decision"], &record["reason"]), (&json!("allow"), &json!("own-page")), "{record}");
    }
    assert_eq!(proxy.records(5).await.len(), 5);
    assert!(decoy.visits().is_empty() && decoy.connections() == 0, "{:?}", decoy.paths());
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_for_browsers_the_certificate_and_a_pac_file_have_their_types() {
    let proxy = Proxy::before(&[]).await;
    let pem = std::fs::read(proxy.ca()).unwrap();
    for (path, status, media_type) in [
        ("/ca.pem", 200, "application/x-x509-ca-cert"),
        ("/ca.der", 200, "application/x-x509-ca-cert"),
        ("/ca.cer", 200, "application/x-x509-ca-cert"),
        ("/proxy.pac", 200, "application/x-ns-proxy-autoconfig"),
        ("/robots.txt", 200, "text/plain; charset=utf-8"),
        ("/other", 404, "text/plain; charset=utf-8"),
    ] {
        let got = proxy.curl(&[&format!("{OWN}{path}")]).await;
        assert_eq!((got.status, got.header("content-type")), (status, media_type), "{path}");
        assert_eq!((got.header("cache-control"), got.header("x-content-type-options")), ("no-store", "nosniff"));
        let head = proxy.curl(&["--head", &format!("{OWN}{path}")]).await;
        assert_eq!(
            (head.status, head.header("content-length")),
            (status, got.body.len().to_string().as_str()),
            "{path}"
        );
    }
    assert_eq!(proxy.curl(&[&format!("{OWN}/ca.pem")]).await.body, pem);
    let der = proxy.curl(&[&format!("{OWN}/ca.der")]).await.body;
    std::fs::write(proxy.folder().join("ca.der"), &der).unwrap();
    let read =
        Command::new("openssl").args(["x509", "-inform", "der", "-in"]).arg(proxy.folder().join("ca.der")).output();
    assert_eq!(String::from_utf8_lossy(&in_time("openssl", read).await.unwrap().stdout), String::from_utf8_lossy(&pem));

    let html = proxy.curl(&["--header", "Accept: text/html", &format!("{OWN}/")]).await;
    assert_eq!(html.header("content-type"), "text/html; charset=utf-8");
    assert!(html.header("content-security-policy").starts_with("default-src 'none'"));
    let text = html.text();
    for said in [
        "<summary>Debian, Ubuntu</summary>",
        "<summary>Windows</summary>",
        "Robots-Agent: MyBot",
        "href=\"/proxy.pac\"",
        &proxy.url(),
    ] {
        assert!(text.contains(said), "{said} is not in {text}");
    }
    assert!(!text.contains("<script") && !text.contains("{proxy}"), "{text}");
    let posted = proxy.curl(&["--data", "x", &format!("{OWN}/")]).await;
    assert_eq!(posted.status, 405, "{}", posted.text());

    let pac = proxy.curl(&[&format!("{OWN}/proxy.pac")]).await.text();
    let script = format!("{pac}; console.log(FindProxyForURL('https://example.com/', 'example.com'))");
    let run = Command::new("node").args(["-e", &script]).stdin(Stdio::null()).output();
    let said = String::from_utf8(in_time("node", run).await.unwrap().stdout).unwrap();
    assert_eq!(said.trim(), format!("PROXY {}", proxy.address));
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_sent_there_by_a_site_and_the_proxy_itself_does_not_go() {
    let site = Origin::http(|visit| match visit.is_robots() {
        true => Reply::with(302, &[("location", "http://robots-proxy.internal/robots.txt")], ""),
        false => Reply::text("page"),
    })
    .await;
    let proxy = Proxy::seen_inside(&[("shop.test", &site)], None, |_| {}).await;
    let got = proxy.curl(&["--header", "Accept: application/json", "http://shop.test/"]).await;
    assert_eq!((got.status, got.json()["reason"].as_str()), (403, Some("robots-unreachable")), "{}", got.text());
    let explained = proxy.look("/api/explain?url=http://robots-proxy.internal/", &[]).await.json();
    assert_eq!((&explained["allow"], &explained["reason"]), (&json!(false), &json!("loop")), "{explained}");
}

#[tokio::test(flavor = "multi_thread")]
async fn it_wants_the_password_of_the_proxy_but_no_name_of_a_bot() {
    let proxy = Proxy::with(&[], |settings| settings.identity.require = true).await;
    assert_eq!(proxy.curl(&["--user-agent", "", &format!("{OWN}/")]).await.status, 200);
    let folder = tempfile::tempdir().unwrap();
    let users = folder.path().join("users");
    std::fs::write(&users, "a:$2y$05$c4WoMPo3SXsafkva.HHa6uXQZWr7oboPiC2bT/r7q1BB8I2s0BRqC\n").unwrap();
    let proxy = Proxy::with(&[], |settings| settings.auth.htpasswd = Some(users)).await;
    assert_eq!(proxy.curl(&[&format!("{OWN}/")]).await.status, 407);
}
