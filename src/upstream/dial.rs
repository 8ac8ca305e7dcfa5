//! Opening a connection to an origin: where it leads, its addresses, TCP, TLS, HTTP.
//!
//! Names are resolved once, every address is checked, and only a checked address is connected to: a second look-up could be answered
//! otherwise (DNS rebinding). What the operator names in `connect_to`, and the parent proxy, are exempt from the address guard; the
//! proxy's own listeners are never connected to.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::RootCertStore;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::guard::Guard;
use super::headers::Form;
use super::http1::Http1;
use super::parent::ParentProxy;
use super::patient::Patient;
use super::pool::Sender;
use super::race::race;
use super::resolve::Resolver;
use super::tls::{Connectors, SetupError, connector, handshake};
use super::upload::RequestBody;
use super::{Error, Settings, Speech};
use crate::clock;
use crate::metrics::Open;
use crate::policy::port::Ports;
use crate::policy::target::{Host, OWN_HOST, Origin, Scheme};

/// Octets to and from an origin, whatever carries them.
pub type Stream = Box<dyn Io>;

/// What a [`Stream`] is made of.
pub trait Io: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Io for S {}

/// `from → to`: who asks for `from` is connected to `to`, by whose name neither Host nor certificate is checked (curl's
/// `--connect-to`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectTo {
    /// Host and port as asked for.
    pub from: HostPort,
    /// Host and port to connect to.
    pub to: HostPort,
}

/// `host:port`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostPort {
    /// The host.
    pub host: Host,
    /// The port.
    pub port: u16,
}

impl FromStr for HostPort {
    type Err = String;

    fn from_str(text: &str) -> Result<HostPort, String> {
        let bad = || format!("{text:?} is not host:port");
        let (host, port) = text.rsplit_once(':').ok_or_else(bad)?;
        Ok(HostPort { host: Host::parse(host).map_err(|_| bad())?, port: port.parse().map_err(|_| bad())? })
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// Opens connections.
pub(super) struct Dialer {
    resolver: Arc<Resolver>,
    tls: Connectors,
    connect_to: Vec<ConnectTo>,
    parent: Option<ParentProxy>,
    ports: Ports,
    guard: Guard,
    timeout: Duration,
    longest_silence: Duration,
    open: Open,
}

/// Which way a connection goes.
pub(super) enum Route<'a> {
    /// To one of these addresses, all checked.
    Direct(Vec<SocketAddr>),
    /// To the parent proxy, which has these addresses, and from there to a host by name.
    Through(&'a ParentProxy, Vec<SocketAddr>, HostPort),
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialer").field("connect_to", &self.connect_to).finish_non_exhaustive()
    }
}

impl Dialer {
    pub(super) fn new(
        settings: &Settings,
        resolver: Arc<Resolver>,
        roots: &Arc<RootCertStore>,
    ) -> Result<Dialer, SetupError> {
        Ok(Dialer {
            resolver,
            tls: Connectors::new(roots, &settings.client_certificates)?,
            connect_to: settings.connect_to.clone(),
            parent: match &settings.proxy {
                Some(url) => Some(ParentProxy::new(url.clone(), connector(roots, &[b"http/1.1"])?)),
                None => None,
            },
            ports: settings.ports.clone(),
            guard: Guard::new(settings.private_addresses),
            timeout: settings.connect_timeout,
            longest_silence: settings.idle_timeout,
            open: Open::default(),
        })
    }

    /// The same with other settings: it knows the same names, and where the proxy listens.
    pub(super) fn with(&self, settings: &Settings, roots: &Arc<RootCertStore>) -> Result<Dialer, SetupError> {
        let mut dialer = Dialer::new(settings, Arc::clone(&self.resolver), roots)?;
        dialer.guard.listening_on(self.guard.listeners().to_vec());
        dialer.open = self.open.clone();
        Ok(dialer)
    }

    /// Connections to origins and to the parent proxy.
    pub(super) fn connections(&self) -> u64 {
        self.open.count()
    }

