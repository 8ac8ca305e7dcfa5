//! Pages with all that they load: paced like a person who waits for the next page, not like one who waits for every image.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use robots_proxy::clock;
use serde_json::json;
use tokio::sync::Semaphore;

use super::browser::Chromium;
use super::support::origin::{Origin, Reply, Visit};
use super::support::proxy::Proxy;
use super::support::until;

const ROBOTS: &str = "User-agent: *\nCrawl-delay: 5\nDisallow: /private/\n";

/// 40 images, 15 scripts and 5 fetches, and a script that may not be loaded; says so when all has come.
fn page() -> String {
    let mut html =
        String::from("<!doctype html><title>Shop</title><p id=state>loading</p><script>let scripts = 0</script>");
    (0..40).for_each(|number| write!(html, "<img src=/image/{number}.svg>").unwrap());
    (0..15).for_each(|number| write!(html, "<script src=/script/{number}.js></script>").unwrap());
    html.push_str("<script src=/private/tracker.js></script>");
    html.push_str(
        "<script>const fetches = Promise.all([0, 1, 2, 3, 4].map(n => fetch('/data/' + n).then(answer => answer.text())));\
         addEventListener('load', () => fetches.then(texts => {\
           const images = [...document.images].filter(image => image.naturalWidth > 0).length;\
           document.getElementById('state').textContent = `${images} images, ${scripts} scripts, ${texts.length} fetches`;\
         }))</script>",
    );
    html
}

fn shop(visit: &Visit) -> Reply {
    let of = |kind, body: &'static str| Reply::with(200, &[("content-type", kind)], body);
    match visit.path.split('/').nth(1).unwrap_or_default() {
        "" | "next" => Reply::with(200, &[("content-type", "text/html")], page()),
        "image" => of("image/svg+xml", "<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'></svg>"),
        "script" => of("text/javascript", "scripts += 1"),
        "data" => of("text/plain", "data"),
        "favicon.ico" => Reply::status(404, ""),
        _ => Reply::of_site(ROBOTS, visit),
    }
}

fn visit_of<'a>(visits: &'a [Visit], path: &str) -> &'a Visit {
    visits.iter().find(|visit| visit.path == path).unwrap_or_else(|| panic!("nobody came for {path}"))
}

/// Loads the shop's page and the next one in Chromium, and checks what the shop saw.
async fn browse(site: Origin, scheme: &str) {
    let proxy = Proxy::before(&[("shop.nimbu.test", &site)]).await;
    let chromium = Chromium::behind(&proxy).await;
    let url = |path: &str| format!("{scheme}://shop.nimbu.test{path}");
    for path in ["/", "/next"] {
        // Virtual time stands still while something loads, and the fetches outlive the load event.
        let page = chromium.run(&["--virtual-time-budget=10000", "--dump-dom", &url(path)]).await;
        assert!(page.contains("40 images, 15 scripts, 5 fetches"), "{page}");
    }
    let pages = site.pages();
    let (first, next) = (visit_of(&pages, "/").at, visit_of(&pages, "/next").at);
    assert!(next - first >= Duration::from_secs(5), "two navigations are a Crawl-delay apart: {:?}", next - first);
    let files = |at: Instant, until: Instant| -> Vec<&Visit> {
        let is_file =
            |visit: &&Visit| ["/image/", "/script/", "/data/"].iter().any(|kind| visit.path.starts_with(kind));
        pages.iter().filter(is_file).filter(|visit| visit.at > at && visit.at < until).collect()
    };
    let loaded = files(first, next);
    let took = loaded.iter().map(|visit| visit.at).max().unwrap() - first;
    println!("{scheme}: {} files in {took:?}", loaded.len());
    assert_eq!(loaded.len(), 60);
    assert!(took < Duration::from_secs(5), "60 files took {took:?}");

    let refused = proxy.record_of("/private/tracker.js").await;
    assert_eq!((&refused["decision"], &refused["status"]), (&json!("refuse"), &json!(403)));
    assert!(!pages.iter().any(|visit| visit.path.starts_with("/private/")));
    assert_eq!(proxy.record_of("/image/0.svg").await["paced"], json!(false));
    assert_eq!(proxy.record_of("/next").await["paced"], json!(true));
}

