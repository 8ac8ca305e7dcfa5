//! The body of what a client gets: the origin's, passed on as it comes, or the proxy's own.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::Full;

use super::error::reason_of;
use super::http1::Switch;
use crate::audit::Record;
use crate::upstream;

/// A body on its way to the client. A forwarded one carries the request's record, which is written when it has gone.
pub enum Body {
    /// The origin's.
    Forwarded {
        /// What comes from the origin.
        body: upstream::Body,
        /// The record of the request.
        record: Record,
    },
    /// The proxy's.
    Own(Full<Bytes>),
    /// None: behind the head the connection carries something else.
    Switched(Option<Switch>),
}

impl Body {
    /// A body of the proxy's own.
    pub fn own(text: String) -> Body {
        Body::Own(Full::from(text))
    }

    /// What goes on with the client's stream, where that is no HTTP any more.
    pub(super) fn take_switch(&mut self) -> Option<Switch> {
        if let Body::Switched(switch) = self { switch.take() } else { None }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Body::Forwarded { .. } => "Forwarded",
            Body::Own(_) => "Own",
            Body::Switched(_) => "Switched",
        };
        f.debug_struct(kind).finish_non_exhaustive()
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = upstream::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, upstream::Error>>> {
        match self.get_mut() {
            Body::Own(full) => Pin::new(full).poll_frame(context).map_err(|never| match never {}),
            Body::Switched(_) => Poll::Ready(None),
            Body::Forwarded { body, record } => {
                let polled = Pin::new(body).poll_frame(context);
                match &polled {
                    Poll::Ready(Some(Ok(frame))) => record.sent(frame.data_ref().map_or(0, |data| data.len() as u64)),
                    Poll::Ready(Some(Err(error))) => {
                        record.failed(reason_of(error), Some(format!("the answer was cut short: {error}")));
                    }
                    _ => {}
                }
                polled
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Body::Own(full) => full.is_end_stream(),
            Body::Switched(_) => true,
            Body::Forwarded { body, .. } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Own(full) => full.size_hint(),
            Body::Switched(_) => SizeHint::with_exact(0),
            Body::Forwarded { body, .. } => body.size_hint(),
        }
    }
}