    /// Tells where the proxy listens.
    pub(super) fn listening_on(&self, listeners: Vec<SocketAddr>) {
        self.guard.listening_on(listeners);
    }

    /// A new connection, ready for requests.
    pub(super) async fn open(&self, origin: &Origin, speech: Speech) -> Result<Sender, Error> {
        let (any, http1) = (self.tls.of(&origin.host, false), self.tls.of(&origin.host, true));
        let mut sender = match speech {
            Speech::Http2 => self.open_by(origin, any, true).await?,
            Speech::WebSocket => self.open_by(origin, http1, false).await?,
            Speech::Http1 => match self.open_by(origin, http1, true).await {
                Err(error) if error.is_about_protocols() => self.open_by(origin, any, true).await?,
                opened => opened?,
            },
        };
        if let Sender::Http1(http1) = &mut sender {
            // In clear text nobody is offered HTTP/2.
            http1.is_all = speech == Speech::Http2 || origin.scheme == Scheme::Http;
        }
        Ok(sender)
    }

    async fn open_by(&self, origin: &Origin, tls: &TlsConnector, whole_urls: bool) -> Result<Sender, Error> {
        let deadline = clock::now() + self.timeout;
        let place = HostPort { host: origin.host.clone(), port: origin.port };
        let route = clock::timeout_at(deadline, self.find(&place)).await;
        let route = route.ok_or_else(|| self.resolving_timed_out(&place))??;
        let opened = clock::timeout_at(deadline, async {
            // A parent proxy takes requests in clear text as they are, unless they must go elsewhere than their URL says.
            if let (Scheme::Http, Route::Through(parent, addresses, to)) = (origin.scheme, &route)
                && let Some(form) = parent.whole_urls().filter(|_| whole_urls && *to == place)
            {
                return self.speak(self.connect_to_parent(parent, addresses).await?, false, form).await;
            }
            let stream = self.follow(&place, route).await?;
            match origin.scheme {
                Scheme::Http => self.speak(stream, false, Form::Path).await,
                Scheme::Https => {
                    let stream = handshake(tls, &place, stream).await?;
                    let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                    self.speak(Box::new(stream), http2, Form::Path).await
                }
            }
        });
        opened.await.unwrap_or_else(|| Err(self.timed_out(&place)))
    }

    /// A connection that is not spoken on yet.
    pub(super) async fn tunnel(&self, place: &HostPort) -> Result<Stream, Error> {
        let deadline = clock::now() + self.timeout;
        let route = clock::timeout_at(deadline, self.find(place)).await;
        let route = route.ok_or_else(|| self.resolving_timed_out(place))??;
        let opened = clock::timeout_at(deadline, self.follow(place, route));
        opened.await.unwrap_or_else(|| Err(self.timed_out(place)))
    }

    /// What a 407 of the parent means.
    pub(super) fn parent_wants_credentials(&self) -> Error {
        match &self.parent {
            Some(parent) => parent.wants_credentials(),
            None => Error::Protocol("a 407 without a parent proxy".into()),
        }
    }

    fn resolving_timed_out(&self, place: &HostPort) -> Error {
        Error::DnsTimedOut { host: place.host.to_string(), timeout: self.timeout }
    }

    fn timed_out(&self, place: &HostPort) -> Error {
        Error::TimedOut { host: place.to_string(), timeout: self.timeout }
    }

    pub(super) fn check_port(&self, place: &HostPort) -> Result<(), Error> {
        let is_operators = self.connect_to.iter().any(|rule| rule.from == *place);
        match self.ports.bar(place.port) && !is_operators {
            true => Err(Error::PortBlocked { host: place.to_string() }),
            false => Ok(()),
        }
    }

