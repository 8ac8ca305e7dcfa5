//! The tables of the store, and what keeps them in bounds.
//!
//! `copies` holds what is in force, `history` every version there was, `bodies` each body once, with the number of copies and versions
//! that name it. Two more tables order copies and history by age, so that the oldest go first.

use std::time::{SystemTime, UNIX_EPOCH};

use redb::{
    Database, ReadableDatabase, ReadableTable, ReadableTableMetadata, Table, TableDefinition, WriteTransaction,
};

use super::Limits;
use crate::lookup::copy::Copy;

/// Origin → its copy, as JSON.
const COPIES: TableDefinition<&str, &[u8]> = TableDefinition::new("copies");
/// When confirmed, origin.
const COPIES_BY_AGE: TableDefinition<(u64, &str), ()> = TableDefinition::new("copies-by-age");
/// Origin, when fetched → the copy, as JSON.
const HISTORY: TableDefinition<(&str, u64), &[u8]> = TableDefinition::new("history");
/// When fetched, origin.
const HISTORY_BY_AGE: TableDefinition<(u64, &str), ()> = TableDefinition::new("history-by-age");
/// SHA-256 → body.
const BODIES: TableDefinition<&str, &[u8]> = TableDefinition::new("bodies");
/// SHA-256 → how many copies and versions name it.
const NAMED: TableDefinition<&str, u64> = TableDefinition::new("named");
/// Sums; the one key is the octets of all bodies.
const SUMS: TableDefinition<&str, u64> = TableDefinition::new("sums");

const BODY_BYTES: &str = "body-bytes";

/// One change of the store.
#[derive(Debug)]
pub(super) enum Change {
    /// A copy is in force.
    Keep {
        /// The origin.
        key: String,
        /// The copy.
        copy: Box<Copy>,
        /// Its body, where it is new.
        body: Option<Vec<u8>>,
    },
    /// No copy is in force any more.
    Forget {
        /// The origin.
        key: String,
    },
}

/// Makes changes, all or none; returns the origins whose copies had to go for that.
pub(super) fn apply(database: &Database, changes: &[Change], limits: Limits) -> Result<Vec<String>, redb::Error> {
    let mut transaction = database.begin_write()?;
    // Opening after a crash takes no walk through the whole file then.
    transaction.set_quick_repair(true);
    let dropped = {
        let mut tables = Tables::open(&transaction)?;
        for change in changes {
            match change {
                Change::Keep { key, copy, body } => tables.keep(key, copy, body.as_deref())?,
                Change::Forget { key } => tables.forget(key)?,
            }
        }
        tables.bound(limits)?
    };
    transaction.commit()?;
    Ok(dropped)
}

struct Tables<'txn> {
    copies: Table<'txn, &'static str, &'static [u8]>,
    copies_by_age: Table<'txn, (u64, &'static str), ()>,
    history: Table<'txn, (&'static str, u64), &'static [u8]>,
    history_by_age: Table<'txn, (u64, &'static str), ()>,
    bodies: Table<'txn, &'static str, &'static [u8]>,
    named: Table<'txn, &'static str, u64>,
    sums: Table<'txn, &'static str, u64>,
}

impl Change {
    /// The origin, and whether it has a copy from then on.
    pub(super) fn leaves(&self) -> (&str, bool) {
        match self {
            Change::Keep { key, .. } => (key, true),
            Change::Forget { key } => (key, false),
        }
    }
}

