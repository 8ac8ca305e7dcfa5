//! A body in chunks is read alike wherever the network cuts its octets.

#![no_main]

use libfuzzer_sys::fuzz_target;
use robots_proxy_fuzz::in_chunks;

fuzz_target!(|octets: &[u8]| {
    let whole = in_chunks(octets, octets.len().max(1));
    for piece in [1, 2, 3, 17] {
        assert_eq!(in_chunks(octets, piece), whole);
    }
});
