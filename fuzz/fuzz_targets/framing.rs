//! A request with two ends is found wherever the network cuts its octets.

#![no_main]

use libfuzzer_sys::fuzz_target;
use robots_proxy_fuzz::policy::framing::Framing;

/// The request that is found, with the octets in pieces.
fn found(octets: &[u8], piece: usize) -> Option<u64> {
    let mut framing = Framing::default();
    octets.chunks(piece).find_map(|piece| framing.follow(piece).err()).map(|ambiguous| ambiguous.nth)
}

fuzz_target!(|octets: &[u8]| {
    let whole = found(octets, octets.len().max(1));
    for piece in [1, 2, 3, 17] {
        assert_eq!(found(octets, piece), whole);
    }
});
