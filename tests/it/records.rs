//! The `audit` command over logs that were rotated, compressed, damaged, and are being written.

use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;
use robots_proxy::audit::{Audit, Settings, files};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use super::support::{in_time, program, until};

fn record(id: &str, decision: &str, agent: &str, url: &str, minute: u32) -> String {
    let mut record = json!({
        "id": id, "time": format!("2026-11-30T15:{minute:02}:00.250Z"), "decision": decision, "reason": "allowed", "mode": "observe",
        "agent": agent, "client": "127.0.0.1", "method": "GET", "url": url, "duration_ms": 1, "version": "0.1.0",
    });
    match decision {
        "allow" => record["would_wait_ms"] = json!(1500),
        _ => {
            record["reason"] = json!("disallowed");
            (record["rule"], record["line"]) = (json!("Disallow: /p"), json!(2));
            record["robots"] = json!({"url": "https://a.test/robots.txt", "status": 200, "fetched_at": "", "age_s": 0});
        }
    }
    format!("{record}\n")
}

/// A log of three files, the middle one both compressed and not, with a line of somebody else and an unfinished one.
fn log() -> TempDir {
    let folder = program::folder("");
    let write = |name: &str, text: String| std::fs::write(folder.path().join(name), text).unwrap();
    let mut oldest = GzEncoder::new(Vec::new(), Compression::default());
    oldest.write_all(record("1", "observe", "ABot", "https://a.test/p/1", 1).as_bytes()).unwrap();
    oldest.write_all(record("2", "allow", "ABot", "https://b.a.test/", 2).as_bytes()).unwrap();
    std::fs::write(folder.path().join("audit.20261130T150300.000Z.jsonl.gz"), oldest.finish().unwrap()).unwrap();
    write("audit.20261130T150500.000Z.jsonl.gz", "half of a compressed file".into());
    write("audit.20261130T150500.000Z.jsonl", record("3", "refuse", "BBot", "https://c.test/p", 4));
    let live = record("4", "error", "abot", "https://a.test:8443/p/2", 5) + "no record\n";
    write("audit.jsonl", live + &record("5", "allow", "ABot", "https://a.test/", 6) + "{\"id\":\"6\",\"time\":\"20");
    folder
}

async fn ids(folder: &Path, arguments: &[&str]) -> String {
    let ran = program::run(folder, &[&["audit", "--json"], arguments].concat()).await;
    assert_eq!(ran.exit, 0, "{}", ran.err);
    let id = |line: &str| serde_json::from_str::<Value>(line).unwrap()["id"].as_str().unwrap().to_owned();
    ran.out.lines().map(id).collect()
}

#[tokio::test]
async fn records_are_read_in_order_and_filtered() {
    let folder = log();
    for (arguments, found) in [
        (&[] as &[&str], "12345"),
        (&["--since", "2026-11-30T15:02:00.250Z"], "2345"),
        (&["--until", "2026-11-30T15:02:00.250Z"], "1"),
        (&["--since", "2026-11-30T16:04:00+01:00", "--until", "2026-12-01"], "345"),
        (&["--since", "1s"], ""),
        (&["--host", "a.test"], "145"),
        (&["--host", "*.a.test"], "2"),
        (&["--agent", "ABOT"], "1245"),
        (&["--decision", "observe"], "1"),
        (&["--decision", "allow,refuse", "--agent", "ABot"], "25"),
        (&["audit.jsonl"], "45"),
        (&["audit.jsonl", "audit.20261130T150300.000Z.jsonl.gz"], "4512"),
    ] {
        assert_eq!(ids(folder.path(), arguments).await, found, "{arguments:?}");
    }
    let ran = program::run(folder.path(), &["audit"]).await;
    assert!(
        ran.err.contains("2 lines are no records: first ") && ran.err.contains("audit.jsonl: line 2"),
        "{}",
        ran.err
    );
    assert!(
        ran.out.contains("15:04:00.250Z  refuse   BBot  GET https://c.test/p  disallowed  line 2 \"Disallow: /p\"\n")
    );
    let json = program::run(folder.path(), &["audit", "--json", "--decision", "refuse"]).await;
    assert_eq!(json.out, record("3", "refuse", "BBot", "https://c.test/p", 4), "as it is");
}

