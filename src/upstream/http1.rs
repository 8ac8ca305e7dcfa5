//! HTTP/1.1 with an origin, one request at a time on a connection.
//!
//! Whoever waits for the answer drives the connection: there is no task behind it. Head and body go out as the connection takes them,
//! and the head of the answer is looked for all the while, since an origin may answer before it has the whole body. Where it does, a
//! task goes on with both, so that a client which reads nothing before it has sent everything is no deadlock.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body::{Body as _, Frame, SizeHint};

use super::Error;
use super::dial::Stream;
use super::headers::Form;
use super::upload::RequestBody;
use crate::http1::body::{Decoder, Piece};
use crate::http1::framing::{self, Length};
use crate::http1::head::{self, Head, Lines};
use crate::http1::pipe::{self, Taker};
use crate::http1::{Ahead, Encoder, Malformed, Outgoing, Silence};

/// A connection with one request at a time.
pub(super) struct Http1 {
    stream: Ahead<Stream>,
    silence: Silence,
    /// How requests on it name their target.
    pub(super) form: Form,
    /// Whether the origin was offered HTTP/2, too, and this is all it speaks.
    pub(super) is_all: bool,
}

/// Octets of an answer's head; some sites send cookies by the dozen.
const HEAD_MAX: usize = 400 * 1024;

/// Octets of a body to read at once: four TLS records.
const BODY_READ: u64 = 64 * 1024;

impl fmt::Debug for Http1 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http1").field("form", &self.form).field("is_all", &self.is_all).finish_non_exhaustive()
    }
}

impl Http1 {
    pub(super) fn new(stream: Stream, form: Form, longest_silence: Duration) -> Box<Http1> {
        let (stream, silence) = (Ahead::new(stream), Silence::of(longest_silence));
        Box::new(Http1 { stream, silence, form, is_all: false })
    }

    /// Whether it cannot be used any more: an origin has nothing to say that was not asked. Asks no one to wait.
    pub(super) fn is_closed(&mut self) -> bool {
        self.stream.poll_look(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    /// Sends a request, whose body is taken out of it, and returns when the head of the answer has come.
    ///
    /// # Errors
    /// [`Error::Closed`] where the connection ended without a word, the client's own fault, or what the origin did wrong.
    pub(super) async fn exchange(
        mut self: Box<Self>,
        request: &mut Request<RequestBody>,
    ) -> Result<Response<Incoming>, Error> {
        let mut sending = Sending::of(request);
        self.silence.is_broken();
        let head = poll_fn(|context| {
            let sent = sending.poll(context, &mut self.stream)?;
            if std::mem::take(&mut sending.has_moved) || sending.awaits_client() {
                self.silence.is_broken();
            }
            match self.poll_head(context, &mut sending.lines) {
                Poll::Ready(head) => Poll::Ready(head.map(|head| (head, sent.is_ready()))),
                Poll::Pending => {
                    ready!(self.silence.poll_too_long(context));
                    Poll::Ready(Err(Error::Silent(self.silence.longest())))
                }
            }
        });
        let (head, is_sent) = head.await?;
        self.answer(request.method(), head, if is_sent { None } else { Some(sending) })
    }

    /// The head of the final answer. Interim ones are about the connection with us; who waits for them has not asked us to wait.
    fn poll_head(&mut self, context: &mut Context<'_>, lines: &mut Lines) -> Poll<Result<Head<Response<()>>, Error>> {
        loop {
            while lines.are_new_in(self.stream.seen())
                && let Some(head) = self.stream.take_by(head::read_response)?
            {
                let status = head.message.status();
                if !status.is_informational() || status == StatusCode::SWITCHING_PROTOCOLS {
                    return Poll::Ready(Ok(head));
                }
                *lines = Lines::default();
            }
            if self.stream.seen().len() > HEAD_MAX {
                return Poll::Ready(Err(Malformed::TooLarge.into()));
            }
            if !ready!(self.stream.poll_look(context))? {
                return Poll::Ready(Err(Malformed::Ended.into()));
            }
        }
    }

    fn answer(
        self: Box<Self>,
        asked: &Method,
        Head { message: mut head, has }: Head<Response<()>>,
        unsent: Option<Sending>,
    ) -> Result<Response<Incoming>, Error> {
        if head.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Ok(head.map(|()| Incoming::Switched(self.stream)));
        }
        let (version, status, headers) = (head.version(), head.status(), head.headers_mut());
        let length = framing::of_response(asked, status, version, headers)?;
        // RFC 9112 §6.3: what comes behind one with two ends could be read in two ways.
        let has_two_ends = has.codings > 0 && has.lengths > 0;
        if has_two_ends {
            headers.remove(header::CONTENT_LENGTH);
        } else if has.lengths > 1 {
            framing::say_once(headers);
        }
        let keeps = !has.says_last(version, headers) && length != Length::ToEnd && !has_two_ends;
        let receiving = Receiving { connection: self, decoder: Decoder::new(length), keeps };
        Ok(match unsent {
            None => head.map(|()| Incoming::Answer(receiving)),
            Some(sending) => head.map(|()| Incoming::Driven(drive(receiving, sending))),
        })
    }
}

/// A request on its way.
struct Sending {
    out: Outgoing,
    /// Gone when all of it has been taken.
    body: Option<RequestBody>,
    encoder: Option<Encoder>,
    /// Something has gone, or come from the client.
    has_moved: bool,
    lines: Lines,
}

impl Sending {
    fn of(request: &mut Request<RequestBody>) -> Sending {
        let body = std::mem::replace(request.body_mut(), RequestBody::Empty);
        let length = end_of(request, &body);
        let mut out = Outgoing::default();
        out.write(|to| head::write_request(to, request));
        let encoder = Encoder::new(length, request.headers());
        let body = Some(body).filter(|_| !encoder.is_over());
        Sending { out, encoder: Some(encoder), body, has_moved: false, lines: Lines::default() }
    }

