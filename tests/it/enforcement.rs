//! What is decided and not enforced: observe mode, for all bots or for one, and exceptions, for a site.

use std::time::Duration;

use robots_proxy::clock;
use robots_proxy::policy::enforcement::{Exception, Mode};
use robots_proxy::policy::identity::MapEntry;
use robots_proxy::policy::pacing::Shared;
use serde_json::{Value, json};

use super::support::origin::{Origin, Reply};
use super::support::program;
use super::support::proxy::Proxy;

const RULES: &str = "User-agent: *\nDisallow: /private/";

fn exception(host: &str, token: Option<&str>, reason: &str) -> Exception {
    let token = token.map(|token| token.parse().unwrap());
    Exception { host: host.parse().unwrap(), token, reason: reason.into() }
}

#[tokio::test]
async fn an_exception_is_recorded_and_not_enforced_for_its_site_and_bot_alone() {
    let site = Origin::https(|visit| Reply::of_site(RULES, visit)).await;
    let clear = Origin::http(|visit| Reply::of_site(RULES, visit)).await;
    let gone = Origin::http(|_| Reply::status(503, "later")).await;
    let names = [("a.test", &site), ("www.b.test", &clear), ("c.test", &site), ("d.test", &gone)];
    let proxy = Proxy::with(&names, |settings| {
        settings.exceptions = vec![
            exception("a.test", None, "it is ours"),
            exception("*.b.test", Some("NimbuBot"), "permission of 2026-10-02"),
            exception("d.test", None, "ours, too"),
        ];
    })
    .await;
    for (bot, url, status, decision, reason, exception) in [
        ("NimbuBot", "https://a.test/private/1", 200, "observe", "disallowed", json!("it is ours")),
        ("NimbuBot", "https://a.test/open/2", 200, "allow", "allowed", json!("it is ours")),
        ("FooBot", "https://a.test/private/3", 200, "observe", "disallowed", json!("it is ours")),
        ("nimbubot", "http://www.b.test/private/4", 200, "observe", "disallowed", json!("permission of 2026-10-02")),
        ("FooBot", "http://www.b.test/private/5", 403, "refuse", "disallowed", Value::Null),
        ("NimbuBot", "https://c.test/private/6", 403, "refuse", "disallowed", Value::Null),
        // The page itself is answered 503, by the site.
        ("NimbuBot", "http://d.test/7", 503, "observe", "robots-unreachable", json!("ours, too")),
    ] {
        assert_eq!(proxy.curl(&["-A", &format!("{bot}/1.0"), url]).await.status, status, "{bot} {url}");
        let record = proxy.record_of(url).await;
        let told = (&record["decision"], &record["reason"], &record["exception"], &record["mode"]);
        assert_eq!(told, (&json!(decision), &json!(reason), &exception, &json!("enforce")), "{bot} {url}");
        if reason == "disallowed" {
            assert_eq!((&record["rule"], &record["line"]), (&json!("Disallow: /private/"), &json!(2)), "{url}");
        }
    }
}

#[tokio::test]
async fn an_exception_lifts_no_pace() {
    let delay = Duration::from_secs(1);
    let site = Origin::http(move |visit| Reply::of_site(&format!("{RULES}\nCrawl-delay: 1"), visit)).await;
    let proxy = Proxy::with(&[("a.test", &site)], |settings| {
        settings.exceptions = vec![exception("a.test", None, "mine")];
    })
    .await;
    let ask = |number: u32| {
        let proxy = &proxy;
        async move { proxy.curl(&[&format!("http://a.test/private/{number}")]).await.status }
    };
    assert_eq!(tokio::join!(ask(1), ask(2), ask(3)), (200, 200, 200));
    let starts: Vec<_> = site.pages().iter().map(|visit| visit.at).collect();
    // The origin reads the clock a moment after the request has started.
    let gaps = starts.windows(2).map(|pair| pair[1].duration_since(pair[0]));
    assert!(gaps.clone().all(|gap| gap + Duration::from_millis(50) >= delay), "{:?}", gaps.collect::<Vec<_>>());
    for record in proxy.records(3).await {
        assert_eq!((&record["decision"], &record["paced"]), (&json!("observe"), &json!(true)), "{record}");
    }
}

