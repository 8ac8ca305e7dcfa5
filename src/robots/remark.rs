//! What the parser could not use, and where.
//!
//! A robots.txt always parses, so mistakes are not errors: each becomes a remark with its line, for the person who wrote the file and for
//! the one who wonders why a rule does nothing. The texts are a contract: `check` prints them and records carry them.

use std::fmt;

/// How many remarks are kept of one file; the rest are only counted. Chosen: more than a person reads, less than a kilobyte.
pub(super) const MAX_REMARKS: usize = 100;

/// One line that was not used, or used otherwise than written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remark {
    /// What about the line.
    pub kind: RemarkKind,
    /// Its number, from 1.
    pub line: u32,
}

/// What a remark is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemarkKind {
    /// A Crawl-delay that is no decimal number; not used.
    BadCrawlDelay,
    /// A Request-rate that is no number of requests and a time; not used.
    BadRequestRate,
    /// A Sitemap that is no absolute http or https address; not used.
    BadSitemap,
    /// `User-agent:` without a value names nobody; rules that follow it alone are for nobody.
    EmptyUserAgent,
    /// A misspelled field that is read as what it plainly means, such as `Dissallow`.
    MisspelledField,
    /// A field without its colon, read all the same because the line has exactly two words.
    MissingColon,
    /// A rule whose value starts with neither `/` nor `*`: no path ever matches it.
    NeverMatches,
    /// A rule or Crawl-delay before the first `User-agent` line; not used.
    OutsideGroup,
    /// A line that is no `field: value`; not used.
    Unreadable,
    /// A field that is known but says nothing about access, such as `Host` or `Content-Signal`; not used.
    UnusedField,
    /// A field that nobody here knows; not used.
    UnknownField,
}

impl RemarkKind {
    /// The word that stands for it in output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BadCrawlDelay => "bad-crawl-delay",
            Self::BadRequestRate => "bad-request-rate",
            Self::BadSitemap => "bad-sitemap",
            Self::EmptyUserAgent => "empty-user-agent",
            Self::MisspelledField => "misspelled-field",
            Self::MissingColon => "missing-colon",
            Self::NeverMatches => "never-matches",
            Self::OutsideGroup => "outside-group",
            Self::Unreadable => "unreadable",
            Self::UnusedField => "unused-field",
            Self::UnknownField => "unknown-field",
        }
    }
}

impl fmt::Display for Remark {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} line {}", self.kind.as_str(), self.line)
    }
}
