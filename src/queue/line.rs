//! The lines themselves.
//!
//! A line lives while somebody waits in it, its answer is awaited, or its delay has not passed; then it is forgotten, and the host is
//! as if it had never been asked. As robots.txt may come to ask for a longer delay than it did, it is remembered for the longest that
//! it could. Idle lines are found by when they become idle, not by looking through all of them: each line that nobody waits in has
//! one entry in a heap.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::holds::Holds;
use crate::policy::pacing;
use crate::policy::target::Host;

/// Which line a request waits in: both schemes and all ports of a host share one. Cheap to copy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LineKey(Arc<(Host, Box<str>)>);

impl LineKey {
    /// The line of a bot at a host, or that of all bots. Bots are told apart without regard to case (RFC 9309 §2.2.1).
    pub fn new(host: &Host, bot: Option<&str>) -> LineKey {
        LineKey(Arc::new((host.clone(), bot.unwrap_or_default().to_ascii_lowercase().into())))
    }

    /// The host.
    pub fn host(&self) -> &Host {
        &self.0.0
    }

    /// The bot; empty for the line of all bots.
    pub fn bot(&self) -> &str {
        &self.0.1
    }
}

/// All lines.
#[derive(Debug, Default)]
pub(super) struct Lines {
    by_key: HashMap<LineKey, Line>,
    next_ticket: u64,
    /// The longest delay that a host can come to ask for.
    max_delay: Duration,
    /// When hosts count as asked of which nothing is known, since nobody knows what a killed process asked.
    asked_at: Option<Instant>,
    /// When lines that nobody waits in become idle.
    idle_at: BinaryHeap<Reverse<(Instant, LineKey)>>,
}

#[derive(Debug, Default)]
struct Line {
    waiting: VecDeque<Waiting>,
    /// The delay in force.
    gap: Duration,
    /// The longest delay of the line's life: where all bots share a line, the next one may have a longer one than the last.
    longest: Duration,
    previous_start: Option<Instant>,
    previous_ticket: u64,
    /// Until when the head of the previous answer is waited for.
    unanswered: Option<Instant>,
    /// Requests refused since the previous start.
    refused: u32,
    /// Whether it is in `idle_at`.
    is_watched: bool,
}

#[derive(Debug)]
struct Waiting {
    ticket: u64,
    gap: Duration,
    deadline: Instant,
    turn: Arc<Notify>,
}

/// What a waiting request has to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// For those in front.
    AfterOthers,
    /// For the slot, the end of a hold, or the previous answer.
    At(Instant),
    /// For nothing: the slot has come.
    Now,
}

/// The next start waits for the head of the previous answer, but not for ever: a server that takes longer is not waiting for us.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(30);

impl Lines {
    pub(super) fn set_max_delay(&mut self, max_delay: Duration) {
        self.max_delay = max_delay;
    }

    pub(super) fn assume_asked(&mut self, at: Instant) {
        self.asked_at = Some(at);
    }

    /// The lines that somebody started from, with their delay and the last start.
    pub(super) fn starts(&self) -> impl Iterator<Item = (&LineKey, Duration, Instant)> {
        self.by_key.iter().filter_map(|(key, line)| Some((key, line.longest, line.previous_start?)))
    }

    /// Whether there is no line at all.
    pub(super) fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    pub(super) fn contains(&self, key: &LineKey) -> bool {
        self.by_key.contains_key(key)
    }

    pub(super) fn waiting(&self) -> usize {
        self.by_key.values().map(|line| line.waiting.len()).sum()
    }

    pub(super) fn waiting_in(&self, key: &LineKey) -> usize {
        self.by_key.get(key).map_or(0, |line| line.waiting.len())
    }

    /// When the head of a line may start.
    pub(super) fn next_slot(&self, key: &LineKey, gap: Duration, held_until: Option<Instant>, now: Instant) -> Instant {
        let previous_start = self.by_key.get(key).and_then(|line| line.previous_start);
        pacing::next_slot(previous_start.max(self.asked_at), gap, held_until, now)
    }

    /// When a request could start that joined now.
    pub(super) fn predict(&self, key: &LineKey, gap: Duration, held_until: Option<Instant>, now: Instant) -> Instant {
        // A delay of a bot that shares the line is its own; one that has changed holds for all that wait.
        let in_front: Duration = self.by_key.get(key).map_or(Duration::ZERO, |line| match key.bot() {
            "" => line.waiting.iter().map(|waiting| waiting.gap).sum(),
            _ => gap.saturating_mul(u32::try_from(line.waiting.len()).unwrap_or(u32::MAX)),
        });
        self.next_slot(key, gap, held_until, now) + in_front
    }

