//! The robots engine once more, as slow and as obvious as it can be.
//!
//! It follows `docs/robots.md` sentence by sentence, keeps every group and every rule in vectors of strings, makes normal forms by building
//! texts, matches stars by trying everything, and compares all rules with all. What it and the engine do not agree on is a mistake in one of
//! them. Properties and fuzz targets both use it.

use std::time::Duration;

/// A robots.txt, read the slow way.
#[derive(Debug, Default)]
pub(crate) struct Model {
    groups: Vec<Group>,
}

#[derive(Debug, Default)]
struct Group {
    names: Vec<Vec<u8>>,
    /// Each with the number of names that stood above it.
    delays: Vec<(usize, Duration)>,
    rates: Vec<(usize, Duration)>,
    rules: Vec<Rule>,
    has_rule_line: bool,
}

#[derive(Clone, Debug)]
struct Rule {
    is_allow: bool,
    value: Vec<u8>,
    line: u32,
}

/// What the model says: allowed, and the deciding rule as kind, value and line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) allow: bool,
    pub(crate) rule: Option<(bool, Vec<u8>, u32)>,
    /// Is any group for the token?
    pub(crate) has_group: bool,
}

impl Model {
    pub(crate) fn read(body: &[u8], max_bytes: usize) -> Model {
        let mut model = Model::default();
        for (line, text) in (1..).zip(lines(&decode(cut(body, max_bytes)))) {
            let text = trim(text.split(|octet| *octet == b'#').next().unwrap_or_default());
            model.obey(text, line);
        }
        model
    }

    fn obey(&mut self, text: &[u8], line: u32) {
        let (key, value) = match text.iter().position(|octet| *octet == b':') {
            Some(colon) => (trim(&text[..colon]), trim(&text[colon + 1..])),
            None => {
                let words: Vec<&[u8]> =
                    text.split(|octet| matches!(octet, b' ' | b'\t')).filter(|word| !word.is_empty()).collect();
                let [key, value] = words[..] else { return };
                (key, trim(value))
            }
        };
        match String::from_utf8_lossy(key).to_ascii_lowercase().as_str() {
            "user-agent" | "useragent" | "user agent" => {
                if self.groups.last().is_none_or(|group| group.has_rule_line) {
                    self.groups.push(Group::default());
                }
                self.groups.last_mut().expect("one was just opened").names.push(value.to_vec());
            }
            key @ ("allow" | "disallow" | "dissallow" | "dissalow" | "disalow" | "diasllow" | "disallaw") => {
                let Some(group) = self.groups.last_mut() else { return };
                group.has_rule_line = true;
                if !value.is_empty() {
                    group.rules.push(Rule { is_allow: key == "allow", value: value.to_vec(), line });
                }
            }
            "crawl-delay" | "crawldelay" | "crawl delay" => {
                if let (Some(group), Some(delay)) = (self.groups.last_mut(), seconds(value)) {
                    group.delays.push((group.names.len(), delay));
                }
            }
            "request-rate" => {
                if let (Some(group), Some(rate)) = (self.groups.last_mut(), seconds_per_request(value)) {
                    group.rates.push((group.names.len(), rate));
                }
            }
            _ => {}
        }
    }

    /// The groups for a token, with the place of the first name that fits.
    fn groups_for(&self, token: &str) -> Vec<(&Group, usize)> {
        let fitting = |token: &str| -> Vec<(&Group, usize)> {
            let fits = |name: &Vec<u8>| names(name, token.as_bytes());
            self.groups.iter().filter_map(|group| Some((group, group.names.iter().position(fits)?))).collect()
        };
        let named = fitting(token);
        if named.is_empty() { fitting("*") } else { named }
    }

