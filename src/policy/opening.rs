//! What a connection or a tunnel begins with.
//!
//! The first octets tell TLS from HTTP, and a CONNECT from other requests. A CONNECT is read here and not like other requests,
//! since its target need not be one: five mainstream clients send an IPv6 address without brackets (`CONNECT ::1:443`). Everything else
//! is read elsewhere with its octets untouched, a CONNECT that is no HTTP included, so that there is one reading of what a request is.

use http::{HeaderMap, HeaderName, HeaderValue, header};

/// What is there.
#[derive(Debug)]
pub enum Opening {
    /// A TLS handshake.
    Tls,
    /// HTTP/1.1 in clear text.
    Http,
    /// HTTP/2, by its preface.
    Http2,
    /// A CONNECT.
    Connect(Connect),
    /// The head of a CONNECT, larger than it may be.
    TooLarge,
    /// Something else.
    Strange,
    /// Nothing: it has ended.
    Nothing,
    /// Too little for too long.
    Late,
}

/// The head of a CONNECT.
#[derive(Debug)]
pub struct Connect {
    /// What it asks for, as sent.
    pub target: String,
    /// Its header fields.
    pub headers: HeaderMap,
    /// HTTP/1.0, which Python's urllib sends.
    pub is_http10: bool,
    /// Octets of the head.
    pub length: usize,
}

impl Connect {
    /// Whether something belongs to the request behind its head. RFC 9110 §9.3.6 gives a CONNECT no content, so what that would be
    /// can be read in two ways.
    pub fn has_content(&self) -> bool {
        let length = self.headers.get_all(header::CONTENT_LENGTH).iter().any(|length| length.as_bytes() != b"0");
        length || self.headers.contains_key(header::TRANSFER_ENCODING)
    }

    /// Whether the client will ask no more on this connection, should this be refused.
    pub fn is_last(&self) -> bool {
        let says = |name: HeaderName, option: &str| {
            let values = self.headers.get_all(name);
            let mut options = values.iter().filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
            options.any(|named| named.trim().eq_ignore_ascii_case(option))
        };
        self.is_http10 || says(header::CONNECTION, "close") || says(PROXY_CONNECTION, "close")
    }
}

const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// What the octets so far are the beginning of; `None` while that is open. A CONNECT counts where it comes to the proxy itself.
pub fn opening(octets: &[u8], head_max: usize) -> Option<Opening> {
    if octets.len() < CONNECT.len() && CONNECT.starts_with(octets) {
        return None;
    }
    if !octets.starts_with(CONNECT) {
        return begins(octets);
    }
    // A client that sends octet by octet must not have its head parsed as often.
    let is_whole = [&b"\n\r\n"[..], b"\n\n"].iter().any(|end| memchr::memmem::find(octets, end).is_some());
    match if is_whole { connect(octets) } else { Ok(None) } {
        Ok(Some(connect)) if connect.length > head_max => Some(Opening::TooLarge),
        Ok(Some(connect)) => Some(Opening::Connect(connect)),
        Ok(None) if octets.len() > head_max => Some(Opening::TooLarge),
        Ok(None) => None,
        Err(httparse::Error::TooManyHeaders) => Some(Opening::TooLarge),
        // The reader of requests will find the same, and explains its refusal.
        Err(_) => Some(Opening::Http),
    }
}

const CONNECT: &[u8] = b"CONNECT ";

/// As many as other requests may have.
const HEADERS_MAX: usize = 100;

fn connect(octets: &[u8]) -> Result<Option<Connect>, httparse::Error> {
    let mut fields = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut fields);
    let httparse::Status::Complete(length) = request.parse(octets)? else { return Ok(None) };
    let mut headers = HeaderMap::with_capacity(request.headers.len());
    for field in request.headers.iter() {
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| httparse::Error::HeaderName)?;
        let value = HeaderValue::from_bytes(field.value).map_err(|_| httparse::Error::HeaderValue)?;
        headers.append(name, value);
    }
    let target = request.path.unwrap_or_default().to_owned();
    Ok(Some(Connect { target, headers, is_http10: request.version == Some(0), length }))
}

