//! The demo's client: asks the shop through the proxy as curl would, with CONNECT, TLS and the proxy's CA.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::shop::HOST;
use crate::ca::Ca;

/// A client that trusts the proxy's CA and nothing else.
pub(super) struct Client {
    proxy: SocketAddr,
    tls: TlsConnector,
}

/// What came back.
pub(super) struct Asked {
    /// The status.
    pub(super) status: u16,
    /// How long the proxy says that the request waited.
    pub(super) wait_ms: u64,
}

impl Client {
    pub(super) fn new(proxy: SocketAddr, ca: &Ca) -> anyhow::Result<Client> {
        let mut roots = RootCertStore::empty();
        roots.add(ca.certificate_der().clone())?;
        let tls = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Client { proxy, tls: TlsConnector::from(Arc::new(tls)) })
    }

    /// Asks for a page of the shop.
    pub(super) async fn get(&self, path: &str, headers: &[(&str, &str)]) -> anyhow::Result<Asked> {
        let tunnel = self.tunnel().await.context("the proxy opens no tunnel")?;
        let stream = self.tls.connect(ServerName::try_from(HOST)?, TokioIo::new(tunnel)).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let mut request = Request::get(path).header("host", HOST);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = sender.send_request(request.body(Empty::<Bytes>::new())?).await?;
        let status = response.status().as_u16();
        let waited =
            response.headers().get("proxy-status").and_then(|value| value.to_str().ok()?.split_once("wait_ms="));
        let wait_ms = waited.and_then(|(_, digits)| digits.parse().ok()).unwrap_or(0);
        response.into_body().collect().await?;
        Ok(Asked { status, wait_ms })
    }

    async fn tunnel(&self) -> anyhow::Result<hyper::upgrade::Upgraded> {
        let stream = TcpStream::connect(self.proxy).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection.with_upgrades());
        let authority = format!("{HOST}:443");
        let request = Request::builder().method(Method::CONNECT).uri(&authority).header("host", &authority);
        let response = sender.send_request(request.body(Empty::<Bytes>::new())?).await?;
        Ok(hyper::upgrade::on(response).await?)
    }
}
