//! A record as commands read it: what they need of it, borrowed from its line where that goes.

use std::borrow::Cow;

use serde::Deserialize;

#[derive(Debug, Deserialize)]
pub(super) struct Record<'a> {
    #[serde(borrow)]
    pub(super) id: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) time: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) decision: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) reason: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) method: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) url: Cow<'a, str>,
    pub(super) agent: Option<String>,
    pub(super) rule: Option<String>,
    pub(super) line: Option<u32>,
    pub(super) robots: Option<Robots>,
    pub(super) exception: Option<String>,
    pub(super) wait_ms: Option<u64>,
    pub(super) would_wait_ms: Option<u64>,
    pub(super) status: Option<u16>,
    pub(super) detail: Option<String>,
    /// What became of the query of the URL.
    pub(super) query: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Robots {
    pub(super) url: String,
    pub(super) sha256: Option<String>,
}

impl<'a> Record<'a> {
    /// `None` where the line is no record.
    pub(super) fn read(line: &'a [u8]) -> Option<Record<'a>> {
        serde_json::from_slice(line).ok()
    }

    /// The host of the URL, or of the authority that a CONNECT names.
    pub(super) fn host(&self) -> &str {
        let rest = self.url.split_once("://").map_or(&*self.url, |(_, rest)| rest);
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        match authority.strip_prefix('[') {
            Some(literal) => literal.split(']').next().unwrap_or_default(),
            None => authority.rsplit_once(':').map_or(authority, |(host, _)| host),
        }
    }

    /// The bot, `*` where it could not be told.
    pub(super) fn agent(&self) -> &str {
        self.agent.as_deref().unwrap_or("*")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_found_in_urls_and_authorities() {
        for (url, host) in [
            ("https://a.test/x:1", "a.test"),
            ("http://a.test:8080?x", "a.test"),
            ("a.test:443", "a.test"),
            ("https://[::1]:8443/", "::1"),
            ("[::1]:443", "::1"),
            ("", ""),
        ] {
            let line =
                serde_json::json!({"id": "", "time": "", "decision": "", "reason": "", "method": "", "url": url});
            let line = line.to_string();
            assert_eq!(Record::read(line.as_bytes()).unwrap().host(), host);
        }
    }
}
