//! Which bot is asking: who may claim what, who is turned away, and what goes on of it.

use robots_proxy::policy::identity::MapEntry;
use serde_json::{Value, json};

use super::support::origin::{Origin, Reply};
use super::support::program;
use super::support::proxy::Proxy;

const RULES: &str = "User-agent: *\nDisallow: /private/\n\nUser-agent: NimbuBot\nDisallow: /nimbu/\n";

async fn sites() -> (Origin, Origin) {
    let tls = Origin::https(|visit| Reply::of_site(RULES, visit)).await;
    (tls, Origin::http(|visit| Reply::of_site(RULES, visit)).await)
}

fn entry(user_agent: &str, token: &str) -> MapEntry {
    let user_agent = Some(regex::Regex::new(user_agent).unwrap());
    MapEntry { user_agent, ..MapEntry::of(token.parse().unwrap()) }
}

#[tokio::test]
async fn who_cannot_be_told_or_claims_too_much_is_turned_away_and_told_how_to_be_known() {
    let (tls, clear) = sites().await;
    let proxy = Proxy::with(&[("a.test", &tls), ("b.test", &clear)], |settings| {
        settings.identity.require = true;
        settings.identity.allow = vec!["NimbuBot".parse().unwrap()];
        settings.identity.map = vec![entry("(?i)known", "MapBot")];
    })
    .await;
    let browser = "User-Agent: Mozilla/5.0 Chrome/9";
    let cases: [(&[&str], &str); 6] = [
        (&["Robots-Agent: NimbuBot", browser], ""),
        (&["User-Agent: nimbubot/2.0"], ""),
        (&["User-Agent: Known Browser"], ""),
        (&[browser], "`robots-agent: NimbuBot`"),
        (&["User-Agent: FooBot/1.0"], "FooBot, the name in User-Agent"),
        (&["Robots-Agent: FooBot", "User-Agent: NimbuBot/1.0"], "FooBot, the name in robots-agent"),
    ];
    for (number, (fields, says)) in cases.iter().enumerate() {
        for page in ["https://a.test", "http://b.test"] {
            let url = format!("{page}/page/{number}");
            let fields: Vec<&str> = fields.iter().flat_map(|field| ["-H", *field]).collect();
            let got = proxy.curl(&[&fields[..], &["-H", "Accept: application/json", &url]].concat()).await;
            let record = proxy.record_of(&url).await;
            if says.is_empty() {
                assert_eq!((got.status, &record["decision"]), (200, &json!("allow")), "{fields:?}");
                continue;
            }
            assert_eq!((got.status, &got.json()["reason"]), (403, &json!("unidentified")), "{fields:?}");
            assert!(got.json()["detail"].as_str().unwrap().contains(says), "{fields:?}: {}", got.text());
            assert!(got.header("proxy-status").contains("error=http_request_denied"));
            assert_eq!((&record["decision"], &record["reason"]), (&json!("refuse"), &json!("unidentified")));
        }
    }
    assert_eq!((tls.pages().len(), clear.pages().len()), (3, 3), "who is turned away reaches no site");
    assert_eq!(tls.robots().len(), 1, "and asks no site for its rules");
}

#[tokio::test]
async fn a_tunnel_that_is_not_looked_into_wants_a_name_too() {
    let (tls, _) = sites().await;
    let proxy = Proxy::with(&[("a.test", &tls)], |settings| {
        settings.identity.require = true;
        settings.upstream.passthrough = vec!["a.test".parse().unwrap()];
    })
    .await;
    let got = proxy.curl(&["-A", "Mozilla/5.0 Chrome/9", "https://a.test/x"]).await;
    assert!(got.exit == 56 && got.error.contains("403"), "{}", got.error);
    let record = proxy.record_of("a.test:443").await;
    assert_eq!((&record["method"], &record["reason"]), (&json!("CONNECT"), &json!("unidentified")));
    assert_eq!(tls.connections(), 0);
}