    /// Puts a request at the end of a line, which may be a new one.
    pub(super) fn join(&mut self, key: &LineKey, gap: Duration, deadline: Instant) -> (u64, Arc<Notify>) {
        self.next_ticket += 1;
        let (ticket, turn) = (self.next_ticket, Arc::new(Notify::new()));
        let line = self.by_key.entry(key.clone()).or_default();
        line.has_delay(gap);
        line.waiting.push_back(Waiting { ticket, gap, deadline, turn: Arc::clone(&turn) });
        (ticket, turn)
    }

    /// Counts a request that was refused, and returns when it should come back.
    pub(super) fn refuse(
        &mut self,
        key: &LineKey,
        gap: Duration,
        wait: Duration,
        max_wait: Duration,
        now: Instant,
    ) -> Duration {
        // Without a line nobody has started, and there is nothing to count from.
        let Some(line) = self.by_key.get_mut(key).filter(|line| !line.is_idle_at(now, self.max_delay)) else {
            return wait;
        };
        let retry_after = pacing::staggered(wait, line.refused, gap, max_wait);
        line.refused = line.refused.saturating_add(1);
        retry_after
    }

    /// What a request has to wait for; `None` where it is no longer in the line.
    pub(super) fn turn(
        &mut self,
        key: &LineKey,
        ticket: u64,
        gap: Duration,
        holds: &Holds,
        overlap: bool,
        now: Instant,
    ) -> Option<Turn> {
        let line = self.by_key.get_mut(key)?;
        let place = line.place_of(ticket)?;
        if place > 0 {
            return Some(Turn::AfterOthers);
        }
        line.has_delay(gap);
        let slot = pacing::next_slot(line.previous_start.max(self.asked_at), gap, holds.until(key.host(), now), now);
        // After a hold requests go one by one until one was answered well, also where there is no delay.
        let one_by_one = holds.is_untried(key.host()) || (!overlap && !gap.is_zero());
        let answer_by = line.unanswered.filter(|until| one_by_one && *until > now);
        Some(match answer_by {
            _ if slot > now => Turn::At(slot),
            Some(until) => Turn::At(until),
            None => Turn::Now,
        })
    }

    /// Starts a request; returns how many wait behind it.
    pub(super) fn take_slot(&mut self, key: &LineKey, ticket: u64, now: Instant) -> usize {
        let Some(line) = self.by_key.get_mut(key) else { return 0 };
        line.start(ticket, now);
        line.unanswered = Some(now + ANSWER_WAIT_MAX);
        line.waiting.len().saturating_sub(1)
    }

    /// Notes a start without a place in the line, at a slot of the future perhaps.
    pub(super) fn started(&mut self, key: &LineKey, gap: Duration, slot: Instant, now: Instant) {
        if gap.is_zero() && slot <= now {
            return;
        }
        self.next_ticket += 1;
        let ticket = self.next_ticket;
        let line = self.by_key.entry(key.clone()).or_default();
        line.has_delay(gap);
        line.start(ticket, slot);
        self.watch_idle(key);
        self.forget_idle(now);
    }

    /// Corrects the previous start by what the answer tells: the latest instant at which the origin saw it, given the gap.
    pub(super) fn seen(&mut self, key: &LineKey, ticket: u64, at: impl FnOnce(Duration) -> Instant) {
        if let Some(line) = self.by_key.get_mut(key)
            && line.previous_ticket == ticket
        {
            line.previous_start = line.previous_start.max(Some(at(line.gap)));
        }
    }

    /// The head of the answer to a request has come, or never will.
    pub(super) fn over(&mut self, key: &LineKey, ticket: u64) {
        if let Some(line) = self.by_key.get_mut(key)
            && line.previous_ticket == ticket
        {
            line.unanswered = None;
            line.wake_head();
            self.watch_idle(key);
        }
    }

    /// Takes a request out of a line and, where it was the head, tells the next one.
    pub(super) fn leave(&mut self, key: &LineKey, ticket: u64) {
        let Some(line) = self.by_key.get_mut(key) else { return };
        let Some(place) = line.place_of(ticket) else { return };
        line.waiting.remove(place);
        if place == 0 {
            line.wake_head();
        }
        self.watch_idle(key);
    }

    /// Takes those out of the lines of a host who cannot wait for the end of its hold, and wakes them. Those who stay move up.
    pub(super) fn dismiss_impatient(&mut self, host: &Host, until: Instant, now: Instant) {
        let keys: Vec<LineKey> = self.by_key.keys().filter(|key| key.host() == host).cloned().collect();
        for key in keys {
            if let Some(line) = self.by_key.get_mut(&key) {
                line.dismiss_impatient(until, now);
            }
            self.watch_idle(&key);
        }
    }

