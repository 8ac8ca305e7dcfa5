//! What a browser's page loads, told apart from what a bot asks for.
//!
//! A page with 80 files under a Crawl-delay of 10 s would take 13 minutes, and every browser gives up after 30 s. So a navigation
//! is paced and what its page then loads is not, within a budget per client and host. Browsers say what a request is for in
//! `Sec-Fetch-*` (W3C Fetch Metadata), which scripts cannot set; on plain HTTP, where they do not, `Accept`, `Upgrade-Insecure-
//! Requests` and `Referer` have to do. A client that lies gains a budget per navigation and no more, since navigations are paced.
//! Rules apply to every request all the same. Pure; who has which budget is kept in [`crate::queue`].

use std::time::{Duration, Instant};

use super::hints::Hints;
use super::target::{Scheme, Target};

/// What a request is to a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Load {
    /// A browser goes to a page.
    Navigation,
    /// The page needs it: an image, a script, a style.
    Requisite,
    /// A script of the page asks for it.
    Data,
    /// The same as a requisite, if this page (without query) was navigated to.
    Referred(String),
    /// Nothing tells that it belongs to a page.
    Alone,
}

/// What a request is to a page, as far as its header tells.
pub fn load(hints: &Hints<'_>, scheme: Scheme) -> Load {
    let (mode, dest) = (hints.mode.unwrap_or_default(), hints.dest.unwrap_or_default());
    // What is fetched ahead is nobody's page yet, and can wait.
    if hints.purpose.is_some_and(|purpose| purpose.contains("prefetch")) {
        return Load::Alone;
    }
    match dest {
        _ if mode == "navigate" => Load::Navigation,
        "document" | "iframe" | "frame" | "object" | "embed" | "fencedframe" => Load::Navigation,
        "audio" | "audioworklet" | "dictionary" | "font" | "image" | "json" | "manifest" | "paintworklet"
        | "report" | "script" | "serviceworker" | "sharedworker" | "style" | "text" | "track" | "video" | "worker"
        | "xslt" => Load::Requisite,
        "empty" if mode != "websocket" => Load::Data,
        "" if mode.is_empty() && scheme == Scheme::Http => without_metadata(hints),
        _ => Load::Alone,
    }
}

/// Browsers send no Fetch Metadata in clear text.
fn without_metadata(hints: &Hints<'_>) -> Load {
    if hints.is_browsers_navigation() || hints.accept.is_some_and(|accept| accept.starts_with("text/html")) {
        return Load::Navigation;
    }
    hints.referer.map_or(Load::Alone, |referer| Load::Referred(page_of(referer)))
}

/// A page's URL without query and fragment, which is what a Referer and a navigation are compared by.
fn page_of(url: &str) -> String {
    let end = url.find(['?', '#']).unwrap_or(url.len());
    url[..end].to_owned()
}

/// The page that a navigation to `target` leads to.
pub fn page(target: &Target) -> String {
    page_of(&target.to_string())
}

/// How long after the navigation's answer its page loads things.
pub const WINDOW: Duration = Duration::from_secs(30);

/// Requisites at once per client and host: what a browser opens in connections to an HTTP/1.1 host.
pub const AT_ONCE: usize = 6;

/// What a page may load from one host without standing in line.
#[derive(Clone, Debug)]
pub struct Budget {
    /// The start of the navigation that granted it.
    granted: Instant,
    /// The delay of the host: no navigation grants another budget before it has passed, or a client could navigate at a host
    /// without a delay to load things from one that has one.
    gap: Duration,
    left: u32,
    data_left: u32,
}

/// Requests of a budget. Chosen: nine pages in ten load fewer from one host (HTTP Archive: a median of 70 from all hosts).
const REQUESTS: u32 = 200;

/// Of these, requests of scripts: enough for a page that fetches what it shows, too few to crawl with.
const DATA: u32 = 20;

impl Budget {
    /// A whole budget, granted by a navigation that started at `granted`.
    pub fn granted(granted: Instant, gap: Duration) -> Budget {
        Budget { granted, gap, left: REQUESTS, data_left: DATA }
    }

