//! One line of robots.txt: field, value, or neither.
//!
//! The grammar of RFC 9309 §2.2 is small; real files are wider. What is plainly meant is read (`Dissallow`, `User agent`, a missing colon),
//! but only where the mistake cannot open a site: a misspelled `Allow` stays unknown. The list of spellings is the one of Google's parser.

use memchr::{memchr, memchr2};

use super::normal::{self, Holds};

/// What a line is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    UserAgent,
    Allow,
    Disallow,
    CrawlDelay,
    RequestRate,
    Sitemap,
    /// Known, and of no effect on what may be fetched.
    Unused,
    /// A field by its form, and nobody knows it.
    Unknown,
    /// Not even a field.
    Unreadable,
}

/// How a field was spelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spelling {
    Right,
    Misspelled,
    WithoutColon,
}

/// A line that says something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line<'a> {
    pub(super) field: Field,
    pub(super) spelling: Spelling,
    pub(super) value: &'a [u8],
    /// What the value holds; found on the way, since a value is looked through for `#` anyway.
    pub(super) holds: Holds,
}

impl<'a> Line<'a> {
    /// Reads a line without its end; `None` for an empty one and for a comment.
    pub(super) fn read(line: &'a [u8]) -> Option<Line<'a>> {
        if let Some(line) = as_most_write_it(line) {
            return Some(line);
        }
        // RFC 9309 §2.2: a comment may follow anything, so `#` is never part of a value.
        let text = trim(memchr(b'#', line).map_or(line, |at| &line[..at]));
        if text.is_empty() {
            return None;
        }
        let (field, spelling, value) = match memchr(b':', text) {
            Some(colon) => {
                let (field, spelling) = field(trim(&text[..colon]));
                (field, spelling, trim(&text[colon + 1..]))
            }
            None => without_colon(text),
        };
        Some(Line { field, spelling, value, holds: normal::holds(value) })
    }
}

/// `Disallow: /path` and nothing else, which nine lines in ten are.
fn as_most_write_it(line: &[u8]) -> Option<Line<'_>> {
    let value = line.strip_prefix(b"Disallow: ")?;
    let holds = normal::holds(value);
    let is_all = holds & normal::HASH == 0 && !is_blank(*value.first()?) && !is_blank(*value.last()?);
    is_all.then_some(Line { field: Field::Disallow, spelling: Spelling::Right, value, holds })
}

/// `Disallow /private`: the blank stands for the colon, but only where it is the only one, so that prose is not taken for rules.
fn without_colon(text: &[u8]) -> (Field, Spelling, &[u8]) {
    let unreadable = (Field::Unreadable, Spelling::Right, text);
    let Some(blank) = memchr2(b' ', b'\t', text) else { return unreadable };
    let value = trim(&text[blank..]);
    match field(&text[..blank]) {
        _ if memchr2(b' ', b'\t', value).is_some() => unreadable,
        (Field::Unknown, _) => unreadable,
        (field, _) => (field, Spelling::WithoutColon, value),
    }
}

fn field(key: &[u8]) -> (Field, Spelling) {
    let is = |name: &str| key.eq_ignore_ascii_case(name.as_bytes());
    let right = |field| (field, Spelling::Right);
    match key.len() {
        8 if is("disallow") => right(Field::Disallow),
        5 if is("allow") => right(Field::Allow),
        10 if is("user-agent") => right(Field::UserAgent),
        7 if is("sitemap") => right(Field::Sitemap),
        11 if is("crawl-delay") => right(Field::CrawlDelay),
        12 if is("request-rate") => right(Field::RequestRate),
        _ if MISSPELLED_DISALLOW.iter().any(|name| is(name)) => (Field::Disallow, Spelling::Misspelled),
        _ if is("useragent") || is("user agent") => (Field::UserAgent, Spelling::Misspelled),
        _ if is("crawldelay") || is("crawl delay") => (Field::CrawlDelay, Spelling::Misspelled),
        _ if is("site-map") => (Field::Sitemap, Spelling::Misspelled),
        _ if UNUSED.iter().any(|name| is(name)) => right(Field::Unused),
        _ => right(Field::Unknown),
    }
}

/// The misspellings that Google's parser reads; each closes what its author meant to close.
const MISSPELLED_DISALLOW: [&str; 5] = ["dissallow", "dissalow", "disalow", "diasllow", "disallaw"];

/// Fields with a meaning somewhere, none of them about what may be fetched: RFC 9309 §2.2.4 lets them stand anywhere.
const UNUSED: [&str; 10] = [
    "host",
    "clean-param",
    "visit-time",
    "noindex",
    "nofollow",
    "comment",
    "content-signal",
    "content-usage",
    "license",
    "llm-policy",
];

/// RFC 9309 §2.2 allows spaces and tabs around a value; vertical tab and form feed come from editors and are no part of a path either.
fn is_blank(octet: u8) -> bool {
    matches!(octet, b' ' | b'\t' | 0x0B | 0x0C)
}

pub(super) fn trim(mut text: &[u8]) -> &[u8] {
    while let [first, rest @ ..] = text
        && is_blank(*first)
    {
        text = rest;
    }
    while let [rest @ .., last] = text
        && is_blank(*last)
    {
        text = rest;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_is_plainly_meant() {
        use Field::*;
        for (line, expected) in [
            ("Disallow: /a", Some((Disallow, Spelling::Right, "/a"))),
            ("Disallow: /a # why", Some((Disallow, Spelling::Right, "/a"))),
            ("Disallow: /a ", Some((Disallow, Spelling::Right, "/a"))),
            ("disallow:/a b\t", Some((Disallow, Spelling::Right, "/a b"))),
            (" \u{b}ALLOW\t:\u{c}/a", Some((Allow, Spelling::Right, "/a"))),
            ("Disallow:", Some((Disallow, Spelling::Right, ""))),
            ("Disallow: ", Some((Disallow, Spelling::Right, ""))),
            ("Disallow: # nothing", Some((Disallow, Spelling::Right, ""))),
            ("Dissallow: /a", Some((Disallow, Spelling::Misspelled, "/a"))),
            ("user agent: x", Some((UserAgent, Spelling::Misspelled, "x"))),
            ("user-agent x", Some((UserAgent, Spelling::WithoutColon, "x"))),
            ("crawl-delay\t5", Some((CrawlDelay, Spelling::WithoutColon, "5"))),
            ("disallow /a /b", Some((Unreadable, Spelling::Right, "disallow /a /b"))),
            ("hello world", Some((Unreadable, Spelling::Right, "hello world"))),
            ("Alow: /a", Some((Unknown, Spelling::Right, "/a"))),
            ("Content-Signal: search=yes", Some((Unused, Spelling::Right, "search=yes"))),
            (": x", Some((Unknown, Spelling::Right, "x"))),
            ("# Disallow: /", None),
            (" \t", None),
            ("", None),
        ] {
            let read = Line::read(line.as_bytes());
            let read = read.map(|line| (line.field, line.spelling, line.value));
            let expected = expected.map(|(field, spelling, value)| (field, spelling, value.as_bytes()));
            assert_eq!(read, expected, "{line:?}");
        }
    }
}
