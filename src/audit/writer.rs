//! The file behind the audit log.
//!
//! A thread of its own writes, so that a slow disk holds up no other request; each record is one `write` to a file opened for
//! appending, so that several processes may share it. What waits to be written is bounded: a record that finds the queue full is
//! counted as lost, and so is one that the disk does not take.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use tokio::sync::{mpsc, oneshot};

use super::{Settings, Which};

/// Records that may wait for the disk: a few seconds of a busy proxy, about 10 MB.
const WAITING_MAX: usize = 10_000;

/// The audit log is opened once and shared by all requests.
#[derive(Debug)]
pub struct Audit {
    which: Which,
    path: Option<PathBuf>,
    queue: mpsc::Sender<Message>,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    written: AtomicU64,
    failed: AtomicU64,
}

struct Message {
    line: Vec<u8>,
    written: Option<oneshot::Sender<()>>,
}

/// The log cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot open the audit log {}: {source}; set audit.path to a file that can be written", path.display())]
pub struct OpenError {
    path: PathBuf,
    source: io::Error,
}

impl Audit {
    /// Opens the log for appending, and starts its thread.
    ///
    /// # Errors
    /// The file cannot be opened for writing.
    pub fn open(settings: &Settings) -> Result<Arc<Audit>, OpenError> {
        let file: Box<dyn Write + Send> = match &settings.path {
            None => Box::new(io::stdout()),
            Some(path) => Box::new(append(path).map_err(|source| OpenError { path: path.clone(), source })?),
        };
        let (queue, messages) = mpsc::channel(WAITING_MAX);
        let counts = Arc::new(Counts::default());
        let counted = Arc::clone(&counts);
        thread::Builder::new()
            .name("audit".into())
            .spawn(move || write_all(file, messages, &counted))
            .map_err(|source| OpenError { path: PathBuf::from("thread"), source })?;
        Ok(Arc::new(Audit { which: settings.record, path: settings.path.clone(), queue, counts }))
    }

    /// Which requests are recorded.
    pub fn which(&self) -> Which {
        self.which
    }

    /// The file; `None` is standard output.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Writes a line, and returns when the disk has it or has refused it.
    pub async fn write(&self, line: Vec<u8>) {
        let (written, done) = oneshot::channel();
        if self.queue.send(Message { line, written: Some(written) }).await.is_ok() {
            let _ = done.await;
        }
    }

    /// Writes a line soon; for where nothing can be waited for.
    pub fn write_later(&self, line: Vec<u8>) {
        if self.queue.try_send(Message { line, written: None }).is_err() {
            self.counts.failed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns when everything that was to be written has been.
    pub async fn flush(&self) {
        self.write(Vec::new()).await;
    }

    /// Records written since the start.
    pub fn written(&self) -> u64 {
        self.counts.written.load(Ordering::Relaxed)
    }

    /// Records lost since the start.
    pub fn failed(&self) -> u64 {
        self.counts.failed.load(Ordering::Relaxed)
    }
}

fn append(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    OpenOptions::new().append(true).create(true).open(path)
}

fn write_all(mut file: Box<dyn Write + Send>, mut messages: mpsc::Receiver<Message>, counts: &Counts) {
    let mut failing = false;
    while let Some(Message { line, written }) = messages.blocking_recv() {
        if !line.is_empty() {
            match file.write_all(&line).and_then(|()| file.flush()) {
                Ok(()) => {
                    counts.written.fetch_add(1, Ordering::Relaxed);
                    failing = false;
                }
                Err(error) => {
                    counts.failed.fetch_add(1, Ordering::Relaxed);
                    if !std::mem::replace(&mut failing, true) {
                        tracing::error!(%error, "the audit log takes no records; requests go on unrecorded");
                    }
                }
            }
        }
        if let Some(written) = written {
            let _ = written.send(());
        }
    }
}
