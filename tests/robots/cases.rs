//! The conformance cases and real files.
//!
//! `tests/fixtures/` holds the conformance cases as they are and the corpus with its comments emptied. Where the full corpus lies beside the
//! project, in `../shared`, it is run as well, so that the shortened one is known to give the same answers.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use robots_proxy::robots::{RobotsTxt, Verdict};
use serde_json::Value;

#[test]
fn conformance_every_case() {
    for name in ["rfc9309-cases.jsonl", "rfc9309-bytes-cases.jsonl"] {
        check_cases(&fixtures().join(name));
    }
}

#[test]
fn corpus_every_answer() {
    let text = corpus();
    let files: HashMap<_, _> = corpus_files().map(|(host, body)| (host, RobotsTxt::parse(&body))).collect();
    let questions: Vec<_> = rows(&text).filter(|row| row["robots"].is_null()).collect();
    assert!(files.len() > 300 && questions.len() > 60_000, "{} files, {} questions", files.len(), questions.len());
    check_questions(&files, &questions);
}

#[test]
fn corpus_in_full_where_it_is_present() {
    let shared = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared"));
    if !shared.join("corpus/probes.jsonl").exists() {
        eprintln!("../shared/corpus is not here: nothing to compare with");
        return;
    }
    for name in ["rfc9309-cases.jsonl", "rfc9309-bytes-cases.jsonl"] {
        check_cases(&shared.join("conformance").join(name));
    }
    let files = std::fs::read_dir(shared.join("corpus/robots")).expect("the corpus has files");
    let files = files.map(|file| {
        let path = file.expect("a file of the corpus").path();
        let host = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".txt")).expect("HOST.txt").to_owned();
        (host, RobotsTxt::parse(&std::fs::read(path).expect("a readable file")))
    });
    let files: HashMap<_, _> = files.collect();
    for name in ["probes.jsonl", "disputed.jsonl"] {
        let text = std::fs::read_to_string(shared.join("corpus").join(name)).expect("questions");
        check_questions(&files, &rows(&text).collect::<Vec<_>>());
    }
}

fn corpus() -> String {
    let mut text = String::new();
    let file = std::fs::File::open(fixtures().join("corpus.jsonl.gz")).expect("the corpus is checked in");
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).expect("the corpus is gzip and UTF-8");
    text
}

/// Hosts and their files, comments emptied.
pub(crate) fn corpus_files() -> impl Iterator<Item = (String, Vec<u8>)> {
    let body =
        |row: Value| Some((string(&row["host"]), STANDARD.decode(row["robots"].as_str()?).expect("files are base64")));
    rows(&corpus()).filter_map(body).collect::<Vec<_>>().into_iter()
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// Lines end with LF alone: values hold U+2028 and form feeds on purpose.
fn rows(text: &str) -> impl Iterator<Item = Value> {
    text.split('\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_str(line).expect("a JSON object a line"))
}

fn string(value: &Value) -> String {
    value.as_str().expect("a string").to_owned()
}

fn check_cases(path: &Path) {
    let mut wrong = String::new();
    let mut cases = 0;
    for case in rows(&std::fs::read_to_string(path).expect("cases")) {
        cases += 1;
        let body = octets(&case, "robots");
        let target = octets(&case, "path");
        let agent = string(&case["agent"]);
        let robots = RobotsTxt::parse(&body);
        let verdict = robots.verdict(&agent, &target);
        let mut is_right = verdict.allow == case["allow"] && is_rule(&verdict, &case);
        if let Some(delay) = case.get("crawl_delay") {
            is_right &= robots.crawl_delay(&agent).map(|delay| delay.as_secs_f64()) == delay.as_f64();
        }
        let strongest = robots.matching(&agent, &target).first().map(|(_, rule)| *rule);
        is_right &= strongest == verdict.rule;
        if !is_right {
            let _ = writeln!(wrong, "{}: {verdict:?} {:?}, expected {case}", case["id"], robots.crawl_delay(&agent));
        }
    }
    assert!(cases >= 20, "{cases} cases in {}", path.display());
    assert!(wrong.is_empty(), "{wrong}");
}

/// A field of the case, or the pieces that it is made of where JSON cannot carry it.
fn octets(case: &Value, name: &str) -> Vec<u8> {
    let Some(parts) = case[&format!("{name}_parts")].as_array() else { return string(&case[name]).into_bytes() };
    let mut octets = Vec::new();
    for part in parts {
        let text = string(&part[0]);
        let piece = match text.strip_prefix("b64:") {
            Some(text) => STANDARD.decode(text).expect("base64"),
            None => text.into_bytes(),
        };
        let times = part[1].as_u64().expect("a number of times") as usize;
        octets.extend(piece.repeat(times));
    }
    octets
}

/// Is this the expected rule in the expected line? A value that ends in `...` is shortened.
fn is_rule(verdict: &Verdict<'_>, expected: &Value) -> bool {
    let Some(rule) = verdict.rule else { return expected["rule"].is_null() };
    let text = rule.to_string();
    let same = match expected["rule"].as_str() {
        Some(expected) => expected.strip_suffix("...").map_or(text == expected, |begin| text.starts_with(begin)),
        None => false,
    };
    same && expected["line"] == rule.line
}

fn check_questions(files: &HashMap<String, RobotsTxt>, questions: &[Value]) {
    let mut wrong = String::new();
    for question in questions {
        let robots = &files[&string(&question["host"])];
        let agent = string(&question["agent"]);
        if let Some(path) = question["path"].as_str() {
            let verdict = robots.verdict(&agent, path.as_bytes());
            let answer = question.get("answer").unwrap_or(&question["allow"]);
            let is_right =
                verdict.allow == *answer && (question.get("answer").is_none() || is_rule(&verdict, question));
            let strongest = robots.matching(&agent, path.as_bytes()).first().map(|(_, rule)| *rule);
            if !is_right || strongest != verdict.rule {
                let _ = writeln!(wrong, "{verdict:?}, expected {question}");
            }
        }
        if let Some(delay) = question.get("crawl_delay") {
            let got = robots.crawl_delay(&agent).map(|delay| delay.as_secs_f64());
            if got != delay.as_f64() {
                let _ = writeln!(wrong, "delay {got:?}, expected {question}");
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
