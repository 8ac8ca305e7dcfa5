//! A client's octets, whatever carries them: TCP, a Unix socket, TLS, or a tunnel inside another connection.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

use crate::clock;
use crate::policy::opening::{Opening, begins, opening};

/// What carries octets both ways. Boxed, so that the code which serves HTTP exists once, and a tunnel can be served by what opened it.
pub(super) type Stream = Box<dyn Duplex>;

/// Both directions of a stream.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Duplex for S {}

/// A stream whose first octets were looked at, and are read again by whoever serves it. The buffer is gone once they are.
pub(super) struct Ahead<S> {
    stream: S,
    ahead: BytesMut,
}

/// Enough for a ClientHello or the head of a CONNECT.
const FIRST_READ: usize = 2048;

impl<S> Ahead<S> {
    pub(super) fn new(stream: S) -> Ahead<S> {
        Ahead { stream, ahead: BytesMut::new() }
    }

    /// What has come and was not taken.
    pub(super) fn seen(&self) -> &[u8] {
        &self.ahead
    }

    /// Takes octets that were looked at.
    pub(super) fn take(&mut self, octets: usize) {
        self.ahead.advance(octets);
        if self.ahead.is_empty() {
            self.ahead = BytesMut::new();
        }
    }
}

impl<S: AsyncRead + Unpin> Ahead<S> {
    /// Looks until it is known what a connection begins with.
    pub(super) async fn opening(&mut self, timeout: Duration, head_max: usize) -> Opening {
        let looking = async {
            loop {
                match opening(&self.ahead, head_max) {
                    Some(opening) => return opening,
                    None if self.look().await => {}
                    None => return if self.ahead.is_empty() { Opening::Nothing } else { Opening::Http },
                }
            }
        };
        clock::timeout(timeout, looking).await.unwrap_or(Opening::Late)
    }

    /// The same inside a tunnel.
    pub(super) async fn opening_inside(&mut self, timeout: Duration) -> Opening {
        if !self.ahead.is_empty() {
            return begins(&self.ahead);
        }
        match clock::timeout(timeout, self.look()).await {
            Some(true) => begins(&self.ahead),
            Some(false) => Opening::Nothing,
            // A client that waits for the server to speak first will wait for ever here.
            None => Opening::Late,
        }
    }

    /// Waits for further octets to look at; false where none come any more.
    pub(super) async fn look(&mut self) -> bool {
        self.ahead.reserve(FIRST_READ);
        matches!(self.stream.read_buf(&mut self.ahead).await, Ok(came) if came > 0)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Ahead<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.ahead.is_empty() {
            return Pin::new(&mut this.stream).poll_read(context, buffer);
        }
        let octets = this.ahead.len().min(buffer.remaining());
        buffer.put_slice(&this.ahead[..octets]);
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
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(context, slices)
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
