//! A headless Chromium behind the proxy, trusting its CA through an NSS database as a person's browser would.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tempfile::TempDir;
use tokio::process::Command;

use super::support::devtools::Tab;
use super::support::in_time;
use super::support::origin::{Origin, Reply};
use super::support::proxy::Proxy;

const ROBOTS: &str = "User-agent: *\nDisallow: /private/\n";
const PAGE: &str = "<!doctype html><title>Shop</title><h1>Open page</h1><p id=script>no script ran</p>\
    <script src=/open.js></script><script src=/private/tracker.js></script>";

/// Quiet, and at work where there is neither screen nor sandbox.
pub(super) const OPTIONS: [&str; 9] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
];

/// Chromium at home in a folder of its own.
pub(super) struct Chromium {
    home: TempDir,
    proxy: String,
}

impl Chromium {
    pub(super) async fn behind(proxy: &Proxy) -> Chromium {
        let home = tempfile::Builder::new().prefix("robots-proxy-it-").tempdir().unwrap();
        let database = home.path().join(".pki/nssdb");
        std::fs::create_dir_all(&database).unwrap();
        let database = format!("sql:{}", database.display());
        let ca = proxy.ca();
        certutil(&["-d", &database, "-N", "--empty-password"]).await;
        certutil(&["-d", &database, "-A", "-t", "C,,", "-n", "robots-proxy", "-i", ca.to_str().unwrap()]).await;
        Chromium { home, proxy: proxy.url() }
    }

    /// Runs it for one page.
    pub(super) async fn run(&self, arguments: &[&str]) -> String {
        let profile = tempfile::tempdir_in(self.home.path()).unwrap();
        let mut command = self.command(profile.path(), arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let output = in_time("chromium", command.output()).await.expect("chromium is installed");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        said
    }

    /// A tab that is told what to do.
    pub(super) async fn tab(&self) -> Tab {
        Tab::open(self.command(&self.home.path().join("profile"), &[]), self.home.path()).await
    }

    fn command(&self, profile: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new("chromium");
        command
            .args(OPTIONS)
            .arg("--window-size=1000,800")
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg(format!("--proxy-server={}", self.proxy))
            .args(arguments)
            .env_clear()
            .env("HOME", self.home.path())
            .env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command
    }

    /// The page as it stands when its scripts have run.
    async fn dom(&self, url: &str) -> String {
        self.run(&["--dump-dom", url]).await
    }
}

async fn certutil(arguments: &[&str]) {
    let status = Command::new("certutil").args(arguments).stdin(Stdio::null()).status();
    assert!(in_time("certutil", status).await.expect("certutil is installed (libnss3-tools)").success());
}

/// Where a person finds the picture: beside what cargo builds.
fn picture() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("refusal-in-chromium.png")
}

