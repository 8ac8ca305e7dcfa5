//! What is kept of each origin, in as few octets as it takes.
//!
//! Most origins of a large crawl have no robots.txt, and all there is to know of such a one fits beside its name: it is kept as a
//! [`Plain`], and what a request needs is made anew each time, which costs less than the memory would. Any other has an [`Entry`] of its
//! own, and so has one that is being asked. quick_cache bounds the memory, with a lock a shard and none for all; an entry that
//! somebody works with is not dropped, or its origin would be asked twice at once.

use std::hash::RandomState;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use quick_cache::sync::{Cache, EntryAction, EntryResult};
use quick_cache::{Lifecycle, OptionsBuilder, Weighter};

use super::copy::Copy;
use super::state::{Plain, State};
use super::{Flight, Settings};
use crate::policy::target::Origin;

/// Every origin that was asked for lately.
pub(super) struct Kept {
    slots: Cache<Origin, Slot, Weight, RandomState, NotInUse>,
    /// What an origin weighs at least.
    share: u32,
}

/// What is kept of one origin.
#[derive(Clone)]
pub(super) enum Slot {
    /// That it has no rules.
    Plain(Plain),
    /// More than that; what it weighed when it was put in.
    Entry(Arc<Entry>, u32),
}

/// What is known of one origin. The mutex is never held across an await.
#[derive(Default)]
pub(super) struct Entry {
    known: Mutex<Locked>,
}

#[derive(Default)]
pub(super) struct Locked {
    pub(super) state: State,
    /// Whether the store has been asked.
    pub(super) recalled: bool,
    pub(super) flight: Option<Flight>,
}

/// Memory for parsed copies, in octets. What does not fit is read from the store again; 100,000 files of the usual size fit.
const MEMORY_MAX: u64 = 1 << 30;

/// What an origin costs beside its rules: key, evidence and bookkeeping. Measured, rounded up.
const ENTRY_OCTETS: u32 = 1024;

/// The part of the memory whose origins have been asked for again since they came. The rest is for new ones, which a crawl brings all the
/// time. Chosen: half, since either kind is all that some crawls have.
const FOR_KNOWN: f64 = 0.5;

impl Kept {
    pub(super) fn new(max_copies: u64) -> Kept {
        // An origin weighs at least its share, so that there are not many more in memory than copies on disk; the share is smaller than
        // an even one, or a single long file would drive others out of a full cache.
        let places = max_copies.saturating_mul(5).div_ceil(4).max(1);
        let share = u32::try_from(MEMORY_MAX / places).unwrap_or(u32::MAX).max(ENTRY_OCTETS);
        let options = OptionsBuilder::new()
            .estimated_items_capacity(usize::try_from(places).unwrap_or(usize::MAX))
            .weight_capacity(MEMORY_MAX.max(u64::from(share).saturating_mul(places)))
            .hot_allocation(FOR_KNOWN)
            .build()
            .expect("both capacities are given");
        let slots = Cache::with_options(options, Weight { share }, RandomState::new(), NotInUse);
        Kept { slots, share }
    }

    pub(super) fn get(&self, origin: &Origin) -> Option<Slot> {
        self.slots.get(origin)
    }

    /// The entry of an origin, to work with: the one that is there, one made of what is known, or a new one.
    pub(super) fn entry(&self, origin: &Origin, settings: &Settings, now: Instant) -> Arc<Entry> {
        let share = self.share;
        let found = self.slots.entry(origin, None, |_, slot| {
            let entry = match &*slot {
                Slot::Entry(entry, _) => Arc::clone(entry),
                Slot::Plain(plain) => Arc::new(Entry::knowing(plain.state(origin, settings, now))),
            };
            if let Slot::Plain(_) = slot {
                *slot = Slot::Entry(Arc::clone(&entry), share);
            }
            EntryAction::Retain(entry)
        });
        match found {
            EntryResult::Retained(entry) => entry,
            EntryResult::Vacant(place) => {
                let entry = Arc::new(Entry::default());
                // An error is a place that was taken meanwhile, by `forget`.
                let _ = place.insert(Slot::Entry(Arc::clone(&entry), share));
                entry
            }
            _ => unreachable!("the closure retains, and no time limit is given"),
        }
    }

