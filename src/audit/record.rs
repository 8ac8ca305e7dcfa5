//! What is known of one request, from its arrival to its end.
//!
//! A [`Record`] holds what it is told as it is told: numbers, and shares of what lives anyway. The words for it are made by
//! [`Entry`] when the record is written or shown, which for most requests, those that are allowed, is never.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use http::{HeaderName, HeaderValue, Method, StatusCode, Uri};
use uuid::Uuid;

use super::entry::Entry;
use super::{Audit, Via, Which};
use crate::clock;
use crate::policy::answer::Answer;
use crate::policy::decision::Decision;
use crate::policy::enforcement::{Enforcement, Mode};
use crate::policy::identity::Identity;
use crate::policy::reason::Reason;
use crate::policy::standing::Standing;
use crate::policy::target::Target;

/// One request, from its arrival until its answer has been sent or its client has gone.
#[derive(Debug)]
pub struct Record {
    audit: Arc<Audit>,
    /// In a box: a record is handed on from step to step.
    facts: Box<Facts>,
    /// Why the request ended as it did, as far as it has.
    reason: Option<Reason>,
    /// The first refusal that was not made.
    waived: Option<Reason>,
    written: bool,
}

/// What was told of a request.
#[derive(Debug)]
pub(super) struct Facts {
    /// Made when somebody wants to see it.
    pub(super) id: Option<Uuid>,
    began: Instant,
    pub(super) at: SystemTime,
    pub(super) mode: Mode,
    pub(super) identity: Option<Identity>,
    pub(super) client: IpAddr,
    pub(super) user: Option<Arc<str>>,
    pub(super) user_agent: Option<HeaderValue>,
    pub(super) method: Method,
    pub(super) asked: Asked,
    pub(super) dest: Option<HeaderValue>,
    pub(super) decided: Option<Decided>,
    pub(super) capped: bool,
    pub(super) paced: Option<bool>,
    pub(super) exception: Option<Arc<str>>,
    pub(super) stripped: Vec<HeaderName>,
    pub(super) via: Via,
    pub(super) waited: Option<Duration>,
    pub(super) would_wait: Option<Duration>,
    pub(super) status: Option<StatusCode>,
    pub(super) octets: Option<u64>,
    pub(super) detail: Option<String>,
}

/// What was asked for, as far as it could be read.
#[derive(Debug)]
pub enum Asked {
    /// Nothing of it.
    Nothing,
    /// What the request line held.
    Line(Uri),
    /// A place to go to.
    Text(String),
    /// What everything was decided about.
    Target(Target),
}

/// A decision, and what it rests on.
#[derive(Debug)]
pub(super) struct Decided {
    pub(super) decision: Decision,
    pub(super) standing: Arc<Standing>,
    pub(super) at: SystemTime,
}

impl Record {
    /// Begins the record of a request.
    pub fn begin(audit: &Arc<Audit>, client: IpAddr, via: Via, method: &Method, mode: Mode) -> Record {
        let facts = Facts {
            id: None,
            began: clock::now(),
            at: clock::wall(),
            mode,
            identity: None,
            client: client.to_canonical(),
            user: None,
            user_agent: None,
            method: method.clone(),
            asked: Asked::Nothing,
            dest: None,
            decided: None,
            capped: false,
            paced: None,
            exception: None,
            stripped: Vec::new(),
            via,
            waited: None,
            would_wait: None,
            status: None,
            octets: None,
            detail: None,
        };
        Record { audit: Arc::clone(audit), facts: Box::new(facts), reason: None, waived: None, written: false }
    }

    /// What was asked for.
    pub fn asked(&mut self, asked: Asked) {
        self.facts.asked = asked;
    }

    /// The client's own User-Agent, and the user it gave to the proxy.
    pub fn client_said(&mut self, user_agent: Option<&HeaderValue>, user: Option<&Arc<str>>) {
        self.facts.user_agent = user_agent.cloned();
        self.facts.user = user.cloned();
    }

    /// What its page wants the request for, as browsers say it in `Sec-Fetch-Dest`.
    pub fn wanted_for(&mut self, dest: Option<&HeaderValue>) {
        self.facts.dest = dest.cloned();
    }

    /// Who is asking.
    pub fn identified(&mut self, identity: &Identity) {
        self.facts.identity = Some(identity.clone());
    }

    /// What is enforced of what will be decided.
    pub fn enforced(&mut self, enforcement: &Enforcement) {
        self.facts.mode = enforcement.mode;
        self.facts.exception = enforcement.exception.clone();
    }

    /// What was decided now, and by which robots.txt.
    pub fn decided(&mut self, decision: &Decision, standing: &Arc<Standing>, now: Instant) {
        self.reason = Some(decision.reason);
        // What was decided before was decided by an older robots.txt.
        self.waived = self.waived.filter(|reason| !reason.is_by_rules());
        self.facts.detail = None;
        let at = self.facts.at + now.duration_since(self.facts.began);
        self.facts.decided = Some(Decided { decision: decision.clone(), standing: Arc::clone(standing), at });
    }

