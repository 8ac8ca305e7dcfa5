//! What a request costs: instructions of the release build in user space, against the figures that are checked in.
//!
//! A machine's clock is noisy, its count of instructions is not. The program serves each workload twice under callgrind, N requests and
//! 2N; what the second run took more, divided by N, is the cost of a request, and start and stop drop out. Client and origin are in this
//! process, outside of valgrind. The program has one worker thread, for how often threads wake each other depends on the machine;
//! valgrind shows it the same processor on any machine with AVX2. `tests/instructions/run` builds the program and runs this, and
//! `--write` writes the figures down.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde::Deserialize;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::support::program::{self, Serving};
use super::support::wire::Wire;
use super::support::{authority, in_time, origin};

/// How far a count may be from its figure, either way. Counts of one program were up to 1.5 % apart, on a machine with four times as much to
/// do as it has processors: what comes at once on a quiet machine comes one by one there.
const TOLERANCE: f64 = 0.03;

/// What is asked for, and how often in the shorter of the two runs. Often, since starts differ by a million instructions: aws-lc gathers
/// randomness from the jitter of the processor, until it has enough.
const WORKLOADS: [(&str, Workload, usize); 7] = [
    ("plain", Workload::Plain, 4000),
    ("plain_20000_rules", Workload::LongRobots, 4000),
    ("plain_recorded", Workload::Recorded, 4000),
    ("intercepted", Workload::Intercepted, 4000),
    ("intercepted_http2", Workload::Http2, 4000),
    ("new_connection", Workload::NewConnection, 200),
    ("new_host", Workload::NewHost, 100),
];

#[derive(Clone, Copy, PartialEq)]
enum Workload {
    /// One connection, in clear text.
    Plain,
    /// The same at a site with 20,000 rules.
    LongRobots,
    /// The same with a record of every request.
    Recorded,
    /// One tunnel.
    Intercepted,
    /// One tunnel, HTTP/2 on both sides.
    Http2,
    /// A tunnel each, to one host.
    NewConnection,
    /// A tunnel each, to a host that was never asked for: its certificate, connection, handshake and robots.txt.
    NewHost,
}

/// How many times the cost of a plain request one may cost at a site with 20,000 rules, whatever the figures say.
const RULES_CEILING: f64 = 1.03;

/// `tests/instructions/figures.toml`.
#[derive(Deserialize)]
struct Figures {
    /// The compiler that they are for.
    rustc: String,
    /// Instructions by architecture and workload.
    #[serde(flatten)]
    of: BTreeMap<String, BTreeMap<String, u64>>,
}

fn figures_file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/instructions/figures.toml")
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a release build: tests/instructions/run"]
async fn a_request_costs_what_is_written_down() {
    let mut counted = BTreeMap::new();
    for (name, workload, requests) in WORKLOADS {
        let cost = cost(workload, requests).await;
        println!("{name:20} {cost:>9} instructions a request");
        counted.insert(name.to_owned(), cost);
    }
    let figures: Figures = toml::from_str(&std::fs::read_to_string(figures_file()).unwrap()).unwrap();
    if std::env::var_os("INSTRUCTIONS_WRITE").is_some() {
        return write_down(figures, counted);
    }
    let written = figures.of.get(std::env::consts::ARCH).cloned().unwrap_or_default();
    let mut complaints = String::new();
    for (name, cost) in &counted {
        if let Some(complaint) = complaint(name, *cost, written.get(name).copied()) {
            let _ = writeln!(complaints, "{complaint}");
        }
    }
    if !complaints.is_empty() && figures.rustc != rustc() {
        let _ = writeln!(complaints, "The figures are those of {}, this is {}.", figures.rustc, rustc());
    }
    let rules = counted["plain_20000_rules"] as f64 / counted["plain"] as f64;
    if rules > RULES_CEILING {
        let _ = writeln!(complaints, "plain_20000_rules: {rules:.3} times a plain request, more than {RULES_CEILING}");
    }
    assert!(complaints.is_empty(), "\n{complaints}");
}

fn complaint(name: &str, cost: u64, written: Option<u64>) -> Option<String> {
    let Some(written) = written else {
        return Some(format!("{name}: no figure; write it down: tests/instructions/run --write"));
    };
    let change = cost as f64 / written as f64 - 1.0;
    let counted = format!("{name}: {cost} instructions a request, {:+.1} % to the figure of {written}", change * 100.0);
    match change {
        more if more > TOLERANCE => Some(format!(
            "{counted}. See what has become dearer (valgrind --tool=callgrind, callgrind_annotate) and make it cheaper; \
             if it is worth its price, say why in the commit and write the figure down: tests/instructions/run --write"
        )),
        less if less < -TOLERANCE => {
            Some(format!("{counted}. Keep the gain, write it down: tests/instructions/run --write"))
        }
        _ => None,
    }
}

fn write_down(mut figures: Figures, counted: BTreeMap<String, u64>) {
    figures.rustc = rustc();
    figures.of.insert(std::env::consts::ARCH.to_owned(), counted);
    let mut text = "# Instructions of a request in user space; written by tests/instructions/run --write.\n".to_owned();
    let _ = writeln!(text, "rustc = \"{}\"", figures.rustc);
    for (architecture, figures) in figures.of {
        let _ = writeln!(text, "\n[{architecture}]");
        for (name, figure) in figures {
            let _ = writeln!(text, "{name} = {figure}");
        }
    }
    std::fs::write(figures_file(), text).unwrap();
}

fn rustc() -> String {
    let version = std::process::Command::new("rustc").arg("--version").output().unwrap();
    String::from_utf8(version.stdout).unwrap().split(' ').take(2).collect::<Vec<_>>().join(" ")
}