#[tokio::test]
async fn mistakes_are_told_in_one_line() {
    let folder = program::folder("");
    for (arguments, exit, told) in [
        (&["--since", "yesterday"] as &[&str], 2, "2026-11-30"),
        (&["--host", "http://a.test/"], 2, "without scheme"),
        (&["nowhere.jsonl"], 1, "cannot read nowhere.jsonl"),
        (&[], 1, "start the proxy"),
        (&["--follow", "a", "b"], 1, "one file"),
        (&["--host", "a.test", "verify"], 1, "no other option"),
    ] {
        let ran = program::run(folder.path(), &[&["audit"], arguments].concat()).await;
        assert_eq!(ran.exit, exit, "{arguments:?}: {}", ran.err);
        assert!(ran.err.contains(told), "{arguments:?}: {}", ran.err);
        assert!(exit == 2 || ran.err.lines().count() == 1, "{}", ran.err);
    }
}

#[tokio::test]
async fn a_summary_tells_what_enforcing_would_cost() {
    let folder = log();
    let ran = program::run(folder.path(), &["audit", "--summary"]).await;
    for part in [
        "5 records, 2026-11-30T15:01:00.250Z to 2026-11-30T15:06:00.250Z",
        "Disallow: /p, line 2 of https://a.test/robots.txt",
        "Enforcing would have refused 1 request, 20.0 % of those recorded,",
        "and let 2 wait, 1.5 s on average, 1.5 s at most, 3.0 s in all.",
    ] {
        assert!(ran.out.contains(part), "{part:?} is missing:\n{}", ran.out);
    }
    let ran = program::run(folder.path(), &["audit", "--summary", "--json", "--agent", "ABot"]).await;
    let summary: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(summary["decisions"], json!({"allow": 2, "refuse": 0, "observe": 1, "error": 1}));
    assert_eq!((&summary["records"], &summary["bad_lines"]), (&json!(4), &json!(2)));
    assert_eq!(summary["would_wait"], json!({"requests": 2, "sum_ms": 3000, "max_ms": 1500}));
}

#[tokio::test]
async fn who_closes_the_pipe_has_seen_enough() {
    let folder = program::folder("");
    let many: String =
        (0..5000).map(|number| record(&number.to_string(), "refuse", "A", "https://a.test/p", 1)).collect();
    std::fs::write(folder.path().join("audit.jsonl"), many).unwrap();
    for format in ["--json", "--format=text", "--format=csv", "--format=ecs"] {
        let mut command = program::command(folder.path(), &["audit", format]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::with_capacity(100, child.stdout.take().unwrap());
        out.read_line(&mut String::new()).await.unwrap();
        drop(out);
        let ended = in_time("its end", child.wait_with_output()).await.unwrap();
        assert_eq!((ended.status.code(), String::from_utf8_lossy(&ended.stderr).as_ref()), (Some(0), ""), "{format}");
    }
}

fn settings(folder: &Path) -> Settings {
    Settings { path: Some(folder.join("audit.jsonl")), rotate: 2000, keep: 100, chain: true, ..Settings::default() }
}

async fn write(audit: &Arc<Audit>, from: usize, to: usize) {
    for number in from..to {
        audit.write(record(&number.to_string(), "refuse", "ABot", "https://a.test/p", 1).into_bytes()).await;
    }
}

#[tokio::test]
async fn verify_names_the_first_bad_line_in_whichever_file_it_is() {
    let folder = program::folder("");
    let log = folder.path().join("audit.jsonl");
    write(&Audit::open(&settings(folder.path())).unwrap(), 0, 52).await;
    let verify = async || program::run(folder.path(), &["audit", "verify"]).await;
    let holds = verify().await;
    assert_eq!(
        (holds.exit, holds.out.contains("records 1 to 52 are as they were written")),
        (0, true),
        "{}",
        holds.out
    );

    // The proxy may be in the middle of a record.
    let whole = std::fs::read_to_string(&log).unwrap();
    std::fs::write(&log, format!("{whole}{{\"id\":\"5")).unwrap();
    let writing = verify().await;
    assert_eq!((writing.exit, writing.out.contains("is unfinished")), (0, true), "{}", writing.out);

    std::fs::write(&log, whole.replacen("ABot", "BBot", 1)).unwrap();
    let changed = verify().await;
    assert_eq!(
        (changed.exit, changed.out.contains("audit.jsonl: line 1: the record was changed")),
        (1, true),
        "{}",
        changed.out
    );

    std::fs::write(&log, &whole).unwrap();
    let rotated = until("compression", || {
        let rotated = files(&log).unwrap().0;
        rotated.iter().all(|file| file.extension().is_some_and(|ending| ending == "gz")).then_some(rotated)
    });
    let rotated = rotated.await;
    let middle = rotated[rotated.len() / 2].clone();
    let mut text = String::new();
    std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(std::fs::File::open(&middle).unwrap()), &mut text)
        .unwrap();
    let mut forged = GzEncoder::new(Vec::new(), Compression::default());
    let without_second: Vec<_> = text.lines().enumerate().filter(|(at, _)| *at != 1).map(|(_, line)| line).collect();
    forged.write_all((without_second.join("\n") + "\n").as_bytes()).unwrap();
    std::fs::write(&middle, forged.finish().unwrap()).unwrap();
    let missing = verify().await;
    let name = middle.file_name().unwrap().to_string_lossy().into_owned();
    assert_eq!(missing.exit, 1);
    assert!(
        missing.out.contains(&format!("{name}: line 2: record ")) && missing.out.contains("taken out"),
        "{}",
        missing.out
    );
}

