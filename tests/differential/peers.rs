//! The engines that are asked beside ours.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::subjects::Subject;

pub(crate) trait Peer {
    /// As the table calls it.
    fn name(&self) -> &'static str;

    /// Always the same version, so that each of its rows must explain something.
    fn is_pinned(&self) -> bool {
        true
    }

    /// For each subject the answers to its questions: allowed?
    fn answers(&self, subjects: &[Subject]) -> Vec<Vec<bool>>;
}

/// The crate robotxt.
pub(crate) struct Robotxt;

impl Peer for Robotxt {
    fn name(&self) -> &'static str {
        "robotxt"
    }

    fn answers(&self, subjects: &[Subject]) -> Vec<Vec<bool>> {
        each(subjects, |body, token, path| robotxt::Robots::parse(body, token).is_allowed(path))
    }
}

/// The crate texting_robots, which takes whole addresses. A file that it refuses to read allows nothing.
pub(crate) struct TextingRobots;

impl Peer for TextingRobots {
    fn name(&self) -> &'static str {
        "texting_robots"
    }

    fn answers(&self, subjects: &[Subject]) -> Vec<Vec<bool>> {
        each(subjects, |body, token, path| {
            texting_robots::Robot::new(token, body).is_ok_and(|robot| robot.allowed(&format!("https://a.test{path}")))
        })
    }
}

fn each(subjects: &[Subject], allowed: impl Fn(&[u8], &str, &str) -> bool) -> Vec<Vec<bool>> {
    let of = |subject: &Subject| {
        subject.asks.iter().map(|(token, path)| allowed(subject.body.as_bytes(), token, path)).collect()
    };
    subjects.iter().map(of).collect()
}

/// A script that reads `{"body", "asks": [[token, path]]}` a line and answers `[true, …]` a line.
pub(crate) struct Process {
    name: &'static str,
    program: &'static str,
    script: &'static str,
}

impl Process {
    pub(crate) fn new(name: &'static str, program: &'static str, script: &'static str) -> Process {
        Process { name, program, script }
    }
}

impl Peer for Process {
    fn name(&self) -> &'static str {
        self.name
    }

    fn is_pinned(&self) -> bool {
        // The one in Python's library is what the machine has: 3.14.8 took over most of RFC 9309.
        self.script != "urllib_peer.py"
    }

    fn answers(&self, subjects: &[Subject]) -> Vec<Vec<bool>> {
        let script = format!("{}/tests/differential/peers/{}", env!("CARGO_MANIFEST_DIR"), self.script);
        let mut child = Command::new(self.program)
            .arg(script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{} does not start: {error}", self.program));
        let mut questions = child.stdin.take().expect("its input is piped");
        let lines: Vec<String> =
            subjects.iter().map(|subject| json!({ "body": subject.body, "asks": subject.asks }).to_string()).collect();
        let writer = std::thread::spawn(move || lines.iter().try_for_each(|line| writeln!(questions, "{line}")));
        let answers = BufReader::new(child.stdout.take().expect("its output is piped"));
        let answers: Vec<Vec<bool>> = answers
            .lines()
            .map(|line| {
                let line: Value = serde_json::from_str(&line.expect("UTF-8")).expect("a JSON list a line");
                line.as_array().expect("a list").iter().map(|answer| answer == true).collect()
            })
            .collect();
        writer.join().expect("the writer does not panic").expect("all questions are taken");
        assert!(child.wait().expect("the peer ends").success(), "{} failed", self.script);
        assert_eq!(answers.len(), subjects.len(), "answers of {}", self.script);
        answers
    }
}
