//! A stream whose first octets can be looked at before they are taken.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

/// A stream, and what has been read of it ahead of time.
pub struct Ahead<S> {
    seen: Vec<u8>,
    taken: usize,
    stream: S,
}

impl<S: AsyncRead + Unpin> Ahead<S> {
    /// Nothing read yet.
    pub fn new(stream: S) -> Ahead<S> {
        Ahead { seen: Vec::new(), taken: 0, stream }
    }

    /// What can be looked at.
    pub fn seen(&self) -> &[u8] {
        &self.seen
    }

    /// Waits for more to look at, and says how much came; nothing at the end of the stream.
    pub async fn look(&mut self) -> io::Result<usize> {
        self.stream.read_buf(&mut self.seen).await
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Ahead<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.taken < this.seen.len() {
            let length = to.remaining().min(this.seen.len() - this.taken);
            to.put_slice(&this.seen[this.taken..this.taken + length]);
            this.taken += length;
            if this.taken == this.seen.len() {
                // A tunnel may stay open for days; what has been taken need not stay with it.
                (this.seen, this.taken) = (Vec::new(), 0);
            }
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut this.stream).poll_read(context, to)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Ahead<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, octets: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, octets)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
