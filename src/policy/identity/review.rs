//! Settings that are right one by one, and together do what nobody wants.
//!
//! None of them keeps the proxy from starting: each has a meaning, and somebody may want it. So they are doubts, told when the
//! configuration is checked and when it comes into force.

use std::fmt;

use super::{MapEntry, Settings, Source};

/// Something in the settings that is hardly meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// The key.
    pub key: String,
    /// What it comes to, and what to do.
    pub message: String,
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.message)
    }
}

fn doubt(key: impl Into<String>, message: impl Into<String>) -> Doubt {
    Doubt { key: key.into(), message: message.into() }
}

/// All doubts about the settings, in the order of their keys in the file.
pub fn review(settings: &Settings) -> Vec<Doubt> {
    let asked: Vec<Source> = settings.order.iter().copied().take_while(|source| *source != Source::Default).collect();
    let mut doubts = Vec::new();
    if asked.len() + 1 < settings.order.len() {
        let message = "what stands behind \"default\" is never asked: put \"default\" last";
        doubts.push(doubt("identity.order", message));
    }
    let claims = asked.contains(&Source::Header) || asked.contains(&Source::UserAgent);
    let can_tell = claims || (asked.contains(&Source::Map) && !settings.map.is_empty());
    if settings.require && !can_tell {
        let message = "every request is refused, since nothing in identity.order can tell a client";
        doubts.push(doubt("identity.require", message));
    } else if settings.require && !settings.default.is_star() {
        doubts.push(doubt("identity.default", "nobody has this token, since identity.require refuses who would"));
    }
    if settings.allow.iter().any(|token| token.is_star()) {
        doubts.push(doubt("identity.allow", "no client can claim \"*\": leave it out"));
    }
    if !settings.allow.is_empty() && !claims {
        let message = "it changes nothing, since identity.order asks neither \"header\" nor \"user-agent\"";
        doubts.push(doubt("identity.allow", message));
    } else if !settings.require && !settings.default.is_star() && !settings.may_claim(&settings.default) {
        let message = format!(
            "who says nothing is {0}, and who says {0} is refused: add it, or take it out of identity.default",
            settings.default
        );
        doubts.push(doubt("identity.allow", message));
    }
    if !settings.map.is_empty() && !asked.contains(&Source::Map) {
        doubts.push(doubt("identity.map", "it is never asked, since identity.order has no \"map\" before \"default\""));
    }
    doubts.extend(settings.map.iter().enumerate().filter_map(|(at, entry)| about(entry, at, &settings.map)));
    doubts
}

/// About the entry of the map that stands behind `at` others.
fn about(entry: &MapEntry, at: usize, map: &[MapEntry]) -> Option<Doubt> {
    let key = format!("identity.map, entry {}", at + 1);
    if let Some(hiding) = map[..at].iter().position(|earlier| earlier.hides(entry)) {
        let message =
            format!("it never applies, since entry {} fits whenever it does: put it before that one", hiding + 1);
        return Some(doubt(key, message));
    }
    // RFC 9309 §2.2.1: the product token is found in the identification string.
    let sent = entry.send_user_agent.as_ref()?.to_str().unwrap_or_default().to_ascii_lowercase();
    let is_named = entry.token.is_star() || sent.contains(&entry.token.as_str().to_ascii_lowercase());
    let message = format!("send_user_agent does not hold {}, so that sites cannot tell whom to address", entry.token);
    (!is_named).then(|| doubt(key, message))
}

