//! A window into a running proxy: `control.sock` in the state folder.
//!
//! The commands that look into a proxy ask through it, one question a connection: a line of JSON, answered by a line of JSON. The
//! socket is for the user who runs the proxy (mode 0600), since a question may drop a copy. A question is bounded in size and time.

mod client;
pub mod told;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

pub use self::client::{AskError, ask};
pub use self::told::Told;
use crate::clock;
use crate::lookup::Lookup;
use crate::lookup::copy::Copy;
use crate::policy::target::{Host, Origin};
use crate::proxy::listener::Proxy;
use crate::proxy::socket::PrivateSocket;

/// The name of the socket in the state folder.
pub const FILE: &str = "control.sock";

/// What can be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub enum Question {
    /// All copies in force.
    Copies,
    /// The copy of an origin, or the one that was in force at a time, with its body.
    Copy {
        /// The origin, such as `https://example.com`.
        origin: String,
        /// The time; `None` is now.
        at: Option<SystemTime>,
    },
    /// A body by its SHA-256.
    Body {
        /// In hex.
        sha256: String,
    },
    /// Ask the origin for its robots.txt now.
    Refresh {
        /// The origin.
        origin: String,
    },
    /// Forget the copy of an origin.
    Drop {
        /// The origin.
        origin: String,
    },
    /// The lines of waiting requests.
    Lines {
        /// Of this host alone.
        host: Option<Host>,
    },
}

/// The answer to a question; `None` where there is no such thing.
pub type Reply = Option<Value>;

/// Octets of a question.
const QUESTION_MAX: u64 = 64 * 1024;

/// For a question to arrive.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(5);

/// The socket.
#[derive(Debug)]
pub struct Socket(PrivateSocket);

impl Socket {
    /// Opens the socket in a folder, in place of one that a dead process left.
    ///
    /// # Errors
    /// Another proxy has it open, or the folder cannot be written.
    pub fn open(folder: &Path) -> io::Result<Socket> {
        std::fs::create_dir_all(folder)?;
        PrivateSocket::open(&folder.join(FILE)).map(Socket)
    }

    /// Answers questions until the proxy stops.
    pub async fn serve(self, proxy: Arc<Proxy>) {
        loop {
            let stream = tokio::select! {
                stream = self.0.accept() => stream,
                () = proxy.pipeline.stopping.cancelled() => return,
            };
            let proxy = Arc::clone(&proxy);
            tokio::spawn(async move {
                if let Err(error) = converse(stream, &proxy).await {
                    tracing::debug!(%error, "a question through the control socket came to nothing");
                }
            });
        }
    }
}

async fn converse(stream: UnixStream, proxy: &Proxy) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut line = Vec::new();
    let mut bounded = (&mut stream).take(QUESTION_MAX);
    let reading = bounded.read_until(b'\n', &mut line);
    clock::timeout(QUESTION_TIMEOUT, reading).await.ok_or(io::ErrorKind::TimedOut)??;
    let question: Question = serde_json::from_slice(&line)?;
    let mut reply = serde_json::to_vec(&answer(&question, proxy).await)?;
    reply.push(b'\n');
    stream.get_mut().write_all(&reply).await
}

async fn answer(question: &Question, proxy: &Proxy) -> Reply {
    let lookup = &proxy.pipeline.lookup;
    match question {
        Question::Copies => Some(json!(copies(lookup))),
        Question::Copy { origin, at } => Some(json!(copy(lookup, &parse(origin)?, *at)?)),
        Question::Body { sha256 } => {
            let body = lookup.store()?.reader()?.body(sha256).ok()??;
            Some(json!(BASE64.encode(body)))
        }
        Question::Refresh { origin } => Some(told::standing(&*lookup.refresh(&parse(origin)?).await)),
        Question::Lines { host } => {
            let lines = proxy.pipeline.queue.lines(host.as_ref());
            (host.is_none() || !lines.is_empty()).then(|| json!(lines))
        }
        Question::Drop { origin } => {
            let origin = parse(origin)?;
            forget(lookup, &origin).then(|| json!({ "dropped": origin.to_string() }))
        }
    }
}

fn parse(origin: &str) -> Option<Origin> {
    Origin::of(&origin.parse().ok()?).ok()
}

/// The copies of the store or, without one, those in memory.
pub fn copies(lookup: &Lookup) -> Vec<(String, Copy)> {
    let stored = lookup.store().and_then(|store| {
        store.flush();
        store.reader()?.list().ok()
    });
    stored.unwrap_or_else(|| lookup.copies().into_iter().map(|(origin, copy)| (origin.to_string(), copy)).collect())
}

/// The copy of an origin, now or at a time.
pub fn copy(lookup: &Lookup, origin: &Origin, at: Option<SystemTime>) -> Option<Told> {
    let stored = lookup.store().and_then(|store| {
        store.flush();
        let reader = store.reader()?;
        let found = match at {
            Some(time) => reader.at(origin, time),
            None => reader.show(origin),
        };
        found.ok().flatten()
    });
    match stored {
        Some((copy, body)) => Some(Told::new(copy, Some(&body))),
        None if at.is_some() => None,
        None => lookup.copies().into_iter().find(|(known, _)| known == origin).map(|(_, copy)| Told::new(copy, None)),
    }
}

/// Forgets the copy of an origin; returns whether there was one.
pub fn forget(lookup: &Lookup, origin: &Origin) -> bool {
    let stored = copy(lookup, origin, None).is_some();
    lookup.forget(origin) || stored
}
