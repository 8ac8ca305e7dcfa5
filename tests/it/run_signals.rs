//! Signals and the terminal, as a command under `run` sees them.

use std::path::Path;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use super::run::{home, shop};
use super::support::in_time;
use super::support::program::{Ran, command};

/// The command under `run`, and its output.
async fn started(home: &Path, script: &str) -> (tokio::process::Child, BufReader<tokio::process::ChildStdout>) {
    let mut command = command(home, &["run", "--", "bash", "-c", script]);
    command.stdin(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    in_time("the command", out.read_line(&mut line)).await.unwrap();
    assert_eq!(line, "ready\n");
    (child, out)
}

async fn kill(signal: &str, process: u32) {
    let sent = Command::new("bash").args(["-c", "kill -\"$0\" \"$1\"", signal, &process.to_string()]).status();
    assert!(sent.await.unwrap().success());
}

#[tokio::test]
async fn signals_are_passed_on_to_the_command() {
    let shop = shop().await;
    let home = home(&shop, "");
    // Each ends the command, which shows that it came, and by its exit status which one it was.
    for (signal, number) in [("TERM", 15), ("INT", 2), ("HUP", 1), ("QUIT", 3), ("USR1", 10)] {
        let script =
            format!("trap 'echo caught {signal}; exit 1{number}' {signal}; echo ready; while :; do sleep 0.02; done");
        let (mut child, mut out) = started(home.path(), &script).await;
        kill(signal, child.id().unwrap()).await;
        let mut line = String::new();
        in_time(signal, out.read_line(&mut line)).await.unwrap();
        assert_eq!(line, format!("caught {signal}\n"));
        let status = in_time("its end", child.wait()).await.unwrap();
        assert_eq!(status.code(), Some(format!("1{number}").parse().unwrap()), "{signal}");
    }
}

#[tokio::test]
async fn a_command_that_a_signal_ends_is_told_as_shells_tell_it() {
    let shop = shop().await;
    let home = home(&shop, "");
    let (mut child, _out) = started(home.path(), "echo ready; exec sleep 60").await;
    kill("TERM", child.id().unwrap()).await;
    assert_eq!(in_time("its end", child.wait()).await.unwrap().code(), Some(128 + 15));
}

/// Runs the command in a terminal, where a key is pressed when it is ready.
async fn in_a_terminal(home: &Path, key: &str, script: &str) -> Ran {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/terminal.py");
    let program = command(home, &["run", "--", "bash", "-c", script]);
    let mut terminal = Command::new("python3");
    terminal.arg(fixture).arg(key).arg(program.as_std().get_program()).args(program.as_std().get_args());
    terminal.current_dir(home).env_clear().env("HOME", home).env("PATH", std::env::var_os("PATH").unwrap_or_default());
    terminal.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    in_time("the terminal", terminal.output()).await.unwrap().into()
}

#[tokio::test]
async fn a_key_of_the_terminal_reaches_the_command_once() {
    let shop = shop().await;
    let home = home(&shop, "");
    for (key, signal) in [("\\x03", "INT"), ("\\x1c", "QUIT")] {
        // A second delivery would come within a moment of the first, and is waited for.
        let script = format!(
            "n=0; trap 'n=$((n+1))' {signal}; echo ready; until [ $n -gt 0 ]; do sleep 0.05; done; sleep 0.5; echo counted $n"
        );
        let ran = in_a_terminal(home.path(), key, &script).await;
        assert!(ran.out.contains("counted 1\n") && ran.out.contains("status 0"), "{signal}: {ran:?}");
    }
}

#[tokio::test]
async fn ctrl_c_ends_a_command_that_does_not_mind_it_and_run_with_it() {
    let shop = shop().await;
    let home = home(&shop, "");
    let ran = in_a_terminal(home.path(), "\\x03", "echo ready; exec sleep 60").await;
    assert!(ran.out.contains("status 130"), "{ran:?}");
}

#[tokio::test]
async fn nohup_holds_for_the_command() {
    let shop = shop().await;
    let home = home(&shop, "");
    let program = command(home.path(), &["run", "--", "bash", "-c", "kill -HUP $$; echo lives"]);
    let mut ignoring = Command::new("bash");
    ignoring.args(["-c", "trap '' HUP; exec \"$0\" \"$@\""]);
    ignoring.arg(program.as_std().get_program()).args(program.as_std().get_args()).current_dir(home.path());
    ignoring.env_clear().env("HOME", home.path()).env("PATH", std::env::var_os("PATH").unwrap_or_default());
    let ran: Ran = in_time("run", ignoring.output()).await.unwrap().into();
    assert_eq!((ran.exit, ran.out.as_str()), (0, "lives\n"), "{ran:?}");
}