#[tokio::test]
async fn check_tells_of_an_exception() {
    let home =
        program::folder("[[exception]]\nhost = \"a.test\"\ntoken = \"NimbuBot\"\nreason = \"written permission\"\n");
    std::fs::write(home.path().join("robots.txt"), RULES).unwrap();
    let check = async |agent: &str, more: &[&str]| {
        let options = ["check", "--robots", "robots.txt", "--agent", agent];
        program::run(home.path(), &[&options[..], more, &["https://a.test/private/x"]].concat()).await
    };
    let told = check("NimbuBot", &[]).await;
    assert!(
        told.exit == 1 && told.out.starts_with("would be refused: NimbuBot https://a.test/private/x\n"),
        "{told:?}"
    );
    assert!(told.out.contains("  = exception: written permission\n"), "{}", told.out);
    let json: Value = serde_json::from_str(&check("NimbuBot", &["--json"]).await.out).unwrap();
    assert_eq!((&json["allow"], &json["exception"]), (&json!(false), &json!("written permission")));
    let other = check("FooBot", &[]).await;
    assert!(other.out.starts_with("refused: FooBot ") && !other.out.contains("exception"), "{}", other.out);
}

/// Bots `Watched` and `Held` by User-Agent, the one observed and the other not.
fn one_is_observed(mode: Mode) -> Vec<MapEntry> {
    let entry = |name: &str, mode| {
        let user_agent = Some(regex::Regex::new(name).unwrap());
        MapEntry { user_agent, mode: Some(mode), ..MapEntry::of(name.parse().unwrap()) }
    };
    let other = if mode == Mode::Observe { Mode::Enforce } else { Mode::Observe };
    vec![entry("Watched", Mode::Observe), entry("Held", Mode::Enforce), entry("As-All", mode), entry("Other", other)]
}

#[tokio::test]
async fn a_bot_can_be_observed_while_others_are_held_to_the_rules_and_the_other_way_round() {
    let site = Origin::https(|visit| Reply::of_site(RULES, visit)).await;
    for mode in [Mode::Enforce, Mode::Observe] {
        let proxy = Proxy::with(&[("a.test", &site)], |settings| {
            settings.mode = mode;
            settings.identity.map = one_is_observed(mode);
        })
        .await;
        for (bot, observed) in [("Watched", true), ("Held", false), ("Another", mode == Mode::Observe)] {
            let got = proxy.curl(&["-A", bot, &format!("https://a.test/private/{bot}")]).await;
            let record = proxy.record_of(bot).await;
            let told = (got.status, record["decision"].as_str().unwrap(), record["mode"].as_str().unwrap());
            let expected = if observed { (200, "observe", "observe") } else { (403, "refuse", "enforce") };
            assert_eq!(told, expected, "{bot} where all are to {mode}");
        }
    }
}

#[tokio::test]
async fn what_an_observed_bot_would_have_waited_delays_nobody_else() {
    let site = Origin::http(|visit| Reply::of_site("User-agent: *\nCrawl-delay: 20", visit)).await;
    let proxy = Proxy::with(&[("a.test", &site)], |settings| {
        settings.identity.map = one_is_observed(Mode::Enforce);
        settings.pace.shared = Shared::Host;
    })
    .await;
    let began = clock::now();
    for number in 0..4 {
        let got = proxy.curl(&["-A", "Watched", &format!("http://a.test/{number}")]).await;
        assert_eq!(got.status, 200);
    }
    assert_eq!(proxy.curl(&["-A", "Held", "http://a.test/held"]).await.status, 200);
    assert!(clock::now().duration_since(began) < Duration::from_secs(20), "nobody has waited");
    let would = |record: &Value| record["would_wait_ms"].as_u64();
    for (number, at_least) in [(0, 0), (1, 10_000), (2, 30_000), (3, 50_000)] {
        let record = proxy.record_of(&format!("/{number}")).await;
        assert!(would(&record).unwrap() >= at_least, "{record}");
    }
    assert_eq!(would(&proxy.record_of("/held").await), None);
}

#[tokio::test]
async fn observe_mode_turns_nobody_away_for_a_name_and_minds_no_pause_that_a_site_asks_for() {
    let site = Origin::http(|visit| match visit.path.as_str() {
        "/busy" => Reply::with(429, &[("retry-after", "40")], "busy"),
        _ => Reply::of_site(RULES, visit),
    })
    .await;
    let proxy = Proxy::with(&[("a.test", &site)], |settings| {
        settings.mode = Mode::Observe;
        settings.identity.require = true;
        settings.pace.max_wait = Duration::from_secs(30);
    })
    .await;
    for (agent, path, status, decision, reason) in [
        ("Mozilla/5.0 Chrome/9", "/private/1", 200, "observe", "unidentified"),
        ("NimbuBot/1", "/busy", 429, "allow", "allowed"),
        ("NimbuBot/1", "/after", 200, "observe", "wait-too-long"),
        ("NimbuBot/1", "/private/2", 200, "observe", "disallowed"),
    ] {
        assert_eq!(proxy.curl(&["-A", agent, &format!("http://a.test{path}")]).await.status, status, "{path}");
        let record = proxy.record_of(path).await;
        assert_eq!((&record["decision"], &record["reason"]), (&json!(decision), &json!(reason)), "{path}");
    }
}
