//! Where one request ends and the next begins, on a connection with HTTP/1.1.
//!
//! hyper reads requests, and does so strictly. One thing it mends without telling: of a request with both Content-Length and
//! Transfer-Encoding it drops the length (RFC 9112 §6.1 permits that). Such a request is how one is hidden inside another, and no
//! decent client sends it, so it shall be refused; but once hyper has it nobody can tell any more. So the octets are followed on their
//! way to hyper, only to see the heads as they were sent. Where this here and hyper could ever differ it gives up and follows no more:
//! nothing is decided by it but that one refusal, and behind it requests are written anew from what hyper read.

use http::{HeaderMap, header};

/// Follows the octets of one connection.
#[derive(Debug, Default)]
pub struct Framing {
    at: At,
    /// The head so far.
    head: Vec<u8>,
    /// Heads that were whole.
    heads: u64,
}

/// What the next octet belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum At {
    #[default]
    Head,
    /// A body with so many octets left, with a line end behind it if it is a chunk.
    Body { left: u64, chunk: bool },
    /// A line between chunks: the size, or the end of a chunk's data (`None`).
    Size(Option<u64>),
    /// From the first octet behind the size to the end of the line; so many octets follow.
    Extension(u64),
    /// A line of the trailer, with so many octets so far.
    Trailer(usize),
    /// Not HTTP/1.1, or not any more.
    Lost,
}

/// A request with two ends: a length, and chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ambiguous {
    /// Which request of the connection, counted from 1.
    pub nth: u64,
}

/// Whether the coding of a body is one that can be undone here: chunks and nothing else (RFC 9112 §6.1). hyper takes any coding in
/// front of them, and the origin would get octets of which it is not told how they are coded.
pub fn is_understood(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => true,
        (Some(coding), None) => coding.as_bytes().eq_ignore_ascii_case(b"chunked"),
        (Some(_), Some(_)) => false,
    }
}

/// Longer heads hyper refuses, with its largest buffer.
const HEAD_MAX: usize = 1024 * 1024;

impl Framing {
    /// Follows further octets.
    ///
    /// # Errors
    /// Among them is the head of an ambiguous request, or its end; what comes behind it is not followed.
    pub fn follow(&mut self, mut octets: &[u8]) -> Result<(), Ambiguous> {
        while !octets.is_empty() && self.at != At::Lost {
            let taken = self.step(octets)?;
            octets = &octets[taken..];
        }
        Ok(())
    }

    /// How many requests have come, if all of them are whole and nothing of a further one is there.
    pub fn requests(&self) -> Option<u64> {
        (self.at == At::Head && self.head.is_empty()).then_some(self.heads)
    }

    /// Takes some octets, one at least.
    fn step(&mut self, octets: &[u8]) -> Result<usize, Ambiguous> {
        let first = octets[0];
        self.at = match self.at {
            At::Head => return self.read_head(octets),
            At::Body { left, chunk } => {
                let taken = usize::try_from(left).map_or(octets.len(), |left| left.min(octets.len()));
                self.at = match (left - taken as u64, chunk) {
                    (0, false) => At::Head,
                    (0, true) => At::Size(None),
                    (left, chunk) => At::Body { left, chunk },
                };
                return Ok(taken);
            }
            At::Size(size) => in_size(size, first),
            At::Extension(0) if first == b'\n' => At::Trailer(0),
            At::Extension(left) if first == b'\n' => At::Body { left, chunk: true },
            At::Trailer(0) if first == b'\n' => At::Head,
            At::Trailer(_) if first == b'\n' => At::Trailer(0),
            At::Trailer(length) if first != b'\r' => At::Trailer(length + 1),
            same => same,
        };
        Ok(1)
    }

