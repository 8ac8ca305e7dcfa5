//! Heads of messages, read and written (RFC 9112 §2.1).
//!
//! Names of fields mean the same in any case, but some servers and clients do not know that, and a client may be told by how it spells
//! them. So how they were spelt is kept beside them, and they are written so again.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, Version, header};
use hyper::ext::ReasonPhrase;

use super::Malformed;
use crate::clock;

/// Fields of a request, as many as most servers take.
pub(crate) const REQUEST_FIELDS_MAX: usize = 100;

/// Fields of an answer; some sites send more than a hundred.
const RESPONSE_FIELDS_MAX: usize = 256;

/// Octets of a request's target; what [`Uri`] can hold.
const TARGET_MAX: usize = u16::MAX as usize - 1;

/// Fields that the proxy adds to most messages: Via, and one more.
const ADDED_MAX: usize = 2;

/// A head that was read.
#[derive(Debug)]
pub(crate) struct Head<T> {
    /// The message, without its body.
    pub(crate) message: T,
    /// What to look at in its header.
    pub(crate) has: Has,
}

/// How many fields there are of those that say where a message ends and what becomes of its connection. Most messages have few, and need
/// not be asked for each.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Has {
    /// Content-Length.
    pub(crate) lengths: usize,
    /// Transfer-Encoding.
    pub(crate) codings: usize,
    /// Connection.
    pub(crate) connections: usize,
    /// Expect.
    pub(crate) expectations: usize,
}

/// In the extensions of a message: its head as it came, and where in it the fields are.
#[derive(Clone, Debug)]
struct Spelling {
    head: Bytes,
    fields: Arc<[Field]>,
}

#[derive(Clone, Debug)]
struct Field {
    name: Range<u32>,
    value: Range<u32>,
}

/// When it is worth to read a head that comes bit by bit: at its first octets, which tell whether it is one, and when a line is whole.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    looked_at: usize,
}

impl Lines {
    /// Whether there is something new to read among the octets so far.
    pub(crate) fn are_new_in(&mut self, octets: &[u8]) -> bool {
        let before = std::mem::replace(&mut self.looked_at, octets.len());
        let new = octets.get(before..).unwrap_or_default();
        before == 0 && !new.is_empty() || memchr::memchr(b'\n', new).is_some()
    }
}

/// Takes the head of a request from the octets that have come; `None` where it is not whole.
///
/// # Errors
/// It is no head.
pub(crate) fn read_request(octets: &mut BytesMut) -> Result<Option<Head<Request<()>>>, Malformed> {
    let mut fields = [const { MaybeUninit::uninit() }; REQUEST_FIELDS_MAX];
    let mut parsed = httparse::Request::new(&mut []);
    let config = httparse::ParserConfig::default();
    let length = match config.parse_request_with_uninit_headers(&mut parsed, octets, &mut fields) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err(unreadable(error)),
    };
    let (method, path) = (parsed.method.unwrap_or_default(), parsed.path.unwrap_or_default());
    let method = Method::from_bytes(method.as_bytes()).map_err(|_| Malformed::Part("method"))?;
    if path.len() > TARGET_MAX {
        return Err(Malformed::TooLarge);
    }
    let (path, version) = (place(octets, path.as_bytes()), version(parsed.version));
    let fields = places(octets, parsed.headers);
    let head = octets.split_to(length).freeze();
    let mut request = Request::new(());
    *request.method_mut() = method;
    *request.uri_mut() = Uri::from_maybe_shared(slice(&head, &path)).map_err(|_| Malformed::Part("target"))?;
    *request.version_mut() = version;
    let has = read_fields(request.headers_mut(), &head, &fields)?;
    request.extensions_mut().insert(Spelling { head, fields });
    Ok(Some(Head { message: request, has }))
}

