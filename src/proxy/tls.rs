//! TLS towards clients, with certificates of our own CA: in the place of an origin, or as the proxy itself.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustls::ServerConfig;
use rustls::server::{Acceptor, ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

use super::unhurried::Unhurried;
use crate::ca::{self, Leaves};
use crate::policy::target::{Host, Scheme, Tunnel};

/// TLS towards clients.
pub struct Interception {
    leaves: Leaves,
    config: ServerConfig,
    broken: AtomicU64,
}

/// Why a handshake failed.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

impl Interception {
    /// Answers TLS with the certificates of `leaves`.
    ///
    /// # Errors
    /// rustls does not take the settings.
    pub fn new(leaves: Leaves) -> Result<Interception, rustls::Error> {
        let mut config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(NoCertificate));
        // Old clients, and curl --http1.0, offer nothing but the last.
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec(), b"http/1.0".to_vec()];
        config.ticketer = rustls::crypto::aws_lc_rs::Ticketer::new()?;
        // Clients use one for the next connection and get another there (RFC 8446 appendix C.4); each costs as much as a request's records.
        config.send_tls13_tickets = 1;
        Ok(Interception { leaves, config, broken: AtomicU64::new(0) })
    }

    /// Handshakes inside tunnels that the client broke off, mostly because it does not trust the CA.
    pub fn broken_handshakes(&self) -> u64 {
        self.broken.load(Ordering::Relaxed)
    }

    /// The certificates.
    pub fn leaves(&self) -> &Leaves {
        &self.leaves
    }

    /// Whether what comes through a tunnel can be looked into, as far as its CONNECT tells: an address may still carry a server name,
    /// and port 80 clear text.
    pub(super) fn check(&self, tunnel: &Tunnel) -> Result<(), crate::ca::Error> {
        match tunnel.host.ip().is_some() || tunnel.port == Scheme::Http.default_port() {
            true => Ok(()),
            false => self.leaves.check(tunnel.host.as_str()),
        }
    }

    /// Shakes hands in the place of a tunnel's origin, and notes the server name that the client asked for. Where the CA may not sign
    /// for it, `not_ours` is told, and the handshake ends with an alert, access_denied.
    pub(super) async fn in_tunnel<S>(
        &self,
        stream: S,
        tunnel: &mut Tunnel,
        not_ours: impl FnOnce(&Tunnel, crate::ca::Error),
    ) -> Result<TlsStream<Unhurried<S>>, Failure>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let hello = LazyConfigAcceptor::new(Acceptor::default(), Unhurried::new(stream)).await?;
        tunnel.server_name = server_name(&hello.client_hello());
        let config = self.config_for(tunnel.certificate_host(), None).unwrap_or_else(|error| {
            not_ours(tunnel, error);
            Arc::new(self.config.clone())
        });
        let mut shaken = hello.into_stream(config).await;
        match &mut shaken {
            Ok(stream) => stream.get_mut().0.is_done(),
            Err(_) => {
                self.broken.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(shaken?)
    }

    /// Takes other settings for what is minted from now on.
    pub fn reload(&self, settings: &ca::Settings) {
        self.leaves.reload(settings);
    }

    /// Shakes hands as the proxy, for the name that the client knows it by or, where it sends none, for the address that it came to.
    pub(crate) async fn as_proxy<S>(&self, stream: S, address: IpAddr) -> Result<TlsStream<S>, Failure>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let hello = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
        let host = match server_name(&hello.client_hello()) {
            Some(name) => name,
            None => Host::parse(&address.to_canonical().to_string())?,
        };
        // A CONNECT over HTTP/2 would be a tunnel in a stream of another kind, which this proxy does not serve.
        let config = self.config_for(&host, Some(vec![b"http/1.1".to_vec()]))?;
        Ok(hello.into_stream(config).await?)
    }

    /// The settings for one handshake. rustls resumes a session only under the server name that it began with.
    fn config_for(&self, host: &Host, alpn: Option<Vec<Vec<u8>>>) -> Result<Arc<ServerConfig>, crate::ca::Error> {
        let certificate = self.leaves.certificate(host.as_str())?;
        let mut config = self.config.clone();
        config.cert_resolver = Arc::new(OneCertificate(certificate));
        config.alpn_protocols = alpn.unwrap_or(config.alpn_protocols);
        Ok(Arc::new(config))
    }
}

fn server_name(hello: &ClientHello<'_>) -> Option<Host> {
    hello.server_name().and_then(|name| Host::parse(name).ok())
}

/// The certificate is chosen per connection, since a client that asks for an address sends no name to choose by.
#[derive(Debug)]
struct OneCertificate(Arc<CertifiedKey>);

impl ResolvesServerCert for OneCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

#[derive(Debug)]
struct NoCertificate;

impl ResolvesServerCert for NoCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        None
    }
}
