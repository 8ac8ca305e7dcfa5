//! The program as people run it: what it prints, and how it exits.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use robots_proxy::clock;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::support::origin::{Origin, Reply};
use super::support::program::{Ran, Serving, command, folder, run};
use super::support::{SHOP_ROBOTS, authority, in_time};

/// One line on standard error, and nothing that looks like a panic.
fn one_line(ran: &Ran, exit: i32) -> &str {
    assert_eq!(ran.exit, exit, "{ran:?}");
    assert!(!ran.err.contains("panicked"), "{}", ran.err);
    let mut lines = ran.err.lines().filter(|line| !line.trim().is_empty());
    let line = lines.next().unwrap_or_else(|| panic!("it says nothing: {ran:?}"));
    assert!(line.starts_with("robots-proxy: ") && lines.next().is_none(), "{}", ran.err);
    line
}

#[tokio::test]
async fn a_busy_port_is_told_in_one_line() {
    let busy = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = busy.local_addr().unwrap().to_string();
    let home = folder("");
    let ran = run(home.path(), &["serve", "--listen", &address]).await;
    let line = one_line(&ran, 1);
    assert!(line.contains(&address) && line.contains("--listen"), "{line}");
}

#[tokio::test]
async fn a_ca_that_cannot_be_used_is_told_in_one_line_and_left_as_it_is() {
    for (what, spoil, says) in [
        ("the key can be read by others", "chmod 644 certs/ca.key", "ca.key"),
        ("the key is no key", "echo nonsense > certs/ca.key", "ca.key"),
        ("the certificate is none", "echo nonsense > certs/ca.pem", "ca.pem"),
        ("the key is gone", "rm certs/ca.key", "ca.key"),
        ("the key is a folder", "rm certs/ca.key; mkdir -m 700 certs/ca.key", "ca.key"),
    ] {
        let home = folder("listen = [\"127.0.0.1:0\"]\n");
        let serving = Serving::start(home.path(), &[]).await;
        serving.terminate().await;
        assert_eq!(serving.ended().await.exit, 0);
        let script = tokio::process::Command::new("sh").args(["-c", spoil]).current_dir(home.path()).status();
        assert!(script.await.unwrap().success());
        let before = std::fs::read(home.path().join("certs/ca.pem")).unwrap();
        for command in [&["serve"][..], &["ca", "show"]] {
            let ran = run(home.path(), command).await;
            assert!(one_line(&ran, 1).contains(says), "{what}: {}", ran.err);
        }
        assert_eq!(std::fs::read(home.path().join("certs/ca.pem")).unwrap(), before, "{what}");
    }
}

#[tokio::test]
async fn a_number_of_threads_that_is_none_is_told_in_one_line() {
    let home = folder("");
    for number in ["0", "two", "-1", ""] {
        let mut program = command(home.path(), &["serve"]);
        let ran = Ran::from(program.env("TOKIO_WORKER_THREADS", number).output().await.unwrap());
        let line = one_line(&ran, 1);
        assert!(line.contains("TOKIO_WORKER_THREADS") && line.contains("unset it"), "{number}: {line}");
    }
}

#[tokio::test]
async fn every_mistake_of_a_configuration_is_told_at_once() {
    let home = folder(
        "mode = \"maybe\"\ncolour = \"red\"\n[robots]\nttl = \"24\"\n[pace]\nmax_wiat = \"2m\"\n[limits]\nheader_bytes = \"big\"\n",
    );
    for arguments in [&["config", "check"][..], &["config", "show"], &["serve"]] {
        let ran = run(home.path(), arguments).await;
        assert_eq!(ran.exit, 2, "{ran:?}");
        assert!(!ran.err.contains("panicked"));
        for mistake in [
            "line 1: mode:",
            "line 2: colour:",
            "line 4: robots.ttl:",
            "line 6: pace.max_wiat:",
            "line 8: limits.header_bytes:",
        ] {
            assert!(ran.err.contains(mistake), "{arguments:?}: {mistake} is not in\n{}", ran.err);
        }
    }
    let ran = run(home.path(), &["--config", "absent.toml", "config", "check"]).await;
    assert!(one_line(&ran, 2).contains("absent.toml"));
}

