//! A client's octets, whatever carries them: TCP, a Unix socket, TLS, or a tunnel inside another connection.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

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
        clock::timeout(timeout, self.first(|octets| opening(octets, head_max))).await.unwrap_or(Opening::Late)
    }

    /// The same inside a tunnel.
    pub(super) async fn opening_inside(&mut self, timeout: Duration) -> Opening {
        // A client that waits for the server to speak first will wait for ever here.
        clock::timeout(timeout, self.first(begins)).await.unwrap_or(Opening::Late)
    }

    async fn first(&mut self, told: impl Fn(&[u8]) -> Option<Opening>) -> Opening {
        loop {
            match told(&self.ahead) {
                Some(opening) => return opening,
                None if matches!(self.look().await, Ok(true)) => {}
                None => return if self.ahead.is_empty() { Opening::Nothing } else { Opening::Http },
            }
        }
    }

    /// Waits for further octets to look at; false where none come any more. Holds no buffer until they come.
    pub(super) async fn look(&mut self) -> io::Result<bool> {
        let Ahead { stream, ahead } = self;
        poll_fn(|context| {
            let mut buffer = [MaybeUninit::uninit(); FIRST_READ];
            let mut buffer = ReadBuf::uninit(&mut buffer);
            ready!(Pin::new(&mut *stream).poll_read(context, &mut buffer))?;
            ahead.extend_from_slice(buffer.filled());
            Poll::Ready(Ok(!buffer.filled().is_empty()))
        })
        .await
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
