//! A Chromium that is told what to do, over the pipe of its DevTools protocol: for what a command line cannot say.

use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::pipe::{self, Receiver, Sender};
use tokio::process::{Child, Command};

use super::in_time;

/// One tab of a Chromium, which ends when it is dropped.
pub(crate) struct Tab {
    to: Sender,
    from: BufReader<Receiver>,
    session: Option<String>,
    /// Name and password for whoever asks for them.
    credentials: Option<(String, String)>,
    /// How often they were asked for.
    pub(crate) asked: usize,
    last: u64,
    _child: Child,
    _pipes: TempDir,
}

impl Tab {
    /// Runs a Chromium's command line, made ready except for the pipe.
    pub(crate) async fn open(chromium: Command, home: &Path) -> Tab {
        let pipes = tempfile::tempdir_in(home).unwrap();
        let [to, from] = ["to", "from"].map(|name| pipes.path().join(name));
        assert!(Command::new("mkfifo").args([&to, &from]).status().await.unwrap().success());
        // Open for both directions, so that neither side waits for the other.
        let open = |path| pipe::OpenOptions::new().read_write(true).open_sender(path).unwrap();
        let receive = |path| pipe::OpenOptions::new().read_write(true).open_receiver(path).unwrap();
        let (sender, receiver) = (open(&to), receive(&from));
        let chromium = chromium.as_std();
        let mut shell = Command::new("sh");
        // Chromium reads commands from its descriptor 3, and writes to 4.
        shell.args(["-c", "to=$1 from=$2; shift 2; exec \"$@\" 3<\"$to\" 4>\"$from\"", "sh"]).args([&to, &from]);
        shell.arg(chromium.get_program()).args(chromium.get_args()).arg("--remote-debugging-pipe").env_clear();
        shell.envs(chromium.get_envs().filter_map(|(name, value)| Some((name, value?))));
        shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        let child = shell.spawn().expect("chromium is installed");
        let from = BufReader::new(receiver);
        let mut tab =
            Tab { to: sender, from, session: None, credentials: None, asked: 0, last: 0, _child: child, _pipes: pipes };
        let target = tab.call("Target.createTarget", json!({"url": "about:blank"})).await["targetId"].clone();
        let attached = tab.call("Target.attachToTarget", json!({"targetId": target, "flatten": true})).await;
        tab.session = attached["sessionId"].as_str().map(str::to_owned);
        tab.call("Page.enable", json!({})).await;
        tab
    }

    /// Gives these to a proxy that wants them.
    pub(crate) async fn authenticate(&mut self, user: &str, password: &str) {
        self.credentials = Some((user.to_owned(), password.to_owned()));
        self.call("Fetch.enable", json!({"handleAuthRequests": true})).await;
    }

    /// Goes to a page, and returns its text.
    pub(crate) async fn text_of(&mut self, url: &str) -> String {
        self.call("Page.navigate", json!({"url": url})).await;
        while self.event().await["method"] != "Page.loadEventFired" {}
        self.value_of("document.body.innerText").await.as_str().unwrap_or_default().to_owned()
    }

    /// What a script yields, when its promise is kept.
    pub(crate) async fn value_of(&mut self, script: &str) -> Value {
        let parameters = json!({"expression": script, "awaitPromise": true, "returnByValue": true});
        self.call("Runtime.evaluate", parameters).await["result"]["value"].clone()
    }

    async fn call(&mut self, method: &str, parameters: Value) -> Value {
        let id = self.send(method, parameters).await;
        loop {
            let event = self.event().await;
            if event["id"] == id {
                assert!(event.get("error").is_none(), "{method}: {event}");
                return event["result"].clone();
            }
        }
    }

    async fn send(&mut self, method: &str, parameters: Value) -> u64 {
        self.last += 1;
        let mut command = json!({"id": self.last, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            command["sessionId"] = json!(session);
        }
        self.to.write_all(format!("{command}\0").as_bytes()).await.unwrap();
        self.last
    }

    /// The next message, with every question of it answered.
    async fn event(&mut self) -> Value {
        let mut message = Vec::new();
        in_time("a word of Chromium", self.from.read_until(0, &mut message)).await.unwrap();
        let event: Value = serde_json::from_slice(message.strip_suffix(b"\0").unwrap_or(&message)).unwrap();
        let request = &event["params"]["requestId"];
        match (event["method"].as_str(), &self.credentials) {
            (Some("Fetch.requestPaused"), _) => {
                self.send("Fetch.continueRequest", json!({"requestId": request})).await;
            }
            (Some("Fetch.authRequired"), Some((user, password))) => {
                let response = json!({"response": "ProvideCredentials", "username": user, "password": password});
                self.asked += 1;
                self.send("Fetch.continueWithAuth", json!({"requestId": request, "authChallengeResponse": response}))
                    .await;
            }
            _ => {}
        }
        event
    }
}
