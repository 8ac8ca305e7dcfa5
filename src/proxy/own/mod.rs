//! `http://robots-proxy.internal/`: what the proxy tells those who come through it, as mitm.it does for mitmproxy.
//!
//! The CA's certificate for each platform, a PAC file, and how to name one's bot: what a client needs, and nothing about any other client.
//! The name exists nowhere else. It is answered here on any port, in clear text or inside a CONNECT, is never looked up, and no robots.txt
//! is asked about it; a request for it is recorded like any other that is allowed, with the reason `own-page`.

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};

use super::error::Refusal;
use super::socket::Listen;
use crate::ca::Ca;
use crate::clock;
use crate::policy::answer::{Accept, Rendering};
use crate::policy::reason::Reason;
use crate::policy::target::{OWN_HOST, Target};

const HTML: &str = include_str!("page.html");
const TEXT: &str = include_str!("page.txt");

/// Browsers offer to trust what has this type, PEM or DER.
const CERTIFICATE: &str = "application/x-x509-ca-cert";

/// Whether a target is the proxy itself, by its own name.
pub(super) fn is_meant(target: &Target) -> bool {
    target.origin.host.as_str() == OWN_HOST
}

/// The answer to a request for one of the pages.
///
/// # Errors
/// A method that changes something.
pub(super) fn page(
    ca: &Ca,
    entrance: &Listen,
    request: &Request<impl Sized>,
    target: &Target,
) -> Result<Response<Bytes>, Refusal> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return Err(Refusal::new(Reason::MethodNotAllowed, format!("{OWN_HOST} is only for reading")));
    }
    let is_html = Accept::of(request.headers()).rendering() == Rendering::Html;
    Ok(match target.path.path() {
        "/" if is_html => answer("text/html; charset=utf-8", filled(HTML, ca, entrance)),
        "/" => answer("text/plain; charset=utf-8", filled(TEXT, ca, entrance)),
        "/ca.pem" => answer(CERTIFICATE, ca.certificate_pem().to_owned()),
        "/ca.der" | "/ca.cer" => answer(CERTIFICATE, ca.certificate_der().to_vec()),
        "/proxy.pac" => match pac(entrance) {
            Some(script) => answer("application/x-ns-proxy-autoconfig", script),
            None => missing("a PAC file cannot name a Unix socket"),
        },
        "/robots.txt" => answer("text/plain; charset=utf-8", "User-agent: *\nAllow: /\n"),
        _ => missing("there are /, /ca.pem, /ca.der and /proxy.pac"),
    })
}

fn filled(page: &str, ca: &Ca, entrance: &Listen) -> String {
    [
        ("{version}", env!("CARGO_PKG_VERSION")),
        ("{proxy}", &entrance.url()),
        ("{sha256}", &ca.fingerprint()),
        ("{until}", &clock::rfc3339(ca.not_after())[..10]),
    ]
    .into_iter()
    .fold(page.to_owned(), |page, (name, value)| page.replace(name, value))
}

/// All hosts by the proxy, and none past it where it cannot be reached.
fn pac(entrance: &Listen) -> Option<String> {
    let way = match entrance {
        Listen::Http(address) => format!("PROXY {address}"),
        Listen::Https(address) => format!("HTTPS {address}"),
        Listen::Unix(_) => return None,
    };
    Some(format!("function FindProxyForURL(url, host) {{\n  return \"{way}\";\n}}\n"))
}

fn missing(detail: &str) -> Response<Bytes> {
    let mut response = answer("text/plain; charset=utf-8", format!("Nothing is here: {detail}.\n"));
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}

fn answer(media_type: &'static str, body: impl Into<Bytes>) -> Response<Bytes> {
    let mut response = Response::new(body.into());
    for (name, value) in [
        (header::CONTENT_TYPE, media_type),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'",
        ),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pac_file_names_the_way_in_that_was_taken() {
        for (listen, way) in [
            ("127.0.0.1:3128", Some("return \"PROXY 127.0.0.1:3128\";")),
            ("https://[::1]:3129", Some("return \"HTTPS [::1]:3129\";")),
            ("unix:/run/x.sock", None),
        ] {
            let script = pac(&listen.parse().unwrap());
            assert_eq!(script.is_some(), way.is_some(), "{listen}");
            assert!(script.unwrap_or_default().contains(way.unwrap_or_default()), "{listen}");
        }
    }
}