#[tokio::test(flavor = "multi_thread")]
async fn chromium_shows_an_allowed_page_and_explains_a_disallowed_one() {
    let site = Origin::https(|visit| match visit.path.as_str() {
        "/" => Reply::with(200, &[("content-type", "text/html")], PAGE),
        "/open.js" => Reply::with(
            200,
            &[("content-type", "text/javascript")],
            "document.getElementById('script').textContent = 'a script ran'",
        ),
        _ => Reply::of_site(ROBOTS, visit),
    })
    .await;
    let proxy = Proxy::before(&[("shop.nimbu.test", &site)]).await;
    let chromium = Chromium::behind(&proxy).await;

    let open = chromium.dom("https://shop.nimbu.test/").await;
    assert!(open.contains("Open page") && open.contains("a script ran"), "{open}");
    assert_eq!(
        proxy.record_of("/private/tracker.js").await["decision"],
        "refuse",
        "what a page loads goes by the rules, too"
    );

    let refused = chromium.dom("https://shop.nimbu.test/private/prices?q=%3Cb%3E").await;
    for text in [
        "<h1>Disallowed by robots.txt</h1>",
        "https://shop.nimbu.test/private/prices?q=%3Cb%3E",
        "Disallow: /private/ (line 2)",
        "https://shop.nimbu.test/robots.txt",
        "The request was not sent to the site.",
    ] {
        assert!(refused.contains(text), "{text} is not in\n{refused}");
    }

    let picture = picture();
    let _ = std::fs::remove_file(&picture);
    chromium.run(&[&format!("--screenshot={}", picture.display()), "https://shop.nimbu.test/private/prices"]).await;
    let png = std::fs::read(&picture).unwrap();
    assert!(png.starts_with(b"\x89PNG") && png.len() > 5000, "{} octets", png.len());

    assert!(site.paths().iter().all(|path| !path.starts_with("/private/")), "{:?}", site.paths());
    assert_eq!(site.robots().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn case_25_chromium_answers_407_with_its_users_name_and_password() {
    let script = |visit: &super::support::origin::Visit| match visit.is_robots() {
        true => Reply::text(ROBOTS),
        false => Reply::with(200, &[("content-type", "text/html")], format!("<p>open {}", visit.path)),
    };
    let (tls, clear) = (Origin::https(script).await, Origin::http(script).await);
    let folder = tempfile::tempdir().unwrap();
    let users = folder.path().join("users");
    // The lowest cost that bcrypt has: the test is not about it.
    std::fs::write(&users, format!("ann:{}\n", bcrypt::hash("secret", 4).unwrap())).unwrap();
    let names = [("shop.nimbu.test", &tls), ("news.nimbu.test", &clear)];
    let proxy = Proxy::with(&names, |settings| settings.auth.htpasswd = Some(users)).await;
    let chromium = Chromium::behind(&proxy).await;
    let mut tab = chromium.tab().await;
    tab.authenticate("ann", "secret").await;
    for path in ["/1", "/2"] {
        assert_eq!(tab.text_of(&format!("https://shop.nimbu.test{path}")).await, format!("open {path}"));
        assert_eq!(tab.text_of(&format!("http://news.nimbu.test{path}")).await, format!("open {path}"));
    }
    assert_eq!(tab.asked, 1, "it remembers what a proxy wants");
    let refused = tab.text_of("https://shop.nimbu.test/private/x").await;
    assert!(refused.contains("Disallowed by robots.txt"), "{refused}");
    for visit in [tls.pages(), clear.pages()].concat() {
        assert!(!visit.headers.contains_key("proxy-authorization"), "{:?}", visit.headers);
    }
    let record = proxy.record_of("/private/x").await;
    assert_eq!((&record["user"], &record["decision"]), (&"ann".into(), &"refuse".into()), "{record}");
}

#[tokio::test(flavor = "multi_thread")]
async fn case_20_chromium_opens_a_websocket_through_the_proxy_where_the_rules_let_it() {
    let site = Origin::https(|visit| match visit.path.as_str() {
        "/" => Reply::with(200, &[("content-type", "text/html")], "<p>page"),
        "/ws" | "/private/ws" => Reply::WebSocket,
        _ => Reply::of_site(ROBOTS, visit),
    })
    .await;
    let proxy = Proxy::before(&[("shop.nimbu.test", &site)]).await;
    let chromium = Chromium::behind(&proxy).await;
    let mut tab = chromium.tab().await;
    assert_eq!(tab.text_of("https://shop.nimbu.test/").await, "page");
    let ask = |path: &str| {
        format!(
            "new Promise(told => {{ const socket = new WebSocket('wss://shop.nimbu.test{path}');\
             socket.onopen = () => socket.send('hello'); socket.onmessage = event => {{ told(event.data); socket.close() }};\
             socket.onerror = () => told('failed') }})"
        )
    };
    assert_eq!(tab.value_of(&ask("/ws")).await, "hello");
    assert_eq!(tab.value_of(&ask("/private/ws")).await, "failed");
    let (open, refused) = (proxy.record_of("/ws").await, proxy.record_of("/private/ws").await);
    assert_eq!((&open["status"], &open["decision"]), (&101.into(), &"allow".into()), "{open}");
    assert_eq!((&refused["status"], &refused["reason"]), (&403.into(), &"disallowed".into()), "{refused}");
    let pages = site.pages().into_iter().filter(|visit| visit.path != "/favicon.ico");
    let versions: Vec<_> = pages.map(|visit| (visit.path.clone(), visit.version)).collect();
    assert_eq!(versions, [("/".into(), http::Version::HTTP_2), ("/ws".into(), http::Version::HTTP_11)]);
}
