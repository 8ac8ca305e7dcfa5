//! The real proxy, in this process, with a CA and an audit log of its own.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use robots_proxy::admin;
use robots_proxy::app::{self, Running, Settings};
use robots_proxy::audit::Which;
use robots_proxy::config::Config;
use robots_proxy::control::{self, Question};
use robots_proxy::proxy::socket::Listen;
use robots_proxy::queue::LineReport;
use robots_proxy::upstream::ConnectTo;
use serde_json::Value;
use tempfile::TempDir;

use super::authority;
use super::curl::Got;
use super::origin::Origin;
use super::program::{self, Ran};
use super::until;

/// The proxy. It stops when it is dropped, and its folder goes with it.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    folder: TempDir,
    /// `None` when it has been stopped.
    running: Option<Running>,
    settings: Settings,
}

impl Proxy {
    /// The default settings, and every name leading to its origin. A name without a port stands for the port of the origin's scheme.
    pub(crate) async fn before(names: &[(&str, &Origin)]) -> Proxy {
        Proxy::with(names, |_| {}).await
    }

    /// Other settings.
    pub(crate) async fn with(names: &[(&str, &Origin)], change: impl FnOnce(&mut Settings)) -> Proxy {
        let folder = tempfile::Builder::new().prefix("robots-proxy-it-").tempdir().unwrap();
        let ca_file = folder.path().join("origins.pem");
        std::fs::write(&ca_file, authority::TRUSTED.pem()).unwrap();
        let mut settings = Config::default().settings_in(folder.path(), folder.path());
        settings.listen = vec![SocketAddr::from(([127, 0, 0, 1], 0)).into()];
        settings.audit.record = Which::All;
        settings.upstream.ca_files = vec![ca_file];
        settings.upstream.connect_to = names.iter().map(|(name, origin)| lead(name, origin)).collect();
        change(&mut settings);
        let running = app::start(settings.clone()).await.unwrap();
        Proxy { address: running.addresses()[0], folder, running: Some(running), settings }
    }

    /// What a client is given as its proxy.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Changes its settings while it runs; returns the keys that would have needed a restart.
    pub(crate) async fn reload(&mut self, change: impl FnOnce(&mut Settings)) -> Vec<&'static str> {
        change(&mut self.settings);
        self.running.as_ref().expect("it runs").reload(self.settings.clone()).await.unwrap()
    }

    /// Everywhere it listens.
    pub(crate) fn listening(&self) -> Vec<Listen> {
        self.running.as_ref().expect("it runs").listening().to_vec()
    }

    /// The certificate that a client has to trust.
    pub(crate) fn ca(&self) -> PathBuf {
        self.folder.path().join("certs/ca.pem")
    }

    /// With the view inside, for whoever knows the token.
    pub(crate) async fn seen_inside(
        names: &[(&str, &Origin)],
        token: Option<&str>,
        change: impl FnOnce(&mut Settings),
    ) -> Proxy {
        let token = token.map(|token| token.parse().unwrap());
        Proxy::with(names, |settings| {
            settings.admin = Some(admin::Settings { listen: "127.0.0.1:0".parse().unwrap(), token });
            change(settings);
        })
        .await
    }

    /// Where the view inside is, without a path.
    pub(crate) fn admin(&self) -> String {
        self.running.as_ref().expect("it runs").admin().expect("it is on").url()
    }

    /// Asks the view inside, with curl.
    pub(crate) async fn look(&self, path: &str, arguments: &[&str]) -> Got {
        let url = format!("{}{path}", self.admin());
        self.curl(&[&["--noproxy", "*", &url], arguments].concat()).await
    }

    /// A folder for what a test needs, gone with the proxy.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Runs the program beside the proxy, as one who looks into it.
    pub(crate) async fn command(&self, arguments: &[&str]) -> Ran {
        std::fs::write(self.folder().join("config.toml"), "state_dir = \".\"\n").unwrap();
        program::run(self.folder(), arguments).await
    }

    /// Waits until so many requests for pages of a site have reached it or wait in its line.
    pub(crate) async fn until_joined(&self, site: &Origin, number: usize) {
        let waiting = || -> usize {
            let lines = control::ask(self.folder(), &Question::Lines { host: None }).unwrap().unwrap();
            let lines: Vec<LineReport> = serde_json::from_value(lines).unwrap();
            lines.iter().map(|line| line.waiting).sum()
        };
        until("requests in the line", || (waiting() + site.pages().len() >= number).then_some(())).await;
    }

    /// Waits until there are so many records, and returns all there are.
    pub(crate) async fn records(&self, number: usize) -> Vec<Value> {
        until("records", || Some(self.records_so_far()).filter(|records| records.len() >= number)).await
    }

    /// The record of a request whose URL ends so; waits for it.
    pub(crate) async fn record_of(&self, url_end: &str) -> Value {
        let of_url = |record: &Value| record["url"].as_str().is_some_and(|url| url.ends_with(url_end));
        until("a record", || self.records_so_far().into_iter().find(of_url)).await
    }

    /// The record of a page that is allowed and whose URL starts so; waits for it.
    pub(crate) async fn record_of_page(&self, url_start: &str) -> Value {
        let of_page = |record: &Value| {
            record["decision"] == "allow" && record["url"].as_str().is_some_and(|url| url.starts_with(url_start))
        };
        until("a record", || self.records_so_far().into_iter().find(of_page)).await
    }

    fn records_so_far(&self) -> Vec<Value> {
        let log = std::fs::read_to_string(self.folder.path().join("audit.jsonl")).unwrap_or_default();
        // A line that is being written has no end yet.
        let whole = log.rfind('\n').map_or("", |end| &log[..end]);
        whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Stops it, and says whether everything finished in time.
    pub(crate) async fn stop(&mut self) -> bool {
        self.running.take().expect("it runs").stop().await
    }

    /// The running proxy, to be stopped by the test in a task of its own.
    pub(crate) fn take(&mut self) -> Running {
        self.running.take().expect("it runs")
    }
}

fn lead(name: &str, origin: &Origin) -> ConnectTo {
    let port = if origin.is_tls { 443 } else { 80 };
    let from = if name.contains(':') { name.to_owned() } else { format!("{name}:{port}") };
    ConnectTo { from: from.parse().unwrap(), to: origin.address.to_string().parse().unwrap() }
}
