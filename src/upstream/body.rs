//! The body of an answer, on its way from the origin.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite};

use super::Error;
use super::http1;
use super::pool::Pool;
use super::upload::Progress;
use crate::http1::Silence;
use crate::policy::target::Origin;

/// The body of an answer. When it has been read to its end, its connection goes back to the pool; when it is dropped before, or
/// nothing more comes for too long, the connection is closed.
#[derive(Debug)]
pub struct Body {
    incoming: Incoming,
    silence: Silence,
    /// How far the request is, which an answer need not wait for.
    upload: Progress,
    /// Whether the answer has no body, whatever comes: that to HEAD.
    is_head: bool,
}

/// Where it comes from.
#[derive(Debug)]
enum Incoming {
    /// A connection of its own, which goes back to this pool.
    Http1(http1::Incoming, Arc<Pool>, Origin),
    /// One that is shared.
    Http2(hyper::body::Incoming),
    /// Nowhere any more.
    Over,
}

impl Body {
    pub(super) fn of_http1(
        incoming: http1::Incoming,
        (pool, origin): (Arc<Pool>, Origin),
        longest_silence: Duration,
        upload: Progress,
    ) -> Body {
        let incoming = Incoming::Http1(incoming, pool, origin);
        let mut body = Body { incoming, silence: Silence::of(longest_silence), upload, is_head: false };
        if http_body::Body::is_end_stream(&body) {
            body.give_back();
        }
        body
    }

    pub(super) fn of_http2(
        incoming: hyper::body::Incoming,
        longest_silence: Duration,
        upload: Progress,
        is_head: bool,
    ) -> Body {
        Body { incoming: Incoming::Http2(incoming), silence: Silence::of(longest_silence), upload, is_head }
    }

    /// The connection, where it was switched to another protocol.
    pub fn into_switched(self) -> Option<impl AsyncRead + AsyncWrite + Send + 'static> {
        match self.incoming {
            Incoming::Http1(http1::Incoming::Switched(stream), ..) => Some(stream),
            _ => None,
        }
    }

    fn give_back(&mut self) {
        match std::mem::replace(&mut self.incoming, Incoming::Over) {
            Incoming::Http1(switched @ http1::Incoming::Switched(_), pool, origin) => {
                self.incoming = Incoming::Http1(switched, pool, origin);
            }
            Incoming::Http1(incoming, pool, origin) => {
                if let Some(connection) = incoming.into_connection() {
                    pool.keep(origin, connection);
                }
            }
            Incoming::Http2(_) | Incoming::Over => {}
        }
    }
}

impl Incoming {
    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        match self {
            Incoming::Http1(incoming, ..) => incoming.poll_frame(context),
            Incoming::Http2(incoming) => Pin::new(incoming).poll_frame(context).map_err(Error::from),
            Incoming::Over => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Incoming::Http1(incoming, ..) => incoming.is_end_stream(),
            Incoming::Http2(incoming) => incoming.is_end_stream(),
            Incoming::Over => true,
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
        match this.incoming.poll_frame(context) {
            Poll::Pending => {
                ready!(this.silence.poll_too_long(context));
                this.incoming = Incoming::Over;
                Poll::Ready(Some(Err(Error::Silent(this.silence.longest()))))
            }
            Poll::Ready(frame) => {
                this.silence.is_broken();
                match &frame {
                    Some(Err(_)) => this.incoming = Incoming::Over,
                    Some(Ok(_)) if !this.incoming.is_end_stream() => {}
                    Some(Ok(_)) | None => this.give_back(),
                }
                let failed = |error| this.upload.fault().map_or(error, Error::Upload);
                Poll::Ready(frame.map(|frame| frame.map_err(failed)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.is_head || self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match &self.incoming {
            Incoming::Http1(incoming, ..) => incoming.size_hint(),
            Incoming::Http2(incoming) => incoming.size_hint(),
            Incoming::Over => SizeHint::with_exact(0),
        }
    }
}
