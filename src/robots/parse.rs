//! From the octets of a file to groups of rules, never failing.
//!
//! One pass: lines are found, read ([`super::line`]) and written on the tape; afterwards the names are sorted, so that a token finds its
//! groups. Only Allow and Disallow end a list of names (RFC 9309 §2.2.1 and §2.2.4): Crawl-delay, Sitemap and unknown lines may stand
//! between `User-agent` lines, and a Crawl-delay there is the wish of the names above it.

use std::borrow::Cow;
use std::ops::AddAssign;
use std::time::Duration;

use memchr::memchr2;

use super::bots::{Bots, Delays};
use super::line::{Field, Line, Spelling};
use super::normal::Holds;
use super::remark::{MAX_REMARKS, Remark, RemarkKind};
use super::tape;

/// What a file says, in the order of the file.
#[derive(Debug)]
pub(super) struct Parsed {
    pub(super) tape: Box<[u8]>,
    pub(super) groups: Vec<ParsedGroup>,
    pub(super) bots: Bots,
    /// Addresses, one a line.
    pub(super) sitemaps: String,
    pub(super) remarks: Vec<Remark>,
    pub(super) remarks_left_out: u32,
    pub(super) is_truncated: bool,
}

/// A run of `User-agent` lines with the rules below: names from `names` to `rules` on the tape, then the rules up to the next group.
#[derive(Clone, Copy, Debug)]
pub(super) struct ParsedGroup {
    pub(super) names: u32,
    pub(super) rules: u32,
    pub(super) size: Size,
}

/// How many rules there are, and of which kinds; enough to tell how large their index will be.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Size {
    pub(super) rules: u32,
    /// With a star that is not their last octet.
    pub(super) starred: u32,
    /// With a second normal form.
    pub(super) two_forms: u32,
}

impl AddAssign for Size {
    fn add_assign(&mut self, other: Size) {
        self.rules += other.rules;
        self.starred += other.starred;
        self.two_forms += other.two_forms;
    }
}

pub(super) fn parse(body: &[u8], max_bytes: usize) -> Parsed {
    let max_bytes = max_bytes.min(tape::LONGEST);
    let is_truncated = body.len() > max_bytes;
    let text = decoded(whole_lines(body, max_bytes));
    let mut parser = Parser { tape: Vec::with_capacity(text.len()), ..Parser::default() };
    parser.read(&text);
    parser.finish(is_truncated)
}

/// The lines that end within the limit: a rule cut in the middle would say something else (`Disallow: /` for `/private`).
fn whole_lines(body: &[u8], max_bytes: usize) -> &[u8] {
    let Some(next) = body.get(max_bytes) else { return body };
    let within = &body[..max_bytes];
    if matches!(next, b'\n' | b'\r') {
        return within;
    }
    let end = within.iter().rposition(|octet| matches!(octet, b'\n' | b'\r')).map_or(0, |at| at + 1);
    &within[..end]
}

/// The text as ASCII-compatible octets without its byte order mark.
///
/// RFC 9309 §2.2.2 lets us bridge encodings; UTF-16 is read where its mark leaves no doubt. Of a UTF-8 mark, also a piece is skipped, as
/// Google's parser does: editors and scripts cut them.
fn decoded(body: &[u8]) -> Cow<'_, [u8]> {
    match body {
        [0xFF, 0xFE, rest @ ..] => Cow::Owned(from_utf16(rest, u16::from_le_bytes)),
        [0xFE, 0xFF, rest @ ..] => Cow::Owned(from_utf16(rest, u16::from_be_bytes)),
        [0xEF, 0xBB, 0xBF, rest @ ..] | [0xEF, 0xBB, rest @ ..] | [0xEF, rest @ ..] => Cow::Borrowed(rest),
        body => Cow::Borrowed(body),
    }
}

fn from_utf16(octets: &[u8], unit: fn([u8; 2]) -> u16) -> Vec<u8> {
    let units = octets.chunks_exact(2).map(|pair| unit([pair[0], pair[1]]));
    let text: String = char::decode_utf16(units).map(|read| read.unwrap_or(char::REPLACEMENT_CHARACTER)).collect();
    text.into_bytes()
}

#[derive(Default)]
struct Parser {
    tape: Vec<u8>,
    groups: Vec<ParsedGroup>,
    bots: Bots,
    sitemaps: String,
    remarks: Vec<Remark>,
    remarks_left_out: u32,
    /// Number of the line that is read.
    line: u32,
    /// The last group has had a rule line, so the next name begins another one.
    names_are_closed: bool,
    /// Somebody is named by the last group.
    has_readers: bool,
    /// Delays of the last group, each with the number of keys above it.
    delays: Vec<(usize, Delays)>,
}

impl Parser {
    fn read(&mut self, mut text: &[u8]) {
        // RFC 9309 §2.2: a line ends with LF, CR or CRLF, and nothing else does.
        while !text.is_empty() {
            self.line += 1;
            let end = memchr2(b'\n', b'\r', text).unwrap_or(text.len());
            if let Some(line) = Line::read(&text[..end]) {
                self.obey(line);
            }
            text = match &text[end..] {
                [b'\r', b'\n', rest @ ..] | [_, rest @ ..] => rest,
                [] => &[],
            };
        }
    }

