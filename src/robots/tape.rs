//! Names and rules as written, one after another in one allocation.
//!
//! A proxy keeps many thousands of parsed files, so a parsed one must not weigh more than its text. A rule costs its value and three to five
//! octets: two with length and marks, read on every comparison and so of fixed width, then the value, then the line in seven bits an octet.
//! What is found by position (`at`, an offset) needs no table of its own. The normal form of a rule is not stored: [`super::normal`] makes
//! it while it is read.

use memchr::memchr;

use super::normal::{self, Form, Holds, Normal, Side};

/// Facts about a rule that are settled when it is written down.
pub(super) type Marks = u16;
/// An `Allow`; otherwise a `Disallow`.
pub(super) const ALLOW: Marks = 1;
/// As written it is not in normal form.
pub(super) const ODD: Marks = 2;
/// Its second normal form differs from the first.
pub(super) const TWO_FORMS: Marks = 4;
/// It has a star that is not its last octet, which would be no more than a beginning.
pub(super) const STARRED: Marks = 8;
const MARK_BITS: u32 = 4;

/// A length that does not fit into the two octets: it follows in a number of its own.
const LONG: u16 = u16::MAX >> MARK_BITS;

/// Longest text that can be written down, so that offsets and lengths are 32 bits with room to spare. Chosen; 500 times the limit.
pub(super) const LONGEST: usize = 1 << 28;

/// A rule that is written on the tape.
#[derive(Clone, Copy)]
pub(super) struct Written<'a> {
    pub(super) at: u32,
    pub(super) marks: Marks,
    pub(super) value: &'a [u8],
    after: &'a [u8],
}

impl<'a> Written<'a> {
    pub(super) fn line(&self) -> u32 {
        number(self.after).0
    }

    pub(super) fn is_allow(&self) -> bool {
        self.marks & ALLOW != 0
    }

    /// Written in normal form, so that `form` is the value itself.
    pub(super) fn is_plain(&self, form: Form) -> bool {
        self.marks & ODD == 0 && (form == Form::First || self.marks & TWO_FORMS == 0)
    }

    /// Specificity, RFC 9309 §2.2.2: "the most octets", `*` and `$` counted.
    pub(super) fn strength(&self) -> u32 {
        if self.marks & ODD == 0 {
            return self.value.len() as u32;
        }
        let (text, is_anchored) = split_anchor(self.value);
        Normal::new(text, Side::Rule, Form::First).count() as u32 + u32::from(is_anchored)
    }
}

/// A rule's text and whether `$` ties it to the end of the path.
pub(super) fn split_anchor(value: &[u8]) -> (&[u8], bool) {
    match value {
        [text @ .., b'$'] => (text, true),
        text => (text, false),
    }
}

/// Writes a rule; the value must be shorter than [`LONGEST`].
pub(super) fn write_rule(tape: &mut Vec<u8>, marks: Marks, value: &[u8], line: u32) {
    let len = u16::try_from(value.len()).unwrap_or(LONG).min(LONG);
    tape.extend_from_slice(&(len << MARK_BITS | marks).to_le_bytes());
    if len == LONG {
        write_number(tape, value.len() as u32);
    }
    tape.extend_from_slice(value);
    write_number(tape, line);
}

/// The rule at `at`.
#[inline]
pub(super) fn rule(tape: &[u8], at: u32) -> Written<'_> {
    let rest = &tape[at as usize..];
    let head = u16::from_le_bytes([rest[0], rest[1]]);
    let (mut len, mut rest) = (u32::from(head >> MARK_BITS), &rest[2..]);
    if len == u32::from(LONG) {
        (len, rest) = number(rest);
    }
    let (value, after) = rest.split_at(len as usize);
    Written { at, marks: head & ((1 << MARK_BITS) - 1), value, after }
}

/// The rules from `at` to `end`, in the order of the file.
pub(super) fn rules(tape: &[u8], mut at: u32, end: u32) -> impl Iterator<Item = Written<'_>> + Clone {
    std::iter::from_fn(move || {
        (at < end).then(|| {
            let rule = rule(tape, at);
            at = (tape.len() - number(rule.after).1.len()) as u32;
            rule
        })
    })
}

/// Marks of a rule with this kind and value, which holds what `holds` says.
pub(super) fn marks(is_allow: bool, value: &[u8], holds: Holds) -> Marks {
    let (text, is_anchored) = split_anchor(value);
    let mut marks = if is_allow { ALLOW } else { 0 };
    if holds & normal::STAR != 0 && memchr(b'*', text).is_some_and(|star| is_anchored || star + 1 < text.len()) {
        marks |= STARRED;
    }
    let has_inner_dollar = holds & normal::DOLLAR != 0 && memchr(b'$', text).is_some();
    if holds & (normal::RAW | normal::PERCENT) == 0 && !has_inner_dollar {
        return marks;
    }
    let first = || Normal::new(text, Side::Rule, Form::First);
    if !first().eq(text.iter().copied()) {
        marks |= ODD;
    }
    if holds & normal::PERCENT != 0 && !Normal::new(text, Side::Rule, Form::Second).eq(first()) {
        marks |= TWO_FORMS;
    }
    marks
}

