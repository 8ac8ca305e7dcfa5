//! HTTP/1.1 with one client, request after request.
//!
//! hyper keeps 16 KiB of buffers for a connection as long as it has it, and most connections do nothing most of the time: a browser
//! holds six to each host. So one that has been idle for a moment is taken back from hyper, and waits with nothing but its socket until
//! the client sends again. Only between two requests, when all that came is answered and all that was answered is sent, does hyper hold
//! nothing that could be lost with it.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::sync::oneshot;

use super::body::Body;
use super::listener::{Proxy, boxed};
use super::pipeline::Client;
use super::stream::{Ahead, Stream};
use super::tls::Failure;
use super::unreadable::Explained;
use crate::clock;
use crate::policy::framing::Ambiguous;
use crate::upstream;

/// Nothing has happened for that long, or twice that long, when a connection is taken back. Chosen: many times what it costs to begin
/// again, and short, since a crowd of clients that come at once holds all its buffers until then.
const MOMENT: Duration = Duration::from_millis(100);

/// While a request is under way there is less to look after.
const LONG_MOMENT: Duration = Duration::from_secs(1);

/// hyper takes no smaller buffer.
const MIN_BUFFER: usize = 8192;

impl Proxy {
    /// Serves HTTP/1.1 on a stream until it ends or the proxy stops.
    pub(super) async fn serve_http1(
        self: &Arc<Self>,
        stream: Ahead<Stream>,
        client: Arc<Client>,
    ) -> Result<(), Failure> {
        let progress = Arc::new(Progress::default());
        let mut stream = Box::new(Explained::new(stream, Arc::clone(self), Arc::clone(&client), Arc::clone(&progress)));
        loop {
            // Boxed, so that it takes no room while the connection is idle.
            match Box::pin(self.exchange(stream, &client, &progress)).await? {
                Some(idle) => stream = idle,
                None => return Ok(()),
            }
            let patience = self.pipeline.limits.settings().header_timeout;
            let goes_on = tokio::select! {
                came = clock::timeout(patience, stream.look()) => came == Some(true),
                () = self.pipeline.stopping.cancelled() => false,
            };
            if !goes_on {
                return Ok(stream.shutdown().await?);
            }
        }
    }

    /// Has hyper serve requests; gives the stream back where the client sends none for a moment.
    async fn exchange(
        self: &Arc<Self>,
        stream: Box<Explained>,
        client: &Arc<Client>,
        progress: &Arc<Progress>,
    ) -> Result<Option<Box<Explained>>, Failure> {
        let limits = self.pipeline.limits.settings();
        let service = service_fn(|mut request: Request<Incoming>| {
            let (proxy, client) = (Arc::clone(self), Arc::clone(client));
            let underway = Underway::begin(progress);
            if let Some(ambiguous) = underway.ambiguous() {
                request.extensions_mut().insert(ambiguous);
            }
            let request = boxed(request, limits.body_timeout);
            async move {
                let response = proxy.answer(&client, request).await;
                Ok::<_, hyper::Error>(response.map(|body| Answer { body, _underway: underway }))
            }
        });
        let (lender, lent) = oneshot::channel();
        let stream = Lent { stream: Some(stream), lender: Some(lender) };
        {
            let connection = http1::Builder::new()
                // `lull` sees to it for all requests of a connection with one timer.
                .header_read_timeout(None)
                .max_buf_size(limits.header_bytes.max(MIN_BUFFER))
                .preserve_header_case(true)
                .title_case_headers(true)
                .serve_connection(TokioIo::new(stream), service)
                .with_upgrades();
            let lull = progress.lull(limits.header_timeout);
            tokio::pin!(connection, lull);
            let mut stops = false;
            loop {
                tokio::select! {
                    biased;
                    ended = connection.as_mut() => {
                        ended?;
                        return Ok(None);
                    }
                    lull = lull.as_mut() => match lull {
                        Lull::Idle => break,
                        Lull::Late => return Err("the head of a request took too long".into()),
                    },
                    () = self.pipeline.stopping.cancelled(), if !stops => {
                        connection.as_mut().graceful_shutdown();
                        stops = true;
                    }
                }
            }
        }
        Ok(lent.await.ok())
    }
}

/// How far a connection is, as seen from both sides of hyper: what it has read and written, and what it has asked of us.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Requests that have been read, if they were read to their ends and nothing of a further one was.
    read: AtomicU64,
    begun: AtomicU64,
    ended: AtomicU64,
    is_writing: AtomicBool,
    /// Which request is the one with two ends, counted from 1; 0 is none.
    ambiguous: AtomicU64,
}

const NOT_TO_THE_END: u64 = u64::MAX;

#[derive(Debug, PartialEq, Eq)]
enum Lull {
    /// The client has what it asked for, and asks for nothing.
    Idle,
    /// It has begun to ask, long ago.
    Late,
}

