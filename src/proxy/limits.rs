//! Ceilings that are the same for every client.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use governor::clock::{Clock, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::error::Refusal;
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
    connections: Arc<Semaphore>,
    per_client: Option<DefaultKeyedRateLimiter<IpAddr>>,
    /// To receive the next piece of a request's body.
    pub(super) body_timeout: Duration,
    clock: DefaultClock,
}

/// Addresses that the limiter remembers before it forgets those that may send again.
const ADDRESSES_KEPT: usize = 10_000;

impl Limits {
    /// Nothing counted yet.
    pub fn new(settings: &Settings) -> Limits {
        let quota = settings
            .per_client
            .and_then(|(requests, period)| Some(Quota::with_period(period / requests.get())?.allow_burst(requests)));
        Limits {
            connections: Arc::new(Semaphore::new(settings.connections)),
            per_client: quota.map(RateLimiter::keyed),
            body_timeout: settings.body_timeout,
            clock: DefaultClock::default(),
        }
    }

    /// Waits until a further connection may be accepted; it counts until the permit is dropped.
    pub async fn connection(&self) -> OwnedSemaphorePermit {
        Arc::clone(&self.connections).acquire_owned().await.expect("the semaphore is never closed")
    }

    /// Counts a request of a client.
    ///
    /// # Errors
    /// The client sends more than `per_client`.
    pub fn request(&self, client: IpAddr) -> Result<(), Refusal> {
        let Some(limiter) = &self.per_client else { return Ok(()) };
        if limiter.len() > ADDRESSES_KEPT {
            limiter.retain_recent();
        }
        limiter.check_key(&client).map_err(|not_yet| Refusal {
            retry_after: Some(not_yet.wait_time_from(self.clock.now())),
            ..Refusal::new(Reason::ClientLimit, format!("{client} sends more requests than limits.per_client allows"))
        })
    }
}