/// A `User-agent` line that is written on the tape; its name is UTF-8, octets that were not are `?`.
#[derive(Clone, Copy)]
pub(super) struct Named<'a> {
    pub(super) at: u32,
    pub(super) name: &'a [u8],
    after: &'a [u8],
}

impl Named<'_> {
    pub(super) fn line(&self) -> u32 {
        number(self.after).0
    }
}

/// Whether the name stands on the tape as it is.
pub(super) fn write_name(tape: &mut Vec<u8>, name: &[u8], line: u32) -> bool {
    write_number(tape, name.len() as u32);
    let mut valid = tape.len();
    tape.extend_from_slice(name);
    let is_utf8 = std::str::from_utf8(name).is_ok();
    while let Err(error) = std::str::from_utf8(&tape[valid..]) {
        valid += error.valid_up_to();
        tape[valid] = b'?';
    }
    write_number(tape, line);
    is_utf8
}

pub(super) fn name(tape: &[u8], at: u32) -> Named<'_> {
    let (len, rest) = number(&tape[at as usize..]);
    let (name, after) = rest.split_at(len as usize);
    Named { at, name, after }
}

/// The names from `at` to `end`.
pub(super) fn names(tape: &[u8], mut at: u32, end: u32) -> impl Iterator<Item = Named<'_>> {
    std::iter::from_fn(move || {
        (at < end).then(|| {
            let named = name(tape, at);
            at = (tape.len() - number(named.after).1.len()) as u32;
            named
        })
    })
}

fn write_number(tape: &mut Vec<u8>, mut number: u32) {
    while number >= 0x80 {
        tape.push(number as u8 | 0x80);
        number >>= 7;
    }
    tape.push(number as u8);
}

/// The number at the beginning of `tape`, and what follows it.
fn number(tape: &[u8]) -> (u32, &[u8]) {
    let mut number = 0;
    let mut shift = 0;
    let mut rest = tape;
    while let [octet, after @ ..] = rest {
        number |= u32::from(octet & 0x7F) << shift;
        rest = after;
        if octet & 0x80 == 0 {
            break;
        }
        shift += 7;
    }
    (number, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_back_what_was_written() {
        let values: Vec<Vec<u8>> = [0, 1, 127, 4094, 4095, 4096, 70_000].map(|len| vec![b'a'; len]).into();
        let mut tape = Vec::new();
        for (line, value) in (1..).map(|n: u32| n * n * n * 1000).zip(&values) {
            write_rule(&mut tape, ALLOW | TWO_FORMS, value, line);
        }
        let end = tape.len() as u32;
        let read: Vec<_> = rules(&tape, 0, end).map(|rule| (rule.value.to_vec(), rule.line())).collect();
        assert_eq!(read, values.into_iter().zip((1..).map(|n: u32| n * n * n * 1000)).collect::<Vec<_>>());
        assert!(rules(&tape, 0, end).all(|rule| rule.marks == ALLOW | TWO_FORMS));
    }

    #[test]
    fn names_are_made_utf8_without_growing() {
        let mut tape = Vec::new();
        for name in [&b"caf\xe9"[..], "caf\u{e9}".as_bytes(), b"\xff\xfe", b""] {
            write_name(&mut tape, name, 7);
        }
        let read: Vec<_> = names(&tape, 0, tape.len() as u32).map(|named| named.name.to_vec()).collect();
        assert_eq!(read, [&b"caf?"[..], "caf\u{e9}".as_bytes(), b"??", b""]);
    }

    #[test]
    fn marks_tell_odd_rules() {
        for (value, expected) in [
            ("/a*b$", STARRED),
            ("/a*$", STARRED),
            ("/a*", 0),
            ("*", 0),
            ("**", STARRED),
            ("/a$", 0),
            ("/a$b", ODD),
            ("/a$$", ODD),
            ("/%7E", ODD),
            ("/%2F", 0),
            ("/%2f", ODD),
            ("/%3A", TWO_FORMS),
            ("/%3a", ODD | TWO_FORMS),
            ("/?%26", 0),
            ("/%", 0),
            ("/é", ODD),
        ] {
            assert_eq!(marks(false, value.as_bytes(), normal::holds(value.as_bytes())), expected, "{value}");
        }
    }
}