    /// Whether it is the client that has to go on.
    fn awaits_client(&self) -> bool {
        self.body.is_some() && self.out.is_empty()
    }

    /// Sends what there is, and what comes from the client; ready when all has gone.
    fn poll(&mut self, context: &mut Context<'_>, stream: &mut Ahead<Stream>) -> Poll<Result<(), Error>> {
        loop {
            self.take(context)?;
            if self.out.is_empty() {
                return if self.body.is_none() { Poll::Ready(Ok(())) } else { Poll::Pending };
            }
            ready!(self.out.poll_send(context, stream))?;
            self.has_moved = true;
        }
    }

    /// Takes of the body what has come, until much waits to be sent.
    fn take(&mut self, context: &mut Context<'_>) -> Result<(), Error> {
        while let Some(body) = &mut self.body
            && !self.out.is_full()
        {
            match Pin::new(&mut *body).poll_frame(context) {
                Poll::Pending => return Ok(()),
                Poll::Ready(Some(frame)) => {
                    self.has_moved = true;
                    // Trailers are not passed on (RFC 9110 §6.5.1).
                    if let (Ok(data), Some(encoder)) = (frame.map_err(Error::Upload)?.into_data(), &mut self.encoder) {
                        encoder.data(data, &mut self.out)?;
                    }
                    if body.is_end_stream() {
                        self.body = None;
                    }
                }
                Poll::Ready(None) => self.body = None,
            }
        }
        if self.body.is_none()
            && let Some(encoder) = self.encoder.take()
        {
            encoder.end(None, &mut self.out)?;
        }
        Ok(())
    }
}

/// Where the body of a request will end, which its header then tells.
fn end_of(request: &mut Request<RequestBody>, body: &RequestBody) -> Length {
    if body.is_end_stream() {
        return Length::NONE;
    }
    let told = framing::content_length(request.headers());
    match told.flatten().or_else(|| body.size_hint().exact()) {
        Some(length) => {
            if told != Some(Some(length)) {
                request.headers_mut().insert(header::CONTENT_LENGTH, length.into());
            }
            Length::Exactly(length)
        }
        None => {
            request.headers_mut().remove(header::CONTENT_LENGTH);
            request.headers_mut().insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
            Length::Chunked
        }
    }
}

/// The body of an answer.
#[derive(Debug)]
pub(super) enum Incoming {
    /// Read by whoever polls it.
    Answer(Receiving),
    /// Read by a task, since the request's body goes on.
    Driven(Taker<Error>),
    /// None: the connection carries something else behind the head.
    Switched(Ahead<Stream>),
}

/// The body of an answer, and the connection that it comes from.
#[derive(Debug)]
pub(super) struct Receiving {
    connection: Box<Http1>,
    decoder: Decoder,
    /// Whether another request may follow.
    keeps: bool,
}

impl Incoming {
    /// The connection, if all of the answer was read and another request may follow.
    pub(super) fn into_connection(self) -> Option<Box<Http1>> {
        let Incoming::Answer(Receiving { mut connection, decoder, keeps }) = self else { return None };
        let is_free = keeps && decoder.is_over() && connection.stream.seen().is_empty();
        connection.stream.rest();
        is_free.then_some(connection)
    }

