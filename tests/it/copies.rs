//! Copies of robots.txt over crashes, restarts, crowds and bad disks.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use robots_proxy::clock;
use robots_proxy::control::{self, Question};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::Command;

use super::support::origin::{Origin, Reply};
use super::support::program::{self, Serving};
use super::support::proxy::Proxy;
use super::support::{in_time, until};

const RULES: &str = "User-agent: *\nDisallow: /private/\n";

/// The configuration of a proxy whose names `h0.test` … all lead to one origin.
fn configuration(origin: &Origin, names: usize, state_dir: &str) -> String {
    let leads: String = (0..names).map(|name| format!("\"h{name}.test:80\" = \"{}\"\n", origin.address)).collect();
    format!("state_dir = \"{state_dir}\"\n[audit]\nrecord = \"all\"\n[upstream.connect_to]\n{leads}")
}

/// Asks a program's proxy for a page with curl, and returns the status.
async fn ask(proxy: &str, url: &str) -> String {
    let mut curl = Command::new("curl");
    curl.args(["-q", "-s", "-o", "/dev/null", "-w", "%{http_code}", "--max-time", "20", "--proxy", proxy, url]);
    let output =
        in_time("curl", curl.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).output()).await.unwrap();
    String::from_utf8(output.stdout).unwrap()
}

