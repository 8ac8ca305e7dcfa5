//! The way to the origins: connections, kept and reused, and one request at a time on each.
//!
//! A pool of its own and not hyper-util's client, because a paced request must first have an open connection and only then take its
//! slot: connecting between the two would shorten the gap that the origin sees. A request that a kept connection lost before it was
//! written goes out once more on a new one. One that was written, and that may be repeated, is handed back as [`Error::Lost`]; anything
//! else is the client's to repeat.

mod body;
mod dial;
mod error;
mod guard;
pub mod headers;
mod http1;
mod parent;
mod patient;
mod pool;
mod race;
mod resolve;
mod signatures;
mod tls;
mod upload;

use std::error::Error as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use futures_util::future::BoxFuture;
use http::{Method, Request, Response, StatusCode, Version, header};
use hyper::client::conn::http2;
use rustls::RootCertStore;

pub use self::body::Body;
use self::dial::Dialer;
pub use self::dial::{ConnectTo, HostPort, Io, Stream};
pub use self::error::Error;
use self::headers::{Form, Pseudonym, towards_origin};
use self::http1::Http1;
pub use self::parent::ParentUrl;
use self::pool::{Pool, Sender};
use self::resolve::Resolver;
pub use self::tls::{ClientCertificate, SetupError};
pub use self::upload::{Fault, RequestBody};
use crate::clock;
use crate::metrics::Seconds;
use crate::policy::address::PrivateAddresses;
use crate::policy::host::HostPattern;
use crate::policy::port::Ports;
use crate::policy::target::{Host, OWN_HOST, Origin, Target};

/// How origins are reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Certificates trusted beside the system's, PEM.
    pub ca_files: Vec<PathBuf>,
    /// Certificates that tell some hosts who is asking.
    pub client_certificates: Vec<ClientCertificate>,
    /// Where to connect instead, as curl's `--connect-to`.
    pub connect_to: Vec<ConnectTo>,
    /// The proxy that leads to the origins.
    pub proxy: Option<ParentUrl>,
    /// Whether addresses that are not public may be connected to.
    pub private_addresses: PrivateAddresses,
    /// Which ports nobody is connected to.
    pub ports: Ports,
    /// Hosts whose tunnels are not looked into.
    pub passthrough: Vec<HostPattern>,
    /// For name, connection and TLS handshake together.
    pub connect_timeout: Duration,
    /// How long an unused connection is kept, and how long an origin may be silent in the middle of an exchange.
    pub idle_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            ca_files: Vec::new(),
            client_certificates: Vec::new(),
            connect_to: Vec::new(),
            proxy: None,
            private_addresses: PrivateAddresses::default(),
            ports: Ports::default(),
            passthrough: Vec::new(),
            connect_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(300),
        }
    }
}

/// All origins.
#[derive(Debug)]
pub struct Upstream {
    way: ArcSwap<Way>,
    pseudonym: Pseudonym,
}

/// The way as the settings have it. A request goes one way to its end, also where the settings change meanwhile.
#[derive(Debug)]
pub struct Way {
    settings: Settings,
    roots: Arc<RootCertStore>,
    dialer: Dialer,
    pool: Arc<Pool>,
    answers: Seconds,
}

impl Upstream {
    /// Reads the trusted certificates.
    ///
    /// # Errors
    /// A file of certificates or of a key that cannot be used.
    pub fn new(settings: &Settings) -> Result<Arc<Upstream>, SetupError> {
        let roots = Arc::new(tls::roots(&settings.ca_files)?);
        let way = Way {
            settings: settings.clone(),
            dialer: Dialer::new(settings, Arc::new(Resolver::system()), &roots)?,
            roots,
            pool: Arc::new(Pool::new(settings.idle_timeout)),
            answers: Seconds::default(),
        };
        Ok(Arc::new(Upstream { way: ArcSwap::from_pointee(way), pseudonym: Pseudonym::new() }))
    }

    /// The way that other settings lead; CA files are read again. Nothing changes before [`Upstream::adopt`].
    ///
    /// # Errors
    /// A CA file that cannot be read or holds no certificate.
    pub fn prepare(&self, settings: &Settings) -> Result<Way, SetupError> {
        let (before, roots) = (self.way.load_full(), Arc::new(tls::roots(&settings.ca_files)?));
        // A kept connection may lead to where the new settings do not, or to a host that is trusted no more.
        // The same file of a certificate of our own may hold another one by now.
        let same_way = before.roots.roots == roots.roots
            && settings.client_certificates.is_empty()
            && Settings {
                passthrough: settings.passthrough.clone(),
                connect_timeout: settings.connect_timeout,
                ..before.settings.clone()
            } == *settings;
        let pool = if same_way { Arc::clone(&before.pool) } else { Arc::new(Pool::new(settings.idle_timeout)) };
        let (dialer, answers) = (before.dialer.with(settings, &roots)?, before.answers.clone());
        Ok(Way { settings: settings.clone(), dialer, roots, pool, answers })
    }

