//! Real parts for the tests: an origin that does as it is told, the proxy in this process, curl, bare sockets, and the program.
//!
//! Everything listens on port 0 of loopback, keeps its files in a temporary folder and is gone when it is dropped. Nothing sleeps
//! for luck: a test waits for an event, and [`in_time`] turns an event that never comes into a failure.

pub(crate) mod authority;
pub(crate) mod curl;
pub(crate) mod devtools;
pub(crate) mod http2;
pub(crate) mod origin;
pub(crate) mod parent;
pub(crate) mod program;
pub(crate) mod proxy;
pub(crate) mod wire;

use std::future::Future;
use std::time::Duration;

use robots_proxy::clock;

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// What `work` yields; the test fails where it does not come.
pub(crate) async fn in_time<F: Future>(what: &str, work: F) -> F::Output {
    clock::timeout(PATIENCE, work).await.unwrap_or_else(|| panic!("waited in vain for {what}"))
}

/// Looks again and again until there is something to see: for what tells nobody that it has happened, such as a line in a file.
pub(crate) async fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let looking = async {
        loop {
            if let Some(seen) = look() {
                return seen;
            }
            clock::sleep(Duration::from_millis(5)).await;
        }
    };
    in_time(what, looking).await
}

/// The practice shop's robots.txt, which the twelve questions are about.
pub(crate) const SHOP_ROBOTS: &str = include_str!("../../fixtures/practice-shop-robots.txt");
