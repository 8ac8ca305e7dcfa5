//! Ceilings that are the same for every client.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption, Guard};
use governor::clock::{Clock, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::error::Refusal;
use crate::metrics::{OneOpen, Open};
use crate::policy::reason::Reason;

/// The ceilings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Client connections at once; further ones wait to be accepted.
    pub connections: usize,
    /// Requests of one client address, and per what time; `None` is no limit.
    pub per_client: Option<(NonZeroU32, Duration)>,
    /// To receive a request head.
    pub header_timeout: Duration,
    /// To receive the next piece of a request's body.
    pub body_timeout: Duration,
    /// Octets of a request head.
    pub header_bytes: usize,
    /// How long running requests may take to finish when the proxy stops.
    pub drain: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            connections: 10_000,
            per_client: None,
            header_timeout: Duration::from_secs(15),
            body_timeout: Duration::from_secs(60),
            header_bytes: 64 * 1024,
            drain: Duration::from_secs(30),
        }
    }
}

/// The ceilings at work.
pub struct Limits {
    settings: ArcSwap<Settings>,
    connections: Arc<Semaphore>,
    open: Open,
    per_client: ArcSwapOption<DefaultKeyedRateLimiter<IpAddr>>,
    clock: DefaultClock,
}

/// Counts a client's connection for as long as it lives.
#[derive(Debug)]
pub struct Connection {
    _permit: OwnedSemaphorePermit,
    _counted: OneOpen,
}

/// Addresses that the limiter remembers before it forgets those that may send again.
const ADDRESSES_KEPT: usize = 10_000;

impl Limits {
    /// Nothing counted yet.
    pub fn new(settings: Settings) -> Limits {
        Limits {
            connections: Arc::new(Semaphore::new(settings.connections)),
            open: Open::default(),
            per_client: ArcSwapOption::new(limiter(&settings)),
            settings: ArcSwap::from_pointee(settings),
            clock: DefaultClock::default(),
        }
    }

    /// The settings.
    pub fn settings(&self) -> Guard<Arc<Settings>> {
        self.settings.load()
    }

    /// Takes other settings. Open connections stay, and count; where there are too many of them, new ones wait.
    pub fn reload(&self, settings: Settings) {
        let before = self.settings.swap(Arc::new(settings.clone()));
        if settings.per_client != before.per_client {
            self.per_client.store(limiter(&settings));
        }
        match settings.connections.checked_sub(before.connections) {
            Some(more) => self.connections.add_permits(more),
            None => {
                let (connections, fewer) = (Arc::clone(&self.connections), before.connections - settings.connections);
                // In line with those who wait to be accepted, as connections end.
                tokio::spawn(async move {
                    let permits = connections.acquire_many_owned(u32::try_from(fewer).unwrap_or(u32::MAX)).await;
                    permits.expect("the semaphore is never closed").forget();
                });
            }
        }
    }

    /// Waits until a further connection may be accepted; it counts until the permit is dropped.
    pub async fn connection(&self) -> OwnedSemaphorePermit {
        Arc::clone(&self.connections).acquire_owned().await.expect("the semaphore is never closed")
    }

    /// The connection that was accepted with a permit.
    pub fn accepted(&self, permit: OwnedSemaphorePermit) -> Connection {
        Connection { _permit: permit, _counted: self.open.one() }
    }

    /// Open connections.
    pub fn connections(&self) -> u64 {
        self.open.count()
    }

    /// Counts a request of a client.
    ///
    /// # Errors
    /// The client sends more than `per_client`.
    pub fn request(&self, client: IpAddr) -> Result<(), Refusal> {
        let Some(limiter) = &*self.per_client.load() else { return Ok(()) };
        if limiter.len() > ADDRESSES_KEPT {
            limiter.retain_recent();
        }
        limiter.check_key(&client).map_err(|not_yet| Refusal {
            retry_after: Some(not_yet.wait_time_from(self.clock.now())),
            ..Refusal::new(Reason::ClientLimit, format!("{client} sends more requests than limits.per_client allows"))
        })
    }
}

fn limiter(settings: &Settings) -> Option<Arc<DefaultKeyedRateLimiter<IpAddr>>> {
    let (requests, period) = settings.per_client?;
    let quota = Quota::with_period(period / requests.get())?.allow_burst(requests);
    Some(Arc::new(RateLimiter::keyed(quota)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    fn settings(connections: usize, per_client: Option<u32>) -> Settings {
        let per_client = per_client.map(|number| (number.try_into().unwrap(), Duration::from_secs(3600)));
        Settings { connections, per_client, ..Settings::default() }
    }

    async fn is_accepted(limits: &Limits) -> Option<OwnedSemaphorePermit> {
        clock::timeout(Duration::from_secs(1), limits.connection()).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_reload_counts_the_connections_that_are_open() {
        let limits = Limits::new(settings(3, None));
        let mut open = Vec::new();
        for _ in 0..3 {
            open.push(limits.connection().await);
        }
        assert!(is_accepted(&limits).await.is_none());
        limits.reload(settings(4, None));
        open.push(is_accepted(&limits).await.unwrap());
        limits.reload(settings(2, None));
        tokio::task::yield_now().await;
        open.truncate(2);
        assert!(is_accepted(&limits).await.is_none(), "two are open, and two may be");
        open.truncate(1);
        open.push(is_accepted(&limits).await.unwrap());
        assert!(is_accepted(&limits).await.is_none());
    }

    #[tokio::test]
    async fn a_reload_forgets_what_clients_have_sent_only_where_that_limit_changes() {
        let (limits, client) = (Limits::new(settings(1, Some(1))), IpAddr::from([192, 0, 2, 1]));
        assert!(limits.request(client).is_ok() && limits.request(client).is_err());
        limits.reload(settings(2, Some(1)));
        assert!(limits.request(client).is_err());
        limits.reload(settings(2, Some(2)));
        assert!(limits.request(client).is_ok());
        limits.reload(settings(2, None));
        assert!((0..10).all(|_| limits.request(client).is_ok()));
    }
}
