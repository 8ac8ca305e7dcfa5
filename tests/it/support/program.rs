//! The built program.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Output, Stdio};

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};

use super::in_time;

/// What a run printed, and its exit status.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) exit: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Ran {
        Ran {
            exit: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// A folder to run in, with a configuration.
pub(crate) fn folder(config: &str) -> TempDir {
    let folder = tempfile::Builder::new().prefix("robots-proxy-it-").tempdir().unwrap();
    std::fs::write(folder.path().join("config.toml"), config).unwrap();
    folder
}

/// The program, at home in this folder and knowing nothing of the real one.
pub(crate) fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = at_home(folder, env!("CARGO_BIN_EXE_robots-proxy"));
    command.args(arguments);
    command
}

fn at_home(folder: &Path, program: &str) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder).env_clear().env("HOME", folder);
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

/// Runs the program to its end.
pub(crate) async fn run(folder: &Path, arguments: &[&str]) -> Ran {
    in_time("the program", command(folder, arguments).output()).await.unwrap().into()
}

/// `serve`, at work.
pub(crate) struct Serving {
    child: Child,
    out: BufReader<ChildStdout>,
    /// Everything it has printed so far.
    pub(crate) said: String,
    /// Its log, as far as [`Serving::hang_up`] has read it.
    log: Option<BufReader<ChildStderr>>,
}

impl Serving {
    /// Starts it and waits until it listens.
    pub(crate) async fn start(folder: &Path, arguments: &[&str]) -> Serving {
        Serving::of(command(folder, &[&["serve"], arguments].concat())).await
    }

    /// The same, with files that may grow to so many blocks of 512 octets: beyond that a write fails, as on a full disk.
    pub(crate) async fn start_limited(folder: &Path, blocks: u32, arguments: &[&str]) -> Serving {
        let program = command(folder, &[&["serve"], arguments].concat());
        let mut limited = at_home(folder, "sh");
        let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$@\"");
        limited.arg("-c").arg(script).arg(program.as_std().get_program()).args(program.as_std().get_args());
        Serving::of(limited).await
    }

    /// Another build of it, run by another program and with a single worker thread.
    pub(crate) async fn start_under(folder: &Path, [under, options @ ..]: &[&str; 3], program: &Path) -> Serving {
        let mut command = at_home(folder, under);
        command.args(options).arg(program).arg("serve").env("TOKIO_WORKER_THREADS", "1");
        Serving::of(command).await
    }

    async fn of(mut command: Command) -> Serving {
        let mut child = command.spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let mut serving = Serving { child, out, said: String::new(), log: None };
        serving.read_to("CURL_CA_BUNDLE").await;
        serving
    }

    async fn read_to(&mut self, word: &str) {
        while !self.said.contains(word) {
            let came = in_time(word, self.out.read_line(&mut self.said)).await.unwrap();
            assert!(came > 0, "it ended without {word}: {}", self.said);
        }
    }

    /// What stands behind a word on its line.
    pub(crate) fn told(&self, word: &str) -> &str {
        let line = self.said.lines().find(|line| line.contains(word)).unwrap_or_else(|| panic!("{}", self.said));
        line.split(word).nth(1).unwrap().trim()
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        let url = self.told("listens on");
        url.strip_prefix("http://").unwrap_or(url).parse().unwrap()
    }

    /// The number of its process.
    pub(crate) fn process(&self) -> u32 {
        self.child.id().expect("it runs")
    }

    /// Tells it to stop, as an init system does.
    pub(crate) async fn terminate(&self) {
        self.signal("TERM").await;
    }

    /// Tells it to read its configuration again, waits until it has, and returns what it says of it.
    pub(crate) async fn hang_up(&mut self) -> String {
        self.signal("HUP").await;
        let stderr = &mut self.child.stderr;
        let log = self.log.get_or_insert_with(|| BufReader::new(stderr.take().expect("it is piped")));
        let mut told = String::new();
        while !told.lines().any(|line| line.contains(" reloaded ") || line.contains("nothing is reloaded")) {
            assert!(in_time("a reload", log.read_line(&mut told)).await.unwrap() > 0, "it ended: {told}");
        }
        told
    }

    async fn signal(&self, name: &str) {
        let id = self.child.id().expect("it runs").to_string();
        let killed = Command::new("sh").args(["-c", "kill -\"$1\" \"$0\"", &id, name]).status().await.unwrap();
        assert!(killed.success());
    }

    /// Ends it at once, as a power failure would.
    pub(crate) async fn kill(&mut self) {
        self.child.kill().await.unwrap();
    }

    /// Waits for its end.
    pub(crate) async fn ended(self) -> Ran {
        in_time("the end of serve", self.child.wait_with_output()).await.unwrap().into()
    }
}