    pub(crate) fn answer(&self, token: &str, path: &[u8]) -> Answer {
        let groups = self.groups_for(token);
        let has_group = !groups.is_empty();
        let path = path.split(|octet| *octet == b'#').next().unwrap_or_default();
        let path = if path.starts_with(b"/") { path.to_vec() } else { [b"/", path].concat() };
        let path = &path[..];
        if normal(path, false, false) == b"/robots.txt" {
            return Answer { allow: true, rule: None, has_group };
        }
        let mut best: Option<(usize, &Rule)> = None;
        for rule in groups.iter().flat_map(|(group, _)| &group.rules) {
            let matches_in = |second| matches(&rule_form(&rule.value, second), &normal(path, false, second));
            if !matches_in(false) && !matches_in(true) {
                continue;
            }
            let octets = rule_form(&rule.value, false).len();
            let is_stronger = match best {
                None => true,
                Some((most, other)) if octets == most => match (rule.is_allow, other.is_allow) {
                    (true, false) => true,
                    (false, true) => false,
                    _ => rule.line < other.line,
                },
                Some((most, _)) => octets > most,
            };
            if is_stronger {
                best = Some((octets, rule));
            }
        }
        Answer {
            allow: best.is_none_or(|(_, rule)| rule.is_allow),
            rule: best.map(|(_, rule)| (rule.is_allow, rule.value.clone(), rule.line)),
            has_group,
        }
    }

    pub(crate) fn crawl_delay(&self, token: &str) -> Option<Duration> {
        let groups = self.groups_for(token);
        groups
            .iter()
            .flat_map(|(group, name)| group.delays.iter().filter(move |(names, _)| names > name))
            .map(|(_, delay)| *delay)
            .max()
    }

    pub(crate) fn request_rate(&self, token: &str) -> Option<Duration> {
        let groups = self.groups_for(token);
        groups
            .iter()
            .flat_map(|(group, name)| group.rates.iter().filter(move |(names, _)| names > name))
            .map(|(_, delay)| *delay)
            .max()
    }
}

/// Whole lines within the limit.
fn cut(body: &[u8], max_bytes: usize) -> &[u8] {
    if body.len() <= max_bytes {
        return body;
    }
    let mut end = max_bytes;
    while end > 0 && !matches!(body[end], b'\r' | b'\n') && !matches!(body[end - 1], b'\r' | b'\n') {
        end -= 1;
    }
    &body[..end]
}

fn decode(body: &[u8]) -> Vec<u8> {
    let utf16 = |octets: &[u8], is_little: bool| {
        let unit = |pair: &[u8]| {
            if is_little {
                u16::from(pair[1]) << 8 | u16::from(pair[0])
            } else {
                u16::from(pair[0]) << 8 | u16::from(pair[1])
            }
        };
        let units: Vec<u16> = octets.chunks_exact(2).map(unit).collect();
        String::from_utf16_lossy(&units).into_bytes()
    };
    for mark in [&b"\xFF\xFE"[..], b"\xFE\xFF", b"\xEF\xBB\xBF", b"\xEF\xBB", b"\xEF"] {
        if let Some(rest) = body.strip_prefix(mark) {
            return match mark[0] {
                0xFF => utf16(rest, true),
                0xFE => utf16(rest, false),
                _ => rest.to_vec(),
            };
        }
    }
    body.to_vec()
}

fn lines(text: &[u8]) -> Vec<&[u8]> {
    let mut lines = Vec::new();
    let mut begin = 0;
    let mut at = 0;
    while at < text.len() {
        if matches!(text[at], b'\r' | b'\n') {
            lines.push(&text[begin..at]);
            if text[at..].starts_with(b"\r\n") {
                at += 1;
            }
            begin = at + 1;
        }
        at += 1;
    }
    lines.push(&text[begin..]);
    lines
}

fn trim(text: &[u8]) -> &[u8] {
    let is_blank = |octet: &u8| matches!(octet, b' ' | b'\t' | 0x0B | 0x0C);
    let begin = text.iter().take_while(|octet| is_blank(octet)).count();
    let end = text[begin..].iter().rev().take_while(|octet| is_blank(octet)).count();
    &text[begin..text.len() - end]
}