async fn copies(folder: &Path) -> Vec<Value> {
    let listed = program::run(folder, &["copies", "--json", "list"]).await;
    listed.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn kill_9_loses_at_most_the_last_copy_and_a_restart_asks_nobody_again() {
    let origin = Origin::http(|visit| Reply::of_site(RULES, visit)).await;
    let folder = program::folder(&configuration(&origin, 40, "state"));
    for round in 0..4 {
        let mut serving = Serving::start(folder.path(), &["--listen", "127.0.0.1:0"]).await;
        let proxy = serving.told("listens on").to_owned();
        let known = round * 10;
        for name in 0..known + 9 {
            assert_eq!(ask(&proxy, &format!("http://h{name}.test/page")).await, "200");
        }
        // A busy disk may have a few of them to write yet; the next one is killed with its request just answered.
        let origin = format!("http://h{}.test", known + 8);
        let question = Question::Copy { origin, at: Some(clock::wall()) };
        until("the copies on disk", || control::ask(&folder.path().join("state"), &question).unwrap()).await;
        assert_eq!(ask(&proxy, &format!("http://h{}.test/page", known + 9)).await, "200");
        serving.kill().await;
        let listed = copies(folder.path()).await.len();
        assert!((known + 9..=known + 10).contains(&listed), "{listed} copies after round {round}");
    }
    // What was not lost was not asked for again: one question each, and one more for each that a kill cost.
    let asked = origin.robots().len();
    assert!((40..=44).contains(&asked), "{asked} questions for 40 origins");
}

#[tokio::test]
async fn a_record_is_decided_again_from_the_copy_of_its_time() {
    let origin = Origin::http(|visit| Reply::of_site(RULES, visit)).await;
    let folder = program::folder(&configuration(&origin, 1, "state"));
    let serving = Serving::start(folder.path(), &["--listen", "127.0.0.1:0"]).await;
    let proxy = serving.told("listens on").to_owned();
    assert_eq!(ask(&proxy, "http://h0.test/page").await, "200");
    assert_eq!(ask(&proxy, "http://h0.test/private/x").await, "403");
    let audit = folder.path().join("audit.jsonl");
    until("two records", || (std::fs::read_to_string(&audit).unwrap_or_default().lines().count() == 2).then_some(()))
        .await;

    let running = program::run(folder.path(), &["audit", "replay"]).await;
    assert_eq!(running.exit, 0, "{}", running.out);
    let at = ["check", "--at", "9999-01-01T00:00:00Z", "http://h0.test/private/x"];
    assert_eq!(program::run(folder.path(), &at).await.exit, 1);
    let before = ["check", "--at", "2020-01-01T00:00:00Z", "http://h0.test/private/x"];
    assert_eq!(program::run(folder.path(), &before).await.exit, 2);
    serving.terminate().await;
    assert_eq!(serving.ended().await.exit, 0);

    let stopped = program::run(folder.path(), &["audit", "replay"]).await;
    assert_eq!(stopped.exit, 0, "{}", stopped.out);
    let forged = std::fs::read_to_string(&audit).unwrap().replace("\"line\":2", "\"line\":1");
    std::fs::write(&audit, &forged).unwrap();
    let differs = program::run(folder.path(), &["audit", "replay"]).await;
    assert_eq!(differs.exit, 1);
    assert!(differs.out.contains("recorded disallowed by line 1") && differs.out.contains("now disallowed by line 2"));
    let sha256 = copies(folder.path()).await[0]["sha256"].as_str().unwrap().to_owned();
    std::fs::write(&audit, forged.replace(&sha256, &"0".repeat(64))).unwrap();
    assert_eq!(program::run(folder.path(), &["audit", "replay"]).await.exit, 2);
}

#[tokio::test]
async fn copies_are_looked_into_while_the_proxy_runs_and_when_it_does_not() {
    let origin = Origin::http(|visit| Reply::of_site(RULES, visit)).await;
    let folder = program::folder(&configuration(&origin, 2, "state"));
    let look = async |arguments: &[&str]| program::run(folder.path(), &[&["copies"], arguments].concat()).await;
    assert_eq!(look(&["refresh", "http://h0.test"]).await.exit, 2, "no proxy runs");

    let serving = Serving::start(folder.path(), &["--listen", "127.0.0.1:0"]).await;
    let proxy = serving.told("listens on").to_owned();
    assert_eq!(ask(&proxy, "http://h0.test/page").await, "200");
    let shown = look(&["show", "http://h0.test"]).await;
    assert!(shown.out.ends_with(RULES), "{}", shown.out);
    assert_eq!(look(&["show", "http://h1.test"]).await.exit, 1);
    assert!(look(&["refresh", "http://h0.test"]).await.out.contains("answered 200"));
    assert_eq!(origin.robots().len(), 2);
    assert_eq!(look(&["drop", "http://h0.test"]).await.exit, 0);
    assert_eq!(look(&["drop", "http://h0.test"]).await.exit, 1);
    assert_eq!(ask(&proxy, "http://h0.test/page").await, "200");
    assert_eq!(origin.robots().len(), 3);
    assert_eq!(look(&["show", "not an origin"]).await.exit, 1);
    serving.terminate().await;
    serving.ended().await;

    assert!(look(&["list"]).await.out.contains("http://h0.test"));
    assert!(look(&["show", "http://h0.test"]).await.out.ends_with(RULES));
    assert_eq!(look(&["drop", "http://h0.test"]).await.exit, 2);
}

#[tokio::test]
async fn a_second_proxy_with_the_same_state_does_without() {
    let origin = Origin::http(|visit| Reply::of_site(RULES, visit)).await;
    let folder = program::folder(&configuration(&origin, 1, "state"));
    let first = Serving::start(folder.path(), &["--listen", "127.0.0.1:0"]).await;
    let second = Serving::start(folder.path(), &["--listen", "127.0.0.1:0"]).await;
    for serving in [&first, &second] {
        assert_eq!(ask(serving.told("listens on"), "http://h0.test/private/x").await, "403");
    }
    second.terminate().await;
    assert!(second.ended().await.err.contains("in use by another process"));
    assert_eq!(copies(folder.path()).await.len(), 1, "the first one is still there and answers");
    first.terminate().await;
    first.ended().await;
}

#[tokio::test]
async fn a_disk_that_takes_nothing_stops_no_request_and_opens_no_site() {
    let origin = Origin::http(|visit| match (visit.is_robots(), visit.host()) {
        (true, "h1.test") => Reply::status(503, ""),
        _ => Reply::of_site(RULES, visit),
    });
    let origin = origin.await;
    let folder = program::folder(&configuration(&origin, 2, "no-folder/state"));
    std::fs::write(folder.path().join("no-folder"), "").unwrap();
    let serving = Serving::start(folder.path(), &["--listen", "127.0.0.1:0"]).await;
    let proxy = serving.told("listens on").to_owned();
    for _ in 0..3 {
        assert_eq!(ask(&proxy, "http://h0.test/page").await, "200");
        assert_eq!(ask(&proxy, "http://h0.test/private/x").await, "403");
        assert_eq!(ask(&proxy, "http://h1.test/page").await, "403");
    }
    assert_eq!(origin.paths(), ["/page"; 3]);
    serving.terminate().await;
    let log = serving.ended().await.err;
    assert_eq!(log.matches("stay in memory").count(), 1, "{log}");
}

#[tokio::test]
async fn a_disk_that_fills_up_is_told_once_and_what_was_written_stays() {
    // Bodies are kept once, so each host has one of its own.
    let long = |host: &str| format!("{RULES}# {host}{}", "#".repeat(300_000));
    let origin = Origin::http(move |visit| Reply::of_site(&long(visit.host()), visit)).await;
    let folder = program::folder(&configuration(&origin, 20, "state"));
    // Files may grow to 2 MiB: a few copies fit, and then each write fails as on a full disk.
    let serving = Serving::start_limited(folder.path(), 4096, &["--listen", "127.0.0.1:0"]).await;
    let proxy = serving.told("listens on").to_owned();
    for name in 0..20 {
        assert_eq!(ask(&proxy, &format!("http://h{name}.test/page")).await, "200");
        assert_eq!(ask(&proxy, &format!("http://h{name}.test/private/x")).await, "403");
    }
    serving.terminate().await;
    let log = serving.ended().await.err;
    assert_eq!(log.matches("are not written").count(), 1, "{log}");
    let kept = copies(folder.path()).await.len();
    assert!((1..20).contains(&kept), "{kept} copies");
}

#[tokio::test]
async fn a_thousand_clients_of_a_new_origin_cause_one_question_and_the_first_may_leave() {
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let held = Arc::clone(&gate);
    let origin = Origin::http(move |visit| match visit.is_robots() {
        true => Reply::Gated(Arc::clone(&held), Response::new(Bytes::from(RULES))),
        false => Reply::text("page"),
    });
    let origin = origin.await;
    let proxy = Proxy::before(&[("a.test", &origin)]).await;
    let connect = async || {
        let mut client = TcpStream::connect(proxy.address).await.unwrap();
        client
            .write_all(b"GET http://a.test/page HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n")
            .await
            .unwrap();
        client
    };
    let first = connect().await;
    until("the question", || (origin.robots().len() == 1).then_some(())).await;
    let others = futures_util::future::join_all((0..1000).map(|_| connect())).await;
    drop(first);
    // The one that left is recorded, so it has gone through the proxy; nobody else has been let through.
    assert_eq!(proxy.records(1).await[0]["reason"], "client-gone");
    assert_eq!((origin.robots().len(), origin.pages().len()), (1, 0));
    gate.add_permits(1);
    let answers = others.into_iter().map(|mut client| async move {
        let mut answer = String::new();
        in_time("an answer", client.read_to_string(&mut answer)).await.unwrap();
        answer.starts_with("HTTP/1.1 200")
    });
    let served = futures_util::future::join_all(answers).await;
    assert_eq!(served.iter().filter(|served| **served).count(), 1000);
    assert_eq!((origin.robots().len(), origin.pages().len()), (1, 1000));
}
