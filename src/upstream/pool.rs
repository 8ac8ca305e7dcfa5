//! Open connections that wait for their next request.
//!
//! An HTTP/1.1 connection is in the pool while nobody uses it, an HTTP/2 one as long as it lives, since many requests share it. Both
//! are bounded: per origin, and by `idle_timeout`. What the origin has closed is found out when it is taken, and by a task that looks
//! after them while there are any.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use hyper::client::conn::http2;

use super::Speech;
use super::http1::Http1;
use super::upload::RequestBody;
use crate::clock;
use crate::policy::target::Origin;

/// A connection, or the half of a shared one that sends.
#[derive(Debug)]
pub(super) enum Sender {
    /// One request after another.
    Http1(Box<Http1>),
    /// Many at once.
    Http2(http2::SendRequest<RequestBody>),
}

impl Sender {
    /// Whether the connection speaks HTTP/2.
    pub(super) fn is_http2(&self) -> bool {
        matches!(self, Sender::Http2(_))
    }

    /// Whether the origin speaks nothing that would be better.
    fn is_all(&self) -> bool {
        match self {
            Sender::Http1(http1) => http1.is_all,
            Sender::Http2(_) => true,
        }
    }

    /// Waits until the connection, which was open a moment ago, can take a request; false where it is closed.
    async fn is_ready(&mut self) -> bool {
        match self {
            Sender::Http1(_) => true,
            Sender::Http2(sender) => sender.ready().await.is_ok(),
        }
    }

    /// Whether it can be used no more.
    fn is_closed(&mut self) -> bool {
        match self {
            Sender::Http1(http1) => http1.is_closed(),
            Sender::Http2(sender) => sender.is_closed(),
        }
    }
}

/// Kept connections by origin.
#[derive(Debug)]
pub(super) struct Pool {
    idle_timeout: Duration,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    /// Few enough that nobody gains by names which collide.
    by_origin: HashMap<Origin, Vec<Idle>, RandomState>,
    /// Connections of all origins.
    total: usize,
    /// Those unused for longest, the very oldest last, as of when all were last looked through: what has come since is younger. Some
    /// have been used or closed meanwhile.
    oldest: Vec<(Instant, Origin)>,
    is_looked_after: bool,
}

#[derive(Debug)]
struct Idle {
    sender: Sender,
    since: Instant,
}

/// Connections kept per origin, the one unused for longest closed for a new one: more than a browser opens to a proxy, fewer than an
/// origin minds.
const PER_ORIGIN_MAX: usize = 64;

/// Unused connections kept in all, the one unused for longest closed for a new one: each is an open file, of which a process has 1,024
/// by default, and a crawl of many sites seldom comes back to one.
const TOTAL_MAX: usize = 512;

/// How many of the oldest are found at a time, so that a full pool is looked through once for many new connections.
const OLDEST_MAX: usize = 64;

impl Pool {
    pub(super) fn new(idle_timeout: Duration) -> Pool {
        Pool { idle_timeout, kept: Mutex::default() }
    }

    /// A kept connection that can take a request; one that speaks as wanted, if there is one.
    pub(super) async fn take(&self, origin: &Origin, speech: Speech) -> Option<Sender> {
        while let Some(mut sender) = self.pop(origin, speech) {
            if sender.is_ready().await {
                return Some(sender);
            }
        }
        None
    }