#[tokio::test]
async fn a_configured_user_agent_goes_on_in_place_of_the_clients() {
    let (tls, clear) = sites().await;
    let sent = "Mozilla/5.0 (compatible; NimbuBot/1.0; +https://nimbu.example/bot)";
    let proxy = Proxy::with(&[("a.test", &tls), ("b.test", &clear)], |settings| {
        let send_user_agent = Some(sent.parse().unwrap());
        settings.identity.map = vec![MapEntry { send_user_agent, ..entry("(?i)headless", "NimbuBot") }];
    })
    .await;
    let headless = "Mozilla/5.0 HeadlessChrome/9";
    for (page, site) in [("https://a.test", &tls), ("http://b.test", &clear)] {
        assert_eq!(proxy.curl(&["-A", headless, &format!("{page}/x")]).await.status, 200);
        assert_eq!(proxy.curl(&["-A", "Mozilla/5.0 Firefox/9", &format!("{page}/y")]).await.status, 200);
        let agents: Vec<String> =
            site.pages().iter().map(|visit| visit.headers["user-agent"].to_str().unwrap().to_owned()).collect();
        assert_eq!(agents, [sent, "Mozilla/5.0 Firefox/9"], "{page}");
        assert_eq!(site.pages()[0].headers.get_all("user-agent").iter().count(), 1);
        let record = proxy.record_of(&format!("{page}/x")).await;
        assert_eq!((&record["agent"], &record["user_agent"]), (&json!("NimbuBot"), &json!(headless)));
    }
}

#[tokio::test]
async fn two_names_are_a_conflict_in_the_record_and_two_in_one_header_an_error() {
    let (tls, _) = sites().await;
    let proxy = Proxy::before(&[("a.test", &tls)]).await;
    for (path, fields, agent, source, conflict) in [
        ("/1", vec!["Robots-Agent: NimbuBot", "User-Agent: FooBot/1"], "NimbuBot", "header", json!("FooBot")),
        ("/2", vec!["Robots-Agent: NimbuBot", "User-Agent: NimbuBot/1"], "NimbuBot", "header", Value::Null),
        ("/3", vec!["User-Agent: FooBot/1"], "FooBot", "user-agent", Value::Null),
        ("/4", vec!["User-Agent: Mozilla/5.0 Chrome/9"], "*", "default", Value::Null),
    ] {
        let fields: Vec<&str> = fields.into_iter().flat_map(|field| ["-H", field]).collect();
        assert_eq!(proxy.curl(&[&fields[..], &[&format!("https://a.test{path}")]].concat()).await.status, 200);
        let record = proxy.record_of(path).await;
        let told = (&record["agent"], &record["agent_source"], &record["agent_conflict"]);
        assert_eq!(told, (&json!(agent), &json!(source), &conflict), "{path}");
    }
    for fields in [&["Robots-Agent: A", "Robots-Agent: B"][..], &["Robots-Agent: a b"], &["Robots-Agent: *"]] {
        let fields: Vec<&str> = fields.iter().flat_map(|field| ["-H", *field]).collect();
        let got = proxy.curl(&[&fields[..], &["-H", "Accept: application/json", "https://a.test/5"]].concat()).await;
        assert_eq!((got.status, &got.json()["reason"]), (400, &json!("bad-request")), "{fields:?}");
        assert!(got.json()["detail"].as_str().unwrap().contains("robots-agent"), "{}", got.text());
    }
    assert_eq!(tls.pages().len(), 4);
}

#[tokio::test]
async fn config_check_tells_what_is_hardly_meant() {
    let home = program::folder(
        "[identity]\nrequire = true\norder = [\"default\", \"header\"]\n\
         [[identity.map]]\ntoken = \"A\"\n[[identity.map]]\nuser = \"b\"\ntoken = \"B\"\n",
    );
    let ran = program::run(home.path(), &["config", "check"]).await;
    assert_eq!((ran.exit, ran.err.lines().count()), (0, 4), "{ran:?}");
    for says in ["identity.order: what stands", "identity.require: every request", "identity.map, entry 2: it never"] {
        assert!(ran.err.contains(&format!("config.toml: {says}")), "{says}: {}", ran.err);
    }
    let mistaken = "[[identity.map]]\ntoken = \"A\"\nmode = \"watch\"\nsend_user_agent = \"\"\n[[exception]]\n\
                    host = \"a.test\"\nreason = \" \"\n[[exception]]\nhost = \"b.test\"\n";
    let home = program::folder(mistaken);
    let ran = program::run(home.path(), &["config", "check"]).await;
    assert_eq!((ran.exit, ran.err.lines().count()), (2, 4), "{ran:?}");
    for says in [
        "line 3: identity.map.mode: use",
        "line 4: identity.map.send_user_agent: give",
        "line 7: exception.reason: say why",
        "line 8: exception: missing field `reason`",
    ] {
        assert!(ran.err.contains(says), "{says}: {}", ran.err);
    }
}
