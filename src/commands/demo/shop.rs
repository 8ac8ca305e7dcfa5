//! Nimbu Bazaar, the practice shop: a robots.txt and invented pages, over HTTPS on loopback.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use rustls::server::ResolvesServerCert;
use rustls::sign::CertifiedKey;
use tokio::net::TcpListener;
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;

use crate::ca::{Ca, Leaves, Settings};
use crate::clock;
use crate::upstream::ConnectTo;

/// The shop's name; it exists only in this program.
pub(super) const HOST: &str = "bazaar.nimbu.test";

const ROBOTS: &str = include_str!("robots.txt");

/// The shop, open until it is dropped.
pub(super) struct Shop {
    address: SocketAddr,
    ca_file: PathBuf,
    counts: Arc<Counts>,
    serving: AbortHandle,
}

#[derive(Default)]
struct Counts {
    visits: AtomicUsize,
    robots: AtomicUsize,
}

impl Shop {
    pub(super) async fn open(folder: &Path) -> anyhow::Result<Shop> {
        let settings = Settings {
            dir: folder.to_owned(),
            leaf_ttl: std::time::Duration::from_secs(24 * 3600),
            ..Settings::default()
        };
        let ca = Arc::new(Ca::open(&settings, clock::wall())?);
        let ca_file = ca.certificate_path().to_owned();
        let certificate = Leaves::new(ca, &settings)?.certificate(HOST)?;
        let mut tls = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(Always(certificate)));
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let counts = Arc::new(Counts::default());
        let serving =
            tokio::spawn(serve(listener, TlsAcceptor::from(Arc::new(tls)), Arc::clone(&counts))).abort_handle();
        Ok(Shop { address, ca_file, counts, serving })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The certificate that the proxy has to trust.
    pub(super) fn ca_file(&self) -> PathBuf {
        self.ca_file.clone()
    }

    /// How the proxy finds the shop, whose name no resolver knows.
    pub(super) fn connect_to(&self) -> ConnectTo {
        let place = |text: String| text.parse().expect("a host and a port");
        ConnectTo { from: place(format!("{HOST}:443")), to: place(self.address.to_string()) }
    }

    pub(super) fn visits(&self) -> usize {
        self.counts.visits.load(Ordering::Relaxed)
    }

    pub(super) fn robots_visits(&self) -> usize {
        self.counts.robots.load(Ordering::Relaxed)
    }
}

impl Drop for Shop {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// The one certificate that the shop has.
#[derive(Debug)]
struct Always(Arc<CertifiedKey>);

impl ResolvesServerCert for Always {
    fn resolve(&self, _: rustls::server::ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

async fn serve(listener: TcpListener, tls: TlsAcceptor, counts: Arc<Counts>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (tls, counts) = (tls.clone(), Arc::clone(&counts));
        tokio::spawn(async move {
            let Ok(stream) = tls.accept(stream).await else { return };
            let service = service_fn(|request| {
                let page = page(&request, &counts);
                async move { Ok::<_, Infallible>(page) }
            });
            // A client that goes away in the middle is no concern of the shop.
            let _ = auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

fn page(request: &Request<Incoming>, counts: &Counts) -> Response<Full<Bytes>> {
    counts.visits.fetch_add(1, Ordering::Relaxed);
    let (media_type, body) = match request.uri().path() {
        "/robots.txt" => {
            counts.robots.fetch_add(1, Ordering::Relaxed);
            ("text/plain; charset=utf-8", ROBOTS.to_owned())
        }
        path => (
            "text/html; charset=utf-8",
            format!("<!doctype html>\n<title>Nimbu Bazaar</title>\n<p>The page {path} of the shop.\n"),
        ),
    };
    let mut response = Response::new(Full::from(body));
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(media_type));
    response
}