impl<'txn> Tables<'txn> {
    fn open(transaction: &'txn WriteTransaction) -> Result<Tables<'txn>, redb::Error> {
        Ok(Tables {
            copies: transaction.open_table(COPIES)?,
            copies_by_age: transaction.open_table(COPIES_BY_AGE)?,
            history: transaction.open_table(HISTORY)?,
            history_by_age: transaction.open_table(HISTORY_BY_AGE)?,
            bodies: transaction.open_table(BODIES)?,
            named: transaction.open_table(NAMED)?,
            sums: transaction.open_table(SUMS)?,
        })
    }

    fn keep(&mut self, key: &str, copy: &Copy, body: Option<&[u8]>) -> Result<(), redb::Error> {
        let earlier = self.copies.get(key)?.and_then(|json| decode(json.value()));
        let written = encode(copy);
        let is_new_version =
            earlier.as_ref().is_none_or(|earlier| earlier.fetched_at != copy.fetched_at && differs(earlier, copy));
        // The new copy is named before the earlier one is let go, so that a body in use is not dropped between the two.
        self.name(copy, body)?;
        self.copies.insert(key, written.as_slice())?;
        self.copies_by_age.insert((milliseconds(copy.confirmed_at), key), ())?;
        if is_new_version {
            let at = milliseconds(copy.fetched_at);
            if self.history.insert((key, at), written.as_slice())?.is_none() {
                self.name(copy, body)?;
            }
            self.history_by_age.insert((at, key), ())?;
        }
        if let Some(earlier) = earlier {
            if milliseconds(earlier.confirmed_at) != milliseconds(copy.confirmed_at) {
                self.copies_by_age.remove((milliseconds(earlier.confirmed_at), key))?;
            }
            self.unname(&earlier)?;
        }
        Ok(())
    }

    fn forget(&mut self, key: &str) -> Result<(), redb::Error> {
        let Some(copy) = self.copies.remove(key)?.and_then(|json| decode(json.value())) else { return Ok(()) };
        self.copies_by_age.remove((milliseconds(copy.confirmed_at), key))?;
        self.unname(&copy)
    }

    fn name(&mut self, copy: &Copy, body: Option<&[u8]>) -> Result<(), redb::Error> {
        let Some(sha256) = copy.sha256.as_deref() else { return Ok(()) };
        let names = self.named.get(sha256)?.map_or(0, |names| names.value());
        self.named.insert(sha256, names + 1)?;
        if let Some(body) = body
            && self.bodies.get(sha256)?.is_none()
        {
            self.bodies.insert(sha256, body)?;
            let sum = self.body_bytes()?;
            self.sums.insert(BODY_BYTES, sum + body.len() as u64)?;
        }
        Ok(())
    }

    fn unname(&mut self, copy: &Copy) -> Result<(), redb::Error> {
        let Some(sha256) = copy.sha256.as_deref() else { return Ok(()) };
        let names = self.named.get(sha256)?.map_or(0, |names| names.value());
        if names > 1 {
            self.named.insert(sha256, names - 1)?;
            return Ok(());
        }
        self.named.remove(sha256)?;
        let octets = self.bodies.remove(sha256)?.map_or(0, |body| body.value().len() as u64);
        let sum = self.body_bytes()?;
        self.sums.insert(BODY_BYTES, sum.saturating_sub(octets))?;
        Ok(())
    }

    fn body_bytes(&self) -> Result<u64, redb::Error> {
        Ok(self.sums.get(BODY_BYTES)?.map_or(0, |sum| sum.value()))
    }

    /// Drops the oldest copies and history beyond the limits, and returns the origins of the copies. A body that a copy in force names
    /// stays.
    fn bound(&mut self, limits: Limits) -> Result<Vec<String>, redb::Error> {
        let mut forgotten = Vec::new();
        while self.copies.len()? > limits.copies {
            let Some(oldest) = self.copies_by_age.first()?.map(|(age, _)| age.value().1.to_owned()) else { break };
            self.forget(&oldest)?;
            forgotten.push(oldest);
        }
        while self.body_bytes()? > limits.body_bytes
            || self.history.len()? > limits.copies.saturating_mul(HISTORY_PER_COPY)
        {
            let Some((at, key)) =
                self.history_by_age.pop_first()?.map(|(age, _)| (age.value().0, age.value().1.to_owned()))
            else {
                break;
            };
            let dropped = self.history.remove((key.as_str(), at))?.and_then(|json| decode(json.value()));
            if let Some(copy) = dropped {
                self.unname(&copy)?;
            }
        }
        Ok(forgotten)
    }
}

/// Versions kept for each copy that may be in force, on average.
const HISTORY_PER_COPY: u64 = 4;

/// Whether the later copy says something else than the earlier one.
fn differs(earlier: &Copy, later: &Copy) -> bool {
    (&earlier.sha256, earlier.status, earlier.note) != (&later.sha256, later.status, later.note)
}

/// The copy in force, with its body.
pub(super) fn load(database: &Database, key: &str) -> Result<Option<(Copy, Vec<u8>)>, redb::Error> {
    let transaction = database.begin_read()?;
    let copies = match transaction.open_table(COPIES) {
        Ok(copies) => copies,
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let Some(copy) = copies.get(key)?.and_then(|json| decode(json.value())) else { return Ok(None) };
    with_body(database, copy)
}

/// The copy in force at a time, with its body.
pub(super) fn at(database: &Database, key: &str, time: SystemTime) -> Result<Option<(Copy, Vec<u8>)>, redb::Error> {
    let transaction = database.begin_read()?;
    let history = match transaction.open_table(HISTORY) {
        Ok(history) => history,
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let found = history.range((key, 0)..=(key, milliseconds(time)))?.next_back().transpose()?;
    let Some(copy) = found.and_then(|(_, json)| decode(json.value())) else { return Ok(None) };
    with_body(database, copy)
}

/// `None` also where the body is missing: a copy without its rules is no copy.
fn with_body(database: &Database, copy: Copy) -> Result<Option<(Copy, Vec<u8>)>, redb::Error> {
    let Some(sha256) = &copy.sha256 else { return Ok(Some((copy, Vec::new()))) };
    Ok(body(database, sha256)?.map(|body| (copy, body)))
}

/// A body.
pub(super) fn body(database: &Database, sha256: &str) -> Result<Option<Vec<u8>>, redb::Error> {
    match database.begin_read()?.open_table(BODIES) {
        Ok(bodies) => Ok(bodies.get(sha256)?.map(|body| body.value().to_vec())),
        Err(redb::TableError::TableDoesNotExist(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The size of a body.
pub(super) fn octets(database: &Database, sha256: &str) -> Result<Option<u64>, redb::Error> {
    match database.begin_read()?.open_table(BODIES) {
        Ok(bodies) => Ok(bodies.get(sha256)?.map(|body| body.value().len() as u64)),
        Err(redb::TableError::TableDoesNotExist(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The origins of all copies in force, from the smallest table that has them.
pub(super) fn origins(database: &Database) -> Result<Vec<String>, redb::Error> {
    let transaction = database.begin_read()?;
    let by_age = match transaction.open_table(COPIES_BY_AGE) {
        Ok(by_age) => by_age,
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    by_age.iter()?.map(|entry| Ok(entry?.0.value().1.to_owned())).collect()
}

/// All copies in force.
pub(super) fn list(database: &Database) -> Result<Vec<(String, Copy)>, redb::Error> {
    let transaction = database.begin_read()?;
    let copies = match transaction.open_table(COPIES) {
        Ok(copies) => copies,
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let mut all = Vec::new();
    for entry in copies.iter()? {
        let (key, json) = entry?;
        all.extend(decode(json.value()).map(|copy| (key.value().to_owned(), copy)));
    }
    Ok(all)
}

fn encode(copy: &Copy) -> Vec<u8> {
    serde_json::to_vec(copy).unwrap_or_default()
}

/// `None` for what a later version wrote otherwise: such a copy is fetched anew.
fn decode(json: &[u8]) -> Option<Copy> {
    serde_json::from_slice(json).ok()
}

fn milliseconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
