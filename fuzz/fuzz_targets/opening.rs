//! What a connection begins with is told alike however its octets come, and a CONNECT is no longer than they are.

#![no_main]

use libfuzzer_sys::fuzz_target;
use robots_proxy_fuzz::policy::opening::{Opening, opening};
use robots_proxy_fuzz::policy::target::Tunnel;

const HEAD_MAX: usize = 1000;

/// The first that is told, with the octets in pieces.
fn told(octets: &[u8], piece: usize) -> Option<Opening> {
    (1..=octets.len()).filter(|end| end % piece == 0 || *end == octets.len()).find_map(|end| opening(&octets[..end], HEAD_MAX))
}

fuzz_target!(|octets: &[u8]| {
    let whole = opening(octets, HEAD_MAX);
    if !octets.starts_with(b"CONNECT ") {
        return;
    }
    for piece in [1, 7] {
        match (told(octets, piece), &whole) {
            (Some(Opening::Connect(one)), Some(Opening::Connect(other))) => {
                assert_eq!((&one.target, one.length, &one.headers), (&other.target, other.length, &other.headers));
                assert!(one.length <= octets.len() && octets[..one.length].ends_with(b"\n"));
                assert_eq!((one.has_content(), one.is_last()), (other.has_content(), other.is_last()));
                let _ = one.target.parse::<Tunnel>();
            }
            (Some(one), Some(other)) => assert_eq!(std::mem::discriminant(&one), std::mem::discriminant(other)),
            (None, None) => {}
            // Too long before its end had come.
            (Some(Opening::TooLarge), _) | (_, Some(Opening::TooLarge)) => {}
            (one, other) => panic!("{one:?} {other:?}"),
        }
    }
});
