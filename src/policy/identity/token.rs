//! A bot's product token.
//!
//! The name that `User-agent:` lines are compared with. It comes from strangers and becomes the key of lines, metrics and records, so it
//! is checked once, here, for its letters and its length.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;

/// A bot's product token as written, or `*`.
///
/// RFC 9309 §2.2.1 allows letters, `_` and `-`; bots that exist have digits and dots as well (`MJ12bot`,
/// `archive.org_bot`), and cutting their names to the letter of the RFC would address somebody else. Compared without
/// regard to case.
#[derive(Clone)]
pub struct Token(Arc<str>);

/// Chosen; the longest of a known crawler has 29. A token is a key of lines, metrics and records, so a client must not
/// make it long.
pub(in crate::policy) const LONGEST_TOKEN: usize = 128;

impl Token {
    /// `*`: nobody in particular, so that only the group for everybody applies.
    pub fn star() -> Token {
        Token(Arc::from("*"))
    }

    /// Whether this is `*`.
    pub fn is_star(&self) -> bool {
        self.as_str() == "*"
    }

    /// The token as written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Token {
    type Err = InvalidToken;

    fn from_str(text: &str) -> Result<Token, InvalidToken> {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let is_token = !text.is_empty() && text.len() <= LONGEST_TOKEN && text.bytes().all(is_name);
        if is_token || text == "*" {
            Ok(Token(Arc::from(text)))
        } else {
            Err(InvalidToken(text.chars().take(LONGEST_TOKEN).collect()))
        }
    }
}

impl PartialEq for Token {
    fn eq(&self, other: &Token) -> bool {
        self.0.eq_ignore_ascii_case(&other.0)
    }
}

impl Eq for Token {}

impl Hash for Token {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for byte in self.0.bytes() {
            state.write_u8(byte.to_ascii_lowercase());
        }
        state.write_u8(0xff);
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({})", self.0)
    }
}

/// A text that is no product token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no product token: it is `*`, or at most {LONGEST_TOKEN} letters, digits, `.`, `_` and `-`")]
pub struct InvalidToken(String);

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn token(text: &str) -> Token {
        text.parse().unwrap()
    }

    #[test]
    fn tokens_are_compared_whole_and_without_case() {
        assert_eq!(token("NimbuBot"), token("NIMBUBOT"));
        assert_ne!(token("NimbuBot"), token("NimbuBot-Image"));
        assert_eq!(HashSet::from([token("NimbuBot"), token("nimbubot")]).len(), 1);
        assert_eq!(token("NimbuBot").to_string(), "NimbuBot");
        assert!(token("*").is_star() && !token("NimbuBot").is_star());
        for text in ["", "**", "a b", "a/1", "ä", "a*", &"a".repeat(LONGEST_TOKEN + 1)] {
            assert!(text.parse::<Token>().is_err(), "{text}");
        }
    }
}
