//! What the header of a request tells of the page that it belongs to, and of who waits for it.
//!
//! Browsers say it in `Sec-Fetch-*` (W3C Fetch Metadata) or, in clear text, let it be guessed; anybody may say how long he waits
//! (RFC 7240 §4.3). Every request is looked at and nearly none says any of it, so the header is read in one go.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};

/// What a browser wants it for (W3C Fetch Metadata).
pub const SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// What is told, each by the first field of its name. What is no text says nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hints<'a> {
    /// `Sec-Fetch-Mode`
    pub mode: Option<&'a str>,
    /// `Sec-Fetch-Dest`
    pub dest: Option<&'a str>,
    /// `Sec-Purpose`
    pub purpose: Option<&'a str>,
    /// `Upgrade-Insecure-Requests`
    pub upgrade_insecure_requests: Option<&'a str>,
    /// `Accept`
    pub accept: Option<&'a str>,
    /// `Referer`
    pub referer: Option<&'a str>,
    /// `Prefer: wait`, the first that can be read.
    pub preferred_wait: Option<Duration>,
}

impl<'a> Hints<'a> {
    /// Reads a header.
    pub fn of(headers: &'a HeaderMap) -> Hints<'a> {
        let mut hints = Hints::default();
        for (name, value) in headers {
            let told = match name.as_str() {
                "sec-fetch-mode" => &mut hints.mode,
                "sec-fetch-dest" => &mut hints.dest,
                "sec-purpose" => &mut hints.purpose,
                "upgrade-insecure-requests" => &mut hints.upgrade_insecure_requests,
                "accept" => &mut hints.accept,
                "referer" => &mut hints.referer,
                "prefer" => {
                    hints.preferred_wait = hints.preferred_wait.or_else(|| preferred_wait(value));
                    continue;
                }
                _ => continue,
            };
            *told = told.or_else(|| value.to_str().ok());
        }
        hints
    }

    /// Whether somebody sits before the page who will not wait longer than a browser does. Scrapers say `Accept: text/html`, too, and
    /// have all the time in the world; `Upgrade-Insecure-Requests` and `Sec-Fetch-*` are said by browsers alone.
    pub fn is_browsers_navigation(&self) -> bool {
        self.upgrade_insecure_requests == Some("1") || self.mode == Some("navigate") || self.dest == Some("document")
    }
}

/// `Prefer: wait=N` (RFC 7240 §4.3). What is malformed says nothing, and of several the first counts (§2).
fn preferred_wait(value: &HeaderValue) -> Option<Duration> {
    let wait = value.to_str().ok()?.split(',').find_map(|preference| {
        let (name, value) = preference.split(';').next()?.split_once('=')?;
        name.trim().eq_ignore_ascii_case("wait").then(|| value.trim())
    })?;
    let digits = wait.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(wait);
    let is_number = !digits.is_empty() && digits.bytes().all(|octet| octet.is_ascii_digit());
    is_number.then(|| Duration::from_secs(digits.parse().unwrap_or(u64::from(u32::MAX))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_browsers_are_in_a_hurry() {
        for (fields, expected) in [
            (&[("accept", "text/html,application/xhtml+xml")][..], false),
            (&[("upgrade-insecure-requests", "1")], true),
            (&[("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "iframe")], true),
            (&[("sec-fetch-mode", "no-cors"), ("sec-fetch-dest", "image")], false),
        ] {
            let headers = fields.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()));
            assert_eq!(Hints::of(&headers.collect()).is_browsers_navigation(), expected, "{fields:?}");
        }
    }
}
