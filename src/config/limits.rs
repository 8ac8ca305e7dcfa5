//! `[limits]`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::units::{Rate, Size, Span, Text};
use crate::proxy::limits;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Limits {
    connections: usize,
    per_client: Text<Rate>,
    header_timeout: Span,
    body_timeout: Span,
    header_bytes: Size,
    drain: Span,
}

impl Default for Limits {
    fn default() -> Limits {
        let limits = limits::Settings::default();
        Limits {
            connections: limits.connections,
            per_client: Text(Rate { number: None, period: Duration::from_secs(1) }),
            header_timeout: Span(limits.header_timeout),
            body_timeout: Span(limits.body_timeout),
            header_bytes: Size(limits.header_bytes),
            drain: Span(limits.drain),
        }
    }
}

impl Limits {
    pub(super) fn settings(&self) -> limits::Settings {
        limits::Settings {
            connections: self.connections,
            per_client: self.per_client.0.number.map(|number| (number, self.per_client.0.period)),
            header_timeout: self.header_timeout.0,
            body_timeout: self.body_timeout.0,
            header_bytes: self.header_bytes.0,
            drain: self.drain.0,
        }
    }
}