/// What the first octets inside a tunnel are the beginning of, where a CONNECT is a request like others; `None` while that is open.
///
/// A TLS record of a handshake begins with 0x16 (RFC 8446 §5.1). RFC 9110 §9.1 gives methods any token, but every registered one is
/// letters and hyphens. SSH's greeting is a token too: its digits tell it apart.
pub fn begins(octets: &[u8]) -> Option<Opening> {
    if octets.starts_with(PREFACE) {
        return Some(Opening::Http2);
    }
    if PREFACE.starts_with(octets) {
        return None;
    }
    if octets[0] == 0x16 {
        return Some(Opening::Tls);
    }
    let method = octets.split(|&octet| octet == b' ').next().unwrap_or_default();
    match !method.is_empty() && method.iter().all(|&octet| octet.is_ascii_alphabetic() || octet == b'-') {
        true => Some(Opening::Http),
        false => Some(Opening::Strange),
    }
}

/// RFC 9113 §3.4.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

#[cfg(test)]
mod tests {
    use super::*;

    fn told(octets: &str) -> String {
        match opening(octets.as_bytes(), 1000) {
            None => "more".into(),
            Some(Opening::Connect(connect)) => {
                let behind = &octets[connect.length..];
                format!("{}{}{}", connect.target, if connect.is_http10 { " 1.0" } else { "" }, behind)
            }
            Some(other) => format!("{other:?}"),
        }
    }

    #[test]
    fn the_first_octets_tell_what_comes() {
        let long = format!("CONNECT a.test:443 HTTP/1.1\r\nX: {}", "x".repeat(1000));
        for (octets, is) in [
            ("", "more"),
            ("C", "more"),
            ("CONNECT ", "more"),
            ("CONNECT a.test:443 HTTP/1.1\r\nHost: a.test", "more"),
            ("CONNECT a.test:443 HTTP/1.1\r\nHost: a.test\r\n\r\n", "a.test:443"),
            ("CONNECT a.test:443 HTTP/1.0\r\n\r\n", "a.test:443 1.0"),
            ("CONNECT ::1:443 HTTP/1.1\r\n\r\n\u{16}", "::1:443\u{16}"),
            ("CONNECT a.test:443 HTTP/1.1\n\n", "a.test:443"),
            ("CONNECT  HTTP/1.1\r\n\r\n", "Http"),
            ("CONNECT a b HTTP/1.1\r\n\r\n", "Http"),
            ("CONNECT a:1 HTTP/1.1\r\nA b: c\r\n\r\n", "Http"),
            ("CONNECTED http://a.test/ HTTP/1.1\r\n\r\n", "Http"),
            ("connect a.test:443 HTTP/1.1\r\n\r\n", "Http"),
            ("GET http://a.test/ HTTP/1.1\r\n\r\n", "Http"),
            ("P", "more"),
            ("POST http://a.test/ HTTP/1.1\r\n", "Http"),
            ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r", "more"),
            ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "Http2"),
            ("PRI * HTTP/2.0\r\n\r\n\r\n", "Http"),
            ("\u{16}\u{3}\u{1}", "Tls"),
            ("SSH-2.0-x\r\n", "Strange"),
            (&long, "TooLarge"),
        ] {
            assert_eq!(told(octets), is, "{octets:?}");
        }
    }

    #[test]
    fn a_connect_says_whether_anything_may_follow_its_refusal() {
        for (fields, last, content) in [
            ("", false, false),
            ("Connection: close\r\n", true, false),
            ("Connection: x, Close\r\n", true, false),
            ("Proxy-Connection: close\r\n", true, false),
            ("Proxy-Connection: keep-alive\r\nContent-Length: 0\r\n", false, false),
            ("Content-Length: 5\r\n", false, true),
            ("Transfer-Encoding: chunked\r\n", false, true),
        ] {
            let head = format!("CONNECT a.test:443 HTTP/1.1\r\n{fields}\r\n");
            let Some(Opening::Connect(connect)) = opening(head.as_bytes(), 1000) else { panic!("{head}") };
            assert_eq!((connect.is_last(), connect.has_content()), (last, content), "{fields}");
        }
    }
}
