//! What is shipped in `deploy/` fits the program: configurations that it takes, a Chromium that trusts it.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

use super::support::in_time;
use super::support::origin::{Origin, Reply};
use super::support::program::{folder, run};
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
