//! The bot's name in a User-Agent.
//!
//! RFC 9309 §2.2.1 wants a crawler's product token in its User-Agent, but there is no grammar for where. Most bots
//! pretend to be a browser and put their name behind `compatible;`, in a comment, or at the end. The rules here are
//! tried in order of how plainly they name somebody, and what they cannot tell stays untold: a wrong name would be
//! measured by another bot's group. A search for "bot" over the whole string is no substitute: it finds the bot of a
//! URL, of an e-mail address, and phones made by Cubot.

use std::iter;

/// The product token that a User-Agent names, if it can be told. Never a browser's.
pub fn token_in_user_agent(user_agent: &str) -> Option<&str> {
    first_product(user_agent)
        .or_else(|| after_compatible(user_agent))
        .or_else(|| in_comment(user_agent))
        .or_else(|| trailing_product(user_agent))
        .filter(|name| name.len() <= super::identity::LONGEST_TOKEN)
}

/// `CCBot/2.0 (…)`: the string begins with a name that is no browser's.
fn first_product(user_agent: &str) -> Option<&str> {
    let (text, _) = pieces(user_agent).next()?;
    let product = Product::in_segment(text)?;
    (!is_browser(product.name)).then_some(product.name)
}

/// `compatible; Googlebot/2.1; +http://…`: the first name behind the word, in the same comment or outside of all.
fn after_compatible(user_agent: &str) -> Option<&str> {
    // For every comment that is open, and for the text outside, whether the word was there. A nested comment says
    // something of its own.
    let mut seen = vec![false];
    for (text, end) in pieces(user_agent) {
        let here = seen.last_mut()?;
        if text.eq_ignore_ascii_case("compatible") {
            *here = true;
        } else if *here && let Some(product) = Product::in_segment(text).filter(Product::names_somebody) {
            return Some(product.name);
        }
        match end {
            End::Open => seen.push(false),
            // A closing bracket too many closes nothing.
            End::Close if seen.len() > 1 => drop(seen.pop()),
            End::Close | End::Segment => {}
        }
    }
    None
}

/// `(X11; Linux x86_64; Storebot-Google/1.0)`: a segment of a comment with a version, or with the name of a trade.
fn in_comment(user_agent: &str) -> Option<&str> {
    let mut depth = 0_usize;
    for (text, end) in pieces(user_agent) {
        if depth > 0
            && let Some(product) = Product::in_segment(text).filter(Product::names_somebody)
            && (product.has_version || is_trade(product.name))
        {
            return Some(product.name);
        }
        match end {
            End::Open => depth += 1,
            End::Close => depth = depth.saturating_sub(1),
            End::Segment => {}
        }
    }
    None
}

/// Case-insensitive, since `FooBot` and `foobot` are about as common.
fn is_trade(name: &str) -> bool {
    let ends_in = |trade: &str| {
        name.len() >= trade.len() && name.as_bytes()[name.len() - trade.len()..].eq_ignore_ascii_case(trade.as_bytes())
    };
    // A maker of phones, whose name stands alone in the platform comment.
    !name.eq_ignore_ascii_case("cubot") && ["bot", "spider", "crawler"].into_iter().any(ends_in)
}

/// `… Safari/537.36; Bytespider`: the last product outside comments that is no browser's.
fn trailing_product(user_agent: &str) -> Option<&str> {
    let mut depth = 0_usize;
    let mut last = None;
    for (text, end) in pieces(user_agent) {
        if depth == 0 {
            last = last_product(text).or(last);
        }
        match end {
            End::Open => depth += 1,
            End::Close => depth = depth.saturating_sub(1),
            End::Segment => {}
        }
    }
    last
}

/// The last product in words such as `Mobile Safari/537.36 FooBot/1.0`. A word behind a bare word belongs to a name of
/// several (`Frog Spider/5.1`), and so does a bare word before another; such names need the map.
fn last_product(segment: &str) -> Option<&str> {
    let mut last = None;
    let mut after_bare = false;
    let mut words = segment.split_ascii_whitespace().peekable();
    while let Some(word) = words.next() {
        let Some(product) = Product::in_word(word) else {
            after_bare = false;
            continue;
        };
        let stands_alone = words.peek().is_none_or(|next| is_version(next) || is_contact(next));
        if !after_bare && product.names_somebody() && (product.has_version || (product.is_bare && stands_alone)) {
            last = Some(product.name);
        }
        after_bare = product.is_bare && !is_browser(product.name);
    }
    last
}

