//! A stream, and the octets that were read ahead from it.

use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::io::poll_read_buf;

/// What carries octets both ways, whatever it is: TCP, a Unix socket, TLS, or a tunnel inside another connection. Boxed, so that the
/// code which speaks HTTP on it exists once.
pub(crate) type Stream = Box<dyn Duplex>;

/// Both directions of a stream.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Duplex for S {}

/// A stream whose next octets were looked at, and are read by whoever wants them. It holds no buffer while there are none.
pub(crate) struct Ahead<S> {
    stream: S,
    octets: BytesMut,
}

/// Octets of a read from a peer that may have little to say; as much as a TLS record holds. They are read to the stack, so that whoever
/// waits for them holds nothing.
const LOOK: usize = 16 * 1024;

/// Large blocks begin where a page does. From there rustls copies them to 5 octets behind the start of another one, and AMD's
/// processors take thirty times as long to copy to a place in a page that is less than 64 octets further on than the source's.
const OFF_PAGE: usize = 64;

impl<S> fmt::Debug for Ahead<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ahead").field("octets", &self.octets.len()).finish_non_exhaustive()
    }
}

impl<S> Ahead<S> {
    /// Nothing was read ahead yet.
    pub(crate) fn new(stream: S) -> Ahead<S> {
        Ahead { stream, octets: BytesMut::new() }
    }

    /// What has come and was not taken.
    pub(crate) fn seen(&self) -> &[u8] {
        &self.octets
    }

    /// Takes octets that were looked at.
    pub(crate) fn take(&mut self, octets: usize) {
        self.octets.advance(octets);
        self.rest();
    }

    /// Has something take what it wants of the octets that have come.
    pub(crate) fn take_by<T>(&mut self, taker: impl FnOnce(&mut BytesMut) -> T) -> T {
        taker(&mut self.octets)
    }

    /// Holds no buffer if there is nothing in it.
    pub(crate) fn rest(&mut self) {
        if self.octets.is_empty() {
            self.octets = BytesMut::new();
        }
    }
}

impl<S: AsyncRead + Unpin> Ahead<S> {
    /// Waits for further octets to look at; false where none come any more. Holds no buffer until they come.
    pub(crate) async fn look(&mut self) -> io::Result<bool> {
        poll_fn(|context| self.poll_look(context)).await
    }

    /// [`Ahead::look`], as a poll.
    pub(crate) fn poll_look(&mut self, context: &mut Context<'_>) -> Poll<io::Result<bool>> {
        self.rest();
        let mut buffer = [MaybeUninit::uninit(); LOOK];
        let mut buffer = ReadBuf::uninit(&mut buffer);
        ready!(Pin::new(&mut self.stream).poll_read(context, &mut buffer))?;
        self.octets.extend_from_slice(buffer.filled());
        Poll::Ready(Ok(!buffer.filled().is_empty()))
    }

    /// The same for a peer that has much to say: up to about `most` octets are read to where they stay.
    pub(crate) fn poll_more(&mut self, context: &mut Context<'_>, most: usize) -> Poll<io::Result<bool>> {
        if self.octets.capacity() - self.octets.len() < most.min(LOOK) {
            let mut room = BytesMut::with_capacity(OFF_PAGE + self.octets.len() + most);
            room.put_bytes(0, OFF_PAGE);
            room.advance(OFF_PAGE);
            room.extend_from_slice(&self.octets);
            self.octets = room;
        }
        let read = poll_read_buf(Pin::new(&mut self.stream), context, &mut self.octets);
        read.map_ok(|octets| octets > 0)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Ahead<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.octets.is_empty() {
            return Pin::new(&mut this.stream).poll_read(context, buffer);
        }
        let octets = this.octets.len().min(buffer.remaining());
        buffer.put_slice(&this.octets[..octets]);
        this.take(octets);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Ahead<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, octets: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, octets)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let stream = Pin::new(&mut self.get_mut().stream);
        match slices {
            // What most writes of TLS are. A plain write costs the system less.
            [slice] => stream.poll_write(context, slice),
            slices => stream.poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
