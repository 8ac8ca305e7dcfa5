//! The latest decisions, and those that come.
//!
//! Both read the ring of [`crate::audit::feed`]; the live feed is server-sent events with the record's number as their id, so that a
//! browser that comes back goes on where it was.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt, stream};
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::OwnedSemaphorePermit;

use super::Admin;
use super::asked::Asked;
use super::guard::problem;
use crate::audit::feed::Shown;

/// Which decisions are wanted.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Filter {
    host: Option<String>,
    agent: Option<String>,
    decision: Option<String>,
    reason: Option<String>,
    limit: Option<usize>,
}

/// Decisions told at once.
const LIMIT: usize = 200;

impl Filter {
    /// Hosts and agents match in part and in any case, since people type them; the others are words of ours.
    fn admits(&self, shown: &Shown) -> bool {
        let part = |wanted: &Option<String>, whole: &str| {
            wanted.as_ref().is_none_or(|part| whole.to_ascii_lowercase().contains(&part.to_ascii_lowercase()))
        };
        let word = |wanted: &Option<String>, word: &str| wanted.as_ref().is_none_or(|wanted| wanted == word);
        part(&self.host, &shown.host)
            && part(&self.agent, shown.agent.as_deref().unwrap_or_default())
            && word(&self.decision, shown.decision)
            && word(&self.reason, shown.reason)
    }

    /// An empty field of a form is no wish.
    fn tidy(mut self) -> Filter {
        for field in [&mut self.host, &mut self.agent, &mut self.decision, &mut self.reason] {
            field.take_if(|text| text.trim().is_empty());
        }
        self
    }
}

/// Records as they are, field by field.
#[derive(Serialize)]
struct Decisions<'a> {
    decisions: Vec<&'a RawValue>,
}

/// The latest, the newest first.
pub(super) async fn recent(State(admin): State<Arc<Admin>>, Asked(filter): Asked<Filter>) -> Response {
    let filter = filter.tidy();
    let Some(feed) = admin.proxy.pipeline.audit.feed() else { return no_feed() };
    let limit = filter.limit.unwrap_or(LIMIT);
    let shown: Vec<Arc<Shown>> =
        feed.after(0).into_iter().rev().filter(|shown| filter.admits(shown)).take(limit).collect();
    let records: Vec<&RawValue> = shown.iter().filter_map(|shown| serde_json::from_str(&shown.json).ok()).collect();
    Json(Decisions { decisions: records }).into_response()
}

/// What a record tells of a block.
#[derive(Deserialize)]
struct Refused {
    time: String,
    url: String,
    rule: Option<String>,
    line: Option<u32>,
}

/// Requests of one bot that one rule, or one reason, has stopped at one host.
#[derive(Serialize)]
struct Blocked<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<&'a str>,
    host: &'a str,
    reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
    times: u64,
    last: String,
    url: String,
}

/// Who is blocked where and by which rule, the most frequent first.
pub(super) async fn blocked(State(admin): State<Arc<Admin>>, Asked(filter): Asked<Filter>) -> Response {
    let filter = filter.tidy();
    let Some(feed) = admin.proxy.pipeline.audit.feed() else { return no_feed() };
    let shown = feed.after(0);
    let mut found: HashMap<_, Blocked<'_>> = HashMap::new();
    for shown in shown.iter().filter(|shown| matches!(shown.decision, "refuse" | "observe") && filter.admits(shown)) {
        let Ok(Refused { time, url, rule, line }) = serde_json::from_str(&shown.json) else { continue };
        let (agent, host) = (shown.agent.as_deref(), shown.host.as_str());
        let key = (agent, host, shown.reason, rule.clone(), line);
        let times = found.get(&key).map_or(0, |blocked| blocked.times) + 1;
        found.insert(key, Blocked { agent, host, reason: shown.reason, rule, line, times, last: time, url });
    }
    let mut blocked: Vec<Blocked<'_>> = found.into_values().collect();
    blocked.sort_by(|one, other| (other.times, &other.last).cmp(&(one.times, &one.last)));
    Json(serde_json::json!({ "blocked": blocked })).into_response()
}

/// Those that come, as they come.
pub(super) async fn live(
    State(admin): State<Arc<Admin>>,
    Asked(filter): Asked<Filter>,
    headers: HeaderMap,
) -> Response {
    let Ok(permit) = Arc::clone(&admin.feeds).try_acquire_owned() else {
        return problem(
            StatusCode::SERVICE_UNAVAILABLE,
            "as many follow the decisions as may; close another dashboard",
        );
    };
    let Some(feed) = admin.proxy.pipeline.audit.feed() else { return no_feed() };
    let seen = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    let seen = seen.unwrap_or_else(|| *feed.follow().borrow());
    let stopping = admin.proxy.pipeline.stopping.clone();
    let events = events(admin, filter.tidy(), seen, permit).take_until(stopping.cancelled_owned());
    Sse::new(events).keep_alive(KeepAlive::default()).into_response()
}

fn no_feed() -> Response {
    problem(StatusCode::NOT_FOUND, "no decisions are kept at hand")
}

fn events(
    admin: Arc<Admin>,
    filter: Filter,
    seen: u64,
    permit: OwnedSemaphorePermit,
) -> impl Stream<Item = Result<Event, Infallible>> {
    let batches = stream::unfold((admin, seen, permit), |(admin, seen, permit)| async move {
        let feed = admin.proxy.pipeline.audit.feed()?;
        feed.follow().wait_for(|latest| *latest > seen).await.ok()?;
        let batch = feed.after(seen);
        let seen = batch.last().map_or(seen, |shown| shown.number);
        Some((batch, (admin, seen, permit)))
    });
    batches.flat_map(move |batch| {
        let wanted: Vec<_> = batch.into_iter().filter(|shown| filter.admits(shown)).collect();
        stream::iter(
            wanted
                .into_iter()
                .map(|shown| Ok(Event::default().event("decision").id(shown.number.to_string()).data(&shown.json))),
        )
    })
}
