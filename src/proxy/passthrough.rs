//! Tunnels that are not looked into, for hosts whose clients accept no certificate but the host's own.
//!
//! Nothing inside can be decided on, so the CONNECT is: it is refused where robots.txt closes the whole site to the bot, and where the
//! site cannot be reached; the client reads of it only what it shows of a refused CONNECT. What is let through is recorded as
//! uninspected. A name is on the list exactly or by `*.`, and must be the CONNECT's host and, where TLS names one, the server name:
//! otherwise a listed name would be a ticket to any other host.

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use http::uri::PathAndQuery;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use rustls::server::Acceptor;
use tokio::io::{AsyncRead, AsyncWriteExt};

use super::ahead::Ahead;
use super::body::Body;
use super::error::Refusal;
use super::listener::Proxy;
use super::pipeline::{self, Client, Pipeline};
use super::relay::{Stop, relay};
use crate::audit::Record;
use crate::clock;
use crate::policy::answer::Rendering;
use crate::policy::decision;
use crate::policy::reason::Reason;
use crate::policy::target::{Host, Origin, Scheme, Target, Tunnel};
use crate::upstream::{HostPort, Stream, Upstream};

/// Answers a CONNECT to a listed host, and relays what comes through it in a task of its own.
pub async fn connect(
    proxy: &Arc<Proxy>,
    client: &Client,
    mut request: Request<Incoming>,
    tunnel: Tunnel,
) -> Response<Body> {
    let mut record = client.record(&proxy.pipeline, request.method());
    match proxy.pipeline.open(client, &request, &tunnel, &mut record).await {
        Err(refusal) => pipeline::refuse(refusal, Rendering::accepted(request.headers()), record).await,
        Ok(origin) => {
            record.answered(StatusCode::OK);
            let upgrade = hyper::upgrade::on(&mut request);
            proxy.tasks.spawn(serve(Arc::clone(proxy), upgrade, tunnel, origin, record));
            Response::new(Body::Own(Full::default()))
        }
    }
}

impl Pipeline {
    /// The road of such a CONNECT: identify → look up → decide about the whole site → connect.
    async fn open(
        &self,
        client: &Client,
        request: &Request<Incoming>,
        tunnel: &Tunnel,
        record: &mut Record,
    ) -> Result<Stream, Refusal> {
        record.asked(tunnel.to_string());
        self.limits.request(client.address.ip())?;
        let scheme = if tunnel.port == Scheme::Http.default_port() { Scheme::Http } else { Scheme::Https };
        let origin = Origin { scheme, host: tunnel.host.clone(), port: tunnel.port };
        let target = Target { origin, path: PathAndQuery::from_static("/") };
        let identity = self.identify(client, request, &target, record)?;
        let standing = self.lookup.standing(&target.origin).await;
        let decision = decision::decide_about_all(identity.token.as_str(), &standing, clock::now());
        self.follow(&identity, decision, &standing, record)?;
        let place = HostPort { host: tunnel.host.clone(), port: tunnel.port };
        Ok(self.upstream.tunnel(&place).await?)
    }
}

fn serve(
    proxy: Arc<Proxy>,
    upgrade: OnUpgrade,
    tunnel: Tunnel,
    origin: Stream,
    mut record: Record,
) -> BoxFuture<'static, ()> {
    async move {
        let Ok(upgraded) = upgrade.await else { return };
        let (mut client, mut origin) = (Ahead::new(TokioIo::new(upgraded)), Ahead::new(origin));
        let stopping = proxy.pipeline.stopping.clone();
        let greeted = tokio::select! {
            named = server_name(&mut client) => named,
            // Not TLS, in which the client speaks first.
            _ = origin.look() => Ok(None),
            () = stopping.cancelled() => return,
        };
        if let Err(name) = greeted.and_then(|name| admit(&proxy.pipeline.upstream, &tunnel, name)) {
            let told = format!("the TLS server name {name} is not {}, where the tunnel goes", tunnel.host);
            record.failed(Reason::AuthorityMismatch, Some(told));
            let _ = client.write_all(&UNRECOGNIZED_NAME).await;
            let _ = client.shutdown().await;
            return;
        }
        relay(client, origin, Stop { stopping, drain: proxy.limits.drain }, record).await;
    }
    .boxed()
}

/// SECURITY: the server name is what the host serves by. Where the CONNECT has an address, the name must be on the list itself.
fn admit(upstream: &Upstream, tunnel: &Tunnel, name: Option<Host>) -> Result<(), String> {
    match name {
        Some(name) if name != tunnel.host && !(tunnel.host.ip().is_some() && upstream.passes_through(&name)) => {
            Err(name.to_string())
        }
        _ => Ok(()),
    }
}

/// The server name of the TLS that begins here, as far as that can be told without taking anything: none where there is no TLS.
async fn server_name<S: AsyncRead + Unpin>(client: &mut Ahead<S>) -> Result<Option<Host>, String> {
    let unreadable = || "that cannot be read".to_owned();
    let mut acceptor = Acceptor::default();
    loop {
        let before = client.seen().len();
        match client.look().await {
            Ok(0) | Err(_) => return if before == 0 { Ok(None) } else { Err(unreadable()) },
            // A TLS record of a handshake begins with 0x16 (RFC 8446 §5.1).
            Ok(_) if client.seen()[0] != 0x16 => return Ok(None),
            Ok(_) => {}
        }
        let mut news = &client.seen()[before..];
        while !news.is_empty() {
            acceptor.read_tls(&mut news).map_err(|_| unreadable())?;
        }
        match acceptor.accept() {
            Ok(Some(accepted)) => {
                let hello = accepted.client_hello();
                return hello.server_name().map(Host::parse).transpose().map_err(|_| unreadable());
            }
            Ok(None) if client.seen().len() < HELLO_MAX => {}
            _ => return Err(unreadable()),
        }
    }
}

/// Octets of a ClientHello; one with large post-quantum key shares has 2 KiB.
const HELLO_MAX: usize = 64 * 1024;

/// A fatal alert, unrecognized_name (RFC 6066 §3).
const UNRECOGNIZED_NAME: [u8; 7] = [0x15, 3, 3, 0, 2, 2, 112];
