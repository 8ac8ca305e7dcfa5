//! A socket that goes on listening when nobody takes what it says.
//!
//! An origin may answer before it has read the whole upload, and close (a 413, mostly). Our next write then fails, and HTTP/2 as well as
//! TLS give the exchange up, although the answer lies in the socket's buffer. So a write that finds the other end closed is taken as
//! done, until the last octet from there has been read.

use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::metrics::OneOpen;

/// The socket of a connection to an origin.
pub(super) struct Patient {
    socket: TcpStream,
    /// Nobody takes anything any more.
    in_vain: bool,
    /// Nothing more comes.
    ended: bool,
    _counted: OneOpen,
}

impl Patient {
    pub(super) fn new(socket: TcpStream, counted: OneOpen) -> Patient {
        Patient { socket, in_vain: false, ended: false, _counted: counted }
    }

    /// The outcome of a write of so many octets.
    fn written(&mut self, octets: usize, outcome: io::Result<usize>) -> io::Result<usize> {
        match outcome {
            Err(error) if is_closed(&error) && !self.ended => {
                self.in_vain = true;
                Ok(octets)
            }
            outcome => outcome,
        }
    }
}

fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
}

impl AsyncRead for Patient {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = to.filled().len();
        let outcome = ready!(Pin::new(&mut self.socket).poll_read(context, to));
        self.ended |= outcome.is_err() || to.filled().len() == before && to.remaining() > 0;
        Poll::Ready(outcome)
    }
}

impl AsyncWrite for Patient {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, octets: &[u8]) -> Poll<io::Result<usize>> {
        if self.in_vain && !self.ended {
            return Poll::Ready(Ok(octets.len()));
        }
        let outcome = ready!(Pin::new(&mut self.socket).poll_write(context, octets));
        Poll::Ready(self.written(octets.len(), outcome))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        // What most writes of TLS are. A plain write costs the system less.
        if let [slice] = slices {
            return self.poll_write(context, slice);
        }
        let octets = slices.iter().map(|slice| slice.len()).sum();
        if self.in_vain && !self.ended {
            return Poll::Ready(Ok(octets));
        }
        let outcome = ready!(Pin::new(&mut self.socket).poll_write_vectored(context, slices));
        Poll::Ready(self.written(octets, outcome))
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}
