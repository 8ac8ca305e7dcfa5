//! Which hosts a setting is about: one by name, or all below a name.
//!
//! Two forms and no more. A pattern in the middle of a name is how `example.com` comes to match
//! `example.com.evil.test`, and a setting that lets a bot through must not be one typing mistake wide. `*.example.com`
//! is what is below the name and not the name itself, as in a certificate. Patterns are brought to the form of a
//! target's host when they are read: lower case, A-labels, no final dot.

use std::fmt;
use std::str::FromStr;

use super::target::Host;

/// A host by its name or address, or all hosts below a name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPattern(Form);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Form {
    Exact(String),
    /// Without the `*`, with its dot: `.example.com`.
    Below(String),
}

impl HostPattern {
    /// Whether a target's host (A-labels, no final dot, no brackets) is meant.
    pub fn matches(&self, host: &str) -> bool {
        match &self.0 {
            Form::Exact(name) => host.eq_ignore_ascii_case(name),
            Form::Below(suffix) => {
                let Some(start) = host.len().checked_sub(suffix.len()) else { return false };
                // Bytes, since `start` may lie inside a character of a host that is not ours.
                start > 0 && host.as_bytes()[start..].eq_ignore_ascii_case(suffix.as_bytes())
            }
        }
    }
}

impl FromStr for HostPattern {
    type Err = InvalidHostPattern;

    fn from_str(text: &str) -> Result<HostPattern, InvalidHostPattern> {
        match text.strip_prefix("*.") {
            Some(name) => Ok(HostPattern(Form::Below(format!(".{}", canonical(text, name)?)))),
            None => Ok(HostPattern(Form::Exact(canonical(text, text)?))),
        }
    }
}

/// The name in the spelling that targets have.
fn canonical(pattern: &str, name: &str) -> Result<String, InvalidHostPattern> {
    let refused = |why| InvalidHostPattern { pattern: pattern.to_owned(), why };
    if name.contains('*') {
        return Err(refused("`*` stands only at the beginning, as in \"*.example.com\""));
    }
    let host = Host::parse(name)
        .map_err(|_| refused("give the host alone, a name or an address, without scheme, port or path"))?;
    Ok(host.as_str().to_owned())
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Form::Exact(name) => f.write_str(name),
            Form::Below(suffix) => write!(f, "*{suffix}"),
        }
    }
}

/// A text that is no host pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{pattern:?} is no host pattern: {why}")]
pub struct InvalidHostPattern {
    pattern: String,
    why: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_a_name_or_what_is_below_it() {
        let cases = [
            ("example.com", "example.com", true, "the name"),
            ("example.com", "www.example.com", false, "an exact name has nothing below it"),
            ("Example.COM.", "example.com", true, "case and final dot of the pattern"),
            ("example.com", "EXAMPLE.com", true, "case of the host"),
            ("*.example.com", "www.example.com", true, "below"),
            ("*.example.com", "a.b.example.com", true, "any depth"),
            ("*.example.com", "example.com", false, "not the name itself"),
            ("*.example.com", ".example.com", false, "an empty label is nothing"),
            ("*.example.com", "badexample.com", false, "labels are whole"),
            ("*.example.com", "www.example.com.evil.test", false, "the end counts"),
            ("*.Example.com", "WWW.EXAMPLE.COM", true, "case below a name"),
            ("*.example.com", "é.example.co", false, "no character is cut in two"),
            ("münchen.example", "xn--mnchen-3ya.example", true, "U-labels are turned into A-labels"),
            ("under_score.example", "under_score.example", true, "underscores exist"),
            ("192.0.2.1", "192.0.2.1", true, "an address"),
            ("[2001:DB8:0::1]", "2001:db8::1", true, "IPv6 in any spelling"),
            ("::1", "::1", true, "IPv6 without brackets"),
            ("localhost", "localhost", true, "one label"),
        ];
        for (pattern, host, expected, shows) in cases {
            let pattern: HostPattern = pattern.parse().unwrap();
            assert_eq!(pattern.matches(host), expected, "{shows}: {pattern} on {host}");
            assert_eq!(pattern.to_string().parse(), Ok(pattern), "{shows}");
        }
    }

    #[test]
    fn what_is_no_pattern_says_why() {
        let cases = [
            ("", "give the host alone"),
            ("*", "`*` stands only at the beginning"),
            ("*.", "give the host alone"),
            ("*example.com", "`*` stands only at the beginning"),
            ("www.*.com", "`*` stands only at the beginning"),
            ("*.*.com", "`*` stands only at the beginning"),
            ("https://example.com", "give the host alone"),
            ("example.com:443", "give the host alone"),
            ("example.com/path", "give the host alone"),
            ("a..b", "give the host alone"),
            ("a b", "give the host alone"),
        ];
        for (pattern, why) in cases {
            let error = pattern.parse::<HostPattern>().unwrap_err().to_string();
            assert!(error.contains(why), "{pattern:?}: {error}");
        }
    }
}
