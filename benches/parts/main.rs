//! What each part of a request's road costs by itself: `cargo bench --bench parts`, or `-- mint` for one of them.
//!
//! Time on this machine, for comparisons within one run. What a whole request costs is counted by `tests/instructions/run`, and measured
//! beside other proxies by `benches/peers/run`.

#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on stops")]

mod files;
mod road;
mod rules;

use criterion::Criterion;

/// As in the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const AGENT: &str = "NimbuBot";

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    rules::measure(&mut criterion);
    road::measure(&mut criterion);
    criterion.final_summary();
}
