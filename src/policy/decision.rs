//! What the proxy does about a request: allow or refuse, with the reason and its evidence.
//!
//! Robots rules hold for a path as the origin will read it, and many servers read `/open/../private/` as `/private/`. RFC 9309 says
//! nothing of that, so both readings are asked about and the stricter one holds; the request itself goes on unchanged. Pure.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::reason::Reason;
use super::standing::{Effect, Standing};
use crate::robots::{Place, RobotsTxt, Rule, Verdict, path};

/// The outcome for one request. Group and rule are read from their robots.txt when somebody wants to know them: most requests are
/// allowed, and nobody does.
#[derive(Clone, Debug)]
pub struct Decision {
    /// Why, and with it whether the request goes on.
    pub reason: Reason,
    cited: Option<Cited>,
    /// The Crawl-delay that robots.txt asks of this bot.
    pub crawl_delay: Option<Duration>,
    /// The same said by a Request-rate.
    pub request_rate: Option<Duration>,
    /// When asking again may help, for a refusal that may pass.
    pub retry_after: Option<Duration>,
}

/// A place in a robots.txt.
#[derive(Clone, Debug)]
struct Cited {
    robots: Arc<RobotsTxt>,
    place: Place,
}

/// robots.txt itself may always be asked for (RFC 9309 §2.2.2); with a query it is an ordinary URL.
pub const ROBOTS_PATH: &[u8] = b"/robots.txt";

/// Decides about path and query at an origin.
pub fn decide(token: &str, path: &[u8], standing: &Standing, now: Instant) -> Decision {
    match &standing.effect {
        _ if path == ROBOTS_PATH => Decision::of(Reason::RobotsTxt),
        Effect::Rules(robots) => decide_by_rules(robots, token, path),
        Effect::NoRules => Decision::of(Reason::NoRules),
        Effect::DisallowAll(reason) => {
            let retry_after = standing.ask_again_at.saturating_duration_since(now);
            Decision { retry_after: Some(retry_after), ..Decision::of(*reason) }
        }
    }
}

/// Decides about a tunnel that nobody looks into: it is refused only where nothing of the site is open.
pub fn decide_about_all(token: &str, standing: &Standing, now: Instant) -> Decision {
    let Effect::Rules(robots) = &standing.effect else { return decide(token, b"/", standing, now) };
    match robots.closed_by(token) {
        None => Decision::of(Reason::Allowed),
        Some((group, rule)) => {
            let verdict = Verdict { allow: false, group: Some(group), rule: Some(rule) };
            Decision { cited: Cited::of(robots, &verdict), ..Decision::of(Reason::Disallowed) }
        }
    }
}

impl Decision {
    /// The User-agent line that applied.
    pub fn group(&self) -> Option<&str> {
        self.cited.as_ref().map(|cited| cited.robots.group_at(cited.place).as_str())
    }

    /// The deciding rule.
    pub fn rule(&self) -> Option<Rule<'_>> {
        self.cited.as_ref().and_then(|cited| cited.robots.rule_at(cited.place))
    }

    /// How slowly robots.txt asks this bot to go: the longer wish counts.
    pub fn delay(&self) -> Option<Duration> {
        self.crawl_delay.max(self.request_rate)
    }

    /// A decision that needs no rule.
    pub fn of(reason: Reason) -> Decision {
        Decision { reason, cited: None, crawl_delay: None, request_rate: None, retry_after: None }
    }
}

impl Cited {
    fn of(robots: &Arc<RobotsTxt>, verdict: &Verdict<'_>) -> Option<Cited> {
        verdict.place().map(|place| Cited { robots: Arc::clone(robots), place })
    }
}

fn decide_by_rules(robots: &Arc<RobotsTxt>, token: &str, path: &[u8]) -> Decision {
    let verdict = strictest_verdict(robots, token, path);
    let (crawl_delay, request_rate) = robots.delays(token);
    Decision {
        reason: if verdict.allow { Reason::Allowed } else { Reason::Disallowed },
        cited: Cited::of(robots, &verdict),
        crawl_delay,
        request_rate,
        retry_after: None,
    }
}

/// The verdict on the path as sent or, if that one is refused only so, with its dot segments resolved.
pub fn strictest_verdict<'a>(robots: &'a RobotsTxt, token: &str, path: &[u8]) -> Verdict<'a> {
    let as_sent = robots.verdict(token, path);
    let resolved = path::without_dot_segments(path).filter(|_| as_sent.allow);
    match resolved.map(|resolved| robots.verdict(token, &resolved)) {
        Some(verdict) if !verdict.allow => verdict,
        _ => as_sent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_is_closed_as_a_whole_only_if_nothing_is_open() {
        for (robots, closed) in [
            ("User-agent: *\nDisallow: /", Some("Disallow: /")),
            ("User-agent: *\nDisallow: /x\nDisallow: /*", Some("Disallow: /*")),
            ("User-agent: *\nDisallow: *", Some("Disallow: *")),
            ("User-agent: *\nDisallow: /\nAllow: /open/", None),
            ("User-agent: *\nDisallow: /$", None),
            ("User-agent: *\nDisallow: /private/", None),
            ("User-agent: *\nDisallow:", None),
            ("User-agent: *\nDisallow: /\n\nUser-agent: NimbuBot\nDisallow: /x", None),
            ("User-agent: NimbuBot\nDisallow: /\n\nUser-agent: *\nAllow: /", Some("Disallow: /")),
            ("", None),
        ] {
            let robots = RobotsTxt::parse(robots.as_bytes());
            let rule = robots.closed_by("NimbuBot").map(|(_, rule)| rule.to_string());
            assert_eq!(rule.as_deref(), closed);
        }
    }
}
