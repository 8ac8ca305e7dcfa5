//! The line of waiting requests in front of each host, one per bot.
//!
//! First come, first served: a request joins at the end, comes to the head, waits there until its slot has come, opens its
//! connection, and starts. Only the head watches the clock, and nothing is reserved for those behind it, so a request whose client
//! hangs up leaves by being dropped and costs nobody a slot. Ready-made limiters do not fit: they poll, keep no order, bound no wait, and have one rate for all hosts. The
//! arithmetic is in [`crate::policy::pacing`].

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::clock;
use crate::policy::identity::Token;
use crate::policy::pacing::{self, Settings};
use crate::policy::target::Host;

/// Which line a request waits in: both schemes and all ports of a host share one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LineKey {
    host: Host,
    bot: String,
}

impl LineKey {
    /// The line of a bot at a host; bots are told apart without regard to case (RFC 9309 §2.2.1).
    pub fn new(host: &Host, token: &Token) -> LineKey {
        LineKey { host: host.clone(), bot: token.as_str().to_ascii_lowercase() }
    }
}

/// All lines.
#[derive(Debug)]
pub struct Queue {
    settings: Settings,
    lines: Mutex<Lines>,
}

/// Guarded by one mutex, never held across an await: every operation is a few comparisons.
#[derive(Debug, Default)]
struct Lines {
    by_key: HashMap<LineKey, Line>,
    next_ticket: u64,
    /// The number of lines at which idle ones are looked for: twice what was left the last time.
    sweep_at: usize,
}

#[derive(Debug, Default)]
struct Line {
    waiting: VecDeque<(u64, Arc<Notify>)>,
    gap: Duration,
    previous_start: Option<Instant>,
    /// The request whose answer's head has not come yet, and when that stops mattering.
    unanswered: Option<(u64, Instant)>,
}

/// Why a request may not join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// `pace.max_queue` requests wait already.
    Full {
        /// How long the request would wait.
        wait: Duration,
    },
    /// The turn would come later than the request can wait.
    TooLong {
        /// How long the request would wait.
        wait: Duration,
    },
}

/// The next start waits for the head of the previous answer, but not for ever: a server that takes longer is not waiting for us.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(30);

/// Lines below this number are not worth a search for idle ones.
const SWEEP_MIN: usize = 64;

