//! The robots engine and its slow model, and the readers of what clients send, for the fuzz targets. Run with
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run parse -- -max_total_time=1200 -dict=robots.dict` in the project's folder, or another of the targets.

#[path = "../src/robots/mod.rs"]
pub mod robots;

/// What a connection begins with, where its requests end, and what they are for.
#[path = "../src/policy"]
pub mod policy {
    pub mod decision;
    pub mod framing;
    pub mod opening;
    pub mod reason;
    pub mod standing;
    pub mod target;
}

#[path = "../tests/robots/model.rs"]
mod slow;

use robots::{RobotsTxt, RuleKind};
use slow::Model;

/// Splits what the fuzzer gives into token, path and file at the first two zero octets.
pub fn question(data: &[u8]) -> Option<(&str, &[u8], &[u8])> {
    let mut parts = data.splitn(3, |octet| *octet == 0);
    let token = std::str::from_utf8(parts.next()?).ok()?;
    Some((token, parts.next()?, parts.next()?))
}

/// Panics where the engine and the model disagree.
pub fn agree(body: &[u8], max_bytes: usize, token: &str, path: &[u8]) {
    let robots = RobotsTxt::parse_within(body, max_bytes);
    let model = Model::read(body, max_bytes);
    assert_eq!(robots.crawl_delay(token), model.crawl_delay(token));
    let verdict = robots.verdict(token, path);
    let answer = model.answer(token, path);
    let rule = verdict.rule.map(|rule| (rule.kind == RuleKind::Allow, rule.value.to_vec(), rule.line));
    assert_eq!((verdict.allow, rule, verdict.group.is_some()), (answer.allow, answer.rule, answer.has_group));
    assert_eq!(robots.matching(token, path).first().map(|(_, rule)| *rule), verdict.rule);
}
