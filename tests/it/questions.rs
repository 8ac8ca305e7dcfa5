//! The twelve questions to the practice shop, asked by curl through the proxy.
//!
//! The last question gives a whole User-Agent as the name of the bot. Its answer is that of the token which stands in front of the
//! first slash, `Mozilla`, for whom no group is written: allowed. A client can ask the proxy the same by sending the whole string
//! as its `Robots-Agent`. Who sends it as its `User-Agent` asks something else: there the proxy finds `NimbuBot`, and goes by its
//! rules (`the_bot_is_found_in_a_whole_user_agent`).

use serde_json::json;

use super::support::SHOP_ROBOTS;
use super::support::origin::{Origin, Reply};
use super::support::proxy::Proxy;

const SHOP: &str = "bazaar.nimbu.test";
const WHOLE_USER_AGENT: &str = "Mozilla/5.0 (compatible; NimbuBot/1.0; +https://bazaar.nimbu.test/bot)";

/// A deciding rule and its line.
type Rule = (&'static str, u32);

/// Who asks, for what, and the rule that refuses it; `None` is allowed.
const QUESTIONS: [(&str, &str, Option<Rule>); 12] = [
    ("NimbuBot", "/prices/today", None),
    ("NimbuBot", "/prices/history", Some(("Disallow: /prices/", 10))),
    ("NimbuBot", "/guides/size-chart.pdf", Some(("Disallow: /*.pdf$", 12))),
    ("NimbuBot", "/guides/size-chart.pdf?print=1", None),
    ("NimbuBot", "/offers/weekend", None),
    ("NimbuBot", "/drafts/new-range", Some(("Disallow: /drafts/", 18))),
    ("NimbuBot", "/account/orders", None),
    ("OtherBot", "/account/orders", Some(("Disallow: /account/", 3))),
    ("OtherBot", "/products/?sort=price", Some(("Disallow: /products/*?sort=", 5))),
    ("ArchiveBot", "/robots.txt", None),
    ("nimbubot", "/%70rices/history", Some(("Disallow: /prices/", 10))),
    (WHOLE_USER_AGENT, "/prices/history", None),
];

#[tokio::test]
async fn the_twelve_questions_over_https() {
    let shop = Origin::https(|visit| Reply::of_site(SHOP_ROBOTS, visit)).await;
    ask_all("https", &shop).await;
}

#[tokio::test]
async fn the_twelve_questions_over_http() {
    let shop = Origin::http(|visit| Reply::of_site(SHOP_ROBOTS, visit)).await;
    ask_all("http", &shop).await;
}

async fn ask_all(scheme: &str, shop: &Origin) {
    let proxy = Proxy::with(&[(SHOP, shop)], no_delay).await;
    let mut allowed = Vec::new();
    for (bot, path, refused) in QUESTIONS {
        let url = format!("{scheme}://{SHOP}{path}");
        let name = format!("Robots-Agent: {bot}");
        let got = proxy.curl(&["-H", &name, "-H", "Accept: application/problem+json", &url]).await;
        let Some((rule, line)) = refused else {
            assert_eq!(got.status, 200, "{bot} {path}: {}", got.text());
            allowed.push(path);
            continue;
        };
        assert_eq!(got.status, 403, "{bot} {path}: {}", got.text());
        let problem = got.json();
        assert_eq!(problem["reason"], "disallowed");
        assert_eq!((&problem["rule"], &problem["line"]), (&json!(rule), &json!(line)), "{bot} {path}");
        assert_eq!((&problem["url"], &problem["agent"]), (&json!(url), &json!(bot)));
    }

    let visits = shop.visits();
    assert!(visits[0].is_robots(), "robots.txt is asked for before the first page");
    let by_client = visits.iter().filter(|visit| visit.is_robots()).count() - 1;
    assert_eq!(by_client, 1, "the proxy asks once; the other one is ArchiveBot's own question");
    let reached: Vec<&str> = visits[1..].iter().map(|visit| visit.path.as_str()).collect();
    assert_eq!(reached, allowed, "what is refused never reaches the origin");

    let records = proxy.records(QUESTIONS.len()).await;
    let decisions: Vec<bool> = records.iter().map(|record| record["decision"] == "allow").collect();
    assert_eq!(decisions, QUESTIONS.map(|(_, _, refused)| refused.is_none()));
}

/// The answers are what is asked for here; the shop's delays would only make it long.
fn no_delay(settings: &mut robots_proxy::app::Settings) {
    settings.pace.max_delay = std::time::Duration::ZERO;
}

#[tokio::test]
async fn the_bot_is_found_in_a_whole_user_agent() {
    let shop = Origin::https(|visit| Reply::of_site(SHOP_ROBOTS, visit)).await;
    let proxy = Proxy::with(&[(SHOP, &shop)], no_delay).await;
    let history = proxy.curl(&["--user-agent", WHOLE_USER_AGENT, "https://bazaar.nimbu.test/prices/history"]).await;
    assert_eq!(history.status, 403);
    let today = proxy.curl(&["--user-agent", WHOLE_USER_AGENT, "https://bazaar.nimbu.test/prices/today"]).await;
    assert_eq!(today.status, 200);
    assert_eq!(shop.paths(), ["/prices/today"]);
    let record = proxy.record_of("/prices/history").await;
    assert_eq!((&record["agent"], &record["agent_source"]), (&json!("NimbuBot"), &json!("user-agent")));
    assert_eq!(record["user_agent"], WHOLE_USER_AGENT);
}

#[tokio::test]
async fn bypass_e4_robots_txt_is_fetched_once_however_many_wait_for_it() {
    let gate = std::sync::Arc::new(tokio::sync::Semaphore::new(0));
    let closed = std::sync::Arc::clone(&gate);
    let shop = Origin::https(move |visit| match visit.is_robots() {
        true => {
            Reply::Gated(std::sync::Arc::clone(&closed), http::Response::new("User-agent: *\nDisallow: /no/".into()))
        }
        false => Reply::text("page"),
    })
    .await;
    let proxy = Proxy::before(&[(SHOP, &shop)]).await;
    let urls: Vec<String> = (0..10).map(|page| format!("https://{SHOP}/{page}")).collect();
    let asking = futures_util::future::join_all(urls.iter().map(|url| async {
        let got = proxy.curl(&[url]).await;
        assert_eq!(got.status, 200);
    }));
    let opening = async {
        super::support::until("the request for robots.txt", || (!shop.robots().is_empty()).then_some(())).await;
        assert!(shop.pages().is_empty(), "no page is asked for before the rules are known");
        gate.add_permits(100);
    };
    tokio::join!(asking, opening);
    assert_eq!((shop.robots().len(), shop.pages().len()), (1, 10));
}