impl Queue {
    /// No lines yet.
    pub fn new(settings: Settings) -> Arc<Queue> {
        Arc::new(Queue { settings, lines: Mutex::default() })
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Joins the line for a host at which `gap` is in force, for a request that can wait for `patience`.
    ///
    /// # Errors
    /// The line is full, or the turn would come too late, as known on arrival.
    pub fn join(self: &Arc<Self>, key: LineKey, gap: Duration, patience: Duration) -> Result<Place, Refused> {
        let now = clock::now();
        let mut lines = self.lock();
        if gap.is_zero() && !lines.by_key.contains_key(&key) {
            return Ok(Place { queue: None, key, ticket: 0, turn: Arc::default(), joined: now });
        }
        lines.sweep(now);
        lines.next_ticket += 1;
        let ticket = lines.next_ticket;
        let line = lines.by_key.entry(key.clone()).or_default();
        line.gap = gap;
        let wait = pacing::predicted_wait(line.previous_start, gap, line.waiting.len(), now);
        if line.waiting.len() >= self.settings.max_queue {
            return Err(Refused::Full { wait });
        }
        if wait > patience {
            return Err(Refused::TooLong { wait });
        }
        let turn = Arc::new(Notify::new());
        line.waiting.push_back((ticket, Arc::clone(&turn)));
        Ok(Place { queue: Some(Arc::clone(self)), key, ticket, turn, joined: now })
    }

    /// How long a request would wait that came now.
    pub fn predict(&self, key: &LineKey, gap: Duration) -> Duration {
        let lines = self.lock();
        let line = lines.by_key.get(key);
        let (previous, waiting) = line.map_or((None, 0), |line| (line.previous_start, line.waiting.len()));
        pacing::predicted_wait(previous, gap, waiting, clock::now())
    }

    /// Waiting requests in all lines.
    pub fn len(&self) -> usize {
        self.lock().by_key.values().map(|line| line.waiting.len()).sum()
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a waiting request has to wait for.
    fn wait_of(&self, place: &Place, gap: Duration) -> Wait {
        let now = clock::now();
        let mut lines = self.lock();
        let Some(line) = lines.by_key.get_mut(&place.key) else { return Wait::Over };
        if !line.is_head(place.ticket) {
            return Wait::Turn;
        }
        line.gap = gap;
        let unanswered = line.unanswered.filter(|(_, until)| !self.settings.overlap && !gap.is_zero() && *until > now);
        let slot = pacing::next_slot(line.previous_start, gap, now);
        match unanswered {
            _ if slot > now => Wait::Until(slot),
            Some((_, until)) => Wait::Until(until),
            None => Wait::Over,
        }
    }
}

enum Wait {
    /// For those in front.
    Turn,
    /// For the slot, or the previous answer.
    Until(Instant),
    /// For nothing: the slot has come.
    Over,
}

impl Lines {
    /// Forgets the lines that nobody waits in and whose delay has passed. The cost is spread: the number of lines has doubled.
    fn sweep(&mut self, now: Instant) {
        if self.by_key.len() < self.sweep_at.max(SWEEP_MIN) {
            return;
        }
        self.by_key.retain(|_, line| !line.is_idle_at(now));
        self.sweep_at = 2 * self.by_key.len();
    }
}

impl Line {
    fn is_idle_at(&self, now: Instant) -> bool {
        self.waiting.is_empty() && pacing::next_slot(self.previous_start, self.gap, now) <= now
    }

    fn is_head(&self, ticket: u64) -> bool {
        self.waiting.front().is_some_and(|(head, _)| *head == ticket)
    }

    /// Takes a request out of the line and, where it was the head, tells the next one.
    fn leave(&mut self, ticket: u64) {
        let was_head = self.is_head(ticket);
        self.waiting.retain(|(waiting, _)| *waiting != ticket);
        if was_head {
            self.wake_head();
        }
    }

    fn wake_head(&self) {
        if let Some((_, turn)) = self.waiting.front() {
            turn.notify_one();
        }
    }
}

/// A request's place in a line; dropping it leaves the line.
#[derive(Debug)]
pub struct Place {
    /// `None` where the host has no delay and there is no line to wait in.
    queue: Option<Arc<Queue>>,
    key: LineKey,
    ticket: u64,
    turn: Arc<Notify>,
    joined: Instant,
}

impl Place {
    /// Whether there is a line at all.
    pub fn is_paced(&self) -> bool {
        self.queue.is_some()
    }

    /// Waits until this request is at the head and its slot has come, without taking it. `gap` is the delay now in force.
    pub async fn ready(&self, gap: Duration) {
        let Some(queue) = &self.queue else { return };
        loop {
            match queue.wait_of(self, gap) {
                Wait::Over => return,
                Wait::Turn => self.turn.notified().await,
                Wait::Until(instant) => tokio::select! {
                    () = clock::sleep_until(instant) => {}
                    () = self.turn.notified() => {}
                },
            }
        }
    }

    /// Takes the slot: the request starts now. Comes after [`Place::ready`], with an open connection at hand.
    pub fn start(self) -> Start {
        let now = clock::now();
        if let Some(queue) = &self.queue
            && let Some(line) = queue.lock().by_key.get_mut(&self.key)
        {
            line.previous_start = Some(now);
            line.unanswered = Some((self.ticket, now + ANSWER_WAIT_MAX));
        }
        // Dropping the place makes room for the next one.
        Start {
            queue: self.queue.clone(),
            key: self.key.clone(),
            ticket: self.ticket,
            waited: now.duration_since(self.joined),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(queue) = &self.queue else { return };
        if let Some(line) = queue.lock().by_key.get_mut(&self.key) {
            line.leave(self.ticket);
        }
    }
}

/// A request that has started; dropping it (the head of its answer has come, or never will) lets the next one follow.
#[derive(Debug)]
pub struct Start {
    queue: Option<Arc<Queue>>,
    key: LineKey,
    ticket: u64,
    waited: Duration,
}

impl Start {
    /// How long the request was in the line.
    pub fn waited(&self) -> Duration {
        self.waited
    }
}

impl Drop for Start {
    fn drop(&mut self) {
        let Some(queue) = &self.queue else { return };
        if let Some(line) = queue.lock().by_key.get_mut(&self.key)
            && line.unanswered.is_some_and(|(ticket, _)| ticket == self.ticket)
        {
            line.unanswered = None;
            line.wake_head();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn key(host: &str) -> LineKey {
        LineKey::new(&Host::parse(host).unwrap(), &"Bot".parse().unwrap())
    }

    fn queue(settings: Settings) -> Arc<Queue> {
        Queue::new(settings)
    }

    /// Starts a request and sees its answer at once; returns when it started, in milliseconds.
    async fn request(queue: &Arc<Queue>, host: &str, gap: Duration, began: Instant) -> u128 {
        let place = queue.join(key(host), gap, 60 * SECOND).unwrap();
        place.ready(gap).await;
        drop(place.start());
        clock::now().duration_since(began).as_millis()
    }

    #[tokio::test(start_paused = true)]
    async fn starts_are_a_gap_apart_and_in_order_of_arrival() {
        let (queue, began) = (queue(Settings::default()), clock::now());
        let starts = futures_util::future::join_all((0..5).map(|_| request(&queue, "a.test", SECOND, began))).await;
        assert_eq!(starts, [0, 1000, 2000, 3000, 4000]);
    }

    #[tokio::test(start_paused = true)]
    async fn another_host_is_not_delayed() {
        let (queue, began) = (queue(Settings::default()), clock::now());
        let hosts = ["a.test", "a.test", "b.test", "b.test"];
        let starts = futures_util::future::join_all(hosts.map(|host| request(&queue, host, SECOND, began))).await;
        assert_eq!(starts, [0, 1000, 0, 1000]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_leaves_costs_nobody_a_slot() {
        let (queue, began) = (queue(Settings::default()), clock::now());
        request(&queue, "a.test", SECOND, began).await;
        let places: Vec<Place> = (0..3).map(|_| queue.join(key("a.test"), SECOND, 60 * SECOND).unwrap()).collect();
        let last = tokio::spawn({
            let queue = Arc::clone(&queue);
            async move { request(&queue, "a.test", SECOND, began).await }
        });
        tokio::task::yield_now().await;
        drop(places);
        assert_eq!(last.await.unwrap(), 1000);
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_start_waits_for_the_head_of_the_previous_answer() {
        for (overlap, answer_after, next_start) in [(false, 5, 5000), (true, 5, 1000), (false, 90, 30_000)] {
            let (queue, began) = (queue(Settings { overlap, ..Settings::default() }), clock::now());
            let start = queue.join(key("a.test"), SECOND, 60 * SECOND).unwrap().start();
            tokio::spawn(async move {
                clock::sleep(answer_after * SECOND).await;
                drop(start);
            });
            assert_eq!(request(&queue, "a.test", SECOND, began).await, next_start, "overlap {overlap}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_would_wait_too_long_is_told_on_arrival() {
        let queue = queue(Settings { max_queue: 3, ..Settings::default() });
        drop(queue.join(key("a.test"), SECOND, SECOND).unwrap().start());
        let _one = queue.join(key("a.test"), SECOND, SECOND).unwrap();
        assert_eq!(queue.join(key("a.test"), SECOND, SECOND).unwrap_err(), Refused::TooLong { wait: 2 * SECOND });
        let _two = queue.join(key("a.test"), SECOND, 2 * SECOND).unwrap();
        let _three = queue.join(key("a.test"), SECOND, 60 * SECOND).unwrap();
        assert_eq!(queue.join(key("a.test"), SECOND, 60 * SECOND).unwrap_err(), Refused::Full { wait: 4 * SECOND });
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_without_a_delay_has_no_line() {
        let queue = queue(Settings::default());
        let place = queue.join(key("a.test"), Duration::ZERO, SECOND).unwrap();
        assert!(!place.is_paced() && place.start().waited().is_zero());
        assert!(queue.lock().by_key.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_changed_delay_holds_from_the_next_start() {
        let (queue, began) = (queue(Settings::default()), clock::now());
        request(&queue, "a.test", 10 * SECOND, began).await;
        assert_eq!(request(&queue, "a.test", 3 * SECOND, began).await, 3000);
    }

    #[tokio::test(start_paused = true)]
    async fn idle_lines_are_forgotten() {
        let (queue, began) = (queue(Settings::default()), clock::now());
        for number in 0..1000 {
            request(&queue, &format!("h{number}.test"), Duration::from_millis(1), began).await;
            clock::sleep(Duration::from_millis(2)).await;
        }
        assert!(queue.lock().by_key.len() <= SWEEP_MIN, "{}", queue.lock().by_key.len());
    }
}
