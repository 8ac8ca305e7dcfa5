//! A crawl with the real Scrapy, which is told to obey nothing: the proxy obeys for it.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use super::support::in_time;
use super::support::origin::{Origin, Reply, Visit};
use super::support::proxy::Proxy;

const PAGES: usize = 50;
const DELAY: Duration = Duration::from_millis(200);
const ROBOTS: &str = "User-agent: *\nCrawl-delay: 0.2\nDisallow: /private/\n";

/// Fifty pages, each with links to two more and to one that may not be fetched.
fn site(visit: &Visit) -> Reply {
    let Ok(number) = visit.path.trim_start_matches('/').parse::<usize>() else { return Reply::of_site(ROBOTS, visit) };
    let links = [2 * number, 2 * number + 1].map(|next| match next <= PAGES {
        true => format!("<a href=/{next}>{next}</a>"),
        false => String::new(),
    });
    let html = format!("<!doctype html><title>{number}</title>{}<a href=/private/{number}>no</a>", links.concat());
    Reply::with(200, &[("content-type", "text/html")], html)
}

#[tokio::test(flavor = "multi_thread")]
async fn scrapy_with_everything_off_arrives_at_the_crawl_delay_and_in_full() {
    let site = Origin::https(site).await;
    let proxy = Proxy::before(&[("shop.nimbu.test", &site)]).await;
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = root.join("target/scrapy/bin/python");
    assert!(python.exists(), "Scrapy is missing: run tests/setup/scrapy");
    let mut scrapy = Command::new(python);
    scrapy.arg(root.join("tests/fixtures/spider.py")).arg("https://shop.nimbu.test/1").current_dir(proxy.folder());
    scrapy.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("https_proxy", proxy.url());
    scrapy.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let output = in_time("scrapy", scrapy.output()).await.unwrap();
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{errors}");

    let every_page: BTreeSet<String> = (1..=PAGES).map(|number| format!("/{number}")).collect();
    assert_eq!(said.lines().map(str::to_owned).collect::<BTreeSet<_>>(), every_page, "{errors}");
    let pages = site.pages();
    assert_eq!(pages.len(), PAGES, "each once, and nothing else: {:?}", site.paths());
    let gaps: Vec<Duration> = pages.windows(2).map(|pair| pair[1].at - pair[0].at).collect();
    println!(
        "{} pages in {:?}, closest {:?}",
        pages.len(),
        pages[PAGES - 1].at - pages[0].at,
        gaps.iter().min().unwrap()
    );
    assert!(gaps.iter().all(|gap| *gap >= DELAY - Duration::from_millis(2)), "{gaps:?}");
}
