//! What the answer to `GET /robots.txt` means, and for how long.
//!
//! RFC 9309 §2.3.1 reads a missing file as "no rules" and a broken server as "stay away". Most operators who answer 401 or 403 mean
//! "stay away" too, and 429 says "too much already", so the default policy takes them so; the letter of the RFC is one setting away.
//! Both tables are here, side by side, and nowhere else. Pure: the request itself is made elsewhere, and time comes in as a value.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, header};

/// Which table applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StatusPolicy {
    /// 401, 403 and 429 mean "stay away".
    #[default]
    Careful,
    /// Every 4xx means "no rules" (RFC 9309 §2.3.1.3).
    Rfc9309,
}

/// The answer that ended the request for robots.txt, redirects followed.
#[derive(Clone, Copy, Debug)]
pub struct FinalAnswer<'a> {
    /// The status.
    pub status: u16,
    /// The header fields.
    pub headers: &'a HeaderMap,
    /// The body, decoded, up to the size limit.
    pub body: &'a [u8],
}

/// What a reader of a record should know about an answer, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Note {
    /// A web page instead of the file.
    Html,
    /// A page that asks whether the client is human, instead of the file.
    Challenge,
    /// More redirects than are followed, or a circle of them.
    TooManyRedirects,
    /// Only a part of the file.
    PartialContent,
}

impl Note {
    /// The note in a sentence about the answer: "answered 200 with …".
    pub fn describe(self) -> &'static str {
        match self {
            Note::Html => "a web page instead of the file",
            Note::Challenge => "a bot challenge instead of the file",
            Note::TooManyRedirects => "too many redirects",
            Note::PartialContent => "only a part of the file",
        }
    }
}

/// What an answer says about the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// The body holds the rules.
    Rules,
    /// There are no rules, with a note where that is a guess.
    NoRules(Option<Note>),
    /// The origin withholds the file: the old copy, or disallow everything.
    Withheld,
    /// The origin cannot say: the old copy, or disallow everything (RFC 9309 §2.3.1.4).
    Unreachable(Option<Note>),
}

/// What the answer means under a policy.
pub fn meaning(policy: StatusPolicy, answer: FinalAnswer<'_>) -> Meaning {
    match answer.status {
        206 if is_a_part(answer.headers) => Meaning::Unreachable(Some(Note::PartialContent)),
        200..=299 => meaning_of_body(answer),
        401 | 403 | 429 if policy == StatusPolicy::Careful => Meaning::Withheld,
        400..=499 => Meaning::NoRules(None),
        _ => Meaning::Unreachable(None),
    }
}

/// Redirects beyond the limit, or in a circle, count as a missing file (RFC 9309 §2.3.1.2).
pub const TOO_MANY_REDIRECTS: Meaning = Meaning::NoRules(Some(Note::TooManyRedirects));

/// A page instead of robots.txt: a challenge, or anything but 200, is a failure; a site that answers every path with its one page
/// has no robots.txt.
fn meaning_of_body(answer: FinalAnswer<'_>) -> Meaning {
    if !is_html(answer.body) {
        return Meaning::Rules;
    }
    match answer.status {
        _ if is_challenge(answer) => Meaning::Unreachable(Some(Note::Challenge)),
        200 => Meaning::NoRules(Some(Note::Html)),
        _ => Meaning::Unreachable(Some(Note::Html)),
    }
}

/// Whether a 206 says that it leaves something out: `Content-Range: bytes 0-99/100` does not (RFC 9110 §14.4).
fn is_a_part(headers: &HeaderMap) -> bool {
    let Some(range) = headers.get(header::CONTENT_RANGE) else { return false };
    let whole = || -> Option<bool> {
        let (range, length) = range.to_str().ok()?.trim().strip_prefix("bytes ")?.split_once('/')?;
        let (first, last) = range.split_once('-')?;
        let (first, last, length) =
            (first.parse::<u64>().ok()?, last.parse::<u64>().ok()?, length.parse::<u64>().ok()?);
        Some(first == 0 && last.checked_add(1) == Some(length))
    };
    !whole().unwrap_or(false)
}

/// A body that starts like markup and has no line that robots.txt is made of. The Content-Type proves nothing: many a real file is
/// served as text/html.
fn is_html(body: &[u8]) -> bool {
    let body = body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(body);
    body.trim_ascii_start().first() == Some(&b'<')
        && !body.split(|&octet| matches!(octet, b'\n' | b'\r')).any(is_robots_line)
}

fn is_robots_line(line: &[u8]) -> bool {
    let Some(colon) = line.iter().position(|&octet| octet == b':') else { return false };
    let field = line[..colon].trim_ascii();
    ["user-agent", "disallow", "allow"].iter().any(|known| field.eq_ignore_ascii_case(known.as_bytes()))
}

