//! The robots engine against independent ones, on generated files and on real ones.
//!
//! Nobody is right by majority: where a peer answers otherwise, the disagreement must be explained by a row of `disagreements.md`. A row names
//! an oddity, and an oddity is something that can be taken out of a file and a path ([`oddities`]): if both agree once the oddities of the
//! peer's rows are out, the rows explain it, and if they still disagree, one of the two has a mistake that nobody knows. A row that explains
//! nothing any more fails as well.
//!
//! The Rust peers run with every `cargo test`. `tests/differential/run` installs those from PyPI and npm and runs all.

mod oddities;
mod peers;
mod subjects;

use std::collections::{BTreeMap, BTreeSet};

use robots_proxy::robots::RobotsTxt;

use oddities::Oddity;
use peers::Peer;
use subjects::Subject;

#[test]
fn robotxt() {
    compare(&peers::Robotxt);
}

#[test]
fn texting_robots() {
    compare(&peers::TextingRobots);
}

#[test]
#[ignore = "needs packages: tests/differential/run"]
fn protego() {
    compare(&peers::Process::new("protego", "python3", "protego_peer.py"));
}

#[test]
#[ignore = "needs packages: tests/differential/run"]
fn urllib_robotparser() {
    compare(&peers::Process::new("urllib.robotparser", "python3", "urllib_peer.py"));
}

#[test]
#[ignore = "needs packages: tests/differential/run"]
fn robots_parser() {
    compare(&peers::Process::new("robots-parser", "node", "robots_parser_peer.js"));
}

fn compare(peer: &dyn Peer) {
    let rows = rows_of(peer.name());
    let subjects: Vec<Subject> = subjects::generated().into_iter().chain(subjects::corpus()).collect();
    let disputed = disagreements(peer, &subjects);
    let mut used: BTreeMap<Oddity, usize> = BTreeMap::new();
    let explained_by = |oddities: &[Oddity], disputed: &[Subject]| -> Vec<bool> {
        let without: Vec<Subject> = disputed.iter().map(|subject| oddities::without(oddities, subject)).collect();
        let still: BTreeSet<usize> = disagreements_at(peer, &without).into_iter().collect();
        (0..disputed.len()).map(|place| !still.contains(&place)).collect()
    };

    let mut open = disputed.clone();
    for oddity in &rows {
        let explained = explained_by(&[*oddity], &open);
        if std::env::var_os("DIFFERENTIAL_EXAMPLES").is_some() {
            let examples = open.iter().zip(&explained).filter(|(_, explained)| **explained);
            examples.take(2).for_each(|(subject, _)| eprintln!("{oddity:?}: {}", told(subject)));
        }
        used.insert(*oddity, explained.iter().filter(|explained| **explained).count());
        open =
            open.into_iter().zip(explained).filter(|(_, explained)| !explained).map(|(subject, _)| subject).collect();
    }
    let together = explained_by(&rows, &open);
    let several = together.iter().filter(|explained| **explained).count();
    let unexplained: Vec<_> =
        open.iter().zip(&together).filter(|(_, explained)| !**explained).map(|(subject, _)| subject).collect();

    eprintln!(
        "{}: {} questions, {} answered otherwise: {used:?}, {several} by several together",
        peer.name(),
        subjects.iter().map(|subject| subject.asks.len()).sum::<usize>(),
        disputed.len()
    );
    unexplained.iter().take(12).for_each(|subject| eprintln!("{}", told(subject)));
    assert!(unexplained.is_empty(), "{}: {} disagreements that no row explains", peer.name(), unexplained.len());
    let idle: Vec<_> = used.iter().filter(|(_, count)| **count == 0).map(|(oddity, _)| oddity).collect();
    assert!(idle.is_empty() || !peer.is_pinned(), "{}: rows that explain nothing: {idle:?}", peer.name());
}

fn told(subject: &Subject) -> String {
    let ours = RobotsTxt::parse(subject.body.as_bytes());
    let (token, path) = &subject.asks[0];
    let verdict = ours.verdict(token, path.as_bytes());
    let rule = verdict.rule.map_or("no rule".to_owned(), |rule| format!("line {}: {rule}", rule.line));
    format!("{token} {path}: ours {}, {rule}, in {}\n", verdict.allow, subject.excerpt())
}

/// The questions that the peer answers otherwise, each as a subject of its own.
fn disagreements(peer: &dyn Peer, subjects: &[Subject]) -> Vec<Subject> {
    let answers = peer.answers(subjects);
    let mut disputed = Vec::new();
    for (subject, answers) in subjects.iter().zip(answers) {
        let robots = RobotsTxt::parse(subject.body.as_bytes());
        for (ask, answer) in subject.asks.iter().zip(answers) {
            if robots.verdict(&ask.0, ask.1.as_bytes()).allow != answer {
                disputed.push(Subject { body: subject.body.clone(), asks: vec![ask.clone()] });
            }
        }
    }
    disputed
}

/// Of subjects with one question each, those that the peer answers otherwise.
fn disagreements_at(peer: &dyn Peer, subjects: &[Subject]) -> Vec<usize> {
    let answers = peer.answers(subjects);
    let differs = |(place, answers): (usize, Vec<bool>)| {
        let subject = &subjects[place];
        let (token, path) = &subject.asks[0];
        (RobotsTxt::parse(subject.body.as_bytes()).verdict(token, path.as_bytes()).allow != answers[0]).then_some(place)
    };
    answers.into_iter().enumerate().filter_map(differs).collect()
}

/// The oddities that the table lists for a peer.
fn rows_of(peer: &str) -> Vec<Oddity> {
    let table = include_str!("disagreements.md");
    let cells = |line: &str| -> Vec<String> {
        line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect()
    };
    let rows = table.lines().filter(|line| line.starts_with("| ")).map(cells).filter(|cells| cells[0] == peer);
    rows.map(|cells| Oddity::named(&cells[1]).unwrap_or_else(|| panic!("no oddity is called {}", cells[1]))).collect()
}