#[tokio::test]
async fn a_file_that_is_named_and_cannot_be_used_is_told_in_one_line() {
    let home = folder("listen = [\"127.0.0.1:0\"]\n[upstream]\nca_files = [\"roots.pem\"]\n");
    let ran = run(home.path(), &["serve"]).await;
    let line = one_line(&ran, 1);
    assert!(line.contains("roots.pem") && line.contains("upstream.ca_files"), "{line}");

    let home = folder("listen = [\"127.0.0.1:0\"]\n[audit]\npath = \"certs/\"\n");
    std::fs::create_dir(home.path().join("certs")).unwrap();
    let ran = run(home.path(), &["serve"]).await;
    assert!(one_line(&ran, 1).contains("audit.path"), "{}", ran.err);
}

#[tokio::test]
async fn bad_usage_exits_with_2() {
    let home = folder("");
    for arguments in [&["sevre"][..], &[], &["serve", "--listen", "here"], &["check"], &["completions", "cmd.exe"]] {
        let ran = run(home.path(), arguments).await;
        assert_eq!(ran.exit, 2, "{arguments:?}: {ran:?}");
        assert!(!ran.err.is_empty() && !ran.err.contains("panicked"), "{}", ran.err);
    }
}

#[tokio::test]
async fn serve_says_what_to_paste_and_stops_cleanly() {
    let site = Origin::https(|visit| Reply::of_site(SHOP_ROBOTS, visit)).await;
    let home = folder(&format!(
        "listen = [\"127.0.0.1:0\"]\n[upstream]\nca_files = [\"roots.pem\"]\n\
         connect_to = {{ \"bazaar.nimbu.test:443\" = \"{}\" }}\n",
        site.address
    ));
    std::fs::write(home.path().join("roots.pem"), authority::TRUSTED.pem()).unwrap();
    let serving = Serving::start(home.path(), &[]).await;
    assert!(serving.said.contains("keep it to yourself"), "the key is announced as what it is: {}", serving.said);
    let key = home.path().join("certs/ca.key").metadata().unwrap();
    assert_eq!(key.permissions().mode() & 0o777, 0o600);

    // The line that it prints, with another URL and the options of a quiet test.
    let line = serving.said.lines().find(|line| line.trim_start().starts_with("curl ")).unwrap();
    let line =
        line.replace("https://example.com/", "-s -H 'Robots-Agent: NimbuBot' https://bazaar.nimbu.test/prices/x");
    let curl = tokio::process::Command::new("sh").args(["-c", &line]).current_dir(home.path()).output();
    let said = String::from_utf8(in_time("curl", curl).await.unwrap().stdout).unwrap();
    assert!(said.starts_with("Disallowed by robots.txt: line 10 of https://bazaar.nimbu.test/robots.txt"), "{said}");

    serving.terminate().await;
    let ran = serving.ended().await;
    assert_eq!(ran.exit, 0, "{ran:?}");
    let log = std::fs::read_to_string(home.path().join("audit.jsonl")).unwrap();
    let record: Value = serde_json::from_str(log.trim_end()).unwrap();
    assert_eq!((&record["decision"], &record["line"]), (&json!("refuse"), &json!(10)));

    let again = Serving::start(home.path(), &["--observe"]).await;
    assert!(!again.said.contains("made a certificate authority"), "{}", again.said);
    assert!(again.said.contains("observe"), "{}", again.said);
    again.terminate().await;
    assert_eq!(again.ended().await.exit, 0);
}

