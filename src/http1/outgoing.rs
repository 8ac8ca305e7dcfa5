//! What is to be sent, and bodies as they are sent (RFC 9112 §6 and §7.1).

use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, header};
use tokio::io::AsyncWrite;

use super::Malformed;
use super::framing::Length;
use super::head;

/// Octets on their way out, in order. Small ones are put together, large ones are not copied.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    /// What goes before `open`.
    pieces: VecDeque<Bytes>,
    /// What further octets are added to.
    open: BytesMut,
    octets: usize,
}

/// Pieces from this size on are sent from where they are: putting a smaller one to the others costs less than a slice of its own.
const LARGE: usize = 4 * 1024;

/// Most heads are no longer.
const HEAD: usize = 1024;

/// As many octets as are sent in one go; more only wait for a peer that is slow. Four TLS records.
const FULL: usize = 64 * 1024;

/// Slices that one write takes.
const SLICES: usize = 16;

impl Outgoing {
    /// Whether all has gone.
    pub(crate) fn is_empty(&self) -> bool {
        self.octets == 0
    }

    /// Whether more should wait until some has gone.
    pub(crate) fn is_full(&self) -> bool {
        self.octets >= FULL || self.pieces.len() >= SLICES
    }

    /// Adds what something writes.
    pub(crate) fn write(&mut self, writer: impl FnOnce(&mut BytesMut)) {
        let before = self.open.len();
        writer(&mut self.open);
        self.octets += self.open.len() - before;
    }

    /// Adds the head of a message, with room behind it for a body that will go out together with it.
    pub(crate) fn write_head(&mut self, length: Length, writer: impl FnOnce(&mut BytesMut)) {
        let body = match length {
            Length::Exactly(octets) if octets < LARGE as u64 => octets as usize,
            _ => 0,
        };
        self.open.reserve(HEAD + body);
        self.write(writer);
    }

    fn add(&mut self, octets: &[u8]) {
        self.write(|to| to.extend_from_slice(octets));
    }

    fn add_piece(&mut self, piece: Bytes) {
        if piece.len() < LARGE {
            return self.add(&piece);
        }
        if !self.open.is_empty() {
            self.pieces.push_back(self.open.split().freeze());
        }
        self.octets += piece.len();
        self.pieces.push_back(piece);
    }