/// Takes the head of an answer from the octets that have come; `None` where it is not whole.
///
/// # Errors
/// It is no head.
pub(crate) fn read_response(octets: &mut BytesMut) -> Result<Option<Head<Response<()>>>, Malformed> {
    let mut fields = [const { MaybeUninit::uninit() }; RESPONSE_FIELDS_MAX];
    let mut parsed = httparse::Response::new(&mut []);
    let config = httparse::ParserConfig::default();
    let length = match config.parse_response_with_uninit_headers(&mut parsed, octets, &mut fields) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err(unreadable(error)),
    };
    let status = parsed.code.and_then(|code| StatusCode::from_u16(code).ok()).ok_or(Malformed::Part("status"))?;
    let phrase = parsed.reason.filter(|&phrase| Some(phrase) != status.canonical_reason());
    let phrase = phrase.and_then(|phrase| ReasonPhrase::try_from(phrase.as_bytes()).ok());
    let (version, fields) = (version(parsed.version), places(octets, parsed.headers));
    let head = octets.split_to(length).freeze();
    let mut response = Response::new(());
    *response.status_mut() = status;
    *response.version_mut() = version;
    let has = read_fields(response.headers_mut(), &head, &fields)?;
    if let Some(phrase) = phrase {
        response.extensions_mut().insert(phrase);
    }
    response.extensions_mut().insert(Spelling { head, fields });
    Ok(Some(Head { message: response, has }))
}

fn unreadable(error: httparse::Error) -> Malformed {
    match error {
        httparse::Error::TooManyHeaders => Malformed::TooLarge,
        error => Malformed::Head(error),
    }
}

fn version(minor: Option<u8>) -> Version {
    if minor == Some(0) { Version::HTTP_10 } else { Version::HTTP_11 }
}

/// Where in the octets a part of them is. Their length is below 4 GiB, since heads are limited.
fn place(octets: &[u8], part: &[u8]) -> Range<u32> {
    let start = part.as_ptr() as usize - octets.as_ptr() as usize;
    start as u32..(start + part.len()) as u32
}

fn places(octets: &[u8], fields: &[httparse::Header<'_>]) -> Arc<[Field]> {
    let field = |field: &httparse::Header<'_>| Field {
        name: place(octets, field.name.as_bytes()),
        value: place(octets, field.value),
    };
    fields.iter().map(field).collect()
}

fn slice(head: &Bytes, place: &Range<u32>) -> Bytes {
    head.slice(place.start as usize..place.end as usize)
}

fn read_fields(to: &mut HeaderMap, head: &Bytes, fields: &[Field]) -> Result<Has, Malformed> {
    let mut has = Has::default();
    to.reserve(fields.len() + ADDED_MAX);
    for Field { name, value } in fields {
        let name = HeaderName::from_bytes(&head[name.start as usize..name.end as usize]);
        let name = name.map_err(|_| Malformed::Part("name"))?;
        match name {
            header::CONTENT_LENGTH => has.lengths += 1,
            header::TRANSFER_ENCODING => has.codings += 1,
            header::CONNECTION => has.connections += 1,
            header::EXPECT => has.expectations += 1,
            _ => {}
        }
        let value = HeaderValue::from_maybe_shared(slice(head, value));
        to.append(name, value.map_err(|_| Malformed::Part("value"))?);
    }
    Ok(has)
}

impl Has {
    /// Whether no further message will come on the connection of one with these fields (RFC 9112 §9.3).
    pub(crate) fn says_last(&self, version: Version, headers: &HeaderMap) -> bool {
        let is_http10 = version == Version::HTTP_10;
        if self.connections == 0 {
            return is_http10;
        }
        let options = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
        let (mut keeps, mut closes) = (!is_http10, false);
        for option in options.flat_map(|value| value.split(',')).map(str::trim) {
            keeps |= option.eq_ignore_ascii_case("keep-alive");
            closes |= option.eq_ignore_ascii_case("close");
        }
        closes || !keeps
    }
}