    /// Fills it up, where a navigation that started at `navigated` grants another one.
    pub fn renew(&mut self, navigated: Instant, gap: Duration) {
        self.gap = gap;
        if navigated > self.granted && navigated >= self.granted + gap {
            *self = Budget::granted(navigated, gap);
        }
    }

    /// Takes one request from it; false where nothing is left.
    pub fn take(&mut self, load: &Load) -> bool {
        if self.left == 0 || (*load == Load::Data && self.data_left == 0) {
            return false;
        }
        self.left -= 1;
        self.data_left -= u32::from(*load == Load::Data);
        true
    }

    /// Whether a navigation now would grant a whole one, so that there is nothing to remember.
    pub fn is_over_at(&self, now: Instant) -> bool {
        now >= self.granted + self.gap
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::*;

    fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
        fields.iter().map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    #[test]
    fn the_header_tells_what_a_request_is_to_a_page() {
        use Load::*;
        use Scheme::{Http, Https};
        let (mode, dest) = (|value| ("sec-fetch-mode", value), |value| ("sec-fetch-dest", value));
        let (html, any) = (("accept", "text/html,*/*;q=0.8"), ("accept", "*/*"));
        let referer = ("referer", "http://a.test/page?x=1#top");
        for (scheme, fields, expected, shows) in [
            (Https, vec![mode("navigate"), dest("document")], Navigation, "a page"),
            (Https, vec![mode("navigate"), dest("iframe")], Navigation, "a frame"),
            (Https, vec![mode("no-cors"), dest("embed")], Navigation, "a frame by another name"),
            (Https, vec![mode("no-cors"), dest("image")], Requisite, "an image"),
            (Https, vec![mode("cors"), dest("font")], Requisite, "a font"),
            (Https, vec![mode("no-cors"), dest("script")], Requisite, "a script"),
            (Https, vec![dest("style")], Requisite, "a style, from a browser that says less"),
            (Https, vec![mode("cors"), dest("empty")], Data, "fetch()"),
            (Https, vec![mode("websocket"), dest("empty")], Alone, "a WebSocket"),
            (Https, vec![mode("no-cors"), dest("unheard-of")], Alone, "a kind from the future"),
            (Https, vec![mode("navigate"), dest("document"), ("sec-purpose", "prefetch;prerender")], Alone, "ahead"),
            (Https, vec![mode("no-cors"), dest("image"), ("sec-purpose", "prefetch")], Alone, "an image ahead"),
            (Https, vec![html, ("upgrade-insecure-requests", "1")], Alone, "only in clear text browsers are silent"),
            (Https, vec![any, referer], Alone, "the same"),
            (Http, vec![mode("no-cors"), dest("image")], Requisite, "localhost"),
            (Http, vec![html], Navigation, "a page in clear text"),
            (Http, vec![html, referer], Navigation, "a page that a page led to"),
            (Http, vec![any, ("upgrade-insecure-requests", "1")], Navigation, "the same"),
            (Http, vec![any, referer], Referred("http://a.test/page".into()), "what a page loads"),
            (Http, vec![any], Alone, "curl"),
            (Http, vec![], Alone, "nothing"),
        ] {
            assert_eq!(load(&Hints::of(&headers(&fields)), scheme), expected, "{shows}: {fields:?}");
        }
    }

    #[test]
    fn a_budget_is_200_of_which_20_are_data() {
        let now = crate::clock::now();
        let (mut budget, second) = (Budget::granted(now, Duration::from_secs(5)), Duration::from_secs(1));
        assert_eq!((0..50).filter(|_| budget.take(&Load::Data)).count(), 20);
        assert_eq!((0..300).filter(|_| budget.take(&Load::Requisite)).count(), 180);
        budget.renew(now, 5 * second);
        assert!(!budget.take(&Load::Requisite), "one budget a navigation");
        budget.renew(now + 4 * second, 5 * second);
        assert!(!budget.take(&Load::Requisite), "a navigation elsewhere, within the delay here");
        budget.renew(now + 5 * second, 5 * second);
        assert!(budget.take(&Load::Requisite));
    }
}