#[tokio::test(flavor = "multi_thread")]
async fn chromium_loads_a_page_of_60_files_under_a_crawl_delay() {
    browse(Origin::https(shop).await, "https").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_plain_http_too_where_browsers_say_less() {
    browse(Origin::http(shop).await, "http").await;
}

/// What a client sends that says it is a browser's page.
const NAVIGATION: [&str; 4] = ["-H", "Sec-Fetch-Mode: navigate", "-H", "Sec-Fetch-Dest: document"];

#[tokio::test(flavor = "multi_thread")]
async fn who_forges_an_images_header_gets_its_budget_and_no_more() {
    let site =
        Origin::https(|visit| Reply::of_site("User-agent: *\nCrawl-delay: 30\nDisallow: /private/\n", visit)).await;
    let proxy = Proxy::before(&[("a.test", &site)]).await;
    let forged = ["-H", "Sec-Fetch-Mode: no-cors", "-H", "Sec-Fetch-Dest: image", "-H", "Prefer: wait=1"];
    let began = clock::now();
    let alone = proxy.curl(&[&forged[..], &["https://a.test/image/alone"]].concat()).await;
    assert_eq!(alone.status, 200, "paced, but nobody was there before");
    let none = proxy.curl(&[&forged[..], &["https://a.test/image/none"]].concat()).await;
    assert_eq!(none.status, 429, "without a page there is no budget");
    // The page has to wait for the forged request, so it is another bot's.
    let bot = ["-H", "Robots-Agent: OtherBot"];
    assert_eq!(proxy.curl(&[&NAVIGATION[..], &bot, &["https://a.test/page"]].concat()).await.status, 200);
    let urls = "https://a.test/image/[1-260]";
    let out = proxy.folder().join("forged-#1");
    let mut curl = proxy.spawn_curl(&[&forged[..], &bot, &["--output", out.to_str().unwrap(), urls]].concat());
    curl.wait().await.unwrap();
    let passed = site.paths().iter().filter(|path| path.starts_with("/image/")).count() - 1;
    assert!(clock::now() - began < Duration::from_secs(30), "within the delay: {:?}", clock::now() - began);
    assert_eq!(passed, 200);
    let private = proxy.curl(&[&forged[..], &bot, &["https://a.test/private/image"]].concat()).await;
    assert_eq!(private.status, 403, "rules apply to what passes the line");
}

#[tokio::test(flavor = "multi_thread")]
async fn six_files_of_a_page_are_under_way_at_once() {
    let gate = Arc::new(Semaphore::new(0));
    let shut = Arc::clone(&gate);
    let site = Origin::https(move |visit| match visit.path.starts_with("/image/") {
        true => Reply::Gated(Arc::clone(&shut), http::Response::new("image".into())),
        false => Reply::of_site(ROBOTS, visit),
    })
    .await;
    let proxy = Proxy::before(&[("a.test", &site)]).await;
    assert_eq!(proxy.curl(&[&NAVIGATION[..], &["https://a.test/page"]].concat()).await.status, 200);
    let urls: Vec<String> = (0..20).map(|number| format!("https://a.test/image/{number}")).collect();
    let asking = join_all(urls.iter().map(|url| async { proxy.curl(&["-H", "Sec-Fetch-Dest: image", url]).await }));
    let opening = async {
        for released in 0..=20usize {
            let coming = (released + 6).min(20);
            until("images under way", || Some(()).filter(|()| site.pages().len() == coming + 1)).await;
            gate.add_permits(1);
        }
    };
    let (answers, ()) = tokio::join!(asking, opening);
    assert!(answers.iter().all(|got| got.status == 200));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_navigation_is_told_before_its_browser_gives_up() {
    let site = Origin::https(|visit| Reply::of_site("User-agent: *\nCrawl-delay: 28\n", visit)).await;
    let proxy = Proxy::before(&[("a.test", &site)]).await;
    let one = proxy.curl(&[&NAVIGATION[..], &["https://a.test/1"]].concat()).await;
    assert_eq!(one.status, 200);
    let got = proxy.curl(&[&NAVIGATION[..], &["https://a.test/2"]].concat()).await;
    assert_eq!(got.status, 429);
    assert!((26..=28).contains(&got.retry_after().unwrap()), "{:?}", got.retry_after());
}
