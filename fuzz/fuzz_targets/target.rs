//! Whatever a request names as its target, what comes of it has one spelling, and says the same when it is read again.

#![no_main]

use http::{HeaderMap, HeaderValue, Uri, Version};
use libfuzzer_sys::fuzz_target;
use robots_proxy_fuzz::policy::target::{Target, Tunnel, without_user};

fuzz_target!(|data: &[u8]| {
    let mut parts = data.splitn(3, |octet| *octet == b'\n');
    let (Some(line), Some(host), Some(connect)) = (parts.next(), parts.next(), parts.next()) else { return };
    if let Ok(text) = std::str::from_utf8(line) {
        // A user name ends at the last @ before the path.
        let shown = without_user(text);
        assert!(shown.len() <= text.len() && (shown == text || text.contains('@')));
    }
    let (Ok(uri), Ok(host)) = (Uri::try_from(line), HeaderValue::from_bytes(host)) else { return };
    let tunnel = std::str::from_utf8(connect).ok().and_then(|text| text.parse::<Tunnel>().ok());
    if let Some(tunnel) = &tunnel {
        let again: Tunnel = tunnel.to_string().parse().unwrap();
        assert_eq!(again, *tunnel);
    }
    let headers: HeaderMap = [(http::header::HOST, host)].into_iter().collect();
    for version in [Version::HTTP_10, Version::HTTP_11, Version::HTTP_2] {
        for tunnel in [None, tunnel.as_ref()] {
            let Ok(target) = Target::of(&uri, version, &headers, tunnel) else { continue };
            let shown = target.to_string();
            assert!(target.path.as_str().starts_with('/') && !shown.contains('#'), "{shown}");
            let host = target.origin.host.as_str();
            assert!(!host.is_empty() && !host.ends_with('.') && !host.contains(['@', '%', '/', '?', '\\', '[']), "{shown}");
            assert!(!host.bytes().any(|octet| octet.is_ascii_uppercase() || !octet.is_ascii_graphic()), "{shown}");
            assert!(tunnel.is_none_or(|tunnel| tunnel.port == target.origin.port && tunnel.scheme == target.origin.scheme));
            let Ok(uri) = shown.parse() else { panic!("{shown}") };
            let again = Target::of(&uri, Version::HTTP_10, &HeaderMap::new(), None).unwrap();
            assert_eq!(again, target);
        }
    }
});