/// Writes the head of a request, with its target as it stands there.
pub(crate) fn write_request<B>(to: &mut BytesMut, request: &Request<B>) {
    let spelling = request.extensions().get::<Spelling>();
    to.reserve(room(spelling, request.headers()) + request.uri().path().len());
    to.extend_from_slice(request.method().as_str().as_bytes());
    to.extend_from_slice(b" ");
    match (request.uri().authority(), request.uri().path_and_query()) {
        (None, Some(path)) => to.extend_from_slice(path.as_str().as_bytes()),
        _ => to.extend_from_slice(request.uri().to_string().as_bytes()),
    }
    to.extend_from_slice(b" HTTP/1.1\r\n");
    write_fields(to, spelling, request.headers());
    to.extend_from_slice(b"\r\n");
}

/// Writes the head of an answer, with a Date if it has none (RFC 9110 §6.6.1).
pub(crate) fn write_response<B>(to: &mut BytesMut, version: Version, response: &Response<B>) {
    let spelling = response.extensions().get::<Spelling>();
    to.reserve(room(spelling, response.headers()));
    to.extend_from_slice(if version == Version::HTTP_10 { b"HTTP/1.0 " } else { b"HTTP/1.1 " });
    to.extend_from_slice(response.status().as_str().as_bytes());
    to.extend_from_slice(b" ");
    match response.extensions().get::<ReasonPhrase>() {
        Some(phrase) => to.extend_from_slice(phrase.as_bytes()),
        None => to.extend_from_slice(response.status().canonical_reason().unwrap_or_default().as_bytes()),
    }
    to.extend_from_slice(b"\r\n");
    write_fields(to, spelling, response.headers());
    if !response.headers().contains_key(header::DATE) {
        to.extend_from_slice(format!("Date: {}\r\n", httpdate::fmt_http_date(clock::wall())).as_bytes());
    }
    to.extend_from_slice(b"\r\n");
}

/// Octets that a head will take, more or less.
fn room(spelling: Option<&Spelling>, headers: &HeaderMap) -> usize {
    spelling.map_or(64 * headers.len(), |spelling| spelling.head.len()) + 256
}

fn write_fields(to: &mut BytesMut, spelling: Option<&Spelling>, headers: &HeaderMap) {
    let mut speller = Speller { spelling, next: 0 };
    let mut fields = headers.iter().peekable();
    while let Some((name, value)) = fields.next() {
        match speller.spell(name, value) {
            Spelt::Field(from) => {
                // Most stand together as they came.
                let mut last = from;
                while let Some(next) = fields.peek().and_then(|(name, value)| speller.follows(last, name, value)) {
                    last = next;
                    fields.next();
                }
                to.extend_from_slice(speller.lines(from, last));
            }
            Spelt::Name(spelt) => with_value(to, |to| to.extend_from_slice(spelt), value),
            Spelt::Not => with_value(to, |to| with_capitals(to, name), value),
        }
        to.extend_from_slice(b"\r\n");
    }
}

fn with_value(to: &mut BytesMut, name: impl FnOnce(&mut BytesMut), value: &HeaderValue) {
    name(to);
    to.extend_from_slice(b": ");
    to.extend_from_slice(value.as_bytes());
}

/// A name that nobody has spelt as most programs do, `Proxy-Status` for `proxy-status`: some origins look for `Host`.
pub(crate) fn with_capitals(to: &mut BytesMut, name: &HeaderName) {
    let start = to.len();
    to.extend_from_slice(name.as_str().as_bytes());
    let mut begins = true;
    for letter in &mut to[start..] {
        if begins {
            letter.make_ascii_uppercase();
        }
        begins = *letter == b'-';
    }
}

/// How a field stood in the head that it came in.
enum Spelt<'a> {
    /// As it is: the field at this place.
    Field(usize),
    /// With another value.
    Name(&'a [u8]),
    /// Not at all.
    Not,
}

/// Looks up how fields were spelt. They are asked for in about the order in which they came, so that the next one is looked at first; a
/// name that is there twice is spelt in its two ways.
struct Speller<'a> {
    spelling: Option<&'a Spelling>,
    next: usize,
}

