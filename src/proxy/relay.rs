//! Octets between two sides that nobody looks at, until both have said their last.
//!
//! What has gone is counted as it goes, so that the record is right however the relay ends: it is written when the relay is dropped.
//! When the proxy stops, a relay goes on as long as something moves; nothing tells when an exchange inside is over but its silence.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional_with_sizes};
use tokio_util::sync::CancellationToken;

use crate::audit::Record;
use crate::clock;

/// What ends a relay when the proxy stops.
pub(super) struct Stop {
    /// Cancelled when the proxy stops.
    pub(super) stopping: CancellationToken,
    /// How long it may take then, whatever moves.
    pub(super) drain: Duration,
}

/// Octets of each direction on their way; as much as a TLS record holds.
const BUFFER: usize = 16 * 1024;

/// Silence after which a relay of a stopping proxy is taken to be over. Chosen: longer than a round trip to anywhere.
const QUIET: Duration = Duration::from_secs(1);

/// Relays until both sides have ended, one breaks off, or the proxy has stopped.
pub(super) async fn relay<C, O>(client: C, origin: O, stop: Stop, record: Record)
where
    C: AsyncRead + AsyncWrite + Unpin,
    O: AsyncRead + AsyncWrite + Unpin,
{
    let tally = Tally { from_client: Arc::default(), to_client: Arc::default(), record };
    let mut client = Counted { stream: client, octets: Arc::clone(&tally.from_client) };
    let mut origin = Counted { stream: origin, octets: Arc::clone(&tally.to_client) };
    tokio::select! {
        // Which side broke off, and how, is between the two of them.
        _ = copy_bidirectional_with_sizes(&mut client, &mut origin, BUFFER, BUFFER) => {}
        () = has_stopped(stop, &tally) => {}
    }
}

async fn has_stopped(stop: Stop, tally: &Tally) {
    stop.stopping.cancelled().await;
    let falls_quiet = async {
        loop {
            let before = tally.moved();
            clock::sleep(QUIET).await;
            if tally.moved() == before {
                return;
            }
        }
    };
    // A little less, so that the record is written before the proxy is gone.
    clock::timeout(stop.drain.mul_f64(0.9), falls_quiet).await;
}

/// What has gone, for the record.
struct Tally {
    from_client: Arc<AtomicU64>,
    to_client: Arc<AtomicU64>,
    record: Record,
}

impl Tally {
    fn moved(&self) -> u64 {
        self.from_client.load(Ordering::Relaxed).wrapping_add(self.to_client.load(Ordering::Relaxed))
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        self.record.sent(self.to_client.load(Ordering::Relaxed));
        self.record.uninspected(self.from_client.load(Ordering::Relaxed));
    }
}

/// A stream that counts what is read from it.
struct Counted<S> {
    stream: S,
    octets: Arc<AtomicU64>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = to.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, to))?;
        self.octets.fetch_add((to.filled().len() - before) as u64, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
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
