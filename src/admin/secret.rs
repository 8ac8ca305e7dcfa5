//! What a viewer has to know.
//!
//! A program shows the token with each request. A browser shows it once and has a cookie from then on: a value of its own, made anew at
//! each start of the proxy, so that the token itself is not kept in a browser. Both are compared as SHA-256 digests in constant time, so
//! that the time an answer takes tells neither content nor length.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// A token. It is printed nowhere.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl FromStr for Secret {
    type Err = String;

    fn from_str(text: &str) -> Result<Secret, String> {
        let visible = !text.is_empty() && text.bytes().all(|octet| matches!(octet, b' '..=b'~'));
        match visible && text.trim() == text {
            true => Ok(Secret(text.to_owned())),
            // Not the text itself, which may be all but right.
            false => Err("a token is made of visible ASCII characters, such as: openssl rand -hex 16".to_owned()),
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// What opens the view.
pub(super) struct Keys {
    token: [u8; 32],
    cookie: String,
}

impl Keys {
    pub(super) fn new(token: Secret) -> Keys {
        // The random end of a version 4 UUID has 122 bits.
        let cookie = format!("{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple());
        Keys { token: digest(&token.0), cookie }
    }

    /// Whether they were made for a token.
    pub(super) fn are_of(&self, token: &Secret) -> bool {
        self.is_token(&token.0)
    }

    pub(super) fn is_token(&self, shown: &str) -> bool {
        digest(shown).ct_eq(&self.token).into()
    }

    pub(super) fn is_cookie(&self, shown: &str) -> bool {
        digest(shown).ct_eq(&digest(&self.cookie)).into()
    }

    /// The value of the cookie.
    pub(super) fn cookie(&self) -> &str {
        &self.cookie
    }
}

fn digest(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_token_is_the_token() {
        let keys = Keys::new("correct horse".parse().unwrap());
        for (shown, fits) in [("correct horse", true), ("correct hors", false), ("correct horse ", false), ("", false)]
        {
            assert_eq!(keys.is_token(shown), fits, "{shown:?}");
        }
        assert!(keys.is_cookie(keys.cookie()) && !keys.is_cookie("correct horse"));
        assert_ne!(keys.cookie(), Keys::new("correct horse".parse().unwrap()).cookie(), "made anew at each start");
    }

    #[test]
    fn a_secret_is_printed_nowhere() {
        let secret: Secret = "hunter2hunter2".parse().unwrap();
        assert!(!format!("{secret:?} {secret}").contains("hunter2"));
        for bad in ["", " a", "a\n", "tökens"] {
            assert!(!bad.parse::<Secret>().unwrap_err().contains("ö"), "{bad:?}");
        }
    }
}