    /// Sends all that there is.
    pub(crate) fn poll_send<S>(&mut self, context: &mut Context<'_>, stream: &mut S) -> Poll<io::Result<()>>
    where
        S: AsyncWrite + Unpin,
    {
        while !self.is_empty() {
            let sent = ready!(self.poll_write(context, stream))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.gone(sent);
        }
        (self.pieces, self.open) = Default::default();
        Pin::new(stream).poll_flush(context)
    }

    fn poll_write<S>(&self, context: &mut Context<'_>, stream: &mut S) -> Poll<io::Result<usize>>
    where
        S: AsyncWrite + Unpin,
    {
        if self.pieces.is_empty() {
            return Pin::new(stream).poll_write(context, &self.open);
        }
        let mut slices = [IoSlice::new(&[]); SLICES];
        let pieces = self.pieces.iter().map(|piece| &piece[..]).chain([&self.open[..]]);
        let count = slices.iter_mut().zip(pieces).map(|(slice, piece)| *slice = IoSlice::new(piece)).count();
        Pin::new(stream).poll_write_vectored(context, &slices[..count])
    }

    fn gone(&mut self, mut octets: usize) {
        self.octets -= octets;
        while let Some(first) = self.pieces.front_mut() {
            if octets < first.len() {
                return first.advance(octets);
            }
            octets -= first.len();
            self.pieces.pop_front();
        }
        self.open.advance(octets);
    }
}

/// How a body is written.
#[derive(Debug)]
pub(crate) enum Encoder {
    /// So many octets are left.
    Exactly(u64),
    /// In chunks; in the trailer only these fields, which were announced.
    Chunked(Vec<HeaderName>),
    /// As it is, up to the end of the stream.
    ToEnd,
}

impl Encoder {
    /// Of a body with such an end, behind a head with these fields.
    pub(crate) fn new(length: Length, headers: &HeaderMap) -> Encoder {
        match length {
            Length::Exactly(octets) => Encoder::Exactly(octets),
            Length::Chunked => Encoder::Chunked(announced(headers)),
            Length::ToEnd => Encoder::ToEnd,
        }
    }

    /// Whether nothing can follow.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self, Encoder::Exactly(0))
    }

    /// Adds octets of the body.
    ///
    /// # Errors
    /// They are more than its length.
    pub(crate) fn data(&mut self, data: Bytes, out: &mut Outgoing) -> Result<(), Malformed> {
        match self {
            Encoder::Exactly(left) => {
                *left = left.checked_sub(data.len() as u64).ok_or(TOO_LONG)?;
                out.add_piece(data);
            }
            // It would be the last chunk.
            Encoder::Chunked(_) if data.is_empty() => {}
            Encoder::Chunked(_) => {
                out.write(|to| size_line(to, data.len()));
                out.add_piece(data);
                out.add(b"\r\n");
            }
            Encoder::ToEnd => out.add_piece(data),
        }
        Ok(())
    }

    /// Adds the end of the body, and of the fields behind it those that were announced.
    ///
    /// # Errors
    /// Something is missing.
    pub(crate) fn end(self, trailers: Option<&HeaderMap>, out: &mut Outgoing) -> Result<(), Malformed> {
        match self {
            Encoder::Exactly(0) | Encoder::ToEnd => Ok(()),
            Encoder::Exactly(_) => Err(Malformed::Ended),
            Encoder::Chunked(announced) => {
                out.write(|to| {
                    to.extend_from_slice(b"0\r\n");
                    for (name, value) in trailers.into_iter().flatten().filter(|(name, _)| announced.contains(name)) {
                        head::with_capitals(to, name);
                        to.extend_from_slice(b": ");
                        to.extend_from_slice(value.as_bytes());
                        to.extend_from_slice(b"\r\n");
                    }
                    to.extend_from_slice(b"\r\n");
                });
                Ok(())
            }
        }
    }
}

const TOO_LONG: Malformed = Malformed::Framing("a body is longer than its Content-Length");

fn size_line(to: &mut BytesMut, size: usize) {
    let mut line = [0; 18];
    let mut rest = &mut line[..];
    // Sixteen digits and the end of line have room there.
    let _ = write!(rest, "{size:x}\r\n");
    let left = rest.len();
    to.extend_from_slice(&line[..line.len() - left]);
}

/// RFC 9110 §6.6.2.
fn announced(headers: &HeaderMap) -> Vec<HeaderName> {
    let values = headers.get_all(header::TRAILER).iter().filter_map(|value| value.to_str().ok());
    values
        .flat_map(|value| value.split(','))
        .filter_map(|name| HeaderName::from_bytes(name.trim().as_bytes()).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use http::HeaderValue;
    use tokio::io::AsyncReadExt;

    use super::*;

    /// What a peer gets that reads a few octets at a time.
    async fn sent(mut out: Outgoing) -> Vec<u8> {
        let (mut near, mut far) = tokio::io::duplex(7);
        let sending = async {
            poll_fn(|context| out.poll_send(context, &mut near)).await.unwrap();
            assert!(out.is_empty());
            drop(near);
        };
        let mut got = Vec::new();
        let (_, read) = tokio::join!(sending, far.read_to_end(&mut got));
        read.unwrap();
        got
    }

    #[tokio::test]
    async fn octets_go_out_in_order_whatever_their_sizes() {
        let mut out = Outgoing::default();
        let mut all = Vec::new();
        for size in [3, LARGE, 1, 0, LARGE + 1, LARGE, 5] {
            let piece = Bytes::from(vec![b'a' + (size % 26) as u8; size]);
            all.extend_from_slice(&piece);
            out.add_piece(piece);
        }
        assert_eq!(out.octets, all.len());
        assert_eq!(sent(out).await, all);
    }

    #[tokio::test]
    async fn rfc9112_7_1_a_body_of_unknown_length_goes_in_chunks() {
        let headers = HeaderMap::from_iter([(header::TRAILER, HeaderValue::from_static("X-Sum, x-more"))]);
        let mut trailers = HeaderMap::new();
        trailers.append("x-sum", HeaderValue::from_static("7"));
        trailers.append("content-length", HeaderValue::from_static("7"));
        let (mut out, mut encoder) = (Outgoing::default(), Encoder::new(Length::Chunked, &headers));
        for data in ["hello world, hello", "", "x"] {
            encoder.data(Bytes::from_static(data.as_bytes()), &mut out).unwrap();
        }
        encoder.end(Some(&trailers), &mut out).unwrap();
        assert_eq!(sent(out).await, b"12\r\nhello world, hello\r\n1\r\nx\r\n0\r\nX-Sum: 7\r\n\r\n");
    }

    #[test]
    fn a_length_that_was_told_is_kept() {
        let (mut out, mut encoder) = (Outgoing::default(), Encoder::new(Length::Exactly(3), &HeaderMap::new()));
        encoder.data(Bytes::from_static(b"ab"), &mut out).unwrap();
        assert!(encoder.data(Bytes::from_static(b"cd"), &mut out).is_err());
        assert_eq!(encoder.end(None, &mut out), Err(Malformed::Ended));
    }
}
