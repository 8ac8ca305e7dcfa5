//! Every kind of answer to the request for robots.txt, and what it means under both policies.
//!
//! Each row is a host of its own behind one proxy a policy. An open page and one that the rules disallow are asked for there.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use robots_proxy::robots::status::StatusPolicy;
use robots_proxy::upstream::ConnectTo;
use rustls::ServerConfig;
use serde_json::json;
use tokio::io::AsyncWriteExt;

use super::support::authority;
use super::support::curl::Got;
use super::support::origin::{Origin, Raw, Reply, Visit};
use super::support::proxy::Proxy;

const RULES: &str = "User-agent: *\nDisallow: /private/\n";

/// What becomes of the open page and of the disallowed one.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Meaning {
    /// The rules hold.
    Rules,
    /// Both are allowed.
    NoRules,
    /// Both are refused as `robots-unavailable`; may be asked again after so many seconds at most.
    Withheld(u64),
    /// Both are refused as `robots-unreachable`.
    Unreachable(u64),
}

use Meaning::{NoRules, Rules, Unreachable, Withheld};

/// A failure is asked again after 5 s.
const SOON: u64 = 5;

/// One answer to robots.txt.
struct Row {
    what: String,
    careful: Meaning,
    rfc9309: Meaning,
    /// What a refusal's detail or, for an allowed request, the record's note holds.
    says: &'static str,
    origin: Origin,
}

/// Asks for both pages of every row under both policies.
async fn check(rows: Vec<Row>) {
    let hosts: Vec<String> = (0..rows.len()).map(|number| format!("row{number}.nimbu.test")).collect();
    let names: Vec<(&str, &Origin)> = hosts.iter().zip(&rows).map(|(host, row)| (host.as_str(), &row.origin)).collect();
    for policy in [StatusPolicy::Careful, StatusPolicy::Rfc9309] {
        let proxy = Proxy::with(&names, |settings| {
            settings.lookup.status_policy = policy;
            settings.fetch.timeout = Duration::from_secs(2);
        });
        let proxy = proxy.await;
        let checks = hosts.iter().zip(&rows).map(|(host, row)| check_row(&proxy, policy, host, row));
        // As many at once as a small machine runs without time-outs.
        futures_util::stream::iter(checks).buffer_unordered(4).collect::<Vec<()>>().await;
    }
}

async fn check_row(proxy: &Proxy, policy: StatusPolicy, host: &str, row: &Row) {
    let what = format!("{} ({policy:?})", row.what);
    let (pages, robots) = (row.origin.pages().len(), row.origin.robots().len());
    let scheme = if row.origin.is_tls { "https" } else { "http" };
    let ask =
        async |path: &str| proxy.curl(&["-H", "Accept: application/json", &format!("{scheme}://{host}{path}")]).await;
    let (open, private) = (ask("/open").await, ask("/private/x").await);
    let record = proxy.record_of(&format!("{host}/open")).await;
    match if policy == StatusPolicy::Careful { row.careful } else { row.rfc9309 } {
        Rules => {
            assert_eq!((open.status, private.status), (200, 403), "{what}: {} {}", open.text(), private.text());
            assert_eq!(private.json()["reason"], "disallowed", "{what}");
            assert_eq!(private.retry_after(), None, "{what}: asking again does not help");
        }
        NoRules => {
            assert_eq!((open.status, private.status), (200, 200), "{what}: {} {}", open.text(), private.text());
            let note = record["robots"]["note"].as_str().unwrap_or_default();
            assert!(row.careful != NoRules || note == row.says, "{what}: {note}");
        }
        Withheld(seconds) => refused(&what, &open, &private, "robots-unavailable", seconds, row.says),
        Unreachable(seconds) => refused(&what, &open, &private, "robots-unreachable", seconds, row.says),
    }
    let reached = row.origin.pages().len() - pages;
    let allowed = [&open, &private].into_iter().filter(|got| got.status == 200).count();
    assert_eq!(reached, allowed, "{what}: what is refused never reaches the origin");
    let asked = row.origin.robots().len() - robots;
    assert!(asked <= 1, "{what}: asked for robots.txt {asked} times");
}

fn refused(what: &str, open: &Got, private: &Got, reason: &str, seconds: u64, says: &str) {
    for got in [open, private] {
        assert_eq!((got.exit, got.status), (0, 403), "{what}: {} {}", got.error, got.text());
        let problem = got.json();
        assert_eq!(problem["reason"], reason, "{what}");
        assert!(problem["detail"].as_str().unwrap().contains(says), "{what}: {says:?} is not in {}", problem["detail"]);
        let again = got.retry_after().unwrap_or_else(|| panic!("{what}: it may be asked again, so when?"));
        assert!(again <= seconds && again + 4 >= seconds, "{what}: {again} s instead of {seconds} s");
        assert_eq!(problem["retry_after"], again, "{what}");
    }
}