impl<'a> Speller<'a> {
    fn spell(&mut self, name: &HeaderName, value: &HeaderValue) -> Spelt<'a> {
        let Some(spelling @ Spelling { fields, .. }) = self.spelling else { return Spelt::Not };
        let mut in_order = (self.next..fields.len()).chain(0..self.next);
        let Some(at) = in_order.find(|&at| spelling.is_name(&fields[at], name)) else { return Spelt::Not };
        self.next = at + 1;
        match spelling.is_value(&fields[at], value) {
            true => Spelt::Field(at),
            false => Spelt::Name(spelling.octets(&fields[at].name)),
        }
    }

    /// The place behind a field, if this is the one there, and nothing but the end of a line stands between.
    fn follows(&mut self, field: usize, name: &HeaderName, value: &HeaderValue) -> Option<usize> {
        let spelling = self.spelling?;
        let (field, next) = (&spelling.fields[field], spelling.fields.get(field + 1)?);
        let follows = spelling.is_value(next, value)
            && spelling.is_name(next, name)
            && next.name.start == field.value.end + 2
            && spelling.octets(&(field.value.end..next.name.start)) == b"\r\n";
        follows.then(|| {
            self.next += 1;
            self.next - 1
        })
    }

    /// The lines from one field to another, without the last end of line.
    fn lines(&self, from: usize, to: usize) -> &'a [u8] {
        self.spelling
            .map_or(&[], |spelling| spelling.octets(&(spelling.fields[from].name.start..spelling.fields[to].value.end)))
    }
}

impl Spelling {
    fn octets(&self, place: &Range<u32>) -> &[u8] {
        &self.head[place.start as usize..place.end as usize]
    }

    fn is_name(&self, field: &Field, name: &HeaderName) -> bool {
        self.octets(&field.name).eq_ignore_ascii_case(name.as_str().as_bytes())
    }

