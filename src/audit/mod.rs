//! The audit log: one JSON object a line for each request that matters.
//!
//! Whoever answers for scrapers must be able to say what they did and why, so a [`Record`] begins with the request and is written
//! when it is dropped: a client that hangs up in the middle of a wait is recorded like any other. A refusal is on disk before the
//! client has it. Credentials and cookies have no field here, so they cannot be written.

pub mod chain;
pub mod feed;
mod log;
mod query;
mod rotated;
#[cfg(test)]
mod tests;
mod writer;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Serialize, Serializer};

pub use self::query::Query;
pub use self::rotated::{compressed, files, open as open_rotated};
pub use self::writer::{Audit, OpenError, Prepared};
use crate::clock;
use crate::policy::answer::Answer;
use crate::policy::decision::Decision;
use crate::policy::enforcement::{Enforcement, Mode};
use crate::policy::identity::Identity;
use crate::policy::reason::Reason;
use crate::policy::standing::Standing;
use crate::policy::target::without_user;
use crate::robots::status::Note;

/// Where records go, and which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The file; `None` is standard output.
    pub path: Option<PathBuf>,
    /// Which requests are recorded.
    pub record: Which,
    /// The file is rotated when it has so many octets; 0 is never.
    pub rotate: u64,
    /// So many rotated files stay.
    pub keep: usize,
    /// What becomes of query strings.
    pub query: Query,
    /// What a disk that takes no records means.
    pub on_failure: OnFailure,
    /// Each record names the hash of the one before it.
    pub chain: bool,
    /// What each record says of the configuration.
    pub config: String,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            path: None,
            record: Which::default(),
            rotate: 100 << 20,
            keep: 10,
            query: Query::default(),
            on_failure: OnFailure::default(),
            chain: false,
            config: String::new(),
        }
    }
}

/// What a disk that takes no records means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// Requests are served all the same.
    #[default]
    Serve,
    /// No request is served until it takes records again.
    Stop,
}

impl OnFailure {
    fn consequence(self) -> &'static str {
        match self {
            OnFailure::Serve => "requests are served all the same",
            OnFailure::Stop => "requests are refused until it takes records again",
        }
    }
}

/// Which requests are recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Which {
    /// Those that did not get through.
    #[default]
    Blocked,
    /// All.
    All,
}

/// One request, from its arrival until its answer has been sent or its client has gone.
#[derive(Debug)]
pub struct Record {
    audit: Arc<Audit>,
    began: Instant,
    reason: Option<Reason>,
    /// The first refusal that was not made.
    waived: Option<Reason>,
    entry: Entry,
    written: bool,
}

/// The line, in the order in which it is written.
#[derive(Clone, Debug, Default, Serialize)]
struct Entry {
    id: String,
    time: String,
    decision: &'static str,
    reason: &'static str,
    mode: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent_source: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent_conflict: Option<String>,
    client: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user_agent: Option<String>,
    method: String,
    url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    dest: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    robots: Option<Robots>,
    #[serde(skip_serializing_if = "Option::is_none")]
    crawl_delay_s: Option<f64>,
    #[serde(skip_serializing_if = "is_false")]
    capped: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    paced: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exception: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    stripped: Vec<String>,
    via: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    wait_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    would_wait_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    /// What became of the query of `url`, where it is not all there.
    #[serde(skip_serializing_if = "Option::is_none")]
    query: Option<&'static str>,
    duration_ms: u64,
    version: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    config: String,
}

/// The robots.txt that was decided by.
#[derive(Clone, Debug, Serialize)]
struct Robots {
    url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    final_url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    fetched_at: String,
    #[serde(serialize_with = "seconds")]
    age_s: Duration,
    #[serde(skip_serializing_if = "Option::is_none")]
    sha256: Option<String>,
    #[serde(skip_serializing_if = "is_false")]
    stale: bool,
    #[serde(skip_serializing_if = "is_false")]
    truncated: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<Note>,
}

fn is_false(value: &bool) -> bool {
    !value
}

fn seconds<S: Serializer>(age: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(age.as_secs())
}

/// How a request reached the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// A request with a whole URL, in clear text.
    Plain,
    /// Inside a CONNECT.
    Connect,
}

