//! What is shipped in `deploy/` fits the program: configurations that it takes, metrics that it has, a Chromium that trusts it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use regex::Regex;
use tokio::process::Command;

use super::support::in_time;
use super::support::origin::{Origin, Reply};
use super::support::program::{Serving, folder, run};
use super::support::proxy::Proxy;

/// All files under `deploy/` with this ending.
fn shipped(ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == ending) {
                found.push(path);
            }
        }
    }
    found
}

#[tokio::test]
async fn every_shipped_configuration_is_in_order() {
    let home = folder("");
    let files = shipped("toml");
    assert!(files.len() >= 3, "{files:?}");
    for file in files {
        let ran = run(home.path(), &["config", "check", "--config", file.to_str().unwrap()]).await;
        assert_eq!(ran.exit, 0, "{}: {}", file.display(), ran.err);
    }
}

/// What the first group of a pattern finds in the alerts and the dashboard.
fn watched(pattern: &str) -> BTreeSet<String> {
    let alerts = include_str!("../../deploy/prometheus/alerts.yaml");
    let dashboard = include_str!("../../deploy/grafana/robots-proxy.json").replace("\\\"", "\"");
    let found = Regex::new(pattern).unwrap();
    [alerts, &dashboard].iter().flat_map(|text| found.captures_iter(text)).map(|found| found[1].to_owned()).collect()
}

#[tokio::test]
async fn alerts_and_dashboard_watch_what_is_counted() {
    let site = Origin::http(|visit| Reply::of_site("", visit)).await;
    let home = folder(&format!(
        "listen = [\"127.0.0.1:0\"]\nstate_dir = \".\"\n[admin]\nlisten = \"unix:admin.sock\"\n\
         [upstream.connect_to]\n\"shop.test:80\" = \"{}\"\n",
        site.address
    ));
    let serving = Serving::start(home.path(), &[]).await;
    let curl = |arguments: &[&str]| {
        let mut curl = Command::new("curl");
        curl.args(["-q", "-s", "--fail"]).args(arguments).current_dir(home.path()).kill_on_drop(true);
        async move { in_time("curl", curl.output()).await.unwrap() }
    };
    // A family of which nothing was counted yet is not told.
    assert!(curl(&["--proxy", &serving.address().to_string(), "http://shop.test/"]).await.status.success());
    let told = curl(&["--unix-socket", "admin.sock", "http://localhost/metrics"]).await.stdout;
    let told = String::from_utf8(told).unwrap();
    let series: BTreeSet<&str> = told.lines().filter_map(|line| line.split(['{', ' ']).next()).collect();

    let names = watched(r"\b(robots_proxy_\w+)");
    assert!(names.len() >= 10, "{names:?}");
    for name in names {
        assert!(series.contains(name.as_str()), "{name} is not in {told}");
    }
    for side in watched(r#"side="(\w+)""#) {
        assert!(told.contains(&format!("side=\"{side}\"")), "{side} is not in {told}");
    }
}

#[test]
fn alerts_name_reasons_that_the_manual_explains() {
    let manual = include_str!("../../README.md");
    let named = watched(r#"reason=~?"([a-z|.*-]+)""#);
    assert!(named.len() >= 3, "{named:?}");
    for reason in named.iter().flat_map(|reasons| reasons.split('|')) {
        assert!(manual.contains(&format!("`{}", reason.trim_end_matches(".*"))), "{reason}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_shipped_chromium_goes_through_the_proxy_and_trusts_it() {
    let site = Origin::https(|visit| match visit.path.as_str() {
        "/" => Reply::with(200, &[("content-type", "text/html")], "<title>Shop</title><h1>Open page</h1>"),
        _ => Reply::of_site("User-agent: *\nDisallow: /private/\n", visit),
    })
    .await;
    let proxy = Proxy::before(&[("shop.nimbu.test", &site)]).await;
    for (path, shows) in [("", "<h1>Open page</h1>"), ("private/", "Disallowed by robots.txt")] {
        let home = tempfile::tempdir().unwrap();
        let mut start = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/chromium/start"));
        start.args(["--dump-dom", &format!("https://shop.nimbu.test/{path}")]).env_clear();
        start.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", home.path());
        start.env("PROXY", proxy.url()).env("PROXY_CA", proxy.ca());
        start.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let output = in_time("chromium", start.output()).await.unwrap();
        let page = String::from_utf8_lossy(&output.stdout);
        assert!(page.contains(shows), "{page}{}", String::from_utf8_lossy(&output.stderr));
    }
    assert!(!site.paths().contains(&"/private/".to_owned()), "{:?}", site.paths());
}
