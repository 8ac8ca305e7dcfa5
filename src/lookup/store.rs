//! Copies on disk: what was in force at an origin, now and earlier, with the very bodies.
//!
//! A file database that a crash at any instant leaves whole (redb), so that a restart forgets nothing and a record of last month can
//! still be decided again. Bodies are kept once, by their SHA-256. A thread of its own writes, several copies a transaction; what
//! waits to be written is bounded. A disk that is full, read-only or slow costs nobody an answer: it is logged once, counted, and
//! tried again, and until then copies live in memory.

mod known;
mod tables;
mod waiting;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use redb::Database;

use self::known::Known;
use self::tables::Change;
use self::waiting::Waiting;
use super::copy::Copy;
use super::state::ToKeep;
use crate::clock;
use crate::policy::target::Origin;

/// What bounds the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Origins with a copy; the least recently confirmed are dropped beyond that.
    pub copies: u64,
    /// Octets of all bodies, earlier ones included; the oldest history is dropped beyond that.
    pub body_bytes: u64,
}

impl Limits {
    /// History for a gibibyte of bodies: about 200,000 files of the usual size.
    pub const BODY_BYTES: u64 = 1 << 30;
}

/// The name of the database in the state folder.
pub const FILE: &str = "copies.redb";

/// The store.
#[derive(Debug)]
pub struct Store {
    shared: Arc<Shared>,
    /// `None` only while the store is dropped.
    writer: Option<thread::JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    limits: Limits,
    waiting: Waiting,
    known: Known,
    /// `None` while it cannot be opened.
    database: Mutex<Option<Arc<Database>>>,
    healthy: AtomicBool,
    failures: AtomicU64,
}

/// Why the store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The folder or the file.
    #[error("cannot keep copies in {}: {reason}", path.display())]
    Unusable {
        /// The database.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// Another process has it open.
    #[error("{} is in use by another process", .0.display())]
    InUse(PathBuf),
}

/// Memory that the database may use for pages.
const CACHE_BYTES: usize = 16 << 20;

/// Between two transactions, so that a crawl writes its copies some hundred at a time: what a crash costs at most, beside the transaction
/// under way. The second that Redis allows itself by default (`appendfsync everysec`); such a copy is fetched once more.
const PAUSE: Duration = Duration::from_secs(1);

/// After a failure, or while another process has it, the file is left alone for this long.
const RETRY_AFTER: Duration = Duration::from_secs(30);

/// A disk that takes longer to read a copy is slower than asking the origin.
const READ_TIMEOUT: Duration = Duration::from_secs(1);

impl Store {
    /// Opens the store in a folder. Where the disk does not allow it now, or another process has it open, it is tried again with later
    /// copies.
    ///
    /// # Errors
    /// Its thread does not start.
    pub fn open(folder: &Path, limits: Limits) -> Result<Store, StoreError> {
        let path = folder.join(FILE);
        let opened = open(&path);
        let broken = match &opened {
            Ok(_) => false,
            Err(error @ StoreError::InUse(_)) => {
                tracing::info!(%error, "robots.txt copies stay in memory until it is free");
                false
            }
            Err(error) => {
                tracing::error!(%error, "robots.txt copies stay in memory, and are lost at a restart");
                true
            }
        };
        let (database, failed, healthy) = (opened.ok().map(Arc::new), u64::from(broken), AtomicBool::new(!broken));
        let shared = Arc::new(Shared {
            path,
            limits,
            waiting: Waiting::default(),
            known: Known::default(),
            database: Mutex::new(database),
            healthy,
            failures: AtomicU64::new(failed),
        });
        let writing = Arc::clone(&shared);
        let spawned = thread::Builder::new().name("copies".into()).spawn(move || writing.write());
        let unusable =
            |error: std::io::Error| StoreError::Unusable { path: shared.path.clone(), reason: error.to_string() };
        let writer = Some(spawned.map_err(unusable)?);
        Ok(Store { shared, writer })
    }

    /// The copy of an origin, with its body; `None` also where the disk does not answer in time.
    pub(super) async fn load(&self, origin: &Origin) -> Option<(Copy, Vec<u8>)> {
        let key = origin.to_string();
        if !self.shared.known.may_hold(&key) {
            return None;
        }
        let shared = Arc::clone(&self.shared);
        let reading = tokio::task::spawn_blocking(move || tables::load(&*shared.database()?, &key).ok().flatten());
        clock::timeout(READ_TIMEOUT, reading).await?.ok()?
    }

    /// Writes a copy soon.
    pub(super) fn keep(&self, origin: &Origin, to_keep: ToKeep) {
        self.change(Change::Keep { key: origin.to_string(), copy: Box::new(to_keep.copy), body: to_keep.body });
    }

    /// Removes an origin's copy soon. Its history stays.
    pub(super) fn forget(&self, origin: &Origin) {
        self.change(Change::Forget { key: origin.to_string() });
    }

    fn change(&self, change: Change) {
        if !self.shared.waiting.push(change) {
            self.shared.failed("the disk is too slow for the copies that come in");
        }
    }

    /// Returns when all that was to be written has been, or has failed.
    pub fn flush(&self) {
        self.shared.waiting.flush();
    }

    /// Whether the last try to write was a success.
    pub fn is_healthy(&self) -> bool {
        self.shared.healthy.load(Ordering::Relaxed)
    }

    /// Failures to open or write since the start.
    pub fn failures(&self) -> u64 {
        self.shared.failures.load(Ordering::Relaxed)
    }

    /// A view for reading, as commands and replays need it.
    pub fn reader(&self) -> Option<Reader> {
        self.shared.database().map(Reader)
    }
}

