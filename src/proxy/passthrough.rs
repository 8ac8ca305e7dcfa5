//! Tunnels that are not looked into, for hosts whose clients accept no certificate but the host's own.
//!
//! Nothing inside can be decided on, so the CONNECT is: it is refused where robots.txt closes the whole site to the bot, and where the
//! site cannot be reached; the client reads of it only what it shows of a refused CONNECT. What is let through is recorded as
//! uninspected. A name is on the list exactly or by `*.`, and must be the CONNECT's host and, where TLS names one, the server name:
//! otherwise a listed name would be a ticket to any other host.

use http::uri::PathAndQuery;
use http::{HeaderMap, StatusCode};
use rustls::server::Acceptor;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use super::error::Refusal;
use super::listener::Proxy;
use super::pipeline::{Client, Pipeline};
use super::relay::{Stop, relay};
use crate::audit::Record;
use crate::clock;
use crate::http1::Ahead;
use crate::policy::decision;
use crate::policy::reason::Reason;
use crate::policy::target::{Host, Origin, Scheme, Target, Tunnel};
use crate::upstream::{HostPort, Speech, Stream, Upstream};

/// A CONNECT to a listed host that is let through: the connection with its origin is open.
pub(super) struct Passage {
    tunnel: Tunnel,
    origin: Stream,
    record: Record,
}

impl Passage {
    /// Decides about a CONNECT, and connects to its origin.
    pub(super) async fn open(
        pipeline: &Pipeline,
        client: &Client,
        headers: &HeaderMap,
        tunnel: Tunnel,
        mut record: Record,
    ) -> Result<Passage, (Refusal, Record)> {
        match pipeline.pass_through(client, headers, &tunnel, &mut record).await {
            Ok(origin) => {
                record.answered(StatusCode::OK);
                Ok(Passage { tunnel, origin, record })
            }
            Err(refusal) => Err((refusal, record)),
        }
    }

    /// Relays what comes through.
    pub(super) async fn serve<S>(self, proxy: &Proxy, mut client: Ahead<S>)
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let Passage { tunnel, origin, mut record } = self;
        let mut origin = Ahead::new(origin);
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
        relay(client, origin, Stop { stopping, drain: proxy.pipeline.limits.settings().drain }, record).await;
    }
}

impl Pipeline {
    /// The road of such a CONNECT: identify → look up → decide about the whole site → connect.
    async fn pass_through(
        &self,
        client: &Client,
        headers: &HeaderMap,
        tunnel: &Tunnel,
        record: &mut Record,
    ) -> Result<Stream, Refusal> {
        self.limits.request(client.address.ip())?;
        self.can_be_recorded()?;
        let scheme = if tunnel.port == Scheme::Http.default_port() { Scheme::Http } else { Scheme::Https };
        let origin = Origin { scheme, host: tunnel.host.clone(), port: tunnel.port };
        let target = Target { origin, path: PathAndQuery::from_static("/") };
        let asked = self.terms.load().identify(client, headers, target, record)?;
        let standing = self.lookup.standing(&asked.target.origin, Speech::Http2).await;
        let now = clock::now();
        let decision = decision::decide_about_all(asked.identity.token.as_str(), &standing, now);
        self.follow(&asked, decision, &standing, now, record)?;
        let place = HostPort { host: tunnel.host.clone(), port: tunnel.port };
        Ok(self.upstream.tunnel(&place).await?)
    }
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
    let mut read = 0;
    loop {
        if client.seen().len() == read && !matches!(client.look().await, Ok(true)) {
            return if read == 0 { Ok(None) } else { Err(unreadable()) };
        }
        // A TLS record of a handshake begins with 0x16 (RFC 8446 §5.1).
        if client.seen()[0] != 0x16 {
            return Ok(None);
        }
        let mut news = &client.seen()[read..];
        read = client.seen().len();
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
