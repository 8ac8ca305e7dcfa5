//! What comes through a CONNECT.
//!
//! A CONNECT is accepted at once, since clients hide the body of a refused one: every refusal is given inside, where it can be read.
//! Inside is TLS, which is answered with a certificate of our own CA, or HTTP in clear text; both are inspected like any request.
//! Anything else is closed, because what cannot be read cannot be decided on.

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use http::{HeaderMap, Method, Request, Response};
use http_body::Body as _;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWriteExt;

use super::body::Body;
use super::error::Refusal;
use super::listener::Proxy;
use super::pipeline::{self, Client, OpenTunnel};
use super::stream::{Ahead, Stream};
use super::tls::Failure;
use super::unreadable;
use crate::clock;
use crate::policy::answer::Rendering;
use crate::policy::opening::{Connect, Opening};
use crate::policy::reason::Reason;
use crate::policy::target::{Scheme, Tunnel};

/// Answers a CONNECT that a connection begins with, and serves what comes through it. The stream is given back where the client may
/// ask again.
pub(super) async fn open(
    proxy: &Arc<Proxy>,
    client: &Client,
    connect: Connect,
    mut stream: Ahead<Stream>,
) -> Result<Option<Ahead<Stream>>, Failure> {
    stream.take(connect.length);
    let admitted = match connect.has_content() {
        true => Err(has_content()),
        false => admit(proxy, client, &connect.target, &connect.headers).await,
    };
    match admitted {
        Ok(tunnel) => {
            let version = if connect.is_http10 { "1.0" } else { "1.1" };
            stream.write_all(format!("HTTP/{version} 200 Connection established\r\n\r\n").as_bytes()).await?;
            stream.flush().await?;
            serve_inside(proxy, client, stream, tunnel, connect.headers).await?;
            Ok(None)
        }
        Err(refusal) => {
            // What stands behind the head was meant for the tunnel, and is no request.
            let is_last = connect.is_last() || connect.has_content() || !stream.seen().is_empty();
            let answer = refuse(proxy, client, &connect.target, &connect.headers, refusal).await;
            stream.write_all(&unreadable::octets(answer, is_last).await?).await?;
            stream.flush().await?;
            if is_last {
                unreadable::close(stream).await;
                return Ok(None);
            }
            Ok(Some(stream))
        }
    }
}

/// Accepts a CONNECT on a connection that has served other requests, and serves what comes through it in a task of its own.
pub(super) async fn connect(proxy: &Arc<Proxy>, client: &Client, mut request: Request<Incoming>) -> Response<Body> {
    let target = request.uri().to_string();
    let admitted = match request.body().is_end_stream() {
        true => admit(proxy, client, &target, request.headers()).await,
        false => Err(has_content()),
    };
    let tunnel = match admitted {
        Ok(tunnel) => tunnel,
        Err(refusal) => return refuse(proxy, client, &target, request.headers(), refusal).await,
    };
    let upgrade = hyper::upgrade::on(&mut request);
    let headers = std::mem::take(request.headers_mut());
    let (served, client) = (Arc::clone(proxy), client.clone());
    proxy.pipeline.tasks.spawn(async move {
        let Ok(upgraded) = upgrade.await else { return };
        let stream = Ahead::new(Box::new(TokioIo::new(upgraded)) as Stream);
        if let Err(error) = serve_inside(&served, &client, stream, tunnel, headers).await {
            tracing::debug!(client = %client.address, %error, "a tunnel ended");
        }
    });
    Response::new(Body::Own(Full::default()))
}

/// What that content would be can be read in two ways.
fn has_content() -> Refusal {
    Refusal::new(Reason::BadRequest, "a CONNECT has no content (RFC 9110 section 9.3.6)")
}

/// Where a CONNECT goes, if its client may use the proxy: what it says of itself here holds for all requests inside.
async fn admit(proxy: &Proxy, client: &Client, target: &str, headers: &HeaderMap) -> Result<Tunnel, Refusal> {
    if client.tunnel.is_some() {
        return Err(Refusal::new(Reason::MethodNotAllowed, "a CONNECT inside a CONNECT is not served"));
    }
    let tunnel = target.parse()?;
    proxy.pipeline.authenticate(client, headers).await?;
    Ok(tunnel)
}

async fn refuse(proxy: &Proxy, client: &Client, target: &str, headers: &HeaderMap, refusal: Refusal) -> Response<Body> {
    let mut record = client.record(&proxy.pipeline, &Method::CONNECT);
    record.asked(target.to_owned());
    pipeline::refuse(refusal, Rendering::accepted(headers), record).await
}

/// Boxed, since a tunnel is served by the code that opened it and its type would contain itself.
fn serve_inside<'a>(
    proxy: &'a Arc<Proxy>,
    client: &'a Client,
    mut stream: Ahead<Stream>,
    mut tunnel: Tunnel,
    headers: HeaderMap,
) -> BoxFuture<'a, Result<(), Failure>> {
    let timeout = proxy.limits.header_timeout;
    async move {
        match stream.opening_inside(timeout).await {
            Opening::Http => {
                tunnel.scheme = Scheme::Http;
                proxy.serve_http(Box::new(stream), &inside(client, tunnel, headers), false).await
            }
            Opening::Tls => {
                let handshake = clock::timeout(timeout, proxy.interception.in_tunnel(stream, &mut tunnel));
                let stream = handshake.await.ok_or("the TLS handshake took too long")??;
                let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                proxy.serve_http(Box::new(stream), &inside(client, tunnel, headers), http2).await
            }
            Opening::Nothing => Ok(()),
            _ => {
                let mut record = client.record(&proxy.pipeline, &Method::CONNECT);
                record.asked(tunnel.to_string());
                record.failed(Reason::NotHttp, Some("the tunnel carries neither TLS nor HTTP, and was closed".into()));
                Ok(())
            }
        }
    }
    .boxed()
}

fn inside(client: &Client, tunnel: Tunnel, headers: HeaderMap) -> Client {
    Client { tunnel: Some(Arc::new(OpenTunnel { tunnel, headers })), ..client.clone() }
}
