//! The dashboard: one page, one script, one style sheet, embedded; nothing is loaded from anywhere else.

use axum::response::{Html, IntoResponse, Response};
use http::header;

pub(super) async fn index() -> Html<&'static str> {
    Html(include_str!("page/index.html"))
}

pub(super) async fn script() -> Response {
    file("text/javascript; charset=utf-8", include_str!("page/app.js"))
}

pub(super) async fn style() -> Response {
    file("text/css; charset=utf-8", include_str!("page/style.css"))
}

fn file(media_type: &'static str, text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, media_type)], text).into_response()
}
