//! Accepting clients, and the HTTP connection with each.

use std::net::IpAddr;
use std::sync::Arc;

use http::{HeaderValue, Method, Request, Response, StatusCode, Version, header};
use http_body::Body as _;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::AsyncWriteExt;
use tokio_util::task::TaskTracker;

use super::body::Body;
use super::pipeline::{Client, Pipeline};
use super::socket::{Accepted, Listen, Listener};
use super::tls::{Failure, Interception};
use super::tunnel::{self, Opened};
use super::unreadable;
use crate::clock;
use crate::http1::{Ahead, Stream};
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

/// A stream on which requests come, from the connection's beginning or inside a tunnel.
pub(super) struct Conversation {
    pub(super) stream: Ahead<Stream>,
    pub(super) client: Client,
    /// Not known where the first octets will tell.
    pub(super) is_http2: Option<bool>,
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
        let address = client.address;
        let served = match *client.entrance {
            Listen::Http(_) | Listen::Unix(_) => self.converse(Ahead::new(stream), client).await,
            Listen::Https(own) => self.shake_hands(stream, client, own.ip()).await,
        };
        if let Err(error) = served {
            tracing::debug!(client = %address, %error, "a connection ended");
        }
    }

    async fn shake_hands(self: &Arc<Self>, stream: Stream, client: Client, own: IpAddr) -> Result<(), Failure> {
        let header_timeout = self.pipeline.limits.settings().header_timeout;
        let handshake = Box::pin(clock::timeout(header_timeout, self.interception.as_proxy(stream, own)));
        let stream = handshake.await.ok_or("the TLS handshake took too long")??;
        self.converse(Ahead::new(Box::new(stream)), client).await
    }

    /// All that a connection carries: how it begins, and the requests that come then.
    async fn converse(self: &Arc<Self>, stream: Ahead<Stream>, client: Client) -> Result<(), Failure> {
        // Boxed, so that it takes no room while requests are served, and while none come.
        match Box::pin(self.begin(stream, client)).await? {
            Some(conversation) => self.serve_http(conversation).await,
            None => Ok(()),
        }
    }

    /// The beginning of a connection: a CONNECT, after some that were refused perhaps, or the first octets of a request.
    async fn begin(
        self: &Arc<Self>,
        mut stream: Ahead<Stream>,
        client: Client,
    ) -> Result<Option<Conversation>, Failure> {
        loop {
            let limits = self.pipeline.limits.settings();
            let opening = tokio::select! {
                opening = stream.opening(limits.header_timeout, limits.header_bytes) => opening,
                () = self.pipeline.stopping.cancelled() => return Ok(None),
            };
            match opening {
                Opening::Connect(connect) => match tunnel::open(self, &client, connect, stream).await? {
                    Opened::Refused(again) => stream = again,
                    Opened::Carrying(conversation) => return Ok(Some(conversation)),
                    Opened::Over => return Ok(None),
                },
                Opening::Http | Opening::Strange => {
                    return Ok(Some(Conversation { stream, client, is_http2: Some(false) }));
                }
                Opening::Http2 => return Ok(Some(Conversation { stream, client, is_http2: Some(true) })),
                Opening::Tls => {
                    let detail =
                        "TLS on a port for plain HTTP: name the proxy as http://, or give it a listener with https://";
                    tracing::warn!(client = %client.address, "{detail}");
                    // There is nobody to read it, but it writes the record.
                    unreadable::explanation(self, &client, Reason::BadRequest, detail);
                    return Ok(None);
                }
                Opening::TooLarge => {
                    let answer = unreadable::explanation(self, &client, Reason::HeaderTooLarge, unreadable::TOO_LARGE);
                    stream.write_all(&answer).await?;
                    unreadable::close(stream).await;
                    return Ok(None);
                }
                Opening::Nothing | Opening::Late => return Ok(None),
            }
        }
    }

    /// Serves HTTP on a stream until it ends or the proxy stops.
    pub(super) async fn serve_http(self: &Arc<Self>, conversation: Conversation) -> Result<(), Failure> {
        let Conversation { mut stream, client, is_http2 } = conversation;
        let is_http2 = match is_http2 {
            Some(known) => known,
            None => tokio::select! {
                opening = stream.opening_inside(self.pipeline.limits.settings().header_timeout) => match opening {
                    Opening::Nothing | Opening::Late => return Ok(stream.shutdown().await?),
                    opening => matches!(opening, Opening::Http2),
                },
                () = self.pipeline.stopping.cancelled() => return Ok(stream.shutdown().await?),
            },
        };
        let client = Arc::new(client);
        match is_http2 {
            true => Box::pin(self.serve_http2(stream, client)).await,
            false => self.serve_http1(stream, client).await,
        }
    }

    async fn serve_http2(self: &Arc<Self>, stream: Ahead<Stream>, client: Arc<Client>) -> Result<(), Failure> {
        let body_timeout = self.pipeline.limits.settings().body_timeout;
        let service = service_fn(|request: Request<Incoming>| {
            let (proxy, client) = (Arc::clone(self), Arc::clone(&client));
            // In a box, as it is handed on from step to step: each would have room for it.
            let mut request = Box::new(request.map(|body| RequestBody::of_http2(body, body_timeout)));
            let upgrade = hyper::upgrade::on(&mut *request);
            async move {
                let mut response = proxy.answer(&client, request).await;
                if let Some(switch) = response.body_mut().take_switch() {
                    proxy.pipeline.tasks.spawn(async move {
                        let Ok(upgraded) = upgrade.await else { return };
                        switch.follow(Ahead::new(Box::new(TokioIo::new(upgraded)))).await;
                    });
                }
                Ok::<_, hyper::Error>(response)
            }
        });
        let limits = self.pipeline.limits.settings();
        let connection = http2::Builder::new(Tracked(self.pipeline.tasks.clone()))
            .timer(TokioTimer::new())
            .max_header_list_size(u32::try_from(limits.header_bytes).unwrap_or(u32::MAX))
            .initial_stream_window_size(HTTP2_STREAM_WINDOW)
            .initial_connection_window_size(HTTP2_CONNECTION_WINDOW)
            .max_concurrent_streams(HTTP2_STREAMS_MAX)
            .serve_connection(TokioIo::new(stream), service);
        tokio::pin!(connection);
        tokio::select! {
            ended = connection.as_mut() => return Ok(ended?),
            () = self.pipeline.stopping.cancelled() => connection.as_mut().graceful_shutdown(),
        }
        Ok(connection.await?)
    }

    pub(super) async fn answer(
        self: &Arc<Self>,
        client: &Client,
        request: Box<Request<RequestBody>>,
    ) -> Response<Body> {
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

/// The answer to HEAD: the head of the proxy's own answer, and nothing after it (RFC 9110 §9.3.2). hyper would send
/// it in HTTP/2, which is a protocol error.
fn without_body(mut response: Response<Body>) -> Response<Body> {
    if let Body::Own(full) = response.body() {
        let length = full.size_hint().exact().unwrap_or(0);
        response.headers_mut().insert(header::CONTENT_LENGTH, length.into());
        *response.body_mut() = Body::Own(Full::default());
    }
    response
}
