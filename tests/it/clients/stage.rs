//! What a client of the matrix meets: a shop over HTTPS and one in clear text, a slow site, and the proxy before them.

use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use robots_proxy::policy::identity::MapEntry;
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;

use super::super::support::in_time;
use super::super::support::origin::{Origin, Reply, Visit};
use super::super::support::proxy::Proxy;
use super::{Client, programs, root};

/// The rule that refuses, and its line.
pub(super) const RULE: &str = "Disallow: /private";
const ROBOTS: &str = "User-agent: *\nDisallow: /\n\nUser-agent: NimbuBot\nUser-agent: MappedBot\nDisallow: /private\n";

/// What the slow site asks for.
pub(super) const CRAWL_DELAY: Duration = Duration::from_millis(300);
const SLOW_ROBOTS: &str = "User-agent: *\nCrawl-delay: 0.3\n";

/// A start is seen by the site when its task runs, which on a busy machine is some time after it came.
pub(super) const TOLERANCE: Duration = Duration::from_millis(5);

/// 20 MiB of text, no two lines alike.
pub(super) static LARGE: LazyLock<String> =
    LazyLock::new(|| (0..20 << 14).map(|line| format!("{line:063}\n")).collect());
static LARGE_OCTETS: LazyLock<Bytes> = LazyLock::new(|| Bytes::from_static(LARGE.as_bytes()));

/// More names of the shop, for what is asked for once.
const FRESH: [&str; 3] = ["one.nimbu.test", "two.nimbu.test", "three.nimbu.test"];

pub(super) struct Stage {
    pub(super) shop: Origin,
    pub(super) plain: Origin,
    pub(super) slow: Origin,
    proxy: Proxy,
    asked: AtomicUsize,
}

impl Stage {
    /// With a proxy that asks for a password, or takes every name.
    pub(super) async fn set(is_guarded: bool) -> Stage {
        let site = Site::default();
        let [for_shop, for_plain, for_slow] = [site.clone(), site.clone(), site];
        let shop = Origin::https(move |visit| for_shop.reply(visit, ROBOTS)).await;
        let plain = Origin::http(move |visit| for_plain.reply(visit, ROBOTS)).await;
        let slow = Origin::https(move |visit| for_slow.reply(visit, SLOW_ROBOTS)).await;
        let mut names = vec![("shop.nimbu.test", &shop), ("plain.nimbu.test", &plain), ("slow.nimbu.test", &slow)];
        names.extend(FRESH.map(|name| (name, &shop)));
        let proxy = Proxy::with(&names, |settings| {
            let entry = MapEntry { user: Some("nimbubot".into()), ..MapEntry::of("MappedBot".parse().unwrap()) };
            settings.identity.map = vec![entry];
            if is_guarded {
                let file = settings.state_dir.join("users");
                std::fs::write(&file, format!("nimbubot:{}\n", bcrypt::hash("secret", 4).unwrap())).unwrap();
                settings.auth.htpasswd = Some(file);
            }
        })
        .await;
        Stage { shop, plain, slow, proxy, asked: AtomicUsize::new(0) }
    }

    /// Types a client's lines in a folder of its own, and yields what it said, on whichever stream.
    pub(super) async fn run(&self, client: &Client, run: &str, urls: &[&str]) -> String {
        let home = tempfile::tempdir_in(self.proxy.folder()).unwrap();
        std::fs::copy(self.proxy.ca(), home.path().join("ca.pem")).unwrap();
        if let Some(program) = &client.program {
            let program = programs().join(program);
            std::fs::copy(&program, home.path().join(program.file_name().unwrap())).unwrap();
        }
        let installed = root().join("target/clients");
        assert!(installed.exists(), "the clients are missing: run tests/setup/clients");
        std::os::unix::fs::symlink(installed.join("node_modules"), home.path().join("node_modules")).unwrap();
        let folders = ["venv/bin", "node_modules/.bin", "reqwest/debug"].map(|folder| installed.join(folder));
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths(folders.into_iter().chain(std::env::split_paths(&path))).unwrap();

        let urls: Vec<String> = urls.iter().map(|url| format!("'{url}'")).collect();
        let lines = format!("exec 2>&1\n{}\n{}", client.setup, run.replace("URL", &urls.join(" ")));
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(lines.replace("3128", &self.proxy.address.port().to_string()));
        shell.env_clear().env("PATH", path).env("HOME", home.path()).env("GOCACHE", installed.join("go"));
        shell.current_dir(home.path()).stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        let output = in_time(&client.name, shell.output()).await.unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// A name of the shop that nobody has asked for anything yet.
    pub(super) fn fresh_site(&self) -> String {
        format!("https://{}", FRESH[self.asked.fetch_add(1, Ordering::Relaxed)])
    }

    /// The record of what a site was asked for.
    pub(super) async fn record_of(&self, site: &str) -> Value {
        self.proxy.record_of_page(&format!("{site}/")).await
    }
}

/// The lines of a client with its user's name and password.
pub(super) fn with_user(lines: &str) -> String {
    lines.replace("http://127.0.0.1", "http://nimbubot:secret@127.0.0.1")
}

/// Plain files and a repository, once it is asked for.
#[derive(Clone, Default)]
struct Site(Arc<OnceLock<TempDir>>);

impl Site {
    fn reply(&self, visit: &Visit, robots: &str) -> Reply {
        let path = visit.path.as_str();
        if path == "/large.txt" {
            Reply::text(LARGE_OCTETS.clone())
        } else if path.starts_with("/moved") {
            Reply::with(302, &[("location", &path.replace("/moved", "/private"))], "")
        } else if let Some(next) = path.strip_suffix("/again") {
            Reply::with(302, &[("location", next)], "")
        } else if path.starts_with("/nimbu.git/") {
            let file = path.split('?').next().unwrap_or_default();
            match std::fs::read(self.0.get_or_init(repository).path().join(&file[1..])) {
                Ok(file) => Reply::text(file),
                Err(_) => Reply::status(404, ""),
            }
        } else {
            Reply::of_site(robots, visit)
        }
    }
}

/// A folder with a repository of git as plain files, with the large file in it.
fn repository() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("work")).unwrap();
    std::fs::write(folder.path().join("work/large.txt"), LARGE.as_str()).unwrap();
    let lines = "cd work && git init -q -b main && git add large.txt && \
        git -c user.name=Nimbu -c user.email=shop@nimbu.test commit -q -m 'A large file' && \
        git clone -q --bare . ../nimbu.git && git -C ../nimbu.git update-server-info";
    let mut shell = std::process::Command::new("sh");
    shell.arg("-c").arg(lines).current_dir(folder.path()).env("GIT_CONFIG_GLOBAL", "/dev/null");
    assert!(shell.status().unwrap().success(), "git makes a repository");
    folder
}
