//! The files that are asked about: a real one, a long one, and two that are made to be slow. The same in every run.

use std::fmt::Write as _;
use std::io::Read as _;

use base64::Engine as _;

/// A file, and what is asked of it.
pub(super) struct Subject {
    pub(super) name: &'static str,
    pub(super) body: Vec<u8>,
    pub(super) paths: Vec<String>,
}

impl Subject {
    pub(super) fn urls(&self) -> Vec<String> {
        self.paths.iter().map(|path| format!("https://www.example.com{path}")).collect()
    }
}

pub(super) fn all() -> [Subject; 4] {
    [real(), twenty_thousand_rules(), many_stars(), near_misses()]
}

/// A shop with a thousand rules, 31 KB.
fn real() -> Subject {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/corpus.jsonl.gz");
    let mut text = String::new();
    let file = std::fs::File::open(corpus).expect("the corpus is checked in");
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).expect("the corpus is gzip and UTF-8");
    let row = text
        .lines()
        .find(|line| line.starts_with(r#"{"host":"www.etsy.com","robots""#))
        .expect("the shop is in the corpus");
    let row: serde_json::Value = serde_json::from_str(row).expect("JSON");
    let body = row["robots"].as_str().expect("base64");
    let body = base64::engine::general_purpose::STANDARD.decode(body).expect("base64");
    let paths = [
        "/",
        "/listing/1234567/hand-made-mug?ref=shop_home",
        "/search?q=mug",
        "/fr/search/vintage?page=2",
        "/your/account",
        "/shop/anna/sold",
    ];
    Subject { name: "real 31 KB", body, paths: paths.map(String::from).into() }
}

/// One group, 500 KB.
fn twenty_thousand_rules() -> Subject {
    let words = [
        "search", "admin", "login", "cart", "api", "private", "images", "user", "wiki", "tag", "print", "feed",
        "static", "news",
    ];
    let mut text = String::from("User-agent: *\n");
    for number in 0..20_000 {
        let word = words[number * 7 % words.len()];
        let _ = match number % 20 {
            0 => writeln!(text, "Allow: /{word}/{number}$"),
            1 => writeln!(text, "Disallow: /*/{word}{number}?*"),
            _ => writeln!(text, "Disallow: /{word}/{number}"),
        };
    }
    let asked = |number: usize| match number % 2 {
        0 => format!("/{}/x{number}.html", words[number % words.len()]),
        _ => format!("/{}/{}/page.html", words[number * 449 * 7 % words.len()], number * 449),
    };
    Subject { name: "20,000 rules", body: text.into(), paths: (0..40).map(asked).collect() }
}

/// Many stars against a long path that almost matches: exponential for who tries everything.
fn many_stars() -> Subject {
    let rules: String = (0..100).map(|number| format!("Disallow: /{}b{number}$\n", "a*".repeat(30))).collect();
    let body = format!("User-agent: *\n{rules}").into_bytes();
    Subject { name: "many stars", body, paths: vec![format!("/{}c", "a".repeat(2000))] }
}

/// Long literals that nearly occur at every place: quadratic for a naive search.
fn near_misses() -> Subject {
    let a = "a".repeat(40);
    let rules: String = (0..100).map(|number| format!("Disallow: /*{a}b{number}*{a}c\n")).collect();
    let body = format!("User-agent: *\n{rules}").into_bytes();
    Subject { name: "near misses", body, paths: vec![format!("/{}", "a".repeat(2000))] }
}