    fn read_head(&mut self, octets: &[u8]) -> Result<usize, Ambiguous> {
        // Most heads come in one piece, and need no copy.
        let mut pieces = std::mem::take(&mut self.head);
        let before = pieces.len();
        let head = match before {
            0 => octets,
            _ => {
                pieces.extend_from_slice(octets);
                &pieces
            }
        };
        // The parser is asked when there may be an end, not for every octet that comes.
        let (length, framed) = match may_end(&head[before.saturating_sub(3)..]).then(|| parse(head)) {
            Some(Some(whole @ (1.., _))) => whole,
            Some(None) => return Ok(self.lose(octets)),
            _ if head.len() > HEAD_MAX => return Ok(self.lose(octets)),
            // The parser skips empty lines in front of a request, so its end may be further on.
            _ => {
                self.head = if before == 0 { octets.to_vec() } else { pieces };
                return Ok(octets.len());
            }
        };
        self.heads += 1;
        self.at = match framed {
            Framed::Nothing => At::Head,
            Framed::Length(0) => At::Head,
            Framed::Length(left) => At::Body { left, chunk: false },
            Framed::Chunks => At::Size(Some(0)),
            Framed::Both => {
                self.lose(octets);
                return Err(Ambiguous { nth: self.heads });
            }
            Framed::Wrongly => At::Lost,
        };
        Ok(length.saturating_sub(before).max(1))
    }

    /// Follows no more; takes what is left.
    fn lose(&mut self, octets: &[u8]) -> usize {
        self.at = At::Lost;
        octets.len()
    }
}

fn may_end(octets: &[u8]) -> bool {
    memchr::memchr_iter(b'\n', octets).any(|at| matches!(&octets[at + 1..], [b'\n', ..] | [b'\r', b'\n', ..]))
}

/// How a request tells where its body ends.
enum Framed {
    Nothing,
    Length(u64),
    Chunks,
    Both,
    /// In a way that hyper refuses.
    Wrongly,
}

/// The length of a head, 0 where it is not whole, and how its body ends; `None` where it is no head. Looked through by hand: most of
/// it does not matter here, and what hyper's parser would refuse, hyper refuses.
fn parse(head: &[u8]) -> Option<(usize, Framed)> {
    let (mut start, mut is_request_line) = (0, true);
    let (mut length_field, mut is_coded) = (None, false);
    for end in memchr::memchr_iter(b'\n', head) {
        let line = head[start..end].strip_suffix(b"\r").unwrap_or(&head[start..end]);
        start = end + 1;
        match line {
            // The parser skips empty lines in front of a request.
            [] if is_request_line => {}
            _ if is_request_line => {
                is_request_line = false;
                if !(line.ends_with(b" HTTP/1.1") || line.ends_with(b" HTTP/1.0")) {
                    return None;
                }
            }
            [] => return Some((start, framed(length_field, is_coded))),
            [b'c' | b'C', ..] => length_field = length_field.or_else(|| value_of(line, b"content-length")),
            [b't' | b'T', ..] => is_coded |= value_of(line, b"transfer-encoding").is_some(),
            _ => {}
        }
    }
    Some((0, Framed::Nothing))
}

fn value_of<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (named, value) = line.split_at_checked(name.len())?;
    value.strip_prefix(b":").filter(|_| named.eq_ignore_ascii_case(name))
}

fn framed(length_field: Option<&[u8]>, is_coded: bool) -> Framed {
    match (length_field, is_coded) {
        (Some(_), true) => Framed::Both,
        (None, true) => Framed::Chunks,
        (None, false) => Framed::Nothing,
        (Some(first), false) => number(first).map_or(Framed::Wrongly, Framed::Length),
    }
}

fn number(text: &[u8]) -> Option<u64> {
    let digits = str::from_utf8(text).ok()?.trim_matches([' ', '\t']);
    let is_number = !digits.is_empty() && digits.bytes().all(|octet| octet.is_ascii_digit());
    is_number.then(|| digits.parse().ok()).flatten()
}

