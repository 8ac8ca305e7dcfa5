//! The thread that writes the audit log.
//!
//! A thread of its own writes, so that a slow disk holds up no other request. What waits to be written is bounded. Records that the disk
//! does not take are kept, up to a bound, and tried again every second, so that a disk that was full for a while costs nothing and its
//! recovery is noticed without a request; what finds no place is counted as lost. Rotated files are compressed by a second thread.
//!
//! A record that somebody waits for is written at once. Others are written together: waking the thread for each of them would cost more
//! than the record, so after every batch it lets some milliseconds' worth gather.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc as std_mpsc;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use tokio::sync::{Notify, mpsc, oneshot};

use super::feed::Feed;
use super::log::{Appended, Log};
use super::rotated::Names;
use super::{Ended, OnFailure, Settings, Which};
use crate::clock;
use crate::metrics::{Ending, Requests, Seconds};
use crate::policy::reason::Reason;

/// Records that may wait for the disk: a few seconds of a busy proxy, about 10 MB.
const WAITING_MAX: usize = 10_000;

/// Records that the disk did not take and that are tried again, about 1 MB.
const UNWRITTEN_MAX: usize = 1000;

/// Records that are written before the lock of the log is given to another process.
const BATCH: usize = 256;

/// How long records gather that nobody waits for. Chosen: short beside the time it takes to look at a log, and long enough for a hundred
/// records of a busy proxy.
const GATHERING: Duration = Duration::from_millis(5);

/// Between two tries to write what the disk did not take.
const RETRY: Duration = Duration::from_secs(1);

/// How long an answer waits for a disk that neither takes nor refuses its record, such as one at the end of a broken network.
const PATIENCE: Duration = Duration::from_secs(5);