    /// Puts an origin's entry in anew when more or less is known than before.
    pub(super) fn put(&self, origin: Origin, entry: &Arc<Entry>) {
        let slot = {
            let locked = entry.lock();
            match Plain::of(&locked.state).filter(|_| locked.flight.is_none()) {
                Some(plain) => Slot::Plain(plain),
                None => Slot::Entry(Arc::clone(entry), locked.octets().max(self.share)),
            }
        };
        self.slots.insert(origin, slot);
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Origin, Slot)> + '_ {
        self.slots.iter()
    }
}

impl Slot {
    /// The copy in force, if there is one.
    pub(super) fn copy(&self, origin: &Origin) -> Option<Copy> {
        match self {
            Slot::Plain(plain) => Some(plain.copy(origin)),
            Slot::Entry(entry, _) => entry.lock().state.copy().cloned(),
        }
    }

    /// Whether there is one.
    pub(super) fn has_copy(&self) -> bool {
        match self {
            Slot::Plain(_) => true,
            Slot::Entry(entry, _) => entry.lock().state.copy().is_some(),
        }
    }
}

impl Entry {
    /// One that need not ask the store.
    pub(super) fn knowing(state: State) -> Entry {
        Entry { known: Mutex::new(Locked { state, recalled: true, flight: None }) }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Locked> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Locked {
    /// What the entry weighs in memory.
    fn octets(&self) -> u32 {
        let rules = self.state.rules().map_or(0, |rules| rules.memory());
        u32::try_from(rules).unwrap_or(u32::MAX).saturating_add(ENTRY_OCTETS)
    }
}

/// Weighs what is kept. An entry weighs what it did when it was put in, however it has changed since: the cache adds and takes away.
#[derive(Clone)]
struct Weight {
    share: u32,
}

impl Weighter<Origin, Slot> for Weight {
    fn weight(&self, _: &Origin, slot: &Slot) -> u64 {
        match slot {
            Slot::Plain(_) => self.share.into(),
            Slot::Entry(_, octets) => (*octets).into(),
        }
    }
}

/// Holds back what somebody works with, and drops what had to go after the shard's lock.
#[derive(Clone)]
struct NotInUse;

impl Lifecycle<Origin, Slot> for NotInUse {
    type RequestState = Vec<Slot>;

    fn is_pinned(&self, _: &Origin, slot: &Slot) -> bool {
        matches!(slot, Slot::Entry(entry, _) if Arc::strong_count(entry) > 1)
    }

    fn on_evict(&self, dropped: &mut Vec<Slot>, _: Origin, slot: Slot) {
        if let Slot::Entry(..) = slot {
            dropped.push(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::state::Known;
    use super::*;
    use crate::clock;

    #[test]
    fn a_million_origins_without_rules_fit_into_120_mib() {
        // Beside key and slot: list, state and table of the cache, some 24 octets, and the text of the name, some 48.
        assert!(size_of::<Origin>() + size_of::<Slot>() <= 48);
    }

    #[test]
    fn an_origin_without_rules_is_as_it_was_when_it_is_worked_with_again() {
        let (kept, settings) = (Kept::new(10), Settings::default());
        let origin = Origin::of(&"https://bazaar.nimbu.test/".parse().unwrap()).unwrap();
        let began = clock::now();
        // Fetched an hour ago, before this process began.
        let hour = Duration::from_secs(3600);
        let copy = Copy::plain(origin.robots_url(), 404, clock::wall() - hour, 24 * hour);
        let mut state = State::default();
        state.recall(copy.clone(), b"", &settings, began, copy.fetched_at + hour);
        let Known::Holds(standing) = state.at(began) else { panic!("it is fresh") };
        kept.put(origin.clone(), &Arc::new(Entry::knowing(state)));

        let Some(Slot::Plain(plain)) = kept.get(&origin) else { panic!("it is plain") };
        assert!(plain.standing(&origin).says_the_same(&standing) && plain.copy(&origin) == copy);
        let due_at = began - hour + (24 * hour).mul_f64(0.9);
        assert!(plain.holds_at(due_at - Duration::from_millis(1)) && !plain.holds_at(due_at));
        let entry = kept.entry(&origin, &settings, due_at);
        assert!(matches!(entry.lock().state.at(due_at), Known::Due(due) if due.says_the_same(&standing)));
        assert!(Arc::ptr_eq(&entry, &kept.entry(&origin, &settings, due_at)), "there is one entry to work with");
    }
}