/// The octet of a chunk's size, in hex; or the line end behind a chunk's data.
fn in_size(size: Option<u64>, octet: u8) -> At {
    match (size, octet) {
        (None, b'\r') => At::Size(None),
        (None, b'\n') => At::Size(Some(0)),
        (None, _) => At::Lost,
        (Some(0), b'\n') => At::Trailer(0),
        (Some(size), b'\n') => At::Body { left: size, chunk: true },
        (Some(size), b';' | b' ' | b'\t' | b'\r') => At::Extension(size),
        (Some(size), digit) => match (char::from(digit).to_digit(16), size.checked_mul(16)) {
            (Some(digit), Some(size)) => At::Size(Some(size + u64::from(digit))),
            _ => At::Lost,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: &str = "POST http://a.test/ HTTP/1.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n";
    const EITHER: &str = "POST http://a.test/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\ncontent-length: 4\n\n";
    const GET: &str = "GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n";
    const CHUNKED: &str = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";

    /// The octet at which an ambiguous head is found, with the octets in pieces of every size: up to the end of the piece.
    fn ambiguous_at(octets: &str) -> Option<usize> {
        let found = |size: usize| {
            let mut framing = Framing::default();
            octets.as_bytes().chunks(size).position(|piece| framing.follow(piece).is_err())
        };
        let exact = found(1);
        for size in 2..=octets.len() {
            assert_eq!(found(size), exact.map(|octet| octet / size), "{octets:?} in pieces of {size}");
        }
        let mut framing = Framing::default();
        let nth = framing.follow(octets.as_bytes()).err().map(|ambiguous| ambiguous.nth);
        let heads = octets[..exact.unwrap_or(0)].matches(" HTTP/1.1\r\n").count() as u64;
        assert!(nth.is_none_or(|nth| (1..=heads).contains(&nth)), "{octets:?}: {nth:?} of {heads}");
        exact.map(|octet| octet + 1)
    }

    #[test]
    fn an_ambiguous_head_is_found_behind_bodies_of_every_kind() {
        for before in [
            String::new(),
            "\r\n\r\n".into(),
            GET.into(),
            GET.repeat(3),
            format!("POST / HTTP/1.1\r\nContent-Length: {}\r\n\r\n{BOTH}", BOTH.len()),
            "POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n".into(),
            format!("{CHUNKED}0\r\n\r\n"),
            format!("{CHUNKED}5\r\nhello\r\n0A;x=\"y\"\r\n0123456789\r\n0 \r\n\r\n"),
            format!("{CHUNKED}{:x}\r\n{BOTH}\r\n0\r\nX: y\r\nZ: w\r\n\r\n", BOTH.len()),
        ] {
            for both in [BOTH, EITHER] {
                let octets = format!("{before}{both}");
                assert_eq!(ambiguous_at(&format!("{octets}0\r\n\r\n{GET}")), Some(octets.len()), "{octets}");
            }
        }
    }

    #[test]
    fn what_is_not_ambiguous_or_no_http_is_left_alone() {
        for octets in [
            "",
            GET,
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            "\u{16}\u{3}\u{1}\n\n",
            "GET / HTTP/1.1\r\nHo st: x\r\n\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: +4\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        ] {
            assert_eq!(ambiguous_at(octets), None, "{octets:?}");
        }
        let hidden = format!("POST / HTTP/1.1\r\nContent-Length: {}\r\n\r\n{BOTH}", BOTH.len());
        assert_eq!(ambiguous_at(&hidden), None, "a body may hold anything");
    }

    #[test]
    fn between_requests_is_where_the_last_is_whole_and_nothing_follows() {
        let body = format!("{CHUNKED}5\r\nhello\r\n0\r\n\r\n");
        for (octets, requests) in [
            ("", Some(0)),
            ("\r\n", None),
            (&GET[..10], None),
            (GET, Some(1)),
            (&GET.repeat(3), Some(3)),
            (&format!("{GET}\r\n"), None),
            (CHUNKED, None),
            (&body[..body.len() - 1], None),
            (&body, Some(1)),
            (BOTH, None),
        ] {
            for size in 1..=octets.len().max(1) {
                let mut framing = Framing::default();
                let _ = octets.as_bytes().chunks(size).try_for_each(|piece| framing.follow(piece));
                assert_eq!(framing.requests(), requests, "{octets:?} in pieces of {size}");
            }
        }
    }

    #[test]
    fn a_coding_is_chunks_alone() {
        for (values, understood) in [
            (&[][..], true),
            (&["chunked"], true),
            (&["Chunked"], true),
            (&["gzip, chunked"], false),
            (&["chunked, chunked"], false),
            (&["chunked", "chunked"], false),
            (&["identity"], false),
        ] {
            let headers = values.iter().map(|value| (header::TRANSFER_ENCODING, value.parse().unwrap()));
            assert_eq!(is_understood(&headers.collect()), understood, "{values:?}");
        }
    }

    #[test]
    fn a_head_without_an_end_is_held_no_longer_than_hyper_holds_it() {
        let mut framing = Framing::default();
        for _ in 0..2000 {
            framing.follow(&[b'x'; 1024]).unwrap();
        }
        assert_eq!((framing.at, framing.head.capacity()), (At::Lost, 0));
    }
}
