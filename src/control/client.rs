//! The asking side of the control socket.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::{FILE, Question, Reply};

/// Why a question has no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Nobody listens.
    #[error("no proxy is running with the state folder {0}; start one with robots-proxy serve")]
    NotRunning(String),
    /// The conversation broke off.
    #[error("the running proxy gave no answer: {0}")]
    Broken(#[from] io::Error),
}

/// A refresh may take as long as a fetch of robots.txt.
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);

/// Asks the proxy whose state folder this is.
///
/// # Errors
/// No proxy runs there, or it does not answer.
pub fn ask(folder: &Path, question: &Question) -> Result<Reply, AskError> {
    let stream =
        UnixStream::connect(folder.join(FILE)).map_err(|_| AskError::NotRunning(folder.display().to_string()))?;
    stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
    let mut line = serde_json::to_vec(question).map_err(io::Error::from)?;
    line.push(b'\n');
    (&stream).write_all(&line)?;
    let mut reply = String::new();
    BufReader::new(&stream).read_line(&mut reply)?;
    Ok(serde_json::from_str(&reply).map_err(io::Error::from)?)
}