async fn row(
    what: &str,
    [careful, rfc9309]: [Meaning; 2],
    says: &'static str,
    robots: impl Fn() -> Reply + Send + Sync + 'static,
) -> Row {
    let origin = Origin::http(move |visit| if visit.is_robots() { robots() } else { Reply::text("page") });
    Row { what: what.into(), careful, rfc9309, says, origin: origin.await }
}

async fn raw_row(what: &str, meaning: Meaning, says: &'static str, robots: fn() -> Raw) -> Row {
    let origin = Origin::raw(move |visit| if visit.is_robots() { robots() } else { Raw::ok("page") });
    Row { what: what.into(), careful: meaning, rfc9309: meaning, says, origin: origin.await }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_status() {
    let mut rows = Vec::new();
    for (status, careful, rfc9309, says) in [
        (200, Rules, Rules, ""),
        (203, Rules, Rules, ""),
        (204, NoRules, NoRules, ""),
        (206, Rules, Rules, ""),
        (300, Unreachable(SOON), Unreachable(SOON), "300"),
        (304, Unreachable(SOON), Unreachable(SOON), "304"),
        (400, NoRules, NoRules, ""),
        (401, Withheld(SOON), NoRules, "401"),
        (403, Withheld(SOON), NoRules, "403"),
        (404, NoRules, NoRules, ""),
        (410, NoRules, NoRules, ""),
        (418, NoRules, NoRules, ""),
        (429, Withheld(SOON), NoRules, "429"),
        (451, NoRules, NoRules, ""),
        (500, Unreachable(SOON), Unreachable(SOON), "500"),
        (502, Unreachable(SOON), Unreachable(SOON), "502"),
        (503, Unreachable(SOON), Unreachable(SOON), "503"),
        (599, Unreachable(SOON), Unreachable(SOON), "599"),
    ] {
        // The body of a failure says the opposite of what the failure means: nobody may read it.
        let body = match (status, careful) {
            (204 | 304, _) => "",
            (_, Rules) => RULES,
            (_, NoRules) => "User-agent: *\nDisallow: /\n",
            _ => "User-agent: *\nAllow: /\n",
        };
        rows.push(row(&status.to_string(), [careful, rfc9309], says, move || Reply::status(status, body)).await);
    }
    check(rows).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_says_when_to_ask_again() {
    check(vec![
        row("429, Retry-After: 120", [Withheld(120), NoRules], "429", || {
            Reply::with(429, &[("retry-after", "120")], RULES)
        })
        .await,
        row("503, Retry-After: 90", [Unreachable(90); 2], "503", || Reply::with(503, &[("retry-after", "90")], RULES))
            .await,
        row("503, Retry-After: a date", [Unreachable(60); 2], "503", || {
            let dates = [("date", "Mon, 30 Nov 2026 10:00:00 GMT"), ("retry-after", "Mon, 30 Nov 2026 10:01:00 GMT")];
            Reply::with(503, &dates, RULES)
        })
        .await,
        row("503, Retry-After: 0", [Unreachable(SOON); 2], "503", || Reply::with(503, &[("retry-after", "0")], RULES))
            .await,
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_ends_early_is_a_failure_and_not_the_rules_so_far() {
    let cut = "cut short";
    check(vec![
        raw_row("Content-Length too long", Unreachable(SOON), cut, || {
            Raw::Close(format!("HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n{RULES}").into())
        })
        .await,
        raw_row("the last chunk missing", Unreachable(SOON), cut, || {
            let length = RULES.len();
            Raw::Close(format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{length:x}\r\n{RULES}\r\n").into())
        })
        .await,
        raw_row("a chunk without a size", Unreachable(SOON), cut, || {
            Raw::Close(
                format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n{RULES}\r\n0\r\n\r\n").into(),
            )
        })
        .await,
        row("half a gzip", [Unreachable(SOON); 2], cut, || coded("gzip", &gzip(RULES)[..30])).await,
        row("no gzip at all", [Unreachable(SOON); 2], cut, || coded("gzip", RULES.as_bytes())).await,
        row("an unknown coding", [Unreachable(SOON); 2], "coding", || coded("rot13", RULES.as_bytes())).await,
        raw_row("until the end of the connection", Rules, "", || {
            Raw::Close(format!("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{RULES}").into())
        })
        .await,
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compressed_body_is_read() {
    let brotli = brotli(RULES).await;
    check(vec![
        row("gzip", [Rules; 2], "", || coded("gzip", &gzip(RULES))).await,
        row("br", [Rules; 2], "", move || coded("br", &brotli)).await,
        row("deflate", [Rules; 2], "", || coded("deflate", &zlib(RULES))).await,
        row("a name for nothing", [Rules; 2], "", || coded("identity", RULES.as_bytes())).await,
    ])
    .await;
}

fn coded(coding: &str, body: &[u8]) -> Reply {
    Reply::with(200, &[("content-encoding", coding)], body.to_vec())
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

fn zlib(text: &str) -> Vec<u8> {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

async fn brotli(text: &str) -> Vec<u8> {
    let mut encoder = async_compression::tokio::write::BrotliEncoder::new(Vec::new());
    encoder.write_all(text.as_bytes()).await.unwrap();
    encoder.shutdown().await.unwrap();
    encoder.into_inner()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_network_failure_is_a_refusal_that_names_it() {
    let mut closed = row("nobody listens", [Unreachable(SOON); 2], "refuses connections", || Reply::text("")).await;
    // A port that was free a moment ago, and that nobody can take while its socket is bound but does not listen.
    let free = tokio::net::TcpSocket::new_v4().unwrap();
    free.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    closed.origin.address = free.local_addr().unwrap();
    check(vec![
        closed,
        raw_row("reset", Unreachable(SOON), "connection", || Raw::Reset).await,
        raw_row("closed without a word", Unreachable(SOON), "connection", || Raw::Close(Vec::new())).await,
        raw_row("reset in the head", Unreachable(SOON), "connection", || Raw::Close(b"HTTP/1.1 200 O".into())).await,
        raw_row("silence", Unreachable(SOON), "no answer within 2 s", || Raw::Silence).await,
        raw_row("an endless drip", Unreachable(SOON), "no answer within 2 s", || {
            Raw::Drip(b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n".iter().chain(&[b'#'; 800]).copied().collect())
        })
        .await,
        raw_row("not HTTP", Unreachable(SOON), "HTTP", || Raw::Close(b"220 mail.test ESMTP\r\n".into())).await,
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_is_not_to_be_trusted_is_a_refusal() {
    let row = async |what: &str, says, tls: Arc<ServerConfig>| Row {
        what: what.into(),
        careful: Unreachable(SOON),
        rfc9309: Unreachable(SOON),
        says,
        origin: Origin::tls(tls, |visit| Reply::of_site(RULES, visit)).await,
    };
    check(vec![
        row("signed by a stranger", "certificate", authority::untrusted()).await,
        row("for another name", "certificate", authority::another_name()).await,
        row("a protocol that is not HTTP", "TLS", authority::every_name(&[b"smtp"])).await,
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_does_not_resolve_is_a_refusal() {
    // A label of 64 octets is more than DNS can carry, so no server is asked.
    let nowhere = format!("{}.test:80", "x".repeat(64));
    let proxy = Proxy::with(&[], |settings| {
        let (from, to) = ("a.test:80".parse().unwrap(), nowhere.parse().unwrap());
        settings.upstream.connect_to.push(ConnectTo { from, to });
    })
    .await;
    let got = proxy.curl(&["-H", "Accept: application/json", "http://a.test/"]).await;
    assert_eq!((got.status, got.json()["reason"].clone()), (403, json!("robots-unreachable")));
    assert!(got.json()["detail"].as_str().unwrap().contains("cannot be resolved"), "{}", got.text());
    assert!(got.retry_after().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_instead_of_the_file() {
    const PAGE: &str = "<!doctype html>\n<title>Shop</title>\n<p>Welcome</p>";
    const CHALLENGE: &str = "<!doctype html>\n<title>Making sure you're not a bot!</title>";
    check(vec![
        row("a site with one page for all", [NoRules; 2], "html", || Reply::text(PAGE)).await,
        row("a page with 202", [Unreachable(SOON); 2], "web page", || Reply::status(202, PAGE)).await,
        row("a challenge", [Unreachable(SOON); 2], "challenge", || Reply::text(CHALLENGE)).await,
        row("a challenge by its header", [Unreachable(SOON); 2], "challenge", || {
            Reply::with(200, &[("cf-mitigated", "challenge")], PAGE)
        })
        .await,
        row("rules called text/html", [Rules; 2], "", || Reply::with(200, &[("content-type", "text/html")], RULES))
            .await,
        row("a part of the file", [Unreachable(SOON); 2], "part", || {
            Reply::with(206, &[("content-range", "bytes 0-33/99")], RULES)
        })
        .await,
    ])
    .await;
}

fn redirect(to: &str) -> Reply {
    Reply::with(301, &[("location", to)], "")
}

#[tokio::test(flavor = "multi_thread")]
async fn redirects_that_cannot_be_followed() {
    let unreachable = [Unreachable(SOON); 2];
    check(vec![
        row("without Location", unreachable, "redirects", || Reply::status(301, "")).await,
        row("to another scheme", unreachable, "ftp:", || redirect("ftp://a.test/robots.txt")).await,
        row("to a file", unreachable, "file:", || redirect("file:///etc/passwd")).await,
        row("to nowhere", unreachable, "redirects", || redirect("http://")).await,
        row("to itself", [NoRules; 2], "too-many-redirects", || redirect("/robots.txt")).await,
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rfc9309_2_3_1_2_five_redirects_across_hosts_are_followed_and_count_for_the_first() {
    // hopN redirects to hopN-1, and hop0 has the rules; over http and, every second one, https.
    let next = |host: &str| {
        let number: u32 = host.trim_start_matches("hop").split('.').next().unwrap().parse().unwrap();
        (number > 0).then(|| number - 1)
    };
    let answer = move |visit: &Visit| match next(visit.host()) {
        _ if !visit.is_robots() => Reply::text("page"),
        None => Reply::text(RULES),
        Some(number) => {
            let scheme = if number % 2 == 0 { "http" } else { "https" };
            redirect(&format!("{scheme}://hop{number}.nimbu.test/robots.txt"))
        }
    };
    let (clear, tls) = (Origin::http(answer).await, Origin::https(answer).await);
    let hosts: Vec<String> = (0..=6).map(|number| format!("hop{number}.nimbu.test")).collect();
    let names: Vec<(&str, &Origin)> =
        hosts.iter().flat_map(|host| [(host.as_str(), &clear), (host.as_str(), &tls)]).collect();
    for policy in [StatusPolicy::Careful, StatusPolicy::Rfc9309] {
        let proxy = Proxy::with(&names, |settings| settings.lookup.status_policy = policy).await;
        for hops in 1..=6 {
            let url = format!("http://hop{hops}.nimbu.test");
            let open = proxy.curl(&[&format!("{url}/open")]).await;
            let private = proxy.curl(&["-H", "Accept: application/json", &format!("{url}/private/x")]).await;
            let record = proxy.record_of(&format!("hop{hops}.nimbu.test/private/x")).await;
            assert_eq!(open.status, 200, "{hops} hops");
            if hops == 6 {
                assert_eq!(private.status, 200, "more than five: no rules");
                assert_eq!(record["robots"]["note"], "too-many-redirects");
                continue;
            }
            assert_eq!(private.status, 403, "{hops} hops");
            assert_eq!(private.json()["robots_url"], format!("{url}/robots.txt"), "the rules are those of the first");

            assert_eq!(record["robots"]["final_url"], "http://hop0.nimbu.test/robots.txt");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loop_of_redirects_across_hosts_is_no_rules() {
    let site = Origin::http(|visit| match (visit.is_robots(), visit.host()) {
        (true, "a.test") => redirect("http://b.test/robots.txt"),
        (true, _) => redirect("http://a.test/robots.txt"),
        (false, _) => Reply::text("page"),
    })
    .await;
    let proxy = Proxy::before(&[("a.test", &site), ("b.test", &site)]).await;
    assert_eq!(proxy.curl(&["http://a.test/x"]).await.status, 200);
    assert_eq!(proxy.record_of("/x").await["robots"]["note"], "too-many-redirects");
    assert_eq!(site.robots().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_fills_the_copy_of_the_first_host_only() {
    let site = Origin::http(|visit| match (visit.host(), visit.path.as_str()) {
        ("a.test", "/robots.txt") => redirect("http://b.test/elsewhere"),
        ("b.test", "/elsewhere") => Reply::text("User-agent: *\nAllow: /"),
        (_, "/robots.txt") => Reply::text("User-agent: *\nDisallow: /"),
        _ => Reply::text("page"),
    })
    .await;
    let proxy = Proxy::before(&[("a.test", &site), ("b.test", &site)]).await;
    assert_eq!(proxy.curl(&["http://a.test/x"]).await.status, 200);
    assert_eq!(proxy.curl(&["http://b.test/x"]).await.status, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_scheme_and_port_has_its_own_rules() {
    let site = |robots: &'static str| move |visit: &Visit| Reply::of_site(robots, visit);
    let clear = Origin::http(site("User-agent: *\nDisallow: /clear")).await;
    let tls = Origin::https(site("User-agent: *\nDisallow: /tls")).await;
    let port = Origin::https(site("User-agent: *\nDisallow: /port")).await;
    let proxy = Proxy::before(&[("a.test", &clear), ("a.test", &tls), ("a.test:8443", &port)]).await;
    for (base, disallowed) in
        [("http://a.test", "/clear"), ("https://a.test", "/tls"), ("https://a.test:8443", "/port")]
    {
        for path in ["/clear", "/tls", "/port"] {
            let got = proxy.curl(&[&format!("{base}{path}")]).await;
            assert_eq!(got.status, if path == disallowed { 403 } else { 200 }, "{base}{path}");
        }
    }
}

/// An origin whose robots.txt is answered well the first time, and so the second time.
async fn then(second: impl Fn() -> Reply + Send + Sync + 'static) -> Origin {
    let asked = std::sync::atomic::AtomicBool::new(false);
    Origin::http(move |visit| match visit.is_robots() {
        true if asked.swap(true, std::sync::atomic::Ordering::SeqCst) => second(),
        true => Reply::text(RULES),
        false => Reply::text("page"),
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_copy_serves_while_the_file_cannot_be_had() {
    for (status, policy, old) in [
        (503, StatusPolicy::Careful, true),
        (503, StatusPolicy::Rfc9309, true),
        (403, StatusPolicy::Careful, true),
        (429, StatusPolicy::Careful, true),
        (403, StatusPolicy::Rfc9309, false),
        (404, StatusPolicy::Careful, false),
    ] {
        let site = then(move || Reply::status(status, "")).await;
        let proxy = Proxy::with(&[("a.test", &site)], |settings| {
            settings.lookup.status_policy = policy;
            settings.lookup.lifetimes.ttl = Duration::from_millis(300);
            settings.lookup.lifetimes.min_ttl = Duration::ZERO;
        })
        .await;
        assert_eq!(proxy.curl(&["http://a.test/private/1"]).await.status, 403);
        let mut number = 1;
        while site.robots().len() < 2 {
            number += 1;
            proxy.curl(&[&format!("http://a.test/private/{number}")]).await;
        }
        // The second answer may still be on its way to those who use the copy meanwhile.
        let mut records = 0;
        let seen = loop {
            records += 1;
            let url = format!("http://a.test/private/after/{records}");
            let got = proxy.curl(&[&url]).await;
            let record = proxy.record_of(&format!("/private/after/{records}")).await;
            let is_stale = record["robots"]["stale"] == true;
            if is_stale || got.status == 200 || records == 200 {
                break (is_stale, got.status);
            }
        };
        assert_eq!(seen, if old { (true, 403) } else { (false, 200) }, "{status} under {policy:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_longer_than_the_limit_is_obeyed_up_to_it() {
    let long = format!("{RULES}{}Disallow: /late/\n", "# filling\n".repeat(60_000));
    let site = Origin::http(move |visit| Reply::of_site(&long, visit)).await;
    let proxy = Proxy::before(&[("a.test", &site)]).await;
    assert_eq!(proxy.curl(&["http://a.test/private/x"]).await.status, 403);
    assert_eq!(proxy.curl(&["http://a.test/late/x"]).await.status, 200);
    assert_eq!(proxy.record_of("/late/x").await["robots"]["truncated"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_is_forgotten_when_the_file_comes() {
    let asked = std::sync::atomic::AtomicBool::new(false);
    let site = Origin::http(move |visit| match visit.is_robots() {
        true if !asked.swap(true, std::sync::atomic::Ordering::SeqCst) => Reply::status(500, ""),
        _ => Reply::of_site(RULES, visit),
    })
    .await;
    let proxy = Proxy::with(&[("a.test", &site)], |settings| {
        settings.lookup.lifetimes.retry = Duration::from_millis(200);
    })
    .await;
    assert_eq!(proxy.curl(&["http://a.test/x"]).await.status, 403);
    while site.robots().len() < 2 {
        proxy.curl(&["http://a.test/x"]).await;
    }
    assert_eq!(proxy.curl(&["http://a.test/x"]).await.status, 200);
    assert_eq!(proxy.curl(&["http://a.test/private/x"]).await.status, 403);
}
