//! `auth.htpasswd`: 407 until the password is right, on every way in.

use std::sync::Arc;

use robots_proxy::policy::identity::MapEntry;
use serde_json::json;

use super::support::origin::{Origin, Reply};
use super::support::program;
use super::support::proxy::Proxy;
use super::support::wire::Wire;

const RULES: &str = "User-agent: *\nDisallow: /private/\nUser-agent: AnnBot\nDisallow: /ann/";

/// `user:secret`.
const RIGHT: &str = "Proxy-Authorization: Basic YW5uOnNlY3JldA==\r\n";
const WRONG: &str = "Proxy-Authorization: Basic YW5uOndyb25n\r\n";

async fn guarded() -> (Arc<Origin>, Arc<Origin>, Proxy) {
    let tls = Arc::new(Origin::https(|visit| Reply::of_site(RULES, visit)).await);
    let clear = Arc::new(Origin::http(|visit| Reply::of_site(RULES, visit)).await);
    let proxy = Proxy::with(&[("a.test", &tls), ("b.test", &clear)], |settings| {
        let file = settings.state_dir.join("users");
        std::fs::write(&file, format!("ann:{}\n", bcrypt::hash("secret", 4).unwrap())).unwrap();
        settings.auth.htpasswd = Some(file);
        let entry = MapEntry { user: Some("ann".into()), ..MapEntry::of("AnnBot".parse().unwrap()) };
        settings.identity.map = vec![entry];
    })
    .await;
    (tls, clear, proxy)
}

fn with_user(proxy: &Proxy, user: &str) -> String {
    format!("http://{user}@{}", proxy.address)
}

#[tokio::test]
async fn case_25_without_the_right_password_every_way_in_is_407() {
    let (tls, clear, proxy) = guarded().await;
    for option in ["--http1.1", "--http2"] {
        let got = proxy.curl(&[option, "-H", "Accept: application/json", "http://b.test/x"]).await;
        assert_eq!((got.status, got.json()["reason"].clone()), (407, json!("authentication-required")));
        assert_eq!(got.header("proxy-authenticate"), "Basic realm=\"robots-proxy\"");
        assert!(got.header("proxy-status").contains("error=http_request_denied"), "{:?}", got.headers);
        for user in ["ann:wrong", "bob:secret", "ann:"] {
            let url = with_user(&proxy, user);
            assert_eq!(proxy.curl(&[option, "--proxy", &url, "http://b.test/x"]).await.status, 407, "{user}");
            let got = proxy.curl(&[option, "--proxy", &url, "https://a.test/x"]).await;
            assert_eq!((got.exit, got.error.contains("407")), (56, true), "{}", got.error);
        }
    }
    assert!(tls.visits().is_empty() && clear.visits().is_empty());
    let record = proxy.record_of("/x").await;
    assert_eq!((&record["decision"], &record["reason"]), (&json!("refuse"), &json!("authentication-required")));
    let all = format!("{:?}", proxy.records(14).await);
    assert!(!all.contains("secret") && !all.contains("YW5u"), "{all}");
}

#[tokio::test]
async fn case_25_the_right_password_opens_and_goes_no_further() {
    let (tls, clear, proxy) = guarded().await;
    let url = with_user(&proxy, "ann:secret");
    for (page, origin) in [("http://b.test", &clear), ("https://a.test", &tls)] {
        // --proxy-anyauth asks without a password first, and again on the same connection.
        for option in ["--proxy-basic", "--proxy-anyauth"] {
            let got = proxy.curl(&["--proxy", &url, option, &format!("{page}/x")]).await;
            assert_eq!((got.exit, got.status), (0, 200), "{option} {page}: {}", got.error);
            assert_eq!(
                proxy.curl(&["--proxy", &url, &format!("{page}/ann/x")]).await.status,
                403,
                "the user is mapped"
            );
        }
        assert!(origin.visits().iter().all(|visit| !visit.headers.contains_key("proxy-authorization")));
    }
    let record = proxy.record_of("/ann/x").await;
    assert_eq!((&record["user"], &record["agent"]), (&json!("ann"), &json!("AnnBot")));
}

#[tokio::test]
async fn case_25_a_connection_is_kept_for_the_retry() {
    let (_tls, _clear, proxy) = guarded().await;
    let mut wire = Wire::to(&proxy).await;
    for (fields, status) in [("", "407"), (WRONG, "407"), ("", "407")] {
        wire.send(format!("CONNECT b.test:80 HTTP/1.1\r\nHost: b.test:80\r\n{fields}\r\n")).await;
        let (head, _) = wire.answer().await;
        assert_eq!(head.split(' ').nth(1), Some(status), "{head}");
        assert!(head.contains("Proxy-Authenticate: Basic realm=\"robots-proxy\""), "{head}");
        wire.send(format!("GET http://b.test/x HTTP/1.1\r\nHost: b.test\r\n{fields}\r\n")).await;
        assert_eq!(wire.answer().await.0.split(' ').nth(1), Some(status));
    }
    for _ in 0..2 {
        wire.send(format!("GET http://b.test/x HTTP/1.1\r\nHost: b.test\r\n{RIGHT}\r\n")).await;
        assert_eq!(wire.answer().await.1, "page /x");
    }
    wire.send("GET http://b.test/x HTTP/1.1\r\nHost: b.test\r\n\r\n").await;
    assert!(wire.answer().await.0.starts_with("HTTP/1.1 407 "), "a request is not opened by the one before it");
    wire.send(format!("CONNECT b.test:80 HTTP/1.1\r\nHost: b.test:80\r\n{RIGHT}\r\n")).await;
    assert!(wire.head().await.starts_with("HTTP/1.1 200 "));
    // Inside, the user of the CONNECT asks, whatever the request says.
    for fields in ["", WRONG, "Proxy-Authorization: Basic Ym9iOng=\r\n"] {
        wire.send(format!("GET /ann/{} HTTP/1.1\r\nHost: b.test\r\n{fields}\r\n", fields.len())).await;
        assert!(wire.answer().await.0.starts_with("HTTP/1.1 403 "));
        let record = proxy.record_of(&format!("/ann/{}", fields.len())).await;
        assert_eq!((&record["user"], &record["agent"]), (&json!("ann"), &json!("AnnBot")));
    }
}

#[tokio::test]
async fn a_file_of_users_with_a_mistake_stops_the_start_with_one_line() {
    let folder = program::folder("listen = [\"127.0.0.1:0\"]\n[auth]\nhtpasswd = \"users\"\n");
    std::fs::write(folder.path().join("users"), "# users\nann:$apr1$x$y\n").unwrap();
    let ran = program::run(folder.path(), &["serve"]).await;
    assert_eq!((ran.exit, ran.err.lines().count()), (1, 1), "{ran:?}");
    assert!(ran.err.contains("users, line 2: not a bcrypt hash"), "{}", ran.err);
}
