//! The way to the origins: connections, kept and reused, and one request at a time on each.
//!
//! A pool of its own and not hyper-util's client, because a paced request must first have an open connection and only then take its
//! slot: connecting between the two would shorten the gap that the origin sees. A request that a kept connection lost before it was
//! written goes out once more on a new one. One that was written, and that may be repeated, is handed back as [`Error::Lost`]; anything
//! else is the client's to repeat.

mod body;
mod dial;
pub mod headers;
mod pool;

use std::error::Error as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{Request, Response, StatusCode};

pub use self::body::{Body, RequestBody};
use self::dial::Dialer;
pub use self::dial::{ConnectTo, HostPort, SetupError};
use self::pool::{Pool, Sender};
use crate::clock;
use crate::policy::target::{Origin, Target};

/// How origins are reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Certificates trusted beside the system's, PEM.
    pub ca_files: Vec<PathBuf>,
    /// Where to connect instead, as curl's `--connect-to`.
    pub connect_to: Vec<ConnectTo>,
    /// For name, connection and TLS handshake together.
    pub connect_timeout: Duration,
    /// How long an unused connection is kept.
    pub idle_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            ca_files: Vec::new(),
            connect_to: Vec::new(),
            connect_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(300),
        }
    }
}

/// What went wrong on the way to an origin.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The name has no address.
    #[error("the name {host} cannot be resolved: {source}")]
    Dns {
        /// The host asked for.
        host: String,
        /// The resolver's words.
        source: std::io::Error,
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
        source: std::io::Error,
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
        source: std::io::Error,
    },
    /// The proxy's own address.
    #[error("{host} is this proxy itself")]
    Itself {
        /// Host and port asked for.
        host: String,
    },
    /// The connection ended before the answer did.
    #[error("the connection ended before an answer: {0}")]
    Closed(#[source] hyper::Error),
    /// A kept connection had died, and took a request with it that may be sent again (RFC 9110 §9.2.2). The origin may have seen it.
    #[error("the connection ended before an answer")]
    Lost(Box<Request<RequestBody>>),
    /// The answer cannot be understood.
    #[error("the exchange broke the rules of HTTP: {0}")]
    Protocol(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl From<hyper::Error> for Error {
    fn from(error: hyper::Error) -> Error {
        match error.is_parse() {
            true => Error::Protocol(Box::new(error)),
            false => Error::Closed(error),
        }
    }
}

/// All origins.
#[derive(Debug)]
pub struct Upstream {
    dialer: Dialer,
    pool: Arc<Pool>,
}

impl Upstream {
    /// Reads the trusted certificates.
    ///
    /// # Errors
    /// A CA file that cannot be read or holds no certificate.
    pub fn new(settings: &Settings) -> Result<Arc<Upstream>, SetupError> {
        let pool = Arc::new(Pool::new(settings.idle_timeout));
        Ok(Arc::new(Upstream { dialer: Dialer::new(settings)?, pool }))
    }

    /// Tells the proxy's own addresses, which are never connected to.
    pub fn never_connect_to(&self, listeners: Vec<SocketAddr>) {
        self.dialer.never_connect_to(listeners);
    }

    /// An open connection to an origin: a kept one, or a new one.
    ///
    /// # Errors
    /// The origin cannot be reached.
    pub async fn connect(self: &Arc<Self>, origin: &Origin) -> Result<Connection, Error> {
        let kept = self.pool.take(origin).await;
        let reused = kept.is_some();
        let sender = match kept {
            Some(sender) => sender,
            None => self.open(origin).await?,
        };
        Ok(Connection { upstream: Arc::clone(self), sender, reused })
    }

    /// A new connection to an origin, for a WebSocket: HTTP/1.1, whatever else the origin speaks.
    ///
    /// # Errors
    /// The origin cannot be reached.
    pub async fn connect_for_websocket(self: &Arc<Self>, origin: &Origin) -> Result<Connection, Error> {
        let sender = self.dialer.open_http1(origin).await?;
        Ok(Connection { upstream: Arc::clone(self), sender, reused: false })
    }

    async fn open(&self, origin: &Origin) -> Result<Sender, Error> {
        let sender = self.dialer.open(origin).await?;
        self.pool.share(origin, &sender);
        Ok(sender)
    }
}

/// In the extensions of an answer: its request had to be sent a second time, then.
#[derive(Clone, Copy, Debug)]
pub struct SentAgain(pub Instant);

/// In the extensions of a request: it asks the origin to go on with WebSocket (RFC 6455 §4.1). Without it an upgrade is not passed on.
#[derive(Clone, Copy, Debug)]
pub struct WebSocket;

/// An open connection, ready for one request.
#[derive(Debug)]
pub struct Connection {
    upstream: Arc<Upstream>,
    sender: Sender,
    reused: bool,
}

impl Connection {
    /// Sends a request to its target and returns when the head of the answer has come. The connection goes back to the pool when
    /// the body has been read.
    ///
    /// # Errors
    /// The connection broke, or the answer is not HTTP.
    pub async fn send(mut self, target: &Target, request: Request<RequestBody>) -> Result<Response<Body>, Error> {
        let copy = if self.reused { repeatable(&request) } else { None };
        let request = headers::towards_origin(target, request, self.sender.is_http2())?;
        let response = match self.sender.send(request).await {
            Ok(response) => response,
            Err(lost) => {
                let (error, unsent) = (lost.error, lost.request.filter(|_| self.reused));
                let Some(request) = unsent else {
                    let copy = copy.filter(|_| is_dead(&error)).ok_or(error)?;
                    // Those kept beside it are no younger.
                    self.upstream.pool.forget(&target.origin);
                    return Err(Error::Lost(Box::new(copy)));
                };
                self.sender = self.upstream.open(&target.origin).await?;
                let request = headers::towards_origin(target, request, self.sender.is_http2())?;
                let sent_again = SentAgain(clock::now());
                let mut response = self.sender.send(request).await.map_err(|lost| lost.error)?;
                response.extensions_mut().insert(sent_again);
                response
            }
        };
        let Connection { upstream, sender, .. } = self;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Ok(response.map(Body::switched));
        }
        let pool = Arc::clone(&upstream.pool);
        Ok(response.map(|incoming| Body::new(incoming, pool, target.origin.clone(), sender)))
    }
}

/// A copy of a request that changes nothing however often it is sent, and that has no body to lose.
fn repeatable(request: &Request<RequestBody>) -> Option<Request<RequestBody>> {
    let has_body = !http_body::Body::is_end_stream(request.body());
    (request.method().is_safe() && !has_body).then(|| {
        let mut copy = Request::new(RequestBody::Empty);
        *copy.method_mut() = request.method().clone();
        *copy.uri_mut() = request.uri().clone();
        *copy.version_mut() = request.version();
        *copy.headers_mut() = request.headers().clone();
        copy
    })
}

/// Whether a connection ended without a word about the request.
fn is_dead(error: &hyper::Error) -> bool {
    let of_system = || error.source().is_some_and(|source| source.is::<std::io::Error>());
    error.is_incomplete_message() || error.is_closed() || of_system()
}
