//! Opening a connection to an origin: where it leads, its addresses, TCP, TLS, HTTP.
//!
//! Names are resolved once, every address is checked, and only a checked address is connected to: a second look-up could be answered
//! otherwise (DNS rebinding). What the operator names in `connect_to`, and the parent proxy, are exempt from the address guard; the
//! proxy's own listeners are never connected to.

use std::fmt;
use std::fs::File;
use std::io::{self, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::body::RequestBody;
use super::headers::Form;
use super::parent::ParentProxy;
use super::patient::Patient;
use super::pool::Sender;
use super::race::race;
use super::resolve::Resolver;
use super::{Error, Settings};
use crate::clock;
use crate::policy::address::{PrivateAddresses, special_use};
use crate::policy::target::{Host, Origin, Scheme};

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

/// The trusted certificates cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// A file of `upstream.ca_files`.
    #[error("cannot read {}, named in upstream.ca_files: {reason}", path.display())]
    CaFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// rustls does not take the settings.
    #[error("TLS towards origins cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
}

/// Opens connections.
pub(super) struct Dialer {
    resolver: Resolver,
    tls: TlsConnector,
    connect_to: Vec<ConnectTo>,
    parent: Option<ParentProxy>,
    private_addresses: PrivateAddresses,
    timeout: Duration,
    own: OnceLock<Own>,
}

/// What the proxy knows of its own listeners.
struct Own {
    listeners: Vec<SocketAddr>,
    /// Whether special addresses are barred.
    guarded: bool,
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
    pub(super) fn new(settings: &Settings, resolver: Resolver) -> Result<Dialer, SetupError> {
        let roots = Arc::new(roots(&settings.ca_files)?);
        Ok(Dialer {
            resolver,
            tls: connector(&roots, &[b"h2", b"http/1.1"])?,
            connect_to: settings.connect_to.clone(),
            parent: match &settings.proxy {
                Some(url) => Some(ParentProxy::new(url.clone(), connector(&roots, &[b"http/1.1"])?)),
                None => None,
            },
            private_addresses: settings.private_addresses,
            timeout: settings.connect_timeout,
            own: OnceLock::new(),
        })
    }

    /// Tells where the proxy listens.
    pub(super) fn listening_on(&self, listeners: Vec<SocketAddr>) {
        let guarded = self.private_addresses.bars(listeners.iter().map(SocketAddr::ip));
        // Told once, when the listeners are bound; a second telling changes nothing.
        let _ = self.own.set(Own { listeners, guarded });
    }