    fn pop(&self, origin: &Origin, speech: Speech) -> Option<Sender> {
        let now = clock::now();
        let mut kept = self.lock();
        let kept = &mut *kept;
        let idle = kept.by_origin.get_mut(origin)?;
        let sender = loop {
            // The one used last is the one least likely to be closed.
            let wanted = |connection: &Idle| connection.sender.is_http2() == (speech == Speech::Http2);
            let other = |connection: &Idle| speech == Speech::Http1 || connection.sender.is_all();
            let Some(at) = idle.iter().rposition(wanted).or_else(|| idle.iter().rposition(other)) else { break None };
            let connection = &mut idle[at];
            if !connection.is_usable_at(now, self.idle_timeout) {
                idle.remove(at);
                kept.total -= 1;
                continue;
            }
            if let Sender::Http2(sender) = &connection.sender {
                let sender = Sender::Http2(sender.clone());
                connection.since = now;
                break Some(sender);
            }
            kept.total -= 1;
            break Some(idle.remove(at).sender);
        };
        // It will be back in a moment; only among many origins an empty place is not worth its memory.
        if idle.is_empty() && kept.by_origin.len() > TOTAL_MAX {
            kept.by_origin.remove(origin);
        }
        sender
    }

    /// Lets others use a new connection at once, where it can take many requests.
    pub(super) fn share(self: &Arc<Self>, origin: &Origin, sender: &Sender) {
        if let Sender::Http2(sender) = sender {
            self.put(origin.clone(), Sender::Http2(sender.clone()));
        }
    }

    /// Takes a connection back whose last answer has been read.
    pub(super) fn keep(self: &Arc<Self>, origin: Origin, connection: Box<Http1>) {
        self.put(origin, Sender::Http1(connection));
    }

    /// Closes what is kept for an origin and used by nobody.
    pub(super) fn forget(&self, origin: &Origin) {
        let kept = &mut *self.lock();
        kept.total -= kept.by_origin.remove(origin).map_or(0, |idle| idle.len());
    }

