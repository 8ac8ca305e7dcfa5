//! What the engines are asked: generated files that are as odd as the grammar allows, and real files with the questions of the corpus.

use std::collections::BTreeMap;
use std::io::Read as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// A file and questions about it, each a token and a path.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    pub(crate) body: String,
    pub(crate) asks: Vec<(String, String)>,
}

impl Subject {
    /// Enough of the file to see what it is about.
    pub(crate) fn excerpt(&self) -> String {
        let text = &self.body;
        if text.len() < 1200 { format!("{text:?}") } else { format!("a file of {} octets", text.len()) }
    }
}

const GENERATED: usize = 2500;
/// Of each real file; there are questions that matter more than others, but none that are known before.
const ASKED_OF_A_FILE: usize = 40;

pub(crate) fn generated() -> Vec<Subject> {
    let mut dice = Dice(0x2545_F491_4F6C_DD1D);
    (0..GENERATED).map(|_| subject(&mut dice)).collect()
}

fn subject(dice: &mut Dice) -> Subject {
    let mut body = String::new();
    let mut patterns = Vec::new();
    for _ in 0..1 + dice.below(3) {
        for _ in 0..1 + dice.below(2) {
            body += &format!("{}: {}\n", dice.one_of(&["User-agent", "User-agent", "user-agent"]), name(dice));
        }
        for _ in 0..dice.below(7) {
            let pattern = pattern(dice);
            body += &match dice.below(24) {
                0 => "Crawl-delay: 3\n".to_owned(),
                1 => format!("{}{pattern}\n", dice.one_of(&["Dissallow: ", "disallow ", "disallow : "])),
                2 => dice
                    .one_of(&["\n", "# comment\n", "Sitemap: https://a.test/s.xml\n", "Host: a.test\n", "Disallow:\n"])
                    .to_owned(),
                3 => format!("Disallow: {pattern} # why\r\n"),
                even if even % 2 == 0 => format!("Disallow: {pattern}\n"),
                _ => format!("Allow: {pattern}\n"),
            };
            patterns.push(pattern);
        }
        body += dice.one_of(&["", "\n", "\n"]);
    }
    let asks = (0..6)
        .map(|turn| {
            let path = match turn % 2 == 0 && !patterns.is_empty() {
                true => near(&patterns[dice.below(patterns.len())], dice),
                false => path(dice),
            };
            (dice.one_of(&["foo", "bar", "ba", "nobody", "MJ12bot"]).to_owned(), path)
        })
        .collect();
    Subject { body, asks }
}

fn name(dice: &mut Dice) -> &'static str {
    dice.one_of(&[
        "*", "*", "*", "foo", "foo", "Foo", "bar", "BAR", "MJ12bot", "foo/1.0", "Foo Bar", "* all", "fo", "bar-baz", "",
    ])
}

fn pattern(dice: &mut Dice) -> String {
    match dice.below(20) {
        0 => path(dice)[1..].to_owned(),
        1 => format!("*{}", piece(dice)),
        2 => format!("{}$", path(dice)),
        _ => path(dice),
    }
}

fn path(dice: &mut Dice) -> String {
    (0..dice.below(6)).fold(String::from("/"), |path, _| path + piece(dice))
}

fn piece(dice: &mut Dice) -> &'static str {
    match dice.below(12) {
        0..6 => dice.one_of(&["a", "b", "ab", "/", "/a", ".php", "x"]),
        6..8 => dice.one_of(&["?", "?a=b", "&c=d", "="]),
        8..10 => dice.one_of(&["*", "*", "$", "**"]),
        10 => dice.one_of(&["%61", "%2F", "%2f", "%3A", ":", "%20", "%C3%A9", "%c3%a9", "%7E", "~"]),
        _ => dice.one_of(&["%2A", "%24", "%", "é", " ", "|", "%3D", "+", "%2B", "%26"]),
    }
}

/// A path that the pattern matches or nearly does.
fn near(pattern: &str, dice: &mut Dice) -> String {
    let filled = pattern.replace('*', dice.one_of(&["", "a", "/b", "xyz"])).replace('$', dice.one_of(&["", "", "$"]));
    let filled = filled + dice.one_of(&["", "", "/", "x", "?a=b", ".php"]);
    if filled.starts_with('/') { filled } else { format!("/{filled}") }
}

pub(crate) fn corpus() -> Vec<Subject> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/corpus.jsonl.gz");
    let mut text = String::new();
    let file = std::fs::File::open(path).expect("the corpus is checked in");
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).expect("the corpus is gzip and UTF-8");
    let mut subjects: BTreeMap<String, Subject> = BTreeMap::new();
    for line in text.split('\n').filter(|line| !line.is_empty()) {
        let row: Value = serde_json::from_str(line).expect("a JSON object a line");
        let host = row["host"].as_str().expect("a host").to_owned();
        if let Some(robots) = row["robots"].as_str() {
            subjects.insert(
                host,
                Subject {
                    body: String::from_utf8_lossy(&STANDARD.decode(robots).expect("base64")).into_owned(),
                    asks: Vec::new(),
                },
            );
        } else if let (Some(path), Some(subject)) = (row["path"].as_str(), subjects.get_mut(&host)) {
            subject.asks.push((row["agent"].as_str().expect("an agent").to_owned(), path.to_owned()));
        }
    }
    let mut subjects: Vec<Subject> = subjects.into_values().collect();
    for subject in &mut subjects {
        let step = subject.asks.len().div_ceil(ASKED_OF_A_FILE).max(1);
        subject.asks = subject.asks.iter().step_by(step).cloned().collect();
    }
    subjects
}

/// xorshift64: the same subjects every time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }

    fn one_of(&mut self, choices: &[&'static str]) -> &'static str {
        choices[self.below(choices.len())]
    }
}
