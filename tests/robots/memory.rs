//! A parsed file weighs no more than twice its text, with everything that it will ever hold.

use robots_proxy::robots::RobotsTxt;

use super::cases::corpus_files;

/// What a parsed file costs before it says anything: the struct itself and the smallest tables.
const BASE: usize = 600;

#[test]
fn at_most_twice_the_text() {
    let mut held = 0;
    let mut read = 0;
    for (host, body) in corpus_files() {
        let robots = RobotsTxt::parse(&body);
        assert!(robots.memory() <= 2 * body.len() + BASE, "{host}: {} octets for {}", robots.memory(), body.len());
        held += robots.memory();
        read += body.len();
    }
    assert!(held < read * 3 / 2, "{held} octets for {read}");
}

#[test]
fn at_most_twice_the_text_of_the_densest_files() {
    let lines = |count: u32, line: &dyn Fn(u32) -> String| (0..count).map(line).collect::<String>();
    for (what, text) in [
        ("plain rules", lines(20_000, &|n| format!("Disallow: /{n:x}\n"))),
        ("short rules", lines(20_000, &|n| format!("allow:/{n:x}\n"))),
        ("rules with stars", lines(20_000, &|n| format!("Disallow: /*.{n:x}$\n"))),
        ("non-ASCII rules", lines(10_000, &|n| format!("Disallow: /привет/{n:x}\n"))),
        ("rules with two forms", lines(10_000, &|n| format!("Disallow: /wiki/Talk%3A{n:x}\n"))),
        ("named again and again", lines(10_000, &|n| format!("User-agent: *\nDisallow: /{n:x}\n"))),
        ("many bots", lines(10_000, &|n| format!("User-agent: bot{n:x}\nDisallow: /\n\n"))),
        ("many versioned bots", lines(20_000, &|n| format!("User-agent: b{n:x}/\n"))),
        ("many delays", lines(10_000, &|n| format!("User-agent: bot{n:x}\nCrawl-delay: {n}\nDisallow:\n\n"))),
    ] {
        let text = format!("User-agent: *\n{text}");
        let robots = RobotsTxt::parse(text.as_bytes());
        assert!(!robots.is_truncated(), "{what}");
        assert!(robots.memory() <= 2 * text.len() + BASE, "{what}: {} octets for {}", robots.memory(), text.len());
    }
}