/// A request that has ended, recorded or not.
#[derive(Clone, Copy, Debug)]
pub struct Ended<'a> {
    /// `allow`, `refuse`, `observe` or `error`.
    pub decision: &'static str,
    /// Why.
    pub reason: Reason,
    /// What was asked for, as it is recorded.
    pub url: &'a str,
    /// The bot, where it could be told.
    pub agent: Option<&'a str>,
    /// The deciding rule.
    pub rule: Option<&'a str>,
    /// Its line.
    pub line: Option<u32>,
    /// The robots.txt that it stands in.
    pub robots_url: Option<&'a str>,
    /// How long the request waited for its turn.
    pub waited: Option<Duration>,
}

impl Record {
    /// Begins the record of a request.
    pub fn begin(audit: &Arc<Audit>, client: IpAddr, via: Via, method: &http::Method, mode: Mode) -> Record {
        let entry = Entry {
            id: uuid::Uuid::now_v7().to_string(),
            time: clock::rfc3339(clock::wall()),
            mode: mode.as_str(),
            client: client.to_canonical().to_string(),
            method: method.to_string(),
            via: match via {
                Via::Plain => "http",
                Via::Connect => "connect",
            },
            version: env!("CARGO_PKG_VERSION"),
            config: audit.settings().config.clone(),
            ..Entry::default()
        };
        Record { audit: Arc::clone(audit), began: clock::now(), reason: None, waived: None, entry, written: false }
    }

    /// The id, which the client sees as `instance`.
    pub fn id(&self) -> &str {
        &self.entry.id
    }

    /// What was asked for: the URL, or what the request line held where that is no URL.
    pub fn asked(&mut self, url: String) {
        self.entry.url = if url.contains('@') { without_user(&url) } else { url };
    }

    /// The client's own User-Agent, and the user it gave to the proxy.
    pub fn client_said(&mut self, user_agent: Option<&str>, user: Option<&str>) {
        self.entry.user_agent = user_agent.map(str::to_owned);
        self.entry.user = user.map(str::to_owned);
    }

    /// What its page wants the request for, as browsers say it in `Sec-Fetch-Dest`: one word, or the client is none.
    pub fn wanted_for(&mut self, dest: Option<&str>) {
        let is_word = |dest: &&str| dest.len() < 32 && dest.bytes().all(|octet| octet.is_ascii_lowercase());
        self.entry.dest = dest.filter(is_word).map(str::to_owned);
    }

    /// Who is asking.
    pub fn identified(&mut self, identity: &Identity) {
        self.entry.agent = Some(identity.token.to_string());
        self.entry.agent_source = Some(identity.source.as_str());
        self.entry.agent_conflict = identity.conflict.as_ref().map(ToString::to_string);
    }

    /// What is enforced of what will be decided.
    pub fn enforced(&mut self, enforcement: &Enforcement) {
        self.entry.mode = enforcement.mode.as_str();
        self.entry.exception = enforcement.exception.as_deref().map(str::to_owned);
    }

    /// What was decided, and by which robots.txt.
    pub fn decided(&mut self, decision: &Decision, standing: &Standing) {
        let evidence = &standing.evidence;
        self.reason = Some(decision.reason);
        // What was decided before was decided by an older robots.txt.
        self.waived = self.waived.filter(|reason| !reason.is_by_rules());
        self.entry.group = decision.group.clone();
        self.entry.rule = decision.rule.clone();
        self.entry.line = decision.line;
        self.entry.crawl_delay_s = decision.crawl_delay.map(|delay| delay.as_secs_f64());
        self.entry.detail = standing.failure.as_ref().map(|failure| failure.to_string());
        self.entry.robots = Some(Robots {
            url: evidence.robots_url.clone(),
            final_url: evidence.final_url.clone(),
            status: evidence.status,
            fetched_at: clock::rfc3339(evidence.fetched_at),
            age_s: clock::wall().duration_since(evidence.fetched_at).unwrap_or_default(),
            sha256: evidence.sha256.clone(),
            stale: standing.stale,
            truncated: evidence.truncated,
            note: evidence.note,
        });
    }