    /// A new connection, ready for requests.
    pub(super) async fn open(&self, origin: &Origin) -> Result<Sender, Error> {
        let deadline = clock::now() + self.timeout;
        let place = HostPort { host: origin.host.clone(), port: origin.port };
        let route = clock::timeout_at(deadline, self.find(&place)).await;
        let route = route.ok_or_else(|| self.resolving_timed_out(&place))??;
        let opened = clock::timeout_at(deadline, async {
            // A parent proxy takes requests in clear text as they are, unless they must go elsewhere than their URL says.
            if let (Scheme::Http, Route::Through(parent, addresses, to)) = (origin.scheme, &route)
                && let Some(form) = parent.whole_urls().filter(|_| *to == place)
            {
                return speak(self.connect_to_parent(parent, addresses).await?, false, form).await;
            }
            let stream = self.follow(&place, route).await?;
            match origin.scheme {
                Scheme::Http => speak(stream, false, Form::Path).await,
                Scheme::Https => {
                    let stream = handshake(&self.tls, &place, stream).await?;
                    let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                    speak(Box::new(stream), http2, Form::Path).await
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

    /// The way to a host, with every address on it resolved and checked.
    pub(super) async fn find(&self, place: &HostPort) -> Result<Route<'_>, Error> {
        let to = self.connect_to.iter().find(|rule| rule.from == *place).map_or(place, |rule| &rule.to);
        let is_operators = to != place;
        let Some(parent) = &self.parent else {
            let addresses = self.resolve(to).await?;
            self.check(place, &addresses, is_operators)?;
            return Ok(Route::Direct(addresses));
        };
        // The parent resolves names, so that only an address in place of a name can be checked.
        let literal: Vec<SocketAddr> =
            to.host.ip().map(|address| SocketAddr::new(address, to.port)).into_iter().collect();
        self.check(place, &literal, is_operators)?;
        let addresses = self.resolve(parent.place()).await.map_err(|error| parent.error(&error))?;
        self.check(parent.place(), &addresses, true)?;
        Ok(Route::Through(parent, addresses, to.clone()))
    }

    async fn resolve(&self, place: &HostPort) -> Result<Vec<SocketAddr>, Error> {
        let found = self.resolver.addresses(&place.host).await;
        let found = found.map_err(|source| Error::Dns { host: place.host.to_string(), source })?;
        Ok(found.iter().map(|address| SocketAddr::new(*address, place.port)).collect())
    }

    /// SECURITY: one barred address bars the host. A name with a public and a private address is how the guard is tested for holes.
    fn check(&self, place: &HostPort, addresses: &[SocketAddr], is_operators: bool) -> Result<(), Error> {
        if addresses.iter().any(|address| self.is_itself(*address)) {
            return Err(Error::Itself { host: place.to_string() });
        }
        let guarded =
            !is_operators && self.own.get().map_or(self.private_addresses == PrivateAddresses::Deny, |own| own.guarded);
        let special = |address: &SocketAddr| Some((address.ip(), special_use(address.ip())?));
        match addresses.iter().find_map(special).filter(|_| guarded) {
            Some((address, class)) => Err(Error::PrivateAddress { host: place.to_string(), address, class }),
            None => Ok(()),
        }
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
        if self.is_own_end(&stream) {
            return Err(Error::Itself { host });
        }
        // Requests and handshakes are small writes that somebody waits for.
        let _ = stream.set_nodelay(true);
        Ok(Patient::new(stream))
    }

    fn listeners(&self) -> &[SocketAddr] {
        self.own.get().map(|own| own.listeners.as_slice()).unwrap_or_default()
    }

    /// Whether an address is one of the proxy's listeners. An unspecified address leads to this machine, too.
    fn is_itself(&self, address: SocketAddr) -> bool {
        let is_here = |ip: std::net::IpAddr| ip.is_loopback() || ip.is_unspecified();
        let to = address.ip().to_canonical();
        self.listeners().iter().any(|own| {
            let ip = own.ip().to_canonical();
            own.port() == address.port()
                && (ip == to || ip.is_unspecified() && is_here(to) || to.is_unspecified() && is_here(ip))
        })
    }

    /// Whether a connection has come back to this machine, to a listener on all its addresses: those are not known beforehand, but
    /// a connection to one of them comes from the very same.
    fn is_own_end(&self, stream: &TcpStream) -> bool {
        let (Ok(here), Ok(there)) = (stream.local_addr(), stream.peer_addr()) else { return false };
        let is_open = |own: &SocketAddr| own.ip().is_unspecified() && own.port() == there.port();
        here.ip() == there.ip() && self.listeners().iter().any(is_open)
    }
}

/// TLS to a host by its name.
pub(super) async fn handshake<S: Io>(
    tls: &TlsConnector,
    place: &HostPort,
    stream: S,
) -> Result<tokio_rustls::client::TlsStream<S>, Error> {
    let host = place.to_string();
    let name = ServerName::try_from(place.host.as_str().to_owned())
        .map_err(|error| Error::Tls { host: host.clone(), source: io::Error::other(error) })?;
    tls.connect(name, stream).await.map_err(|source| {
        let cause = source.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        match cause {
            Some(cause @ rustls::Error::InvalidCertificate(_)) => Error::Certificate { host, source: cause.clone() },
            Some(cause @ rustls::Error::AlertReceived(_)) => Error::TlsAlert { host, source: cause.clone() },
            _ => Error::Tls { host, source },
        }
    })
}

/// Begins HTTP on a stream; the connection itself is driven by a task that ends with it.
async fn speak(stream: Stream, http2: bool, form: Form) -> Result<Sender, Error> {
    let io = TokioIo::new(stream);
    if http2 {
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_header_list_size(HEADER_LIST_MAX)
            .keep_alive_interval(PING_AFTER)
            .keep_alive_timeout(PING_TIMEOUT)
            .handshake::<_, RequestBody>(io)
            .await?;
        tokio::spawn(connection);
        return Ok(Sender::Http2(sender));
    }
    let (sender, connection) = http1::Builder::new()
        .preserve_header_case(true)
        .max_headers(HEADERS_MAX)
        .handshake::<_, RequestBody>(io)
        .await?;
    tokio::spawn(connection);
    Ok(Sender::Http1(sender, form))
}

/// An HTTP/2 connection that carries requests and brings nothing is asked for a sign of life: it is shared, so that a dead one would
/// take every later request with it. Chosen; an origin sees a ping only where it is silent.
const PING_AFTER: Duration = Duration::from_secs(30);

/// How long that sign may take.
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// Header fields of an answer; hyper's own limit of 100 is below what some sites send.
const HEADERS_MAX: usize = 256;

/// Octets of an HTTP/2 answer's header list; hyper's own 16 KiB is below what cookies of some sites need.
const HEADER_LIST_MAX: u32 = 64 * 1024;

fn connector(roots: &Arc<RootCertStore>, protocols: &[&[u8]]) -> Result<TlsConnector, SetupError> {
    let mut tls = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(Arc::clone(roots))
        .with_no_client_auth();
    tls.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(TlsConnector::from(Arc::new(tls)))
}

/// The system's certificates, or Mozilla's where the machine has none, and those of the settings.
fn roots(ca_files: &[PathBuf]) -> Result<RootCertStore, SetupError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    for path in ca_files {
        let bad = |reason: String| SetupError::CaFile { path: path.clone(), reason };
        let certificates = read_certificates(path).map_err(bad)?;
        if certificates.is_empty() {
            return Err(bad("it holds no certificate in PEM form".into()));
        }
        for certificate in certificates {
            roots.add(certificate).map_err(|error| bad(error.to_string()))?;
        }
    }
    Ok(roots)
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    CertificateDer::pem_reader_iter(BufReader::new(file)).collect::<Result<_, _>>().map_err(|error| error.to_string())
}
