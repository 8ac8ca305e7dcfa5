//! Which header fields go on, and which belong to one connection (RFC 9110 §7.6.1).

use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue, Request, Response, Uri, Version};

use super::body::RequestBody;
use super::{Error, WebSocket};
use crate::policy::target::Target;

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

/// How this proxy names itself in `Via` (RFC 9110 §7.6.3).
const VIA_NAME: &str = "robots-proxy";

/// The request as it goes to the origin: its target in the form that the protocol wants, one Host, and nothing about the client's
/// own connection.
pub fn towards_origin(
    target: &Target,
    mut request: Request<RequestBody>,
    http2: bool,
) -> Result<Request<RequestBody>, Error> {
    remove_hop_by_hop(request.headers_mut());
    if request.extensions().get::<WebSocket>().is_some() {
        switch_to_websocket(request.headers_mut());
    }
    request.headers_mut().remove(header::HOST);
    *request.uri_mut() = match http2 {
        true => absolute(target)?,
        false => Uri::from(target.path.clone()),
    };
    if !http2 {
        let host =
            HeaderValue::try_from(target.origin.authority()).map_err(|error| Error::Protocol(Box::new(error)))?;
        request.headers_mut().insert(header::HOST, host);
    }
    *request.version_mut() = if http2 { Version::HTTP_2 } else { Version::HTTP_11 };
    Ok(request)
}

fn absolute(target: &Target) -> Result<Uri, Error> {
    Uri::builder()
        .scheme(target.origin.scheme.as_str())
        .authority(target.origin.authority())
        .path_and_query(target.path.clone())
        .build()
        .map_err(|error| Error::Protocol(Box::new(error)))
}

/// The answer as it goes to the client.
pub fn towards_client<B>(response: &mut Response<B>) {
    let version = response.version();
    let headers = response.headers_mut();
    remove_hop_by_hop(headers);
    // Another protocol or host for the same pages would lead the client past the proxy (RFC 7838).
    headers.remove(header::ALT_SVC);
    add_via(headers, version);
}

/// The fields that ask for a WebSocket, or grant it: of all upgrades the only one that is passed on, since behind any other there
/// would be requests that nobody decides on.
pub fn switch_to_websocket(headers: &mut HeaderMap) {
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
}

/// Adds this proxy to `Via`.
pub fn add_via(headers: &mut HeaderMap, version: Version) {
    let protocol = match version {
        Version::HTTP_2 => "2",
        Version::HTTP_10 => "1.0",
        _ => "1.1",
    };
    if let Ok(value) = HeaderValue::try_from(format!("{protocol} {VIA_NAME}")) {
        headers.append(header::VIA, value);
    }
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
    let trailers = headers.get(header::TE).is_some_and(|te| te.as_bytes().eq_ignore_ascii_case(b"trailers"));
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
            .header("accept", "*/*")
            .body(RequestBody::Empty)
            .unwrap();
        let request = towards_origin(&target, request, false).unwrap();
        let mut names: Vec<&str> = request.headers().keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["accept", "host", "te"]);
        assert_eq!(
            (request.uri().to_string().as_str(), &request.headers()["host"]),
            ("/x?y", &HeaderValue::from_static("a.test:8080"))
        );
        let request = towards_origin(&target, request, true).unwrap();
        assert_eq!(request.uri(), &uri);
        assert!(!request.headers().contains_key("host"));
    }
}