impl MapEntry {
    /// Whether every request that `later` fits is one that this entry fits, as far as equal conditions tell.
    fn hides(&self, later: &MapEntry) -> bool {
        let pattern = |entry: &MapEntry| entry.user_agent.as_ref().map(|pattern| pattern.as_str().to_owned());
        let holds_within = |own: Option<ipnet::IpNet>, other: Option<ipnet::IpNet>| match (own, other) {
            (None, _) => true,
            (Some(own), Some(other)) => own.contains(&other),
            (Some(_), None) => false,
        };
        (self.user.is_none() || self.user == later.user)
            && holds_within(self.client, later.client)
            && (self.host.is_none() || self.host == later.host)
            && (self.user_agent.is_none() || pattern(self) == pattern(later))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Token;
    use super::*;

    fn token(text: &str) -> Token {
        text.parse().unwrap()
    }

    fn order(text: &str) -> Vec<Source> {
        text.split(' ').map(|source| source.parse().unwrap()).collect()
    }

    fn keys(settings: &Settings) -> Vec<String> {
        review(settings).into_iter().map(|doubt| doubt.key).collect()
    }

    #[test]
    fn what_is_hardly_meant_is_told_by_its_key() {
        let all = Settings::default();
        let nimbu = MapEntry::of(token("NimbuBot"));
        let allow = vec![token("NimbuBot")];
        let cases = [
            (all.clone(), ""),
            (Settings { require: true, ..all.clone() }, ""),
            (Settings { allow: allow.clone(), ..all.clone() }, ""),
            (Settings { order: order("map default header"), ..all.clone() }, "identity.order"),
            (Settings { order: order("map default"), require: true, ..all.clone() }, "identity.require"),
            (Settings { order: order("map"), require: true, map: vec![nimbu.clone()], ..all.clone() }, ""),
            (Settings { default: token("FooBot"), require: true, ..all.clone() }, "identity.default"),
            (Settings { default: token("FooBot"), allow: allow.clone(), ..all.clone() }, "identity.allow"),
            (Settings { default: token("nimbubot"), allow: allow.clone(), ..all.clone() }, ""),
            (Settings { allow: vec![Token::star()], ..all.clone() }, "identity.allow"),
            (
                Settings { order: order("map default"), allow, map: vec![nimbu.clone()], ..all.clone() },
                "identity.allow",
            ),
            (Settings { order: order("header default"), map: vec![nimbu], ..all }, "identity.map"),
        ];
        for (settings, expected) in cases {
            let expected: Vec<&str> = Some(expected).filter(|key| !key.is_empty()).into_iter().collect();
            assert_eq!(keys(&settings), expected, "{settings:?}");
        }
    }

    #[test]
    fn an_entry_that_never_applies_is_told() {
        let any = MapEntry::of(token("Any"));
        let user = |name: &str| MapEntry { user: Some(name.into()), ..any.clone() };
        let network = |net: &str| MapEntry { client: Some(net.parse().unwrap()), ..any.clone() };
        let browser = |pattern: &str| MapEntry { user_agent: Some(regex::Regex::new(pattern).unwrap()), ..any.clone() };
        for (map, hidden) in [
            (vec![any.clone(), user("a"), network("192.0.2.0/24")], vec![2, 3]),
            (vec![user("a"), user("b"), any.clone()], vec![]),
            (vec![user("a"), MapEntry { client: network("192.0.2.0/24").client, ..user("a") }], vec![2]),
            (vec![network("192.0.2.0/25"), network("192.0.2.0/24")], vec![]),
            (vec![network("192.0.2.0/24"), network("192.0.2.0/25")], vec![2]),
            (vec![browser("x"), browser("y"), browser("x")], vec![3]),
        ] {
            let told = keys(&Settings { map, ..Settings::default() });
            let expected: Vec<String> = hidden.iter().map(|entry| format!("identity.map, entry {entry}")).collect();
            assert_eq!(told, expected);
        }
    }

    #[test]
    fn a_user_agent_that_is_sent_should_name_the_bot() {
        for (token_sent, user_agent, is_doubted) in [
            ("NimbuBot", "Mozilla/5.0 (compatible; nimbubot/1.0)", false),
            ("NimbuBot", "Mozilla/5.0 Chrome/9", true),
            ("*", "Mozilla/5.0 Chrome/9", false),
        ] {
            let send_user_agent = Some(user_agent.parse().unwrap());
            let map = vec![MapEntry { send_user_agent, ..MapEntry::of(token(token_sent)) }];
            assert_eq!(!keys(&Settings { map, ..Settings::default() }).is_empty(), is_doubted, "{user_agent}");
        }
    }
}
