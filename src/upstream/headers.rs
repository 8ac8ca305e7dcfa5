//! Which header fields go on, and which belong to one connection (RFC 9110 §7.6.1).

use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue, Request, Response, Uri, Version};

use super::upload::RequestBody;
use super::{Error, WebSocket};
use crate::policy::target::{Origin, Target};

/// Whether a field is about one connection, whatever `Connection` says of it.
fn is_hop_by_hop(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "connection"
            | "keep-alive"
            | "proxy-connection"
            | "proxy-authenticate"
            | "proxy-authorization"
            | "http2-settings"
            | "te"
            | "transfer-encoding"
            | "upgrade"
    )
}

/// Whether some servers choose another page or host by a field than the one that was decided on (C3 of the known ways round). A client
/// of a forward proxy has no use for them.
fn is_rerouting(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "x-original-url"
            | "x-rewrite-url"
            | "x-original-host"
            | "x-host"
            | "x-forwarded-host"
            | "x-forwarded-server"
            | "x-forwarded-prefix"
            | "x-forwarded-path"
            | "x-forwarded-uri"
            | "forwarded"
    )
}

/// The fields of a request that will not go on, since a server could choose another page by them.
pub fn rerouting(headers: &HeaderMap) -> impl Iterator<Item = &HeaderName> {
    headers.keys().filter(|name| is_rerouting(name))
}

/// How a request names its target on a connection.
#[derive(Clone, Debug)]
pub(super) enum Form {
    /// The path, and Host: HTTP/1.1 to the origin (RFC 9112 §3.2.1).
    Path,
    /// The whole URL: HTTP/1.1 to a parent proxy (RFC 9112 §3.2.2), with the credentials that it knows us by.
    WholeUrl(Option<HeaderValue>),
    /// Pseudo-header fields (RFC 9113 §8.3.1).
    Http2,
}

/// The request as it goes to the origin: its target in the form that the connection wants, one Host, and nothing about the client's
/// own connection.
pub(super) fn towards_origin(target: &Target, request: &mut Request<RequestBody>, form: &Form) -> Result<(), Error> {
    let websocket = request.extensions().get::<WebSocket>().is_some();
    let headers = request.headers_mut();
    // The trailers of a request do not reach an HTTP/1.1 origin (RFC 9110 §6.5.1 lets them go).
    remove_hop_by_hop_and(headers, |name| is_rerouting(name) || *name == header::TRAILER);
    if websocket {
        switch_to_websocket(headers);
    }
    let host = headers.remove(header::HOST);
    if !matches!(form, Form::Http2) {
        headers.insert(header::HOST, spelt_by_client(host, &target.origin)?);
    }
    if let Form::WholeUrl(Some(credentials)) = form {
        headers.insert(header::PROXY_AUTHORIZATION, credentials.clone());
    }
    *request.uri_mut() = match form {
        Form::Path => Uri::from(target.path.clone()),
        Form::WholeUrl(_) | Form::Http2 => absolute(target)?,
    };
    *request.version_mut() = if matches!(form, Form::Http2) { Version::HTTP_2 } else { Version::HTTP_11 };
    Ok(())
}

/// The fields that ask for a WebSocket, or grant it: of all upgrades the only one that is passed on, since behind any other there
/// would be requests that nobody decides on.
pub fn switch_to_websocket(headers: &mut HeaderMap) {
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
}

/// Host as the client spells it, where only case and a default port differ from what was decided on. A final dot or another spelling
/// of an address is brought into form, since servers may know another site by it.
fn spelt_by_client(host: Option<HeaderValue>, origin: &Origin) -> Result<HeaderValue, Error> {
    match host.filter(|host| is_spelling(host.as_bytes(), origin)) {
        Some(host) => Ok(host),
        None => HeaderValue::try_from(origin.authority()).map_err(|error| Error::Protocol(Box::new(error))),
    }
}

/// Whether a Host field is the origin's, with or without a port that goes without saying, in whatever case.
fn is_spelling(host: &[u8], origin: &Origin) -> bool {
    let name = origin.host.as_str().as_bytes();
    let (open, close): (&[u8], &[u8]) = if name.contains(&b':') { (b"[", b"]") } else { (b"", b"") };
    let Some((spelt, port)) = host.strip_prefix(open).and_then(|rest| rest.split_at_checked(name.len())) else {
        return false;
    };
    let is_port = match port.strip_prefix(close) {
        Some(b"") => origin.port == origin.scheme.default_port(),
        Some([b':', digits @ ..]) => digits == origin.port.to_string().as_bytes(),
        _ => false,
    };
    spelt.eq_ignore_ascii_case(name) && is_port
}

fn absolute(target: &Target) -> Result<Uri, Error> {
    Uri::builder()
        .scheme(target.origin.scheme.as_str())
        .authority(target.origin.authority())
        .path_and_query(target.path.clone())
        .build()
        .map_err(|error| Error::Protocol(Box::new(error)))
}

/// This instance in `Via` (RFC 9110 §7.6.3). The pseudonym is made anew at each start, so that a request that comes back is known, and
/// two of these proxies in a row are no loop.
#[derive(Clone, Debug)]
pub struct Pseudonym {
    name: String,
    /// What it adds to `Via` for a message in HTTP/1.0, 1.1 and 2.
    via: [HeaderValue; 3],
}

impl Pseudonym {
    pub(super) fn new() -> Pseudonym {
        // The random end of a version 7 UUID; its beginning is the time.
        let random = uuid::Uuid::now_v7().as_u128() as u32;
        let name = format!("robots-proxy-{random:08x}");
        let via = ["1.0", "1.1", "2"].map(|protocol| {
            HeaderValue::try_from(format!("{protocol} {name}")).expect("a version and a token are a header value")
        });
        Pseudonym { name, via }
    }

