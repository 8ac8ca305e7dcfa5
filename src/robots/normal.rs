//! The normal form in which rules and paths are compared.
//!
//! RFC 9309 §2.2.2 compares octets after percent-encoding what a URI cannot hold and decoding what never needed an escape. Both sides go
//! through the same iterator, so no position of a path is treated otherwise than the same position of a rule. An iterator and not a buffer:
//! almost every rule is in normal form as written, and the few that are not need no second copy in memory.
//!
//! There are two forms. The first is what every careful parser does. In the second, reserved characters that mean the same escaped or raw
//! (`/wiki/Talk:` and `/wiki/Talk%3A`) are raw, as the table in §2.2.2 has it; a rule matches if it matches in either.

/// Whose text it is: `*` is a wildcard in a rule and an octet like others in a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Rule,
    Path,
}

/// Which of the two normal forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    First,
    Second,
}

/// The octets of a text in normal form.
///
/// An end anchor is no part of the text: take the final `$` off a rule first, since every `$` that is seen here becomes `%24`.
#[derive(Clone)]
pub(super) struct Normal<'a> {
    text: &'a [u8],
    side: Side,
    form: Form,
    in_query: bool,
    held: [u8; 2],
    holds: u8,
}

impl<'a> Normal<'a> {
    pub(super) fn new(text: &'a [u8], side: Side, form: Form) -> Normal<'a> {
        Normal { text, side, form, in_query: false, held: [0; 2], holds: 0 }
    }

    fn escape(&mut self, octet: u8) -> u8 {
        self.held = [HEX[usize::from(octet >> 4)], HEX[usize::from(octet & 15)]];
        self.holds = 2;
        b'%'
    }
}

const HEX: &[u8; 16] = b"0123456789ABCDEF";

impl Iterator for Normal<'_> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        if self.holds > 0 {
            self.holds -= 1;
            return Some(self.held[1 - usize::from(self.holds)]);
        }
        let (&octet, rest) = self.text.split_first()?;
        self.text = rest;
        Some(match octet {
            b'%' => match escaped(rest) {
                Some(octet) => {
                    self.text = &rest[2..];
                    let raw =
                        is_unreserved(octet) || self.form == Form::Second && has_two_spellings(octet, self.in_query);
                    if raw { octet } else { self.escape(octet) }
                }
                // A lone `%` is left as it stands: `Disallow: /*%` means "any escape" (ebay writes so).
                None => octet,
            },
            b'*' if self.side == Side::Rule => octet,
            b'?' => {
                self.in_query = true;
                octet
            }
            _ if is_written_escaped(octet) => self.escape(octet),
            _ => octet,
        })
    }
}

/// The octet that the two hexadecimal digits after a `%` stand for.
fn escaped(after: &[u8]) -> Option<u8> {
    let [high, low, ..] = *after else { return None };
    let digit = |octet: u8| char::from(octet).to_digit(16);
    Some((digit(high)? << 4 | digit(low)?) as u8)
}

/// RFC 3986 §2.3.
fn is_unreserved(octet: u8) -> bool {
    octet.is_ascii_alphanumeric() || matches!(octet, b'-' | b'.' | b'_' | b'~')
}

/// Octets that no URI holds raw (RFC 3986 §2), and `*` and `$`, whose escapes stand for the characters themselves (RFC 9309 §2.2.3).
fn is_written_escaped(octet: u8) -> bool {
    octet <= b' '
        || octet >= 0x7F
        || matches!(octet, b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}' | b'*' | b'$')
}

/// Reserved characters that mean the same raw and escaped. Not `/` and `?` in a path, where they part segments and begin the query; not
/// `&`, `=` and `+` in a query, where they part parameters and stand for a blank.
fn has_two_spellings(octet: u8, in_query: bool) -> bool {
    match octet {
        b':' | b'@' | b'!' | b'\'' | b'(' | b')' | b',' | b';' | b'[' | b']' => true,
        b'+' | b'&' | b'=' => !in_query,
        b'/' | b'?' => in_query,
        _ => false,
    }
}

/// What a text holds, found in one pass; each is a bit of [`Holds`].
pub(super) type Holds = u8;
/// Octets that are escaped in the normal form of a rule and of a path.
pub(super) const RAW: Holds = 1;
/// `%`, so that a closer look is needed.
pub(super) const PERCENT: Holds = 2;
pub(super) const STAR: Holds = 4;
pub(super) const DOLLAR: Holds = 8;
/// `#`, where a fragment begins.
pub(super) const HASH: Holds = 16;

pub(super) fn holds(text: &[u8]) -> Holds {
    text.iter().fold(0, |all, octet| all | CLASS[usize::from(*octet)])
}

static CLASS: [Holds; 256] = {
    let mut class = [0; 256];
    let mut octet = 0;
    while octet < 256 {
        class[octet] = match octet as u8 {
            b'%' => PERCENT,
            b'*' => STAR,
            b'$' => DOLLAR,
            b'#' => HASH,
            0..=b' ' | 0x7F.. | b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}' => RAW,
            _ => 0,
        };
        octet += 1;
    }
    class
};

#[cfg(test)]
mod tests {
    use super::*;

    fn normal(text: &str, side: Side, form: Form) -> String {
        Normal::new(text.as_bytes(), side, form).map(char::from).collect()
    }

    #[test]
    fn rfc9309_2_2_2_one_form_for_every_spelling() {
        for (text, rule, path, second) in [
            ("/foo/bar?baz=quz", "/foo/bar?baz=quz", "/foo/bar?baz=quz", "/foo/bar?baz=quz"),
            ("/%7e%2d%41", "/~-A", "/~-A", "/~-A"),
            ("/%c3%a9", "/%C3%A9", "/%C3%A9", "/%C3%A9"),
            ("/é \"", "/%C3%A9%20%22", "/%C3%A9%20%22", "/%C3%A9%20%22"),
            ("/a%", "/a%", "/a%", "/a%"),
            ("/%zz%4", "/%zz%4", "/%zz%4", "/%zz%4"),
            ("/%25%2f", "/%25%2F", "/%25%2F", "/%25%2F"),
            ("/*$x", "/*%24x", "/%2A%24x", "/*%24x"),
            ("/%2a%24", "/%2A%24", "/%2A%24", "/%2A%24"),
            ("/%3a%3d%3f?%3a%3d%3f%2f", "/%3A%3D%3F?%3A%3D%3F%2F", "/%3A%3D%3F?%3A%3D%3F%2F", "/:=%3F?:%3D?/"),
        ] {
            assert_eq!(normal(text, Side::Rule, Form::First), rule, "{text}");
            assert_eq!(normal(text, Side::Path, Form::First), path, "{text}");
            assert_eq!(normal(text, Side::Rule, Form::Second), second, "{text}");
        }
    }

    #[test]
    fn a_text_without_marks_is_its_own_normal_form() {
        for octet in 0..=255u8 {
            let text = [b'/', octet, b'x'];
            let same = Normal::new(&text, Side::Path, Form::First).eq(text.iter().copied());
            let marks = holds(&text) & (RAW | STAR | DOLLAR);
            assert_eq!(same, marks == 0, "{octet:#x}");
        }
    }
}