/// What ends a piece of the string.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Open,
    Close,
    Segment,
}

/// The string cut at brackets, semicolons and commas; each piece trimmed, with what ended it. One pass, no recursion:
/// how deep comments nest costs nothing.
fn pieces(user_agent: &str) -> impl Iterator<Item = (&str, End)> {
    let mut rest = Some(user_agent);
    iter::from_fn(move || {
        let text = rest?;
        let Some(at) = text.find(['(', ')', ';', ',']) else {
            rest = None;
            return Some((text.trim(), End::Segment));
        };
        rest = Some(&text[at + 1..]);
        let end = match text.as_bytes()[at] {
            b'(' => End::Open,
            b')' => End::Close,
            _ => End::Segment,
        };
        Some((text[..at].trim(), end))
    })
}

/// A name with what stands behind it.
#[derive(Clone, Copy)]
struct Product<'a> {
    name: &'a str,
    /// Followed by `/` and a number.
    has_version: bool,
    /// The word is the name and nothing else (a version glued to it apart).
    is_bare: bool,
}

impl<'a> Product<'a> {
    /// `heritrix/3.2.0 +http://…`, `archive.org_bot +http://…`, `FooBot 1.0`; not `Yahoo! Slurp` and other names of
    /// several words.
    fn in_segment(segment: &'a str) -> Option<Product<'a>> {
        let mut words = segment.split_ascii_whitespace();
        let product = Product::in_word(words.next()?)?;
        let alone = words.find(|word| !is_version(word)).is_none_or(is_contact);
        (!product.is_bare || alone).then_some(product)
    }

    fn in_word(word: &'a str) -> Option<Product<'a>> {
        if is_contact(word) || !word.starts_with(|first: char| first.is_ascii_alphanumeric()) {
            return None;
        }
        let end = word.find(|c: char| !c.is_ascii_alphanumeric() && !"._-".contains(c)).unwrap_or(word.len());
        let (name, behind) = word.split_at(end);
        let name = without_glued_version(name);
        let version = behind.strip_prefix('/');
        if !name.bytes().any(|byte| byte.is_ascii_alphabetic()) || (version.is_none() && !behind.is_empty()) {
            return None;
        }
        Some(Product { name, has_version: version.is_some_and(is_version), is_bare: version.is_none() })
    }

    /// No browser, no platform, no language tag: what a comment is full of besides.
    fn names_somebody(&self) -> bool {
        !is_browser(self.name) && !is_platform(self.name) && !is_language(self.name)
    }
}

/// `FooBot-1.0`, `FooBot1.0` and `FooBot_v1.0` are `FooBot`. A number without a dot belongs to the name: `MJ12bot`,
/// `ltx71`, `bot-2`.
fn without_glued_version(name: &str) -> &str {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    let number = name[stem.len()..].trim_start_matches('.');
    if !number.contains('.') {
        return name.trim_end_matches('.');
    }
    let bare = stem.strip_suffix(['v', 'V']).filter(|bare| bare.ends_with(['-', '_', '.'])).unwrap_or(stem);
    bare.trim_end_matches(['-', '_', '.'])
}

fn is_version(word: &str) -> bool {
    word.strip_prefix(['v', 'V']).unwrap_or(word).starts_with(|first: char| first.is_ascii_digit())
}

/// A URL or an e-mail address, with or without the `+` in front: often of another bot, so no name is read from it.
fn is_contact(word: &str) -> bool {
    word.starts_with('+')
        || word.starts_with("www.")
        || word.contains("://")
        || word.contains('@')
        || word.starts_with("mailto:")
}

fn is_browser(name: &str) -> bool {
    BROWSERS.iter().any(|browser| name.eq_ignore_ascii_case(browser))
}

/// With or without a number: `InfoPath.3`, `SLCC2`, `Win64`.
fn is_platform(name: &str) -> bool {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    PLATFORMS.iter().any(|platform| name.eq_ignore_ascii_case(platform) || stem.eq_ignore_ascii_case(platform))
}

/// `U`, `en`, `en-US`.
fn is_language(name: &str) -> bool {
    let is_alphabetic = |part: &str| part.bytes().all(|byte| byte.is_ascii_alphabetic());
    match name.split_once('-') {
        Some((language, region)) => {
            language.len() == 2 && region.len() == 2 && is_alphabetic(language) && is_alphabetic(region)
        }
        None => name.len() <= 2 && is_alphabetic(name),
    }
}

/// Browsers, their engines, and what drives them: a site cannot address a bot by these.
#[rustfmt::skip]
const BROWSERS: &[&str] = &[
    "Mozilla", "AppleWebKit", "Gecko", "KHTML", "Chrome", "HeadlessChrome", "Chromium", "Safari", "Version", "Mobile",
    "Firefox", "Edg", "Edge", "EdgA", "EdgiOS", "OPR", "Opera", "Presto", "Trident", "MSIE", "Ubuntu", "Puppeteer",
    "Playwright", "Electron", "PhantomJS", "CriOS", "FxiOS", "SamsungBrowser", "UCBrowser", "YaBrowser", "Vivaldi",
    "Silk", "GSA", "Konqueror", "Epiphany", "SeaMonkey", "Iceweasel",
];

/// First words of what a browser says of its machine, old Internet Explorers' additions included.
#[rustfmt::skip]
const PLATFORMS: &[&str] = &[
    "Windows", "Linux", "X11", "Macintosh", "Android", "iPhone", "iPad", "iPod", "CrOS", "Wayland", "FreeBSD",
    "OpenBSD", "Fedora", "Debian", "Win", "WOW", "x64", "x86_64", "Intel", "PPC", "rv", "Build", "Scale", "Tablet",
    "Touch", "SV", "SLCC", "InfoPath", "Zune", "GTB", "chromeframe",
];

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::clock;

    /// The strings of real crawlers and browsers. Those marked `map` bear names of several words: no token may be told
    /// from them.
    #[test]
    fn real_user_agents() {
        let table = include_str!("../../tests/fixtures/user-agents.jsonl");
        for line in table.lines() {
            let case: serde_json::Value = serde_json::from_str(line).unwrap();
            let expected = if case["rule"] == "map" { None } else { case["token"].as_str() };
            let user_agent = case["user_agent"].as_str().unwrap();
            assert_eq!(token_in_user_agent(user_agent), expected, "{user_agent}");
        }
    }

    #[test]
    fn further_user_agents() {
        let cases = [
            ("", None, "nothing"),
            ("  NimbuBot/1.0  ", Some("NimbuBot"), "blanks around"),
            ("NimbuBot 1.0", Some("NimbuBot"), "a version behind a blank"),
            ("NimbuBot-1.0", Some("NimbuBot"), "a glued version"),
            ("NimbuBot_v2.1 (x)", Some("NimbuBot"), "a glued version with its letter"),
            ("Barkrowler0.9", Some("Barkrowler"), "a version glued without a mark"),
            ("bot-2", Some("bot-2"), "a number without a dot is of the name"),
            ("libwww-perl/6.08", Some("libwww-perl"), "a library is a token"),
            ("1.0/2", None, "a name has a letter"),
            ("+http://bots.example/NimbuBot", None, "never in a URL"),
            ("nimbubot@bots.example", None, "never in an e-mail address"),
            ("Mozilla/5.0 (compatible; +http://a.example/FooBot/1.0)", None, "never in a URL behind `compatible`"),
            (
                "Mozilla/5.0 (compatible; Exabot 3.0; +http://exabot.com)",
                Some("Exabot"),
                "a version behind a blank, in a comment",
            ),
            ("Mozilla/5.0 (COMPATIBLE ;NimbuBot )", Some("NimbuBot"), "case and blanks"),
            ("Mozilla/5.0 (compatible; Windows NT 6.1; NimbuBot/1)", Some("NimbuBot"), "platforms are passed over"),
            (
                "Mozilla/5.0 (compatible; Foo (a; b/1); NimbuBot)",
                Some("Foo"),
                "a nested comment does not end the outer",
            ),
            (
                "Mozilla/5.0 (compatible (Foo/1); NimbuBot)",
                Some("NimbuBot"),
                "a nested comment is no part of the outer",
            ),
            ("Mozilla/5.0 (compatible; NimbuBot/1", Some("NimbuBot"), "an open comment"),
            ("Mozilla/5.0 ) (compatible; NimbuBot/1)", Some("NimbuBot"), "a bracket too many"),
            (
                "Mozilla/4.0 (compatible; MSIE 7.0; Windows NT 6.0; WOW64; SLCC2; .NET CLR 2.0.5; InfoPath.3)",
                None,
                "an old browser",
            ),
            (
                "Mozilla/4.0 (compatible; MSIE or Firefox mutant; not on Windows server; Daumoa/4.0)",
                Some("Daumoa"),
                "a bot in disguise",
            ),
            (
                "Mozilla/5.0 (Windows NT 10.0; WOW64; Trident/7.0; rv:11.0) like Gecko",
                None,
                "the last Internet Explorer",
            ),
            (
                "Mozilla/5.0 (Linux; Android 9; CUBOT X19 Build/PPR1) Chrome/9 Mobile Safari/5",
                None,
                "a phone with bot in its name",
            ),
            (
                "Mozilla/5.0 (Linux; Android 9; CUBOT) Chrome/9 Mobile Safari/5",
                None,
                "a phone with nothing else in its name",
            ),
            ("Mozilla/5.0 (X11; Linux x86_64; nimbucrawler)", Some("nimbucrawler"), "a trade, in a comment"),
            ("Mozilla/5.0 (X11) Chrome/9 Safari/5 NimbuBot/1.0 Edg/9", Some("NimbuBot"), "among browsers at the end"),
            ("Mozilla/5.0 (X11) Chrome/9 Mobile NimbuBot/1.0", Some("NimbuBot"), "behind a bare browser word"),
            ("Mozilla/5.0 (X11) Chrome/9 My Frog Spider/1.0", None, "several words at the end"),
            (
                "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) CriOS/126 Mobile/15E148 Safari/604.1",
                None,
                "Chrome on iOS",
            ),
            ("Mozilla/5.0 (Windows; U; Windows NT 5.1; en-US; rv:1.9) Gecko/2009 Firefox/3.5", None, "an old Firefox"),
            ("Möbius/1.0", None, "a name outside ASCII is not cut short"),
        ];
        for (user_agent, token, shows) in cases {
            assert_eq!(token_in_user_agent(user_agent), token, "{shows}: {user_agent}");
        }
    }

    #[test]
    fn a_token_of_absurd_length_is_none() {
        assert_eq!(token_in_user_agent(&"a".repeat(10_000)), None);
    }

    /// Header blocks are limited to 64 KiB; these are as long.
    #[test]
    fn hostile_strings_cost_no_more_than_their_length() {
        let hostile = [
            "(",
            ")",
            "(;",
            "compatible;",
            "(compatible;",
            "Mozilla/5.0 ",
            "a ",
            "a/1 ",
            "1.",
            "a.1",
            "like Gecko ",
            "(a/",
            "+;",
        ];
        for pattern in hostile {
            let user_agent = format!("Mozilla/5.0 {}", pattern.repeat(65_536 / pattern.len()));
            let start = clock::now();
            token_in_user_agent(&user_agent);
            assert!(clock::now() - start < Duration::from_secs(1), "{pattern}");
        }
    }

    proptest! {
        #[test]
        fn any_string_gives_a_token_or_none(user_agent in "\\PC*") {
            check(&user_agent);
        }

        #[test]
        fn strings_of_the_usual_parts_give_a_token_or_none(
            parts in prop::collection::vec(
                prop::sample::select(PARTS),
                0..40,
            )
        ) {
            check(&parts.concat());
        }
    }

    const PARTS: &[&str] =
        &["Mozilla/5.0", "compatible", "(", ")", ";", ",", " ", "Foo", "/", "1.0", "-", "v", "+http://x/", "é", "@"];

    fn check(user_agent: &str) {
        if let Some(token) = token_in_user_agent(user_agent) {
            assert!(token.parse::<crate::policy::identity::Token>().is_ok(), "{user_agent}: {token}");
            assert!(!is_browser(token), "{user_agent}: {token}");
        }
    }
}