    /// Adds this proxy to `Via`.
    pub fn add_via(&self, headers: &mut HeaderMap, version: Version) {
        let [http_1_0, http_1_1, http_2] = &self.via;
        let value = match version {
            Version::HTTP_2 => http_2,
            Version::HTTP_10 => http_1_0,
            _ => http_1_1,
        };
        headers.append(header::VIA, value.clone());
    }

    /// Whether a request has been through this proxy before.
    pub fn is_in(&self, headers: &HeaderMap) -> bool {
        let fields = headers.get_all(header::VIA).iter().filter_map(|value| value.to_str().ok());
        let mut hops = fields.flat_map(|value| value.split(','));
        hops.any(|hop| hop.split_ascii_whitespace().nth(1).is_some_and(|name| name.eq_ignore_ascii_case(&self.name)))
    }

    /// The answer as it goes to the client.
    pub fn towards_client<B>(&self, response: &mut Response<B>) {
        let version = response.version();
        let headers = response.headers_mut();
        // Another protocol or host for the same pages would lead the client past the proxy (RFC 7838).
        remove_hop_by_hop_and(headers, |name| *name == header::ALT_SVC);
        self.add_via(headers, version);
    }
}

/// Whether a client takes trailers (RFC 9110 §10.1.4).
pub(super) fn takes_trailers(headers: &HeaderMap) -> bool {
    let te = headers.get_all(header::TE).iter().filter_map(|value| value.to_str().ok());
    te.flat_map(|value| value.split(',')).any(|coding| coding.trim().eq_ignore_ascii_case("trailers"))
}

/// Removes the fields that are about one connection, those that `Connection` names included, and others. The fields that are there are
/// looked at, once; there are fewer of them than of those that may not be.
fn remove_hop_by_hop_and(headers: &mut HeaderMap, others: impl Fn(&HeaderName) -> bool) {
    let mut gone: Vec<HeaderName> =
        headers.keys().filter(|&name| is_hop_by_hop(name) || others(name)).cloned().collect();
    if gone.is_empty() {
        return;
    }
    let trailers = takes_trailers(headers);
    let options = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let named = options.flat_map(|value| value.split(',')).map(str::trim);
    gone.extend(named.filter(|name| !matches!(*name, "close" | "keep-alive")).filter_map(|name| name.parse().ok()));
    for name in gone {
        headers.remove(name);
    }
    if trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::target::{Origin, Target};

    #[test]
    fn what_is_about_the_connection_stays_behind() {
        let uri: Uri = "http://a.test:8080/x?y".parse().unwrap();
        let target = Target { origin: Origin::of(&uri).unwrap(), path: uri.path_and_query().unwrap().clone() };
        let mut request = Request::get("http://a.test:8080/x?y")
            .header("host", "other.test")
            .header("connection", "x-secret, close")
            .header("x-secret", "1")
            .header("proxy-authorization", "Basic dTpw")
            .header("proxy-connection", "keep-alive")
            .header("te", "trailers")
            .header("upgrade", "h2c")
            .header("http2-settings", "AAMAAABkAAQAAP__")
            .header("x-original-url", "/private/")
            .header("X-Forwarded-Host", "b.test")
            .header("forwarded", "host=b.test")
            .header("accept", "*/*")
            .body(RequestBody::Empty)
            .unwrap();
        towards_origin(&target, &mut request, &Form::Path).unwrap();
        let mut names: Vec<&str> = request.headers().keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["accept", "host", "te"]);
        assert_eq!(
            (request.uri().to_string().as_str(), &request.headers()["host"]),
            ("/x?y", &HeaderValue::from_static("a.test:8080"))
        );
        towards_origin(&target, &mut request, &Form::Http2).unwrap();
        assert_eq!(request.uri(), &uri);
        assert!(!request.headers().contains_key("host"));
    }

    #[test]
    fn host_is_spelt_as_the_client_does_where_it_means_the_same() {
        for (url, host, sent) in [
            ("http://a.test/", "A.Test", "A.Test"),
            ("http://a.test/", "a.test:80", "a.test:80"),
            ("http://a.test:8080/", "A.test:8080", "A.test:8080"),
            ("https://a.test/", "a.test:443", "a.test:443"),
            ("http://a.test/", "a.test.", "a.test"),
            ("http://a.test/", "a.test:080", "a.test"),
            ("http://a.test/", "other.test", "a.test"),
            ("http://a.test:8080/", "a.test", "a.test:8080"),
            ("http://127.0.0.1/", "0x7f.1", "127.0.0.1"),
            ("http://[::1]:81/", "[::1]:81", "[::1]:81"),
            ("http://[::1]:81/", "[0::1]:81", "[::1]:81"),
        ] {
            let origin = Origin::of(&url.parse().unwrap()).unwrap();
            let spelt = spelt_by_client(Some(HeaderValue::from_static(host)), &origin).unwrap();
            assert_eq!(spelt, sent, "{url} {host}");
        }
    }

    #[test]
    fn rfc9110_7_6_3_a_request_that_comes_back_is_known_by_its_pseudonym() {
        let (own, other) = (Pseudonym::new(), Pseudonym::new());
        assert_ne!(own.name, other.name);
        let mut headers = HeaderMap::new();
        headers.append(header::VIA, HeaderValue::from_static("1.0 fred, HTTP/1.1 p.example.net (Apache/1.1)"));
        other.add_via(&mut headers, Version::HTTP_2);
        assert!(!own.is_in(&headers) && other.is_in(&headers));
        headers.insert(header::VIA, HeaderValue::try_from(format!("1.1 a.test, 2 {} (x),1.1 b", own.name)).unwrap());
        assert!(own.is_in(&headers));
    }
}
