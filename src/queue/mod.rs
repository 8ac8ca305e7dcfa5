//! The line of waiting requests in front of each host, one per bot.
//!
//! First come, first served: a request joins at the end, comes to the head, waits there until its slot has come, opens its
//! connection, and starts. Only the head watches the clock, and nothing is reserved for those behind it, so a request whose client
//! hangs up leaves by being dropped and costs nobody a slot. Ready-made limiters do not fit: they poll, keep no order, bound no
//! wait, and have one rate for all hosts. The arithmetic is in [`crate::policy::pacing`] and [`crate::policy::hold`]; what is kept
//! of it is in `line` (the lines), `holds` (hosts that had enough) and `pages` (what pages may still load); `journal` is what a restart must not forget.

mod holds;
mod journal;
mod line;
mod pages;

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, Guard};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

pub use self::journal::Journal;
pub use self::line::{LineKey, LineReport};
pub use self::pages::Visitor;

use self::holds::Holds;
use self::line::{Lines, Turn};
use self::pages::Pages;
use crate::clock;
use crate::policy::hold::Sign;
use crate::policy::pacing::{self, Requisites, Settings, Shared};
use crate::policy::requisite::Load;
use crate::policy::target::Host;

/// All lines, holds and budgets.
#[derive(Debug)]
pub struct Queue {
    settings: ArcSwap<Settings>,
    /// One mutex, never held across an await: every operation is a few comparisons.
    state: Mutex<State>,
    /// Whether there is no line and no hold, as most of the time for most proxies: a request without a delay has nothing to ask then.
    is_quiet: AtomicBool,
    pages: Pages,
}

#[derive(Debug, Default)]
struct State {
    lines: Lines,
    /// The lines that there would be of requests that nothing stops: what they would wait delays nobody who really does.
    watched: Lines,
    holds: Holds,
}

/// The state, while nobody else works with it; what it comes to is noted at the end.
struct Locked<'q> {
    state: MutexGuard<'q, State>,
    is_quiet: &'q AtomicBool,
}

/// A request at the entrance.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// Whose it is.
    pub visitor: Visitor,
    /// Where it goes.
    pub host: Host,
    /// The delay in force; `None` for what is not paced by any, robots.txt itself.
    pub gap: Option<Duration>,
    /// How long it can wait.
    pub patience: Duration,
    /// What it is to a page.
    pub load: Load,
    /// Where it leads, if it is a navigation.
    pub page: Option<String>,
}

impl Arrival {
    /// The line that it would join.
    fn line(&self, settings: &Settings) -> LineKey {
        LineKey::new(&self.host, (settings.shared == Shared::Bot).then(|| self.visitor.bot()))
    }

    fn navigation(&self) -> Option<(Visitor, String)> {
        self.page.clone().map(|page| (self.visitor.clone(), page))
    }
}

/// Why a request may not join, or may not stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// `pace.max_queue` requests wait already.
    Full {
        /// When to come back.
        retry_after: Duration,
    },
    /// The turn would come later than the request can wait.
    TooLong {
        /// How long it would wait.
        wait: Duration,
        /// When to come back.
        retry_after: Duration,
    },
    /// The same, because the host asked for a pause.
    Held {
        /// How long it would wait.
        wait: Duration,
        /// When to come back.
        retry_after: Duration,
        /// What the host asked for.
        sign: Sign,
    },
}

impl Queue {
    /// No lines yet.
    pub fn new(settings: Settings) -> Arc<Queue> {
        let mut state = State::default();
        state.set_max_delay(settings.max_delay);
        let settings = ArcSwap::from_pointee(settings);
        Arc::new(Queue { settings, state: Mutex::new(state), is_quiet: true.into(), pages: Pages::default() })
    }

    /// The settings.
    pub fn settings(&self) -> Guard<Arc<Settings>> {
        self.settings.load()
    }

    /// Takes other settings. Nobody loses a place, and no start is forgotten; so `shared` stays as it was at the start of the
    /// proxy, since a line cannot be cut in pieces.
    pub fn reload(&self, settings: Settings) {
        let settings = Settings { shared: self.settings().shared, ..settings };
        self.lock().set_max_delay(settings.max_delay);
        self.settings.store(Arc::new(settings));
    }

