//! What comes through a CONNECT.
//!
//! A CONNECT is accepted at once, since clients hide the body of a refused one: every refusal is given inside, where it can be read.
//! Inside is TLS, which is answered with a certificate of our own CA, or HTTP in clear text; both are inspected like any request.
//! Anything else is closed, because what cannot be read cannot be decided on; hosts of `upstream.passthrough` are the exception, in
//! [`super::passthrough`].

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use http::{HeaderMap, Method, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use rustls::server::{Acceptor, ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, BufReader};
use tokio_rustls::LazyConfigAcceptor;

use super::body::Body;
use super::error::Refusal;
use super::listener::Proxy;
use super::passthrough;
use super::pipeline::{self, Client, OpenTunnel};
use crate::ca::Leaves;
use crate::clock;
use crate::policy::answer::Rendering;
use crate::policy::reason::Reason;
use crate::policy::target::{self, Host, Scheme, Tunnel};

/// TLS towards clients.
pub struct Interception {
    leaves: Leaves,
    config: ServerConfig,
}

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
        Ok(Interception { leaves, config })
    }

    /// Whether what comes through a tunnel can be looked into, as far as its CONNECT tells: an address may still carry a server name,
    /// and port 80 clear text.
    fn check(&self, tunnel: &Tunnel) -> Result<(), crate::ca::Error> {
        match tunnel.host.ip().is_some() || tunnel.port == Scheme::Http.default_port() {
            true => Ok(()),
            false => self.leaves.check(tunnel.host.as_str()),
        }
    }

    /// The settings for one handshake. rustls resumes a session only under the server name that it began with.
    fn config_for(&self, tunnel: &Tunnel) -> Result<Arc<ServerConfig>, crate::ca::Error> {
        let certificate = self.leaves.certificate(tunnel.certificate_host().as_str())?;
        let mut config = self.config.clone();
        config.cert_resolver = Arc::new(OneCertificate(certificate));
        Ok(Arc::new(config))
    }
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

/// Accepts a CONNECT, and serves what comes through it in a task of its own.
pub async fn connect(proxy: &Arc<Proxy>, client: &Client, mut request: Request<Incoming>) -> Response<Body> {
    let tunnel = match Tunnel::of(request.uri()) {
        Ok(tunnel) if client.tunnel.is_none() => tunnel,
        Ok(_) => {
            return refuse(proxy, client, &request, Refusal::new(Reason::BadRequest, "a CONNECT inside a CONNECT"))
                .await;
        }
        Err(error) => return refuse(proxy, client, &request, error.into()).await,
    };
    if proxy.pipeline.upstream.passes_through(&tunnel.host) {
        return passthrough::connect(proxy, client, request, tunnel).await;
    }
    if let Err(error) = proxy.interception.check(&tunnel) {
        return refuse(proxy, client, &request, error.into()).await;
    }
    let upgrade = hyper::upgrade::on(&mut request);
    let headers = std::mem::take(request.headers_mut());
    proxy.tasks.spawn(serve(Arc::clone(proxy), client.clone(), upgrade, tunnel, headers));
    Response::new(Body::Own(Full::default()))
}

/// Boxed, since a tunnel is served by the code that opened it and its type would contain itself.
fn serve(
    proxy: Arc<Proxy>,
    client: Client,
    upgrade: OnUpgrade,
    tunnel: Tunnel,
    headers: HeaderMap,
) -> BoxFuture<'static, ()> {
    async move {
        let Ok(upgraded) = upgrade.await else { return };
        if let Err(error) = serve_inside(&proxy, &client, upgraded, tunnel.clone(), headers).await {
            tracing::debug!(%tunnel, client = %client.address, %error, "a tunnel ended");
        }
    }
    .boxed()
}