/// Is told of each request as it ends.
type Listener = Box<dyn Fn(&Ended<'_>) + Send + Sync>;

/// The audit log is opened once and shared by all requests.
pub struct Audit {
    settings: ArcSwap<Settings>,
    queue: mpsc::Sender<Message>,
    /// Somebody waits for what is in the queue.
    hurry: Arc<Notify>,
    state: Arc<State>,
    listener: OnceLock<Listener>,
    requests: Requests,
    waits: Seconds,
    feed: OnceLock<Feed>,
}

#[derive(Debug)]
struct State {
    written: AtomicU64,
    lost: AtomicU64,
    is_healthy: AtomicBool,
}

enum Message {
    /// A record; the sender is told when it has been tried.
    Record(Vec<u8>, Option<oneshot::Sender<()>>),
    /// Everything before it has been tried.
    Flush(oneshot::Sender<()>),
    Reopen(oneshot::Sender<io::Result<()>>),
    /// Records go there from now on, if anywhere else; and what it means that there are none.
    Adopt(Option<Out>, &'static str),
}

/// Other settings, with the file that they name open.
pub struct Prepared {
    settings: Settings,
    /// `None` where the file stays the one that it was.
    out: Option<Out>,
    place: mpsc::OwnedPermit<Message>,
}

/// The log cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Not for writing.
    #[error("cannot open the audit log {}: {source}; set audit.path to a file that can be read and written", path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
    /// A chain goes on where it was left, and standard output cannot be read.
    #[error("audit.chain needs a file: set audit.path to one, or audit.chain to false")]
    NoFileToChain,
    /// No thread.
    #[error("the audit log's thread does not start: {0}; the system's limit of threads is reached")]
    Thread(io::Error),
    /// The disk hangs.
    #[error("the audit log neither takes nor refuses records, so that its settings cannot change; mend its disk first")]
    Stuck,
}

impl Audit {
    /// Opens the log for appending, and starts its thread.
    ///
    /// # Errors
    /// The file cannot be opened for reading and writing.
    pub fn open(settings: &Settings) -> Result<Arc<Audit>, OpenError> {
        let out = Out::open(settings)?;
        let (queue, messages) = mpsc::channel(WAITING_MAX);
        let state = Arc::new(State { written: 0.into(), lost: 0.into(), is_healthy: true.into() });
        let (hurry, consequence) = (Arc::new(Notify::new()), settings.on_failure.consequence());
        let unwritten = VecDeque::new();
        let writer = Writer { out, unwritten, hurry: Arc::clone(&hurry), state: Arc::clone(&state), consequence };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().map_err(OpenError::Thread)?;
        thread::Builder::new()
            .name("audit".into())
            .spawn(move || writer.work(&runtime, messages))
            .map_err(OpenError::Thread)?;
        let settings = ArcSwap::from_pointee(settings.clone());
        let (requests, waits) = (Requests::default(), Seconds::default());
        let (listener, feed) = (OnceLock::new(), OnceLock::new());
        Ok(Arc::new(Audit { settings, queue, hurry, state, listener, requests, waits, feed }))
    }

    /// Has a function told of each request as it ends, also of those that are not recorded. The first that asks is the only one.
    pub fn on_end(&self, listener: impl Fn(&Ended<'_>) + Send + Sync + 'static) {
        let _ = self.listener.set(Box::new(listener));
    }

    pub(super) fn ended(&self, ended: &Ended<'_>) {
        if let Some(listener) = self.listener.get() {
            listener(ended);
        }
    }

    /// Whether somebody looks at what ends, recorded or not.
    pub(super) fn is_watched(&self) -> bool {
        self.listener.get().is_some() || self.feed.get().is_some()
    }

    /// The settings in force.
    pub fn settings(&self) -> Guard<Arc<Settings>> {
        self.settings.load()
    }

    /// Opens what other settings name. Nothing changes before [`Audit::adopt`].
    ///
    /// # Errors
    /// The file cannot be opened for reading and writing.
    pub async fn prepare(&self, settings: &Settings) -> Result<Prepared, OpenError> {
        let of_file = |settings: &Settings| (settings.path.clone(), settings.rotate, settings.keep, settings.chain);
        let is_same = of_file(&self.settings.load()) == of_file(settings);
        let out = if is_same { None } else { Some(Out::open(settings)?) };
        let place = clock::timeout(PATIENCE, self.queue.clone().reserve_owned()).await;
        let place = place.and_then(Result::ok).ok_or(OpenError::Stuck)?;
        Ok(Prepared { settings: settings.clone(), out, place })
    }

    /// Goes by other settings. What the disk has not taken yet goes to the new file.
    pub fn adopt(&self, prepared: Prepared) {
        let Prepared { settings, out, place } = prepared;
        let consequence = settings.on_failure.consequence();
        self.settings.store(Arc::new(settings));
        place.send(Message::Adopt(out, consequence));
    }

    /// Which requests are recorded.
    pub fn which(&self) -> Which {
        self.settings.load().record
    }

    /// The file; `None` is standard output.
    pub fn path(&self) -> Option<PathBuf> {
        self.settings.load().path.clone()
    }

    /// Writes a line, and returns when the file has it or has refused it, or when that takes too long.
    ///
    /// The file has it when the system's `write` has returned: it survives the end of the proxy by any means, but what the last seconds
    /// brought may be lost where the machine itself crashes.
    pub async fn write(&self, line: Vec<u8>) {
        let (tried, done) = oneshot::channel();
        self.wait(Message::Record(line, Some(tried)), done).await;
    }

    /// Writes a line soon; for where nothing can be waited for.
    pub fn write_later(&self, line: Vec<u8>) {
        if self.queue.try_send(Message::Record(line, None)).is_err() {
            self.state.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns when everything that was to be written has been tried.
    pub async fn flush(&self) {
        let (tried, done) = oneshot::channel();
        self.wait(Message::Flush(tried), done).await;
    }

    async fn wait(&self, message: Message, done: oneshot::Receiver<()>) {
        let waited = clock::timeout(PATIENCE, async {
            if self.queue.send(message).await.is_ok() {
                self.hurry.notify_one();
                let _ = done.await;
            }
        });
        if waited.await.is_none() && self.state.is_healthy.swap(false, Ordering::Relaxed) {
            tracing::error!(
                "the audit log neither takes nor refuses records; {}",
                self.settings.load().on_failure.consequence()
            );
        }
    }

    /// Opens the file that has the log's name now: for SIGHUP, after logrotate has moved the old one. That is noticed at the next record
    /// as well, but only here where the disk is told to have no records at all.
    ///
    /// # Errors
    /// The file cannot be opened; the old one stays in use.
    pub async fn reopen(&self) -> io::Result<()> {
        let (sender, reopened) = oneshot::channel();
        let gone = || io::Error::other("the audit log's thread has ended");
        self.queue.send(Message::Reopen(sender)).await.map_err(|_| gone())?;
        self.hurry.notify_one();
        reopened.await.map_err(|_| gone())?
    }

    /// Whether the log takes records. Once it does not, it is tried every second.
    pub fn is_healthy(&self) -> bool {
        self.state.is_healthy.load(Ordering::Relaxed)
    }

    /// Whether requests may be served: always, unless `audit.on_failure` is `"stop"` and the log takes no records.
    pub fn admits(&self) -> bool {
        self.settings.load().on_failure == OnFailure::Serve || self.is_healthy()
    }

    /// Counts a request that has ended, recorded or not.
    pub(super) fn count(&self, decision: &'static str, reason: Reason, waited: Option<Duration>) {
        self.requests.get_or_create(&Ending { decision, reason: reason.code() }).inc();
        if let Some(waited) = waited {
            self.waits.took(waited);
        }
    }

    /// Requests that have ended.
    pub fn requests(&self) -> &Requests {
        &self.requests
    }

    /// How long requests waited for their turn.
    pub fn waits(&self) -> &Seconds {
        &self.waits
    }

    /// Keeps the latest records at hand from now on, recorded or not.
    pub fn keep_latest(&self) {
        self.feed.get_or_init(Feed::default);
    }

    /// The latest records, where they are kept.
    pub fn feed(&self) -> Option<&Feed> {
        self.feed.get()
    }

    /// Records written since the start.
    pub fn written(&self) -> u64 {
        self.state.written.load(Ordering::Relaxed)
    }

    /// Records lost since the start.
    pub fn failed(&self) -> u64 {
        self.state.lost.load(Ordering::Relaxed)
    }
}

impl std::fmt::Debug for Audit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Audit").field("settings", &self.settings).field("state", &self.state).finish_non_exhaustive()
    }
}

enum Out {
    Standard(io::Stdout),
    File(Box<Log>, Tidying),
}

impl Out {
    fn open(settings: &Settings) -> Result<Out, OpenError> {
        match &settings.path {
            None if settings.chain => Err(OpenError::NoFileToChain),
            None => Ok(Out::Standard(io::stdout())),
            Some(path) => {
                let failed = |source| OpenError::Unwritable { path: path.clone(), source };
                let log = Log::open(path, settings.rotate, settings.chain).map_err(failed)?;
                let tidying = Tidying::start(log.names().clone(), settings.keep).map_err(OpenError::Thread)?;
                Ok(Out::File(Box::new(log), tidying))
            }
        }
    }

    fn append<'a>(&mut self, mut lines: impl Iterator<Item = &'a [u8]>) -> Appended {
        match self {
            Out::Standard(out) => {
                let mut appended = Appended { lines: 0, error: None, rotated: false };
                let mut written = |line: &[u8]| out.write_all(line).and_then(|()| out.flush());
                appended.error = lines.try_for_each(|line| written(line).inspect(|()| appended.lines += 1)).err();
                appended
            }
            Out::File(log, tidying) => {
                let appended = log.append(lines);
                if appended.rotated {
                    tidying.wake();
                }
                appended
            }
        }
    }
}

struct Writer {
    out: Out,
    /// What has not been written yet, oldest first.
    unwritten: VecDeque<Vec<u8>>,
    hurry: Arc<Notify>,
    state: Arc<State>,
    /// What it means for requests that there are no records.
    consequence: &'static str,
}

impl Writer {
    fn work(mut self, runtime: &tokio::runtime::Runtime, mut messages: mpsc::Receiver<Message>) {
        let mut batch = Vec::with_capacity(BATCH);
        while runtime.block_on(self.receive(&mut messages, &mut batch)) {
            let is_all = batch.len() < BATCH;
            self.take(batch.drain(..));
            if is_all {
                runtime.block_on(clock::timeout(GATHERING, self.hurry.notified()));
            }
        }
        self.write();
        self.drop_beyond(0);
    }

    /// Returns with what came, or with nothing when it is time to try again what was not written; false when nothing comes any more.
    async fn receive(&self, messages: &mut mpsc::Receiver<Message>, batch: &mut Vec<Message>) -> bool {
        let came = messages.recv_many(batch, BATCH);
        match self.unwritten.is_empty() {
            true => came.await > 0,
            false => clock::timeout(RETRY, came).await != Some(0),
        }
    }

    /// Tries to write all records of a batch, and tells who waits for it.
    fn take(&mut self, batch: impl Iterator<Item = Message>) {
        let (mut waiting, mut is_flushed) = (Vec::new(), false);
        for message in batch {
            match message {
                Message::Record(line, tried) => {
                    self.unwritten.push_back(line);
                    waiting.extend(tried);
                }
                Message::Flush(tried) => {
                    is_flushed = true;
                    waiting.push(tried);
                }
                Message::Reopen(reopened) => {
                    self.write();
                    let result = match &mut self.out {
                        Out::File(log, _) => log.reopen(),
                        Out::Standard(_) => Ok(()),
                    };
                    let _ = reopened.send(result);
                }
                Message::Adopt(out, consequence) => {
                    self.write();
                    if let Some(out) = out {
                        self.out = out;
                    }
                    self.consequence = consequence;
                }
            }
        }
        self.write();
        self.drop_beyond(UNWRITTEN_MAX);
        if is_flushed && !self.unwritten.is_empty() {
            // At the stop, after which nobody tries again.
            tracing::error!("{} records are not in the audit log, which takes none", self.unwritten.len());
        }
        for tried in waiting {
            let _ = tried.send(());
        }
    }

    fn write(&mut self) {
        if self.unwritten.is_empty() {
            return;
        }
        let Appended { lines, error, .. } = self.out.append(self.unwritten.iter().map(Vec::as_slice));
        self.unwritten.drain(..lines);
        self.state.written.fetch_add(lines as u64, Ordering::Relaxed);
        let was_healthy = self.state.is_healthy.swap(error.is_none(), Ordering::Relaxed);
        match error {
            Some(error) if was_healthy => {
                let consequence = self.consequence;
                tracing::error!(
                    "the audit log takes no records ({error}); {consequence}, and up to {UNWRITTEN_MAX} records wait for it"
                );
            }
            None if !was_healthy => {
                let lost = self.state.lost.load(Ordering::Relaxed);
                tracing::info!("the audit log takes records again; {lost} were lost since the start");
            }
            _ => {}
        }
    }

    /// The newest find no place.
    fn drop_beyond(&mut self, places: usize) {
        let lost = self.unwritten.len().saturating_sub(places);
        self.unwritten.truncate(places);
        self.state.lost.fetch_add(lost as u64, Ordering::Relaxed);
    }
}

/// The thread that removes and compresses rotated files.
#[derive(Debug)]
struct Tidying(std_mpsc::SyncSender<()>);

impl Tidying {
    /// Starts it; it begins with what an earlier process has left.
    fn start(names: Names, keep: usize) -> io::Result<Tidying> {
        // One wish in advance is enough: each is for all files that there are.
        let (wishes, wished) = std_mpsc::sync_channel(1);
        let tidying = Tidying(wishes);
        tidying.wake();
        let work = move || {
            while wished.recv().is_ok() {
                if let Err(error) = names.tidy(keep) {
                    tracing::warn!(%error, "rotated audit logs are not all compressed or removed; tried again at the next rotation");
                }
            }
        };
        thread::Builder::new().name("audit-gzip".into()).spawn(work)?;
        Ok(tidying)
    }

    fn wake(&self) {
        let _ = self.0.try_send(());
    }
}