    /// The way to a host, with every address on it resolved and checked.
    pub(super) async fn find(&self, place: &HostPort) -> Result<Route<'_>, Error> {
        if place.host.as_str() == OWN_HOST {
            return Err(Error::Itself { host: place.to_string() });
        }
        self.check_port(place)?;
        let to = self.connect_to.iter().find(|rule| rule.from == *place).map_or(place, |rule| &rule.to);
        let is_operators = to != place;
        let Some(parent) = &self.parent else {
            let addresses = self.resolve(to).await?;
            self.guard.check(place, &addresses, is_operators)?;
            return Ok(Route::Direct(addresses));
        };
        // The parent resolves names, so that only an address in place of a name can be checked.
        let literal: Vec<SocketAddr> =
            to.host.ip().map(|address| SocketAddr::new(address, to.port)).into_iter().collect();
        self.guard.check(place, &literal, is_operators)?;
        let addresses = self.resolve(parent.place()).await.map_err(|error| parent.error(&error))?;
        self.guard.check(parent.place(), &addresses, true)?;
        Ok(Route::Through(parent, addresses, to.clone()))
    }

    async fn resolve(&self, place: &HostPort) -> Result<Vec<SocketAddr>, Error> {
        let found = self.resolver.addresses(&place.host).await;
        let found = found.map_err(|source| Error::Dns { host: place.host.to_string(), source })?;
        Ok(found.iter().map(|address| SocketAddr::new(*address, place.port)).collect())
    }

    async fn follow(&self, place: &HostPort, route: Route<'_>) -> Result<Stream, Error> {
        match route {
            Route::Direct(addresses) => Ok(Box::new(self.connect(place, &addresses).await?)),
            Route::Through(parent, addresses, to) => {
                parent.tunnel(self.connect_to_parent(parent, &addresses).await?, &to).await
            }
        }
    }

    async fn connect_to_parent(&self, parent: &ParentProxy, addresses: &[SocketAddr]) -> Result<Stream, Error> {
        let opened = async { parent.begin(self.connect(parent.place(), addresses).await?).await };
        opened.await.map_err(|error| parent.error(&error))
    }

    async fn connect(&self, place: &HostPort, addresses: &[SocketAddr]) -> Result<Patient, Error> {
        let host = place.to_string();
        let stream = match race(addresses, TcpStream::connect).await {
            Ok(stream) => stream,
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Err(Error::Refused { host }),
            Err(source) => return Err(Error::Connect { host, source }),
        };
        if self.guard.is_own_end(&stream) {
            return Err(Error::Itself { host });
        }
        // Requests and handshakes are small writes that somebody waits for.
        let _ = stream.set_nodelay(true);
        Ok(Patient::new(stream, self.open.one()))
    }

    /// Begins HTTP on a stream. A connection with HTTP/2 is driven by a task that ends with it.
    async fn speak(&self, stream: Stream, http2: bool, form: Form) -> Result<Sender, Error> {
        if !http2 {
            return Ok(Sender::Http1(Http1::new(stream, form, self.longest_silence)));
        }
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_header_list_size(HEADER_LIST_MAX)
            .max_local_error_reset_streams(BAD_STREAMS_MAX)
            .keep_alive_interval(PING_AFTER)
            .keep_alive_timeout(PING_TIMEOUT)
            .handshake::<_, RequestBody>(TokioIo::new(stream))
            .await?;
        tokio::spawn(connection);
        Ok(Sender::Http2(sender))
    }
}

/// Streams that an origin may break the rules on before its connection, and all that runs on it, is given up. Some origins answer every
/// HEAD with a body, so hyper's own 1,024 is soon reached by a crawler that asks with HEAD. Chosen: the resets that we owe to one that
/// reads none of them stay below a few MiB.
const BAD_STREAMS_MAX: usize = 50_000;

/// An HTTP/2 connection that carries requests and brings nothing is asked for a sign of life: it is shared, so that a dead one would
/// take every later request with it. Chosen; an origin sees a ping only where it is silent.
const PING_AFTER: Duration = Duration::from_secs(30);

/// How long that sign may take.
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// Octets of an HTTP/2 answer's header list; hyper's own 16 KiB is below what cookies of some sites need.
const HEADER_LIST_MAX: u32 = 64 * 1024;