    /// Gives a request its place: in the line of its host, or past it where it is not paced.
    ///
    /// # Errors
    /// The line is full, or the turn would come too late, as known on arrival.
    pub fn arrive(self: &Arc<Self>, arrival: &Arrival) -> Result<Place, Refused> {
        let (settings, now) = (self.settings(), clock::now());
        let way = match arrival.gap {
            Some(gap) => match self.budget(&settings, arrival, gap, now) {
                Some(places) => Way::AsRequisite(places),
                None => self.line_up(&settings, arrival, gap, now)?,
            },
            None => Way::Past,
        };
        let place = self.place(arrival, way, now, now + arrival.patience);
        place.check_hold()?;
        Ok(place)
    }

    /// What [`Queue::arrive`] would say, for a request that nothing stops. The next one is told what it would have had to wait after
    /// this one.
    ///
    /// # Errors
    /// The turn would come too late.
    pub fn watch(&self, arrival: &Arrival) -> Result<Duration, Refused> {
        let (settings, now) = (self.settings(), clock::now());
        let Some(gap) = arrival.gap.filter(|gap| self.budget(&settings, arrival, *gap, now).is_none()) else {
            return Ok(Duration::ZERO);
        };
        let key = arrival.line(&settings);
        let state = &mut *self.lock();
        let held_until = state.holds.until(&arrival.host, now);
        let among = |lines: &Lines| lines.predict(&key, gap, held_until, now);
        let slot = among(&state.lines).max(among(&state.watched));
        let wait = slot.duration_since(now);
        if wait > arrival.patience {
            return Err(Refused::TooLong { wait, retry_after: wait });
        }
        state.watched.started(&key, gap, slot, now);
        Ok(wait)
    }

    /// A place for a request that nothing stops.
    pub fn free(self: &Arc<Self>, arrival: &Arrival) -> Place {
        let now = clock::now();
        self.place(arrival, Way::Free, now, now)
    }

    fn place(self: &Arc<Self>, arrival: &Arrival, way: Way, joined: Instant, deadline: Instant) -> Place {
        let (host, navigation) = (arrival.host.clone(), arrival.navigation());
        Place { queue: Arc::clone(self), host, way, joined, deadline, permit: None, navigation }
    }

    /// Until when nothing is sent to a host, because it asked for a pause.
    pub fn held_until(&self, host: &Host) -> Option<Instant> {
        self.lock().holds.until(host, clock::now())
    }

    /// The lines as they stand, of one host or of all; a host that is held is told of even if nobody waits for it.
    pub fn lines(&self, host: Option<&Host>) -> Vec<LineReport> {
        let (state, now) = (&mut *self.lock(), clock::now());
        state.lines.forget_idle(now);
        let mut reports = state.lines.reports(&state.holds, now);
        for (held, until, _) in state.holds.all(now) {
            if !reports.iter().any(|report| report.host == *held) {
                reports.push(LineReport::without_line(held, until, now));
            }
        }
        reports.retain(|report| host.is_none_or(|host| report.host == *host));
        reports.sort_by(|one, other| (one.host.as_str(), &one.bot).cmp(&(other.host.as_str(), &other.bot)));
        reports
    }

    /// Waiting requests in all lines.
    pub fn len(&self) -> usize {
        self.lock().lines.waiting()
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> Locked<'_> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        Locked { state, is_quiet: &self.is_quiet }
    }

    /// Whether nobody who has no delay could have to wait.
    fn is_quiet(&self) -> bool {
        self.is_quiet.load(Ordering::Acquire)
    }

    /// What lets a request pass the line, where it is a page's requisite and within its budget.
    fn budget(&self, settings: &Settings, arrival: &Arrival, gap: Duration, now: Instant) -> Option<Arc<Semaphore>> {
        let may_pass = settings.requisites == Requisites::Burst && !gap.is_zero();
        may_pass.then(|| self.pages.admit(&arrival.visitor, &arrival.load, &arrival.host, gap, now)).flatten()
    }

