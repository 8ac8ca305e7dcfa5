//! The command as a child process: what reaches it, and what its end means.
//!
//! It stays in our process group, so that the terminal's job control works as if we were not there: Ctrl-C, Ctrl-\ and Ctrl-Z go to
//! both of us, by the kernel. Such a signal must not be passed on a second time, and one that somebody sent to us alone must be; who
//! sent it is all that tells the two apart.

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::Origin;
use tokio::process::Command;
use tokio::sync::mpsc;

/// How it ended.
pub(super) struct Exit {
    /// The status for whoever started us.
    pub(super) code: u8,
    /// Whether there was a command at all.
    pub(super) was_started: bool,
}

/// The command was not found, as shells and env(1) have it.
const NOT_FOUND: u8 = 127;

/// It was found and cannot be executed.
const NOT_EXECUTABLE: u8 = 126;

/// Signals that would end us, and that a command may want to act on.
const PASSED_ON: [i32; 6] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2];

/// Runs the command to its end.
pub(super) async fn run(mut command: Command, program: &OsStr) -> Exit {
    // Caught before the child is there: a signal that came between the two would end us and leave it alone.
    let mut signals = signals();
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return not_started(program, &error),
    };
    loop {
        tokio::select! {
            status = child.wait() => return ended(status),
            Some(signal) = signals.recv() => {
                // `None` when it has ended: its number may be another's by now.
                let process = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
                if let (Some(process), Some(signal)) = (process, Signal::from_named_raw(signal)) {
                    let _ = kill_process(process, signal);
                }
            }
        }
    }
}

fn not_started(program: &OsStr, error: &io::Error) -> Exit {
    let (code, what) = match error.kind() {
        io::ErrorKind::NotFound => (NOT_FOUND, "command not found".to_owned()),
        _ => (NOT_EXECUTABLE, format!("cannot be executed: {error}")),
    };
    eprintln!("robots-proxy: {}: {what}", program.display());
    Exit { code, was_started: false }
}

fn ended(status: io::Result<ExitStatus>) -> Exit {
    let code = match status {
        // 128 + n, as shells have it.
        Ok(status) => status.code().or(status.signal().map(|signal| 128 + signal)),
        Err(_) => None,
    };
    Exit { code: code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1), was_started: true }
}

/// The signals that the child has not had yet.
fn signals() -> mpsc::Receiver<i32> {
    let (sender, receiver) = mpsc::channel(PASSED_ON.len());
    let ignored = ignored();
    // A handler is not inherited, so that the child would get what nohup(1) has us ignore.
    let wanted = PASSED_ON.iter().filter(|signal| ignored & (1 << (**signal - 1)) == 0);
    match SignalsInfo::<WithOrigin>::new(wanted) {
        Ok(mut signals) => drop(thread::spawn(move || {
            for origin in signals.forever().filter(|origin| !is_of_the_terminal(origin)) {
                if sender.blocking_send(origin.signal).is_err() {
                    return;
                }
            }
        })),
        Err(error) => tracing::warn!(%error, "signals are not passed on to the command"),
    }
    receiver
}

/// The signals that we were started to ignore, a bit each. Only Linux tells.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Whether the kernel sent it, to the whole process group. macOS tells no cause, but a process 0.
fn is_of_the_terminal(origin: &Origin) -> bool {
    origin.process.is_none_or(|process| process.pid == 0)
}
