//! What comes through a CONNECT.
//!
//! A CONNECT is accepted at once, since clients hide the body of a refused one: every refusal is given inside, where it can be read.
//! Inside is TLS, which is answered with a certificate of our own CA, or HTTP in clear text; both are inspected like any request.
//! Anything else is closed, because what cannot be read cannot be decided on; hosts of `upstream.passthrough` are the exception, in
//! [`super::passthrough`].

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use http::{HeaderMap, Method, Request, Response};
use http_body::Body as _;
use tokio::io::AsyncWriteExt;

use super::body::Body;
use super::error::Refusal;
use super::http1::Switch;
use super::listener::{Conversation, Proxy};
use super::passthrough::Passage;
use super::pipeline::{self, Client, OpenTunnel};
use super::tls::Failure;
use super::unreadable;
use crate::audit::{Asked, Record};
use crate::ca;
use crate::clock;
use crate::http1::{Ahead, Stream};
use crate::policy::answer::Accept;
use crate::policy::opening::{Connect, Opening};
use crate::policy::reason::Reason;
use crate::policy::target::{Scheme, Tunnel};
use crate::upstream::{HostPort, RequestBody};

/// What becomes of a CONNECT that is accepted.
enum Accepted {
    /// What comes through it is inspected.
    Inspected(Tunnel),
    /// It is passed through, to this connection with its origin.
    PassedThrough(Box<Passage>),
}

/// What a CONNECT has come to.
pub(super) enum Opened {
    /// It was refused; the client may ask again.
    Refused(Ahead<Stream>),
    /// Requests come through it.
    Carrying(Conversation),
    /// Nothing does any more.
    Over,
}

/// Answers a CONNECT that a connection begins with, and finds out what comes through it.
pub(super) async fn open(
    proxy: &Arc<Proxy>,
    client: &Client,
    connect: Connect,
    mut stream: Ahead<Stream>,
) -> Result<Opened, Failure> {
    stream.take(connect.length);
    match admit(proxy, client, &connect.target, &connect.headers, connect.has_content()).await {
        Ok(accepted) => {
            let version = if connect.is_http10 { "1.0" } else { "1.1" };
            stream.write_all(format!("HTTP/{version} 200 Connection established\r\n\r\n").as_bytes()).await?;
            stream.flush().await?;
            let conversation = begin(proxy, client, stream, accepted, connect.headers).await?;
            Ok(conversation.map_or(Opened::Over, Opened::Carrying))
        }
        Err((refusal, record)) => {
            // What stands behind the head was meant for the tunnel, and is no request.
            let is_last = connect.is_last() || connect.has_content() || !stream.seen().is_empty();
            let answer = pipeline::refuse(refusal, Accept::of(&connect.headers).rendering(), record).await;
            stream.write_all(&unreadable::octets(answer, is_last).await?).await?;
            stream.flush().await?;
            if is_last {
                unreadable::close(stream).await;
                return Ok(Opened::Over);
            }
            Ok(Opened::Refused(stream))
        }
    }
}

/// Accepts a CONNECT on a connection that has served other requests; the answer says what goes on with the stream then.
pub(super) async fn connect(
    proxy: &Arc<Proxy>,
    client: &Client,
    mut request: Box<Request<RequestBody>>,
) -> Response<Body> {
    let target = request.uri().to_string();
    let has_content = !request.body().is_end_stream();
    let accepted = match admit(proxy, client, &target, request.headers(), has_content).await {
        Ok(accepted) => accepted,
        Err((refusal, record)) => {
            return pipeline::refuse(refusal, Accept::of(request.headers()).rendering(), record).await;
        }
    };
    let (proxy, client, headers) = (Arc::clone(proxy), client.clone(), std::mem::take(request.headers_mut()));
    let switch = |stream| behind(proxy, client, stream, accepted, headers);
    Response::new(Body::Switched(Some(Switch::to(switch))))
}

/// Boxed, since a tunnel is served by the code that opened it and its type would contain itself.
fn behind(
    proxy: Arc<Proxy>,
    client: Client,
    stream: Ahead<Stream>,
    accepted: Accepted,
    headers: HeaderMap,
) -> BoxFuture<'static, ()> {
    async move {
        let served = match Box::pin(begin(&proxy, &client, stream, accepted, headers)).await {
            Ok(Some(conversation)) => proxy.serve_http(conversation).await,
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = served {
            tracing::debug!(client = %client.address, %error, "a tunnel ended");
        }
    }
    .boxed()
}