    /// Fields of the request that do not go on, since a server could choose another page by them.
    pub fn stripped<'n>(&mut self, names: impl Iterator<Item = &'n str>) {
        self.entry.stripped = names.map(str::to_owned).collect();
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
        self.entry.would_wait_ms = Some(milliseconds(wait));
    }

    /// The request was for a page of the proxy itself.
    pub fn own_page(&mut self, status: http::StatusCode, octets: u64) {
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
        self.entry.paced = Some(paced);
        self.entry.capped = capped;
    }

    /// How long the request waited for its turn, if it did.
    pub fn waited(&mut self, wait: Option<Duration>) {
        self.entry.wait_ms = wait.map(milliseconds);
    }

    /// The origin's answer has begun.
    pub fn answered(&mut self, status: http::StatusCode) {
        self.entry.status = Some(status.as_u16());
        self.entry.bytes = Some(0);
    }

    /// Octets of the body went to the client.
    pub fn sent(&mut self, octets: u64) {
        *self.entry.bytes.get_or_insert(0) += octets;
    }

    /// Nobody looked at what went through; so many octets came from the client.
    pub fn uninspected(&mut self, from_client: u64) {
        self.entry.detail = Some(format!("uninspected; {from_client} octets from the client"));
    }

    /// The request ends here, for this reason.
    pub fn failed(&mut self, reason: Reason, detail: Option<String>) {
        self.reason = Some(reason);
        // Whatever was let pass before, this was not.
        self.waived = None;
        self.entry.detail = detail.or(self.entry.detail.take());
    }

    /// The proxy's own answer to this request, with all that the record knows of it.
    pub fn answer(&self, reason: Reason, detail: String) -> Answer {
        let entry = &self.entry;
        let mut answer = Answer::new(reason, detail, entry.id.clone());
        answer.url = Some(entry.url.clone());
        answer.agent = entry.agent.clone();
        answer.group = entry.group.clone();
        answer.rule = entry.rule.clone();
        answer.line = entry.line;
        if let Some(robots) = &entry.robots {
            answer.robots_url = Some(robots.url.clone());
            answer.robots_status = robots.status;
            answer.robots_fetched_at = Some(robots.fetched_at.clone());
        }
        answer
    }

    /// Writes the record of an answer that the proxy makes itself, and returns when it is written.
    pub async fn refuse(mut self, reason: Reason, detail: &str, status: http::StatusCode, octets: u64) {
        self.failed(reason, Some(detail.to_owned()));
        self.entry.status = Some(status.as_u16());
        self.entry.bytes = Some(octets);
        let Some(line) = self.finish() else { return };
        self.audit.write(line).await;
    }

    /// The end of the record, which each request comes to once: its decision, and its line where the settings want it.
    fn finish(&mut self) -> Option<Vec<u8>> {
        if std::mem::replace(&mut self.written, true) {
            return None;
        }
        let answered = self.entry.status.is_some();
        let ended = self.reason.filter(|reason| answered || !reason.allows()).unwrap_or(Reason::ClientGone);
        let reason = self.waived.unwrap_or(ended);
        self.entry.reason = reason.code();
        self.entry.decision = match reason {
            _ if self.waived.is_some() => "observe",
            _ if reason.allows() => "allow",
            _ if reason.is_refusal() => "refuse",
            _ => "error",
        };
        self.entry.redact(self.audit.settings().query);
        self.audit.ended(&self.entry.ended(reason));
        self.audit.count(self.entry.decision, reason, self.entry.wait_ms.map(Duration::from_millis));
        let is_written = self.entry.decision != "allow" || self.audit.which() == Which::All;
        if !is_written && self.audit.feed().is_none() {
            return None;
        }
        self.entry.duration_ms = milliseconds(clock::now().duration_since(self.began));
        let mut line = serde_json::to_string(&self.entry).unwrap_or_default();
        if let Some(feed) = self.audit.feed() {
            feed.push(self.entry.decision, reason.code(), self.entry.agent.clone(), &self.entry.url, line.clone());
        }
        line.push('\n');
        is_written.then(|| line.into_bytes())
    }
}

impl Entry {
    fn ended(&self, reason: Reason) -> Ended<'_> {
        Ended {
            decision: self.decision,
            reason,
            url: &self.url,
            agent: self.agent.as_deref(),
            rule: self.rule.as_deref(),
            line: self.line,
            robots_url: self.robots.as_ref().map(|robots| robots.url.as_str()),
            waited: self.wait_ms.map(Duration::from_millis),
        }
    }

    /// Leaves out what of query strings is not to be recorded, wherever a URL stands.
    fn redact(&mut self, query: Query) {
        if let Some(detail) = &mut self.detail {
            *detail = query.redact_in(detail, &self.url).into_owned();
        }
        if let Some(url) = query.redacted(&self.url) {
            self.url = url;
            self.query = Some(query.as_str());
        }
        if let Some(url) = self.robots.as_mut().and_then(|robots| robots.final_url.as_mut())
            && let Some(redacted) = query.redacted(url)
        {
            *url = redacted;
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        if let Some(line) = self.finish() {
            self.audit.write_later(line);
        }
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
