//! Open connections that wait for their next request.
//!
//! An HTTP/1.1 connection is in the pool while nobody uses it, an HTTP/2 one as long as it lives, since many requests share it. Both
//! are bounded: per origin, and by `idle_timeout`, which is checked whenever the pool is touched; what the origin closes is found out
//! when it is taken.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::{BoxFuture, TryFutureExt};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};

use super::Speech;
use super::headers::Form;
use super::upload::RequestBody;
use crate::clock;
use crate::policy::target::Origin;

/// The sending half of one connection.
#[derive(Debug)]
pub(super) enum Sender {
    /// One request after another, each with its target in this form.
    Http1(Http1),
    /// Many at once.
    Http2(http2::SendRequest<RequestBody>),
}

/// A request that failed, with the request itself where it was never written.
#[derive(Debug)]
pub(super) struct Lost {
    /// What happened.
    pub(super) error: hyper::Error,
    /// The request, whole, if it can be sent again.
    pub(super) request: Option<Request<RequestBody>>,
}

/// A connection with one request at a time.
#[derive(Debug)]
pub(super) struct Http1 {
    pub(super) sender: http1::SendRequest<RequestBody>,
    pub(super) form: Form,
    /// Whether the origin was offered HTTP/2, too, and this is all it speaks.
    pub(super) is_all: bool,
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

    /// How requests on it name their target.
    pub(super) fn form(&self) -> &Form {
        match self {
            Sender::Http1(http1) => &http1.form,
            Sender::Http2(_) => &Form::Http2,
        }
    }

    /// Sends a request; the future waits for the head of the answer. In a box, since it has room for the whole request, in case that
    /// this is given back, and whoever waits for it would have that room, too.
    pub(super) fn send(
        &mut self,
        request: Request<RequestBody>,
    ) -> BoxFuture<'static, Result<Response<Incoming>, Lost>> {
        let lost = |mut error: TrySendError<_>| Lost { request: error.take_message(), error: error.into_error() };
        match self {
            Sender::Http1(http1) => Box::pin(http1.sender.try_send_request(request).map_err(lost)),
            Sender::Http2(sender) => Box::pin(sender.try_send_request(request).map_err(lost)),
        }
    }

    /// Waits until the connection can take a request; false where it is closed.
    async fn is_ready(&mut self) -> bool {
        match self {
            Sender::Http1(http1) => http1.sender.ready().await.is_ok(),
            Sender::Http2(sender) => sender.ready().await.is_ok(),
        }
    }

    fn is_closed(&self) -> bool {
        match self {
            Sender::Http1(http1) => http1.sender.is_closed(),
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
    by_origin: HashMap<Origin, Vec<Idle>>,
    /// Connections of all origins.
    total: usize,
    /// Those unused for longest, the very oldest last, as of when all were last looked through: what has come since is younger. Some
    /// have been used or closed meanwhile.
    oldest: Vec<(Instant, Origin)>,
    next_sweep: Option<Instant>,
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
    pub(super) fn share(&self, origin: &Origin, sender: &Sender) {
        if let Sender::Http2(sender) = sender {
            self.put(origin.clone(), Sender::Http2(sender.clone()));
        }
    }

    /// Takes a connection back whose last answer has been read.
    pub(super) fn keep(&self, origin: Origin, sender: Sender) {
        if !sender.is_http2() && !sender.is_closed() {
            self.put(origin, sender);
        }
    }

    /// Closes what is kept for an origin and used by nobody.
    pub(super) fn forget(&self, origin: &Origin) {
        let kept = &mut *self.lock();
        kept.total -= kept.by_origin.remove(origin).map_or(0, |idle| idle.len());
    }

    fn put(&self, origin: Origin, sender: Sender) {
        let now = clock::now();
        let kept = &mut *self.lock();
        kept.sweep(now, self.idle_timeout);
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

impl Kept {
    /// Closes what nobody has used for `idle_timeout`, once per that time.
    fn sweep(&mut self, now: Instant, idle_timeout: Duration) {
        if self.next_sweep.is_some_and(|at| now < at) {
            return;
        }
        self.next_sweep = Some(now + idle_timeout);
        self.by_origin.retain(|_, idle| {
            idle.retain(|connection| connection.is_usable_at(now, idle_timeout));
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
    fn is_usable_at(&self, now: Instant, idle_timeout: Duration) -> bool {
        !self.sender.is_closed() && now.duration_since(self.since) < idle_timeout
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hyper_util::rt::{TokioExecutor, TokioIo};

    use super::*;

    /// A connection to nobody, and its other end.
    async fn connection() -> (Sender, tokio::io::DuplexStream) {
        let (near, far) = tokio::io::duplex(1024);
        let (sender, connection) = http1::handshake::<_, RequestBody>(TokioIo::new(near)).await.unwrap();
        tokio::spawn(connection);
        (Sender::Http1(Http1 { sender, form: Form::Path, is_all: false }), far)
    }

    fn origin(number: usize) -> Origin {
        Origin::of(&format!("http://h{number}.test/").parse().unwrap()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn of_too_many_connections_the_one_unused_for_longest_is_closed() {
        let pool = Pool::new(Duration::from_secs(3600));
        let mut far_ends = Vec::new();
        for number in 0..TOTAL_MAX + 10 {
            let (sender, far) = connection().await;
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
        let pool = Pool::new(Duration::from_secs(3600));
        let mut far_ends = Vec::new();
        for number in 0..TOTAL_MAX + 1 {
            let (sender, far) = connection().await;
            pool.keep(origin(number), sender);
            far_ends.push(far);
            clock::sleep(Duration::from_millis(1)).await;
        }
        // The first is closed by now, and the next ones are known to be the oldest.
        let used = pool.take(&origin(1), Speech::Http1).await.unwrap();
        pool.keep(origin(1), used);
        for number in 0..OLDEST_MAX {
            let (sender, far) = connection().await;
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
        let pool = Pool::new(Duration::from_secs(3600));
        let mut far_ends = Vec::new();
        for _ in 0..PER_ORIGIN_MAX {
            let (sender, far) = connection().await;
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
