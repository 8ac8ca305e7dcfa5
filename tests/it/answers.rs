//! What a refused client reads, and what the origin gets to see of an allowed one.

use serde_json::json;

use super::support::SHOP_ROBOTS;
use super::support::curl::Got;
use super::support::origin::{Origin, Reply};
use super::support::proxy::Proxy;

const URL: &str = "https://bazaar.nimbu.test/prices/\"b\"&'";
const ROBOTS_URL: &str = "https://bazaar.nimbu.test/robots.txt";

async fn shop() -> (Origin, Proxy) {
    let shop = Origin::https(|visit| Reply::of_site(SHOP_ROBOTS, visit)).await;
    let proxy = Proxy::with(&[("bazaar.nimbu.test", &shop)], |settings| {
        settings.pace.max_delay = std::time::Duration::ZERO;
    })
    .await;
    (shop, proxy)
}

async fn refused(proxy: &Proxy, accept: &str) -> Got {
    let accept = format!("Accept: {accept}");
    let got = proxy.curl(&["-H", "Robots-Agent: NimbuBot", "-H", &accept, "--globoff", "--path-as-is", URL]).await;
    assert_eq!(got.status, 403, "{}", got.text());
    assert!(got.header("proxy-status").starts_with("robots-proxy; error=http_request_denied; details=\""));
    assert!(got.header("proxy-status").contains("line 10"), "{}", got.header("proxy-status"));
    assert_eq!(got.header("cache-control"), "no-store");
    assert_eq!(got.header("x-content-type-options"), "nosniff");
    assert_eq!(got.retry_after(), None, "asking again does not help");
    got
}

#[tokio::test]
async fn a_terminal_reads_plain_text() {
    let (_shop, proxy) = shop().await;
    let got = refused(&proxy, "*/*").await;
    assert_eq!(got.header("content-type"), "text/plain; charset=utf-8");
    let record = proxy.record_of("/prices/\"b\"&'").await;
    let id = record["id"].as_str().unwrap();
    for fact in [URL, "NimbuBot", "Disallow: /prices/", "line 10", ROBOTS_URL, "answered 200", "disallowed", id] {
        assert!(got.text().contains(fact), "{fact} is not in\n{}", got.text());
    }
}

#[tokio::test]
async fn a_browser_reads_escaped_html_without_scripts() {
    let (_shop, proxy) = shop().await;
    let got = refused(&proxy, "text/html,application/xhtml+xml,*/*;q=0.8").await;
    assert_eq!(got.header("content-type"), "text/html; charset=utf-8");
    assert!(got.header("content-security-policy").contains("default-src 'none'"));
    assert!(!got.text().contains("\"b\""), "what the client wrote is escaped");
    let escaped = "https://bazaar.nimbu.test/prices/&quot;b&quot;&amp;&#39;";
    let record = proxy.record_of("/prices/\"b\"&'").await;
    let id = record["id"].as_str().unwrap();
    for fact in [escaped, "NimbuBot", "Disallow: /prices/", "(line 10)", ROBOTS_URL, id] {
        assert!(got.text().contains(fact), "{fact} is not in\n{}", got.text());
    }
}

#[tokio::test]
async fn rfc9457_a_program_reads_a_problem_document() {
    let (_shop, proxy) = shop().await;
    for accept in ["application/problem+json", "application/json"] {
        let got = refused(&proxy, accept).await;
        assert_eq!(got.header("content-type"), "application/problem+json");
        let problem = got.json();
        let record = proxy.records(1).await.pop().unwrap();
        for (field, value) in [
            ("type", json!("urn:robots-proxy:disallowed")),
            ("title", json!("Disallowed by robots.txt")),
            ("status", json!(403)),
            ("reason", json!("disallowed")),
            ("url", json!(URL)),
            ("agent", json!("NimbuBot")),
            ("group", json!("NimbuBot")),
            ("rule", json!("Disallow: /prices/")),
            ("line", json!(10)),
            ("robots_url", json!(ROBOTS_URL)),
            ("robots_status", json!(200)),
            ("robots_fetched_at", record["robots"]["fetched_at"].clone()),
        ] {
            assert_eq!(problem[field], value, "{field}");
        }
        let records = proxy.records(1).await;
        assert!(records.iter().any(|record| record["id"] == problem["instance"]), "the instance is the record's id");
    }
}

#[tokio::test]
async fn a_refusal_to_head_has_the_head_of_the_answer_to_get() {
    let (_shop, proxy) = shop().await;
    let get = proxy.curl(&["-H", "Robots-Agent: NimbuBot", "https://bazaar.nimbu.test/prices/x"]).await;
    for http in ["--http1.1", "--http2"] {
        let arguments = [http, "--head", "-H", "Robots-Agent: NimbuBot", "https://bazaar.nimbu.test/prices/x"];
        let head = proxy.curl(&arguments).await;
        assert_eq!((head.exit, head.status), (0, 403), "{}", head.error);
        for name in ["content-type", "content-length", "cache-control", "proxy-status"] {
            assert_eq!(head.header(name), get.header(name), "{http} {name}");
        }
    }
}

