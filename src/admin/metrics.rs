//! `/metrics`: everything that is counted, in one place, in the text form of OpenMetrics, which Prometheus reads.
//!
//! Parts count for themselves; the registry is put together anew for each scrape, from their handles and from what they say of
//! themselves at that moment.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;

use super::Admin;
use super::guard::problem;
use crate::proxy::listener::Proxy;

const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Side {
    side: &'static str,
}

pub(super) async fn metrics(State(admin): State<Arc<Admin>>) -> Response {
    let mut encoded = String::new();
    match text::encode(&mut encoded, &registry(&admin.proxy)) {
        Ok(()) => ([(header::CONTENT_TYPE, MEDIA_TYPE)], encoded).into_response(),
        Err(_) => problem(StatusCode::INTERNAL_SERVER_ERROR, "the metrics cannot be written"),
    }
}

fn registry(proxy: &Proxy) -> Registry {
    let pipeline = &proxy.pipeline;
    let (audit, lookup, upstream) = (&pipeline.audit, &pipeline.lookup, &pipeline.upstream);
    let gauge = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let connections = Family::<Side, Gauge>::default();
    connections.get_or_create(&Side { side: "client" }).set(gauge(pipeline.limits.connections()));
    connections.get_or_create(&Side { side: "upstream" }).set(gauge(upstream.connections()));
    let (copies, waiting) =
        (ConstGauge::new(gauge(lookup.count() as u64)), ConstGauge::new(gauge(pipeline.queue.len() as u64)));
    let minted = ConstCounter::new(proxy.interception.leaves().minted());

    let mut all = Registry::with_prefix("robots_proxy");
    all.register("requests", "Requests that have ended, by decision and reason", audit.requests().clone());
    all.register("robots_fetches", "Requests for robots.txt, by outcome", lookup.fetches().clone());
    all.register("robots_copies", "Copies of robots.txt in memory", copies);
    all.register("queue_length", "Requests that wait for their turn", waiting);
    all.register("wait_seconds", "How long requests waited for their turn", audit.waits().0.clone());
    all.register(
        "upstream_seconds",
        "From the start of a request to the head of the origin's answer",
        upstream.answers().0,
    );
    all.register("connections", "Open connections, by side", connections);
    all.register("certificates_minted", "Certificates made for hosts", minted);
    all.register("audit_records", "Audit records written", ConstCounter::new(audit.written()));
    all.register("audit_failures", "Audit records lost", ConstCounter::new(audit.failed()));
    all
}
