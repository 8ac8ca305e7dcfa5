//! A robots.txt as it is kept, and what becomes of the outcome of a fetch.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::{HeaderMap, header};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::Settings;
use super::fetch::{FetchError, Fetched, Validators};
use crate::hex::hex;
use crate::policy::reason::Reason;
use crate::policy::standing::{Effect, Evidence};
use crate::robots::RobotsTxt;
use crate::robots::status::{self, FinalAnswer, Meaning, Note};

/// What is kept of a good answer, beside its body.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Copy {
    /// The robots.txt of the origin.
    pub robots_url: String,
    /// Where redirects led, if anywhere else.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub final_url: Option<String>,
    /// The status of the answer.
    pub status: u16,
    /// When this body was sent.
    pub fetched_at: SystemTime,
    /// When the origin last said that it is the one in force.
    pub confirmed_at: SystemTime,
    /// For how long it may be used from then on.
    pub lifetime: Duration,
    /// SHA-256 of the body, in hex; `None` where the answer means that there are no rules.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sha256: Option<String>,
    /// Whether the file was longer than `robots.max_bytes`.
    pub truncated: bool,
    /// What is odd about it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub note: Option<Note>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    etag: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    last_modified: Option<String>,
}

impl Copy {
    fn of(evidence: Evidence, fetched: &Fetched, settings: &Settings, wall: SystemTime) -> Copy {
        let field = |name: header::HeaderName| Some(fetched.headers.get(name)?.to_str().ok()?.to_owned());
        Copy {
            robots_url: evidence.robots_url,
            final_url: evidence.final_url,
            status: fetched.status.as_u16(),
            fetched_at: wall,
            confirmed_at: wall,
            lifetime: status::lifetime(&fetched.headers, settings.lifetimes),
            sha256: evidence.sha256,
            truncated: evidence.truncated,
            note: evidence.note,
            etag: field(header::ETAG),
            last_modified: field(header::LAST_MODIFIED),
        }
    }

    /// The copy that an answer without rules makes, where it tells nothing more.
    pub(super) fn plain(robots_url: String, status: u16, fetched_at: SystemTime, lifetime: Duration) -> Copy {
        Copy {
            robots_url,
            final_url: None,
            status,
            fetched_at,
            confirmed_at: fetched_at,
            lifetime,
            sha256: None,
            truncated: false,
            note: None,
            etag: None,
            last_modified: None,
        }
    }

    /// Whether it is such a one.
    pub(super) fn is_plain(&self) -> bool {
        self.sha256.is_none()
            && *self == Copy::plain(self.robots_url.clone(), self.status, self.fetched_at, self.lifetime)
    }

    /// What a refresh may be conditional on (RFC 9110 §13.1), and at which URL.
    pub fn validators(&self) -> Option<Validators> {
        let url = self.final_url.clone().unwrap_or_else(|| self.robots_url.clone());
        let (etag, last_modified) = (self.etag.clone(), self.last_modified.clone());
        (etag.is_some() || last_modified.is_some()).then_some(Validators { url, etag, last_modified })
    }

    /// The copy after the origin has said that it still holds: its cache headers count anew.
    pub fn confirmed(&self, headers: &HeaderMap, settings: &Settings, wall: SystemTime) -> Copy {
        Copy { confirmed_at: wall, lifetime: status::lifetime(headers, settings.lifetimes), ..self.clone() }
    }

    /// What the copy means, with its body at hand.
    pub fn effect(&self, body: &[u8], settings: &Settings) -> Effect {
        match self.sha256 {
            Some(_) => Effect::Rules(Arc::new(RobotsTxt::parse_within(body, settings.max_bytes))),
            None => Effect::NoRules,
        }
    }

    /// Whether it would have been made under these settings: a 403 is a permission by one status table, and none by the other.
    pub fn holds_under(&self, settings: &Settings) -> bool {
        let bare = FinalAnswer { status: self.status, headers: &HeaderMap::new(), body: &[] };
        let is_client_error = (400..500).contains(&self.status);
        !is_client_error || matches!(status::meaning(settings.status_policy, bare), Meaning::NoRules(_))
    }