/// Instructions of one request.
async fn cost(workload: Workload, requests: usize) -> u64 {
    let once = instructions(workload, requests).await;
    let twice = instructions(workload, 2 * requests).await;
    (twice - once) / requests as u64
}

/// Instructions of a whole life of the program, with so many requests.
async fn instructions(workload: Workload, requests: usize) -> u64 {
    let site = workload.site().await;
    let folder = program::folder(&workload.config(&site, requests));
    std::fs::write(folder.path().join("origins.pem"), authority::TRUSTED.pem()).unwrap();
    let counted = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"];
    let serving = Serving::start_under(folder.path(), &counted, &release()).await;
    workload.run(&serving, &folder.path().join("certs/ca.pem"), requests).await;
    serving.terminate().await;
    let ended = serving.ended().await;
    let count = ended.err.lines().find_map(|line| line.split("Collected : ").nth(1));
    count.unwrap_or_else(|| panic!("callgrind tells no count: {}", ended.err)).trim().parse().unwrap()
}

/// The release build, beside the one that this is built with.
fn release() -> PathBuf {
    let built = Path::new(env!("CARGO_BIN_EXE_robots-proxy"));
    let program = built.parent().and_then(Path::parent).unwrap().join("release/robots-proxy");
    assert!(program.exists(), "{} is missing: run tests/instructions/run", program.display());
    program
}

impl Workload {
    fn is_tls(self) -> bool {
        !matches!(self, Workload::Plain | Workload::LongRobots | Workload::Recorded)
    }

    async fn site(self) -> origin::Origin {
        let long: String = (0..20_000).map(|rule| format!("Disallow: /section{}/{rule}/\n", rule % 97)).collect();
        let rules =
            if self == Workload::LongRobots { long } else { "Disallow: /private/\nDisallow: /*.cgi$\n".to_owned() };
        let robots = format!("User-agent: *\n{rules}");
        let page = Bytes::from("x".repeat(1024));
        let script = move |visit: &origin::Visit| match visit.is_robots() {
            true => origin::Reply::text(robots.clone()),
            false => origin::Reply::text(page.clone()),
        };
        if self.is_tls() { origin::Origin::https(script).await } else { origin::Origin::http(script).await }
    }

    fn host(self, request: usize) -> String {
        let number = if self == Workload::NewHost { request } else { 0 };
        format!("h{number}.nimbu.test")
    }

    fn config(self, site: &origin::Origin, requests: usize) -> String {
        let record = if self == Workload::Recorded { "all" } else { "blocked" };
        let hosts = if self == Workload::NewHost { requests } else { 1 };
        let (port, to) = (if self.is_tls() { 443 } else { 80 }, site.address);
        let connect_to: String =
            (0..hosts).map(|host| format!("\"{}:{port}\" = \"{to}\"\n", self.host(host))).collect();
        format!(
            "listen = [\"127.0.0.1:0\"]\nstate_dir = \"state\"\n[audit]\nrecord = \"{record}\"\n\
             [upstream]\nca_files = [\"origins.pem\"]\n[upstream.connect_to]\n{connect_to}"
        )
    }

    async fn run(self, serving: &Serving, ca: &Path, requests: usize) {
        let host = self.host(0);
        match self {
            Workload::Plain | Workload::LongRobots | Workload::Recorded => {
                let mut wire = Wire::over(connect(serving).await);
                for _ in 0..requests {
                    get(&mut wire, &format!("http://{host}/page"), &host).await;
                }
            }
            Workload::Intercepted => {
                let mut wire = tunnel(serving, ca, &host, b"http/1.1").await;
                for _ in 0..requests {
                    get(&mut wire, "/page", &host).await;
                }
            }
            Workload::Http2 => http2(tunnel(serving, ca, &host, b"h2").await, &host, requests).await,
            Workload::NewConnection | Workload::NewHost => {
                for request in 0..requests {
                    let host = self.host(request);
                    get(&mut tunnel(serving, ca, &host, b"http/1.1").await, "/page", &host).await;
                }
            }
        }
    }
}

async fn connect(serving: &Serving) -> TcpStream {
    let stream = TcpStream::connect(serving.address()).await.unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

async fn tunnel(serving: &Serving, ca: &Path, host: &str, alpn: &[u8]) -> Wire<TlsStream<TcpStream>> {
    let mut wire = Wire::over(connect(serving).await);
    wire.send(format!("CONNECT {host}:443 HTTP/1.1\r\nHost: {host}:443\r\n\r\n")).await;
    let head = wire.head().await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    wire.tls_trusting(ca, host, &[alpn]).await
}

async fn get<S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin>(wire: &mut Wire<S>, target: &str, host: &str) {
    wire.send(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: NimbuBot/1.0\r\nAccept: */*\r\n\r\n"))
        .await;
    let (head, body) = wire.answer().await;
    assert!(head.starts_with("HTTP/1.1 200 ") && body.len() == 1024, "{head}");
}

async fn http2(wire: Wire<TlsStream<TcpStream>>, host: &str, requests: usize) {
    let shaking = http2::handshake(TokioExecutor::new(), TokioIo::new(wire.stream));
    let (mut sender, connection) = shaking.await.unwrap();
    tokio::spawn(connection);
    for _ in 0..requests {
        let request = http::Request::get(format!("https://{host}/page")).header("user-agent", "NimbuBot/1.0");
        let answer =
            in_time("an answer", sender.send_request(request.body(Empty::<Bytes>::new()).unwrap())).await.unwrap();
        assert_eq!(answer.status(), 200);
        assert_eq!(in_time("a body", answer.into_body().collect()).await.unwrap().to_bytes().len(), 1024);
    }
}