    /// From now on requests go this way; those under way finish on the old one.
    pub fn adopt(&self, way: Way) {
        self.way.store(Arc::new(way));
    }

    /// Tells where the proxy listens: there it never connects to, and who can reach that decides about private addresses.
    pub fn listening_on(&self, listeners: Vec<SocketAddr>) {
        self.way.load().dialer.listening_on(listeners);
    }

    /// Open connections.
    pub fn connections(&self) -> u64 {
        self.way.load().dialer.connections()
    }

    /// How long origins took from the start of a request to the head of their answer, robots.txt included.
    pub fn answers(&self) -> Seconds {
        self.way.load().answers.clone()
    }

    /// How this proxy names itself to others.
    pub fn pseudonym(&self) -> &Pseudonym {
        &self.pseudonym
    }

    /// Whether tunnels to a host are not looked into.
    pub fn passes_through(&self, host: &Host) -> bool {
        host.as_str() != OWN_HOST
            && self.way.load().settings.passthrough.iter().any(|pattern| pattern.matches(host.as_str()))
    }

    /// Whether there may be pages on the port of a place. What `connect_to` names is the operator's choice.
    ///
    /// # Errors
    /// [`Error::PortBlocked`].
    pub fn check_port(&self, place: &HostPort) -> Result<(), Error> {
        self.way.load().dialer.check_port(place)
    }

    /// A connection to a host and port on which nothing has been said yet.
    ///
    /// # Errors
    /// The host cannot be reached.
    pub async fn tunnel(&self, place: &HostPort) -> Result<Stream, Error> {
        self.way.load_full().dialer.tunnel(place).await
    }

    /// An open connection to an origin: a kept one, or a new one that speaks as the client does. That is what the origin would see
    /// without a proxy, and HTTP/1.1 costs less where each connection carries one request at a time anyway.
    ///
    /// # Errors
    /// The origin cannot be reached.
    pub async fn connect(&self, origin: &Origin, speech: Speech) -> Result<Connection, Error> {
        let way = self.way.load_full();
        let kept = match speech {
            Speech::WebSocket => None,
            speech => way.pool.take(origin, speech).await,
        };
        let reused = kept.is_some();
        let sender = match kept {
            Some(sender) => sender,
            None => way.open(origin, speech).await?,
        };
        Ok(Connection { way, sender, speech, reused })
    }
}

impl Way {
    /// In a box, since it is large and most requests find a connection that is kept.
    fn open<'a>(&'a self, origin: &'a Origin, speech: Speech) -> BoxFuture<'a, Result<Sender, Error>> {
        Box::pin(async move {
            let sender = self.dialer.open(origin, speech).await?;
            self.pool.share(origin, &sender);
            Ok(sender)
        })
    }
}

/// What is to be spoken on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speech {
    /// HTTP/1.1, unless the origin knows nothing but HTTP/2.
    Http1,
    /// HTTP/2, or HTTP/1.1 where the origin prefers that.
    Http2,
    /// HTTP/1.1 with the origin itself, on a connection of its own: it is switched to another protocol.
    WebSocket,
}

impl Speech {
    /// As the client does that sent a request.
    pub fn of<B>(request: &Request<B>) -> Speech {
        match request.version() {
            _ if request.extensions().get::<WebSocket>().is_some() => Speech::WebSocket,
            Version::HTTP_2 => Speech::Http2,
            _ => Speech::Http1,
        }
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
    way: Arc<Way>,
    sender: Sender,
    speech: Speech,
    reused: bool,
}

impl Connection {
    /// Sends a request to its target and returns when the head of the answer has come. The connection goes back to the pool when
    /// the body has been read. `started` is now, or when it was a moment ago.
    ///
    /// # Errors
    /// The connection broke, or the answer is not HTTP.
    pub async fn send(
        self,
        target: &Target,
        request: Box<Request<RequestBody>>,
        started: Instant,
    ) -> Result<Response<Body>, Error> {
        let Connection { way, sender, speech, reused } = self;
        let takes_trailers = headers::takes_trailers(request.headers());
        let mut response = match way.send(sender, reused, target, request).await? {
            Sent::Answered(response) => response,
            Sent::Not(request, _) => {
                let sender = way.open(&target.origin, speech).await?;
                let sent_again = SentAgain(clock::now());
                match way.send(sender, false, target, request).await? {
                    Sent::Not(_, error) => return Err(error),
                    Sent::Answered(mut response) => {
                        response.extensions_mut().insert(sent_again);
                        response
                    }
                }
            }
        };
        way.answers.took(clock::now().duration_since(started));
        if !takes_trailers {
            response.headers_mut().remove(header::TRAILER);
        }
        Ok(response)
    }
}

/// What became of a request.
enum Sent {
    /// It was answered.
    Answered(Response<Body>),
    /// Nothing of it has gone, so that it may go another way.
    Not(Box<Request<RequestBody>>, Error),
}

impl Way {
    async fn send(
        self: &Arc<Self>,
        sender: Sender,
        reused: bool,
        target: &Target,
        request: Box<Request<RequestBody>>,
    ) -> Result<Sent, Error> {
        match sender {
            Sender::Http1(connection) => self.send_http1(connection, reused, target, request).await,
            Sender::Http2(sender) => Box::pin(self.send_http2(sender, reused, target, request)).await,
        }
    }

