//! The robots.txt in force at an origin.
//!
//! Promises: an origin is asked once at a time however many requests wait, and the request for its robots.txt outlives the client
//! that caused it; a copy is asked for anew before it is too old, so that nobody waits; a failure keeps the old copy, and never
//! becomes a permission (RFC 9309 §2.3.1.4, §2.4). What an answer means is decided in [`crate::robots::status`], how it is fetched in
//! [`fetch`], what time makes of it in `state`, what a million of them cost in `kept`, and what a restart needs is in [`store`].

pub mod copy;
pub mod fetch;
mod kept;
mod state;
pub mod store;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::future::BoxFuture;
use tokio::sync::watch;

use self::copy::Copy;
use self::fetch::{FetchError, Fetched, Validators};
use self::kept::{Entry, Kept, Locked, Slot};
use self::state::{Known, State};
use self::store::Store;
use crate::clock;
use crate::metrics::{Fetches, Outcome};
use crate::policy::reason::Reason;
use crate::policy::standing::{Effect, Standing};
use crate::policy::target::Origin;
use crate::robots::status::{Lifetimes, StatusPolicy};
use crate::upstream::Speech;

/// How robots.txt is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Which status table applies.
    pub status_policy: StatusPolicy,
    /// How long an answer may be used.
    pub lifetimes: Lifetimes,
    /// How long an old copy serves while the file cannot be had, counted from its last good answer.
    pub stale_for: Duration,
    /// Read and obeyed up to here, in octets.
    pub max_bytes: usize,
    /// Origins with a copy; the least recently used are dropped beyond that.
    pub max_copies: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        const HOUR: Duration = Duration::from_secs(3600);
        Settings {
            status_policy: StatusPolicy::Careful,
            lifetimes: Lifetimes { ttl: 24 * HOUR, min_ttl: HOUR / 12, retry: HOUR / 12 },
            stale_for: 30 * 24 * HOUR,
            max_bytes: crate::robots::MAX_BYTES,
            max_copies: 100_000,
        }
    }
}

/// Asks an origin for its robots.txt. A trait, so that hours of it can be played in a test.
pub trait Fetch: Send + Sync + 'static {
    /// One request, with the redirects that it leads to; conditional where a copy is at hand. Whoever waits for it speaks `speech`,
    /// and can go on with the connection.
    fn fetch(
        &self,
        origin: &Origin,
        speech: Speech,
        validators: Option<Validators>,
    ) -> BoxFuture<'static, Result<Fetched, FetchError>>;
}

/// The standing of every origin that was asked for lately.
pub struct Lookup {
    shared: Arc<Shared>,
}

struct Shared {
    manner: ArcSwap<Manner>,
    store: Option<Store>,
    fetches: Fetches,
    kept: Kept,
}

/// How origins are asked, and what their answers mean.
struct Manner {
    settings: Settings,
    fetch: Arc<dyn Fetch>,
}

/// A fetch under way: holds its result in the end.
type Flight = watch::Receiver<Option<Arc<Standing>>>;

impl Lookup {
    /// Nothing known yet, but what the store holds.
    pub fn new(settings: Settings, fetch: Arc<dyn Fetch>, store: Option<Store>) -> Lookup {
        let kept = Kept::new(settings.max_copies);
        let manner = ArcSwap::from_pointee(Manner { settings, fetch });
        Lookup { shared: Arc::new(Shared { manner, store, fetches: Fetches::default(), kept }) }
    }

    /// Takes other settings, and another way to ask. What is known stays, as far as it would have been known by the new settings; so does
    /// `max_copies`, which the memory and the store were made for.
    pub fn reload(&self, settings: Settings, fetch: Arc<dyn Fetch>) {
        let before = self.shared.manner.load_full();
        let settings = Settings { max_copies: before.settings.max_copies, ..settings };
        let other_meaning = settings.status_policy != before.settings.status_policy;
        let is_new = settings != before.settings;
        self.shared.manner.store(Arc::new(Manner { settings: settings.clone(), fetch }));
        if is_new {
            for (origin, _) in self.shared.kept.iter() {
                let entry = self.shared.entry(&origin);
                entry.lock().state.reconsider(&settings, other_meaning, clock::now());
                self.shared.kept.put(origin, &entry);
            }
        }
    }

    /// What holds at an origin now. Waits for its robots.txt where nothing usable is known, at most for the fetch's own deadline.
    pub async fn standing(&self, origin: &Origin, speech: Speech) -> Arc<Standing> {
        let now = clock::now();
        let entry = match self.shared.kept.get(origin) {
            Some(Slot::Plain(plain)) if plain.holds_at(now) => return Arc::new(plain.standing(origin)),
            Some(Slot::Entry(entry, _)) => entry,
            _ => self.shared.entry(origin),
        };
        let flight = {
            let mut locked = entry.lock();
            match locked.state.at(now) {
                Known::Holds(standing) => return standing,
                Known::Due(standing) => {
                    self.shared.take_off(&entry, &mut locked, origin, speech);
                    return standing;
                }
                Known::Nothing => self.shared.take_off(&entry, &mut locked, origin, speech),
            }
        };
        self.shared.landed(flight, origin).await
    }