#[tokio::test]
async fn a_record_tells_everything_about_a_refusal() {
    let (_shop, proxy) = shop().await;
    let arguments = ["-A", "Tool/1", "-H", "Cookie: secret=1", "-H", "Robots-Agent: NimbuBot/2.0"];
    proxy.curl(&[&arguments[..], &["https://bazaar.nimbu.test/drafts/x?y"]].concat()).await;
    let record = proxy.record_of("/drafts/x?y").await;
    for (field, value) in [
        ("decision", json!("refuse")),
        ("reason", json!("disallowed")),
        ("mode", json!("enforce")),
        ("agent", json!("NimbuBot")),
        ("agent_source", json!("header")),
        ("client", json!("127.0.0.1")),
        ("user_agent", json!("Tool/1")),
        ("method", json!("GET")),
        ("url", json!("https://bazaar.nimbu.test/drafts/x?y")),
        ("rule", json!("Disallow: /drafts/")),
        ("line", json!(18)),
        ("crawl_delay_s", json!(2.5)),
        ("via", json!("connect")),
        ("status", json!(403)),
    ] {
        assert_eq!(record[field], value, "{field}");
    }
    assert_eq!((&record["robots"]["url"], &record["robots"]["status"]), (&json!(ROBOTS_URL), &json!(200)));
    assert_eq!(record["robots"]["sha256"].as_str().unwrap().len(), 64);
    assert!(!record.to_string().contains("secret"));
}

#[tokio::test]
async fn what_is_between_client_and_proxy_does_not_reach_the_origin() {
    let clear = Origin::http(|visit| Reply::of_site("", visit)).await;
    let tls = Origin::https(|visit| Reply::of_site("", visit)).await;
    let proxy = Proxy::before(&[("a.test", &clear), ("b.test", &tls)]).await;
    let arguments = [
        "-H",
        "Robots-Agent: NimbuBot",
        "-H",
        "Proxy-Authorization: Basic dTpw",
        "-H",
        "Connection: x-secret, close",
        "-H",
        "X-Secret: 1",
        "-H",
        "X-Plain: 1",
        "-H",
        "Authorization: Basic b3duOg==",
        "--proxy-header",
        "Robots-Agent: NimbuBot",
        "--proxy-user",
        "someone:password",
    ];
    for (url, origin) in [("http://a.test/x", &clear), ("https://b.test/x", &tls)] {
        let got = proxy.curl(&[&arguments[..], &["--http1.1", url]].concat()).await;
        assert_eq!((got.exit, got.status), (0, 200), "{url}: {}", got.error);
        let visit = origin.pages().pop().unwrap();
        for name in ["robots-agent", "proxy-authorization", "proxy-connection", "connection", "x-secret"] {
            assert!(!visit.headers.contains_key(name), "{url}: {name} reached the origin");
        }
        assert_eq!(
            (&visit.headers["x-plain"], &visit.headers["authorization"]),
            (&"1".parse().unwrap(), &"Basic b3duOg==".parse().unwrap())
        );
        assert_eq!(visit.headers["via"], "1.1 robots-proxy");
        let robots = origin.robots().pop().unwrap();
        for name in ["robots-agent", "authorization", "x-plain", "via"] {
            assert!(!robots.headers.contains_key(name), "{name} is the client's own");
        }
        assert!(robots.headers["user-agent"].to_str().unwrap().contains("+https://"), "it names a contact");
        assert!(got.header("via").ends_with("robots-proxy"), "{:?}", got.headers);
    }
    let records = proxy.records(2).await;
    assert!(records.iter().all(|record| !record.to_string().contains("password")));
}

#[tokio::test]
async fn an_identity_given_on_the_connect_holds_for_the_tunnel() {
    let (shop, proxy) = shop().await;
    let named = ["--proxy-header", "Robots-Agent: NimbuBot"];
    let got = proxy.curl(&[&named[..], &["https://bazaar.nimbu.test/prices/x"]].concat()).await;
    assert_eq!(got.status, 403);
    let other = ["-H", "Robots-Agent: OtherBot", "https://bazaar.nimbu.test/prices/x"];
    let got = proxy.curl(&[&named[..], &other].concat()).await;
    assert_eq!(got.status, 400, "two names are one too many");
    assert!(shop.pages().is_empty());
}

#[tokio::test]
async fn a_name_that_is_no_token_is_an_error_and_not_everybody() {
    let (shop, proxy) = shop().await;
    for (first, second) in [("Nimbu Bot", "Nimbu Bot"), ("*", "*"), ("NimbuBot", "OtherBot")] {
        let (first, second) = (format!("Robots-Agent: {first}"), format!("Robots-Agent: {second}"));
        let got = proxy.curl(&["-H", &first, "-H", &second, "https://bazaar.nimbu.test/products/"]).await;
        assert_eq!(got.status, 400, "{first}, {second}");
        assert!(got.text().contains("robots-agent"), "{}", got.text());
    }
    assert!(shop.visits().is_empty());
}

#[tokio::test]
async fn robots_txt_itself_is_passed_on_and_fills_no_copy() {
    let shop = Origin::https(|visit| match visit.headers.contains_key("cookie") {
        true => Reply::text("User-agent: *\nDisallow:"),
        false => Reply::of_site("User-agent: *\nDisallow: /", visit),
    })
    .await;
    let proxy = Proxy::before(&[("a.test", &shop)]).await;
    let got = proxy.curl(&["-H", "Cookie: friend=1", "https://a.test/robots.txt"]).await;
    assert_eq!((got.status, got.text().as_str()), (200, "User-agent: *\nDisallow:"));
    let got = proxy.curl(&["-H", "Cookie: friend=1", "https://a.test/x"]).await;
    assert_eq!(got.status, 403, "the rules are those that everybody gets");
    let got = proxy.curl(&["https://a.test/robots.txt?x"]).await;
    assert_eq!(got.status, 403, "with a query it is an ordinary URL");
}
