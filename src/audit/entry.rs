//! The words of a record: one JSON object, and what the proxy's own answer says of the request.
//!
//! Made from the facts of a [`Record`](super::Record) when they are written or shown.

use std::borrow::Cow;
use std::fmt::Write;
use std::net::IpAddr;
use std::time::Duration;

use uuid::Uuid;

use super::json::{self, Plain, Value};
use super::record::{Asked, Decided, Facts};
use super::{Ended, Settings, Via};
use crate::clock;
use crate::policy::answer::Answer;
use crate::policy::reason::Reason;
use crate::policy::target::without_user;
use crate::robots::status::Note;

/// Most lines are no longer.
const CAPACITY: usize = 1024;

/// Most URLs are no longer before their path.
const URL: usize = 48;

/// What stands in the line.
#[derive(Debug)]
pub(super) struct Entry<'a> {
    id: String,
    time: String,
    decision: &'static str,
    reason: &'static str,
    mode: &'static str,
    agent: Option<&'a str>,
    agent_source: Option<&'static str>,
    agent_conflict: Option<&'a str>,
    client: IpAddr,
    user: Option<&'a str>,
    user_agent: Option<Cow<'a, str>>,
    method: &'a str,
    url: Cow<'a, str>,
    dest: Option<&'a str>,
    group: Option<&'a str>,
    rule: Option<String>,
    line: Option<u32>,
    robots: Option<Robots<'a>>,
    crawl_delay_s: Option<f64>,
    capped: bool,
    paced: Option<bool>,
    exception: Option<&'a str>,
    stripped: Vec<&'a str>,
    via: &'static str,
    wait_ms: Option<u64>,
    would_wait_ms: Option<u64>,
    status: Option<u16>,
    bytes: Option<u64>,
    detail: Option<Cow<'a, str>>,
    /// What became of the query of `url`, where it is not all there.
    query: Option<&'static str>,
    duration_ms: u64,
    version: &'static str,
    config: &'a str,
}

