//! The real curl.

use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;
use tokio::process::{Child, Command};

use super::in_time;
use super::proxy::Proxy;

/// What curl got.
#[derive(Debug)]
pub(crate) struct Got {
    /// curl's exit status: 0, or what went wrong.
    pub(crate) exit: i32,
    /// The status of the answer; 0 without one.
    pub(crate) status: u16,
    /// "1.1" or "2".
    pub(crate) version: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    /// curl's own words about a failure.
    pub(crate) error: String,
}

impl Got {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// A header field, empty where there is none.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// `Retry-After` in seconds.
    pub(crate) fn retry_after(&self) -> Option<u64> {
        self.headers.get("retry-after").map(|value| value.to_str().unwrap().parse().unwrap())
    }
}

/// The way to curl through the proxy, trusting its CA.
pub(crate) fn command(proxy: &Proxy) -> Command {
    let mut command = Command::new("curl");
    // Without the user's curlrc, proxy variables and CA variables.
    command.arg("-q").env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.args(["--silent", "--show-error", "--max-time", "50", "--proxy", &proxy.url()]);
    command.arg("--cacert").arg(proxy.ca());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

static NEXT: AtomicUsize = AtomicUsize::new(0);

impl Proxy {
    /// Runs curl and returns what it got.
    pub(crate) async fn curl(&self, arguments: &[&str]) -> Got {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let [head, body] = ["head", "body"].map(|what| self.folder().join(format!("curl-{number}.{what}")));
        let mut command = command(self);
        command.arg("--dump-header").arg(&head).arg("--output").arg(&body);
        command.args(["--suppress-connect-headers", "--write-out", "%{json}"]).args(arguments);
        let output = in_time("curl", command.output()).await.expect("curl is installed");
        let facts: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        Got {
            exit: output.status.code().unwrap_or(-1),
            status: u16::try_from(facts["http_code"].as_u64().unwrap_or(0)).unwrap(),
            version: facts["http_version"].as_str().unwrap_or_default().to_owned(),
            headers: last_head(&std::fs::read_to_string(&head).unwrap_or_default()),
            body: std::fs::read(&body).unwrap_or_default(),
            error: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Starts a curl that the test goes on with: its answer comes on its standard output.
    pub(crate) fn spawn_curl(&self, arguments: &[&str]) -> Child {
        command(self).arg("--no-buffer").args(arguments).spawn().expect("curl is installed")
    }
}

/// The header fields of the last head; before it there may be those of an interim answer.
fn last_head(heads: &str) -> HeaderMap {
    let last = heads.trim_end().rsplit("\r\n\r\n").next().unwrap_or_default();
    // The status line may hold a colon as well; trailers have none.
    let fields = last.lines().filter(|line| !line.starts_with("HTTP/")).filter_map(|line| line.split_once(':'));
    fields
        .map(|(name, value)| {
            (name.parse::<HeaderName>().unwrap(), HeaderValue::from_bytes(value.trim().as_bytes()).unwrap())
        })
        .collect::<Vec<_>>()
        .into_iter()
        .fold(HeaderMap::new(), |mut headers, (name, value)| {
            headers.append(name, value);
            headers
        })
}