#[tokio::test]
async fn follow_shows_every_record_once_through_rotations() {
    let folder = program::folder("");
    let audit = Audit::open(&settings(folder.path())).unwrap();
    write(&audit, 0, 3).await;
    let mut command = program::command(folder.path(), &["audit", "--follow", "--json", "--since", "2026-01-01"]);
    let mut child = command.spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = 0;
    // In the second round the files are rotated several times between two looks at them.
    for upto in [3, 60, 61, 120] {
        write(&audit, next.max(3), upto).await;
        while next < upto {
            let line = in_time("a record", out.next_line()).await.unwrap().expect("it goes on");
            let record: Value = serde_json::from_str(&line).unwrap();
            assert_eq!(record["id"], json!(next.to_string()));
            next += 1;
        }
    }
    assert!(files(&folder.path().join("audit.jsonl")).unwrap().0.len() > 10);
}

/// The jq examples of docs/audit.md, and the chain checked by hand, each with the log in its folder.
#[tokio::test]
async fn what_the_documentation_shows_works() {
    let folder = program::folder("");
    let audit = Audit::open(&Settings { rotate: 0, ..settings(folder.path()) }).unwrap();
    write(&audit, 0, 3).await;
    audit
        .write(
            record("01a22dce-b107-7511-98d6-605f66896932", "observe", "NimbuBot", "https://a.test/p", 1).into_bytes(),
        )
        .await;
    let examples: Vec<&str> = include_str!("../../docs/audit.md")
        .split("```sh\n")
        .skip(1)
        .flat_map(|block| block.split("```").next().unwrap().lines())
        .filter(|line| line.contains("jq ") || line.contains("sha256sum"))
        .collect();
    assert!(examples.len() >= 6, "{examples:#?}");
    let program = Path::new(env!("CARGO_BIN_EXE_robots-proxy")).parent().unwrap();
    for example in examples {
        let mut shell = Command::new("bash");
        let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
        shell.args(["-c", &format!("set -eo pipefail; {example}")]).current_dir(folder.path());
        let ran =
            in_time(example, shell.env_clear().env("PATH", path).env("HOME", folder.path()).output()).await.unwrap();
        let out = String::from_utf8_lossy(&ran.stdout);
        assert!(
            ran.status.success() && !out.trim().is_empty(),
            "{example}: {out}{}",
            String::from_utf8_lossy(&ran.stderr)
        );
        if example.contains("sha256sum") {
            let last = std::fs::read_to_string(folder.path().join("audit.jsonl")).unwrap();
            let last: Value = serde_json::from_str(last.lines().last().unwrap()).unwrap();
            assert_eq!(out.split(' ').next(), last["hash"].as_str());
        }
    }
}

/// The fields of the documentation are those that records have.
#[test]
fn every_field_is_documented() {
    let documented = include_str!("../../docs/audit.md");
    let table = documented.split("## Fields").nth(1).unwrap().split("\n\nPasswords").next().unwrap();
    let code = include_str!("../../src/audit/entry.rs");
    for (name, prefix) in [("struct Entry<'a> {", ""), ("struct Robots<'a> {", "robots.")] {
        let fields = code.split(name).nth(1).unwrap().split("\n}").next().unwrap();
        let fields = fields.lines().filter(|line| !line.contains('#') && !line.contains("//") && line.contains(": "));
        for field in fields.map(|line| line.trim().split(':').next().unwrap()) {
            let is_whole = prefix.is_empty() && field == "robots";
            assert!(
                is_whole || table.contains(&format!("`{prefix}{field}`")),
                "{prefix}{field} is not in docs/audit.md"
            );
        }
    }
}