    /// Whether a value is still the one that came in a field: nobody has changed it then.
    fn is_value(&self, field: &Field, value: &HeaderValue) -> bool {
        std::ptr::eq(self.octets(&field.value), value.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn octets(text: &str) -> BytesMut {
        text.as_bytes().into()
    }

    fn written(head: &str) -> String {
        let mut to = BytesMut::new();
        match head.starts_with("HTTP/") {
            true => {
                let response = read_response(&mut octets(head)).unwrap().unwrap().message;
                write_response(&mut to, response.version(), &response);
            }
            false => write_request(&mut to, &read_request(&mut octets(head)).unwrap().unwrap().message),
        }
        String::from_utf8(to.to_vec()).unwrap()
    }

    #[test]
    fn a_head_is_written_as_it_was_spelt() {
        for head in [
            "GET /a?b HTTP/1.1\r\nhost: a.test\r\nUSER-AGENT: x\r\nX-a: 1\r\n\r\n",
            "OPTIONS * HTTP/1.1\r\nHoSt: a.test\r\n\r\n",
            "GET http://a.test/a?b HTTP/1.1\r\nHost: a.test\r\n\r\n",
            "GET / HTTP/1.1\r\nX-A: 1\r\nx-a: 2\r\nHost: a.test\r\n\r\n",
            "HTTP/1.1 200 OK\r\nset-cookie: a\r\nSET-COOKIE: b\r\nDate: x\r\nContent-length: 0\r\n\r\n",
            "HTTP/1.0 404 Nowhere\r\nServer:  x\r\nDATE:y\r\nX-Empty:\r\n\r\n",
            "HTTP/1.1 299 \r\ndate: x\r\n\r\n",
        ] {
            assert_eq!(written(head), head);
        }
        let (spaced, plain) =
            ("GET / HTTP/1.1\r\nX-A: 1 \t\nx-b:2\r\n\r\n", "GET / HTTP/1.1\r\nX-A: 1\r\nx-b:2\r\n\r\n");
        assert_eq!(written(spaced), plain);
    }

    #[test]
    fn a_value_under_another_name_is_written_under_that() {
        let mut request =
            read_request(&mut octets("GET / HTTP/1.1\r\nX-A: 1\r\nX-B: 2\r\n\r\n")).unwrap().unwrap().message;
        let [one, other] = ["x-a", "x-b"].map(|name| request.headers_mut().remove(name).unwrap());
        request.headers_mut().insert("x-c", one);
        request.headers_mut().insert("x-d", other);
        let mut to = BytesMut::new();
        write_request(&mut to, &request);
        assert_eq!(to, "GET / HTTP/1.1\r\nX-C: 1\r\nX-D: 2\r\n\r\n");
    }

    #[test]
    fn names_that_nobody_has_spelt_have_capitals() {
        let head = read_request(&mut octets("GET / HTTP/1.1\r\nx-b: 1\r\nHOST: a\r\n\r\n")).unwrap();
        let mut request = head.unwrap().message;
        request.headers_mut().remove("x-b");
        request.headers_mut().append("x-robots-tag-2", HeaderValue::from_static("2"));
        request.headers_mut().append("host", HeaderValue::from_static("b"));
        let mut to = BytesMut::new();
        write_request(&mut to, &request);
        assert_eq!(to, "GET / HTTP/1.1\r\nHOST: a\r\nHOST: b\r\nX-Robots-Tag-2: 2\r\n\r\n");
    }

    #[test]
    fn what_is_no_head_is_told() {
        for (head, error) in [
            ("GET / HTTP/1.1\r\nHo st: x\r\n\r\n", Malformed::Head(httparse::Error::HeaderName)),
            ("GET / HTTP/1.1\r\nHost : x\r\n\r\n", Malformed::Head(httparse::Error::HeaderName)),
            ("GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n", Malformed::Head(httparse::Error::HeaderName)),
            ("GET / HTTP/3.0\r\n\r\n", Malformed::Head(httparse::Error::Version)),
            ("GET /a b HTTP/1.1\r\n\r\n", Malformed::Head(httparse::Error::Version)),
            ("GET http:// HTTP/1.1\r\n\r\n", Malformed::Part("target")),
        ] {
            assert_eq!(read_request(&mut octets(head)).unwrap_err(), error, "{head:?}");
        }
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(REQUEST_FIELDS_MAX + 1));
        assert_eq!(read_request(&mut octets(&many)).unwrap_err(), Malformed::TooLarge);
        let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(TARGET_MAX));
        assert_eq!(read_request(&mut octets(&long)).unwrap_err(), Malformed::TooLarge);
        assert_eq!(
            read_response(&mut octets("SSH-2.0-x\r\n\r\n")).unwrap_err(),
            Malformed::Head(httparse::Error::Version)
        );
    }

    #[test]
    fn a_head_is_read_when_a_line_of_it_is_new() {
        let (octets, mut lines) = (b"GET / HTTP/1.1\r\n\r\n", Lines::default());
        let read: Vec<_> = (0..=octets.len()).filter(|&to| lines.are_new_in(&octets[..to])).collect();
        assert_eq!(read, [1, 16, 18]);
    }

    #[test]
    fn rfc9112_9_3_a_connection_goes_on_unless_it_is_said_to_close() {
        for (version, connection, last) in [
            (Version::HTTP_11, "", false),
            (Version::HTTP_11, "keep-alive", false),
            (Version::HTTP_11, "x, Close", true),
            (Version::HTTP_10, "", true),
            (Version::HTTP_10, "Keep-Alive", false),
            (Version::HTTP_10, "keep-alive, close", true),
        ] {
            let field = if connection.is_empty() { String::new() } else { format!("Connection: {connection}\r\n") };
            let head = read_request(&mut octets(&format!("GET / {version:?}\r\n{field}\r\n"))).unwrap().unwrap();
            assert_eq!(head.has.says_last(version, head.message.headers()), last, "{version:?} {connection:?}");
        }
    }
}
