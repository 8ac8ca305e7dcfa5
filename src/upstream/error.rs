//! What goes wrong on the way to an origin, by what it means for who asked.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::Request;

use super::{Fault, RequestBody};
use crate::http1::Malformed;
use crate::policy::reason::Reason;

/// What went wrong on the way to an origin.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The name has no address.
    #[error("the name {host} cannot be resolved: {source}")]
    Dns {
        /// The host asked for.
        host: String,
        /// The resolver's words.
        source: Arc<io::Error>,
    },
    /// `connect_timeout` passed before the name had an address.
    #[error("resolving the name {host} took longer than {} s", timeout.as_secs_f32())]
    DnsTimedOut {
        /// The host asked for.
        host: String,
        /// The limit.
        timeout: Duration,
    },
    /// Nothing listens there.
    #[error("{host} refuses connections")]
    Refused {
        /// Host and port asked for.
        host: String,
    },
    /// Another failure to connect.
    #[error("cannot connect to {host}: {source}")]
    Connect {
        /// Host and port asked for.
        host: String,
        /// The system's words.
        source: io::Error,
    },
    /// `connect_timeout` passed.
    #[error("connecting to {host} took longer than {} s", timeout.as_secs_f32())]
    TimedOut {
        /// Host and port asked for.
        host: String,
        /// The limit.
        timeout: Duration,
    },
    /// The certificate is not to be trusted.
    #[error("the certificate of {host} is not trusted: {source}")]
    Certificate {
        /// Host and port asked for.
        host: String,
        /// What is wrong with it.
        source: rustls::Error,
    },
    /// The TLS handshake failed in another way.
    #[error("the TLS handshake with {host} failed: {source}")]
    Tls {
        /// Host and port asked for.
        host: String,
        /// What failed.
        source: io::Error,
    },
    /// The origin ended the TLS handshake with an alert.
    #[error("{host} refused the TLS handshake: {source}")]
    TlsAlert {
        /// Host and port asked for.
        host: String,
        /// The alert.
        source: rustls::Error,
    },
    /// The origin ended TLS with an alert when the handshake was over, as TLS 1.3 does where it wants another client certificate.
    #[error("the host ended TLS: {0}")]
    LateAlert(String),
    /// An address that `private_addresses` bars.
    #[error("{host} is at {address}, {class}, which upstream.private_addresses bars")]
    PrivateAddress {
        /// Host and port asked for.
        host: String,
        /// The first barred one.
        address: IpAddr,
        /// What is special about it.
        class: &'static str,
    },
    /// A port that no page is on.
    #[error("{host} is on a port that browsers never open, and upstream.ports does not list it")]
    PortBlocked {
        /// Host and port asked for.
        host: String,
    },
    /// The parent proxy.
    #[error("the parent proxy {parent} {problem}")]
    Parent {
        /// Its host and port.
        parent: String,
        /// What it did.
        problem: String,
    },
    /// The proxy's own address.
    #[error("{host} is this proxy itself")]
    Itself {
        /// Host and port asked for.
        host: String,
    },
    /// The connection ended before the answer did.
    #[error("the connection ended before an answer: {0}")]
    Closed(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A kept connection had died, and took a request with it that may be sent again (RFC 9110 §9.2.2). The origin may have seen it.
    #[error("the connection ended before an answer")]
    Lost(Box<Request<RequestBody>>),
    /// The client did not send its request to the end.
    #[error(transparent)]
    Upload(Fault),
    /// Nothing came for too long, before the answer or in the middle of it.
    #[error("the host was silent for {} s", .0.as_secs_f32())]
    Silent(Duration),
    /// The answer cannot be understood.
    #[error("the exchange broke the rules of HTTP: {0}")]
    Protocol(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl From<hyper::Error> for Error {
    fn from(error: hyper::Error) -> Error {
        let cause = std::error::Error::source(&error).and_then(|source| source.downcast_ref::<io::Error>());
        match cause.and_then(alert) {
            Some(alert) => Error::LateAlert(alert),
            None if error.is_parse() => Error::Protocol(Box::new(error)),
            None => Error::Closed(Box::new(error)),
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        alert(&error).map_or_else(|| Error::Closed(Box::new(error)), Error::LateAlert)
    }
}

impl From<Malformed> for Error {
    fn from(malformed: Malformed) -> Error {
        match malformed {
            Malformed::Ended => Error::Closed(Box::new(malformed)),
            _ => Error::Protocol(Box::new(malformed)),
        }
    }
}

/// The alert that ended TLS. Of an I/O error h2 keeps the text alone, so that rustls's words for it are looked for.
fn alert(error: &io::Error) -> Option<String> {
    Some(error.to_string()).filter(|words| words.starts_with("received fatal alert"))
}

impl Error {
    /// Whether the origin speaks none of the protocols that it was offered (RFC 7301 §3.2).
    pub(super) fn is_about_protocols(&self) -> bool {
        let unknown = rustls::Error::AlertReceived(rustls::AlertDescription::NoApplicationProtocol);
        matches!(self, Error::TlsAlert { source, .. } if *source == unknown)
    }

    /// Why nobody may be connected to there, if that is the failure: it holds for any page of the host.
    pub fn off_limits(&self) -> Option<Reason> {
        match self {
            Error::PrivateAddress { .. } => Some(Reason::PrivateAddress),
            Error::PortBlocked { .. } => Some(Reason::PortBlocked),
            Error::Itself { .. } => Some(Reason::Loop),
            _ => None,
        }
    }
}
