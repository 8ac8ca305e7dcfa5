//! Opening a connection to an origin: name, address, TCP, TLS, HTTP.

use std::fmt;
use std::fs::File;
use std::io::{self, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hyper::client::conn::{http1, http2};
use hyper::rt::{Read, Write};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::body::RequestBody;
use super::pool::Sender;
use super::{Error, Settings};
use crate::clock;
use crate::policy::target::{Host, Origin, Scheme};

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
    tls: TlsConnector,
    /// The same, but offers HTTP/1.1 alone.
    tls_http1: TlsConnector,
    connect_to: Vec<ConnectTo>,
    timeout: Duration,
    own: OnceLock<Vec<SocketAddr>>,
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialer").field("connect_to", &self.connect_to).finish_non_exhaustive()
    }
}

impl Dialer {
    pub(super) fn new(settings: &Settings) -> Result<Dialer, SetupError> {
        let mut tls = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots(&settings.ca_files)?)
            .with_no_client_auth();
        let mut tls_http1 = tls.clone();
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        tls_http1.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Dialer {
            tls: TlsConnector::from(Arc::new(tls)),
            tls_http1: TlsConnector::from(Arc::new(tls_http1)),
            connect_to: settings.connect_to.clone(),
            timeout: settings.connect_timeout,
            own: OnceLock::new(),
        })
    }

    /// Tells the proxy's own addresses.
    pub(super) fn never_connect_to(&self, listeners: Vec<SocketAddr>) {
        // Told once, when the listeners are bound; a second telling changes nothing.
        let _ = self.own.set(listeners);
    }

    /// A new connection, ready for requests.
    pub(super) async fn open(&self, origin: &Origin) -> Result<Sender, Error> {
        self.open_by(origin, &self.tls).await
    }

    /// A new connection that speaks HTTP/1.1, since only that can be switched to another protocol.
    pub(super) async fn open_http1(&self, origin: &Origin) -> Result<Sender, Error> {
        self.open_by(origin, &self.tls_http1).await
    }

    async fn open_by(&self, origin: &Origin, tls: &TlsConnector) -> Result<Sender, Error> {
        let opened = clock::timeout(self.timeout, async {
            let stream = self.connect(origin).await?;
            match origin.scheme {
                Scheme::Http => speak(stream, false).await,
                Scheme::Https => {
                    let stream = handshake(origin, stream, tls).await?;
                    let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                    speak(stream, http2).await
                }
            }
        });
        opened.await.unwrap_or_else(|| Err(Error::TimedOut { host: place(origin), timeout: self.timeout }))
    }

    async fn connect(&self, origin: &Origin) -> Result<TcpStream, Error> {
        let redirected =
            self.connect_to.iter().find(|rule| rule.from.host == origin.host && rule.from.port == origin.port);
        let (host, port) = redirected.map_or((&origin.host, origin.port), |rule| (&rule.to.host, rule.to.port));
        let dns = |source| Error::Dns { host: host.to_string(), source };
        let addresses = tokio::net::lookup_host((host.as_str(), port)).await.map_err(dns)?;
        let mut failure = None;
        for address in addresses {
            if self.is_itself(address) {
                return Err(Error::Itself { host: place(origin) });
            }
            match TcpStream::connect(address).await {
                Ok(stream) => {
                    // Requests and handshakes are small writes that somebody waits for.
                    let _ = stream.set_nodelay(true);
                    return Ok(stream);
                }
                Err(error) => failure = Some(error),
            }
        }
        Err(match failure {
            None => dns(io::Error::new(io::ErrorKind::NotFound, "it has no address")),
            Some(error) if error.kind() == io::ErrorKind::ConnectionRefused => Error::Refused { host: place(origin) },
            Some(source) => Error::Connect { host: place(origin), source },
        })
    }

    /// Whether an address is one of the proxy's listeners, also where those listen on every address of the machine.
    fn is_itself(&self, address: SocketAddr) -> bool {
        let listeners = self.own.get().map(Vec::as_slice).unwrap_or_default();
        listeners.iter().any(|own| {
            own.port() == address.port()
                && (own.ip() == address.ip() || own.ip().is_unspecified() && address.ip().is_loopback())
        })
    }
}

async fn handshake(
    origin: &Origin,
    stream: TcpStream,
    tls: &TlsConnector,
) -> Result<tokio_rustls::client::TlsStream<TcpStream>, Error> {
    let host = place(origin);
    let name = ServerName::try_from(origin.host.as_str().to_owned())
        .map_err(|error| Error::Tls { host: host.clone(), source: io::Error::other(error) })?;
    tls.connect(name, stream).await.map_err(|source| {
        let cause = source.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        match cause {
            Some(cause @ rustls::Error::InvalidCertificate(_)) => Error::Certificate { host, source: cause.clone() },
            _ => Error::Tls { host, source },
        }
    })
}

/// Host and port, for people.
fn place(origin: &Origin) -> String {
    format!("{}:{}", origin.host, origin.port)
}

/// Begins HTTP on a stream; the connection itself is driven by a task that ends with it.
async fn speak<S>(stream: S, http2: bool) -> Result<Sender, Error>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    TokioIo<S>: Read + Write,
{
    let io = TokioIo::new(stream);
    if http2 {
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_header_list_size(HEADER_LIST_MAX)
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
    tokio::spawn(connection.with_upgrades());
    Ok(Sender::Http1(sender))
}

/// Header fields of an answer; hyper's own limit of 100 is below what some sites send.
const HEADERS_MAX: usize = 256;

/// Octets of an HTTP/2 answer's header list; hyper's own 16 KiB is below what cookies of some sites need.
const HEADER_LIST_MAX: u32 = 64 * 1024;

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
