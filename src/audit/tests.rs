//! The log on a real disk: shared, rotated, torn, chained.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flate2::read::MultiGzDecoder;
use tempfile::TempDir;

use super::chain::Check;
use super::log::Log;
use super::{Audit, OnFailure, Settings, files};

fn place() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("audit.jsonl");
    (folder, log)
}

fn record(name: impl std::fmt::Display) -> Vec<u8> {
    format!("{{\"id\":\"{name}\"}}\n").into_bytes()
}

fn write(log: &mut Log, names: impl IntoIterator<Item = impl std::fmt::Display>) {
    let lines: Vec<_> = names.into_iter().map(record).collect();
    let appended = log.append(lines.iter().map(Vec::as_slice));
    assert!(appended.error.is_none() && appended.lines == lines.len(), "{appended:?}");
}

/// All lines, in order, of rotated files and the live one. A file that is compressed meanwhile changes its name: then all are listed again.
fn lines(log: &Path) -> Vec<Vec<u8>> {
    let readers = loop {
        match readers(log) {
            Ok(readers) => break readers,
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{error}"),
        }
    };
    let lines = readers.into_iter().flat_map(|reader| BufReader::new(reader).split(b'\n'));
    lines.map(Result::unwrap).collect()
}

fn readers(log: &Path) -> std::io::Result<Vec<Box<dyn Read>>> {
    let (rotated, live) = files(log)?;
    let mut readers: Vec<Box<dyn Read>> = Vec::new();
    for path in rotated {
        let file = std::fs::File::open(&path)?;
        match path.extension().is_some_and(|ending| ending == "gz") {
            true => readers.push(Box::new(MultiGzDecoder::new(file))),
            false => readers.push(Box::new(file)),
        }
    }
    readers.push(Box::new(live));
    Ok(readers)
}

fn ids(log: &Path) -> Vec<String> {
    let id =
        |line: Vec<u8>| serde_json::from_slice::<serde_json::Value>(&line).unwrap()["id"].as_str().unwrap().to_owned();
    lines(log).into_iter().map(id).collect()
}

fn chain_holds(log: &Path) {
    let mut check = Check::default();
    for (at, line) in lines(log).iter().enumerate() {
        let result = check.line(line);
        assert!(result.is_ok(), "line {}: {result:?}", at + 1);
    }
    assert_eq!(check.unchained(), 0);
}

#[test]
fn half_a_record_at_the_end_is_cut_off_at_the_start() {
    let long = "x".repeat(10_000);
    for (found, left) in [
        ("", ""),
        ("{\"id\":\"a\"}\n", "{\"id\":\"a\"}\n"),
        ("{\"id\":\"a\"}\n{\"id\":", "{\"id\":\"a\"}\n"),
        (&format!("{{\"id\":\"a\"}}\n{{\"id\":\"{long}"), "{\"id\":\"a\"}\n"),
        ("{\"id", ""),
        // What is no beginning of a record was put there by somebody else.
        ("[audit]\npath = 1", "[audit]\npath = 1\n"),
        (&long, &format!("{long}\n")),
    ] {
        for chain in [false, true] {
            let (_folder, path) = place();
            std::fs::write(&path, found).unwrap();
            let mut log = Log::open(&path, 0, chain).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), left);
            write(&mut log, ["b"]);
            let last: serde_json::Value = serde_json::from_slice(lines(&path).last().unwrap()).unwrap();
            assert_eq!(last["id"], "b");
        }
    }
}

#[test]
fn half_a_record_of_another_process_is_cut_off_by_the_next_to_write() {
    let (_folder, path) = place();
    let mut log = Log::open(&path, 0, true).unwrap();
    write(&mut log, ["a"]);
    std::fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"id\":\"kil").unwrap();
    write(&mut log, ["b"]);
    assert_eq!(ids(&path), ["a", "b"]);
    chain_holds(&path);
}

#[test]
fn several_processes_share_a_log_and_its_chain_through_rotations_and_restarts() {
    for chain in [false, true] {
        let (_folder, path) = place();
        let open = || Log::open(&path, 2000, chain).unwrap();
        let mut logs = [open(), open(), open()];
        let mut wanted = Vec::new();
        for round in 0..300 {
            // One of them is idle for so long that several rotations pass it by.
            let writer = if round % 40 == 39 { 2 } else { round % 2 };
            let names = [format!("{round}-a"), format!("{round}-b")];
            write(&mut logs[writer], &names);
            wanted.extend(names);
            if round % 70 == 69 {
                logs[writer] = open();
            }
            if round % 50 == 49 {
                logs[0].names().tidy(1000).unwrap();
            }
        }
        assert_eq!(ids(&path), wanted);
        assert!(files(&path).unwrap().0.len() > 3);
        if chain {
            chain_holds(&path);
        }
    }
}

#[test]
fn a_chain_goes_on_where_a_kill_came_right_after_a_rotation() {
    for is_compressed in [false, true] {
        let (_folder, path) = place();
        let mut log = Log::open(&path, 1, true).unwrap();
        write(&mut log, ["a"]);
        write(&mut log, ["b"]);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
        if is_compressed {
            log.names().tidy(5).unwrap();
        }
        // The live file may not even be there yet.
        std::fs::remove_file(&path).unwrap();
        write(&mut Log::open(&path, 1000, true).unwrap(), ["c"]);
        assert_eq!(ids(&path), ["a", "b", "c"]);
        chain_holds(&path);
    }
}