impl Drop for Store {
    /// Writes what waits, and closes the file, so that another process may open it.
    fn drop(&mut self) {
        self.shared.waiting.close();
        if let Some(writer) = self.writer.take() {
            // A writer that panicked has said so itself.
            let _ = writer.join();
        }
    }
}

impl Shared {
    fn database(&self) -> Option<Arc<Database>> {
        self.database.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_database(&self, database: Option<Arc<Database>>) {
        *self.database.lock().unwrap_or_else(PoisonError::into_inner) = database;
    }

    fn failed(&self, reason: &str) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        if self.healthy.swap(false, Ordering::Relaxed) {
            tracing::error!(path = %self.path.display(), reason, "robots.txt copies are not written; requests go on");
        }
    }

    fn worked(&self) {
        if !self.healthy.swap(true, Ordering::Relaxed) {
            tracing::info!(path = %self.path.display(), "robots.txt copies are written again");
        }
    }

    /// Runs in the store's own thread until the store is dropped.
    fn write(&self) {
        let _abandoned = Abandoned(&self.waiting);
        if let Some(database) = self.database() {
            self.learn(&database);
        }
        let mut earliest = clock::now();
        let mut leave_alone_until: Option<Instant> = None;
        while let Some(batch) = self.waiting.take(earliest) {
            let now = clock::now();
            if !batch.changes.is_empty() && leave_alone_until.is_none_or(|until| now >= until) {
                leave_alone_until = match self.apply(&batch.changes) {
                    Ok(Applied::Written) => None,
                    Ok(Applied::InUse) => Some(now + RETRY_AFTER),
                    Err(reason) => {
                        // After an error of the disk redb refuses further work until the file is opened anew.
                        self.set_database(None);
                        self.known.unlearn();
                        self.failed(&reason);
                        Some(now + RETRY_AFTER)
                    }
                };
                earliest = clock::now() + PAUSE;
            }
            for waits in batch.asking {
                let _ = waits.send(());
            }
        }
    }

    fn apply(&self, changes: &[Change]) -> Result<Applied, String> {
        let database = match self.database() {
            Some(database) => database,
            None => match open(&self.path) {
                Ok(database) => self.take_up(Arc::new(database)),
                Err(StoreError::InUse(_)) => return Ok(Applied::InUse),
                Err(error) => return Err(error.to_string()),
            },
        };
        let dropped = tables::apply(&database, changes, self.limits).map_err(|error| error.to_string())?;
        let left = changes.iter().map(Change::leaves);
        left.chain(dropped.iter().map(|key| (key.as_str(), false))).for_each(|(key, has)| self.known.change(key, has));
        self.worked();
        Ok(Applied::Written)
    }

    fn take_up(&self, database: Arc<Database>) -> Arc<Database> {
        self.learn(&database);
        self.set_database(Some(Arc::clone(&database)));
        database
    }

    /// Reads which origins have a copy. Where that fails, each is looked up.
    fn learn(&self, database: &Database) {
        if let Ok(origins) = tables::origins(database) {
            self.known.learn(origins);
        }
    }
}

/// The writer has ended, or panicked.
struct Abandoned<'a>(&'a Waiting);

impl Drop for Abandoned<'_> {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

/// What became of changes that the disk did not refuse.
enum Applied {
    /// They are on disk.
    Written,
    /// Another process has the file, and writes its own.
    InUse,
}

fn open(path: &Path) -> Result<Database, StoreError> {
    let unusable = |reason: String| StoreError::Unusable { path: path.to_owned(), reason };
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(|error| unusable(error.to_string()))?;
    }
    let opened = Database::builder().set_cache_size(CACHE_BYTES).create(path);
    opened.map_err(|error| match error {
        redb::DatabaseError::DatabaseAlreadyOpen => StoreError::InUse(path.to_owned()),
        error => unusable(error.to_string()),
    })
}

/// Reads a store.
#[derive(Debug)]
pub struct Reader(Arc<Database>);

/// A failure to read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the copies: {0}")]
pub struct ReadError(#[from] redb::Error);

impl Reader {
    /// Opens the store of a proxy that does not run.
    ///
    /// # Errors
    /// There is none, or a process has it open.
    pub fn open(folder: &Path) -> Result<Reader, StoreError> {
        let path = folder.join(FILE);
        if !path.exists() {
            return Err(StoreError::Unusable { path, reason: "there are none yet".into() });
        }
        open(&path).map(|database| Reader(Arc::new(database)))
    }

    /// All copies in force, by origin.
    ///
    /// # Errors
    /// The disk.
    pub fn list(&self) -> Result<Vec<(String, Copy)>, ReadError> {
        Ok(tables::list(&self.0)?)
    }

    /// The copy in force at an origin, with its body.
    ///
    /// # Errors
    /// The disk.
    pub fn show(&self, origin: &Origin) -> Result<Option<(Copy, Vec<u8>)>, ReadError> {
        Ok(tables::load(&self.0, &origin.to_string())?)
    }

    /// The copy that was in force at an origin at some time, with its body.
    ///
    /// # Errors
    /// The disk.
    pub fn at(&self, origin: &Origin, time: SystemTime) -> Result<Option<(Copy, Vec<u8>)>, ReadError> {
        Ok(tables::at(&self.0, &origin.to_string(), time)?)
    }

    /// A body by its SHA-256 in hex.
    ///
    /// # Errors
    /// The disk.
    pub fn body(&self, sha256: &str) -> Result<Option<Vec<u8>>, ReadError> {
        Ok(tables::body(&self.0, sha256)?)
    }

    /// The size of a body by its SHA-256.
    ///
    /// # Errors
    /// The disk.
    pub fn octets(&self, sha256: &str) -> Result<Option<u64>, ReadError> {
        Ok(tables::octets(&self.0, sha256)?)
    }
}

#[cfg(test)]
mod tests;
