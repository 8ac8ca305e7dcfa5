//! Who may look in, and what a browser may do with what it sees.
//!
//! 1. Without a token the listener is on loopback, and a name that leads there (DNS rebinding) is how a site would get at it from the
//!    operator's browser: so only `localhost` and addresses are answered.
//! 2. What another site makes the browser ask (`Sec-Fetch-Site`, `Origin`) is refused, reading or changing, but for a plain visit to the
//!    page itself. Nothing allows another origin to read an answer, so that browsers without these fields keep it from the site, too.
//! 3. Then comes the token, as a bearer token or as the cookie that [`super::login`] gives for it. A wrong one costs a second.
//! 4. Every answer forbids scripts that are not ours, frames, sniffing and keeping.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use serde_json::json;

use super::{ANSWER_TIMEOUT, Admin};
use crate::clock;

/// The cookie of a browser that has shown the token.
pub(super) const COOKIE: &str = "robots-proxy-admin";

/// A wrong token is answered this much later; with the bound on connections that is 64 guesses a second at most.
pub(super) const WRONG_TOKEN_DELAY: Duration = Duration::from_secs(1);

/// Open to everybody: health, which says nothing of anyone, and what it takes to log in.
const OPEN: [&str; 4] = ["/healthz", "/readyz", "/login", "/style.css"];

/// The guard, around every page.
pub(super) async fn guard(State(admin): State<Arc<Admin>>, request: Request, next: Next) -> Response {
    let response = match admin.refuse(&request) {
        Some(Refusal { response, delay }) => {
            clock::sleep(delay).await;
            response
        }
        None => clock::timeout(ANSWER_TIMEOUT, next.run(request))
            .await
            .unwrap_or_else(|| problem(StatusCode::GATEWAY_TIMEOUT, "this took too long; ask again later")),
    };
    protected(response)
}

/// An answer to who may not look in, and how long that one waits for it.
struct Refusal {
    response: Response,
    delay: Duration,
}

impl From<Response> for Refusal {
    fn from(response: Response) -> Refusal {
        Refusal { response, delay: Duration::ZERO }
    }
}

impl Admin {
    fn refuse(&self, request: &Request) -> Option<Refusal> {
        let (path, headers) = (request.uri().path(), request.headers());
        if self.keys.load().is_none() && !is_here(headers) {
            let detail = "ask for localhost or for the address; any other name needs admin.token to be set";
            return Some(problem(StatusCode::MISDIRECTED_REQUEST, detail).into());
        }
        if is_from_elsewhere(request) {
            return Some(problem(StatusCode::FORBIDDEN, "another site made this request").into());
        }
        let keys = self.keys.load_full().filter(|_| !OPEN.contains(&path))?;
        let bearer = bearer(headers);
        if bearer.is_some_and(|token| keys.is_token(token))
            || cookie(headers).is_some_and(|value| keys.is_cookie(value))
        {
            return None;
        }
        if path == "/" && bearer.is_none() {
            return Some(Redirect::to("/login").into_response().into());
        }
        let mut response =
            problem(StatusCode::UNAUTHORIZED, "show the token of admin.token: Authorization: Bearer TOKEN");
        response
            .headers_mut()
            .insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"robots-proxy\""));
        let delay = if bearer.is_some() { WRONG_TOKEN_DELAY } else { Duration::ZERO };
        Some(Refusal { response, delay })
    }
}

/// Whether the request names this machine itself, or an address: no site can have one of these as its name.
fn is_here(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(header::HOST).and_then(|value| value.to_str().ok()) else { return false };
    let Ok(authority) = host.parse::<http::uri::Authority>() else { return false };
    let name = authority.host().trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost") || name.parse::<IpAddr>().is_ok()
}

