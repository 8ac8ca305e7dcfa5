//! Copies, lines and standings as programs read them: the commands' `--json` and the JSON API tell the same in the same words.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::clock;
use crate::lookup::copy::Copy;
use crate::policy::standing::Standing;
use crate::queue::LineReport;

/// A copy with its body, as it goes through the socket.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Told {
    /// The copy.
    pub copy: Copy,
    /// The body, base64, where it is at hand.
    pub body: Option<String>,
}

impl Told {
    /// A copy and its body.
    pub fn new(copy: Copy, body: Option<&[u8]>) -> Told {
        Told { copy, body: body.map(|body| BASE64.encode(body)) }
    }

    /// The body.
    pub fn body(&self) -> Option<Vec<u8>> {
        BASE64.decode(self.body.as_ref()?).ok()
    }
}

/// A copy in the words of a record.
pub fn copy(origin: &str, copy: &Copy) -> Value {
    json!({
        "origin": origin,
        "robots_url": copy.robots_url,
        "final_url": copy.final_url,
        "status": copy.status,
        "fetched_at": clock::rfc3339(copy.fetched_at),
        "confirmed_at": clock::rfc3339(copy.confirmed_at),
        "lifetime_s": copy.lifetime.as_secs(),
        "sha256": copy.sha256,
        "truncated": copy.truncated,
        "note": copy.note,
    })
}

/// A line of waiting requests.
pub fn line(line: &LineReport) -> Value {
    json!({
        "host": line.host,
        "bot": line.bot,
        "waiting": line.waiting,
        "delay_s": line.delay.as_secs_f64(),
        "since_start_s": line.since_start.map(|since| since.as_secs_f64()),
        "next_in_s": line.next_in.as_secs_f64(),
        "held_for_s": line.held_for.map(|held| held.as_secs_f64()),
    })
}

/// What a refresh came to, in the words of a record.
pub fn standing(standing: &Standing) -> Value {
    json!({
        "robots_url": standing.evidence.robots_url,
        "status": standing.evidence.status,
        "stale": standing.stale,
        "failure": standing.failure.as_deref(),
        "sha256": standing.evidence.sha256,
    })
}
