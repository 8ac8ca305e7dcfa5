//! Requests that hyper cannot read.
//!
//! hyper turns such a request away with a bare 400, 414 or 431 before any code of ours hears of it. Its sender deserves a sentence
//! and the log a line, so what goes to the client is looked at, and an answer of hyper's own is replaced by one of ours. It is told
//! apart by what it lacks: every other answer names this proxy, in `Via` or in `Proxy-Status`. HTTP/2 has no such answers.
//! What comes from the client is looked at, too, for the one thing that hyper mends: see `policy/framing.rs`.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Response};
use http_body_util::BodyExt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

use super::body::Body;
use super::http1::Progress;
use super::listener::Proxy;
use super::pipeline::Client;
use super::stream::{Ahead, Stream};
use crate::clock;
use crate::policy::answer::Rendering;
use crate::policy::framing::Framing;
use crate::policy::reason::Reason;
use crate::upstream;

/// A client's stream whose bare refusals are explained.
pub(super) struct Explained {
    stream: Ahead<Stream>,
    proxy: Arc<Proxy>,
    client: Arc<Client>,
    /// Our answer, as far as it is not sent.
    ours: Vec<u8>,
    /// WebSocket was switched to: what goes out is no HTTP any more.
    switched: bool,
    framing: Framing,
    progress: Arc<Progress>,
    /// The client has hung up without a word, or is out of reach.
    is_cut_off: bool,
}

impl Explained {
    /// What is seen of the requests is told to `progress`.
    pub(super) fn new(
        stream: Ahead<Stream>,
        proxy: Arc<Proxy>,
        client: Arc<Client>,
        progress: Arc<Progress>,
    ) -> Explained {
        let (ours, framing) = (Vec::new(), Framing::default());
        Explained { stream, proxy, client, ours, switched: false, framing, progress, is_cut_off: false }
    }

    /// Waits for further octets from the client, as [`Ahead::look`] does.
    pub(super) async fn look(&mut self) -> bool {
        let came = self.stream.look().await;
        self.is_cut_off = came.is_err();
        matches!(came, Ok(true))
    }

    /// The answer that goes out instead of hyper's.
    fn explain(&self, reason: Reason) -> Vec<u8> {
        let detail = match reason {
            Reason::HeaderTooLarge => TOO_LARGE,
            _ => "the request line or a header field is not HTTP/1.1",
        };
        explanation(&self.proxy, &self.client, reason, detail)
    }
}

pub(super) const TOO_LARGE: &str = "the head of the request is larger than limits.header_bytes, or has too many fields";

/// The answer to a request of which no more is known than that it cannot be read. Its record is written when it is dropped here.
pub(super) fn explanation(proxy: &Proxy, client: &Client, reason: Reason, detail: &str) -> Vec<u8> {
    let unknown = Method::from_bytes(b"-").expect("a hyphen is a token");
    let mut record = client.record(&proxy.pipeline.audit, &proxy.pipeline.terms.load(), &unknown);
    let response = record.answer(reason, detail.to_owned()).render(Rendering::Text);
    record.answered(response.status());
    record.sent(response.body().len() as u64);
    record.failed(reason, Some(detail.to_owned()));
    written(&response.map(Bytes::from), true)
}

/// An answer of our own as it goes over the wire, for those that hyper does not send.
pub(super) async fn octets(response: Response<Body>, is_last: bool) -> Result<Vec<u8>, upstream::Error> {
    let (head, body) = response.into_parts();
    let body = body.collect().await?.to_bytes();
    Ok(written(&Response::from_parts(head, body), is_last))
}

fn written(response: &Response<Bytes>, is_last: bool) -> Vec<u8> {
    let mut octets = format!("HTTP/1.1 {}\r\n", response.status()).into_bytes();
    for (name, value) in response.headers() {
        octets.extend_from_slice(usual_capitals(name.as_str()).as_bytes());
        octets.extend_from_slice(b": ");
        octets.extend_from_slice(value.as_bytes());
        octets.extend_from_slice(b"\r\n");
    }
    if is_last {
        octets.extend_from_slice(b"Connection: close\r\n");
    }
    let (length, date) = (response.body().len(), httpdate::fmt_http_date(clock::wall()));
    octets.extend_from_slice(format!("Content-Length: {length}\r\nDate: {date}\r\n\r\n").as_bytes());
    octets.extend_from_slice(response.body());
    octets
}