    /// Asks the origin anew, whatever is known.
    pub async fn refresh(&self, origin: &Origin) -> Arc<Standing> {
        let entry = self.shared.entry(origin);
        let flight = {
            let mut locked = entry.lock();
            locked.recalled = true;
            self.shared.take_off(&entry, &mut locked, origin, Speech::Http2)
        };
        self.shared.landed(flight, origin).await
    }

    /// Forgets an origin's copy; returns whether there was one in memory.
    pub fn forget(&self, origin: &Origin) -> bool {
        let known = self.shared.kept.get(origin);
        // The store forgets a little later, and must not be asked before it has.
        self.shared.kept.put(origin.clone(), &Arc::new(Entry::knowing(State::default())));
        if let Some(store) = &self.shared.store {
            store.forget(origin);
        }
        known.is_some_and(|slot| slot.has_copy())
    }

    /// The copies in memory, by origin.
    pub fn copies(&self) -> Vec<(Origin, Copy)> {
        self.shared.kept.iter().filter_map(|(origin, slot)| slot.copy(&origin).map(|copy| (origin, copy))).collect()
    }

    /// How many copies are in memory.
    pub fn count(&self) -> usize {
        self.shared.kept.iter().filter(|(_, slot)| slot.has_copy()).count()
    }

    /// Requests for robots.txt.
    pub fn fetches(&self) -> &Fetches {
        &self.shared.fetches
    }

    /// The store, where there is one.
    pub fn store(&self) -> Option<&Store> {
        self.shared.store.as_ref()
    }
}

impl Shared {
    fn entry(&self, origin: &Origin) -> Arc<Entry> {
        self.kept.entry(origin, &self.manner.load().settings, clock::now())
    }

    /// The fetch that is under way, or a new one in a task of its own: the client that needs it may go away, the next ones will not.
    fn take_off(self: &Arc<Self>, entry: &Arc<Entry>, locked: &mut Locked, origin: &Origin, speech: Speech) -> Flight {
        // A task that is gone without a result (it panicked) has dropped its sender.
        if let Some(flight) = locked.flight.as_ref().filter(|flight| flight.has_changed().is_ok()) {
            return flight.clone();
        }
        let (sender, flight) = watch::channel(None);
        locked.flight = Some(flight.clone());
        let (shared, entry, origin) = (Arc::clone(self), Arc::clone(entry), origin.clone());
        tokio::spawn(async move {
            let standing = shared.fly(&entry, &origin, speech).await;
            entry.lock().flight = None;
            shared.kept.put(origin, &entry);
            sender.send_replace(Some(standing));
        });
        flight
    }

    async fn landed(&self, mut flight: Flight, origin: &Origin) -> Arc<Standing> {
        let landed = flight.wait_for(Option::is_some).await.ok().and_then(|standing| standing.clone());
        landed.unwrap_or_else(|| Arc::new(nothing_known(origin)))
    }

    /// What the store holds, if that is fresh, or what the origin says.
    async fn fly(&self, entry: &Entry, origin: &Origin, speech: Speech) -> Arc<Standing> {
        if let Some(standing) = self.recall(entry, origin).await {
            return standing;
        }
        let validators = entry.lock().state.validators();
        let conditional = validators.is_some();
        let fetch = Arc::clone(&self.manner.load().fetch);
        let outcome = fetch.fetch(origin, speech, validators).await;
        // The settings of now, and not those that it was asked with: a reload meanwhile has looked through what was known then.
        let manner = self.manner.load_full();
        let (now, wall) = (clock::now(), clock::wall());
        let judged = copy::judge(&manner.settings, origin.robots_url(), conditional, outcome, wall);
        self.fetches.get_or_create(&Outcome { outcome: judged.outcome() }).inc();
        let (standing, to_keep) = entry.lock().state.land(judged, origin.robots_url(), &manner.settings, now, wall);
        if let Some((store, to_keep)) = self.store.as_ref().zip(to_keep) {
            store.keep(origin, to_keep);
        }
        standing
    }

    /// The copy in the store, once, if it is still fresh. An old one is at hand from then on, in case the origin cannot be asked.
    async fn recall(&self, entry: &Entry, origin: &Origin) -> Option<Arc<Standing>> {
        let store = self.store.as_ref().filter(|_| !std::mem::replace(&mut entry.lock().recalled, true))?;
        let (copy, body) = store.load(origin).await?;
        let now = clock::now();
        let mut locked = entry.lock();
        locked.state.recall(copy, &body, &self.manner.load().settings, now, clock::wall());
        match locked.state.at(now) {
            Known::Holds(standing) | Known::Due(standing) => Some(standing),
            Known::Nothing => None,
        }
    }
}

fn nothing_known(origin: &Origin) -> Standing {
    Standing {
        effect: Effect::DisallowAll(Reason::RobotsUnreachable),
        evidence: Arc::new(copy::no_evidence(origin.robots_url(), clock::wall())),
        stale: false,
        failure: Some("the fetch of robots.txt was given up".into()),
        ask_again_at: clock::now(),
    }
}

#[cfg(test)]
mod tests;