/// Where a CONNECT goes, if its client may use the proxy and there is something to be had: what the client says of itself here holds
/// for all requests inside. A refusal comes with its record.
async fn admit(
    proxy: &Proxy,
    client: &Client,
    target: &str,
    headers: &HeaderMap,
    has_content: bool,
) -> Result<Accepted, (Refusal, Record)> {
    let record = || {
        let mut record = client.record(&proxy.pipeline.audit, &proxy.pipeline.terms.load(), &Method::CONNECT);
        record.asked(Asked::Text(target.to_owned()));
        record
    };
    let tunnel = match check(proxy, client, target, headers, has_content).await {
        Ok(tunnel) => tunnel,
        Err(refusal) => return Err((refusal, record())),
    };
    if !proxy.pipeline.upstream.passes_through(&tunnel.host) {
        return match proxy.interception.check(&tunnel) {
            Ok(()) => Ok(Accepted::Inspected(tunnel)),
            Err(error) => Err((error.into(), record())),
        };
    }
    let passage = Passage::open(&proxy.pipeline, client, headers, tunnel, record()).await?;
    Ok(Accepted::PassedThrough(Box::new(passage)))
}

async fn check(
    proxy: &Proxy,
    client: &Client,
    target: &str,
    headers: &HeaderMap,
    has_content: bool,
) -> Result<Tunnel, Refusal> {
    // What that content would be can be read in two ways.
    if has_content {
        return Err(Refusal::new(Reason::BadRequest, "a CONNECT has no content (RFC 9110 section 9.3.6)"));
    }
    if client.tunnel.is_some() {
        return Err(Refusal::new(Reason::MethodNotAllowed, "a CONNECT inside a CONNECT is not served"));
    }
    let tunnel: Tunnel = target.parse()?;
    proxy.pipeline.terms.load_full().authenticate(client, headers).await?;
    // What is behind such a port speaks first or not HTTP at all, so that nobody would read a refusal inside.
    proxy.pipeline.upstream.check_port(&HostPort { host: tunnel.host.clone(), port: tunnel.port })?;
    Ok(tunnel)
}

/// What comes through an accepted CONNECT, as far as it is HTTP.
async fn begin(
    proxy: &Arc<Proxy>,
    client: &Client,
    stream: Ahead<Stream>,
    accepted: Accepted,
    headers: HeaderMap,
) -> Result<Option<Conversation>, Failure> {
    match accepted {
        Accepted::Inspected(tunnel) => begin_inside(proxy, client, stream, tunnel, headers).await,
        Accepted::PassedThrough(passage) => {
            Box::pin(passage.serve(proxy, stream)).await;
            Ok(None)
        }
    }
}

async fn begin_inside(
    proxy: &Proxy,
    client: &Client,
    mut stream: Ahead<Stream>,
    mut tunnel: Tunnel,
    headers: HeaderMap,
) -> Result<Option<Conversation>, Failure> {
    let timeout = proxy.pipeline.limits.settings().header_timeout;
    let is_http2 = match stream.opening_inside(timeout).await {
        opening @ (Opening::Http | Opening::Http2) => {
            tunnel.scheme = Scheme::Http;
            Some(matches!(opening, Opening::Http2))
        }
        Opening::Tls => {
            let not_ours = |tunnel: &Tunnel, error: ca::Error| {
                let mut record = client.record(&proxy.pipeline.audit, &proxy.pipeline.terms.load(), &Method::CONNECT);
                record.asked(Asked::Text(tunnel.to_string()));
                let Refusal { reason, detail, .. } = error.into();
                record.failed(reason, Some(detail));
            };
            let handshake = clock::timeout(timeout, proxy.interception.in_tunnel(stream, &mut tunnel, not_ours));
            let shaken = handshake.await.ok_or("the TLS handshake took too long")??;
            let is_http2 = (shaken.get_ref().1.alpn_protocol() == Some(b"h2")).then_some(true);
            stream = Ahead::new(Box::new(shaken));
            is_http2
        }
        Opening::Nothing => return Ok(None),
        _ => {
            let mut record = client.record(&proxy.pipeline.audit, &proxy.pipeline.terms.load(), &Method::CONNECT);
            record.asked(Asked::Text(tunnel.to_string()));
            record.failed(Reason::NotHttp, Some("the tunnel carries neither TLS nor HTTP, and was closed".into()));
            return Ok(None);
        }
    };
    Ok(Some(Conversation { stream, client: inside(client, tunnel, headers), is_http2 }))
}

fn inside(client: &Client, tunnel: Tunnel, headers: HeaderMap) -> Client {
    Client { tunnel: Some(Arc::new(OpenTunnel { tunnel, headers })), ..client.clone() }
}