    pub(super) fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        match self {
            Incoming::Answer(receiving) => receiving.poll_frame(context),
            Incoming::Driven(taker) => Pin::new(taker).poll_frame(context),
            Incoming::Switched(_) => Poll::Ready(None),
        }
    }

    pub(super) fn is_end_stream(&self) -> bool {
        match self {
            Incoming::Answer(receiving) => receiving.decoder.is_over(),
            Incoming::Driven(taker) => taker.is_end_stream(),
            Incoming::Switched(_) => true,
        }
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        match self {
            Incoming::Answer(receiving) => receiving.size_left().map_or_else(SizeHint::default, SizeHint::with_exact),
            Incoming::Driven(taker) => taker.size_hint(),
            Incoming::Switched(_) => SizeHint::with_exact(0),
        }
    }
}

impl Receiving {
    fn size_left(&self) -> Option<u64> {
        if let Decoder::Exactly(left) = self.decoder { Some(left) } else { None }
    }

    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let Receiving { connection, decoder, .. } = self;
        loop {
            match connection.stream.take_by(|octets| decoder.next(octets)) {
                Ok(Piece::Data(data)) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                Ok(Piece::Trailers(trailers)) => return Poll::Ready(Some(Ok(Frame::trailers(trailers)))),
                Ok(Piece::End) => return Poll::Ready(None),
                Ok(Piece::Wanting) => {
                    let most = if let Decoder::Exactly(left) = decoder { BODY_READ.min(*left) } else { BODY_READ };
                    if !ready!(connection.stream.poll_more(context, most as usize))? {
                        return Poll::Ready(decoder.at_end_of_stream().err().map(|error| Err(error.into())));
                    }
                }
                Err(malformed) => return Poll::Ready(Some(Err(malformed.into()))),
            }
        }
    }
}

/// Goes on with the request and its answer in a task, as long as the answer is wanted.
fn drive(mut receiving: Receiving, sending: Sending) -> Taker<Error> {
    let (giver, taker) = pipe::pipe(receiving.size_left(), Error::from(Malformed::Ended));
    let (mut sending, mut fault) = (Some(sending), None);
    tokio::spawn(async move {
        loop {
            let next = poll_fn(|context| {
                let wanted = giver.poll_wanted(context);
                if wanted == Poll::Ready(false) {
                    return Poll::Ready(None);
                }
                if let Some(unsent) = &mut sending
                    && let Poll::Ready(sent) = unsent.poll(context, &mut receiving.connection.stream)
                {
                    // An origin that has answered may take no more of the request, but the client has to go on with it.
                    fault = sent.err().filter(|error| matches!(error, Error::Upload(_)));
                    sending = None;
                }
                ready!(wanted);
                match fault.take() {
                    Some(fault) => Poll::Ready(Some(Err(fault))),
                    None => receiving.poll_frame(context),
                }
            });
            match next.await {
                Some(piece) => giver.give(piece, receiving.decoder.is_over()),
                None => return giver.end(),
            }
        }
    });
    taker
}
