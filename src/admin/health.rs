//! Whether the proxy lives, whether it can be given work, and what it is.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use http::StatusCode;
use serde_json::{Value, json};

use super::Admin;
use crate::clock;
use crate::lookup::store::Store;

/// The process answers.
pub(super) async fn alive() -> &'static str {
    "ok\n"
}

/// Whether it should be given work, with the reasons where it should not.
pub(super) async fn ready(State(admin): State<Arc<Admin>>) -> (StatusCode, Json<Value>) {
    let reasons = admin.reasons_against();
    let status = if reasons.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(json!({ "ready": reasons.is_empty(), "reasons": reasons })))
}

/// What the head of the dashboard shows.
pub(super) async fn status(State(admin): State<Arc<Admin>>) -> Json<Value> {
    let pipeline = &admin.proxy.pipeline;
    let ca = admin.proxy.interception.leaves().ca();
    let uptime = clock::wall().duration_since(admin.started).unwrap_or_default();
    Json(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "mode": pipeline.terms.load().mode.as_str(),
        "now": clock::rfc3339(clock::wall()),
        "started_at": clock::rfc3339(admin.started),
        "uptime_s": uptime.as_secs(),
        "listen": admin.listening.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "reasons": admin.reasons_against(),
        "connections": pipeline.limits.connections(),
        "waiting": pipeline.queue.len(),
        "copies": pipeline.lookup.count(),
        "guarded": admin.keys.load().is_some(),
        "ca": {
            "subject": ca.subject(),
            "sha256": ca.fingerprint(),
            "not_after": clock::rfc3339(ca.not_after()),
        },
    }))
}

impl Admin {
    fn reasons_against(&self) -> Vec<&'static str> {
        let pipeline = &self.proxy.pipeline;
        let stopping = pipeline.stopping.is_cancelled();
        let audit = !pipeline.audit.is_healthy();
        let store = pipeline.lookup.store().is_some_and(|store: &Store| !store.is_healthy());
        [(stopping, "stopping"), (audit, "audit-failing"), (store, "store-failing")]
            .into_iter()
            .filter_map(|(holds, reason)| holds.then_some(reason))
            .collect()
    }
}
