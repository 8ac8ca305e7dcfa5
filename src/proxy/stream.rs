//! What a client's stream begins with.

use std::time::Duration;

use tokio::io::AsyncRead;

use crate::clock;
use crate::http1::Ahead;
use crate::policy::opening::{Opening, begins, opening};

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
            match told(self.seen()) {
                Some(opening) => return opening,
                None if matches!(self.look().await, Ok(true)) => {}
                None => return if self.seen().is_empty() { Opening::Nothing } else { Opening::Http },
            }
        }
    }
}
