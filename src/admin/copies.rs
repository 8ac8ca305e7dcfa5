//! The copies of robots.txt: looking at them, asking for them anew, forgetting them.

use std::cmp::Reverse;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Admin;
use super::asked::Asked;
use super::guard::problem;
use crate::clock;
use crate::control::{self, told};
use crate::lookup::Lookup;
use crate::lookup::copy::Copy;
use crate::policy::target::Origin;
use crate::policy::typed;

/// Copies told at once.
const LIMIT: usize = 200;

#[derive(Debug, Deserialize)]
pub(super) struct Wanted {
    origin: Option<String>,
    limit: Option<usize>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Of {
    origin: String,
}

/// The copies of origins whose name holds a text, the latest confirmed first.
pub(super) async fn list(State(admin): State<Arc<Admin>>, Asked(wanted): Asked<Wanted>) -> Response {
    let part = wanted.origin.unwrap_or_default().to_ascii_lowercase();
    let limit = wanted.limit.unwrap_or(LIMIT);
    reading(admin, move |lookup| {
        let mut copies = control::copies(lookup);
        let total = copies.len();
        copies.retain(|(origin, _)| origin.contains(part.trim()));
        let matching = copies.len();
        copies.sort_by_key(|(_, copy)| Reverse(copy.confirmed_at));
        copies.truncate(limit);
        let told: Vec<Value> = copies.iter().map(|(origin, copy)| with_age(lookup, origin, copy)).collect();
        Json(json!({ "total": total, "matching": matching, "copies": told })).into_response()
    })
    .await
}

/// One copy with its text.
pub(super) async fn show(State(admin): State<Arc<Admin>>, Asked(of): Asked<Of>) -> Response {
    let origin = match origin(&of.origin) {
        Ok(origin) => origin,
        Err(refusal) => return *refusal,
    };
    reading(admin, move |lookup| {
        let Some(found) = control::copy(lookup, &origin, None) else { return none(&origin) };
        let mut value = with_age(lookup, &origin.to_string(), &found.copy);
        value["body"] = json!(found.body().map(|body| String::from_utf8_lossy(&body).into_owned()));
        Json(value).into_response()
    })
    .await
}

/// Asks the origin now.
pub(super) async fn refresh(State(admin): State<Arc<Admin>>, Asked(of): Asked<Of>) -> Response {
    match origin(&of.origin) {
        Ok(origin) => Json(told::standing(&*admin.proxy.pipeline.lookup.refresh(&origin).await)).into_response(),
        Err(refusal) => *refusal,
    }
}

/// Forgets a copy; the next request fetches it anew.
pub(super) async fn forget(State(admin): State<Arc<Admin>>, Asked(of): Asked<Of>) -> Response {
    let origin = match origin(&of.origin) {
        Ok(origin) => origin,
        Err(refusal) => return *refusal,
    };
    reading(admin, move |lookup| match control::forget(lookup, &origin) {
        true => Json(json!({ "dropped": origin.to_string() })).into_response(),
        false => none(&origin),
    })
    .await
}

/// Runs where the disk may be waited for.
async fn reading(admin: Arc<Admin>, read: impl FnOnce(&Lookup) -> Response + Send + 'static) -> Response {
    let reading = tokio::task::spawn_blocking(move || read(&admin.proxy.pipeline.lookup));
    reading.await.unwrap_or_else(|_| problem(StatusCode::INTERNAL_SERVER_ERROR, "the copies cannot be read"))
}

/// A copy as `copies list --json` has it, with its age, the end of its life and its size.
fn with_age(lookup: &Lookup, origin: &str, copy: &Copy) -> Value {
    let age = clock::wall().duration_since(copy.confirmed_at).unwrap_or_default();
    let octets = copy.sha256.as_ref().and_then(|sha256| lookup.store()?.reader()?.octets(sha256).ok()?);
    let mut value = told::copy(origin, copy);
    value["age_s"] = json!(age.as_secs());
    value["expires_at"] = json!(clock::rfc3339(copy.confirmed_at + copy.lifetime));
    value["bytes"] = json!(octets);
    value
}

fn origin(text: &str) -> Result<Origin, Box<Response>> {
    let typed = typed::origin(text.trim_end_matches('/'));
    typed.map_err(|_| {
        Box::new(problem(StatusCode::BAD_REQUEST, &format!("{text:?} is no origin such as https://example.com")))
    })
}

fn none(origin: &Origin) -> Response {
    problem(StatusCode::NOT_FOUND, &format!("there is no copy of {origin}"))
}