#[tokio::test]
async fn sigterm_lets_running_requests_finish_and_answers_503_to_those_in_the_line() {
    let (pieces, body) = tokio::sync::mpsc::unbounded_channel();
    let body = std::sync::Mutex::new(Some(body));
    let site = Origin::http(move |visit| match visit.path.as_str() {
        "/long" => Reply::Stream(http::Response::new(()), body.lock().unwrap().take().unwrap()),
        _ => Reply::of_site("User-agent: *\nCrawl-delay: 30", visit),
    })
    .await;
    let config =
        format!("listen = [\"127.0.0.1:0\"]\n[upstream]\nconnect_to = {{ \"a.test:80\" = \"{}\" }}\n", site.address);
    let home = folder(&config);
    let serving = Serving::start(home.path(), &[]).await;
    let curl = |url: &str| {
        let proxy = serving.told("listens on").to_owned();
        let mut curl = tokio::process::Command::new("curl");
        curl.args(["-q", "-s", "-i", "-N", "--proxy", &proxy, url])
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap());
        curl.kill_on_drop(true);
        async move { String::from_utf8(in_time("curl", curl.output()).await.unwrap().stdout).unwrap() }
    };
    pieces.send("first ".into()).unwrap();
    let long = tokio::spawn(curl("http://a.test/long"));
    site.until_pages(1).await;
    let waiting = tokio::spawn(curl("http://a.test/waiting"));
    // Nothing tells from outside that it has joined the line, so it gets a moment.
    clock::sleep(Duration::from_millis(500)).await;
    serving.terminate().await;
    let waiting = waiting.await.unwrap();
    assert!(waiting.starts_with("HTTP/1.1 503 ") && waiting.to_lowercase().contains("retry-after: "), "{waiting}");
    assert!(!long.is_finished(), "the running one goes on");
    pieces.send("last".into()).unwrap();
    drop(pieces);
    assert!(long.await.unwrap().ends_with("first last"));
    assert_eq!(serving.ended().await.exit, 0);
    assert_eq!(site.paths(), ["/long"]);
}

#[tokio::test]
async fn config_show_can_be_read_back() {
    let home = folder("mode = \"observe\"\n[pace]\nmax_wait = \"90s\"\n");
    let shown = run(home.path(), &["config", "show"]).await;
    assert_eq!(shown.exit, 0, "{shown:?}");
    assert!(shown.out.contains("mode = \"observe\"") && shown.out.contains("max_delay = \"1m\""), "{}", shown.out);
    let other = folder(&shown.out);
    let again = run(other.path(), &["config", "show"]).await;
    let body = |ran: &Ran| ran.out.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(body(&again), body(&shown));
    let checked = run(home.path(), &["config", "check"]).await;
    assert_eq!((checked.exit, checked.out.contains("config.toml")), (0, true), "{checked:?}");
}

#[tokio::test]
async fn check_explains_and_exits_by_the_outcome() {
    let home = folder("");
    std::fs::write(home.path().join("robots.txt"), SHOP_ROBOTS).unwrap();
    let base = ["check", "--agent", "NimbuBot", "--robots", "robots.txt"];
    for (path, exit) in [("/prices/today", 0), ("/prices/history", 1), ("/a.pdf", 1), ("/a.pdf?x", 0)] {
        let url = format!("https://bazaar.nimbu.test{path}");
        let ran = run(home.path(), &[&base[..], &[&url]].concat()).await;
        assert_eq!(ran.exit, exit, "{ran:?}");
        let ran = run(home.path(), &[&base[..], &["--json", &url]].concat()).await;
        let told: Value = serde_json::from_str(&ran.out).unwrap();
        assert_eq!((told["allow"].clone(), told["url"].clone(), ran.exit), (json!(exit == 0), json!(url), exit));
        assert_eq!((&told["agent"], &told["crawl_delay_s"]), (&json!("NimbuBot"), &json!(2.5)));
    }
    let ran = run(home.path(), &[&base[..], &["--json", "https://bazaar.nimbu.test/prices/x"]].concat()).await;
    let told: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(
        (&told["reason"], &told["group"], &told["rule"], &told["line"]),
        (&json!("disallowed"), &json!("NimbuBot"), &json!("Disallow: /prices/"), &json!(10))
    );
    let ran = run(home.path(), &["check", "--robots", "absent.txt", "https://a.test/"]).await;
    assert!(one_line(&ran, 2).contains("absent.txt"));
    let ran = run(home.path(), &["check", "--robots", "robots.txt", "nonsense"]).await;
    assert!(one_line(&ran, 2).contains("nonsense"));
}

