//! Changes that wait for the disk.
//!
//! A transaction costs much the same for one change as for a hundred. So the writer rests between two, and what comes in meanwhile is
//! written together; after a rest the first change is written at once. Whoever brings one waits for nobody, and wakes the writer only
//! where there is something to do: at the first, and when a batch is full. A condition variable and not a channel, since a channel
//! wakes its reader for each.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Instant;

use super::tables::Change;
use crate::clock;

/// Changes that may wait; beyond that they are counted as lost, and the copy is fetched again after a restart.
pub(super) const WAITING_MAX: usize = 1000;

/// Changes written in one transaction.
pub(super) const BATCH_MAX: usize = 200;

/// What waits.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    queue: Mutex<Queue>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    changes: Vec<Change>,
    /// Those who want to know when all of that is written.
    asking: Vec<mpsc::Sender<()>>,
    closed: bool,
}

/// What is written next.
pub(super) struct Batch {
    pub(super) changes: Vec<Change>,
    /// Told when it is done.
    pub(super) asking: Vec<mpsc::Sender<()>>,
}

impl Waiting {
    /// Takes a change in; false where too many wait.
    pub(super) fn push(&self, change: Change) -> bool {
        let mut queue = self.lock();
        if queue.changes.len() >= WAITING_MAX || queue.closed {
            return false;
        }
        queue.changes.push(change);
        if queue.changes.len() == 1 || queue.changes.len() == BATCH_MAX {
            self.wake.notify_one();
        }
        true
    }

    /// Waits until all that is in here now has been written, or has failed.
    pub(super) fn flush(&self) {
        let (sender, done) = mpsc::channel();
        let mut queue = self.lock();
        if queue.closed {
            return;
        }
        queue.asking.push(sender);
        drop(queue);
        self.wake.notify_one();
        // An error is an answer, too: nobody writes any more.
        let _ = done.recv();
    }

    /// Lets the writer end when nothing is left.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.wake.notify_one();
    }

    /// Nobody writes any more, so nobody is to wait.
    pub(super) fn abandon(&self) {
        *self.lock() = Queue { closed: true, ..Queue::default() };
    }

    /// What is to be written next, not before `earliest` unless there is much of it or somebody waits; `None` at the end.
    pub(super) fn take(&self, earliest: Instant) -> Option<Batch> {
        let queue = self.wake.wait_while(self.lock(), |queue| !queue.has_work() && !queue.closed);
        let rest = earliest.saturating_duration_since(clock::now());
        let queue = queue.unwrap_or_else(PoisonError::into_inner);
        let rested = self.wake.wait_timeout_while(queue, rest, |queue| !queue.is_urgent());
        let (mut queue, _) = rested.unwrap_or_else(PoisonError::into_inner);
        if !queue.has_work() {
            return None;
        }
        let many = queue.changes.len().min(BATCH_MAX);
        let changes = queue.changes.drain(..many).collect();
        let asking = if queue.changes.is_empty() { std::mem::take(&mut queue.asking) } else { Vec::new() };
        Some(Batch { changes, asking })
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    fn has_work(&self) -> bool {
        !self.changes.is_empty() || !self.asking.is_empty()
    }

    fn is_urgent(&self) -> bool {
        self.changes.len() >= BATCH_MAX || !self.asking.is_empty() || self.closed
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn change() -> Change {
        Change::Forget { key: "https://h1.test".into() }
    }

    #[test]
    fn the_first_change_is_written_at_once_and_later_ones_together() {
        let waiting = Waiting::default();
        let (now, later) = (clock::now(), clock::now() + Duration::from_secs(3600));
        assert!(waiting.push(change()));
        assert_eq!(waiting.take(now).unwrap().changes.len(), 1);
        std::thread::scope(|scope| {
            let batch = scope.spawn(|| waiting.take(later).unwrap().changes.len());
            (0..BATCH_MAX).for_each(|_| assert!(waiting.push(change())));
            assert_eq!(batch.join().unwrap(), BATCH_MAX, "a full batch is not rested on");
            let batch = scope.spawn(|| waiting.take(later).unwrap());
            assert!(waiting.push(change()) && waiting.push(change()));
            let asking = scope.spawn(|| waiting.flush());
            let batch = batch.join().unwrap();
            assert_eq!((batch.changes.len(), batch.asking.len()), (2, 1), "nor what somebody waits for");
            drop(batch);
            asking.join().unwrap();
        });
    }

    #[test]
    fn what_waits_is_bounded_and_nobody_waits_for_a_writer_that_is_gone() {
        let waiting = Waiting::default();
        (0..WAITING_MAX).for_each(|_| assert!(waiting.push(change())));
        assert!(!waiting.push(change()));
        waiting.close();
        let written: usize = std::iter::from_fn(|| waiting.take(clock::now())).map(|batch| batch.changes.len()).sum();
        assert_eq!(written, WAITING_MAX);
        waiting.abandon();
        waiting.flush();
        assert!(!waiting.push(change()));
    }
}
