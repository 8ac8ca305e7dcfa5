//! Accepting clients, and the HTTP connection with each.
//!
//! A connection that begins with a CONNECT never meets hyper's server: `policy/opening.rs` says why.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::{HeaderValue, Method, Request, Response, StatusCode, Version, header};
use http_body::Body as _;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::AsyncWriteExt;
use tokio_util::task::TaskTracker;

use super::body::Body;
use super::pipeline::{Client, Pipeline};
use super::socket::{Accepted, Listen, Listener};
use super::stream::{Ahead, Stream};
use super::tls::{Failure, Interception};
use super::tunnel;
use super::unreadable::{self, Explained};
use crate::clock;
use crate::policy::framing::Ambiguous;
use crate::policy::opening::Opening;
use crate::policy::reason::Reason;
use crate::upstream::RequestBody;

/// The proxy as its clients meet it.
pub struct Proxy {
    /// What each request goes through.
    pub pipeline: Pipeline,
    /// TLS towards clients.
    pub interception: Interception,
}

/// Requests at once on one HTTP/2 connection; hyper's own default, written down because it bounds what a client may make us hold.
/// Inside a tunnel they are all for one host. A client that speaks HTTP/2 to the proxy itself has room for the other hosts beside a
/// hundred that wait for one.
const HTTP2_STREAMS_MAX: u32 = 200;

/// What a client may send ahead of a request's body, and of all bodies together: those that wait for their turn are not read, and
/// must not use up what the others need.
const HTTP2_STREAM_WINDOW: u32 = 64 * 1024;
const HTTP2_CONNECTION_WINDOW: u32 = (HTTP2_STREAMS_MAX + 1) * HTTP2_STREAM_WINDOW;

impl Proxy {
    /// Accepts clients until the proxy stops.
    pub async fn listen(self: Arc<Self>, listener: Listener) {
        let stopping = self.pipeline.stopping.clone();
        loop {
            let permit = self.pipeline.limits.connection().await;
            let Accepted { stream, address, entrance } = tokio::select! {
                accepted = listener.accept() => accepted,
                () = stopping.cancelled() => return,
            };
            let connection = Arc::new(self.pipeline.limits.accepted(permit));
            let (entrance, last) = (Arc::new(entrance), Arc::default());
            let client = Client { address, entrance, tunnel: None, connection, last };
            self.pipeline.tasks.spawn(Arc::clone(&self).serve(stream, client));
        }
    }

    async fn serve(self: Arc<Self>, stream: Stream, client: Client) {
        let served = match *client.entrance {
            Listen::Http(_) | Listen::Unix(_) => self.converse(Ahead::new(stream), &client).await,
            Listen::Https(own) => self.shake_hands(stream, &client, own.ip()).await,
        };
        if let Err(error) = served {
            tracing::debug!(client = %client.address, %error, "a connection ended");
        }
    }

    async fn shake_hands(self: &Arc<Self>, stream: Stream, client: &Client, own: IpAddr) -> Result<(), Failure> {
        let header_timeout = self.pipeline.limits.settings().header_timeout;
        let handshake = clock::timeout(header_timeout, self.interception.as_proxy(stream, own));
        let stream = handshake.await.ok_or("the TLS handshake took too long")??;
        self.converse(Ahead::new(Box::new(stream)), client).await
    }

    /// A connection from its beginning: a CONNECT, after some that were refused perhaps, or requests.
    async fn converse(self: &Arc<Self>, mut stream: Ahead<Stream>, client: &Client) -> Result<(), Failure> {
        loop {
            let limits = self.pipeline.limits.settings();
            let opening = tokio::select! {
                opening = stream.opening(limits.header_timeout, limits.header_bytes) => opening,
                () = self.pipeline.stopping.cancelled() => return Ok(()),
            };
            match opening {
                Opening::Connect(connect) => match tunnel::open(self, client, connect, stream).await? {
                    Some(again) => stream = again,
                    None => return Ok(()),
                },
                Opening::Http | Opening::Strange => return self.serve_http(Box::new(stream), client, false).await,
                Opening::Tls => {
                    let detail =
                        "TLS on a port for plain HTTP: name the proxy as http://, or give it a listener with https://";
                    tracing::warn!(client = %client.address, "{detail}");
                    // There is nobody to read it, but it writes the record.
                    unreadable::explanation(self, client, Reason::BadRequest, detail);
                    return Ok(());
                }
                Opening::TooLarge => {
                    let answer = unreadable::explanation(self, client, Reason::HeaderTooLarge, unreadable::TOO_LARGE);
                    stream.write_all(&answer).await?;
                    unreadable::close(stream).await;
                    return Ok(());
                }
                Opening::Nothing | Opening::Late => return Ok(()),
            }
        }
    }