    /// Notes when a line becomes idle that nobody waits in.
    fn watch_idle(&mut self, key: &LineKey) {
        let Some(line) = self.by_key.get_mut(key) else { return };
        if line.is_deserted() && !line.is_watched {
            line.is_watched = true;
            match line.idle_at(self.max_delay) {
                Some(at) => self.idle_at.push(Reverse((at, key.clone()))),
                None => _ = self.by_key.remove(key),
            }
        }
    }

    /// Forgets the lines that nobody waits in and whose delay has passed.
    pub(super) fn forget_idle(&mut self, now: Instant) {
        while let Some(Reverse((at, _))) = self.idle_at.peek()
            && *at <= now
            && let Some(Reverse((_, key))) = self.idle_at.pop()
        {
            let Some(line) = self.by_key.get_mut(&key) else { continue };
            line.is_watched = false;
            match line.is_idle_at(now, self.max_delay) {
                true => _ = self.by_key.remove(&key),
                false => self.watch_idle(&key),
            }
        }
    }

    pub(super) fn reports(&self, holds: &Holds, now: Instant) -> Vec<LineReport> {
        let report = |(key, line): (&LineKey, &Line)| LineReport {
            host: key.host().clone(),
            bot: Some(key.bot().to_owned()).filter(|bot| !bot.is_empty()),
            waiting: line.waiting.len(),
            delay: line.gap,
            since_start: line.previous_start.map(|start| now.saturating_duration_since(start)),
            next_in: self.next_slot(key, line.gap, holds.until(key.host(), now), now).duration_since(now),
            held_for: holds.until(key.host(), now).map(|until| until.duration_since(now)),
        };
        self.by_key.iter().map(report).collect()
    }

    #[cfg(test)]
    pub(super) fn kept(&self) -> (usize, usize) {
        (self.by_key.len(), self.idle_at.len())
    }
}

impl Line {
    fn has_delay(&mut self, gap: Duration) {
        self.gap = gap;
        self.longest = self.longest.max(gap);
    }

    fn start(&mut self, ticket: u64, at: Instant) {
        self.previous_start = self.previous_start.max(Some(at));
        self.previous_ticket = ticket;
        self.refused = 0;
    }

    /// Nobody waits, and nobody's answer is waited for.
    fn is_deserted(&self) -> bool {
        self.waiting.is_empty() && self.unanswered.is_none()
    }

    /// When the next request will not have to wait, whatever delay is in force then; `None` where nobody ever started.
    fn idle_at(&self, max_delay: Duration) -> Option<Instant> {
        // Where there is no delay, the line was made by a hold, and there is no start to keep a distance from.
        let remembered_for = if self.longest.is_zero() { Duration::ZERO } else { self.longest.max(max_delay) };
        self.previous_start.map(|start| start + remembered_for)
    }

    fn is_idle_at(&self, now: Instant, max_delay: Duration) -> bool {
        self.is_deserted() && self.idle_at(max_delay).is_none_or(|at| at <= now)
    }

    fn dismiss_impatient(&mut self, until: Instant, now: Instant) {
        if until <= pacing::next_slot(self.previous_start, self.gap, None, now) {
            // Nobody waits longer for it.
            return;
        }
        let mut slot = until;
        self.waiting.retain(|waiting| {
            let stays = slot <= waiting.deadline;
            match stays {
                true => slot += waiting.gap,
                false => waiting.turn.notify_one(),
            }
            stays
        });
        self.wake_head();
    }

    /// Tickets rise along the line.
    fn place_of(&self, ticket: u64) -> Option<usize> {
        self.waiting.binary_search_by_key(&ticket, |waiting| waiting.ticket).ok()
    }

    fn wake_head(&self) {
        if let Some(head) = self.waiting.front() {
            head.turn.notify_one();
        }
    }
}

/// A line as it stands, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineReport {
    /// The host.
    pub host: Host,
    /// The bot; `None` for a line of all bots, or no line at all.
    pub bot: Option<String>,
    /// Waiting requests.
    pub waiting: usize,
    /// The delay in force.
    pub delay: Duration,
    /// How long ago the previous request started.
    pub since_start: Option<Duration>,
    /// How long until the next one may.
    pub next_in: Duration,
    /// How long the host is still held.
    pub held_for: Option<Duration>,
}

impl LineReport {
    /// A host that is held, and that nobody waits for.
    pub(super) fn without_line(host: &Host, until: Instant, now: Instant) -> LineReport {
        let held_for = until.duration_since(now);
        LineReport {
            host: host.clone(),
            bot: None,
            waiting: 0,
            delay: Duration::ZERO,
            since_start: None,
            next_in: held_for,
            held_for: Some(held_for),
        }
    }
}
