//! A whole file, a token and a path: the engine and the slow model agree.

#![no_main]

use libfuzzer_sys::fuzz_target;
use robots_proxy_fuzz::{agree, question};

fuzz_target!(|data: &[u8]| {
    let Some((token, path, body)) = question(data) else { return };
    agree(body, usize::MAX, token, path);
    agree(body, body.len() * 2 / 3, token, path);
});