impl Progress {
    /// Octets were read: so many requests, if they ended there.
    pub(super) fn has_read(&self, requests: Option<u64>) {
        self.read.store(requests.unwrap_or(NOT_TO_THE_END), Ordering::Relaxed);
    }

    /// Among them were those of a request that has two ends.
    pub(super) fn is_ambiguous(&self, ambiguous: Ambiguous) {
        self.ambiguous.store(ambiguous.nth, Ordering::Relaxed);
    }

    /// Something is written, and may be held up.
    pub(super) fn writes(&self) {
        self.is_writing.store(true, Ordering::Relaxed);
    }

    /// All of it has gone.
    pub(super) fn has_written(&self) {
        self.is_writing.store(false, Ordering::Relaxed);
    }

    /// How many requests have been answered, if none is under way.
    fn answered(&self) -> Option<u64> {
        let ended = self.ended.load(Ordering::Relaxed);
        (ended == self.begun.load(Ordering::Relaxed)).then_some(ended)
    }

    /// Waits until nothing has happened for a moment, or until a head has been due for as long as it may be. A client that is slow to
    /// take its answer is not late.
    async fn lull(&self, header_timeout: Duration) -> Lull {
        let (mut answered, mut since) = (self.answered(), clock::now());
        let moment = MOMENT.min(header_timeout);
        loop {
            clock::sleep(if answered.is_some() { moment } else { LONG_MOMENT }).await;
            let (before, now) = (answered, clock::now());
            answered = self.answered();
            if answered.is_none() || answered != before || self.is_writing.load(Ordering::Relaxed) {
                since = now;
            } else if answered == Some(self.read.load(Ordering::Relaxed)) {
                return Lull::Idle;
            } else if now.duration_since(since) >= header_timeout {
                return Lull::Late;
            }
        }
    }
}

/// A request that hyper has asked us to answer; it is over when this is dropped.
struct Underway {
    progress: Arc<Progress>,
    nth: u64,
}

impl Underway {
    fn begin(progress: &Arc<Progress>) -> Underway {
        Underway { nth: progress.begun.fetch_add(1, Ordering::Relaxed) + 1, progress: Arc::clone(progress) }
    }

    fn ambiguous(&self) -> Option<Ambiguous> {
        (self.progress.ambiguous.load(Ordering::Relaxed) == self.nth).then_some(Ambiguous { nth: self.nth })
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        self.progress.ended.fetch_add(1, Ordering::Relaxed);
    }
}

/// The body of an answer; the request is under way until hyper has all of it.
struct Answer {
    body: Body,
    _underway: Underway,
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = upstream::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, upstream::Error>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A stream that hyper has for a while. When hyper drops it, it goes back to its lender, if that still waits for it: where a tunnel or
/// a WebSocket has it by then, nobody does.
struct Lent {
    stream: Option<Box<Explained>>,
    lender: Option<oneshot::Sender<Box<Explained>>>,
}

impl Lent {
    fn stream(self: Pin<&mut Self>) -> Pin<&mut Explained> {
        Pin::new(self.get_mut().stream.as_mut().expect("it is given back when this is dropped"))
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let (Some(lender), Some(stream)) = (self.lender.take(), self.stream.take()) {
            let _ = lender.send(stream);
        }
    }
}

impl AsyncRead for Lent {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_read(context, buffer)
    }
}

impl AsyncWrite for Lent {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, octets: &[u8]) -> Poll<io::Result<usize>> {
        self.stream().poll_write(context, octets)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream().poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.as_ref().is_some_and(|stream| stream.is_write_vectored())
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_idle_when_all_that_came_is_answered_and_sent() {
        let header_timeout = Duration::from_secs(10);
        let lull = async |progress: &Progress| {
            let began = clock::now();
            let lull = clock::timeout(Duration::from_secs(3600), progress.lull(header_timeout)).await;
            lull.map(|lull| (lull, clock::now().duration_since(began).as_secs()))
        };
        let late = Some((Lull::Late, header_timeout.as_secs()));
        let idle = Some((Lull::Idle, 0));
        let progress = Arc::new(Progress::default());
        assert_eq!(lull(&progress).await, idle);
        progress.has_read(None);
        assert_eq!(lull(&progress).await, late, "a part of a head");
        progress.has_read(Some(1));
        let request = Underway::begin(&progress);
        assert_eq!(lull(&progress).await, None, "a request is under way");
        progress.writes();
        drop(request);
        assert_eq!(lull(&progress).await, None, "the client is slow to take its answer");
        progress.has_written();
        assert_eq!(lull(&progress).await, idle);
        progress.has_read(Some(2));
        assert_eq!(lull(&progress).await, late, "a further request that hyper has not asked about");
    }
}
