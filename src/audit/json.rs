//! JSON, written field by field.
//!
//! The general writer looks at every octet of every name and value, one after the other, for what has to be escaped. Here names and our
//! own words are known to need none, and what others wrote is looked at sixteen octets at a time; only a value that holds something to
//! escape, which hardly any does, goes the general way. A record costs half as much.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::net::IpAddr;

/// What can stand in a field.
pub(super) trait Value {
    /// Whether there is a field at all.
    fn is_there(&self) -> bool {
        true
    }

    /// Appends the value.
    fn write(&self, text: &mut String);
}

/// Text with nothing in it to escape: our own words, times, digits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plain<'t>(pub(super) &'t str);

/// Appends an object: its fields in their order, without those whose value is not there.
macro_rules! object {
    ($text:expr, { $($name:ident: $value:expr,)* }) => {{
        let text: &mut String = $text;
        text.push('{');
        $($crate::audit::json::field(text, concat!("\"", stringify!($name), "\":"), &$value);)*
        $crate::audit::json::end(text);
    }};
}
pub(super) use object;

/// A field and a comma, for [`object`].
#[inline]
pub(super) fn field<V: Value + ?Sized>(text: &mut String, name: &'static str, value: &V) {
    if value.is_there() {
        text.push_str(name);
        value.write(text);
        text.push(',');
    }
}

/// The end of an object, instead of the last comma.
pub(super) fn end(text: &mut String) {
    if text.ends_with(',') {
        text.pop();
    }
    text.push('}');
}

/// RFC 8259 §7: the quotation mark, the reverse solidus and control characters have to be escaped.
fn needs_escape(value: &str) -> bool {
    let has_to_be = |octet: u8| (octet < b' ') | (octet == b'"') | (octet == b'\\');
    // No early end within a piece, and a length that is known: so the compiler looks at all of it at once.
    let is_in = |piece: &[u8; 16]| piece.iter().fold(false, |found, &octet| found | has_to_be(octet));
    let octets = value.as_bytes();
    match octets.last_chunk() {
        Some(last) => octets.as_chunks().0.iter().any(is_in) || is_in(last),
        None => octets.iter().copied().any(has_to_be),
    }
}

impl Value for Plain<'_> {
    fn write(&self, text: &mut String) {
        debug_assert!(!needs_escape(self.0), "{}", self.0);
        text.push('"');
        text.push_str(self.0);
        text.push('"');
    }
}

impl Value for str {
    fn write(&self, text: &mut String) {
        match needs_escape(self) {
            false => Plain(self).write(text),
            true => text.push_str(&serde_json::to_string(self).unwrap_or_else(|_| "\"\"".into())),
        }
    }
}

impl Value for Cow<'_, str> {
    fn write(&self, text: &mut String) {
        self.as_ref().write(text);
    }
}

impl<V: Value + ?Sized> Value for &V {
    fn is_there(&self) -> bool {
        (**self).is_there()
    }

    fn write(&self, text: &mut String) {
        (**self).write(text);
    }
}

/// `None` leaves the field out, and nothing else does.
impl<V: Value> Value for Option<V> {
    fn is_there(&self) -> bool {
        self.is_some()
    }

    fn write(&self, text: &mut String) {
        match self {
            Some(value) => value.write(text),
            None => text.push_str("null"),
        }
    }
}

/// An array; one that is empty leaves the field out.
impl<V: Value> Value for [V] {
    fn is_there(&self) -> bool {
        !self.is_empty()
    }

    fn write(&self, text: &mut String) {
        let mut before = '[';
        for value in self {
            text.push(std::mem::replace(&mut before, ','));
            value.write(text);
        }
        text.push(']');
    }
}

/// What is not so leaves the field out; `Some(false)` is written.
impl Value for bool {
    fn is_there(&self) -> bool {
        *self
    }

    fn write(&self, text: &mut String) {
        text.push_str(if *self { "true" } else { "false" });
    }
}

impl Value for IpAddr {
    fn write(&self, text: &mut String) {
        text.push('"');
        match self {
            IpAddr::V4(address) => {
                let mut digits = itoa::Buffer::new();
                let [first, rest @ ..] = address.octets();
                text.push_str(digits.format(first));
                for octet in rest {
                    text.push('.');
                    text.push_str(digits.format(octet));
                }
            }
            IpAddr::V6(address) => _ = write!(text, "{address}"),
        }
        text.push('"');
    }
}

macro_rules! integers {
    ($($integer:ty),*) => {
        $(impl Value for $integer {
            fn write(&self, text: &mut String) {
                text.push_str(itoa::Buffer::new().format(*self));
            }
        })*
    };
}

integers!(u16, u32, u64);

/// Finite, since JSON has no others.
impl Value for f64 {
    fn write(&self, text: &mut String) {
        // As the general writer has it: `1.0` for a whole number.
        let _ = write!(text, "{self:?}");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value as Json, json};

    use super::*;

    fn written<V: Value + ?Sized>(value: &V) -> String {
        let mut text = String::new();
        object!(&mut text, { value: *value, });
        text
    }

    fn read(text: &str) -> Json {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn fields_stand_in_order_and_those_without_a_value_are_left_out() {
        let mut text = String::new();
        object!(&mut text, {
            id: Plain("a"),
            agent: None::<&str>,
            capped: false,
            paced: Some(false),
            stripped: [0_u64; 0][..],
            client: "2001:db8::1".parse::<IpAddr>().unwrap(),
            crawl_delay_s: Some(30.0),
            names: ["a", "b\""][..],
            stale: true,
            line: Some(u32::MAX),
        });
        let expected = r#"{"id":"a","paced":false,"client":"2001:db8::1","crawl_delay_s":30.0,"names":["a","b\""],"stale":true,"line":4294967295}"#;
        assert_eq!(text, expected);
    }

    #[test]
    fn addresses_are_written_as_they_are_shown() {
        for address in ["0.0.0.0", "127.0.0.1", "192.168.10.255", "::", "2001:db8::1", "::ffff:1.2.3.4"] {
            let address: IpAddr = address.parse().unwrap();
            assert_eq!(read(&written(&address)), json!({ "value": address.to_string() }));
        }
    }

    #[test]
    fn an_object_without_fields_is_one() {
        assert_eq!(written(&false), "{}");
    }

    #[test]
    fn whatever_has_to_be_escaped_is() {
        // Each octet that stands alone, at all places of a value that is looked at in pieces.
        for character in (0..=0x7f).map(char::from).chain(['\u{80}', '\u{2028}', '\u{fffd}', '\u{1f600}']) {
            for before in [0, 1, 15, 16, 17, 31, 32, 39, 40] {
                for behind in [0, 1, 14, 15, 40] {
                    let value = format!("{}{character}{}", "x".repeat(before), "y".repeat(behind));
                    assert_eq!(
                        read(&written(value.as_str())),
                        json!({ "value": value }),
                        "{character:?} behind {before}"
                    );
                }
            }
        }
    }

    proptest! {
        #[test]
        fn any_value_is_read_as_it_was_written(value: String) {
            prop_assert_eq!(read(&written(value.as_str())), json!({ "value": value }));
        }

        #[test]
        fn seconds_are_written_as_the_general_writer_does(seconds in 0.0..1e9) {
            prop_assert_eq!(written(&seconds), json!({ "value": seconds }).to_string());
        }
    }
}
