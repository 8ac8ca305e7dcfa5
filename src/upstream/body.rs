//! Bodies on their way: of requests towards an origin, and of its answers.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;

use super::pool::{Pool, Sender};
use crate::policy::target::Origin;

/// The body of a request.
#[derive(Debug)]
pub enum RequestBody {
    /// What the client sends.
    Client(Incoming),
    /// Nothing.
    Empty,
}

impl http_body::Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.get_mut() {
            RequestBody::Client(incoming) => Pin::new(incoming).poll_frame(context),
            RequestBody::Empty => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            RequestBody::Client(incoming) => incoming.is_end_stream(),
            RequestBody::Empty => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            RequestBody::Client(incoming) => incoming.size_hint(),
            RequestBody::Empty => SizeHint::with_exact(0),
        }
    }
}

/// The body of an answer. When it has been read to its end, its connection goes back to the pool; when it is dropped before,
/// the connection is closed.
#[derive(Debug)]
pub struct Body {
    incoming: Incoming,
    connection: Option<(Arc<Pool>, Origin, Sender)>,
}

impl Body {
    pub(super) fn new(incoming: Incoming, pool: Arc<Pool>, origin: Origin, sender: Sender) -> Body {
        let mut body = Body { incoming, connection: Some((pool, origin, sender)) };
        if http_body::Body::is_end_stream(&body.incoming) {
            body.give_back();
        }
        body
    }

    /// The empty body of an answer after which the connection speaks another protocol.
    pub(super) fn switched(incoming: Incoming) -> Body {
        Body { incoming, connection: None }
    }

    fn give_back(&mut self) {
        if let Some((pool, origin, sender)) = self.connection.take() {
            pool.keep(origin, sender);
        }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.incoming).poll_frame(context);
        match &polled {
            Poll::Ready(Some(Err(_))) => this.connection = None,
            Poll::Ready(None) => this.give_back(),
            Poll::Ready(Some(Ok(_))) if this.incoming.is_end_stream() => this.give_back(),
            _ => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}
