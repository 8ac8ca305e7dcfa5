//! The path that is asked about: a request target from its first `/`, query included.
//!
//! It is matched as it goes upstream: slashes are not merged, dot segments not resolved, an empty query stays a query. Most targets are in
//! normal form as they are and are borrowed. Resolving dots is a second question that the caller asks
//! ([`without_dot_segments`]): `/open/../private` must not dodge a rule for `/private`, and RFC 9309 says nothing about it.

use std::borrow::Cow;

use memchr::memchr;

use super::normal::{self, Form, Normal, Side};

/// A path in both normal forms.
pub(super) struct Path<'a> {
    pub(super) first: Cow<'a, [u8]>,
    /// Only where it differs from the first.
    pub(super) second: Option<Vec<u8>>,
}

impl<'a> Path<'a> {
    /// A target that does not begin with `/`, as the empty one, is read as if it did; a fragment is cut off, since no request carries one.
    pub(super) fn new(mut target: &'a [u8]) -> Path<'a> {
        if !target.starts_with(b"/") {
            let rooted = [b"/", target].concat();
            let path = Path::new(&rooted);
            return Path { first: Cow::Owned(path.first.into_owned()), second: path.second };
        }
        let holds = normal::holds(target);
        if holds & normal::HASH != 0 {
            target = memchr(b'#', target).map_or(target, |at| &target[..at]);
        }
        let form = |form| Normal::new(target, Side::Path, form);
        if holds & !normal::HASH == 0 {
            return Path { first: Cow::Borrowed(target), second: None };
        }
        let is_normal = form(Form::First).eq(target.iter().copied());
        let first = if is_normal { Cow::Borrowed(target) } else { Cow::Owned(form(Form::First).collect()) };
        let has_two = holds & normal::PERCENT != 0 && !form(Form::Second).eq(first.iter().copied());
        let second = has_two.then(|| form(Form::Second).collect());
        Path { first, second }
    }

    /// RFC 9309 §2.2.2: "The /robots.txt URI is implicitly allowed."
    pub(super) fn is_robots_txt(&self) -> bool {
        *self.first == *b"/robots.txt"
    }
}

/// The target with `.` and `..` segments resolved as RFC 3986 §5.2.4 does, `%2e` counting as a dot; `None` if it has no such segment.
///
/// ```
/// use robots_proxy::robots::path::without_dot_segments;
/// assert_eq!(without_dot_segments(b"/open/%2E./private?a=..").as_deref(), Some(&b"/private?a=.."[..]));
/// assert_eq!(without_dot_segments(b"/a/...?x=/../"), None);
/// ```
pub fn without_dot_segments(target: &[u8]) -> Option<Vec<u8>> {
    let (path, after) = target.split_at(memchr::memchr2(b'?', b'#', target).unwrap_or(target.len()));
    let segments = || path.strip_prefix(b"/").unwrap_or(path).split(|octet| *octet == b'/');
    if !segments().any(|segment| dots(segment).is_some()) {
        return None;
    }
    let mut resolved = Vec::with_capacity(target.len());
    let mut ends_in_dots = false;
    for segment in segments() {
        let dots = dots(segment);
        ends_in_dots = dots.is_some();
        match dots {
            Some(1) => {}
            Some(_) => resolved.truncate(memchr::memrchr(b'/', &resolved).unwrap_or(0)),
            None => {
                resolved.push(b'/');
                resolved.extend_from_slice(segment);
            }
        }
    }
    // What a dot segment stood for is a folder.
    if ends_in_dots || resolved.is_empty() {
        resolved.push(b'/');
    }
    resolved.extend_from_slice(after);
    Some(resolved)
}

/// 1 for a segment that is `.`, 2 for `..`, in any spelling.
fn dots(mut segment: &[u8]) -> Option<u8> {
    let mut dots = 0;
    while !segment.is_empty() {
        segment = match segment {
            [b'.', rest @ ..] | [b'%', b'2', b'e' | b'E', rest @ ..] => rest,
            _ => return None,
        };
        dots += 1;
        if dots > 2 {
            return None;
        }
    }
    (dots > 0).then_some(dots)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc3986_5_2_4_dot_segments() {
        for (target, resolved) in [
            ("/a/b/c/./../../g", Some("/a/g")),
            ("/a/..", Some("/")),
            ("/..", Some("/")),
            ("/../../x", Some("/x")),
            ("/a/.", Some("/a/")),
            ("/a/b/..", Some("/a/")),
            ("/a//../b", Some("/a/b")),
            ("//..//b", Some("//b")),
            ("/a/%2e%2E/b?q=/./", Some("/b?q=/./")),
            ("/a/.%2e/b#/../", Some("/b#/../")),
            ("/a/.../b", None),
            ("/a/..b/b", None),
            ("/?/../", None),
            ("/", None),
            ("", None),
        ] {
            let got = without_dot_segments(target.as_bytes());
            assert_eq!(got.as_deref(), resolved.map(str::as_bytes), "{target}");
        }
    }

    #[test]
    fn the_usual_path_is_borrowed() {
        for (target, first, second) in [
            ("/a/b?c=d&e", "/a/b?c=d&e", None),
            ("", "/", None),
            ("#x", "/", None),
            ("a%3a", "/a%3A", Some("/a:")),
            ("/a#x%20", "/a", None),
            ("/a%3ab", "/a%3Ab", Some("/a:b")),
            ("/a%2fb", "/a%2Fb", None),
        ] {
            let path = Path::new(target.as_bytes());
            assert_eq!(*path.first, *first.as_bytes(), "{target}");
            assert_eq!(path.second.as_deref(), second.map(str::as_bytes), "{target}");
        }
        assert!(matches!(Path::new(b"/a?b=c").first, Cow::Borrowed(_)));
    }
}
