//! Session tickets that wait for something to go with.
//!
//! rustls sends a client its ticket as soon as the handshake is done: a packet of its own, for which nobody waits, just before the answer
//! to the first request. Here it is kept back until then, which saves the proxy a system call a connection, and the client a wake-up.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The stream under a client's TLS.
pub(super) struct Unhurried<S> {
    stream: S,
    handshake: Handshake,
    /// Tickets, and how much of them has gone.
    kept: Vec<u8>,
    gone: usize,
}

/// How far the handshake is.
#[derive(PartialEq, Eq)]
enum Handshake {
    /// We have something to say, or have not said all of it.
    Ours,
    /// All that we had to say has gone.
    Theirs,
    /// They have answered to that.
    Answered,
    Done,
}

/// The type of a record that is encrypted (RFC 8446 §5.1).
const APPLICATION_DATA: u8 = 0x17;

/// Octets of an encrypted alert, which somebody may wait for: header, level, description, type and tag.
const ALERT: usize = 5 + 2 + 1 + 16;

impl<S> Unhurried<S> {
    pub(super) fn new(stream: S) -> Unhurried<S> {
        Unhurried { stream, handshake: Handshake::Ours, kept: Vec::new(), gone: 0 }
    }

    /// From now on everything is sent at once, and what was kept back goes with it.
    pub(super) fn is_done(&mut self) {
        self.handshake = Handshake::Done;
    }

    /// Whether that is a ticket: encrypted, and behind the client's answer to all that was sent. TLS 1.2 sends it in clear.
    fn is_ticket(&self, octets: &[u8]) -> bool {
        self.handshake == Handshake::Answered && octets.first() == Some(&APPLICATION_DATA) && octets.len() > ALERT
    }
}

impl<S: AsyncWrite + Unpin> Unhurried<S> {
    /// Sends what was kept back and, in the same go, some of what follows; returns how much of that.
    fn poll_kept(&mut self, context: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        loop {
            let mut all = Vec::with_capacity(1 + slices.len());
            all.push(IoSlice::new(&self.kept[self.gone..]));
            all.extend(slices.iter().map(|slice| IoSlice::new(slice)));
            let sent = ready!(Pin::new(&mut self.stream).poll_write_vectored(context, &all))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            let kept = self.kept.len() - self.gone;
            if sent >= kept {
                (self.kept, self.gone) = (Vec::new(), 0);
                if sent > kept || slices.is_empty() {
                    return Poll::Ready(Ok(sent - kept));
                }
                return Pin::new(&mut self.stream).poll_write_vectored(context, slices);
            }
            self.gone += sent;
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Unhurried<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
        if this.handshake == Handshake::Theirs {
            this.handshake = Handshake::Answered;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Unhurried<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, octets: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(octets)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if !this.kept.is_empty() {
            return this.poll_kept(context, slices);
        }
        if this.handshake == Handshake::Done {
            return Pin::new(&mut this.stream).poll_write_vectored(context, slices);
        }
        if slices.first().is_some_and(|octets| this.is_ticket(octets)) {
            slices.iter().for_each(|slice| this.kept.extend_from_slice(slice));
            return Poll::Ready(Ok(this.kept.len()));
        }
        this.handshake = Handshake::Ours;
        let sent = ready!(Pin::new(&mut this.stream).poll_write_vectored(context, slices))?;
        if sent == slices.iter().map(|slice| slice.len()).sum::<usize>() {
            this.handshake = Handshake::Theirs;
        }
        Poll::Ready(Ok(sent))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.kept.is_empty() {
            ready!(this.poll_kept(context, &[]))?;
        }
        Pin::new(&mut this.stream).poll_shutdown(context)
    }
}
