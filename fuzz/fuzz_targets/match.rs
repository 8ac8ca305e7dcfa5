//! One rule among many against one path, with the model as judge.

#![no_main]

use libfuzzer_sys::fuzz_target;
use robots_proxy_fuzz::agree;
use robots_proxy_fuzz::robots::path::without_dot_segments;

fuzz_target!(|data: &[u8]| {
    let mut parts = data.splitn(2, |octet| *octet == b'\n');
    let (Some(path), Some(patterns)) = (parts.next(), parts.next()) else { return };
    let target = [b"/", path].concat();
    let mut body = b"User-agent: *\n".to_vec();
    for pattern in patterns.split(|octet| *octet == b'\n') {
        let kind: &[u8] = if pattern.len() % 3 == 0 { b"Allow: " } else { b"Disallow: " };
        body.extend([kind, pattern, b"\n"].concat());
    }
    agree(&body, usize::MAX, "x", &target);
    if let Some(resolved) = without_dot_segments(&target) {
        assert!(resolved.starts_with(b"/"));
        assert_eq!(without_dot_segments(&resolved), None);
    }
});