fn seconds(value: &[u8]) -> Option<Duration> {
    let text = std::str::from_utf8(value).ok()?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if whole.len() + fraction.len() == 0 || !(whole.to_owned() + fraction).bytes().all(|octet| octet.is_ascii_digit()) {
        return None;
    }
    let whole = if whole.is_empty() { 0 } else { whole.parse().unwrap_or(u64::MAX) };
    let nanos: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    Some(Duration::new(whole, nanos.parse().ok()?))
}

/// Whole requests in whole units of time, rounded up to milliseconds.
fn seconds_per_request(value: &[u8]) -> Option<Duration> {
    let (requests, time) = std::str::from_utf8(value).ok()?.split_whitespace().next()?.split_once('/')?;
    let unit = [('s', 1), ('m', 60), ('h', 3600)].into_iter().find(|(unit, _)| time.ends_with(*unit));
    let time: u64 = time.trim_end_matches(|unit: char| "smh".contains(unit)).parse().ok()?;
    let (millis, requests) = (time * 1000 * unit.map_or(1, |(_, seconds)| seconds), requests.parse::<u64>().ok()?);
    Some(Duration::from_millis(millis.checked_div(requests)? + u64::from(millis % requests > 0)))
}

/// Whole value equal, or else its leading token; a star with anything behind a blank is everyone; an empty one is nobody.
fn names(value: &[u8], token: &[u8]) -> bool {
    let is_star = value == b"*" || value.starts_with(b"*") && trim(&value[1..2]).is_empty();
    if is_star || token == b"*" {
        return is_star && token == b"*";
    }
    let leading = value.iter().take_while(|octet| octet.is_ascii_alphanumeric() || b"-._".contains(octet)).count();
    !token.is_empty() && (value.eq_ignore_ascii_case(token) || value[..leading].eq_ignore_ascii_case(token))
}

/// The normal form of a rule, with an end anchor as `$`.
fn rule_form(value: &[u8], second: bool) -> Vec<u8> {
    match value.strip_suffix(b"$") {
        Some(text) => [normal(text, true, second), b"$".to_vec()].concat(),
        None => normal(value, true, second),
    }
}

fn normal(text: &[u8], is_rule: bool, second: bool) -> Vec<u8> {
    let mut out = Vec::new();
    let mut in_query = false;
    let mut at = 0;
    while at < text.len() {
        let octet = text[at];
        let digits = text.get(at + 1..at + 3).and_then(|digits| std::str::from_utf8(digits).ok());
        let digits = digits.filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        if octet == b'%'
            && let Some(digits) = digits
        {
            let octet = u8::from_str_radix(digits, 16).expect("two hexadecimal digits");
            let twins = if in_query { ":@!'(),;[]/?" } else { ":@!'()+,;[]&=" };
            if octet.is_ascii_alphanumeric() || b"-._~".contains(&octet) || second && twins.as_bytes().contains(&octet)
            {
                out.push(octet);
            } else {
                out.extend(format!("%{octet:02X}").bytes());
            }
            at += 3;
            continue;
        }
        in_query |= octet == b'?';
        let stays = (0x21..0x7F).contains(&octet) && !b"\"<>\\^`{|}$*".contains(&octet) || is_rule && octet == b'*';
        if stays {
            out.push(octet);
        } else {
            out.extend(format!("%{octet:02X}").bytes());
        }
        at += 1;
    }
    out
}

/// Every way a pattern can match, tried place by place: `reached[n]` tells whether the pattern so far can end before octet `n`.
fn matches(pattern: &[u8], path: &[u8]) -> bool {
    let (pattern, is_anchored) = match pattern.strip_suffix(b"$") {
        Some(pattern) => (pattern, true),
        None => (pattern, false),
    };
    let mut reached = vec![false; path.len() + 1];
    reached[0] = true;
    for octet in pattern {
        if *octet == b'*' {
            for place in 1..=path.len() {
                reached[place] |= reached[place - 1];
            }
        } else {
            for place in (0..path.len()).rev() {
                reached[place + 1] = reached[place] && path[place] == *octet;
            }
            reached[0] = false;
        }
    }
    if is_anchored { reached[path.len()] } else { reached.contains(&true) }
}
