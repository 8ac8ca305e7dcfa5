//! A bare socket to the proxy: for what no decent client sends, and for when an octet comes.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::in_time;
use super::proxy::Proxy;

/// A connection, octet by octet.
pub(crate) struct Wire<S = TcpStream> {
    pub(crate) stream: S,
    /// What has come and was not asked for yet.
    ahead: Vec<u8>,
}

impl Wire {
    /// A connection to the proxy.
    pub(crate) async fn to(proxy: &Proxy) -> Wire {
        let stream = TcpStream::connect(proxy.address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Wire { stream, ahead: Vec::new() }
    }

    /// A tunnel through the proxy.
    pub(crate) async fn tunnel(proxy: &Proxy, target: &str) -> Wire {
        let mut wire = Wire::to(proxy).await;
        wire.send(format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n")).await;
        let head = wire.head().await;
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        wire
    }

    /// TLS inside the tunnel.
    pub(crate) async fn tls(self, proxy: &Proxy, name: &str, alpn: &[&[u8]]) -> Wire<TlsStream<TcpStream>> {
        self.tls_trusting(&proxy.ca(), name, alpn).await
    }

    /// The same for a proxy with this CA.
    pub(crate) async fn tls_trusting(self, ca: &Path, name: &str, alpn: &[&[u8]]) -> Wire<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(ca).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let shaking = TlsConnector::from(Arc::new(config)).connect(name, self.stream);
        Wire { stream: in_time("the TLS handshake", shaking).await.unwrap(), ahead: Vec::new() }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<S> {
    /// Over a stream that is open already.
    pub(crate) fn over(stream: S) -> Wire<S> {
        Wire { stream, ahead: Vec::new() }
    }

    pub(crate) async fn send(&mut self, octets: impl AsRef<[u8]>) {
        self.stream.write_all(octets.as_ref()).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    /// Reads up to and including `end`.
    pub(crate) async fn read_to(&mut self, end: &str) -> String {
        loop {
            let found = self.ahead.windows(end.len()).position(|window| window == end.as_bytes());
            if let Some(at) = found {
                let rest = self.ahead.split_off(at + end.len());
                return String::from_utf8(std::mem::replace(&mut self.ahead, rest)).unwrap();
            }
            let came = in_time(end, self.stream.read_buf(&mut self.ahead)).await.unwrap_or(0);
            assert!(came > 0, "closed before {end:?}: {:?}", String::from_utf8_lossy(&self.ahead));
        }
    }

    /// The head of an answer.
    pub(crate) async fn head(&mut self) -> String {
        self.read_to("\r\n\r\n").await
    }

    /// The same, or whatever comes before the other side closes.
    pub(crate) async fn first_head(&mut self) -> String {
        let reading = async {
            while !self.ahead.windows(4).any(|window| window == b"\r\n\r\n") {
                if !matches!(self.stream.read_buf(&mut self.ahead).await, Ok(came) if came > 0) {
                    break;
                }
            }
        };
        in_time("a head", reading).await;
        String::from_utf8_lossy(&std::mem::take(&mut self.ahead)).into_owned()
    }

    /// So many octets.
    pub(crate) async fn read(&mut self, octets: usize) -> String {
        while self.ahead.len() < octets {
            let came = in_time("octets", self.stream.read_buf(&mut self.ahead)).await.unwrap_or(0);
            assert!(came > 0, "closed: {:?}", String::from_utf8_lossy(&self.ahead));
        }
        let rest = self.ahead.split_off(octets);
        String::from_utf8(std::mem::replace(&mut self.ahead, rest)).unwrap()
    }

    /// Head and body of an answer with a Content-Length.
    pub(crate) async fn answer(&mut self) -> (String, String) {
        let head = self.head().await;
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().unwrap())
        });
        let body = self.read(length.unwrap_or(0)).await;
        (head, body)
    }

    /// Everything until the other side closes; an abrupt close is one, too.
    pub(crate) async fn rest(mut self) -> String {
        let reading = async { while matches!(self.stream.read_buf(&mut self.ahead).await, Ok(came) if came > 0) {} };
        in_time("the end of the connection", reading).await;
        String::from_utf8_lossy(&self.ahead).into_owned()
    }
}

/// Sends octets to the proxy and returns everything that comes until it closes.
pub(crate) async fn exchange(proxy: &Proxy, octets: impl AsRef<[u8]>) -> String {
    let mut wire = Wire::to(proxy).await;
    wire.send(octets).await;
    wire.rest().await
}
