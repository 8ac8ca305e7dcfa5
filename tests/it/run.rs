//! `run`: commands behind a proxy of their own, with the real clients of this machine.

use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use super::support::origin::{Origin, Reply};
use super::support::program::{Ran, Serving, command, folder};
use super::support::{SHOP_ROBOTS, authority, in_time};

/// A shop over HTTPS, with the practice rules.
pub(super) async fn shop() -> Origin {
    Origin::https(|visit| Reply::of_site(SHOP_ROBOTS, visit)).await
}

/// A folder with a configuration that leads to the shop, over HTTPS and by a name that is passed through.
pub(super) fn home(shop: &Origin, more: &str) -> TempDir {
    let home = folder(&format!(
        "listen = [\"127.0.0.1:0\"]\n{more}\n[upstream]\nca_files = [\"roots.pem\"]\npassthrough = [\"through.nimbu.test\"]\n\
         connect_to = {{ \"bazaar.nimbu.test:443\" = \"{0}\", \"through.nimbu.test:443\" = \"{0}\" }}\n",
        shop.address
    ));
    std::fs::write(home.path().join("roots.pem"), authority::TRUSTED.pem()).unwrap();
    home
}

/// Runs a command as NimbuBot, with some variables of the user's own.
pub(super) async fn run_with(home: &Path, variables: &[(&str, &str)], options: &[&str], words: &[&str]) -> Ran {
    let arguments = [&["run", "--agent", "NimbuBot"], options, &["--"], words].concat();
    let mut command = command(home, &arguments);
    let temporary = tempfile::tempdir_in(home).unwrap();
    command.env("TMPDIR", temporary.path()).envs(variables.iter().copied());
    let ran = in_time("run", command.output()).await.unwrap().into();
    let left =
        std::fs::read_dir(temporary.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let left: Vec<String> = left.filter(|name| name.contains("robots-proxy")).collect();
    assert!(left.is_empty(), "{left:?} stays behind");
    ran
}

async fn run(home: &Path, words: &[&str]) -> Ran {
    run_with(home, &[], &[], words).await
}

fn records(home: &Path) -> Vec<Value> {
    let log = std::fs::read_to_string(home.join("audit.jsonl")).unwrap_or_default();
    log.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

pub(super) const ALLOWED: &str = "https://bazaar.nimbu.test/prices/today";
pub(super) const REFUSED: &str = "https://bazaar.nimbu.test/prices/history";

#[tokio::test]
async fn the_exit_status_is_the_commands_own() {
    let shop = shop().await;
    let home = home(&shop, "");
    std::fs::write(home.path().join("no-program"), "").unwrap();
    for (words, exit) in [
        (&["true"][..], 0),
        (&["sh", "-c", "exit 7"], 7),
        (&["sh", "-c", "kill -TERM $$"], 128 + 15),
        (&["sh", "-c", "kill -KILL $$"], 128 + 9),
        (&["no-such-command"], 127),
        (&["./no-program"], 126),
    ] {
        let ran = run(home.path(), words).await;
        assert_eq!(ran.exit, exit, "{words:?}: {ran:?}");
    }
}

#[tokio::test]
async fn what_keeps_the_command_from_starting_is_told_in_one_line() {
    let shop = shop().await;
    for (config, exit, says) in [
        ("[audit]\npath = \"-\"", 125, "audit.path"),
        ("[ca]\ndir = \"config.toml\"", 125, "config.toml"),
        ("colour = \"red\"", 2, "colour"),
    ] {
        let home = home(&shop, config);
        let ran = run(home.path(), &["echo", "started"]).await;
        assert_eq!((ran.exit, ran.out.as_str()), (exit, ""), "{config}: {ran:?}");
        assert!(ran.err.contains(says) && ran.err.lines().count() == 1, "{config}: {}", ran.err);
    }
}

#[tokio::test]
async fn the_command_keeps_its_standard_input_and_output() {
    let shop = shop().await;
    let home = home(&shop, "");
    let mut command = command(home.path(), &["run", "--", "sh", "-c", "tr a-z A-Z; echo error >&2"]);
    command.stdin(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut stdin, b"through and through\n").await.unwrap();
    drop(stdin);
    let ran: Ran = in_time("run", child.wait_with_output()).await.unwrap().into();
    assert_eq!(ran.out, "THROUGH AND THROUGH\n");
    assert!(ran.err.contains("error\n"), "{}", ran.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn common_clients_need_nothing_but_their_environment() {
    let shop = shop().await;
    let home = home(&shop, "[audit]\nrecord = \"all\"");
    const URLLIB: &str = "import sys, urllib.request, urllib.error\n\
        try: print(urllib.request.urlopen(sys.argv[1]).read().decode())\n\
        except urllib.error.HTTPError as error: print(error.read().decode())";
    let clients: [(&[&str], bool); 4] = [
        (&["curl", "-sS"], true),
        (&["wget", "-q", "-O", "-", "--content-on-error"], true),
        (&["python3", "-c", URLLIB], true),
        (&["git", "ls-remote"], false),
    ];
    for (client, shows_pages) in clients {
        let [allowed, refused] = [ALLOWED, REFUSED].map(|url| [client, &[url]].concat());
        let ran = run(home.path(), &allowed).await;
        // git asks for a second page when the first is not what it looks for.
        let only_allowed = ran.err.contains(" allowed") && !ran.err.contains(" refused");
        assert!(only_allowed, "{client:?}: {ran:?}");
        assert!(!shows_pages || ran.out.contains("page /prices/today"), "{client:?}: {ran:?}");
        let ran = run(home.path(), &refused).await;
        assert!(
            !shows_pages || ran.out.contains("line 10 of https://bazaar.nimbu.test/robots.txt"),
            "{client:?}: {ran:?}"
        );
        let line = "  1 × Disallow: /prices/ (line 10 of https://bazaar.nimbu.test/robots.txt) for NimbuBot, such as ";
        assert!(ran.err.contains("1 refused\n") && ran.err.contains(line), "{client:?}: {}", ran.err);
    }
    let records = records(home.path());
    assert!(records.len() >= 2 * clients.len());
    assert!(
        records.iter().all(|record| record["agent"] == "NimbuBot" && record["agent_source"] == "map"),
        "{records:?}"
    );
    // git gives a password only when it is asked for one.
    let users: Vec<&str> = records.iter().filter_map(|record| record["user"].as_str()).collect();
    assert!(users.len() >= 6 && users.iter().all(|user| user.starts_with("run-")), "{users:?}");
    assert!(shop.paths().iter().all(|path| !path.contains("history")), "{:?}", shop.paths());
}

#[tokio::test]
async fn case_23_the_users_own_certificates_and_settings_are_kept() {
    let shop = shop().await;
    let home = home(&shop, "");
    std::fs::write(home.path().join(".wgetrc"), "user_agent = OwnBot/1.0\n").unwrap();
    // What is passed through shows the shop's own certificate, which only the user's bundle vouches for.
    let through = "https://through.nimbu.test/";
    let roots = home.path().join("roots.pem");
    let own = [("SSL_CERT_FILE", roots.to_str().unwrap())];
    for (client, agent) in [(&["curl", "-sS"][..], "curl"), (&["wget", "-q", "-O", "-"], "OwnBot/1.0")] {
        let ran = run_with(home.path(), &own, &[], &[client, &[through]].concat()).await;
        assert_eq!((ran.exit, ran.out.as_str()), (0, "page /"), "{ran:?}");
        assert!(shop.pages().last().unwrap().headers["user-agent"].to_str().unwrap().starts_with(agent));
    }
    let ran = run(home.path(), &["curl", "-sS", through]).await;
    assert_eq!(ran.exit, 60, "without it there is nobody to vouch: {ran:?}");

    let script = "cat $NODE_EXTRA_CA_CERTS | grep -c BEGIN; cat $SSL_CERT_FILE | grep -c BEGIN";
    let counts = |ran: Ran| ran.out.lines().map(|line| line.parse().unwrap()).collect::<Vec<usize>>();
    let without = counts(run(home.path(), &["sh", "-c", script]).await);
    let with = [("NODE_EXTRA_CA_CERTS", roots.to_str().unwrap()), ("REQUESTS_CA_BUNDLE", roots.to_str().unwrap())];
    let with = counts(run_with(home.path(), &with, &[], &["sh", "-c", script]).await);
    assert_eq!((without[0], with[0], with[1]), (1, 2, without[1] + 1));

    let gone = [("PIP_CERT", "/nowhere/corp.pem")];
    let ran = run_with(home.path(), &gone, &[], &["true"]).await;
    assert!(ran.err.contains("PIP_CERT names /nowhere/corp.pem"), "{}", ran.err);
}

#[tokio::test]
async fn no_proxy_is_left_out_unless_it_is_asked_for() {
    let shop = shop().await;
    let home = home(&shop, "");
    let own = [("no_proxy", "bazaar.nimbu.test")];
    let ran = run_with(home.path(), &own, &[], &["curl", "-sS", ALLOWED]).await;
    assert_eq!((ran.exit, ran.out.as_str()), (0, "page /prices/today"), "{ran:?}");
    assert!(ran.err.contains("no_proxy=bazaar.nimbu.test is left out"), "{}", ran.err);
    // Past the proxy nobody knows the name.
    let ran = run_with(home.path(), &own, &["--keep-no-proxy"], &["curl", "-sS", ALLOWED]).await;
    assert_eq!(ran.exit, 6, "{ran:?}");
    assert!(ran.err.contains("is kept") && ran.err.contains("nothing came through the proxy"), "{}", ran.err);
}

#[tokio::test]
async fn case_24_a_client_that_goes_round_the_proxy_or_does_not_trust_it_is_told_the_line_to_add() {
    let shop = shop().await;
    let home = home(&shop, "");
    let direct = "import socket; socket.create_connection(('127.0.0.1', int('PORT')))";
    let direct = direct.replace("PORT", &shop.address.port().to_string());
    let ran = run(home.path(), &["python3", "-c", &direct]).await;
    assert!(ran.err.contains("nothing came through the proxy") && ran.err.contains("trust_env=True"), "{}", ran.err);

    let ran = run(home.path(), &["curl", "-sS", "--cacert", "roots.pem", ALLOWED]).await;
    assert!(ran.err.contains("1 TLS handshakes were broken off") && ran.err.contains("--cacert"), "{}", ran.err);
}

#[tokio::test]
async fn the_summary_tells_how_long_was_waited_and_observe_mode_what_it_let_pass() {
    let shop = Origin::https(|visit| Reply::of_site("User-agent: *\nCrawl-delay: 0.3\nDisallow: /no", visit)).await;
    let home_of = |more: &str| home(&shop, more);
    let urls = ["1", "2", "3", "no/4"].map(|page| format!("https://bazaar.nimbu.test/{page}"));
    let words: Vec<&str> = ["curl", "-sS"].into_iter().chain(urls.iter().map(String::as_str)).collect();
    let enforcing = home_of("");
    let ran = run(enforcing.path(), &words).await;
    assert!(ran.err.contains("robots-proxy: 3 allowed, 1 refused; 2 waited for their turn, 0."), "{}", ran.err);
    assert!(ran.err.contains("× Disallow: /no (line 3 of "), "{}", ran.err);
    let log = format!("records: {}, user run-", enforcing.path().join("audit.jsonl").display());
    assert!(ran.err.contains(&log), "{}", ran.err);

    let observing = home_of("mode = \"observe\"");
    let ran = run(observing.path(), &words).await;
    assert!(ran.err.contains("robots-proxy: 3 allowed, 1 let pass that would be refused\n"), "{}", ran.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_and_a_serve_with_one_configuration_get_on_side_by_side() {
    let shop = shop().await;
    let admin = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let home = home(&shop, &format!("[audit]\nrecord = \"all\"\n[admin]\nlisten = \"{admin}\""));
    let serving = Serving::start(home.path(), &[]).await;
    let pages =
        ["prices/today", "prices/history", "offers/weekend"].map(|page| format!("https://bazaar.nimbu.test/{page}"));
    let words: Vec<&str> = ["curl", "-s"].into_iter().chain(pages.iter().map(String::as_str)).collect();
    let runs = futures_util::future::join_all((0..4).map(|_| run(home.path(), &words))).await;
    for ran in &runs {
        assert_eq!(ran.exit, 0, "{ran:?}");
        let lines: Vec<&str> = ran.err.lines().collect();
        assert!(
            lines.len() == 3 && lines[0].starts_with("robots-proxy: 2 allowed, 1 refused; 1 waited for their turn, "),
            "no warnings: {}",
            ran.err
        );
    }
    let lines = super::support::program::run(home.path(), &["lines"]).await;
    assert_eq!(lines.exit, 0, "the control socket is still serve's: {lines:?}");
    serving.terminate().await;
    let ended = serving.ended().await;
    assert!(ended.exit == 0 && !ended.err.contains("WARN"), "{ended:?}");

    let records = records(home.path());
    assert_eq!(records.len(), 12, "each whole, in the one log");
    let users: std::collections::BTreeSet<&str> = records.iter().filter_map(|record| record["user"].as_str()).collect();
    assert_eq!(users.len(), 4, "{users:?}");
}