    fn obey(&mut self, line: Line<'_>) {
        match line.spelling {
            Spelling::Right => {}
            Spelling::Misspelled => self.remark(RemarkKind::MisspelledField),
            Spelling::WithoutColon => self.remark(RemarkKind::MissingColon),
        }
        match line.field {
            Field::Disallow => self.rule(false, line.value, line.holds),
            Field::Allow => self.rule(true, line.value, line.holds),
            Field::UserAgent => self.name(line.value),
            Field::CrawlDelay => {
                let crawl_delay = seconds(line.value);
                self.delay(Delays { crawl_delay, ..Delays::default() }, RemarkKind::BadCrawlDelay);
            }
            Field::RequestRate => {
                let request_rate = seconds_per_request(line.value);
                self.delay(Delays { request_rate, ..Delays::default() }, RemarkKind::BadRequestRate);
            }
            Field::Sitemap => self.sitemap(line.value),
            Field::Unused => self.remark(RemarkKind::UnusedField),
            Field::Unknown => self.remark(RemarkKind::UnknownField),
            Field::Unreadable => self.remark(RemarkKind::Unreadable),
        }
    }

    fn name(&mut self, name: &[u8]) {
        if self.names_are_closed || self.groups.is_empty() {
            self.close_group();
            let at = self.tape.len() as u32;
            self.groups.push(ParsedGroup { names: at, rules: at, size: Size::default() });
            self.names_are_closed = false;
            self.has_readers = false;
        }
        if name.is_empty() {
            self.remark(RemarkKind::EmptyUserAgent);
        }
        let at = self.tape.len() as u32;
        let as_written = tape::write_name(&mut self.tape, name, self.line);
        self.has_readers |= self.bots.name(&self.tape, at, (self.groups.len() - 1) as u32, as_written);
        if let Some(group) = self.groups.last_mut() {
            group.rules = self.tape.len() as u32;
        }
    }

    fn rule(&mut self, is_allow: bool, value: &[u8], holds: Holds) {
        let Some(group) = self.groups.last_mut() else { return self.remark(RemarkKind::OutsideGroup) };
        // An empty value is a rule line that matches nothing: RFC 9309 §2.2 has `[path-pattern]` optional.
        self.names_are_closed = true;
        // Every path begins with `/`, so nothing else can match, and the index need not think of it.
        match value.first() {
            None => return,
            Some(b'/' | b'*') => {}
            Some(_) => return self.remark(RemarkKind::NeverMatches),
        }
        if !self.has_readers {
            return;
        }
        let marks = tape::marks(is_allow, value, holds);
        group.size += Size {
            rules: 1,
            starred: (marks & tape::STARRED != 0).into(),
            two_forms: (marks & tape::TWO_FORMS != 0).into(),
        };
        tape::write_rule(&mut self.tape, marks, value, self.line);
    }

    fn delay(&mut self, delays: Delays, or: RemarkKind) {
        if self.groups.is_empty() {
            return self.remark(RemarkKind::OutsideGroup);
        }
        if delays == Delays::default() {
            return self.remark(or);
        }
        match self.delays.last_mut() {
            Some((keys, longest)) if *keys == self.bots.len() => *longest = longest.longest(delays),
            _ => self.delays.push((self.bots.len(), delays)),
        }
    }

    fn sitemap(&mut self, value: &[u8]) {
        let is_absolute = ["http://", "https://"]
            .iter()
            .any(|scheme| value.get(..scheme.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(scheme.as_bytes())));
        match std::str::from_utf8(value) {
            Ok(address) if is_absolute => {
                self.sitemaps.push_str(address);
                self.sitemaps.push('\n');
            }
            _ => self.remark(RemarkKind::BadSitemap),
        }
    }

    /// Gives each name of the last group the longest delays that stand below it.
    fn close_group(&mut self) {
        let mut end = self.bots.len();
        let mut longest = Delays::default();
        while let Some((keys, delays)) = self.delays.pop() {
            self.bots.set_delays(keys..end, longest);
            longest = longest.longest(delays);
            end = keys;
        }
        let first = self.bots.first_key_of((self.groups.len() as u32).wrapping_sub(1));
        self.bots.set_delays(first..end, longest);
    }

    fn remark(&mut self, kind: RemarkKind) {
        if self.remarks.len() < MAX_REMARKS {
            self.remarks.push(Remark { kind, line: self.line });
        } else {
            self.remarks_left_out += 1;
        }
    }

    fn finish(mut self, is_truncated: bool) -> Parsed {
        self.close_group();
        self.sitemaps.shrink_to_fit();
        self.remarks.shrink_to_fit();
        Parsed {
            tape: self.tape.into_boxed_slice(),
            groups: self.groups,
            bots: self.bots,
            sitemaps: self.sitemaps,
            remarks: self.remarks,
            remarks_left_out: self.remarks_left_out,
            is_truncated,
        }
    }
}