/// Marks of the interstitial pages that stand between bots and a site. Each means that the real file was not shown.
const CHALLENGE_MARKS: [&[u8]; 9] = [
    b"/.within.website/",   // Anubis
    b"Just a moment...",    // Cloudflare
    b"/cdn-cgi/challenge-", // Cloudflare
    b"Making sure you're not a bot",
    b"Making sure you&#39;re not a bot",
    b"captcha-delivery.com",   // DataDome
    b"px-captcha",             // PerimeterX
    b"_Incapsula_Resource",    // Imperva
    b"awsWafCookieDomainList", // AWS WAF
];

fn is_challenge(answer: FinalAnswer<'_>) -> bool {
    let says = |name: &str, words: &[&str]| {
        let value = answer.headers.get(name).and_then(|value| value.to_str().ok());
        value.is_some_and(|value| words.iter().any(|word| value.eq_ignore_ascii_case(word)))
    };
    says("cf-mitigated", &["challenge"])
        || says("x-amzn-waf-action", &["challenge", "captcha"])
        || CHALLENGE_MARKS.iter().any(|mark| memchr::memmem::find(answer.body, mark).is_some())
}

/// How long a good answer may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    /// At most this long (RFC 9309 §2.4: 24 hours).
    pub ttl: Duration,
    /// At least this long, whatever the cache headers say.
    pub min_ttl: Duration,
    /// The longest gap between tries after failures.
    pub retry: Duration,
}

/// How long a copy is fresh: what its cache headers say (RFC 9111 §4.2), between `min_ttl` and `ttl`.
pub fn lifetime(headers: &HeaderMap, limits: Lifetimes) -> Duration {
    let told = told_lifetime(headers).unwrap_or(limits.ttl);
    told.max(limits.min_ttl).min(limits.ttl)
}

fn told_lifetime(headers: &HeaderMap) -> Option<Duration> {
    let directives: Vec<String> = headers
        .get_all(header::CACHE_CONTROL)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|directive| directive.trim().to_ascii_lowercase())
        .collect();
    if directives.iter().any(|directive| directive == "no-store" || directive == "no-cache") {
        return Some(Duration::ZERO);
    }
    let age = seconds(headers.get(header::AGE).and_then(|value| value.to_str().ok()).unwrap_or("0"));
    let max_age = directives.iter().find_map(|directive| directive.strip_prefix("max-age="));
    if let Some(max_age) = max_age {
        return Some(seconds(max_age.trim_matches('"')).saturating_sub(age));
    }
    let expires = headers.get(header::EXPIRES)?.to_str().ok()?;
    // RFC 9111 §5.3: an Expires that is no date is in the past.
    let Ok(expires) = httpdate::parse_http_date(expires) else { return Some(Duration::ZERO) };
    Some(expires.duration_since(date(headers)?).unwrap_or(Duration::ZERO).saturating_sub(age))
}

/// Whole seconds; a number too large to be meant counts as the largest (RFC 9111 §1.2.2), anything else as none.
fn seconds(text: &str) -> Duration {
    match text.trim() {
        digits if !digits.is_empty() && digits.bytes().all(|octet| octet.is_ascii_digit()) => {
            Duration::from_secs(digits.parse().unwrap_or(u64::from(u32::MAX)))
        }
        _ => Duration::ZERO,
    }
}

fn date(headers: &HeaderMap) -> Option<SystemTime> {
    httpdate::parse_http_date(headers.get(header::DATE)?.to_str().ok()?).ok()
}

/// No origin can put its robots.txt off for longer than this; RFC 9309 §2.4 wants a new look every day.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(24 * 3600);

/// `Retry-After` of an answer: seconds, or a date counted from the answer's own Date; `None` where it is absent, past or malformed.
pub fn retry_after(headers: &HeaderMap, wall: SystemTime) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = match httpdate::parse_http_date(text) {
        Ok(at) => at.duration_since(date(headers).unwrap_or(wall)).ok()?,
        Err(_) => seconds(text),
    };
    (!wait.is_zero()).then(|| wait.min(RETRY_AFTER_MAX))
}

/// The first try after a failure comes soon, since most failures are short.
const FIRST_RETRY: Duration = Duration::from_secs(5);

