//! Which pages clients are at, and what these may still load past the line.
//!
//! A client is user, address and bot together, so that nobody spends another one's budget. What is kept of it is forgotten when its
//! window has closed and its budgets could be had anew; in a flood of clients, navigations beyond [`VISITORS_MAX`] of them open no
//! window, and their pages are paced like everything else.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

use crate::policy::identity::Token;
use crate::policy::requisite::{AT_ONCE, Budget, Load, WINDOW};
use crate::policy::target::Host;

/// Whose request it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Visitor {
    user: Option<Box<str>>,
    address: IpAddr,
    bot: Token,
}

impl Visitor {
    /// A client: the user name it gave to the proxy, its address, and the bot that is asking.
    pub fn new(user: Option<&str>, address: IpAddr, bot: &Token) -> Visitor {
        Visitor { user: user.map(Box::from), address, bot: bot.clone() }
    }

    pub(super) fn bot(&self) -> &str {
        self.bot.as_str()
    }
}

/// The pages of all clients.
#[derive(Debug, Default)]
pub(super) struct Pages {
    visits: Mutex<Visits>,
}

#[derive(Debug, Default)]
struct Visits {
    by_visitor: HashMap<Visitor, Visit>,
    /// The number of clients at which those that are gone are looked for: twice what was left the last time.
    sweep_at: usize,
}

#[derive(Debug, Default)]
struct Visit {
    navigations: VecDeque<Navigation>,
    loaded: HashMap<Host, Loaded>,
}

#[derive(Debug)]
struct Navigation {
    page: String,
    started: Instant,
    /// When its page has loaded what it needs.
    until: Instant,
}

#[derive(Debug)]
struct Loaded {
    budget: Budget,
    /// For those that are under way at once.
    places: Arc<Semaphore>,
}

/// Clients with an open page at once. Chosen: about 10 MB.
const VISITORS_MAX: usize = 10_000;

/// Clients below this number are not worth a search for those that are gone.
const SWEEP_MIN: usize = 64;

/// Pages of one client at once, for their Referer. Chosen: a browser that opens more tabs within half a minute waits for some.
const NAVIGATIONS_MAX: usize = 8;

/// Hosts with a delay that one client's pages load from.
const HOSTS_MAX: usize = 100;

impl Pages {
    /// Lets a request pass the line at a host, where its client's page may load it: the semaphore holds the places for those under
    /// way at once.
    pub(super) fn admit(
        &self,
        visitor: &Visitor,
        load: &Load,
        host: &Host,
        gap: Duration,
        now: Instant,
    ) -> Option<Arc<Semaphore>> {
        if matches!(load, Load::Navigation | Load::Alone) {
            return None;
        }
        let mut visits = self.lock();
        let visit = visits.by_visitor.get_mut(visitor)?;
        let navigated = visit.navigation_for(load, now)?;
        if visit.loaded.len() >= HOSTS_MAX && !visit.loaded.contains_key(host) {
            return None;
        }
        let fresh = || Loaded { budget: Budget::granted(navigated, gap), places: Arc::new(Semaphore::new(AT_ONCE)) };
        let loaded = visit.loaded.entry(host.clone()).or_insert_with(fresh);
        loaded.budget.renew(navigated, gap);
        loaded.budget.take(load).then(|| Arc::clone(&loaded.places))
    }

    /// A navigation starts.
    pub(super) fn navigated(&self, visitor: &Visitor, page: &str, now: Instant) {
        let mut visits = self.lock();
        visits.sweep(now);
        if visits.by_visitor.len() >= VISITORS_MAX && !visits.by_visitor.contains_key(visitor) {
            return;
        }
        let visit = visits.by_visitor.entry(visitor.clone()).or_default();
        if visit.navigations.len() == NAVIGATIONS_MAX {
            visit.navigations.pop_front();
        }
        visit.navigations.push_back(Navigation { page: page.to_owned(), started: now, until: now + WINDOW });
    }

    /// The answer to a navigation has come: its page begins to load.
    pub(super) fn answered(&self, visitor: &Visitor, page: &str, now: Instant) {
        let mut visits = self.lock();
        let navigations = visits.by_visitor.get_mut(visitor).map(|visit| &mut visit.navigations);
        if let Some(navigation) = navigations.and_then(|all| all.iter_mut().rev().find(|one| one.page == page)) {
            navigation.until = now + WINDOW;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Visits> {
        self.visits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.lock().by_visitor.len()
    }
}

impl Visits {
    fn sweep(&mut self, now: Instant) {
        if self.by_visitor.len() >= self.sweep_at.clamp(SWEEP_MIN, VISITORS_MAX) {
            self.by_visitor.retain(|_, visit| !visit.is_over_at(now));
            self.sweep_at = 2 * self.by_visitor.len();
        }
    }
}

impl Visit {
    /// The start of the newest navigation whose page may load something now.
    fn navigation_for(&self, load: &Load, now: Instant) -> Option<Instant> {
        let is_of = |navigation: &&Navigation| match load {
            Load::Referred(page) => navigation.page == *page,
            _ => true,
        };
        let open = self.navigations.iter().filter(|navigation| now < navigation.until).filter(is_of);
        open.map(|navigation| navigation.started).max()
    }

    fn is_over_at(&self, now: Instant) -> bool {
        self.navigations.iter().all(|navigation| navigation.until <= now)
            && self.loaded.values().all(|loaded| loaded.budget.is_over_at(now))
    }
}
