//! Any octets are a file: nothing panics, and what is reported keeps its promises.

#![no_main]

use libfuzzer_sys::fuzz_target;
use robots_proxy_fuzz::robots::RobotsTxt;

fuzz_target!(|body: &[u8]| {
    let robots = RobotsTxt::parse(body);
    assert!(robots.remarks().len() <= 100);
    assert!(robots.memory() <= 2 * body.len() + 2_000, "{} octets for {}", robots.memory(), body.len());
    assert!(robots.sitemaps().all(|address| !address.is_empty()));
    let lines = 1 + body.len() as u32;
    for token in ["*", "bot", "a"] {
        robots.crawl_delay(token);
        for (group, rule) in robots.matching(token, b"/a/b.php?c=%3A") {
            assert!(group.line() < rule.line && rule.line <= lines);
            assert!(group.user_agents().any(|(name, _)| name == group.as_str()));
        }
    }
    // A cut anywhere is as good a file.
    RobotsTxt::parse_within(body, body.len() / 2).verdict("a", b"/");
});
