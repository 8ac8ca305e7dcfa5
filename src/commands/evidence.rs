//! Copies and bodies for commands: from the running proxy, or from the store of a stopped one.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Context;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use crate::control::{self, AskError, Question, Told};
use crate::lookup::store::Reader;
use crate::policy::target::Origin;

/// The store of a proxy that does not run.
pub(super) fn stopped(folder: &Path) -> anyhow::Result<Reader> {
    Reader::open(folder).with_context(|| format!("no proxy is running with the state folder {}", folder.display()))
}

/// The copy of an origin, now or at a time.
pub(super) fn copy(folder: &Path, origin: &Origin, at: Option<SystemTime>) -> anyhow::Result<Option<Told>> {
    match control::ask(folder, &Question::Copy { origin: origin.to_string(), at }) {
        Ok(reply) => Ok(reply.map(serde_json::from_value).transpose()?),
        Err(AskError::NotRunning(_)) => {
            let reader = stopped(folder)?;
            let found = match at {
                Some(time) => reader.at(origin, time)?,
                None => reader.show(origin)?,
            };
            Ok(found.map(|(copy, body)| Told::new(copy, Some(&body))))
        }
        Err(error) => Err(error.into()),
    }
}

/// Bodies by SHA-256.
pub(super) struct Bodies {
    folder: PathBuf,
    stopped: Option<Reader>,
}

impl Bodies {
    pub(super) fn of(folder: &Path) -> Bodies {
        Bodies { folder: folder.to_owned(), stopped: None }
    }

    /// A body; `None` where it is kept no more.
    pub(super) fn get(&mut self, sha256: &str) -> anyhow::Result<Option<Vec<u8>>> {
        if self.stopped.is_none() {
            match control::ask(&self.folder, &Question::Body { sha256: sha256.to_owned() }) {
                Ok(reply) => return Ok(reply.and_then(|body| BASE64.decode(body.as_str()?).ok())),
                Err(AskError::NotRunning(_)) => self.stopped = Some(stopped(&self.folder)?),
                Err(error) => return Err(error.into()),
            }
        }
        match &self.stopped {
            Some(reader) => Ok(reader.body(sha256)?),
            None => Ok(None),
        }
    }
}