/// A decimal number of seconds. By hand, since a float parser takes `NaN`, `inf`, `1e3` and `-5`; too long a wait saturates.
fn seconds(value: &[u8]) -> Option<Duration> {
    let (whole, fraction) = match memchr::memchr(b'.', value) {
        Some(point) => (&value[..point], &value[point + 1..]),
        None => (value, &[][..]),
    };
    let has_digits = !whole.is_empty() || !fraction.is_empty();
    if !has_digits || !whole.iter().chain(fraction).all(u8::is_ascii_digit) {
        return None;
    }
    let digit = |octet: &u8| u64::from(octet - b'0');
    let seconds = whole.iter().fold(0u64, |sum, octet| sum.saturating_mul(10).saturating_add(digit(octet)));
    let nanos = fraction.iter().chain(&[b'0'; 9]).take(9).fold(0, |sum, octet| sum * 10 + digit(octet));
    Some(Duration::new(seconds, nanos as u32))
}

/// `Request-rate: 1/10s`, the time for each request: seconds, or `m` or `h`. The hours that may follow (`1800-1900`, UTC) would need a
/// clock, so the rate counts at any time: asking too seldom is no offence.
fn seconds_per_request(value: &[u8]) -> Option<Duration> {
    let rate = value.split(|octet| octet.is_ascii_whitespace()).next()?;
    let slash = memchr::memchr(b'/', rate)?;
    let number = |digits: &[u8]| -> Option<u64> { std::str::from_utf8(digits).ok()?.parse().ok() };
    let (time, unit) = match &rate[slash + 1..] {
        [time @ .., b's' | b'S'] => (time, 1),
        [time @ .., b'm' | b'M'] => (time, 60),
        [time @ .., b'h' | b'H'] => (time, 3600),
        time => (time, 1),
    };
    let requests = number(&rate[..slash]).filter(|requests| *requests > 0)?;
    let millis = number(time)?.saturating_mul(unit).saturating_mul(1000);
    Some(Duration::from_millis(millis.div_ceil(requests)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_plain_decimals() {
        for (value, expected) in [
            ("10", Some(Duration::from_secs(10))),
            ("0.5", Some(Duration::from_millis(500))),
            (".25", Some(Duration::from_millis(250))),
            ("3.", Some(Duration::from_secs(3))),
            ("0", Some(Duration::ZERO)),
            ("0.0000000019", Some(Duration::from_nanos(1))),
            ("99999999999999999999999.999999999", Some(Duration::MAX)),
            ("", None),
            (".", None),
            ("1.2.3", None),
            ("-5", None),
            ("+5", None),
            ("5s", None),
            ("1e3", None),
            ("NaN", None),
            ("inf", None),
            ("[5]", None),
            ("5,5", None),
        ] {
            assert_eq!(seconds(value.as_bytes()), expected, "{value}");
        }
    }

    #[test]
    fn a_request_rate_is_a_delay() {
        for (value, expected) in [
            ("1/10s", Some(10_000)),
            ("1/10", Some(10_000)),
            ("30/1m", Some(2000)),
            ("100/1h", Some(36_000)),
            ("3/1s", Some(334)),
            ("1/10s 1800-1900", Some(10_000)),
            ("1/0", Some(0)),
            ("10", None),
            ("0/5", None),
            ("1/", None),
            ("/5", None),
            ("1/5d", None),
            ("1.5/5", None),
            ("-1/5", None),
            ("", None),
        ] {
            assert_eq!(seconds_per_request(value.as_bytes()), expected.map(Duration::from_millis), "{value}");
        }
    }

    #[test]
    fn rfc9309_2_5_a_cut_line_is_dropped() {
        for (body, max, kept) in [
            ("ab\ncd\nef", 8, "ab\ncd\nef"),
            ("ab\ncd\nef", 7, "ab\ncd\n"),
            ("ab\ncd\nef", 6, "ab\ncd\n"),
            ("ab\ncd\nef", 5, "ab\ncd"),
            ("ab\rcd", 4, "ab\r"),
            ("abcd", 2, ""),
            ("abcd", 0, ""),
        ] {
            assert_eq!(whole_lines(body.as_bytes(), max), kept.as_bytes(), "{body:?} {max}");
        }
    }

    #[test]
    fn the_byte_order_mark_is_no_part_of_the_text() {
        for (body, text) in [
            (&b"\xEF\xBB\xBFa"[..], "a"),
            (b"\xEF\xBBa", "a"),
            (b"\xEFa", "a"),
            (b"\xFF\xFEa\0\xE9\0", "a\u{e9}"),
            (b"\xFE\xFF\0a\0\n", "a\n"),
            (b"\xFF\xFEa", ""),
            (b"a", "a"),
        ] {
            assert_eq!(*decoded(body), *text.as_bytes(), "{body:?}");
        }
    }
}