/// Whether a page of another origin made the browser ask.
fn is_from_elsewhere(request: &Request) -> bool {
    let headers = request.headers();
    let field = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let visits =
        request.method() == Method::GET && request.uri().path() == "/" && field("sec-fetch-mode") == Some("navigate");
    let by_site = matches!(field("sec-fetch-site"), Some(site) if site != "same-origin" && site != "none");
    let own = field("host").unwrap_or_default();
    let by_origin = field("origin").is_some_and(|origin| origin.split_once("://").map(|(_, rest)| rest) != Some(own));
    by_origin || by_site && !visits
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn cookie(headers: &HeaderMap) -> Option<&str> {
    let fields = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    fields.flat_map(|field| field.split(';')).find_map(|pair| pair.trim().strip_prefix(COOKIE)?.strip_prefix('='))
}

fn protected(mut response: Response) -> Response {
    let fields: [(HeaderName, &'static str); 7] = [
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; form-action 'self'; \
             base-uri 'none'; frame-ancestors 'none'",
        ),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // Not "no-referrer", which makes a browser hide the origin of our own forms.
        (header::REFERRER_POLICY, "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    for (name, value) in fields {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// An answer that says what is wrong (RFC 9457).
pub(super) fn problem(status: StatusCode, detail: &str) -> Response {
    let title = status.canonical_reason().unwrap_or_default();
    let body = json!({ "type": "about:blank", "title": title, "status": status.as_u16(), "detail": detail });
    (status, [(header::CONTENT_TYPE, "application/problem+json")], Json(body)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, path: &str, fields: &[(&str, &str)]) -> Request {
        let empty = http::Request::builder().method(method).uri(path);
        let built = fields.iter().fold(empty, |request, (name, value)| request.header(*name, *value));
        built.body(axum::body::Body::empty()).unwrap()
    }

    #[test]
    fn only_names_of_this_machine_are_answered_without_a_token() {
        for (host, here) in [
            ("localhost:3129", true),
            ("LOCALHOST", true),
            ("admin.localhost:3129", true),
            ("127.0.0.1:3129", true),
            ("[::1]:3129", true),
            ("192.0.2.1", true),
            ("rebound.evil.test:3129", false),
            ("localhost.evil.test", false),
            ("127.0.0.1.evil.test", false),
            ("", false),
        ] {
            let asked = request("GET", "/", &[("host", host)]);
            assert_eq!(is_here(asked.headers()), here, "{host}");
        }
    }

    #[test]
    fn what_another_site_asks_for_is_told_apart() {
        let own = ("host", "127.0.0.1:3129");
        for (method, path, fields, elsewhere, shows) in [
            ("GET", "/api/lines", &[own][..], false, "curl"),
            ("GET", "/", &[own, ("sec-fetch-site", "none"), ("sec-fetch-mode", "navigate")], false, "typed"),
            ("GET", "/", &[own, ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")], false, "a link"),
            ("GET", "/", &[own, ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors")], true, "an image"),
            (
                "GET",
                "/api/lines",
                &[own, ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")],
                true,
                "a link",
            ),
            ("GET", "/api/lines", &[own, ("sec-fetch-site", "same-site")], true, "another port"),
            ("GET", "/api/lines", &[own, ("sec-fetch-site", "same-origin")], false, "our page"),
            ("POST", "/login", &[own, ("origin", "http://127.0.0.1:3129")], false, "our form"),
            ("POST", "/login", &[own, ("origin", "http://127.0.0.1:8000")], true, "a form of another port"),
            ("POST", "/login", &[own, ("origin", "null")], true, "a form in a sandbox"),
            ("POST", "/", &[own, ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")], true, "a form"),
            ("GET", "/api/lines", &[own, ("origin", "http://evil.test")], true, "a fetch with CORS"),
        ] {
            assert_eq!(is_from_elsewhere(&request(method, path, fields)), elsewhere, "{shows}");
        }
    }

    #[test]
    fn the_cookie_is_found_among_others() {
        let asked =
            request("GET", "/", &[("cookie", "a=b; robots-proxy-admin=xyz; c=d"), ("authorization", "bearer  t ")]);
        assert_eq!((cookie(asked.headers()), bearer(asked.headers())), (Some("xyz"), Some("t")));
        let asked = request("GET", "/", &[("cookie", "xrobots-proxy-admin=xyz"), ("authorization", "Basic t")]);
        assert_eq!((cookie(asked.headers()), bearer(asked.headers())), (None, None));
    }
}