    fn line_up(&self, settings: &Settings, arrival: &Arrival, gap: Duration, now: Instant) -> Result<Way, Refused> {
        if gap.is_zero() && self.is_quiet() {
            return Ok(Way::Past);
        }
        let (state, patience) = (&mut *self.lock(), arrival.patience);
        state.lines.forget_idle(now);
        let held_until = state.holds.until(&arrival.host, now);
        let key = arrival.line(settings);
        if gap.is_zero() && held_until.is_none() && !state.lines.contains(&key) {
            return Ok(Way::Past);
        }
        let wait = state.lines.predict(&key, gap, held_until, now).duration_since(now);
        if state.lines.waiting_in(&key) >= settings.max_queue {
            let retry_after = state.lines.refuse(&key, gap, wait, settings.max_wait, now);
            return Err(Refused::Full { retry_after });
        }
        if wait > patience {
            return Err(state.too_long(settings, &key, gap, wait, now));
        }
        let (ticket, turn) = state.lines.join(&key, gap, now + patience);
        Ok(Way::InLine { key, ticket, turn })
    }

    /// Takes in the head of an answer to a request that started at `started`.
    fn answered(&self, host: &Host, sign: Option<Sign>, started: Instant) {
        if sign.is_none() && self.is_quiet() {
            return;
        }
        let state = &mut *self.lock();
        if sign.is_none() && !state.holds.knows(host) {
            return;
        }
        let now = clock::now();
        let news = state.holds.answered(host, sign, started, now, self.settings().hold_max);
        if let Some((until, sign)) = news {
            tracing::debug!(%host, %sign, held_s = until.duration_since(now).as_secs_f32(), "held");
            state.lines.dismiss_impatient(host, until, now);
        }
    }
}

impl Deref for Locked<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.is_quiet.store(self.state.lines.is_empty() && self.state.holds.is_empty(), Ordering::Release);
    }
}

impl State {
    fn set_max_delay(&mut self, max_delay: Duration) {
        self.lines.set_max_delay(max_delay);
        self.watched.set_max_delay(max_delay);
    }

    fn too_long(&mut self, settings: &Settings, key: &LineKey, gap: Duration, wait: Duration, now: Instant) -> Refused {
        let retry_after = self.lines.refuse(key, gap, wait, settings.max_wait, now);
        match self.holds.in_force(key.host(), now) {
            Some((until, sign)) if self.lines.next_slot(key, gap, None, now) < until => {
                Refused::Held { wait, retry_after, sign }
            }
            _ => Refused::TooLong { wait, retry_after },
        }
    }
}

/// A request's place; dropping it leaves the line.
#[derive(Debug)]
pub struct Place {
    queue: Arc<Queue>,
    host: Host,
    way: Way,
    joined: Instant,
    /// When it can wait no longer.
    deadline: Instant,
    permit: Option<OwnedSemaphorePermit>,
    navigation: Option<(Visitor, String)>,
}

/// How a request comes to its start.
#[derive(Debug)]
enum Way {
    /// In the line.
    InLine { key: LineKey, ticket: u64, turn: Arc<Notify> },
    /// Past it: the host has no delay, or is asked for robots.txt. Only a hold stops it.
    Past,
    /// Past it, as one of the few that a page loads at once. A hold stops it, too.
    AsRequisite(Arc<Semaphore>),
    /// Nothing stops it.
    Free,
}

impl Place {
    /// Whether the request stands in line; `None` where the host has no delay, so that there is none.
    pub fn is_paced(&self) -> Option<bool> {
        match self.way {
            Way::InLine { .. } => Some(true),
            Way::AsRequisite(_) => Some(false),
            Way::Past | Way::Free => None,
        }
    }

    /// Waits until this request may start, without taking the slot. `gap` is the delay now in force.
    ///
    /// # Errors
    /// The host was held meanwhile, for longer than the request can wait.
    pub async fn ready(&mut self, gap: Duration) -> Result<(), Refused> {
        match &self.way {
            Way::Free => return Ok(()),
            Way::Past => {}
            Way::AsRequisite(places) if self.permit.is_none() => {
                self.permit = Arc::clone(places).acquire_owned().await.ok();
            }
            Way::AsRequisite(_) => {}
            Way::InLine { turn, .. } => {
                let turn = Arc::clone(turn);
                loop {
                    match self.turn(gap)? {
                        Turn::Now => return Ok(()),
                        Turn::AfterOthers => turn.notified().await,
                        Turn::At(instant) => tokio::select! {
                            () = clock::sleep_until(instant) => {}
                            () = turn.notified() => {}
                        },
                    }
                }
            }
        }
        while let Some(until) = self.check_hold()? {
            clock::sleep_until(until).await;
        }
        Ok(())
    }

