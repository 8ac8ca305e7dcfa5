//! docs/recipes.md: its lines, typed as they stand, with the programs of `examples/`.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tempfile::TempDir;
use tokio::process::Command;

use super::run;
use super::support::in_time;
use super::support::origin::{Origin, Reply, Visit};
use super::support::program::Ran;

const ROBOTS: &str = "User-agent: NimbuBot\nCrawl-delay: 0.1\nDisallow: /private/\n";

/// Three pages with a title each, and a link to what may not be fetched.
fn site(visit: &Visit) -> Reply {
    let links = match visit.path.as_str() {
        "/" => "<a href=/two>two</a><a href=/three>three</a><a href=/private/>no</a>",
        "/two" | "/three" | "/private/" => "<a href=/>home</a>",
        _ => return Reply::of_site(ROBOTS, visit),
    };
    Reply::with(200, &[("content-type", "text/html")], format!("<!doctype html><title>{}</title>{links}", visit.path))
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The lines of a recipe.
fn recipe(title: &str) -> String {
    let page = std::fs::read_to_string(root().join("docs/recipes.md")).unwrap();
    let section = page.split("\n## ").find(|section| section.starts_with(title)).unwrap();
    let (_, rest) = section.split_once("```sh\n").unwrap();
    rest.split_once("```").unwrap().0.to_owned()
}

/// A folder with a configuration that leads to the site, and the examples in it.
fn home(site: &Origin) -> TempDir {
    let home = run::home(site, "");
    let copied = std::process::Command::new("cp").arg("-R").arg(root().join("examples")).arg(home.path()).status();
    assert!(copied.unwrap().success());
    std::os::unix::fs::symlink(root().join("target/clients/node_modules"), home.path().join("node_modules")).unwrap();
    home
}

/// Types a recipe there.
async fn cook(home: &Path, title: &str) -> Ran {
    let installed = root().join("target/clients");
    assert!(installed.exists(), "the clients are missing: run tests/setup/clients");
    let program = Path::new(env!("CARGO_BIN_EXE_robots-proxy")).parent().unwrap();
    let folders = [program.to_owned(), installed.join("venv/bin"), installed.join("node_modules/.bin")];
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(folders.into_iter().chain(std::env::split_paths(&path))).unwrap();
    let mut shell = Command::new("sh");
    shell.arg("-ec").arg(recipe(title)).current_dir(home).env_clear().env("PATH", path).env("HOME", home);
    shell.env("ROBOTS_PROXY_CONFIG", home.join("config.toml"));
    shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    in_time(title, shell.output()).await.unwrap().into()
}

fn is_polite(site: &Origin, ran: &Ran) {
    assert_eq!(ran.exit, 0, "{ran:?}");
    assert!(!site.paths().contains(&"/private/".to_owned()), "{:?}", site.paths());
    assert!(ran.err.contains("× Disallow: /private/ (line 3 of https://bazaar.nimbu.test/robots.txt)"), "{}", ran.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn scrapy_follows_every_link_and_logs_what_was_refused() {
    let site = Origin::https(site).await;
    let home = home(&site);
    let ran = cook(home.path(), "Scrapy").await;
    is_polite(&site, &ran);
    let pages = std::fs::read_to_string(home.path().join("examples/scrapy/pages.jsonl")).unwrap();
    for title in ["/", "/two", "/three"] {
        assert!(pages.contains(&format!("\"title\": \"{title}\"")), "{pages}");
    }
    assert!(ran.err.contains("[pages] INFO: refused: line 3 of "), "{}", ran.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn playwright_prints_titles_and_why_a_page_was_refused() {
    let site = Origin::https(site).await;
    let home = home(&site);
    let ran = cook(home.path(), "Playwright").await;
    is_polite(&site, &ran);
    let lines: Vec<&str> = ran.out.lines().collect();
    assert_eq!(lines[0], "https://bazaar.nimbu.test/ /");
    assert!(lines[1].starts_with("https://bazaar.nimbu.test/private/ line 3 of "), "{lines:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loop_of_curl_gets_what_is_allowed_and_names_the_rest() {
    let site = Origin::https(site).await;
    let home = home(&site);
    let urls = ["", "two", "private/", "three"].map(|page| format!("https://bazaar.nimbu.test/{page}\n"));
    std::fs::write(home.path().join("examples/curl/urls"), urls.concat()).unwrap();
    let ran = cook(home.path(), "A loop of curl").await;
    is_polite(&site, &ran);
    let lines: Vec<&str> = ran.out.lines().collect();
    assert_eq!(lines[..2], ["1 https://bazaar.nimbu.test/", "2 https://bazaar.nimbu.test/two"]);
    assert!(lines[2].starts_with("refused: Disallowed by robots.txt: line 3 of "), "{lines:?}");
    let page = std::fs::read_to_string(home.path().join("examples/curl/4")).unwrap();
    assert!(page.contains("<title>/three"), "{page}");
}

#[tokio::test]
async fn the_shipped_compose_files_fit_the_schema() {
    let files: [PathBuf; 2] = ["examples/compose/compose.yaml", "deploy/compose.yaml"].map(|file| root().join(file));
    let check = root().join("target/clients/venv/bin/check-jsonschema");
    assert!(check.exists(), "check-jsonschema is missing: run tests/setup/clients");
    let mut check = Command::new(check);
    check.args(["--builtin-schema", "vendor.compose-spec"]).args(files).stdin(Stdio::null());
    let output = in_time("check-jsonschema", check.output()).await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
