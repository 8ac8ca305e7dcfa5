//! HTTP/1.1 with one client, request after request.
//!
//! A connection is one task, and what it does stands here in order: read a head, have it answered, send the answer. While the answer is
//! made the request's body is read as far as the origin wants it, and the client is watched: when it hangs up the answer is dropped,
//! and with it the place in the line. A client that asks nothing for a moment holds nothing but its socket; most connections do nothing
//! most of the time, and a browser has six to each host.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version, header};
use http_body::{Body as _, Frame};
use tokio::io::AsyncWriteExt;
use tokio_util::sync::WaitForCancellationFuture;

use super::body::Body;
use super::listener::Proxy;
use super::pipeline::Client;
use super::tls::Failure;
use super::unreadable;
use crate::clock;
use crate::http1::body::{Decoder, Piece};
use crate::http1::framing::{self, Length};
use crate::http1::head::{self, Has, Head, Lines};
use crate::http1::pipe::{self, Giver};
use crate::http1::{Ahead, Encoder, Malformed, Outgoing, Silence, Stream};
use crate::policy::reason::Reason;
use crate::upstream::{Fault, RequestBody};

/// What goes on with a client's stream, where that is not HTTP any more: a tunnel, or a WebSocket.
pub struct Switch(Box<dyn FnOnce(Ahead<Stream>) -> BoxFuture<'static, ()> + Send>);

impl Switch {
    pub(super) fn to(goes_on: impl FnOnce(Ahead<Stream>) -> BoxFuture<'static, ()> + Send + 'static) -> Switch {
        Switch(Box::new(goes_on))
    }

    /// Goes on with a stream until it ends.
    pub(super) async fn follow(self, stream: Ahead<Stream>) {
        (self.0)(stream).await;
    }
}

/// What a client may send ahead while its request is answered: the next ones. Nothing more is read then, and its hanging up not seen.
const AHEAD_MAX: usize = 16 * 1024;

/// Octets of a body to read at once.
const BODY_READ: usize = 16 * 1024;

/// What is read of a body that nobody wanted, so that the connection can go on; and for how long. Chosen: less than a new connection
/// costs.
const UNWANTED_MAX: usize = 64 * 1024;
const UNWANTED_FOR: Duration = Duration::from_secs(1);

/// A client that asks nothing for so long is between two pages, or done. Chosen: long enough for what a page loads.
const BUSY: Duration = Duration::from_secs(1);

/// What comes instead of a request.
enum NoRequest {
    /// Something else.
    Malformed(Malformed),
    /// Nothing for as long as was waited, or the proxy stops.
    Nothing,
    /// The end of the connection.
    End,
}

/// What comes when a request was answered.
enum After {
    /// The next one.
    Next,
    /// What is no request.
    Malformed(Malformed),
    /// Nothing; the client hears so.
    Last,
    /// Nothing, and the client is still sending.
    LastUnread,
    /// Nothing, since the answer was cut off or the client is gone.
    CutOff,
    /// Another protocol.
    Switch(Switch),
}

impl Proxy {
    /// Serves HTTP/1.1 on a stream until it ends or the proxy stops.
    pub(super) async fn serve_http1(
        self: &Arc<Self>,
        mut stream: Ahead<Stream>,
        client: Arc<Client>,
    ) -> Result<(), Failure> {
        let mut patience = Silence::of(self.pipeline.limits.settings().header_timeout);
        let stopped = self.pipeline.stopping.cancelled();
        tokio::pin!(stopped);
        loop {
            let most = patience.longest();
            let head = match self.next(&mut stream, &mut patience, most, stopped.as_mut()).await? {
                Ok(head) => head,
                Err(NoRequest::Malformed(malformed)) => return self.turn_away(stream, &client, malformed).await,
                Err(NoRequest::Nothing) if !stream.seen().is_empty() => {
                    return Err("the head of a request took too long".into());
                }
                Err(NoRequest::Nothing | NoRequest::End) => return Ok(stream.shutdown().await?),
            };
            // In a box, so that it takes no room while the connection is idle; one for all that comes at once, since it is large.
            match Box::pin(self.exchanges(&mut stream, &client, head, &mut patience, stopped.as_mut())).await? {
                After::Next => {}
                After::Malformed(malformed) => return self.turn_away(stream, &client, malformed).await,
                After::Last => return Ok(stream.shutdown().await?),
                After::LastUnread => {
                    unreadable::close(stream).await;
                    return Ok(());
                }
                // TLS would say good-bye, as if all had been sent; and to a client that is gone, which answers with a reset.
                After::CutOff => return Ok(()),
                After::Switch(switch) => {
                    switch.follow(stream).await;
                    return Ok(());
                }
            }
        }
    }

    /// Waits for the head of the next request, for so long at most.
    async fn next(
        &self,
        stream: &mut Ahead<Stream>,
        patience: &mut Silence,
        most: Duration,
        mut stopped: Pin<&mut WaitForCancellationFuture<'_>>,
    ) -> Result<Result<Head<Request<()>>, NoRequest>, Failure> {
        let mut lines = Lines::default();
        loop {
            if lines.are_new_in(stream.seen())
                && let Some(read) = self.read_head(stream).transpose()
            {
                return Ok(read.map_err(NoRequest::Malformed));
            }
            let came = poll_fn(|context| {
                if let Poll::Ready(came) = stream.poll_look(context) {
                    return Poll::Ready(came.map(Some));
                }
                match stopped.as_mut().poll(context) {
                    Poll::Ready(()) => Poll::Ready(Ok(None)),
                    Poll::Pending => patience.poll_longer_than(most, context).map(|()| Ok(None)),
                }
            });
            match came.await? {
                Some(true) => {}
                Some(false) => return Ok(Err(NoRequest::End)),
                None => return Ok(Err(NoRequest::Nothing)),
            }
        }
    }

    /// A request and its answer, and those that follow as long as the client is busy.
    async fn exchanges(
        self: &Arc<Self>,
        stream: &mut Ahead<Stream>,
        client: &Arc<Client>,
        first: Head<Request<()>>,
        patience: &mut Silence,
        mut stopped: Pin<&mut WaitForCancellationFuture<'_>>,
    ) -> Result<After, Failure> {
        let mut asked = self.received(first);
        loop {
            match self.exchange(stream, client, asked).await? {
                After::Next => patience.is_broken(),
                after => return Ok(after),
            }
            let most = BUSY.min(patience.longest());
            asked = match self.next(stream, patience, most, stopped.as_mut()).await? {
                Ok(head) => self.received(head),
                Err(NoRequest::Malformed(malformed)) => return Ok(After::Malformed(malformed)),
                Err(NoRequest::Nothing | NoRequest::End) => return Ok(After::Next),
            };
        }
    }

    fn read_head(&self, stream: &mut Ahead<Stream>) -> Result<Option<Head<Request<()>>>, Malformed> {
        let before = stream.seen().len();
        let read = stream.take_by(head::read_request)?;
        let length = if read.is_some() { before - stream.seen().len() } else { before };
        let is_too_large = length > self.pipeline.limits.settings().header_bytes;
        if is_too_large { Err(Malformed::TooLarge) } else { Ok(read) }
    }

    /// Answers what is no request.
    async fn turn_away(&self, mut stream: Ahead<Stream>, client: &Client, malformed: Malformed) -> Result<(), Failure> {
        let answer = match malformed {
            Malformed::TooLarge => unreadable::explanation(self, client, Reason::HeaderTooLarge, unreadable::TOO_LARGE),
            _ => unreadable::explanation(self, client, Reason::BadRequest, unreadable::NOT_HTTP),
        };
        stream.write_all(&answer).await?;
        unreadable::close(stream).await;
        Ok(())
    }

    /// One request and its answer.
    async fn exchange(
        self: &Arc<Self>,
        stream: &mut Ahead<Stream>,
        client: &Arc<Client>,
        Received { request, mut upload, says_last }: Received,
    ) -> Result<After, Failure> {
        let (method, version) = (request.method().clone(), request.version());
        let mut out = Outgoing::default();
        let Some(response) = self.response(stream, client, request, &mut upload, &mut out).await else {
            return Ok(After::CutOff);
        };
        let (head, mut body) = response.into_parts();
        let mut head = Response::from_parts(head, ());
        let is_last = says_last
            || head.headers().get(header::CONNECTION).is_some_and(|option| option == "close")
            || upload.as_ref().is_some_and(Upload::is_too_much)
            || self.pipeline.stopping.is_cancelled();
        let switch = body.take_switch();
        let length = match switch {
            Some(_) => end_of_switch(&mut head),
            None => end_of(&mut head, &method, version, &body),
        };
        let is_last = is_last || length == Length::ToEnd;
        match version {
            _ if switch.is_some() => {}
            Version::HTTP_10 if !is_last => set(&mut head, header::CONNECTION, "keep-alive"),
            _ if is_last => set(&mut head, header::CONNECTION, "close"),
            _ => {}
        }
        out.write_head(length, |to| head::write_response(to, version, &head));
        let encoder = Encoder::new(length, head.headers());
        drop(head);
        let sending = Sending::new(body, encoder);
        if !sending.send(stream, &mut upload, &mut out).await? {
            return Ok(After::CutOff);
        }
        match switch {
            Some(switch) => Ok(After::Switch(switch)),
            None if !rest_is_read(stream, upload).await => Ok(After::LastUnread),
            None if is_last => Ok(After::Last),
            None => Ok(After::Next),
        }
    }

    /// A request as it goes on.
    fn received(&self, Head { message: request, has }: Head<Request<()>>) -> Received {
        let says_last = has.says_last(request.version(), request.headers());
        let (request, upload) = self.with_body(request, has);
        // SECURITY: what comes behind a request with two ends could be read in two ways.
        let says_last = says_last || request.extensions().get::<Malformed>().is_some();
        Received { request, upload, says_last }
    }

    /// A request with the way for its body, where it has one. One that could be read in two ways has none, and will be refused.
    fn with_body(&self, mut request: Request<()>, has: Has) -> (Box<Request<RequestBody>>, Option<Upload>) {
        if has.lengths == 0 && has.codings == 0 {
            return (Box::new(request.map(|()| RequestBody::Empty)), None);
        }
        let (version, headers) = (request.version(), request.headers_mut());
        let length = framing::of_request(version, headers);
        if has.lengths > 1 {
            framing::say_once(headers);
        }
        let continues = has.expectations > 0
            && version == Version::HTTP_11
            && headers.get(header::EXPECT).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"));
        let (body, upload) = match length {
            Ok(Length::NONE) => (RequestBody::Empty, None),
            Ok(length) => {
                let exact = if let Length::Exactly(octets) = length { Some(octets) } else { None };
                let (giver, taker) = pipe::pipe(exact, Fault::Gone);
                let upload = Upload { decoder: Decoder::new(length), giver: Some(giver), owes_continue: continues };
                (RequestBody::of_http1(taker, self.pipeline.limits.settings().body_timeout), Some(upload))
            }
            Err(malformed) => {
                request.extensions_mut().insert(malformed);
                (RequestBody::Empty, None)
            }
        };
        (Box::new(request.map(|()| body)), upload)
    }

    /// Waits for the answer; `None` where the client is gone.
    async fn response(
        self: &Arc<Self>,
        stream: &mut Ahead<Stream>,
        client: &Arc<Client>,
        request: Box<Request<RequestBody>>,
        upload: &mut Option<Upload>,
        out: &mut Outgoing,
    ) -> Option<Response<Body>> {
        let answer = self.answer(client, request);
        tokio::pin!(answer);
        poll_fn(|context| {
            if let Poll::Ready(response) = answer.as_mut().poll(context) {
                return Poll::Ready(Some(response));
            }
            if let Some(upload) = upload {
                let came = upload.poll(context, stream, out);
                if !out.is_empty() && matches!(out.poll_send(context, stream), Poll::Ready(Err(_))) {
                    return Poll::Ready(None);
                }
                ready!(came);
            }
            hung_up(context, stream).map(|()| None)
        })
        .await
    }
}

/// Ready when the client has gone.
fn hung_up(context: &mut Context<'_>, stream: &mut Ahead<Stream>) -> Poll<()> {
    while stream.seen().len() < AHEAD_MAX {
        match ready!(stream.poll_look(context)) {
            Ok(true) => {}
            Ok(false) | Err(_) => return Poll::Ready(()),
        }
    }
    Poll::Pending
}

/// Where the answer that switches to another protocol ends: with its head (RFC 9110 §9.3.6 for CONNECT).
fn end_of_switch(head: &mut Response<()>) -> Length {
    head.headers_mut().remove(header::CONTENT_LENGTH);
    Length::NONE
}

/// Where the body of an answer will end, which its header then tells.
fn end_of(head: &mut Response<()>, method: &Method, version: Version, body: &Body) -> Length {
    let status = head.status();
    if !framing::has_body(method, status) {
        if status == StatusCode::NO_CONTENT || status.is_informational() {
            head.headers_mut().remove(header::CONTENT_LENGTH);
        }
        return Length::NONE;
    }
    let told = framing::content_length(head.headers());
    match told.flatten().or_else(|| body.size_hint().exact()) {
        Some(length) => {
            if told != Some(Some(length)) {
                head.headers_mut().insert(header::CONTENT_LENGTH, length.into());
            }
            Length::Exactly(length)
        }
        None if version == Version::HTTP_10 => Length::ToEnd,
        None => {
            head.headers_mut().remove(header::CONTENT_LENGTH);
            set(head, header::TRANSFER_ENCODING, "chunked");
            Length::Chunked
        }
    }
}

fn set(head: &mut Response<()>, name: header::HeaderName, value: &'static str) {
    head.headers_mut().insert(name, HeaderValue::from_static(value));
}

/// A request whose head has come.
struct Received {
    request: Box<Request<RequestBody>>,
    /// Where it has a body.
    upload: Option<Upload>,
    /// Whether no further request will come.
    says_last: bool,
}

/// The body of a request, on its way from the client to whoever answers it.
struct Upload {
    decoder: Decoder,
    /// Gone when there is nothing more to give.
    giver: Option<Giver<Fault>>,
    /// The client waits for a word before it sends the body (RFC 9110 §10.1.1).
    owes_continue: bool,
}

impl Upload {
    /// Whether what is left would not be read if nobody wanted it.
    fn is_too_much(&self) -> bool {
        self.owes_continue || matches!(self.decoder, Decoder::Exactly(left) if left > UNWANTED_MAX as u64)
    }

    /// Reads what is wanted of the body; ready when nothing more is.
    fn poll(&mut self, context: &mut Context<'_>, stream: &mut Ahead<Stream>, out: &mut Outgoing) -> Poll<()> {
        while let Some(giver) = &self.giver {
            if !ready!(giver.poll_wanted(context)) {
                self.giver = None;
                break;
            }
            if std::mem::take(&mut self.owes_continue) && stream.seen().is_empty() {
                out.write(|to| to.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n"));
                ready!(out.poll_send(context, stream)).unwrap_or_default();
            }
            match stream.take_by(|octets| self.decoder.next(octets)) {
                Ok(Piece::Data(data)) => giver.give(Ok(Frame::data(data)), self.decoder.is_over()),
                Ok(Piece::Trailers(trailers)) => giver.give(Ok(Frame::trailers(trailers)), true),
                Ok(Piece::End) => {
                    if let Some(giver) = self.giver.take() {
                        giver.end();
                    }
                }
                Ok(Piece::Wanting) => {
                    let came = ready!(stream.poll_more(context, BODY_READ));
                    if !came.unwrap_or(false) {
                        giver.give(Err(Fault::Gone), true);
                        self.giver = None;
                    }
                }
                Err(malformed) => {
                    giver.give(Err(Fault::Unreadable(malformed.to_string())), true);
                    self.giver = None;
                }
            }
            if self.decoder.is_over() {
                self.giver = None;
            }
        }
        Poll::Ready(())
    }
}

/// An answer on its way.
struct Sending {
    /// Gone when all of it has been taken; its record is written then.
    body: Option<Body>,
    /// Gone when the end has been added.
    encoder: Option<Encoder>,
    trailers: Option<HeaderMap>,
    /// It has failed, so that its end must not look like one.
    is_broken: bool,
}

/// How far the body of an answer has been taken.
enum Taken {
    /// There will be more.
    Some,
    /// All, and its end is added.
    All,
    /// What there is; it has failed.
    Broken,
}

impl Sending {
    fn new(body: Body, encoder: Encoder) -> Sending {
        let body = Some(body).filter(|_| !encoder.is_over());
        Sending { body, encoder: Some(encoder), trailers: None, is_broken: false }
    }

    /// Sends what is there of the answer, and what comes; false where it was cut off.
    async fn send(
        mut self,
        stream: &mut Ahead<Stream>,
        upload: &mut Option<Upload>,
        out: &mut Outgoing,
    ) -> Result<bool, Failure> {
        if let Some(upload) = upload.as_mut().filter(|upload| upload.owes_continue) {
            upload.giver = None;
        }
        let sending = poll_fn(|context| {
            if let Some(upload) = upload {
                let _ = upload.poll(context, stream, out);
            }
            loop {
                let taken = self.take(context, out);
                if !out.is_empty() {
                    ready!(out.poll_send(context, stream))?;
                    continue;
                }
                match taken {
                    Taken::All => return Poll::Ready(Ok(true)),
                    Taken::Broken => return Poll::Ready(Ok(false)),
                    Taken::Some if upload.as_ref().is_none_or(|upload| upload.giver.is_none()) => {
                        return hung_up(context, stream).map(|()| Ok(false));
                    }
                    Taken::Some => return Poll::Pending,
                }
            }
        });
        sending.await
    }

    /// Takes of the body what has come, until much waits to be sent.
    fn take(&mut self, context: &mut Context<'_>, out: &mut Outgoing) -> Taken {
        while let Some(body) = &mut self.body {
            if out.is_full() {
                return Taken::Some;
            }
            let frame = match Pin::new(&mut *body).poll_frame(context) {
                Poll::Pending => return Taken::Some,
                Poll::Ready(frame) => frame,
            };
            let is_over = frame.is_none() || body.is_end_stream();
            let is_added = frame.is_none_or(|frame| frame.is_ok_and(|frame| self.add(frame, out)));
            if is_over || !is_added {
                self.body = None;
            }
            self.is_broken = !is_added;
        }
        if let Some(encoder) = self.encoder.take().filter(|_| !self.is_broken) {
            self.is_broken = encoder.end(self.trailers.as_ref(), out).is_err();
        }
        if self.is_broken { Taken::Broken } else { Taken::All }
    }

    /// Adds a piece of the body; false where it does not belong there.
    fn add(&mut self, frame: Frame<Bytes>, out: &mut Outgoing) -> bool {
        match frame.into_data() {
            Ok(data) => self.encoder.as_mut().is_some_and(|encoder| encoder.data(data, out).is_ok()),
            Err(frame) => {
                self.trailers = frame.into_trailers().ok();
                true
            }
        }
    }
}

/// Reads what is left of a request's body when it has been answered; false where that is too much.
async fn rest_is_read(stream: &mut Ahead<Stream>, upload: Option<Upload>) -> bool {
    let Some(upload) = upload.filter(|upload| !upload.decoder.is_over()) else { return true };
    if upload.is_too_much() {
        return false;
    }
    let (mut decoder, mut unwanted) = (upload.decoder, 0);
    let reading = poll_fn(|context| {
        while unwanted < UNWANTED_MAX {
            match stream.take_by(|octets| decoder.next(octets)) {
                Ok(Piece::Data(data)) => unwanted += data.len(),
                Ok(Piece::Trailers(_)) => {}
                Ok(Piece::End) => return Poll::Ready(true),
                Ok(Piece::Wanting) => match ready!(stream.poll_more(context, BODY_READ)) {
                    Ok(true) => {}
                    Ok(false) | Err(_) => return Poll::Ready(false),
                },
                Err(_) => return Poll::Ready(false),
            }
        }
        Poll::Ready(false)
    });
    clock::timeout(UNWANTED_FOR, reading).await.unwrap_or(false)
}
