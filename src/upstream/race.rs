//! Connecting to whichever of a host's addresses answers first (Happy Eyeballs, RFC 8305).
//!
//! A host with a dead IPv6 route must not cost its visitors a time-out. So the families take turns, beginning with the one that the
//! system puts first, and the next address is tried when the last one has failed or has not answered for a quarter of a second. The
//! attempts that lose are dropped, and with them their sockets.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use crate::clock;

/// RFC 8305 §5: the recommended delay between attempts.
const STAGGER: Duration = Duration::from_millis(250);

/// What the first successful of `connect`'s attempts yields; the first failure where there is none. `addresses` are never none.
pub(super) async fn race<T, F>(addresses: &[SocketAddr], connect: impl Fn(SocketAddr) -> F) -> io::Result<T>
where
    F: Future<Output = io::Result<T>>,
{
    let mut waiting = in_turns(addresses);
    let mut running = FuturesUnordered::new();
    let mut failure = None;
    while let Some(next) = waiting.pop_front() {
        running.push(connect(next));
        tokio::select! {
            Some(attempt) = running.next() => match attempt {
                Ok(connected) => return Ok(connected),
                Err(error) => failure = failure.or(Some(error)),
            },
            () = clock::sleep(STAGGER) => {}
        }
    }
    while let Some(attempt) = running.next().await {
        match attempt {
            Ok(connected) => return Ok(connected),
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    Err(failure.unwrap_or_else(|| io::ErrorKind::NotFound.into()))
}

/// RFC 8305 §4: the families alternate, each in the order that the system gives.
fn in_turns(addresses: &[SocketAddr]) -> VecDeque<SocketAddr> {
    let first_is_v6 = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (first, second): (Vec<SocketAddr>, Vec<SocketAddr>) =
        addresses.iter().copied().partition(|address| address.is_ipv6() == first_is_v6);
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    let mut turns = VecDeque::with_capacity(addresses.len());
    while turns.len() < addresses.len() {
        turns.extend(first.next());
        turns.extend(second.next());
    }
    turns
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Instant;

    use super::*;

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| format!("{text}:443").parse().unwrap()).collect()
    }

    #[test]
    fn rfc8305_4_the_families_take_turns() {
        let turns = in_turns(&addresses(&["[::1]", "[::2]", "[::3]", "1.1.1.1", "1.1.1.2"]));
        assert_eq!(Vec::from(turns), addresses(&["[::1]", "1.1.1.1", "[::2]", "1.1.1.2", "[::3]"]));
        let turns = in_turns(&addresses(&["1.1.1.1", "1.1.1.2", "[::1]"]));
        assert_eq!(Vec::from(turns), addresses(&["1.1.1.1", "[::1]", "1.1.1.2"]));
    }

    /// Runs a race of made-up addresses: `silent` ones never answer, `dead` ones fail at once, others connect after 10 ms.
    async fn run(silent: &[&str], dead: &[&str], all: &[&str]) -> (io::Result<SocketAddr>, Vec<(String, u128)>) {
        let (silent, dead, all) = (addresses(silent), addresses(dead), addresses(all));
        let (began, tried): (Instant, Mutex<Vec<(String, u128)>>) = (clock::now(), Mutex::default());
        let connected = race(&all, |address| {
            tried.lock().unwrap().push((address.ip().to_string(), (clock::now() - began).as_millis()));
            let (silent, dead) = (silent.contains(&address), dead.contains(&address));
            async move {
                match (silent, dead) {
                    (true, _) => std::future::pending().await,
                    (_, true) => Err(io::ErrorKind::ConnectionRefused.into()),
                    _ => {
                        clock::sleep(Duration::from_millis(10)).await;
                        Ok(address)
                    }
                }
            }
        });
        let connected = clock::timeout(Duration::from_secs(10), connected).await;
        (connected.unwrap_or(Err(io::ErrorKind::TimedOut.into())), tried.into_inner().unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn rfc8305_5_attempts_are_staggered_and_a_failure_moves_on_at_once() {
        let at = |address: &str, time: u128| (address.to_owned(), time);
        let all = ["[::1]", "[::2]", "1.1.1.1"];
        let (connected, tried) = run(&[], &[], &all).await;
        assert_eq!((connected.unwrap().ip().to_string(), tried), ("::1".into(), vec![at("::1", 0)]));
        let (connected, tried) = run(&["[::1]"], &[], &all).await;
        assert_eq!(connected.unwrap().ip().to_string(), "1.1.1.1");
        assert_eq!(tried, [at("::1", 0), at("1.1.1.1", 250)]);
        let (connected, tried) = run(&["1.1.1.1"], &["[::1]"], &all).await;
        assert_eq!(connected.unwrap().ip().to_string(), "::2");
        assert_eq!(tried, [at("::1", 0), at("1.1.1.1", 0), at("::2", 250)]);
        let (connected, tried) = run(&[], &all, &all).await;
        assert_eq!(connected.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(tried.len(), 3);
        let (connected, _) = run(&all, &[], &all).await;
        assert_eq!(connected.unwrap_err().kind(), io::ErrorKind::TimedOut, "the caller's time-out is over all");
    }
}