async fn refuse(proxy: &Proxy, client: &Client, request: &Request<Incoming>, refusal: Refusal) -> Response<Body> {
    let mut record = client.record(&proxy.pipeline, request.method());
    record.asked(target::shown(request.uri()));
    pipeline::refuse(refusal, Rendering::accepted(request.headers()), record).await
}

/// What the first octets of a tunnel say.
enum Inside {
    Tls,
    Http,
    Nothing,
    Strange,
}

async fn serve_inside(
    proxy: &Arc<Proxy>,
    client: &Client,
    upgraded: Upgraded,
    tunnel: Tunnel,
    headers: HeaderMap,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let mut stream = BufReader::with_capacity(FIRST_READ, TokioIo::new(upgraded));
    match look_inside(&mut stream, proxy.limits.header_timeout).await {
        Inside::Nothing => Ok(()),
        Inside::Http => {
            let tunnel = Tunnel { scheme: Scheme::Http, ..tunnel };
            proxy.serve_http(stream, &inside(client, tunnel, headers), false).await
        }
        Inside::Tls => {
            let handshake = clock::timeout(proxy.limits.header_timeout, accept(proxy, client, stream, tunnel));
            let (stream, tunnel) = handshake.await.ok_or("the TLS handshake took too long")??;
            let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            proxy.serve_http(stream, &inside(client, tunnel, headers), http2).await
        }
        Inside::Strange => {
            let mut record = client.record(&proxy.pipeline, &Method::CONNECT);
            record.asked(tunnel.to_string());
            record.failed(Reason::NotHttp, Some("the tunnel carries neither TLS nor HTTP, and was closed".into()));
            Ok(())
        }
    }
}

fn inside(client: &Client, tunnel: Tunnel, headers: HeaderMap) -> Client {
    Client { address: client.address, tunnel: Some(Arc::new(OpenTunnel { tunnel, headers })) }
}

/// Enough for a ClientHello; larger reads go past this buffer.
const FIRST_READ: usize = 2048;

/// Looks at the first octets without taking them. A TLS record of a handshake begins with 0x16 (RFC 8446 §5.1).
async fn look_inside<S: AsyncRead + Unpin>(stream: &mut BufReader<S>, timeout: Duration) -> Inside {
    match clock::timeout(timeout, stream.fill_buf()).await {
        Some(Ok([0x16, ..])) => Inside::Tls,
        Some(Ok([])) | Some(Err(_)) => Inside::Nothing,
        Some(Ok(octets)) if begins_with_a_method(octets) => Inside::Http,
        // A client that waits for the server to speak first will wait for ever here.
        Some(Ok(_)) | None => Inside::Strange,
    }
}

/// RFC 9110 §9.1 gives methods any token, but every registered one, and HTTP/2's preface, is letters and hyphens. SSH's greeting is
/// a token too: its digits tell it apart.
fn begins_with_a_method(octets: &[u8]) -> bool {
    let method = octets.split(|&octet| octet == b' ').next().unwrap_or_default();
    !method.is_empty() && method.iter().all(|&octet| octet.is_ascii_alphabetic() || octet == b'-')
}

type TlsStream<S> = tokio_rustls::server::TlsStream<S>;

async fn accept<S>(
    proxy: &Proxy,
    client: &Client,
    stream: S,
    mut tunnel: Tunnel,
) -> Result<(TlsStream<S>, Tunnel), Box<dyn std::error::Error + Send + Sync>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let hello = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
    tunnel.server_name = hello.client_hello().server_name().and_then(|name| Host::parse(name).ok());
    let config = proxy.interception.config_for(&tunnel).unwrap_or_else(|error| {
        let mut record = client.record(&proxy.pipeline, &Method::CONNECT);
        record.asked(tunnel.to_string());
        let Refusal { reason, detail, .. } = error.into();
        record.failed(reason, Some(detail));
        // Without a certificate the handshake ends with an alert, access_denied.
        Arc::new(proxy.interception.config.clone())
    });
    Ok((hello.into_stream(config).await?, tunnel))
}
