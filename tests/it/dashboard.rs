//! The dashboard in a real Chromium, driven by tests/fixtures/dashboard.mjs: what a person sees there, and the pictures of it.

use std::path::Path;
use std::process::Stdio;

use serde_json::json;
use tokio::process::Command;

use super::browser;
use super::support::in_time;
use super::support::origin::{Origin, Reply};
use super::support::proxy::Proxy;

const ROBOTS: &str = "# <b>robots.txt</b> of the shop\n\nUser-agent: *\nAllow: /private/open\nDisallow: /private\nDisallow: /basket\n\n\
    User-agent: NimbuBot\nDisallow: /private/\nDisallow: /search<img src=x onerror=alert(1)>\n\nSitemap: http://shop.test/sitemap.xml\n";

#[tokio::test(flavor = "multi_thread")]
async fn the_dashboard_shows_what_happens_in_chromium() {
    let shop = Origin::http(|visit| Reply::of_site(ROBOTS, visit)).await;
    let slow = Origin::http(|visit| Reply::of_site("User-agent: *\nCrawl-delay: 20\n", visit)).await;
    let closed = Origin::http(|_| Reply::status(403, "")).await;
    let names = [("shop.test", &shop), ("slow.test", &slow), ("closed.test", &closed)];
    let proxy = Proxy::seen_inside(&names, None, |_| {}).await;

    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let pictures = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let told = json!({
        "admin": proxy.admin(),
        "proxy": proxy.url(),
        "options": browser::OPTIONS,
        "pictures": pictures,
        "home": proxy.folder().join("chromium"),
    });
    let mut command = Command::new("node");
    command.arg(root.join("tests/fixtures/dashboard.mjs")).arg(told.to_string());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let output = in_time("node", command.output()).await.expect("node is installed");
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    println!("{said}");
    assert!(output.status.success() && said.contains("all is as it should be"), "{said}");
    assert!(
        shop.paths().iter().all(|path| !path.starts_with("/private")),
        "explaining fetches no page: {:?}",
        shop.paths()
    );
    let picture = std::fs::read(pictures.join("dashboard-now-dark-narrow.png")).unwrap();
    assert!(picture.starts_with(b"\x89PNG") && picture.len() > 5000, "{} octets", picture.len());
}