/// The robots.txt that was decided by.
#[derive(Debug)]
struct Robots<'a> {
    url: &'a str,
    final_url: Option<Cow<'a, str>>,
    status: Option<u16>,
    fetched_at: String,
    age_s: u64,
    sha256: Option<&'a str>,
    stale: bool,
    truncated: bool,
    note: Option<Note>,
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl<'a> Entry<'a> {
    /// The words of what is known so far.
    pub(super) fn of(facts: &'a Facts) -> Entry<'a> {
        let (identity, decided) = (facts.identity.as_ref(), facts.decided.as_ref());
        let decision = decided.map(|decided| &decided.decision);
        let rule = decision.and_then(|decision| decision.rule());
        let failure = || decided.and_then(|decided| decided.standing.failure.as_deref());
        Entry {
            id: facts.id.unwrap_or(Uuid::nil()).hyphenated().encode_lower(&mut Uuid::encode_buffer()).to_owned(),
            time: clock::rfc3339(facts.at),
            decision: "",
            reason: "",
            mode: facts.mode.as_str(),
            agent: identity.map(|identity| identity.token.as_str()),
            agent_source: identity.map(|identity| identity.source.as_str()),
            agent_conflict: identity.and_then(|identity| identity.conflict.as_ref()).map(|token| token.as_str()),
            client: facts.client,
            user: facts.user.as_deref(),
            user_agent: facts.user_agent.as_ref().map(|value| String::from_utf8_lossy(value.as_bytes())),
            method: facts.method.as_str(),
            url: facts.asked.url(),
            dest: facts.dest.as_ref().and_then(|dest| word(dest.as_bytes())),
            group: decision.and_then(|decision| decision.group()),
            rule: rule.map(|rule| rule.to_string()),
            line: rule.map(|rule| rule.line),
            robots: decided.map(Robots::of),
            crawl_delay_s: decision.and_then(|decision| decision.crawl_delay).map(|delay| delay.as_secs_f64()),
            capped: facts.capped,
            paced: facts.paced,
            exception: facts.exception.as_deref(),
            stripped: facts.stripped.iter().map(|name| name.as_str()).collect(),
            via: match facts.via {
                Via::Plain => "http",
                Via::Connect => "connect",
            },
            wait_ms: facts.waited.map(milliseconds),
            would_wait_ms: facts.would_wait.map(milliseconds),
            status: facts.status.map(|status| status.as_u16()),
            bytes: facts.octets,
            detail: facts.detail.as_deref().or_else(failure).map(Cow::Borrowed),
            query: None,
            duration_ms: 0,
            version: env!("CARGO_PKG_VERSION"),
            config: "",
        }
    }

    /// With the end of the request.
    pub(super) fn ended(self, decision: &'static str, reason: Reason, after: Duration) -> Entry<'a> {
        Entry { decision, reason: reason.code(), duration_ms: milliseconds(after), ..self }
    }

    /// As the settings want it: without what of query strings is not to be recorded, wherever a URL stands.
    pub(super) fn configured(mut self, settings: &'a Settings) -> Entry<'a> {
        let query = settings.query;
        self.config = &settings.config;
        self.detail = self.detail.map(|detail| query.redact_in(&detail, &self.url).into_owned().into());
        if let Some(url) = query.redacted(&self.url) {
            self.url = url.into();
            self.query = Some(query.as_str());
        }
        if let Some(url) = self.robots.as_mut().and_then(|robots| robots.final_url.as_mut())
            && let Some(redacted) = query.redacted(url)
        {
            *url = redacted.into();
        }
        self
    }

    /// The line, without its end. The order of its fields is here.
    pub(super) fn json(&self) -> String {
        let mut text = String::with_capacity(CAPACITY);
        json::object!(&mut text, {
            id: Plain(&self.id),
            time: Plain(&self.time),
            decision: Plain(self.decision),
            reason: Plain(self.reason),
            mode: Plain(self.mode),
            agent: self.agent,
            agent_source: self.agent_source.map(Plain),
            agent_conflict: self.agent_conflict,
            client: self.client,
            user: self.user,
            user_agent: self.user_agent,
            method: self.method,
            url: self.url,
            dest: self.dest,
            group: self.group,
            rule: self.rule.as_deref(),
            line: self.line,
            robots: self.robots,
            crawl_delay_s: self.crawl_delay_s,
            capped: self.capped,
            paced: self.paced,
            exception: self.exception,
            stripped: self.stripped[..],
            via: Plain(self.via),
            wait_ms: self.wait_ms,
            would_wait_ms: self.would_wait_ms,
            status: self.status,
            bytes: self.bytes,
            detail: self.detail,
            query: self.query.map(Plain),
            duration_ms: self.duration_ms,
            version: Plain(self.version),
            config: Some(self.config).filter(|config| !config.is_empty()),
        });
        text
    }

    /// The end of the request, for who watches.
    pub(super) fn told(&self, reason: Reason) -> Ended<'_> {
        Ended {
            decision: self.decision,
            reason,
            url: &self.url,
            agent: self.agent,
            rule: self.rule.as_deref(),
            line: self.line,
            robots_url: self.robots.as_ref().map(|robots| robots.url),
            waited: self.wait_ms.map(Duration::from_millis),
        }
    }

    /// The proxy's own answer to the request.
    pub(super) fn answer(self, reason: Reason, detail: String) -> Answer {
        let mut answer = Answer::new(reason, detail, self.id);
        answer.url = Some(self.url.into_owned());
        answer.agent = self.agent.map(str::to_owned);
        answer.group = self.group.map(str::to_owned);
        answer.rule = self.rule;
        answer.line = self.line;
        if let Some(robots) = self.robots {
            answer.robots_url = Some(robots.url.to_owned());
            answer.robots_status = robots.status;
            answer.robots_fetched_at = Some(robots.fetched_at);
        }
        answer
    }
}

impl<'a> Robots<'a> {
    fn of(decided: &'a Decided) -> Robots<'a> {
        let (standing, evidence) = (&decided.standing, &decided.standing.evidence);
        Robots {
            url: &evidence.robots_url,
            final_url: evidence.final_url.as_deref().map(Cow::Borrowed),
            status: evidence.status,
            fetched_at: clock::rfc3339(evidence.fetched_at),
            age_s: decided.at.duration_since(evidence.fetched_at).unwrap_or_default().as_secs(),
            sha256: evidence.sha256.as_deref(),
            stale: standing.stale,
            truncated: evidence.truncated,
            note: evidence.note,
        }
    }
}

impl Value for Robots<'_> {
    fn write(&self, text: &mut String) {
        json::object!(text, {
            url: self.url,
            final_url: self.final_url,
            status: self.status,
            fetched_at: Plain(&self.fetched_at),
            age_s: self.age_s,
            sha256: self.sha256.map(Plain),
            stale: self.stale,
            truncated: self.truncated,
            note: self.note,
        });
    }
}

impl Value for Note {
    fn write(&self, text: &mut String) {
        text.push_str(&serde_json::to_string(self).unwrap_or_default());
    }
}

impl Asked {
    /// What stands in the record, without the user that a URL may name.
    fn url(&self) -> Cow<'_, str> {
        let text = match self {
            Asked::Nothing => return "".into(),
            Asked::Text(text) => Cow::Borrowed(text.as_str()),
            Asked::Line(uri) => Cow::Owned(uri.to_string()),
            Asked::Target(target) => {
                // As long as most are, so that it need not grow piece by piece.
                let mut url = String::with_capacity(URL + target.path.as_str().len());
                let _ = write!(url, "{target}");
                Cow::Owned(url)
            }
        };
        if text.contains('@') { without_user(&text).into() } else { text }
    }
}

/// One word, or the client is no browser.
fn word(dest: &[u8]) -> Option<&str> {
    let is_word = dest.len() < 32 && dest.iter().all(u8::is_ascii_lowercase);
    is_word.then(|| str::from_utf8(dest).ok()).flatten()
}
