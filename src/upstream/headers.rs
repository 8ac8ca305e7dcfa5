//! Which header fields go on, and which belong to one connection (RFC 9110 §7.6.1).

use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue, Request, Response, Uri, Version};

use super::upload::RequestBody;
use super::{Error, WebSocket};
use crate::policy::target::{Origin, Target};

/// Fields about one connection, whatever `Connection` says of them.
const HOP_BY_HOP: [HeaderName; 9] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    HeaderName::from_static("http2-settings"),
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Fields by which some servers choose another page or host than the one that was decided on (C3 of the known ways round). A client of
/// a forward proxy has no use for them.
static REROUTING: [HeaderName; 10] = [
    HeaderName::from_static("x-original-url"),
    HeaderName::from_static("x-rewrite-url"),
    HeaderName::from_static("x-original-host"),
    HeaderName::from_static("x-host"),
    HeaderName::from_static("x-forwarded-host"),
    HeaderName::from_static("x-forwarded-server"),
    HeaderName::from_static("x-forwarded-prefix"),
    HeaderName::from_static("x-forwarded-path"),
    HeaderName::from_static("x-forwarded-uri"),
    header::FORWARDED,
];

/// The fields of a request that will not go on, since a server could choose another page by them.
pub fn rerouting(headers: &HeaderMap) -> impl Iterator<Item = &'static str> + use<'_> {
    REROUTING.iter().filter(|name| headers.contains_key(*name)).map(HeaderName::as_str)
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
pub(super) fn towards_origin(
    target: &Target,
    mut request: Request<RequestBody>,
    form: &Form,
) -> Result<Request<RequestBody>, Error> {
    let websocket = request.extensions().get::<WebSocket>().is_some();
    let headers = request.headers_mut();
    remove_hop_by_hop(headers);
    if websocket {
        switch_to_websocket(headers);
    }
    // hyper sends no trailers that it was not told of; those of a request do not reach an HTTP/1.1 origin (RFC 9110 §6.5.1 lets them go).
    headers.remove(header::TRAILER);
    for name in &REROUTING {
        headers.remove(name);
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
    Ok(request)
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
    let decided = origin.authority();
    let with_port = format!("{}:{}", origin.host, origin.port);
    let same = |host: &HeaderValue| {
        [&decided, &with_port].iter().any(|spelling| host.as_bytes().eq_ignore_ascii_case(spelling.as_bytes()))
    };
    match host.filter(same) {
        Some(host) => Ok(host),
        None => HeaderValue::try_from(decided).map_err(|error| Error::Protocol(Box::new(error))),
    }
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
pub struct Pseudonym(String);

impl Pseudonym {
    pub(super) fn new() -> Pseudonym {
        // The random end of a version 7 UUID; its beginning is the time.
        let random = uuid::Uuid::now_v7().as_u128() as u32;
        Pseudonym(format!("robots-proxy-{random:08x}"))
    }

    /// Adds this proxy to `Via`.
    pub fn add_via(&self, headers: &mut HeaderMap, version: Version) {
        let protocol = match version {
            Version::HTTP_2 => "2",
            Version::HTTP_10 => "1.0",
            _ => "1.1",
        };
        if let Ok(value) = HeaderValue::try_from(format!("{protocol} {}", self.0)) {
            headers.append(header::VIA, value);
        }
    }

    /// Whether a request has been through this proxy before.
    pub fn is_in(&self, headers: &HeaderMap) -> bool {
        let fields = headers.get_all(header::VIA).iter().filter_map(|value| value.to_str().ok());
        let mut hops = fields.flat_map(|value| value.split(','));
        hops.any(|hop| hop.split_ascii_whitespace().nth(1).is_some_and(|name| name.eq_ignore_ascii_case(&self.0)))
    }

    /// The answer as it goes to the client.
    pub fn towards_client<B>(&self, response: &mut Response<B>) {
        let version = response.version();
        let headers = response.headers_mut();
        remove_hop_by_hop(headers);
        // Another protocol or host for the same pages would lead the client past the proxy (RFC 7838).
        headers.remove(header::ALT_SVC);
        self.add_via(headers, version);
    }
}

/// Whether a client takes trailers (RFC 9110 §10.1.4).
pub(super) fn takes_trailers(headers: &HeaderMap) -> bool {
    let te = headers.get_all(header::TE).iter().filter_map(|value| value.to_str().ok());
    te.flat_map(|value| value.split(',')).any(|coding| coding.trim().eq_ignore_ascii_case("trailers"))
}

/// Removes the fields that are about one connection, those that `Connection` names included.
fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    let trailers = takes_trailers(headers);
    for name in named.iter().chain(&HOP_BY_HOP) {
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
        let request = Request::get("http://a.test:8080/x?y")
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
        let request = towards_origin(&target, request, &Form::Path).unwrap();
        let mut names: Vec<&str> = request.headers().keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["accept", "host", "te"]);
        assert_eq!(
            (request.uri().to_string().as_str(), &request.headers()["host"]),
            ("/x?y", &HeaderValue::from_static("a.test:8080"))
        );
        let request = towards_origin(&target, request, &Form::Http2).unwrap();
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
        assert_ne!(own.0, other.0);
        let mut headers = HeaderMap::new();
        headers.append(header::VIA, HeaderValue::from_static("1.0 fred, HTTP/1.1 p.example.net (Apache/1.1)"));
        other.add_via(&mut headers, Version::HTTP_2);
        assert!(!own.is_in(&headers) && other.is_in(&headers));
        headers.insert(header::VIA, HeaderValue::try_from(format!("1.1 a.test, 2 {} (x),1.1 b", own.0)).unwrap());
        assert!(own.is_in(&headers));
    }
}
