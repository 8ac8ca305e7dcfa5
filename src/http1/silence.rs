//! How long a peer may be silent.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use futures_util::future::FutureExt;

use crate::clock;

/// How long something has been waited for. The alarm is set once and asked anew when it rings, since setting one for each piece of a
/// download, or each request of a connection, would cost more than the piece.
pub(crate) struct Silence {
    longest: Duration,
    since: Option<Instant>,
    alarm: Option<Pin<Box<dyn Future<Output = ()> + Send + Sync>>>,
}

impl Silence {
    /// A silence that may be so long.
    pub(crate) fn of(longest: Duration) -> Silence {
        Silence { longest, since: None, alarm: None }
    }

    /// How long it may be.
    pub(crate) fn longest(&self) -> Duration {
        self.longest
    }

    /// Something has come.
    pub(crate) fn is_broken(&mut self) {
        self.since = None;
    }

    /// Ready when it has been asked for so long, without a break, that it is too long.
    pub(crate) fn poll_too_long(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.poll_longer_than(self.longest, context)
    }

    /// The same for another length.
    pub(crate) fn poll_longer_than(&mut self, length: Duration, context: &mut Context<'_>) -> Poll<()> {
        let until = *self.since.get_or_insert_with(clock::now) + length;
        loop {
            ready!(self.alarm.get_or_insert_with(|| Box::pin(clock::sleep_until(until))).poll_unpin(context));
            self.alarm = None;
            if clock::now() >= until {
                return Poll::Ready(());
            }
        }
    }
}

impl fmt::Debug for Silence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Silence").field("longest", &self.longest).finish_non_exhaustive()
    }
}
