//! Bodies on their way: of requests towards an origin, and of its answers.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;

use super::Error;
use super::pool::{Pool, Sender};
use crate::clock;
use crate::policy::target::Origin;

/// The body of a request.
#[derive(Debug)]
pub enum RequestBody {
    /// What the client sends.
    Client(Incoming),
    /// The same while it is being sent, with a count of what has gone.
    Sent(Incoming, Arc<Progress>),
    /// Nothing.
    Empty,
}

/// Counts the pieces of a body that have gone to the origin.
#[derive(Debug, Default)]
pub struct Progress(AtomicU64);

impl Progress {
    /// Pieces so far.
    pub(super) fn pieces(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl RequestBody {
    /// The body, counted from now on.
    pub(super) fn counted(self, progress: &Arc<Progress>) -> RequestBody {
        match self {
            RequestBody::Client(incoming) | RequestBody::Sent(incoming, _) => {
                RequestBody::Sent(incoming, Arc::clone(progress))
            }
            RequestBody::Empty => RequestBody::Empty,
        }
    }
}

impl http_body::Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.get_mut() {
            RequestBody::Client(incoming) => Pin::new(incoming).poll_frame(context),
            RequestBody::Sent(incoming, progress) => {
                let frame = ready!(Pin::new(incoming).poll_frame(context));
                progress.0.fetch_add(1, Ordering::Relaxed);
                Poll::Ready(frame)
            }
            RequestBody::Empty => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            RequestBody::Client(incoming) | RequestBody::Sent(incoming, _) => incoming.is_end_stream(),
            RequestBody::Empty => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            RequestBody::Client(incoming) | RequestBody::Sent(incoming, _) => incoming.size_hint(),
            RequestBody::Empty => SizeHint::with_exact(0),
        }
    }
}

/// The body of an answer. When it has been read to its end, its connection goes back to the pool; when it is dropped before, or
/// nothing more comes for too long, the connection is closed.
#[derive(Debug)]
pub struct Body {
    incoming: Incoming,
    connection: Option<(Arc<Pool>, Origin, Sender)>,
    silence: Silence,
    /// Whether the answer has no body, whatever comes: that to HEAD.
    is_head: bool,
}

impl Body {
    pub(super) fn new(
        incoming: Incoming,
        connection: (Arc<Pool>, Origin, Sender),
        longest_silence: Duration,
        is_head: bool,
    ) -> Body {
        let silence = Silence { longest: longest_silence, since: None, alarm: None };
        let mut body = Body { incoming, connection: Some(connection), silence, is_head };
        if http_body::Body::is_end_stream(&body) {
            body.give_back();
        }
        body
    }

    /// The empty body of an answer after which the connection speaks another protocol.
    pub(super) fn switched(incoming: Incoming) -> Body {
        let silence = Silence { longest: Duration::MAX, since: None, alarm: None };
        Body { incoming, connection: None, silence, is_head: true }
    }

    fn give_back(&mut self) {
        if let Some((pool, origin, sender)) = self.connection.take() {
            pool.keep(origin, sender);
        }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = self.get_mut();
        if this.is_head {
            return Poll::Ready(None);
        }
        match Pin::new(&mut this.incoming).poll_frame(context) {
            Poll::Pending => {
                ready!(this.silence.poll_too_long(context));
                this.connection = None;
                Poll::Ready(Some(Err(Error::Silent(this.silence.longest))))
            }
            Poll::Ready(frame) => {
                this.silence.since = None;
                match &frame {
                    Some(Err(_)) => this.connection = None,
                    None => this.give_back(),
                    Some(Ok(_)) if this.incoming.is_end_stream() => this.give_back(),
                    Some(Ok(_)) => {}
                }
                Poll::Ready(frame.map(|frame| frame.map_err(Error::from)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.is_head || self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

/// How long the next piece has been waited for; a client that does not take the last one is not the origin's silence. The alarm is set
/// once and asked anew when it rings, since setting one for each piece of a download would cost more than the piece.
struct Silence {
    longest: Duration,
    since: Option<Instant>,
    alarm: Option<BoxFuture<'static, ()>>,
}

impl Silence {
    fn poll_too_long(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let until = *self.since.get_or_insert_with(clock::now) + self.longest;
        loop {
            ready!(self.alarm.get_or_insert_with(|| clock::sleep_until(until).boxed()).poll_unpin(context));
            self.alarm = None;
            if clock::now() >= until {
                return Poll::Ready(());
            }
        }
    }
}

impl fmt::Debug for Silence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Silence").field("longest", &self.longest).finish_non_exhaustive()
    }
}