    /// Whether the request may still start: opening its connection takes a while, and the host may be held meanwhile.
    pub fn may_start(&self, gap: Duration) -> bool {
        match self.way {
            Way::Free => true,
            Way::InLine { .. } => matches!(self.turn(gap), Ok(Turn::Now)),
            Way::Past | Way::AsRequisite(_) => matches!(self.check_hold(), Ok(None)),
        }
    }

    /// Takes the slot: the request starts now. Comes after [`Place::ready`], with an open connection at hand.
    pub fn start(self) -> Start {
        let now = clock::now();
        let waited = now.duration_since(self.joined);
        if let Some((key, ticket)) = self.in_line() {
            let waiting = self.queue.lock().lines.take_slot(key, ticket, now);
            tracing::debug!(host = %self.host, bot = key.bot(), waited_ms = waited.as_millis(), waiting, "turn");
        }
        if let Some((visitor, page)) = &self.navigation {
            self.queue.pages.navigated(visitor, page, now);
        }
        self.leave();
        Start { place: self, at: now, waited }
    }

    /// Makes room for the next one, if that is still to be done.
    fn leave(&self) {
        if let Some((key, ticket)) = self.in_line() {
            self.queue.lock().lines.leave(key, ticket);
        }
    }

    /// Its line, and its ticket there.
    fn in_line(&self) -> Option<(&LineKey, u64)> {
        match &self.way {
            Way::InLine { key, ticket, .. } => Some((key, *ticket)),
            _ => None,
        }
    }

    /// What a request in the line has to wait for.
    fn turn(&self, gap: Duration) -> Result<Turn, Refused> {
        let Some((key, ticket)) = self.in_line() else { return Ok(Turn::Now) };
        let (settings, now) = (self.queue.settings(), clock::now());
        let state = &mut *self.queue.lock();
        match state.lines.turn(key, ticket, gap, &state.holds, settings.overlap, now) {
            Some(turn) => Ok(turn),
            None => {
                let wait = state.lines.predict(key, gap, state.holds.until(&self.host, now), now);
                Err(state.too_long(&settings, key, gap, wait.duration_since(now), now))
            }
        }
    }

    /// The end of the hold on the host, for a request that is not in the line.
    fn check_hold(&self) -> Result<Option<Instant>, Refused> {
        if self.queue.is_quiet() {
            return Ok(None);
        }
        let holds = &self.queue.lock().holds;
        if !holds.knows(&self.host) {
            return Ok(None);
        }
        let now = clock::now();
        match holds.in_force(&self.host, now) {
            Some((until, sign)) if until > self.deadline => {
                let wait = until.duration_since(now);
                Err(Refused::Held { wait, retry_after: wait, sign })
            }
            held => Ok(held.map(|(until, _)| until)),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.leave();
    }
}

/// A request that has started; dropping it (the head of its answer has come, or never will) lets the next one follow.
#[derive(Debug)]
pub struct Start {
    /// Left by now.
    place: Place,
    at: Instant,
    waited: Duration,
}

impl Start {
    /// How long the request waited.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// When it started.
    pub fn at(&self) -> Instant {
        self.at
    }

    /// Takes in the head of the answer to the request. `sent_again` is when it was written where it had to be sent a second time.
    pub fn answered(self, sign: Option<Sign>, sent_again: Option<Instant>) {
        let Place { queue, host, navigation, .. } = &self.place;
        queue.answered(host, sign, self.at);
        if let Some((key, ticket)) = self.place.in_line() {
            let (sent, answered) = (sent_again.unwrap_or(self.at), clock::now());
            queue.lock().lines.seen(key, ticket, |gap| pacing::seen_by_origin(sent, answered, gap));
        }
        if let Some((visitor, page)) = navigation {
            queue.pages.answered(visitor, page, clock::now());
        }
    }
}

impl Drop for Start {
    fn drop(&mut self) {
        if let Some((key, ticket)) = self.place.in_line() {
            self.place.queue.lock().lines.over(key, ticket);
        }
    }
}

#[cfg(test)]
mod tests;
