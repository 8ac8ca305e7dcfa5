//! Does one rule match one path, and which of two rules is stronger?
//!
//! RFC 9309 §2.2.2 and §2.2.3: match from the first octet, `*` for any octets, a final `$` for the end; the rule with the most octets wins,
//! then `Allow`. The pieces between stars are looked for from left to right, each at its leftmost place: with the last piece settled by
//! looking at the end first, leftmost is as good as any other place, so nothing is ever tried twice and time is linear in the path.

use std::cmp::Reverse;

use memchr::{memchr, memmem};

use super::normal::{Form, Normal, Side};
use super::tape::{Written, split_anchor};

/// A rule that matched, and what it is measured by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) at: u32,
    rank: Rank,
}

/// The order of rules, strongest greatest: octets, then `Allow` before `Disallow`, then the earliest line, which changes no verdict and
/// makes its report certain.
type Rank = (u32, bool, Reverse<u32>);

impl Found {
    pub(super) fn new(rule: &Written<'_>) -> Found {
        Found { at: rule.at, rank: rank(rule) }
    }

    pub(super) fn strength(&self) -> u32 {
        self.rank.0
    }

    /// Keeps the stronger of this rule and the best one so far.
    pub(super) fn or_stronger(self, best: &mut Option<Found>) {
        if best.is_none_or(|best| self.rank > best.rank) {
            *best = Some(self);
        }
    }
}

pub(super) fn rank(rule: &Written<'_>) -> Rank {
    (rule.strength(), rule.is_allow(), Reverse(rule.line()))
}

/// Does the rule match `path`, both in `form`?
pub(super) fn matches(rule: &Written<'_>, form: Form, path: &[u8]) -> bool {
    let (text, is_anchored) = split_anchor(rule.value);
    if rule.is_plain(form) {
        return matches_normal(text, is_anchored, path);
    }
    let text: Vec<u8> = Normal::new(text, Side::Rule, form).collect();
    matches_normal(&text, is_anchored, path)
}

fn matches_normal(text: &[u8], is_anchored: bool, path: &[u8]) -> bool {
    let Some(star) = memchr(b'*', text) else {
        return if is_anchored { path == text } else { path.starts_with(text) };
    };
    let (head, mut text) = (&text[..star], &text[star + 1..]);
    let Some(mut path) = path.strip_prefix(head) else { return false };
    if is_anchored {
        let tail = memchr::memrchr(b'*', text).map_or(text, |star| &text[star + 1..]);
        let Some(before) = path.strip_suffix(tail) else { return false };
        path = before;
        text = &text[..text.len() - tail.len()];
    }
    pieces(text).all(|piece| match find(path, piece) {
        Some(at) => {
            path = &path[at + piece.len()..];
            true
        }
        None => false,
    })
}

/// What stands between the stars of `text`, empty pieces left out.
fn pieces(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|octet| *octet == b'*').filter(|piece| !piece.is_empty())
}

fn find(path: &[u8], piece: &[u8]) -> Option<usize> {
    match piece {
        [octet] => memchr(*octet, path),
        piece => memmem::find(path, piece),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{normal, tape};
    use super::*;

    #[test]
    fn rfc9309_2_2_3_stars_and_the_end_anchor() {
        for (rule, path, expected) in [
            ("/fish", "/fish.html", true),
            ("/fish", "/Fish", false),
            ("/fish$", "/fish", true),
            ("/fish$", "/fishes", false),
            ("/fish*", "/fish", true),
            ("/*", "/", true),
            ("*", "/", true),
            ("*$", "/x", true),
            ("/*.php$", "/a.php/b.php", true),
            ("/*.php$", "/a.php?x", false),
            ("/*ab*ab$", "/ab", false),
            ("/*ab*ab$", "/abab", true),
            ("/*ab*ab$", "/abxabyab", true),
            ("/a*b$", "/ab", true),
            ("/ab*ab$", "/ab", false),
            ("/a**b", "/axb", true),
            ("/a*%24", "/ax%24y", true),
            ("/*%", "/a%20", true),
            ("/a$b", "/a%24b", true),
            ("/é*x", "/%C3%A9/x", true),
        ] {
            let mut written = Vec::new();
            tape::write_rule(
                &mut written,
                tape::marks(false, rule.as_bytes(), normal::holds(rule.as_bytes())),
                rule.as_bytes(),
                1,
            );
            let rule = tape::rule(&written, 0);
            assert_eq!(matches(&rule, Form::First, path.as_bytes()), expected, "{rule:?} {path}", rule = rule.value);
        }
    }
}
