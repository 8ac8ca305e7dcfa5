//! What ends a request before its answer comes from the origin, translated into a reason: once, here.

use std::time::Duration;

use crate::auth;
use crate::ca;
use crate::policy::decision::Decision;
use crate::policy::identity::{MalformedIdentity, Unidentified};
use crate::policy::reason::Reason;
use crate::policy::target::BadTarget;
use crate::queue;
use crate::upstream;

/// Why a request is answered by the proxy itself.
#[derive(Debug)]
pub struct Refusal {
    /// The reason.
    pub reason: Reason,
    /// What happened, in a sentence.
    pub detail: String,
    /// When asking again may help.
    pub retry_after: Option<Duration>,
}

impl Refusal {
    /// A refusal that asking again does not change.
    pub fn new(reason: Reason, detail: impl Into<String>) -> Refusal {
        Refusal { reason, detail: detail.into(), retry_after: None }
    }

    /// The proxy is stopping.
    pub fn stopping() -> Refusal {
        let detail = "the proxy is stopping and starts no more requests";
        Refusal { retry_after: Some(Duration::from_secs(1)), ..Refusal::new(Reason::Stopping, detail) }
    }

    /// Nothing could be recorded.
    pub fn unrecorded() -> Refusal {
        let detail = "the proxy's audit log takes no records, and its operator wants no request without one";
        Refusal { retry_after: Some(Duration::from_secs(5)), ..Refusal::new(Reason::AuditUnavailable, detail) }
    }

    /// A decision of the rules; `failure` tells why robots.txt could not be had.
    pub fn by_rules(decision: &Decision, token: &str, robots_url: &str, failure: Option<&str>) -> Refusal {
        let detail = match (decision.reason, decision.rule()) {
            (Reason::Disallowed, Some(rule)) => {
                format!("line {} of {robots_url}, \"{rule}\", disallows this URL for {}", rule.line, bot(token))
            }
            // No site to ask, and nothing that asking again changes.
            (Reason::PrivateAddress | Reason::PortBlocked | Reason::Loop, _) => {
                return Refusal::new(decision.reason, failure.unwrap_or("nobody may be connected to there"));
            }
            _ => format!("{robots_url} could not be read ({})", failure.unwrap_or("no answer")),
        };
        Refusal { reason: decision.reason, detail, retry_after: decision.retry_after }
    }
}

fn bot(token: &str) -> &str {
    if token == "*" { "bots that it does not name" } else { token }
}

impl From<BadTarget> for Refusal {
    fn from(error: BadTarget) -> Refusal {
        let reason = match error {
            BadTarget::AuthorityMismatch { .. } => Reason::AuthorityMismatch,
            BadTarget::NotAProxyRequest | BadTarget::Malformed(_) => Reason::BadRequest,
        };
        Refusal::new(reason, error.to_string())
    }
}

impl From<auth::Refused> for Refusal {
    fn from(refused: auth::Refused) -> Refusal {
        Refusal::new(Reason::AuthenticationRequired, refused.to_string())
    }
}

impl From<MalformedIdentity> for Refusal {
    fn from(error: MalformedIdentity) -> Refusal {
        Refusal::new(Reason::BadRequest, error.to_string())
    }
}

impl From<Unidentified> for Refusal {
    fn from(error: Unidentified) -> Refusal {
        Refusal::new(Reason::Unidentified, error.to_string())
    }
}

impl From<ca::Error> for Refusal {
    fn from(error: ca::Error) -> Refusal {
        let reason = match error {
            ca::Error::NotPermitted { .. } => Reason::NotPermitted,
            _ => Reason::BadRequest,
        };
        Refusal::new(reason, error.to_string())
    }
}

impl From<queue::Refused> for Refusal {
    fn from(refused: queue::Refused) -> Refusal {
        let (reason, detail, retry_after) = match refused {
            queue::Refused::Full { retry_after } => {
                (Reason::QueueFull, "as many requests wait for this host as may wait".to_owned(), retry_after)
            }
            queue::Refused::TooLong { wait, retry_after } => {
                let wait = wait.as_secs_f32();
                let detail = format!("this request's turn would come in {wait:.1} s, later than it may wait");
                (Reason::WaitTooLong, detail, retry_after)
            }
            queue::Refused::Held { wait, retry_after, sign } => {
                let wait = wait.as_secs_f32();
                let detail = format!(
                    "the site answered {sign}, so nothing is sent to it for a while; this request's turn would come in \
                     {wait:.1} s, later than it may wait"
                );
                (Reason::WaitTooLong, detail, retry_after)
            }
        };
        Refusal { retry_after: Some(retry_after), ..Refusal::new(reason, detail) }
    }
}

impl From<upstream::Error> for Refusal {
    fn from(error: upstream::Error) -> Refusal {
        Refusal::new(reason_of(&error), error.to_string())
    }
}

/// What a failure towards an origin is called.
pub fn reason_of(error: &upstream::Error) -> Reason {
    use upstream::Error::*;
    match error {
        Dns { .. } => Reason::UpstreamDns,
        DnsTimedOut { .. } => Reason::UpstreamDnsTimeout,
        Refused { .. } => Reason::UpstreamRefused,
        Connect { .. } => Reason::UpstreamConnect,
        TimedOut { .. } => Reason::UpstreamConnectTimeout,
        Certificate { .. } => Reason::UpstreamCertificate,
        Tls { .. } => Reason::UpstreamTls,
        TlsAlert { .. } | LateAlert(_) => Reason::UpstreamTlsAlert,
        Parent { .. } => Reason::UpstreamProxy,
        Itself { .. } => Reason::Loop,
        PrivateAddress { .. } => Reason::PrivateAddress,
        PortBlocked { .. } => Reason::PortBlocked,
        Closed(_) | Lost(_) => Reason::UpstreamClosed,
        Silent(_) => Reason::UpstreamTimeout,
        Upload(upstream::Fault::Stalled(_)) => Reason::RequestTimeout,
        Upload(upstream::Fault::Unreadable(_)) => Reason::BadRequest,
        Upload(upstream::Fault::Gone) => Reason::ClientGone,
        Protocol(_) => Reason::UpstreamProtocol,
    }
}
