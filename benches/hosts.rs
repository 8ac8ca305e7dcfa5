//! A million hosts without a robots.txt, which is what most have: what it takes to know that of each.
//!
//! `cargo bench --bench hosts` prints a line a figure; nothing here passes or fails.

#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on stops")]

use std::sync::Arc;
use std::time::Instant;

use futures_util::future::BoxFuture;
use http::{HeaderMap, StatusCode};
use robots_proxy::clock;
use robots_proxy::lookup::fetch::{FetchError, Fetched, Validators};
use robots_proxy::lookup::{Fetch, Lookup, Settings};
use robots_proxy::policy::decision::decide;
use robots_proxy::policy::target::Origin;
use robots_proxy::upstream::Speech;

/// As in the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const HOSTS: usize = 1_000_000;

/// What web servers say of a file that they do not have.
struct NotFound;

impl Fetch for NotFound {
    fn fetch(&self, _: &Origin, _: Speech, _: Option<Validators>) -> BoxFuture<'static, Result<Fetched, FetchError>> {
        let mut headers = HeaderMap::new();
        for (name, value) in [("date", "Sat, 05 Dec 2026 12:00:00 GMT"), ("content-type", "text/html")] {
            headers.insert(name, value.parse().unwrap());
        }
        let (status, body) = (StatusCode::NOT_FOUND, b"<h1>Not found</h1>".to_vec());
        Box::pin(async move { Ok(Fetched { status, headers, body, final_url: None, too_many_redirects: false }) })
    }
}

fn origin(number: usize) -> Origin {
    Origin::of(&format!("https://h{number}.example.test/").parse().unwrap()).unwrap()
}

/// Resident memory in octets, as the system has it.
fn resident() -> f64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    pages.split(' ').nth(1).and_then(|pages| pages.parse::<f64>().ok()).unwrap_or(0.0) * 4096.0
}

async fn decide_about_all(lookup: &Lookup) {
    for number in 0..HOSTS {
        let standing = lookup.standing(&origin(number), Speech::Http1).await;
        assert!(decide("NimbuBot", b"/page", &standing, clock::now()).reason.allows());
    }
}

#[allow(clippy::disallowed_methods, reason = "a measurement reads the clock")]
fn main() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let settings = Settings { max_copies: HOSTS as u64, ..Settings::default() };
    let lookup = runtime.block_on(async { Lookup::new(settings, Arc::new(NotFound), None) });
    let (before, mut began) = (resident(), Instant::now());
    for what in ["each asked for once", "and once more"] {
        runtime.block_on(decide_about_all(&lookup));
        println!("{what:23} {:.2} us a host", began.elapsed().as_secs_f64() * 1e6 / HOSTS as f64);
        began = Instant::now();
    }
    let grown = resident() - before;
    println!("still in memory         {} of {HOSTS}", lookup.count());
    println!(
        "in memory               {:.0} MiB, {:.0} octets a host",
        grown / f64::from(1 << 20),
        grown / HOSTS as f64
    );
}