    /// The same with a lifetime that these settings could have given it.
    pub fn within(self, settings: &Settings) -> Copy {
        let (least, most) = (settings.lifetimes.min_ttl, settings.lifetimes.ttl);
        Copy { lifetime: self.lifetime.max(least).min(most), ..self }
    }

    /// What an answer and a record tell of it.
    pub fn evidence(&self) -> Evidence {
        Evidence {
            robots_url: self.robots_url.clone(),
            final_url: self.final_url.clone(),
            status: Some(self.status),
            fetched_at: self.confirmed_at,
            sha256: self.sha256.clone(),
            truncated: self.truncated,
            note: self.note,
        }
    }
}

/// What the outcome of a fetch comes to.
pub enum Judged {
    /// A new copy, with its body.
    Good(Box<Copy>, Vec<u8>),
    /// The copy that was asked about still holds (304); its header fields.
    Confirmed(HeaderMap),
    /// The file cannot be had.
    Bad {
        /// How that is answered, where no copy is left.
        reason: Reason,
        /// The answer, if there was one.
        evidence: Evidence,
        /// What happened.
        failure: String,
        /// When the origin wants to be asked again.
        retry_after: Option<Duration>,
    },
}

impl Judged {
    /// The outcome in a word, for metrics.
    pub fn outcome(&self) -> &'static str {
        match self {
            Judged::Good(copy, _) if copy.sha256.is_some() => "rules",
            Judged::Good(..) => "no-rules",
            Judged::Confirmed(_) => "not-modified",
            Judged::Bad { reason, .. } => reason.code(),
        }
    }
}

/// Judges the outcome of a fetch that was conditional on a copy, or not.
pub fn judge(
    settings: &Settings,
    robots_url: String,
    conditional: bool,
    outcome: Result<Fetched, FetchError>,
    wall: SystemTime,
) -> Judged {
    let mut evidence = no_evidence(robots_url, wall);
    let fetched = match outcome {
        Ok(fetched) => fetched,
        Err(error) => {
            // Where the origin itself is off limits, its pages are, too, and the answer says so.
            let (off_limits, retry_after) = match &error {
                FetchError::Upstream(error) => (error.off_limits(), None),
                FetchError::Held(pause) => (None, Some(*pause)),
                _ => (None, None),
            };
            let (reason, failure) = (off_limits.unwrap_or(Reason::RobotsUnreachable), error.to_string());
            return Judged::Bad { reason, evidence, failure, retry_after };
        }
    };
    if conditional && fetched.status == http::StatusCode::NOT_MODIFIED {
        return Judged::Confirmed(fetched.headers);
    }
    evidence.status = Some(fetched.status.as_u16());
    evidence.final_url = fetched.final_url.clone();
    let answer = FinalAnswer { status: fetched.status.as_u16(), headers: &fetched.headers, body: &fetched.body };
    let meaning = match fetched.too_many_redirects {
        true => status::TOO_MANY_REDIRECTS,
        false => status::meaning(settings.status_policy, answer),
    };
    let retry_after = status::retry_after(&fetched.headers, wall);
    let failure = format!("robots.txt answered {}", fetched.status);
    match meaning {
        Meaning::Rules => {
            evidence.truncated = fetched.body.len() > settings.max_bytes;
            evidence.sha256 = Some(hex(&Sha256::digest(&fetched.body)));
            Judged::Good(Box::new(Copy::of(evidence, &fetched, settings, wall)), fetched.body)
        }
        Meaning::NoRules(note) => {
            evidence.note = note;
            Judged::Good(Box::new(Copy::of(evidence, &fetched, settings, wall)), Vec::new())
        }
        Meaning::Withheld => Judged::Bad { reason: Reason::RobotsUnavailable, evidence, failure, retry_after },
        Meaning::Unreachable(note) => {
            evidence.note = note;
            let failure = note.map_or(failure.clone(), |note| format!("{failure} with {}", note.describe()));
            Judged::Bad { reason: Reason::RobotsUnreachable, evidence, failure, retry_after }
        }
    }
}

/// Evidence of nothing but the question.
pub fn no_evidence(robots_url: String, wall: SystemTime) -> Evidence {
    Evidence { robots_url, final_url: None, status: None, fetched_at: wall, sha256: None, truncated: false, note: None }
}
