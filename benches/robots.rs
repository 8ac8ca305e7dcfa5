//! The robots engine beside `robotxt` and `texting_robots`, in one run: `cargo bench --bench robots`.
//!
//! `parse` reads a file, `verdict` asks a parsed one, `first` does both, which is what a new host costs. Both others parse for one bot and
//! forget the rest of the file; ours keeps all of it. They have no answer to the question which rule decided in which line, so they are
//! only asked whether the path is allowed.

use std::fmt::Write as _;
use std::hint::black_box;
use std::io::Read as _;

use base64::Engine as _;
use criterion::{BenchmarkId, Criterion, Throughput};
use robots_proxy::robots::RobotsTxt;

const AGENT: &str = "NimbuBot";

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    for subject in [real(), twenty_thousand_rules(), many_stars(), near_misses()] {
        parse(&mut criterion, &subject);
        verdict(&mut criterion, &subject);
        first(&mut criterion, &subject);
    }
    criterion.final_summary();
}

struct Subject {
    name: &'static str,
    body: Vec<u8>,
    paths: Vec<String>,
}

impl Subject {
    fn urls(&self) -> Vec<String> {
        self.paths.iter().map(|path| format!("https://www.example.com{path}")).collect()
    }
}

fn parse(criterion: &mut Criterion, subject: &Subject) {
    let mut group = criterion.benchmark_group("parse");
    group.throughput(Throughput::Bytes(subject.body.len() as u64));
    let body = &subject.body;
    group.bench_function(BenchmarkId::new("ours", subject.name), |bencher| bencher.iter(|| RobotsTxt::parse(body)));
    group.bench_function(BenchmarkId::new("robotxt", subject.name), |bencher| {
        bencher.iter(|| robotxt::Robots::parse(body, AGENT));
    });
    group.bench_function(BenchmarkId::new("texting_robots", subject.name), |bencher| {
        bencher.iter(|| texting_robots::Robot::new(AGENT, body).is_ok());
    });
    group.finish();
}

fn verdict(criterion: &mut Criterion, subject: &Subject) {
    let mut group = criterion.benchmark_group("verdict");
    let body = &subject.body;
    let urls = subject.urls();
    // Paths in turn, so that no branch is learnt by heart.
    let next = |turn: &mut usize| {
        *turn = (*turn + 1) % subject.paths.len();
        *turn
    };
    group.bench_function(BenchmarkId::new("ours", subject.name), |bencher| {
        let robots = RobotsTxt::parse(body);
        let mut turn = 0;
        bencher.iter(|| black_box(robots.verdict(AGENT, subject.paths[next(&mut turn)].as_bytes())).allow);
    });
    group.bench_function(BenchmarkId::new("robotxt", subject.name), |bencher| {
        let robots = robotxt::Robots::parse(body, AGENT);
        let mut turn = 0;
        bencher.iter(|| robots.is_allowed(&subject.paths[next(&mut turn)]));
    });
    if let Ok(robots) = texting_robots::Robot::new(AGENT, body) {
        group.bench_function(BenchmarkId::new("texting_robots", subject.name), |bencher| {
            let mut turn = 0;
            bencher.iter(|| robots.allowed(&urls[next(&mut turn)]));
        });
    }
    group.finish();
}

fn first(criterion: &mut Criterion, subject: &Subject) {
    let mut group = criterion.benchmark_group("first");
    let (body, path, urls) = (&subject.body, &subject.paths[0], subject.urls());
    group.bench_function(BenchmarkId::new("ours", subject.name), |bencher| {
        bencher.iter(|| RobotsTxt::parse(body).verdict(AGENT, path.as_bytes()).allow);
    });
    group.bench_function(BenchmarkId::new("robotxt", subject.name), |bencher| {
        bencher.iter(|| robotxt::Robots::parse(body, AGENT).is_allowed(path));
    });
    group.bench_function(BenchmarkId::new("texting_robots", subject.name), |bencher| {
        bencher.iter(|| texting_robots::Robot::new(AGENT, body).map(|robots| robots.allowed(&urls[0])).ok());
    });
    group.finish();
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
