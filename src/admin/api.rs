//! The rest of the JSON API: lines, explanations, the CA, and its own description.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Admin;
use super::asked::Asked;
use super::guard::problem;
use crate::clock;
use crate::control::told;
use crate::policy::decision;
use crate::policy::enforcement::Exception;
use crate::policy::explained::{Explained, FileNotes};
use crate::policy::target::Host;
use crate::policy::typed;
use crate::upstream::Speech;

/// The OpenAPI description.
pub(super) const DESCRIPTION: &str = include_str!("openapi.json");

pub(super) async fn description() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], DESCRIPTION).into_response()
}

#[derive(Debug, Deserialize)]
pub(super) struct At {
    host: Option<Host>,
}

/// The lines in front of hosts.
pub(super) async fn lines(State(admin): State<Arc<Admin>>, Asked(at): Asked<At>) -> Json<Value> {
    let lines: Vec<Value> = admin.proxy.pipeline.queue.lines(at.host.as_ref()).iter().map(told::line).collect();
    Json(json!({ "lines": lines }))
}

#[derive(Debug, Deserialize)]
pub(super) struct Question {
    url: String,
    agent: Option<String>,
}

/// Decides about a URL for a bot, without fetching the page, with the text that it was decided by. Asks for robots.txt where there is
/// no copy.
pub(super) async fn explain(State(admin): State<Arc<Admin>>, Asked(question): Asked<Question>) -> Response {
    let (origin, path) = match typed::split(question.url.trim()) {
        Ok(split) => split,
        Err(error) => return problem(StatusCode::BAD_REQUEST, &error.to_string()),
    };
    let agent = question.agent.as_deref().map(str::trim).filter(|agent| !agent.is_empty()).unwrap_or("*");
    let standing = admin.proxy.pipeline.lookup.standing(&origin, Speech::Http2).await;
    let decision = decision::decide(agent, path.as_bytes(), &standing, clock::now());
    let notes = FileNotes::of(&standing);
    let terms = admin.proxy.pipeline.terms.load_full();
    let exception = Exception::reason_for(&terms.exceptions, agent, origin.host.as_str());
    let explained = Explained::new(question.url.trim(), agent, &decision, &standing, &notes).excepted(exception);
    let mut value = json!(explained.with_matching(path.as_bytes(), &standing));
    let evidence = &standing.evidence;
    value["standing"] = told::standing(&standing);
    value["standing"]["fetched_at"] = json!(clock::rfc3339(evidence.fetched_at));
    value["text"] = match evidence.sha256.clone() {
        Some(sha256) => json!(text(admin, sha256).await),
        None => Value::Null,
    };
    Json(value).into_response()
}

/// The text of a robots.txt, where it is kept.
async fn text(admin: Arc<Admin>, sha256: String) -> Option<String> {
    let reading = tokio::task::spawn_blocking(move || {
        let store = admin.proxy.pipeline.lookup.store()?;
        store.flush();
        let body = store.reader()?.body(&sha256).ok()??;
        Some(String::from_utf8_lossy(&body).into_owned())
    });
    reading.await.ok()?
}

/// The CA's certificate, as most programs want it.
pub(super) async fn ca_pem(State(admin): State<Arc<Admin>>) -> Response {
    let pem = admin.proxy.interception.leaves().ca().certificate_pem().to_owned();
    download("application/x-pem-file", "robots-proxy-ca.pem", pem.into_bytes())
}

/// The same as Windows and Java want it.
pub(super) async fn ca_der(State(admin): State<Arc<Admin>>) -> Response {
    let der = admin.proxy.interception.leaves().ca().certificate_der().to_vec();
    download("application/pkix-cert", "robots-proxy-ca.cer", der)
}

fn download(media_type: &'static str, name: &str, octets: Vec<u8>) -> Response {
    let disposition = format!("attachment; filename=\"{name}\"");
    ([(header::CONTENT_TYPE, media_type.to_owned()), (header::CONTENT_DISPOSITION, disposition)], octets)
        .into_response()
}

pub(super) async fn nothing_here() -> Response {
    problem(StatusCode::NOT_FOUND, "nothing is here; /api/openapi.json names what there is")
}

pub(super) async fn not_like_this() -> Response {
    problem(StatusCode::METHOD_NOT_ALLOWED, "not with this method; /api/openapi.json names those that there are")
}