#[test]
fn a_log_that_others_move_or_empty_is_followed() {
    let (folder, path) = place();
    let mut log = Log::open(&path, 0, true).unwrap();
    write(&mut log, ["a"]);
    std::fs::rename(&path, folder.path().join("audit.jsonl.1")).unwrap();
    log.reopen().unwrap();
    assert!(path.exists(), "the name is there again at once, for who asks for it");
    write(&mut log, ["b"]);
    std::fs::rename(&path, folder.path().join("audit.jsonl.2")).unwrap();
    write(&mut log, ["c"]);
    assert_eq!(ids(&path), ["c"]);
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(0).unwrap();
    write(&mut log, ["d"]);
    assert_eq!(ids(&path), ["d"]);
    let whole = folder.path().join("whole");
    let parts = ["audit.jsonl.1", "audit.jsonl.2"].map(|name| std::fs::read(folder.path().join(name)).unwrap());
    std::fs::write(&whole, parts.concat()).unwrap();
    chain_holds(&whole);
}

#[test]
fn rotation_keeps_the_mode_of_the_file_and_the_place_a_link_leads_to() {
    use std::os::unix::fs::PermissionsExt;
    let (folder, _) = place();
    std::fs::create_dir(folder.path().join("disk")).unwrap();
    let (link, path) = (folder.path().join("audit.jsonl"), folder.path().join("disk/records.jsonl"));
    std::fs::write(&path, "").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let mut log = Log::open(&link, 1, false).unwrap();
    write(&mut log, ["a"]);
    log.names().tidy(1).unwrap();
    assert!(link.is_symlink());
    let (rotated, live) = files(&link).unwrap();
    assert!(rotated[0].starts_with(folder.path().join("disk").canonicalize().unwrap()), "{rotated:?}");
    for metadata in [live.metadata().unwrap(), rotated[0].metadata().unwrap()] {
        assert_eq!(metadata.permissions().mode() & 0o777, 0o640);
    }
}

#[tokio::test]
async fn every_record_of_many_tasks_is_there_once_and_whole() {
    let (_folder, path) = place();
    let settings =
        Settings { path: Some(path.clone()), rotate: 20_000, keep: 1000, chain: true, ..Settings::default() };
    let audit = Audit::open(&settings).unwrap();
    let writing = (0..50).map(|task| {
        let audit = Arc::clone(&audit);
        tokio::spawn(async move {
            for number in 0..40 {
                audit.write(record(format!("{task}-{number}"))).await;
            }
        })
    });
    for task in writing.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    assert_eq!((audit.written(), audit.failed(), audit.is_healthy()), (2000, 0, true));
    let mut ids = ids(&path);
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 2000);
    chain_holds(&path);
}

#[tokio::test]
async fn a_chain_needs_a_file() {
    let settings = Settings { chain: true, ..Settings::default() };
    assert!(Audit::open(&settings).unwrap_err().to_string().contains("set audit.path"));
}

#[tokio::test]
async fn records_wait_for_a_disk_that_takes_none_and_are_written_when_it_does() {
    let (folder, path) = place();
    let settings = Settings { path: Some(path.clone()), on_failure: OnFailure::Stop, ..Settings::default() };
    let audit = Audit::open(&settings).unwrap();
    audit.write(record("a")).await;
    // Nothing can be opened in the place of the log.
    std::fs::rename(&path, folder.path().join("moved")).unwrap();
    std::fs::create_dir(&path).unwrap();
    audit.write(record("b")).await;
    assert!(!audit.is_healthy() && !audit.admits());
    assert!(audit.reopen().await.is_err());
    std::fs::remove_dir(&path).unwrap();
    // Without another record it is tried again.
    while !audit.is_healthy() {
        crate::clock::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert!(audit.admits());
    assert_eq!((ids(&path), audit.written(), audit.failed()), (vec!["b".to_owned()], 2, 0));
}

#[tokio::test]
async fn what_finds_no_place_while_the_disk_takes_nothing_is_counted_as_lost() {
    let (folder, path) = place();
    let audit = Audit::open(&Settings { path: Some(path.clone()), ..Settings::default() }).unwrap();
    std::fs::rename(&path, folder.path().join("moved")).unwrap();
    std::fs::create_dir(&path).unwrap();
    for number in 0..1500 {
        audit.write_later(record(number));
    }
    audit.flush().await;
    assert!(!audit.is_healthy() && audit.admits());
    std::fs::remove_dir(&path).unwrap();
    while !audit.is_healthy() {
        crate::clock::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert_eq!((audit.written(), audit.failed(), ids(&path).len()), (1000, 500, 1000));
    assert_eq!(ids(&path)[999], "999");
}

#[test]
fn records_that_are_written_together_are_whole_in_order_and_one_chain() {
    let (_folder, path) = place();
    let mut log = Log::open(&path, 0, true).unwrap();
    // More than goes into one write, and one that is longer than that by itself.
    let names: Vec<String> = (0..3000).map(|number| format!("{number:050}")).chain(["x".repeat(200_000)]).collect();
    write(&mut log, &names);
    assert_eq!(ids(&path), names);
    let mut check = Check::default();
    lines(&path).iter().for_each(|line| check.line(line).unwrap());
    assert_eq!(check.head().map(|head| head.seq), Some(names.len() as u64));
}