    /// Fields of the request that do not go on, since a server could choose another page by them.
    pub fn stripped<'n>(&mut self, names: impl Iterator<Item = &'n HeaderName>) {
        self.facts.stripped = names.cloned().collect();
    }

    /// A refusal that is not made, in observe mode or by an exception. The first one counts: there would have been no other.
    pub fn waived(&mut self, reason: Reason) {
        self.waived.get_or_insert(reason);
    }

    /// Whether the request goes on although it would have been refused.
    pub fn is_waived(&self) -> bool {
        self.waived.is_some()
    }

    /// How long observe mode would have waited.
    pub fn would_wait(&mut self, wait: Duration) {
        self.facts.would_wait = Some(wait);
    }

    /// The request was for a page of the proxy itself.
    pub fn own_page(&mut self, status: StatusCode, octets: u64) {
        self.allowed(Reason::OwnPage);
        self.answered(status);
        self.sent(octets);
    }

    /// The request needs no rules.
    pub fn allowed(&mut self, reason: Reason) {
        self.reason = Some(reason);
    }

    /// Whether the request stands in the line of its host, or passes it as a page's requisite; whether the delay was cut down to
    /// `pace.max_delay`.
    pub fn paced(&mut self, paced: bool, capped: bool) {
        self.facts.paced = Some(paced);
        self.facts.capped = capped;
    }

    /// How long the request waited for its turn, if it did.
    pub fn waited(&mut self, wait: Option<Duration>) {
        self.facts.waited = wait;
    }

    /// The origin's answer has begun.
    pub fn answered(&mut self, status: StatusCode) {
        self.facts.status = Some(status);
        self.facts.octets = Some(0);
    }

    /// Octets of the body went to the client.
    pub fn sent(&mut self, octets: u64) {
        *self.facts.octets.get_or_insert(0) += octets;
    }

    /// Nobody looked at what went through; so many octets came from the client.
    pub fn uninspected(&mut self, from_client: u64) {
        self.facts.detail = Some(format!("uninspected; {from_client} octets from the client"));
    }

    /// The request ends here, for this reason.
    pub fn failed(&mut self, reason: Reason, detail: Option<String>) {
        self.reason = Some(reason);
        // Whatever was let pass before, this was not.
        self.waived = None;
        self.facts.detail = detail.or(self.facts.detail.take());
    }

    /// The proxy's own answer to this request, with all that the record knows of it.
    pub fn answer(&mut self, reason: Reason, detail: String) -> Answer {
        self.facts.name();
        Entry::of(&self.facts).answer(reason, detail)
    }

    /// Writes the record of an answer that the proxy makes itself, and returns when it is written.
    pub async fn refuse(mut self, reason: Reason, detail: &str, status: StatusCode, octets: u64) {
        self.failed(reason, Some(detail.to_owned()));
        self.facts.status = Some(status);
        self.facts.octets = Some(octets);
        let Some(line) = self.finish() else { return };
        self.audit.write(line).await;
    }

    /// The end of the record, which each request comes to once: its decision, and its line where the settings want it.
    fn finish(&mut self) -> Option<Vec<u8>> {
        if std::mem::replace(&mut self.written, true) {
            return None;
        }
        let answered = self.facts.status.is_some();
        let ended = self.reason.filter(|reason| answered || !reason.allows()).unwrap_or(Reason::ClientGone);
        let reason = self.waived.unwrap_or(ended);
        let decision = match reason {
            _ if self.waived.is_some() => "observe",
            _ if reason.allows() => "allow",
            _ if reason.is_refusal() => "refuse",
            _ => "error",
        };
        self.audit.count(decision, reason, self.facts.waited);
        let is_written = decision != "allow" || self.audit.which() == Which::All;
        if !is_written && !self.audit.is_watched() {
            return None;
        }
        self.facts.name();
        let settings = self.audit.settings();
        let entry = Entry::of(&self.facts).ended(decision, reason, clock::now().duration_since(self.facts.began));
        let entry = entry.configured(&settings);
        let told = entry.told(reason);
        self.audit.ended(&told);
        let mut line = entry.json();
        if let Some(feed) = self.audit.feed() {
            feed.push(&told, line.clone());
        }
        line.push('\n');
        is_written.then(|| line.into_bytes())
    }
}

impl Facts {
    /// Gives the request its id, which begins with the time of its arrival.
    fn name(&mut self) {
        let at = self.at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let arrival = || uuid::Timestamp::from_unix(uuid::NoContext, at.as_secs(), at.subsec_nanos());
        self.id.get_or_insert_with(|| Uuid::new_v7(arrival()));
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        if let Some(line) = self.finish() {
            self.audit.write_later(line);
        }
    }
}
