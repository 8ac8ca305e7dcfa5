//! What is kept, what is dropped, and what a slow disk costs.

use std::time::UNIX_EPOCH;

use super::super::Settings;
use super::super::copy::{Judged, judge};
use super::super::fetch::Fetched;
use super::waiting::{BATCH_MAX, WAITING_MAX};
use super::*;

const MANY: Limits = Limits { copies: 1000, body_bytes: 1 << 20 };

fn origin(number: usize) -> Origin {
    Origin::of(&format!("https://h{number}.test/").parse().unwrap()).unwrap()
}

/// A copy that was fetched so many seconds after the beginning of time.
fn copy(origin: &Origin, body: &str, second: u64) -> ToKeep {
    let fetched = Fetched {
        status: http::StatusCode::OK,
        headers: http::HeaderMap::new(),
        body: body.as_bytes().to_vec(),
        final_url: None,
        too_many_redirects: false,
    };
    let wall = UNIX_EPOCH + Duration::from_secs(second);
    match judge(&Settings::default(), origin.robots_url(), false, Ok(fetched), wall) {
        Judged::Good(copy, body) => ToKeep { copy: *copy, body: Some(body) },
        _ => panic!("an answer 200 with rules is a copy"),
    }
}

fn keep(store: &Store, number: usize, body: &str, second: u64) {
    store.keep(&origin(number), copy(&origin(number), body, second));
    store.flush();
}

fn open(limits: Limits) -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), limits).unwrap();
    (folder, store)
}

#[test]
fn every_version_stays_and_each_body_once() {
    let (_folder, store) = open(MANY);
    keep(&store, 1, "User-agent: *\nDisallow: /a", 100);
    keep(&store, 1, "User-agent: *\nDisallow: /b", 200);
    keep(&store, 1, "User-agent: *\nDisallow: /a", 300);
    keep(&store, 2, "User-agent: *\nDisallow: /a", 300);
    let reader = store.reader().unwrap();
    let at = |number, second| reader.at(&origin(number), UNIX_EPOCH + Duration::from_secs(second)).unwrap();
    let body = |number, second| at(number, second).map(|(_, body)| String::from_utf8(body).unwrap());
    assert_eq!(body(1, 99), None);
    assert_eq!(body(1, 199).as_deref(), Some("User-agent: *\nDisallow: /a"));
    assert_eq!(body(1, 250).as_deref(), Some("User-agent: *\nDisallow: /b"));
    assert_eq!(body(1, 999).as_deref(), Some("User-agent: *\nDisallow: /a"));
    assert_eq!(reader.list().unwrap().len(), 2);
    // The body that both share goes with the last that names it.
    let sha256 = at(1, 999).unwrap().0.sha256.unwrap();
    store.forget(&origin(1));
    store.flush();
    assert!(reader.show(&origin(1)).unwrap().is_none() && reader.body(&sha256).unwrap().is_some());
}

#[test]
fn the_oldest_copies_go_first() {
    let (_folder, store) = open(Limits { copies: 3, ..MANY });
    for number in 0..5 {
        keep(&store, number, &format!("User-agent: *\nDisallow: /{number}"), 100 + number as u64);
    }
    // The first of those left is confirmed again, so that it outlives the next.
    keep(&store, 2, "User-agent: *\nDisallow: /2", 500);
    keep(&store, 9, "User-agent: *\nDisallow: /9", 501);
    let mut left: Vec<String> = store.reader().unwrap().list().unwrap().into_iter().map(|(origin, _)| origin).collect();
    left.sort();
    assert_eq!(left, ["https://h2.test", "https://h4.test", "https://h9.test"]);
}

#[test]
fn history_gives_way_to_new_bodies_and_what_is_in_force_stays() {
    let (_folder, store) = open(Limits { body_bytes: 10_000, ..MANY });
    let long = |number: u64| format!("User-agent: *\nDisallow: /{number}\n{}", "#".repeat(3000));
    keep(&store, 1, &long(0), 1);
    for number in 1..10 {
        keep(&store, 2, &long(number), 1 + number);
    }
    let reader = store.reader().unwrap();
    let at = |number, second| reader.at(&origin(number), UNIX_EPOCH + Duration::from_secs(second)).unwrap();
    assert!(at(2, 5).is_none(), "an old version is dropped");
    assert!(at(2, 9).is_some(), "a late one is not");
    assert!(reader.show(&origin(1)).unwrap().is_some(), "the body of a copy in force stays however old");
}

#[test]
fn a_disk_that_hangs_costs_nobody_a_wait() {
    let (_folder, store) = open(MANY);
    // Whoever holds the one right to write makes the store's thread hang, as a slow disk does.
    let database = store.shared.database().unwrap();
    let hanging = database.begin_write().unwrap();
    let began = clock::now();
    for number in 0..WAITING_MAX + BATCH_MAX + 50 {
        store.keep(&origin(number), copy(&origin(number), "User-agent: *\nDisallow: /", 1));
    }
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert!(store.failures() > 0 && !store.is_healthy());
    hanging.abort().unwrap();
    store.flush();
    assert!(store.is_healthy(), "it is written again");
}

#[test]
fn a_store_belongs_to_one_process_at_a_time_and_is_taken_up_when_it_is_free() {
    let (folder, first) = open(MANY);
    let [asking, waiting] = [0, 1].map(|_| Store::open(folder.path(), MANY).unwrap());
    keep(&asking, 1, "User-agent: *\nDisallow: /a", 100);
    assert!(asking.reader().is_none() && first.reader().unwrap().list().unwrap().is_empty());
    assert!(asking.is_healthy() && asking.failures() == 0, "it is no failure that another one writes");
    drop(first);
    keep(&waiting, 2, "User-agent: *\nDisallow: /b", 200);
    assert_eq!(waiting.reader().unwrap().list().unwrap().len(), 1);
}

#[test]
fn only_an_origin_that_has_a_copy_is_looked_for_on_disk() {
    let (folder, store) = open(Limits { copies: 2, ..MANY });
    let has = |store: &Store| -> Vec<usize> {
        (0..4).filter(|&number| store.shared.known.may_hold(&origin(number).to_string())).collect()
    };
    store.flush();
    assert!(has(&store).is_empty());
    keep(&store, 0, "User-agent: *\nDisallow: /", 100);
    keep(&store, 1, "User-agent: *\nDisallow: /", 101);
    assert_eq!(has(&store), [0, 1]);
    keep(&store, 2, "User-agent: *\nDisallow: /", 102);
    assert_eq!(has(&store), [1, 2], "the oldest had to go");
    store.forget(&origin(1));
    store.flush();
    assert_eq!(has(&store), [2]);
    drop(store);
    let again = Store::open(folder.path(), MANY).unwrap();
    again.flush();
    assert_eq!(has(&again), [2], "a restart knows it from the file");
}
