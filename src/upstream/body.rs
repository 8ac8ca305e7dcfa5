//! The body of an answer, on its way from the origin.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;

use super::Error;
use super::pool::{Pool, Sender};
use super::upload::{Progress, Silence};
use crate::policy::target::Origin;

/// The body of an answer. When it has been read to its end, its connection goes back to the pool; when it is dropped before, or
/// nothing more comes for too long, the connection is closed.
#[derive(Debug)]
pub struct Body {
    incoming: Incoming,
    connection: Option<(Arc<Pool>, Origin, Sender)>,
    silence: Silence,
    /// How far the request is, which an answer need not wait for.
    upload: Arc<Progress>,
    /// Whether the answer has no body, whatever comes: that to HEAD.
    is_head: bool,
}

impl Body {
    pub(super) fn new(
        incoming: Incoming,
        connection: (Arc<Pool>, Origin, Sender),
        longest_silence: Duration,
        upload: Arc<Progress>,
        is_head: bool,
    ) -> Body {
        let silence = Silence::of(longest_silence);
        let mut body = Body { incoming, connection: Some(connection), silence, upload, is_head };
        if http_body::Body::is_end_stream(&body) {
            body.give_back();
        }
        body
    }

    /// The empty body of an answer after which the connection speaks another protocol.
    pub(super) fn switched(incoming: Incoming) -> Body {
        Body { incoming, connection: None, silence: Silence::of(Duration::MAX), upload: Arc::default(), is_head: true }
    }

    /// A connection on which the client's upload still goes on is of no use to anybody else.
    fn give_back(&mut self) {
        if let Some((pool, origin, sender)) = self.connection.take()
            && (self.upload.is_over() || sender.is_http2())
        {
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
                Poll::Ready(Some(Err(Error::Silent(this.silence.longest()))))
            }
            Poll::Ready(frame) => {
                this.silence.is_broken();
                match &frame {
                    Some(Err(_)) => this.connection = None,
                    None => this.give_back(),
                    Some(Ok(_)) if this.incoming.is_end_stream() => this.give_back(),
                    Some(Ok(_)) => {}
                }
                let failed = |error| this.upload.fault().map_or_else(|| Error::from(error), Error::Upload);
                Poll::Ready(frame.map(|frame| frame.map_err(failed)))
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
