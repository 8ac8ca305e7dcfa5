//! The body of a request, on its way from the client to the origin.
//!
//! A client that stops in the middle would hold its connection, its place among `limits.connections` and the origin for ever. So the
//! time is taken while the origin waits for the client, and only then: an origin that takes nothing is not the client's fault, nor is
//! the client's silence the origin's. How far the body is, and whose fault its end was, is seen by whoever waits for the answer.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;

use crate::http1::Silence;
use crate::http1::pipe::Taker;

/// The body of a request.
#[derive(Debug)]
pub enum RequestBody {
    /// What the client sends.
    Client(Upload),
    /// Nothing.
    Empty,
}

/// What a client sends, as it comes.
#[derive(Debug)]
pub struct Upload {
    incoming: From,
    silence: Silence,
    progress: Progress,
}

/// Where it comes from.
#[derive(Debug)]
enum From {
    Http1(Taker<Fault>),
    Http2(Incoming),
}

impl From {
    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Fault>>> {
        match self {
            From::Http1(taker) => Pin::new(taker).poll_frame(context),
            From::Http2(incoming) => Pin::new(incoming).poll_frame(context).map_err(|error| Fault::of(&error)),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            From::Http1(taker) => taker.is_end_stream(),
            From::Http2(incoming) => incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            From::Http1(taker) => taker.size_hint(),
            From::Http2(incoming) => incoming.size_hint(),
        }
    }
}

/// What a client did to its own request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It sent nothing more for so long.
    #[error("the client sent nothing more of the request's body for {} s", .0.as_secs_f32())]
    Stalled(Duration),
    /// It sent what is no body.
    #[error("the body of the request cannot be read: {0}")]
    Unreadable(String),
    /// It went away.
    #[error("the client went away before it had sent the whole body")]
    Gone,
}

/// How far a body is, where there is one.
#[derive(Clone, Debug)]
pub(super) struct Progress(Option<Arc<Mutex<Far>>>);

#[derive(Debug, Default)]
struct Far {
    pieces: u64,
    stage: Stage,
}

#[derive(Debug, Default)]
enum Stage {
    /// The origin is to take what has come.
    #[default]
    Sent,
    /// The client is to send the next piece.
    Awaited,
    /// All has gone.
    Over,
    /// It has ended too early.
    Failed(Fault),
}

impl Progress {
    /// Pieces so far.
    pub(super) fn pieces(&self) -> u64 {
        self.lock().map_or(0, |far| far.pieces)
    }

    /// Whether it is the client that is waited for.
    pub(super) fn is_awaited(&self) -> bool {
        self.lock().is_some_and(|far| matches!(far.stage, Stage::Awaited))
    }

    /// Why it has ended too early, if it has.
    pub(super) fn fault(&self) -> Option<Fault> {
        match &self.lock()?.stage {
            Stage::Failed(fault) => Some(fault.clone()),
            _ => None,
        }
    }

    /// It has come to a stage, perhaps by a further piece.
    fn is_at(&self, stage: Stage, further: u64) {
        if let Some(mut far) = self.lock() {
            far.pieces += further;
            far.stage = stage;
        }
    }

    fn lock(&self) -> Option<MutexGuard<'_, Far>> {
        Some(self.0.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl RequestBody {
    /// The body of a request in HTTP/1.1, each piece of which may be waited for as long as `patience`.
    pub(crate) fn of_http1(taker: Taker<Fault>, patience: Duration) -> RequestBody {
        RequestBody::of(From::Http1(taker), patience)
    }

    /// The same of one in HTTP/2.
    pub fn of_http2(incoming: Incoming, patience: Duration) -> RequestBody {
        RequestBody::of(From::Http2(incoming), patience)
    }

    fn of(incoming: From, patience: Duration) -> RequestBody {
        match incoming.is_end_stream() {
            true => RequestBody::Empty,
            false => {
                let progress = Progress(Some(Arc::default()));
                RequestBody::Client(Upload { incoming, silence: Silence::of(patience), progress })
            }
        }
    }

    pub(super) fn progress(&self) -> Progress {
        match self {
            RequestBody::Client(upload) => upload.progress.clone(),
            RequestBody::Empty => Progress(None),
        }
    }
}

impl Upload {
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Fault>>> {
        let Poll::Ready(frame) = self.incoming.poll_frame(context) else {
            self.progress.is_at(Stage::Awaited, 0);
            ready!(self.silence.poll_too_long(context));
            return Poll::Ready(Some(Err(Fault::Stalled(self.silence.longest()))));
        };
        self.silence.is_broken();
        Poll::Ready(frame)
    }
}

impl Fault {
    fn of(error: &hyper::Error) -> Fault {
        let cause = std::error::Error::source(error).and_then(|source| source.downcast_ref::<io::Error>());
        match cause {
            Some(cause) if matches!(cause.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData) => {
                Fault::Unreadable(cause.to_string())
            }
            _ => Fault::Gone,
        }
    }
}

impl http_body::Body for RequestBody {
    type Data = Bytes;
    type Error = Fault;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Fault>>> {
        let RequestBody::Client(upload) = self.get_mut() else { return Poll::Ready(None) };
        let piece = ready!(upload.poll_piece(context));
        let stage = match &piece {
            Some(Err(fault)) => Stage::Failed(fault.clone()),
            Some(Ok(_)) if !upload.incoming.is_end_stream() => Stage::Sent,
            Some(Ok(_)) | None => Stage::Over,
        };
        upload.progress.is_at(stage, 1);
        Poll::Ready(piece)
    }

    fn is_end_stream(&self) -> bool {
        match self {
            RequestBody::Client(upload) => upload.incoming.is_end_stream(),
            RequestBody::Empty => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            RequestBody::Client(upload) => upload.incoming.size_hint(),
            RequestBody::Empty => SizeHint::with_exact(0),
        }
    }
}