    /// Serves HTTP on a stream until it ends or the proxy stops.
    pub(super) async fn serve_http(
        self: &Arc<Self>,
        stream: Stream,
        client: &Client,
        http2: bool,
    ) -> Result<(), Failure> {
        let stream = Explained::new(stream, Arc::clone(self), client.clone());
        let (ambiguous, count, client) = (stream.ambiguous(), AtomicU64::new(0), Arc::new(client.clone()));
        let body_timeout = self.pipeline.limits.settings().body_timeout;
        let service = service_fn(|mut request: Request<Incoming>| {
            let (proxy, client) = (Arc::clone(self), Arc::clone(&client));
            let nth = count.fetch_add(1, Ordering::Relaxed) + 1;
            if ambiguous.load(Ordering::Relaxed) == nth {
                request.extensions_mut().insert(Ambiguous { nth });
            }
            // In a box, since the request is handed on from step to step: each would have room for it.
            let request = Box::new(request.map(|body| RequestBody::of_client(body, body_timeout)));
            async move { Ok::<_, hyper::Error>(proxy.answer(&client, request).await) }
        });
        let limits = self.pipeline.limits.settings();
        let mut builder = auto::Builder::new(Tracked(self.pipeline.tasks.clone()));
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.header_timeout)
            .max_buf_size(limits.header_bytes.max(MIN_BUFFER))
            .preserve_header_case(true);
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_header_list_size(u32::try_from(limits.header_bytes).unwrap_or(u32::MAX))
            .initial_stream_window_size(HTTP2_STREAM_WINDOW)
            .initial_connection_window_size(HTTP2_CONNECTION_WINDOW)
            .max_concurrent_streams(HTTP2_STREAMS_MAX);
        if http2 {
            builder = builder.http2_only();
        }
        let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
        tokio::pin!(connection);
        tokio::select! {
            ended = connection.as_mut() => return ended,
            () = self.pipeline.stopping.cancelled() => connection.as_mut().graceful_shutdown(),
        }
        connection.await
    }

    async fn answer(self: &Arc<Self>, client: &Client, request: Box<Request<RequestBody>>) -> Response<Body> {
        let (is_head, version) = (request.method() == Method::HEAD, request.version());
        let mut response = match *request.method() {
            // In a box, so that other requests have no room for it.
            Method::CONNECT => Box::pin(tunnel::connect(self, client, request)).await,
            _ => self.pipeline.serve(client, request).await,
        };
        // SECURITY: where a request could be read in two ways, so could what comes behind it. Behind one that never ended nothing comes.
        if matches!(response.status(), StatusCode::BAD_REQUEST | StatusCode::REQUEST_TIMEOUT)
            && matches!(response.body(), Body::Own(_))
            && version < Version::HTTP_2
        {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        if is_head { without_body(response) } else { response }
    }
}

/// Runs the streams of an HTTP/2 connection, and has a stop wait for them: each holds a record, also when the connection is over.
#[derive(Clone)]
struct Tracked(TaskTracker);

impl<F> hyper::rt::Executor<F> for Tracked
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, stream: F) {
        self.0.spawn(stream);
    }
}

/// The answer to HEAD: the head of the proxy's own answer, and nothing after it (RFC 9110 §9.3.2). hyper leaves the body out in
/// HTTP/1.1, but sends it in HTTP/2, which is a protocol error.
fn without_body(mut response: Response<Body>) -> Response<Body> {
    if let Body::Own(full) = response.body() {
        let length = full.size_hint().exact().unwrap_or(0);
        response.headers_mut().insert(header::CONTENT_LENGTH, length.into());
        *response.body_mut() = Body::Own(Full::default());
    }
    response
}

/// hyper takes no smaller buffer.
const MIN_BUFFER: usize = 8192;
