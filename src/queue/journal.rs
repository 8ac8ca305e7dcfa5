//! What a restart must not forget: when each host was asked last, and which of them asked for a pause.
//!
//! Both are written when the proxy stops (`pace.json` in the state folder), and read when it starts. A process that was killed wrote
//! nothing, so the next one takes every host that has a delay as asked at the moment of its own start: the longest that anybody
//! waits for that is one delay, once. Instants mean nothing to another process, so the time of day stands in for them; a clock that
//! was set back in between makes a request wait a little longer, never less.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};

use super::Queue;
use super::line::LineKey;
use crate::clock;
use crate::policy::hold::Sign;
use crate::policy::target::Host;

/// The file, locked for as long as the proxy runs.
#[derive(Debug)]
pub struct Journal(File);

/// What is in it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Entry {
    /// A proxy runs, or ran until it was killed.
    Running,
    /// One has stopped in good order.
    Stopped { starts: Vec<Started>, holds: Vec<Held> },
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Started {
    pub(super) host: Host,
    /// Empty for the line of all bots.
    pub(super) bot: String,
    pub(super) delay: Duration,
    pub(super) at: SystemTime,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Held {
    pub(super) host: Host,
    pub(super) until: SystemTime,
    pub(super) sign: Sign,
}

impl Journal {
    /// Tells the queue what the process before this one knew. `None` where another process has the folder, and keeps its own pace.
    ///
    /// # Errors
    /// The file cannot be read or written; a host may be asked too early then.
    pub fn open(folder: &Path, queue: &Queue) -> io::Result<Option<Journal>> {
        std::fs::create_dir_all(folder)?;
        let path = folder.join("pace.json");
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        match serde_json::from_slice(&text) {
            // The first start of all.
            _ if text.is_empty() => {}
            Ok(Entry::Stopped { starts, holds }) => queue.resume(starts, holds),
            Ok(Entry::Running) | Err(_) => queue.assume_asked(),
        }
        let mut journal = Journal(file);
        journal.write(&Entry::Running)?;
        Ok(Some(journal))
    }

    /// Writes down what the next process has to know.
    ///
    /// # Errors
    /// The file cannot be written: the next process will take this one for killed.
    pub fn close(mut self, queue: &Queue) -> io::Result<()> {
        let (starts, holds) = queue.memory();
        self.write(&Entry::Stopped { starts, holds })
    }

    /// In place, since the lock is on the file. What is cut short by a crash cannot be read, and counts as killed.
    fn write(&mut self, entry: &Entry) -> io::Result<()> {
        let text = serde_json::to_vec(entry)?;
        self.0.rewind()?;
        self.0.write_all(&text)?;
        self.0.set_len(text.len() as u64)
    }
}

impl Queue {
    fn resume(&self, starts: Vec<Started>, holds: Vec<Held>) {
        let (now, wall) = (clock::now(), clock::wall());
        let state = &mut *self.lock();
        for Started { host, bot, delay, at } in starts {
            // A time to come can only be a clock that was set back.
            let at = now.checked_sub(wall.duration_since(at).unwrap_or_default()).unwrap_or(now);
            state.lines.started(&LineKey::new(&host, Some(&bot)), delay, at, now);
        }
        let longest = self.settings().hold_max;
        for Held { host, until, sign } in holds {
            if let Ok(left) = until.duration_since(wall) {
                state.holds.resume(host, now + left.min(longest), sign);
            }
        }
    }

    fn assume_asked(&self) {
        self.lock().lines.assume_asked(clock::now());
    }

    fn memory(&self) -> (Vec<Started>, Vec<Held>) {
        let (now, wall) = (clock::now(), clock::wall());
        let state = &mut *self.lock();
        state.lines.forget_idle(now);
        let as_wall = |at: Instant| match at.checked_duration_since(now) {
            Some(ahead) => wall + ahead,
            None => wall.checked_sub(now.duration_since(at)).unwrap_or(wall),
        };
        let starts = state.lines.starts().map(|(key, delay, at)| Started {
            host: key.host().clone(),
            bot: key.bot().to_owned(),
            delay,
            at: as_wall(at),
        });
        let holds =
            state.holds.all(now).map(|(host, until, sign)| Held { host: host.clone(), until: as_wall(until), sign });
        (starts.collect(), holds.collect())
    }
}