/// How long to leave the origin alone after `failures` failures in a row: 5 s, three times as long after each, at most `retry`, and
/// never shorter than the origin's own `Retry-After`.
pub fn retry_gap(failures: u32, retry: Duration, retry_after: Option<Duration>) -> Duration {
    let factor = 3u32.saturating_pow(failures.saturating_sub(1));
    FIRST_RETRY.saturating_mul(factor).min(retry).max(retry_after.unwrap_or(Duration::ZERO))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
        fields.iter().map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    #[test]
    fn the_status_table_in_both_policies() {
        use Meaning::*;
        for (status, careful, rfc9309) in [
            (200, Rules, Rules),
            (204, Rules, Rules),
            (206, Rules, Rules),
            (300, Unreachable(None), Unreachable(None)),
            (304, Unreachable(None), Unreachable(None)),
            (400, NoRules(None), NoRules(None)),
            (401, Withheld, NoRules(None)),
            (403, Withheld, NoRules(None)),
            (404, NoRules(None), NoRules(None)),
            (410, NoRules(None), NoRules(None)),
            (418, NoRules(None), NoRules(None)),
            (429, Withheld, NoRules(None)),
            (500, Unreachable(None), Unreachable(None)),
            (503, Unreachable(None), Unreachable(None)),
            (999, Unreachable(None), Unreachable(None)),
        ] {
            let answer = FinalAnswer { status, headers: &HeaderMap::new(), body: b"User-agent: *\nDisallow: /" };
            assert_eq!(meaning(StatusPolicy::Careful, answer), careful, "{status}");
            assert_eq!(meaning(StatusPolicy::Rfc9309, answer), rfc9309, "{status}");
        }
    }

    #[test]
    fn a_page_is_not_robots_txt() {
        use Meaning::*;
        let page = b"\n<!doctype html>\n<title>Shop</title>\n<p>disallow me</p>";
        let anubis = b"<!doctype html><title>Making sure you're not a bot!</title>";
        for (status, fields, body, want) in [
            (200, &[][..], &page[..], NoRules(Some(Note::Html))),
            (202, &[], page, Unreachable(Some(Note::Html))),
            (200, &[], anubis, Unreachable(Some(Note::Challenge))),
            (200, &[("cf-mitigated", "challenge")], page, Unreachable(Some(Note::Challenge))),
            (200, &[("content-type", "text/html")], b"User-agent: *\nDisallow: /", Rules),
            (200, &[], b"<pre>\nUser-agent: *\nDisallow: /\n</pre>", Rules),
            (200, &[], b"", Rules),
        ] {
            let answer = FinalAnswer { status, headers: &headers(fields), body };
            assert_eq!(meaning(StatusPolicy::Careful, answer), want, "{status} {}", String::from_utf8_lossy(body));
        }
    }

    #[test]
    fn a_part_of_the_file_is_not_the_file() {
        for (range, part) in [
            ("bytes 0-99/100", false),
            ("bytes 0-98/100", true),
            ("bytes 1-99/100", true),
            ("bytes 0-99/*", true),
            ("bytes 0-18446744073709551615/0", true),
            ("pages 1-2/2", true),
        ] {
            assert_eq!(is_a_part(&headers(&[("content-range", range)])), part, "{range}");
        }
    }

    #[test]
    fn cache_headers_shorten_a_life_and_never_lengthen_it() {
        let limits = Lifetimes {
            ttl: Duration::from_secs(86400),
            min_ttl: Duration::from_secs(300),
            retry: Duration::from_secs(300),
        };
        let (date, later) = ("Mon, 30 Nov 2026 10:00:00 GMT", "Mon, 30 Nov 2026 11:00:00 GMT");
        for (fields, want) in [
            (&[][..], 86400),
            (&[("cache-control", "max-age=3600")], 3600),
            (&[("cache-control", "public, MAX-AGE=\"3600\"")], 3600),
            (&[("cache-control", "max-age=31536000")], 86400),
            (&[("cache-control", "max-age=99999999999999999999999")], 86400),
            (&[("cache-control", "max-age=3600"), ("age", "3599")], 300),
            (&[("cache-control", "max-age=86400"), ("age", "80000")], 6400),
            (&[("cache-control", "no-store")], 300),
            (&[("cache-control", "max-age=3600, no-cache")], 300),
            (&[("cache-control", "max-age=soon")], 300),
            (&[("expires", later), ("date", date)], 3600),
            (&[("expires", date), ("date", later)], 300),
            (&[("expires", "0"), ("date", date)], 300),
            (&[("expires", later)], 86400),
        ] {
            assert_eq!(lifetime(&headers(fields), limits).as_secs(), want, "{fields:?}");
        }
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let wall = httpdate::parse_http_date("Mon, 30 Nov 2026 10:00:00 GMT").unwrap();
        for (value, want) in [
            ("120", Some(120)),
            ("Mon, 30 Nov 2026 10:01:00 GMT", Some(60)),
            ("Mon, 30 Nov 2026 09:00:00 GMT", None),
            ("0", None),
            ("-5", None),
            ("soon", None),
            ("99999999999", Some(86400)),
        ] {
            assert_eq!(
                retry_after(&headers(&[("retry-after", value)]), wall).map(|wait| wait.as_secs()),
                want,
                "{value}"
            );
        }
    }

    #[test]
    fn retries_come_soon_then_rarely() {
        let retry = Duration::from_secs(300);
        let gaps: Vec<u64> = (1..=6).map(|failures| retry_gap(failures, retry, None).as_secs()).collect();
        assert_eq!(gaps, [5, 15, 45, 135, 300, 300]);
        assert_eq!(retry_gap(u32::MAX, retry, None), retry);
        assert_eq!(retry_gap(1, retry, Some(Duration::from_secs(3600))).as_secs(), 3600);
        assert_eq!(retry_gap(1, Duration::from_secs(1), None).as_secs(), 1);
    }
}
