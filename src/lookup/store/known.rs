//! Which origins have a copy on disk.
//!
//! Most origins that are met for the first time have none, and to ask the disk for it would cost a thread and two wake-ups each. So
//! the writer keeps their hashes in memory, some 20 octets each: one that is missing has no copy, one that is there is looked
//! up. Until the file has been read nothing is ruled out.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::{PoisonError, RwLock};

/// The hashes; only the writer changes them, after it has changed the file.
#[derive(Debug, Default)]
pub(super) struct Known {
    hashes: RwLock<Option<HashSet<u64>>>,
    hasher: RandomState,
}

impl Known {
    /// Whether there may be a copy of this origin.
    pub(super) fn may_hold(&self, key: &str) -> bool {
        let hashes = self.hashes.read().unwrap_or_else(PoisonError::into_inner);
        hashes.as_ref().is_none_or(|hashes| hashes.contains(&self.hasher.hash_one(key)))
    }

    /// These, and no other.
    pub(super) fn learn(&self, keys: impl IntoIterator<Item = String>) {
        let hashes = keys.into_iter().map(|key| self.hasher.hash_one(key)).collect();
        self.set(Some(hashes));
    }

    /// Nothing is known any more.
    pub(super) fn unlearn(&self) {
        self.set(None);
    }

    /// One more, or one less.
    pub(super) fn change(&self, key: &str, holds: bool) {
        let mut hashes = self.hashes.write().unwrap_or_else(PoisonError::into_inner);
        let Some(hashes) = hashes.as_mut() else { return };
        let hash = self.hasher.hash_one(key);
        if holds {
            hashes.insert(hash)
        } else {
            hashes.remove(&hash)
        };
    }

    fn set(&self, known: Option<HashSet<u64>>) {
        *self.hashes.write().unwrap_or_else(PoisonError::into_inner) = known;
    }
}
