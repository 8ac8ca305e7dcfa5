//! What becomes of query strings in records.
//!
//! A query may hold what a person typed or a session's key, and a log is read by more people than the request was. `hash` keeps
//! requests for one URL recognisable as such: the same query gives the same 16 digits, in every record and at every proxy. It is no
//! secret to one who guesses the query and hashes it; where that matters, `strip` is right.

use std::borrow::Cow;

use sha2::{Digest, Sha256};

use crate::hex::hex;

/// What becomes of query strings in records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Query {
    /// They are recorded.
    #[default]
    Keep,
    /// They are left out.
    Strip,
    /// `?sha256=` and the first 16 hexadecimal digits of the SHA-256 of what stood behind the question mark.
    Hash,
}

impl Query {
    /// The word in configuration and record.
    pub fn as_str(self) -> &'static str {
        match self {
            Query::Keep => "keep",
            Query::Strip => "strip",
            Query::Hash => "hash",
        }
    }

    /// A URL as it is recorded. `None` where it is recorded as it is.
    pub(super) fn redacted(self, url: &str) -> Option<String> {
        let (before, query) = split(url)?;
        match self {
            Query::Keep => None,
            Query::Strip => Some(before.to_owned()),
            Query::Hash => Some(format!("{before}?{}", digest(query))),
        }
    }

    /// A sentence that may quote the query of a URL, or the whole URL.
    pub(super) fn redact_in<'a>(self, sentence: &'a str, url: &str) -> Cow<'a, str> {
        let Some((_, query)) = split(url).filter(|_| self != Query::Keep) else { return sentence.into() };
        let instead = if self == Query::Hash { format!("?{}", digest(query)) } else { String::new() };
        sentence.replace(&format!("?{query}"), &instead).into()
    }
}

fn split(url: &str) -> Option<(&str, &str)> {
    url.split_once('?')
}

fn digest(query: &str) -> String {
    format!("sha256={}", hex(&Sha256::digest(query.as_bytes())[..8]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_kept_left_out_or_hashed() {
        let url = "https://a.test/p?q=secret&q=2?3";
        assert_eq!(Query::Keep.redacted(url), None);
        assert_eq!(Query::Strip.redacted(url).as_deref(), Some("https://a.test/p"));
        // printf 'q=secret&q=2?3' | sha256sum | cut -c1-16
        assert_eq!(Query::Hash.redacted(url).as_deref(), Some("https://a.test/p?sha256=756dfec601a66fdf"));
        assert_eq!(Query::Strip.redacted("https://a.test/p"), None);
    }

    #[test]
    fn a_sentence_does_not_tell_it_either() {
        let url = "https://a.test/p?q=secret";
        assert_eq!(Query::Strip.redact_in("\"/p?q=secret\" is no path", url), "\"/p\" is no path");
        assert!(!Query::Hash.redact_in("\"/p?q=secret\" is no path", url).contains("secret"));
        assert_eq!(Query::Keep.redact_in("\"/p?q=secret\" is no path", url), "\"/p?q=secret\" is no path");
        assert_eq!(Query::Strip.redact_in("a sentence of its own", "https://a.test/p?a"), "a sentence of its own");
    }
}
