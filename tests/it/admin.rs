//! The view inside, as programs use it: who may look, what they see, and that it is as described.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use robots_proxy::admin;
use robots_proxy::app::Settings;
use robots_proxy::policy::pacing;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::sync::Semaphore;

use super::support::curl::Got;
use super::support::origin::{Origin, Reply};
use super::support::proxy::Proxy;
use super::support::{in_time, until};

const ROBOTS: &str = "# the shop\nUser-agent: *\nAllow: /private/open\nDisallow: /private/\nCrawl-delay: 30\nSitemap: http://shop.test/map\n";
const TOKEN: &str = "correct horse battery";

async fn shop() -> Origin {
    Origin::http(|visit| Reply::of_site(ROBOTS, visit)).await
}

/// A live feed, line by line. Its client goes when it is dropped.
struct Feed {
    lines: Lines<BufReader<TcpStream>>,
}

impl Feed {
    async fn of(proxy: &Proxy, query: &str, fields: &str) -> Feed {
        let address = proxy.admin().trim_start_matches("http://").to_owned();
        let mut stream = TcpStream::connect(&address).await.unwrap();
        let head = format!("GET /api/decisions/live{query} HTTP/1.1\r\nHost: {address}\r\n{fields}\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut feed = Feed { lines: BufReader::new(stream).lines() };
        assert_eq!(feed.line().await, "HTTP/1.1 200 OK");
        while !feed.line().await.is_empty() {}
        feed
    }

    async fn line(&mut self) -> String {
        in_time("a line of the feed", self.lines.next_line()).await.unwrap().expect("it goes on")
    }

    async fn line_with(&mut self, text: &str) -> String {
        loop {
            let line = self.line().await;
            if line.contains(text) {
                return line;
            }
        }
    }

    async fn decision(&mut self) -> Value {
        let line = self.line_with("data: ").await;
        serde_json::from_str(line.strip_prefix("data: ").unwrap()).unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_off_unless_configured_and_its_own_address_is_a_loop() {
    let site = shop().await;
    let mut proxy = Proxy::before(&[("shop.test", &site)]).await;
    assert!(proxy.take().admin().is_none());
    let proxy = Proxy::seen_inside(&[("shop.test", &site)], None, |_| {}).await;
    let through = proxy.curl(&[&format!("{}/api/status", proxy.admin())]).await;
    assert_eq!(
        (through.status, through.text().contains("asked to fetch from itself")),
        (508, true),
        "{}",
        through.text()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_token_only_this_machine_and_no_site_is_answered() {
    let proxy = Proxy::seen_inside(&[], None, |_| {}).await;
    for (path, arguments, status, shows) in [
        ("/api/status", &[][..], 200, "curl"),
        ("/api/status", &["--header", "Host: rebound.evil.test"], 421, "DNS rebinding"),
        ("/", &["--header", "Host: rebound.evil.test"], 421, "the page, too"),
        ("/api/status", &["--header", "Sec-Fetch-Site: cross-site"], 403, "another site reads"),
        ("/api/status", &["--header", "Origin: http://evil.test"], 403, "another site reads with CORS"),
        (
            "/api/copy?origin=http://shop.test",
            &["--request", "DELETE", "--header", "Origin: http://evil.test"],
            403,
            "changes",
        ),
        (
            "/api/copy/refresh?origin=http://shop.test",
            &["--data", "", "--header", "Sec-Fetch-Site: same-site"],
            403,
            "other port",
        ),
        ("/api/status", &["--request", "OPTIONS", "--header", "Origin: http://evil.test"], 403, "a preflight"),
        ("/api/copy/refresh?origin=http://shop.test", &[], 405, "a link changes nothing"),
        ("/login", &[], 303, "there is nothing to log in to"),
        ("/nothing", &[], 404, "nothing there"),
    ] {
        let got = proxy.look(path, arguments).await;
        assert_eq!(got.status, status, "{shows}: {}", got.text());
        assert!(got.headers.keys().all(|name| !name.as_str().starts_with("access-control-")), "{shows}");
        assert!(got.header("content-security-policy").contains("script-src 'self'; style-src 'self'"), "{shows}");
        assert_eq!(
            (got.header("x-content-type-options"), got.header("x-frame-options")),
            ("nosniff", "DENY"),
            "{shows}"
        );
        assert_eq!(
            (got.header("cache-control"), got.header("cross-origin-resource-policy")),
            ("no-store", "same-origin")
        );
        if status >= 400 {
            assert_eq!(got.header("content-type"), "application/problem+json", "{shows}");
            assert_eq!(got.json()["status"], status, "{shows}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_token_nothing_but_health_is_shown_without_it() {
    let proxy = Proxy::seen_inside(&[], Some(TOKEN), |_| {}).await;
    let bearer = format!("Authorization: Bearer {TOKEN}");
    for (path, arguments, status) in [
        ("/healthz", &[][..], 200),
        ("/readyz", &[], 200),
        ("/login", &[], 200),
        ("/style.css", &[], 200),
        ("/", &[], 303),
        ("/app.js", &[], 401),
        ("/api/status", &[], 401),
        ("/metrics", &[], 401),
        ("/ca.pem", &[], 401),
        ("/nothing", &[], 401),
        ("/api/decisions/live", &[], 401),
        ("/metrics", &["--header", &bearer], 200),
        ("/api/status", &["--header", &bearer], 200),
        ("/api/status", &["--header", &bearer, "--header", "Host: a.name.in.the.cluster"], 200),
        ("/api/status", &["--header", "Authorization: Bearer correct horse batter"], 401),
        ("/api/status", &["--cookie", &format!("robots-proxy-admin={TOKEN}")], 401),
        ("/api/status", &["--header", &bearer, "--header", "Sec-Fetch-Site: cross-site"], 403),
    ] {
        let got = proxy.look(path, arguments).await;
        assert_eq!(got.status, status, "{path} {arguments:?}: {}", got.text());
        assert_eq!(status == 401, got.headers.contains_key("www-authenticate"), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_shows_the_token_once_and_has_a_cookie_then() {
    let proxy = Proxy::seen_inside(&[], Some(TOKEN), |_| {}).await;
    assert_eq!(proxy.look("/", &[]).await.header("location"), "/login");
    let log_in = async |token: &str, origin: &str| {
        let origin = format!("Origin: {origin}");
        proxy.look("/login", &["--data-urlencode", &format!("token={token}"), "--header", &origin]).await
    };
    let own = proxy.admin();
    let wrong = log_in("correct horse", &own).await;
    assert_eq!(
        (wrong.status, wrong.text().contains("That is not the token."), wrong.header("set-cookie")),
        (403, true, "")
    );
    assert_eq!(log_in(TOKEN, "http://evil.test").await.status, 403, "a form of another site");
    let right = log_in(TOKEN, &own).await;
    assert_eq!((right.status, right.header("location")), (303, "/"));
    let cookie = right.header("set-cookie");
    assert!(cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict") && !cookie.contains("horse"), "{cookie}");
    let cookie = cookie.split(';').next().unwrap();
    assert_eq!(proxy.look("/api/status", &["--cookie", cookie]).await.status, 200);
    assert_eq!(proxy.look("/", &["--cookie", cookie]).await.status, 200);
    let out = proxy.look("/logout", &["--cookie", cookie, "--data", "", "--header", &format!("Origin: {own}")]).await;
    assert!(out.header("set-cookie").contains("Max-Age=0"), "{out:?}");
    let large = proxy.look("/login", &["--data", &format!("token={}", "x".repeat(10_000))]).await;
    assert_eq!(large.status, 413);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_takes_another_token_but_not_that_of_another_listener() {
    let mut proxy = Proxy::seen_inside(&[], Some(TOKEN), |_| {}).await;
    let own = format!("Origin: {}", proxy.admin());
    let cookie = proxy.look("/login", &["--data-urlencode", &format!("token={TOKEN}"), "--header", &own]).await;
    let cookie = cookie.header("set-cookie").split(';').next().unwrap().to_owned();
    let status = async |proxy: &Proxy, arguments: &[&str]| proxy.look("/api/status", arguments).await.status;
    assert!(proxy.reload(|_| {}).await.is_empty());
    assert_eq!(status(&proxy, &["--cookie", &cookie]).await, 200, "the same token: nobody has to log in again");

    let set = |settings: &mut Settings, listen: &str, token: Option<&str>| {
        let (listen, token) = (listen.parse().unwrap(), token.map(|token| token.parse().unwrap()));
        settings.admin = Some(admin::Settings { listen, token });
    };
    assert_eq!(proxy.reload(|settings| set(settings, "127.0.0.2:0", None)).await, ["admin.listen"]);
    assert_eq!(status(&proxy, &[]).await, 401, "the listener stays, and so does its token");
    assert!(proxy.reload(|settings| set(settings, "127.0.0.1:0", Some("another token"))).await.is_empty());
    assert_eq!(status(&proxy, &["--cookie", &cookie]).await, 401);
    assert_eq!(status(&proxy, &["--header", "Authorization: Bearer another token"]).await, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_speaks_tls_with_the_ca_of_the_proxy() {
    let proxy = Proxy::with(&[], |settings| {
        let listen = "https://127.0.0.1:0".parse().unwrap();
        settings.admin = Some(admin::Settings { listen, token: None });
    })
    .await;
    let got = proxy.look("/healthz", &[]).await;
    assert_eq!((got.exit, got.status, got.text().as_str()), (0, 200, "ok\n"), "{got:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_not_ready_while_it_stops_but_answers() {
    let gate = std::sync::Arc::new(Semaphore::new(0));
    let opened = std::sync::Arc::clone(&gate);
    let site = Origin::http(move |visit| match visit.is_robots() {
        true => Reply::text(""),
        false => Reply::Gated(std::sync::Arc::clone(&opened), http::Response::new("page".into())),
    })
    .await;
    let mut proxy = Proxy::seen_inside(&[("shop.test", &site)], None, |_| {}).await;
    let (admin, ready) = (proxy.admin(), proxy.look("/readyz", &[]).await);
    assert_eq!((ready.status, ready.json()), (200, json!({ "ready": true, "reasons": [] })));
    let running = proxy.spawn_curl(&["http://shop.test/"]);
    site.until_pages(1).await;
    let stopping = tokio::spawn(proxy.take().stop());
    let look = async |path: &str| proxy.curl(&["--noproxy", "*", &format!("{admin}{path}")]).await;
    let mut not_ready = look("/readyz").await;
    while not_ready.status == 200 {
        not_ready = look("/readyz").await;
    }
    assert_eq!((not_ready.status, not_ready.json()), (503, json!({ "ready": false, "reasons": ["stopping"] })));
    assert_eq!(look("/healthz").await.status, 200);
    gate.add_permits(1);
    assert_eq!(in_time("curl", running.wait_with_output()).await.unwrap().stdout, b"page");
    assert!(in_time("the stop", stopping).await.unwrap());
    assert_eq!(look("/healthz").await.status, 0, "nobody listens any more");
}

#[tokio::test(flavor = "multi_thread")]
async fn decisions_are_told_as_recorded_and_as_they_come() {
    let site = shop().await;
    let proxy = Proxy::seen_inside(&[("shop.test", &site)], None, |settings| {
        settings.audit.record = robots_proxy::audit::Which::Blocked;
        settings.pace = pacing::Settings { max_delay: Duration::ZERO, ..settings.pace };
    })
    .await;
    let mut all = Feed::of(&proxy, "", "").await;
    let mut refused = Feed::of(&proxy, "?decision=refuse&host=SHOP&agent=oddb", "").await;
    for (agent, path) in [("GoodBot/1", "/open"), ("OddBot/1", "/private/1"), ("GoodBot/1", "/private/2")] {
        proxy.curl(&["--user-agent", agent, &format!("http://shop.test{path}")]).await;
    }
    let mut urls = Vec::new();
    for _ in 0..3 {
        urls.push(all.decision().await["url"].as_str().unwrap().to_owned());
    }
    assert_eq!(urls, ["http://shop.test/open", "http://shop.test/private/1", "http://shop.test/private/2"]);
    let record = refused.decision().await;
    assert_eq!((&record["url"], &record["line"]), (&json!("http://shop.test/private/1"), &json!(4)));
    assert_eq!(record, proxy.record_of("/private/1").await, "as in the log");

    let urls = async |query: &str| -> Vec<String> {
        let told = proxy.look(&format!("/api/decisions{query}"), &[]).await.json();
        let paths = told["decisions"].as_array().unwrap().iter();
        paths.map(|record| record["url"].as_str().unwrap().replace("http://shop.test", "")).collect()
    };
    assert_eq!(urls("").await, ["/private/2", "/private/1", "/open"], "also what is not in the log");
    assert_eq!(urls("?decision=allow").await, ["/open"]);
    assert_eq!(urls("?reason=disallowed&agent=goodbot").await, ["/private/2"]);
    assert_eq!(urls("?host=elsewhere").await, [""; 0]);
    assert_eq!(urls("?host=&limit=1").await, ["/private/2"], "an empty field is no wish");

    let mut later = Feed::of(&proxy, "", "Last-Event-ID: 2\r\n").await;
    assert_eq!(later.decision().await["url"], "http://shop.test/private/2", "goes on where it was");
}

#[tokio::test(flavor = "multi_thread")]
async fn live_feeds_are_bounded_and_leave_room_for_the_rest() {
    let proxy = Proxy::seen_inside(&[], None, |_| {}).await;
    let mut feeds = Vec::new();
    for _ in 0..16 {
        feeds.push(Feed::of(&proxy, "", "").await);
    }
    let one_more = proxy.look("/api/decisions/live", &[]).await;
    assert_eq!(one_more.status, 503, "{}", one_more.text());
    assert_eq!(proxy.look("/api/status", &[]).await.status, 200);
    feeds.pop();
    let mut again = 503;
    while again == 503 {
        again = proxy.look("/api/decisions/live", &["--max-time", "0.5"]).await.status;
    }
    assert_eq!(again, 200, "who leaves makes room");
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_copies_and_explanations_are_those_of_the_commands() {
    let site = shop().await;
    let proxy = Proxy::seen_inside(&[("shop.test", &site)], None, |_| {}).await;
    proxy.curl(&["http://shop.test/1"]).await;
    let _waiting = proxy.spawn_curl(&["http://shop.test/2"]);
    proxy.until_joined(&site, 2).await;
    let lines = proxy.look("/api/lines?host=SHOP.test", &[]).await.json();
    let line = &lines["lines"][0];
    assert_eq!((&line["host"], &line["waiting"], &line["delay_s"]), (&json!("shop.test"), &json!(1), &json!(30.0)));
    assert!((20.0..30.0).contains(&line["next_in_s"].as_f64().unwrap()), "{line}");
    assert_eq!(proxy.look("/api/lines?host=other.test", &[]).await.json(), json!({ "lines": [] }));
    assert_eq!(proxy.look("/api/lines?host=a%20b", &[]).await.status, 400);

    let copies = proxy.look("/api/copies", &[]).await.json();
    let listed: Value = serde_json::from_str(&proxy.command(&["copies", "list", "--json"]).await.out).unwrap();
    for (field, value) in listed.as_object().unwrap() {
        assert_eq!(&copies["copies"][0][field], value, "{field}");
    }
    assert_eq!(copies["copies"][0]["bytes"], ROBOTS.len());
    assert_eq!(proxy.look("/api/copies?origin=other", &[]).await.json()["matching"], 0);
    let copy = proxy.look("/api/copy?origin=http://shop.test/", &[]).await;
    assert_eq!((copy.status, &copy.json()["body"]), (200, &json!(ROBOTS)));

    let explained =
        proxy.look("/api/explain?url=http%3A%2F%2Fshop.test%2Fprivate%2Fx%3Fy&agent=NimbuBot", &[]).await.json();
    let rules = proxy.folder().join("robots.txt");
    std::fs::write(&rules, ROBOTS).unwrap();
    let rules = rules.to_str().unwrap();
    let check = ["check", "--all", "--json", "--agent", "NimbuBot", "--robots", rules, "http://shop.test/private/x?y"];
    let mut checked: Value = serde_json::from_str(&proxy.command(&check).await.out).unwrap();
    checked["robots"] = json!("http://shop.test/robots.txt");
    for (field, value) in checked.as_object().unwrap() {
        assert_eq!(&explained[field], value, "{field}");
    }
    assert_eq!((&explained["line"], &explained["text"]), (&json!(4), &json!(ROBOTS)));

    assert_eq!(site.robots().len(), 1);
    let refreshed = proxy.look("/api/copy/refresh?origin=http://shop.test", &["--data", ""]).await.json();
    assert_eq!((&refreshed["status"], site.robots().len()), (&json!(200), 2));
    let delete = ["--request", "DELETE"];
    assert_eq!(
        proxy.look("/api/copy?origin=http://shop.test", &delete).await.json(),
        json!({ "dropped": "http://shop.test" })
    );
    let gone = until_gone(&proxy).await;
    assert_eq!(gone.json()["detail"], "there is no copy of http://shop.test");
    assert_eq!(proxy.look("/api/copy?origin=shop", &[]).await.status, 400);
}

async fn until_gone(proxy: &Proxy) -> Got {
    loop {
        let got = proxy.look("/api/copy?origin=http://shop.test", &["--request", "DELETE"]).await;
        if got.status == 404 {
            return got;
        }
    }
}

/// Checks the description, and answers against it, with Python's validators, as tests/setup/openapi installs them.
async fn validate(proxy: &Proxy, description: &Value, answers: &[Value]) {
    let files = [("openapi.json", description.clone()), ("answers.json", json!(answers))].map(|(name, value)| {
        let file = proxy.folder().join(name);
        std::fs::write(&file, value.to_string()).unwrap();
        file
    });
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new(root.join("target/openapi/bin/python"));
    command.arg(root.join("tests/fixtures/openapi.py")).args(files).stdin(Stdio::null());
    let output = in_time("the validator", command.output()).await.expect("tests/setup/openapi was run");
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains(" 0 mistakes"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_path_of_the_description_answers_as_described() {
    let site = shop().await;
    let proxy = Proxy::seen_inside(&[("shop.test", &site)], None, |_| {}).await;
    let text = proxy.look("/api/openapi.json", &[]).await.text();
    let document: Value = serde_json::from_str(&text).unwrap();
    proxy.curl(&["http://shop.test/"]).await;
    proxy.curl(&["http://shop.test/private/"]).await;
    let _waiting = proxy.spawn_curl(&["http://shop.test/2"]);
    proxy.until_joined(&site, 2).await;
    until("the copy on disk", || std::fs::metadata(proxy.folder().join("copies.redb")).ok()).await;

    let mut answers = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        // What forgets the copy comes last.
        for (method, operation) in methods.as_object().unwrap().iter().rev() {
            for with_parameters in [true, false] {
                let required = operation["parameters"].as_array().into_iter().flatten();
                let pairs: Vec<String> = required
                    .filter(|parameter| parameter["required"] == json!(true) && with_parameters)
                    .map(|parameter| {
                        format!("{}={}", parameter["name"].as_str().unwrap(), parameter["example"].as_str().unwrap())
                    })
                    .collect();
                let query = if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) };
                let arguments = ["--request", &method.to_uppercase(), "--max-time", "1"];
                let got = proxy.look(&format!("{path}{query}"), &arguments).await;
                answers.push(described(&document, &format!("{method} {path}{query}"), operation, &got));
            }
        }
    }
    assert!(answers.len() >= 30, "{}", answers.len());
    validate(&proxy, &document, &answers).await;
}

/// An answer with the schema that the description has for it.
fn described(document: &Value, asked: &str, operation: &Value, got: &Got) -> Value {
    let mut described = &operation["responses"][got.status.to_string()];
    if let Some(named) = described["$ref"].as_str() {
        described = document.pointer(named.trim_start_matches('#')).unwrap();
    }
    let content =
        described["content"].as_object().unwrap_or_else(|| panic!("{asked}: {} is not described", got.status));
    let media_type = got.header("content-type").split(';').next().unwrap();
    let described = content.get(media_type).unwrap_or_else(|| panic!("{asked}: {media_type} is not described"));
    let instance = if media_type.ends_with("json") { got.json() } else { json!(got.text()) };
    let schema = described.get("schema").cloned().unwrap_or(json!({}));
    json!({ "asked": asked, "schema": schema, "instance": instance })
}
