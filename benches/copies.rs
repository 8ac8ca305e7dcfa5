//! 100,000 origins with their copies on disk: how long a start takes, what a copy costs in memory, and that one long file drives
//! nobody out.
//!
//! `cargo bench --bench copies` prints a line a figure; nothing here passes or fails.

#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on stops")]

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use robots_proxy::lookup::fetch::{FetchError, Fetched, Validators};
use robots_proxy::lookup::store::{Limits, Store};
use robots_proxy::lookup::{Fetch, Lookup, Settings};
use robots_proxy::policy::target::Origin;
use robots_proxy::upstream::Speech;

/// As in the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ORIGINS: usize = 100_000;

/// Every origin has a file of about 2 KB of its own, but for the first, whose file is as long as a file may be.
struct Everywhere;

impl Fetch for Everywhere {
    fn fetch(
        &self,
        origin: &Origin,
        _: Speech,
        _: Option<Validators>,
    ) -> BoxFuture<'static, Result<Fetched, FetchError>> {
        let rules = if origin == &self::origin(0) { 20_000 } else { 60 };
        let rules: String = (0..rules).map(|rule| format!("Disallow: /{}/{rule}/section\n", origin.host)).collect();
        let body = format!("User-agent: *\n{rules}").into_bytes();
        let (status, headers) = (http::StatusCode::OK, http::HeaderMap::new());
        Box::pin(async move { Ok(Fetched { status, headers, body, final_url: None, too_many_redirects: false }) })
    }
}

/// Nobody answers: what is known comes from the disk.
struct Nowhere;

impl Fetch for Nowhere {
    fn fetch(&self, _: &Origin, _: Speech, _: Option<Validators>) -> BoxFuture<'static, Result<Fetched, FetchError>> {
        Box::pin(async { Err(FetchError::TimedOut(Duration::ZERO)) })
    }
}

fn origin(number: usize) -> Origin {
    Origin::of(&format!("https://h{number}.example.test/").parse().unwrap()).unwrap()
}

fn store(folder: &Path) -> Option<Store> {
    Some(Store::open(folder, Limits { copies: ORIGINS as u64, body_bytes: Limits::BODY_BYTES }).unwrap())
}

/// Resident memory in octets, as the system has it.
fn resident() -> f64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    pages.split(' ').nth(1).and_then(|pages| pages.parse::<f64>().ok()).unwrap_or(0.0) * 4096.0
}

async fn ask_all(lookup: &Lookup) {
    for number in 0..ORIGINS {
        lookup.standing(&origin(number), Speech::Http1).await;
    }
}

#[allow(clippy::disallowed_methods, reason = "a measurement reads the clock")]
fn fill(folder: &Path) {
    let began = Instant::now();
    runtime().block_on(async {
        let lookup = Lookup::new(Settings::default(), Arc::new(Everywhere), store(folder));
        for number in 0..ORIGINS {
            lookup.standing(&origin(number), Speech::Http1).await;
            if number % 500 == 0 {
                lookup.store().unwrap().flush();
            }
        }
        lookup.store().unwrap().flush();
        println!("copies not written      {}", lookup.store().unwrap().failures());
    });
    println!("filled                  {ORIGINS} copies in {:.1} s", began.elapsed().as_secs_f64());
}

#[allow(clippy::disallowed_methods, reason = "a measurement reads the clock")]
fn measure(folder: &Path) {
    let octets = std::fs::metadata(folder.join("copies.redb")).unwrap().len();
    println!("on disk                 {:.1} KiB a copy", octets as f64 / 1024.0 / ORIGINS as f64);
    let (runtime, before, began) = (runtime(), resident(), Instant::now());
    let lookup = runtime.block_on(async { Lookup::new(Settings::default(), Arc::new(Nowhere), store(folder)) });
    println!("start                   {:.3} s", began.elapsed().as_secs_f64());
    let began = Instant::now();
    runtime.block_on(ask_all(&lookup));
    println!(
        "each asked for once     {:.1} us a copy, from disk",
        began.elapsed().as_secs_f64() * 1e6 / ORIGINS as f64
    );
    println!("in memory               {:.1} KiB a copy", (resident() - before) / 1024.0 / ORIGINS as f64);
    println!("still in memory         {} of {ORIGINS}", lookup.copies().len());
    let began = Instant::now();
    runtime.block_on(ask_all(&lookup));
    println!("and once more           {:.2} us a copy", began.elapsed().as_secs_f64() * 1e6 / ORIGINS as f64);
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Runtime::new().unwrap()
}

/// The folder that a process of its own fills, so that what that one has allocated is not counted.
const FOLDER: &str = "COPIES_FOLDER";

fn main() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return fill(Path::new(&folder));
    }
    let folder = tempfile::tempdir().unwrap();
    let filled = Command::new(std::env::current_exe().unwrap()).env(FOLDER, folder.path()).status().unwrap();
    assert!(filled.success());
    measure(folder.path());
}