    async fn send_http1(
        self: &Arc<Self>,
        connection: Box<Http1>,
        reused: bool,
        target: &Target,
        mut request: Box<Request<RequestBody>>,
    ) -> Result<Sent, Error> {
        let may_be_repeated = reused && is_repeatable(&request);
        let upload = request.body().progress();
        towards_origin(target, &mut request, &connection.form)?;
        let asks_parent = matches!(connection.form, Form::WholeUrl(_));
        let response = match connection.exchange(&mut request).await {
            Err(Error::Closed(_)) if may_be_repeated => {
                // Those kept beside it are no younger.
                self.pool.forget(&target.origin);
                return Err(Error::Lost(request));
            }
            answered => answered?,
        };
        if response.status() == StatusCode::PROXY_AUTHENTICATION_REQUIRED && asks_parent {
            return Err(self.dialer.parent_wants_credentials());
        }
        let pool = (Arc::clone(&self.pool), target.origin.clone());
        let longest_silence = self.settings.idle_timeout;
        Ok(Sent::Answered(response.map(|incoming| Body::of_http1(incoming, pool, longest_silence, upload))))
    }

    /// Waits for the head of the answer as long as the request's body goes on or the silence is short.
    async fn send_http2(
        self: &Arc<Self>,
        mut sender: http2::SendRequest<RequestBody>,
        reused: bool,
        target: &Target,
        mut request: Box<Request<RequestBody>>,
    ) -> Result<Sent, Error> {
        let copy = if reused { repeatable(&request) } else { None };
        let (is_head, upload) = (request.method() == Method::HEAD, request.body().progress());
        towards_origin(target, &mut request, &Form::Http2)?;
        let longest_silence = self.settings.idle_timeout;
        let mut sending = Box::pin(sender.try_send_request(*request));
        let mut lost = loop {
            let before = upload.pieces();
            match (clock::timeout(longest_silence, sending.as_mut()).await, upload.fault()) {
                (Some(Ok(response)), _) => {
                    let body = |incoming| Body::of_http2(incoming, longest_silence, upload, is_head);
                    return Ok(Sent::Answered(response.map(body)));
                }
                (Some(Err(_)), Some(fault)) => return Err(Error::Upload(fault)),
                (Some(Err(lost)), None) => break lost,
                // The client's silence has a limit of its own.
                (None, _) if upload.is_awaited() || upload.pieces() != before => {}
                (None, _) => return Err(Error::Silent(longest_silence)),
            }
        };
        let unsent = lost.take_message().filter(|_| reused);
        let error = lost.into_error();
        match (unsent, copy) {
            (Some(request), _) => Ok(Sent::Not(Box::new(request), error.into())),
            (None, Some(copy)) if is_dead(&error) => {
                self.pool.forget(&target.origin);
                Err(Error::Lost(copy))
            }
            (None, _) => Err(error.into()),
        }
    }
}

/// Whether a request changes nothing however often it is sent, and has no body to lose (RFC 9110 §9.2.2).
fn is_repeatable(request: &Request<RequestBody>) -> bool {
    request.method().is_safe() && http_body::Body::is_end_stream(request.body())
}

/// A copy of a request that may be repeated, since hyper takes the request itself.
fn repeatable(request: &Request<RequestBody>) -> Option<Box<Request<RequestBody>>> {
    is_repeatable(request).then(|| {
        let mut copy = Box::new(Request::new(RequestBody::Empty));
        *copy.method_mut() = request.method().clone();
        *copy.uri_mut() = request.uri().clone();
        *copy.version_mut() = request.version();
        *copy.headers_mut() = request.headers().clone();
        *copy.extensions_mut() = request.extensions().clone();
        copy
    })
}

/// Whether a connection ended without a word about the request.
fn is_dead(error: &hyper::Error) -> bool {
    let of_system = || error.source().is_some_and(|source| source.is::<std::io::Error>());
    error.is_incomplete_message() || error.is_closed() || of_system()
}

#[cfg(test)]
mod tests;
