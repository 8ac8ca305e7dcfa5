//! A socket that goes on listening when nobody takes what it says.
//!
//! An origin may answer before it has read the whole upload, and close (a 413, mostly). Our next write then fails, and hyper gives the
//! exchange up, although the answer lies in the socket's buffer. So a write that finds the other end closed is taken as done; whether
//! there was an answer, the next read tells.

use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// The socket of a connection to an origin.
pub(super) struct Patient {
    socket: TcpStream,
    /// Nobody takes anything any more.
    in_vain: bool,
}

impl Patient {
    pub(super) fn new(socket: TcpStream) -> Patient {
        Patient { socket, in_vain: false }
    }

    /// The outcome of a write of so many octets.
    fn written(&mut self, octets: usize, outcome: io::Result<usize>) -> io::Result<usize> {
        match outcome {
            Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {
                self.in_vain = true;
                Ok(octets)
            }
            outcome => outcome,
        }
    }
}

impl AsyncRead for Patient {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(context, to)
    }
}

impl AsyncWrite for Patient {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, octets: &[u8]) -> Poll<io::Result<usize>> {
        if self.in_vain {
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
        let octets = slices.iter().map(|slice| slice.len()).sum();
        if self.in_vain {
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