    fn put(self: &Arc<Self>, origin: Origin, sender: Sender) {
        let now = clock::now();
        let kept = &mut *self.lock();
        if !std::mem::replace(&mut kept.is_looked_after, true) {
            tokio::spawn(look_after(Arc::downgrade(self)));
        }
        if kept.total >= TOTAL_MAX {
            kept.close_the_oldest();
        }
        let idle = kept.by_origin.entry(origin).or_default();
        // The new one is kept in any case: it may be the one that all requests could share.
        if idle.len() >= PER_ORIGIN_MAX
            && let Some(oldest) = (0..idle.len()).min_by_key(|&at| idle[at].since)
        {
            idle.remove(oldest);
            kept.total -= 1;
        }
        idle.push(Idle { sender, since: now });
        kept.total += 1;
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Between two looks at the connections that are kept. Chosen: what an origin has closed holds a file for no longer.
const LOOK_AFTER: Duration = Duration::from_secs(1);

/// Closes what its origin has closed, and what nobody has used for `idle_timeout`, as long as there is a pool and something in it.
async fn look_after(pool: Weak<Pool>) {
    loop {
        clock::sleep(LOOK_AFTER).await;
        let Some(pool) = pool.upgrade() else { return };
        let kept = &mut *pool.lock();
        kept.sweep(clock::now(), pool.idle_timeout);
        kept.is_looked_after = kept.total > 0;
        if !kept.is_looked_after {
            return;
        }
    }
}

impl Kept {
    fn sweep(&mut self, now: Instant, idle_timeout: Duration) {
        self.by_origin.retain(|_, idle| {
            idle.retain_mut(|connection| connection.is_usable_at(now, idle_timeout));
            !idle.is_empty()
        });
        self.total = self.by_origin.values().map(Vec::len).sum();
    }

    fn close_the_oldest(&mut self) {
        while self.total > 0 {
            match self.oldest.pop() {
                Some((since, origin)) if self.close(&origin, since) => return,
                Some(_) => {}
                None => self.find_the_oldest(),
            }
        }
    }

    fn find_the_oldest(&mut self) {
        let all = self.by_origin.iter();
        let mut all: Vec<_> = all.flat_map(|(origin, idle)| idle.iter().map(move |one| (one.since, origin))).collect();
        all.sort_unstable_by_key(|(since, _)| *since);
        self.oldest = all.into_iter().take(OLDEST_MAX).rev().map(|(since, origin)| (since, origin.clone())).collect();
    }

    /// Closes the connection of an origin that is unused since then; false where there is none.
    fn close(&mut self, origin: &Origin, since: Instant) -> bool {
        let Some(idle) = self.by_origin.get_mut(origin) else { return false };
        let Some(at) = idle.iter().position(|connection| connection.since == since) else { return false };
        idle.remove(at);
        self.total -= 1;
        if idle.is_empty() {
            self.by_origin.remove(origin);
        }
        true
    }
}

impl Idle {
    fn is_usable_at(&mut self, now: Instant, idle_timeout: Duration) -> bool {
        now.duration_since(self.since) < idle_timeout && !self.sender.is_closed()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hyper_util::rt::{TokioExecutor, TokioIo};

    use super::super::headers::Form;

    use super::*;

    /// A connection to nobody, and its other end.
    fn connection() -> (Box<Http1>, tokio::io::DuplexStream) {
        let (near, far) = tokio::io::duplex(1024);
        (Http1::new(Box::new(near), Form::Path, Duration::MAX), far)
    }

    fn origin(number: usize) -> Origin {
        Origin::of(&format!("http://h{number}.test/").parse().unwrap()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn of_too_many_connections_the_one_unused_for_longest_is_closed() {
        let pool = Arc::new(Pool::new(Duration::from_secs(3600)));
        let mut far_ends = Vec::new();
        for number in 0..TOTAL_MAX + 10 {
            let (sender, far) = connection();
            pool.keep(origin(number), sender);
            far_ends.push(far);
            clock::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(pool.lock().total, TOTAL_MAX);
        assert!(
            pool.take(&origin(9), Speech::Http1).await.is_none()
                && pool.take(&origin(10), Speech::Http1).await.is_some()
        );
        assert!(pool.take(&origin(TOTAL_MAX + 9), Speech::Http1).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_was_used_again_is_not_among_the_oldest() {
        let pool = Arc::new(Pool::new(Duration::from_secs(3600)));
        let mut far_ends = Vec::new();
        for number in 0..TOTAL_MAX + 1 {
            let (sender, far) = connection();
            pool.keep(origin(number), sender);
            far_ends.push(far);
            clock::sleep(Duration::from_millis(1)).await;
        }
        // The first is closed by now, and the next ones are known to be the oldest.
        let Some(Sender::Http1(used)) = pool.take(&origin(1), Speech::Http1).await else { panic!("it is kept") };
        pool.keep(origin(1), used);
        for number in 0..OLDEST_MAX {
            let (sender, far) = connection();
            pool.keep(origin(TOTAL_MAX + 1 + number), sender);
            far_ends.push(far);
            clock::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(pool.lock().total, TOTAL_MAX);
        let is_kept = async |number: usize| pool.take(&origin(number), Speech::Http1).await.is_some();
        assert!(is_kept(1).await && !is_kept(OLDEST_MAX + 1).await && is_kept(OLDEST_MAX + 2).await);
    }

    #[tokio::test(start_paused = true)]
    async fn an_origin_with_its_share_of_connections_still_gets_one_that_can_be_shared() {
        let pool = Arc::new(Pool::new(Duration::from_secs(3600)));
        let mut far_ends = Vec::new();
        for _ in 0..PER_ORIGIN_MAX {
            let (sender, far) = connection();
            pool.keep(origin(1), sender);
            far_ends.push(far);
            clock::sleep(Duration::from_millis(1)).await;
        }
        let (near, _far) = tokio::io::duplex(1024);
        let (sender, connection) =
            http2::handshake::<_, _, RequestBody>(TokioExecutor::new(), TokioIo::new(near)).await.unwrap();
        tokio::spawn(connection);
        pool.share(&origin(1), &Sender::Http2(sender));
        assert_eq!(pool.lock().total, PER_ORIGIN_MAX);
        assert!(pool.take(&origin(1), Speech::Http2).await.is_some_and(|sender| sender.is_http2()));
        assert_eq!(pool.lock().by_origin[&origin(1)].len(), PER_ORIGIN_MAX);
    }
}
