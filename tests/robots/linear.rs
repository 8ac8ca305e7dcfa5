//! Twice the file or twice the path costs at most twice the instructions: counted, not timed.
//!
//! The count is valgrind's, of this very test binary running [`workload`].

use std::hint::black_box;
use std::process::Command;

use robots_proxy::robots::RobotsTxt;

#[test]
fn doubling_at_most_doubles_the_instructions() {
    let nothing = instructions("nothing", 0);
    let workloads = [
        ("rules", 800),
        ("stars", 250),
        ("short", 800),
        ("bots", 800),
        ("again", 500),
        ("shared", 100),
        ("odd", 200),
        ("line", 500),
        ("evil", 1000),
        ("near", 1000),
    ];
    for (what, size) in workloads {
        let once = instructions(what, size) - nothing;
        let twice = instructions(what, 2 * size) - nothing;
        let growth = twice as f64 / once as f64;
        eprintln!("{what}: {once} instructions for {size}, {twice} for twice as much: {growth:.2} times");
        // The little above two is sorting: each doubling costs every rule one comparison more.
        assert!(growth < 2.1, "{what}: {once} then {twice}");
    }
}

fn instructions(what: &str, size: usize) -> u64 {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe().expect("this test has a path"))
        .args(["--exact", "linear::workload", "--ignored", "--test-threads=1"])
        .env("WORKLOAD", format!("{what} {size}"))
        .output()
        .expect("valgrind is installed");
    let text = String::from_utf8_lossy(&output.stderr);
    let count = text.lines().find_map(|line| line.split("Collected : ").nth(1)).expect("callgrind tells its count");
    count.trim().parse().expect("a number")
}

#[test]
#[ignore = "run by doubling_at_most_doubles_the_instructions"]
fn workload() {
    let Ok(workload) = std::env::var("WORKLOAD") else { return };
    let (what, size) = workload.split_once(' ').expect("what and size");
    let size: usize = size.parse().expect("a size");
    let lines = |line: &dyn Fn(usize) -> String| format!("User-agent: *\n{}", (0..size).map(line).collect::<String>());
    let a = |count: usize| "a".repeat(count);
    let (file, path) = match what {
        // A file twice as long.
        "rules" => (lines(&|n| format!("Disallow: /catalog/{n:05}/item\n")), "/catalog/00077/item".into()),
        "stars" => (lines(&|n| format!("Disallow: /*/catalog{n:05}?*x\n")), "/a/catalog00077?y=x".into()),
        "short" => (lines(&|_| "Disallow: /*a*b*c*d$\n".into()), "/abcabcabc".into()),
        "bots" => (lines(&|n| format!("User-agent: b{n:05}\nCrawl-delay: {n:05}\n")), "/".into()),
        "again" => (lines(&|n| format!("User-agent: *\nDisallow: /{n:05}\n")), "/00077".into()),
        "shared" => {
            let rules = |n: usize| (0..9).map(|rule| format!("Disallow: /{n:05}/{rule}\n")).collect::<String>();
            (lines(&|n| format!("User-agent: *\nUser-agent: b{n:05}\n{}", rules(n))), "/00077/1".into())
        }
        "odd" => (lines(&|n| format!("Disallow: /\u{e9}%3a{n:05}\n")), "/%C3%A9:00077".into()),
        "line" => {
            (format!("User-agent: {}\nDisallow: /{}", "\u{e9}".repeat(10 * size), "%".repeat(10 * size)), "/".into())
        }
        // A path twice as long, against the patterns that make others slow.
        "evil" => (format!("User-agent: *\nDisallow: /{}b\n", "a*".repeat(60)), format!("/{}b", a(10 * size))),
        "near" => {
            (format!("User-agent: *\nDisallow: /*{0}b*{0}c\n", a(40)), format!("/{}", (a(39) + "b").repeat(size)))
        }
        _ => return,
    };
    let mut body = file.into_bytes();
    if what == "line" {
        // No UTF-8 any more, each octet by itself.
        body.iter_mut().filter(|octet| !octet.is_ascii()).for_each(|octet| *octet = 0xFF);
    }
    black_box(RobotsTxt::parse(&body).verdict("x", path.as_bytes()));
}
