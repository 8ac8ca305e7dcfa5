//! The way in for browsers: a form for the token, and a cookie for whoever has it.
//!
//! The cookie is out of reach of scripts (`HttpOnly`) and of requests that other sites make (`SameSite=Strict`), and gone with the
//! browser's session or with the next start of the proxy.

use std::sync::Arc;

use axum::extract::{Form, State};
use axum::http::request::Parts;
use axum::response::{Html, IntoResponse, Redirect, Response};
use http::{HeaderValue, StatusCode, header};
use serde::Deserialize;

use super::Admin;
use super::guard::{COOKIE, WRONG_TOKEN_DELAY};
use crate::clock;

const PAGE: &str = include_str!("page/login.html");

#[derive(Deserialize)]
pub(super) struct Shown {
    token: String,
}

pub(super) async fn form(State(admin): State<Arc<Admin>>) -> Response {
    match admin.keys.load_full() {
        Some(_) => Html(PAGE).into_response(),
        None => Redirect::to("/").into_response(),
    }
}

pub(super) async fn log_in(State(admin): State<Arc<Admin>>, parts: Parts, Form(shown): Form<Shown>) -> Response {
    let Some(keys) = admin.keys.load_full() else { return Redirect::to("/").into_response() };
    if !keys.is_token(shown.token.trim()) {
        clock::sleep(WRONG_TOKEN_DELAY).await;
        let page = PAGE.replace("<!-- said -->", "<p class=\"wrong\" role=\"alert\">That is not the token.</p>");
        return (StatusCode::FORBIDDEN, Html(page)).into_response();
    }
    with_cookie(&parts, keys.cookie(), "")
}

pub(super) async fn log_out(parts: Parts) -> Response {
    with_cookie(&parts, "", "; Max-Age=0")
}

fn with_cookie(parts: &Parts, value: &str, end: &str) -> Response {
    // The form says how the browser came here: over TLS, perhaps that of a proxy in front of us.
    let origin = parts.headers.get(header::ORIGIN).map(HeaderValue::as_bytes).unwrap_or_default();
    let secure = if origin.starts_with(b"https://") { "; Secure" } else { "" };
    let cookie = format!("{COOKIE}={value}; Path=/; HttpOnly; SameSite=Strict{secure}{end}");
    ([(header::SET_COOKIE, cookie)], Redirect::to("/")).into_response()
}