#[tokio::test]
async fn check_fetches_robots_txt_and_no_page() {
    let site = Origin::http(|visit| Reply::of_site(SHOP_ROBOTS, visit)).await;
    let home = folder(&format!("[upstream]\nconnect_to = {{ \"a.test:80\" = \"{}\" }}\n", site.address));
    let ran = run(home.path(), &["check", "--agent", "ArchiveBot", "--json", "http://a.test/x"]).await;
    assert_eq!(ran.exit, 1, "{ran:?}");
    let told: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((&told["line"], &told["robots"]), (&json!(21), &json!("http://a.test/robots.txt")));
    assert_eq!((site.robots().len(), site.pages().len()), (1, 0));
}

#[tokio::test]
async fn the_ca_can_be_looked_at_and_exported() {
    let home = folder("listen = [\"127.0.0.1:0\"]\n");
    let ran = run(home.path(), &["ca", "show"]).await;
    assert_eq!(ran.exit, 1, "nothing is made by looking: {ran:?}");
    assert!(!home.path().join("certs").exists());
    let serving = Serving::start(home.path(), &[]).await;
    serving.terminate().await;
    serving.ended().await;
    let path = run(home.path(), &["ca", "path"]).await.out;
    let file = std::fs::read_to_string(path.trim()).unwrap();
    assert_eq!(run(home.path(), &["ca", "export"]).await.out, file);
    let show = run(home.path(), &["ca", "show"]).await.out;
    let spki = run(home.path(), &["ca", "export", "--format", "spki"]).await.out;
    assert!(show.contains(spki.trim()) && show.contains("ca.key"), "{show}");
    let output = command(home.path(), &["ca", "export", "--format", "der"]).output().await.unwrap();
    let openssl = tokio::process::Command::new("openssl")
        .args(["x509", "-in", path.trim(), "-noout", "-fingerprint", "-sha256"])
        .output();
    let fingerprint = String::from_utf8(openssl.await.expect("openssl is installed").stdout).unwrap();
    assert!(show.contains(fingerprint.trim().split('=').nth(1).unwrap()), "{show}");
    assert_eq!(output.stdout[0], 0x30, "DER begins with a sequence");
}

#[tokio::test]
async fn the_ca_is_renewed_on_command_and_says_what_is_to_be_done() {
    let home = folder("listen = [\"127.0.0.1:0\"]\n");
    let ran = run(home.path(), &["ca", "renew"]).await;
    assert!(ran.exit == 1 && ran.err.contains("no CA in") && ran.err.lines().count() == 1, "{ran:?}");
    let serving = Serving::start(home.path(), &[]).await;
    serving.terminate().await;
    serving.ended().await;
    let shown = async |what: &str| {
        let show = run(home.path(), &["ca", "show"]).await.out;
        show.lines().find_map(|line| line.strip_prefix(what)).unwrap().trim().to_owned()
    };
    let (first, until) = (shown("SHA-256").await, shown("valid until").await);
    let ran = run(home.path(), &["ca", "renew"]).await;
    assert!(ran.exit == 0 && ran.out.contains(&format!("trust the old certificate go on until {until}")), "{ran:?}");
    let second = shown("SHA-256").await;
    let ran = run(home.path(), &["ca", "renew", "--new-key"]).await;
    assert!(ran.exit == 0 && ran.out.contains("no client trusts it until"), "{ran:?}");
    let kept: Vec<&str> = ran.out.lines().filter_map(|line| line.strip_prefix("kept")).map(str::trim).collect();
    assert!(kept.len() == 2 && kept.iter().all(|path| std::path::Path::new(path).exists()), "{ran:?}");
    let third = shown("SHA-256").await;
    assert!(first != second && second != third && ran.out.contains(&third), "{ran:?}");
}

#[tokio::test]
async fn completions_name_every_command() {
    let home = folder("");
    for shell in ["bash", "zsh", "fish"] {
        let ran = run(home.path(), &["completions", shell]).await;
        assert_eq!(ran.exit, 0);
        for command in ["serve", "check", "config", "completions"] {
            assert!(ran.out.contains(command), "{shell}: {command}");
        }
    }
    let script = run(home.path(), &["completions", "bash"]).await.out;
    std::fs::write(home.path().join("completions"), script).unwrap();
    let bash = tokio::process::Command::new("bash").args(["-n", "completions"]).current_dir(home.path()).status();
    assert!(bash.await.unwrap().success(), "bash takes it");
}