/// `Proxy-Status` for `proxy-status`, as hyper spells what it sends.
fn usual_capitals(name: &str) -> String {
    let mut begins = true;
    let capital = |letter: char| {
        let is_first = std::mem::replace(&mut begins, letter == '-');
        if is_first { letter.to_ascii_uppercase() } else { letter }
    };
    name.chars().map(capital).collect()
}

/// Closes a stream behind an answer. What the client is still sending is read for a moment: a stream that is closed on unread octets
/// is reset, and a reset takes the answer with it (RFC 9112 §9.6).
pub(super) async fn close<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S) {
    if stream.shutdown().await.is_ok() {
        let reading = async { tokio::io::copy(&mut stream.take(READ_AT_CLOSE), &mut tokio::io::sink()).await };
        let _ = clock::timeout(READ_AT_CLOSE_FOR, reading).await;
    }
}

/// Chosen; enough for what is under way when the answer comes.
const READ_AT_CLOSE: u64 = 1024 * 1024;
const READ_AT_CLOSE_FOR: Duration = Duration::from_secs(2);

/// Why hyper refused, where these octets are an answer that it made up itself.
fn refused_by_hyper(octets: &[u8]) -> Option<Reason> {
    let reason = match octets.get(..13)? {
        b"HTTP/1.1 400 " => Reason::BadRequest,
        b"HTTP/1.1 414 " | b"HTTP/1.1 431 " => Reason::HeaderTooLarge,
        _ => return None,
    };
    let head = str::from_utf8(octets).ok()?.strip_suffix("\r\n\r\n")?.to_ascii_lowercase();
    let is_ours = ["\r\nvia:", "\r\nproxy-status:", "\r\n\r\n"].iter().any(|mark| head.contains(mark));
    (!is_ours).then_some(reason)
}

impl Explained {
    fn poll_ours(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.ours.is_empty() {
            let sent = ready!(Pin::new(&mut self.stream).poll_write(context, &self.ours))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.ours.drain(..sent);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Explained {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, octets: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(octets)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.progress.writes();
        ready!(this.poll_ours(context))?;
        // hyper's own answer is a head and nothing else.
        let head = slices.first().filter(|_| !this.switched);
        this.switched |= head.is_some_and(|head| head.starts_with(b"HTTP/1.1 101 "));
        if let Some(head) = head
            && let Some(reason) = refused_by_hyper(head)
        {
            this.ours = this.explain(reason);
            return Poll::Ready(Ok(head.len()));
        }
        Pin::new(&mut this.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_ours(context))?;
        ready!(Pin::new(&mut this.stream).poll_flush(context))?;
        this.progress.has_written();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // TLS would say good-bye to a client that did not, and the answer is a reset.
        if this.is_cut_off {
            return Poll::Ready(Ok(()));
        }
        ready!(this.poll_ours(context))?;
        Pin::new(&mut this.stream).poll_shutdown(context)
    }
}

impl AsyncRead for Explained {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let read = ready!(Pin::new(&mut this.stream).poll_read(context, buffer));
        this.is_cut_off = read.is_err();
        read?;
        if let Err(ambiguous) = this.framing.follow(&buffer.filled()[before..]) {
            this.progress.is_ambiguous(ambiguous);
        }
        this.progress.has_read(this.framing.requests());
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_answers_that_nobody_signed_are_hypers() {
        for (octets, reason) in [
            ("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n", Some(Reason::BadRequest)),
            ("HTTP/1.1 431 Request Header Fields Too Large\r\n\r\n", Some(Reason::HeaderTooLarge)),
            ("HTTP/1.1 414 URI Too Long\r\n\r\n", Some(Reason::HeaderTooLarge)),
            ("HTTP/1.1 400 Bad Request\r\nVia: 1.1 robots-proxy\r\n\r\n", None),
            ("HTTP/1.1 400 Bad Request\r\nproxy-status: robots-proxy\r\n\r\n", None),
            ("HTTP/1.1 400 Bad Request\r\ncontent-length: 4\r\n\r\n\r\n\r\n", None),
            ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", None),
            ("HTTP/1.1 400 ", None),
            ("", None),
        ] {
            assert_eq!(refused_by_hyper(octets.as_bytes()), reason, "{octets:?}");
        }
    }
}
