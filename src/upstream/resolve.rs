//! From names to addresses, through the system's resolver.
//!
//! The system is asked rather than a resolver of our own, so that `/etc/hosts`, search domains and split DNS hold here as everywhere
//! on the machine. It tells no lifetimes, so what it says is kept for a fixed short while. One question at a time per name: it runs
//! in a thread that cannot be called back, and a crawl asks for one name many times at once. Failures are not kept.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::{BoxFuture, FutureExt, Shared};
use moka::policy::EvictionPolicy;
use moka::sync::Cache;

use crate::clock;
use crate::policy::target::Host;

/// The addresses of a name, as the system orders them (RFC 6724); never none.
type Addresses = Result<Arc<[IpAddr]>, Arc<io::Error>>;

/// Asks the system about a name.
type Ask = dyn Fn(&Host) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> + Send + Sync;

/// Resolves names, and remembers them for a moment.
pub(super) struct Resolver {
    ask: Box<Ask>,
    kept: Cache<Host, Question>,
}

/// A question under way, or its answer.
#[derive(Clone)]
struct Question {
    asked_at: Instant,
    answer: Shared<BoxFuture<'static, Addresses>>,
}

/// About the shortest lifetime that operators give to names that they move in an emergency, and long enough that robots.txt and
/// the pages after it share one answer.
const KEPT_FOR: Duration = Duration::from_secs(30);

/// Names kept: more than a crawler meets in [`KEPT_FOR`]; a few MB.
const KEPT: u64 = 10_000;

impl Resolver {
    /// The system's resolver.
    pub(super) fn system() -> Resolver {
        Resolver::asking(|host| {
            let host = host.clone();
            async move { Ok(tokio::net::lookup_host((host.as_str(), 0)).await?.map(|found| found.ip()).collect()) }
                .boxed()
        })
    }

    /// Another source of addresses.
    pub(super) fn asking(
        ask: impl Fn(&Host) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> + Send + Sync + 'static,
    ) -> Resolver {
        let kept = Cache::builder().max_capacity(KEPT).eviction_policy(EvictionPolicy::lru()).build();
        Resolver { ask: Box::new(ask), kept }
    }

    /// The addresses of a host.
    pub(super) async fn addresses(&self, host: &Host) -> Addresses {
        if let Some(address) = host.ip() {
            return Ok([address].into());
        }
        let now = clock::now();
        let known = self.kept.get(host).filter(|question| question.is_usable_at(now));
        let question = known.unwrap_or_else(|| {
            let question = Question { asked_at: now, answer: self.ask(host) };
            self.kept.insert(host.clone(), question.clone());
            question
        });
        question.answer.await
    }

    fn ask(&self, host: &Host) -> Shared<BoxFuture<'static, Addresses>> {
        let asking = (self.ask)(host);
        let answer = async move {
            match asking.await {
                Ok(found) if found.is_empty() => {
                    Err(Arc::new(io::Error::new(io::ErrorKind::NotFound, "it has no address")))
                }
                Ok(found) => Ok(found.into()),
                Err(error) => Err(Arc::new(error)),
            }
        };
        answer.boxed().shared()
    }
}

impl Question {
    fn is_usable_at(&self, now: Instant) -> bool {
        let failed = self.answer.peek().is_some_and(|answer| answer.is_err());
        !failed && now.duration_since(self.asked_at) < KEPT_FOR
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Fails the first time, and gives another address each time after that.
    fn counting() -> (Resolver, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        let resolver = Resolver::asking(move |_| {
            let number = counted.fetch_add(1, Ordering::SeqCst);
            async move {
                clock::sleep(Duration::from_secs(1)).await;
                match number {
                    0 => Err(io::Error::other("no resolver")),
                    number => Ok(vec![IpAddr::from([127, 0, 0, number as u8])]),
                }
            }
            .boxed()
        });
        (resolver, asked)
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_kept_for_a_moment_and_a_failure_is_not() {
        let (resolver, asked) = counting();
        let host = Host::parse("a.test").unwrap();
        assert_eq!(resolver.addresses(&host).await.unwrap_err().to_string(), "no resolver");
        let at_once = futures_util::future::join_all((0..10).map(|_| resolver.addresses(&host))).await;
        assert!(at_once.iter().all(|answer| answer.as_ref().unwrap()[0] == IpAddr::from([127, 0, 0, 1])));
        assert_eq!(asked.load(Ordering::SeqCst), 2, "one question for all who ask at once");
        clock::sleep(KEPT_FOR - Duration::from_secs(2)).await;
        assert_eq!(resolver.addresses(&host).await.unwrap()[0], IpAddr::from([127, 0, 0, 1]));
        clock::sleep(Duration::from_secs(1)).await;
        assert_eq!(resolver.addresses(&host).await.unwrap()[0], IpAddr::from([127, 0, 0, 2]));
    }

    #[tokio::test]
    async fn an_address_needs_no_resolver() {
        let (resolver, asked) = counting();
        for (host, address) in [("127.0.0.1", "127.0.0.1"), ("[::1]", "::1"), ("0x7f.1", "127.0.0.1")] {
            let found = resolver.addresses(&Host::parse(host).unwrap()).await.unwrap();
            assert_eq!(*found, [address.parse::<IpAddr>().unwrap()], "{host}");
        }
        assert_eq!(asked.load(Ordering::SeqCst), 0);
    }
}
