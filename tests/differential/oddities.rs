//! What engines read differently, and how a question looks without it.

use std::fmt::Write as _;

use super::subjects::Subject;

macro_rules! oddities {
    ($($variant:ident $name:literal,)*) => {
        /// Something that can be taken out of a file and a path.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum Oddity { $($variant,)* }

        impl Oddity {
            /// The oddity that the table calls so.
            pub(crate) fn named(name: &str) -> Option<Oddity> {
                match name { $($name => Some(Oddity::$variant),)* _ => None }
            }
        }
    };
}

oddities! {
    RuleWithoutSlash "rule without slash",
    TwoSpellings "reserved character in two spellings",
    StarAndDollar "star or dollar as a character",
    UnreservedEscape "escape of an unreserved character",
    HexCase "lower-case escape",
    RawOctet "raw octet that a URI cannot hold",
    LonePercent "lone percent sign",
    CrawlDelay "Crawl-delay between names",
    OtherRecord "other record between names",
    OddName "name with more than a token",
    PartOfName "name that is part of another",
    RuleBeforeGroup "rule before any group",
    GroupWithoutRules "group without rules",
    NameRepeated "bot named in several groups",
    Misspelled "misspelled field or missing colon",
    EmptyRule "empty rule",
    EmptyName "empty name",
    Query "query string",
    EmptyQuery "empty query",
    RobotsTxt "path of robots.txt itself",
    Starred "star or end anchor in a rule",
    FileOrder "order of rules",
    DotSegment "dot segment",
    TwoSlashes "two slashes at the beginning",
    LineEnd "unusual line end",
    Blank "empty line or comment",
    Long "very long file",
}

/// The subject without all these oddities.
pub(crate) fn without(oddities: &[Oddity], subject: &Subject) -> Subject {
    oddities.iter().fold(subject.clone(), |subject, oddity| oddity.out_of(subject))
}

const MISSPELLED: [&str; 9] = [
    "dissallow",
    "dissalow",
    "disalow",
    "diasllow",
    "disallaw",
    "useragent",
    "user agent",
    "crawldelay",
    "crawl delay",
];

impl Oddity {
    fn out_of(self, subject: Subject) -> Subject {
        match self {
            Oddity::RuleWithoutSlash => {
                rules(subject, |value| value.is_empty() || value.starts_with('/'), str::to_owned, str::to_owned)
            }
            Oddity::TwoSpellings => {
                let has = |text: &str| escapes(text).iter().any(|octet| b":@!'()+,;[]&=/?".contains(octet));
                let plain = |text: &str| text.replace(['[', ']'], "r");
                let out = |path: &str| {
                    replace_escapes(&plain(path), |octet| b":@!'()+,;[]&=/?".contains(&octet).then(|| "r".into()))
                };
                rules(subject, |value| !has(value), plain, out)
            }
            Oddity::StarAndDollar => {
                let inner = |value: &str| value.strip_suffix('$').unwrap_or(value).contains('$');
                let has = |value: &str| inner(value) || escapes(value).iter().any(|octet| b"*$".contains(octet));
                let out = |path: &str| {
                    replace_escapes(&path.replace(['*', '$'], "r"), |octet| b"*$".contains(&octet).then(|| "r".into()))
                };
                rules(subject, |value| !has(value), str::to_owned, out)
            }
            Oddity::UnreservedEscape => {
                let is_unreserved = |octet: u8| octet.is_ascii_alphanumeric() || b"-._~".contains(&octet);
                both(subject, |text| {
                    replace_escapes(text, |octet| is_unreserved(octet).then(|| char::from(octet).into()))
                })
            }
            Oddity::HexCase => both(subject, |text| replace_escapes(text, |octet| Some(format!("%{octet:02X}")))),
            Oddity::RawOctet => both(subject, |text| {
                text.bytes().fold(String::new(), |mut out, octet| {
                    let _ = match octet {
                        b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}' | 0..=b' ' | 0x7F.. => {
                            write!(out, "%{octet:02X}")
                        }
                        _ => write!(out, "{}", char::from(octet)),
                    };
                    out
                })
            }),
            Oddity::LonePercent => both(subject, |text| {
                let pieces: Vec<&str> = text.split('%').collect();
                let join = |out: String, piece: &&str| {
                    let is_escape = piece.len() >= 2 && piece.bytes().take(2).all(|octet| octet.is_ascii_hexdigit());
                    out + if is_escape { "%" } else { "" } + piece
                };
                pieces[1..].iter().fold(pieces[0].to_owned(), join)
            }),
            Oddity::CrawlDelay => lines(subject, |key, _, line| (!key.starts_with("crawl")).then(|| line.into())),
            Oddity::OtherRecord => lines(subject, |key, _, line| {
                let is_field =
                    matches!(key, "user-agent" | "allow" | "disallow" | "crawl-delay") || MISSPELLED.contains(&key);
                (is_field || !line.contains(':')).then(|| line.into())
            }),
            Oddity::OddName => lines(subject, |key, value, line| {
                let is_plain = value.is_empty() || value == "*" || is_token(value);
                Some(if key != "user-agent" || is_plain { line.into() } else { "User-agent: someone-odd".into() })
            }),
            Oddity::PartOfName => {
                let mut renamed = lines(subject, |key, value, line| {
                    Some(if key == "user-agent" && is_token(value) {
                        format!("User-agent: {}", name_of(value))
                    } else {
                        line.into()
                    })
                });
                for (token, _) in &mut renamed.asks {
                    if is_token(token) {
                        *token = name_of(token);
                    }
                }
                renamed
            }
            Oddity::RuleBeforeGroup => {
                let mut is_in_group = false;
                lines(subject, |key, _, line| {
                    is_in_group |= key == "user-agent";
                    is_in_group.then(|| line.into())
                })
            }
            Oddity::GroupWithoutRules => {
                let mut groups = groups(&subject);
                groups.iter_mut().for_each(|(_, rules)| rules.push(("disallow".into(), String::new())));
                Subject { body: written(&groups), ..subject }
            }
            Oddity::NameRepeated => merged(subject),
            Oddity::Misspelled => lines(subject, |key, _, line| {
                let is_right = line.trim().is_empty() || line.contains(':') && !MISSPELLED.contains(&key);
                is_right.then(|| line.into())
            }),
            Oddity::EmptyRule => {
                // Where it is the only rule it stays: without it the group's names would join the next group.
                let mut groups = groups(&subject);
                for (_, rules) in &mut groups {
                    if rules.iter().any(|(_, value)| !value.is_empty()) {
                        rules.retain(|(_, value)| !value.is_empty());
                    }
                }
                Subject { body: written(&groups), ..subject }
            }
            Oddity::EmptyName => {
                lines(subject, |key, value, line| (key != "user-agent" || !value.is_empty()).then(|| line.into()))
            }
            Oddity::Query => {
                rules(subject, |value| !value.contains('?'), str::to_owned, |path| before(path, '?').into())
            }
            Oddity::EmptyQuery => rules(subject, |_| true, str::to_owned, |path| path.trim_end_matches('?').into()),
            Oddity::RobotsTxt => rules(
                subject,
                |_| true,
                str::to_owned,
                |path| if path == "/robots.txt" { "/r".into() } else { path.into() },
            ),
            Oddity::Starred => rules(subject, |value| !value.contains(['*', '$']), str::to_owned, str::to_owned),
            Oddity::FileOrder => strongest_first(subject),
            Oddity::DotSegment => {
                rules(subject, |_| true, str::to_owned, |path| path.replace("/.", "/d").replace("/%2e", "/d"))
            }
            Oddity::TwoSlashes => {
                let out = |path: &str| format!("/{}", path.trim_start_matches('/'));
                rules(subject, |value| !value.starts_with("//"), str::to_owned, out)
            }
            Oddity::LineEnd => {
                let body = subject
                    .body
                    .replace(['\u{b}', '\u{c}', '\u{1c}', '\u{1d}', '\u{1e}', '\u{85}', '\u{2028}', '\u{2029}'], " ");
                Subject { body: body.replace('\r', "\n"), ..subject }
            }
            Oddity::Blank => lines(subject, |_, _, line| (!line.trim().is_empty()).then(|| line.into())),
            Oddity::Long => {
                let mut body = subject.body;
                if body.len() > 400_000 {
                    body.truncate(
                        body.char_indices().map(|(at, _)| at).take_while(|at| *at < 400_000).last().unwrap_or(0),
                    );
                    body.truncate(body.rfind('\n').unwrap_or(0));
                }
                Subject { body, ..subject }
            }
        }
    }
}

/// Each line by its field in lower case, value and text without comment; what is returned stays.
fn lines(subject: Subject, mut stays: impl FnMut(&str, &str, &str) -> Option<String>) -> Subject {
    let body = subject.body.split(['\n', '\r']).filter_map(|line| {
        let line = before(line, '#');
        let (key, value) = line.split_once(':').unwrap_or((line, ""));
        stays(&key.trim().to_ascii_lowercase(), value.trim(), line)
    });
    Subject { body: body.map(|line| line + "\n").collect(), ..subject }
}

/// Rules by their value, and paths.
fn rules(
    subject: Subject,
    stays: impl Fn(&str) -> bool,
    value_of: impl Fn(&str) -> String,
    path_of: impl Fn(&str) -> String,
) -> Subject {
    let mut subject = lines(subject, |key, value, line| match key {
        // A rule that goes leaves one behind that matches nothing, or names below would join those above.
        "allow" | "disallow" if !stays(value) => Some(format!("{key}: /nobody-asks-for-this")),
        "allow" | "disallow" => Some(format!("{key}: {}", value_of(value))),
        _ => Some(line.to_owned()),
    });
    for (_, path) in &mut subject.asks {
        *path = path_of(path);
    }
    subject
}

fn both(subject: Subject, out: impl Fn(&str) -> String) -> Subject {
    rules(subject, |_| true, &out, &out)
}

fn before(text: &str, end: char) -> &str {
    text.split(end).next().unwrap_or_default()
}

fn is_token(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|octet| octet.is_ascii_alphanumeric() || b"-._".contains(&octet))
}

/// A name of the same bot that is no part of any other: letters alone, all of the same length.
fn name_of(name: &str) -> String {
    let hash = name
        .to_ascii_lowercase()
        .bytes()
        .fold(0xCBF2_9CE4_8422_2325u64, |hash, octet| (hash ^ u64::from(octet)).wrapping_mul(0x100_0000_01B3));
    (0..13).map(|place| char::from(b'a' + (hash >> (5 * place) & 15) as u8)).collect()
}

fn escapes(text: &str) -> Vec<u8> {
    text.split('%').skip(1).filter_map(|piece| u8::from_str_radix(piece.get(..2)?, 16).ok()).collect()
}

fn replace_escapes(text: &str, with: impl Fn(u8) -> Option<String>) -> String {
    let mut pieces = text.split('%');
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(first, |out, piece| {
        let octet = piece.get(..2).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        match octet.and_then(|digits| with(u8::from_str_radix(digits, 16).ok()?)) {
            Some(replaced) => out + &replaced + &piece[2..],
            None => out + "%" + piece,
        }
    })
}

/// Names, and rules as (field, value).
type Group = (Vec<String>, Vec<(String, String)>);

/// What begins a group and ends its names is read as the RFC has it.
fn groups(subject: &Subject) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let _ = lines(subject.clone(), |key, value, _| {
        match (key, groups.last_mut()) {
            ("user-agent", Some((names, rules))) if rules.is_empty() => names.push(value.to_owned()),
            ("user-agent", _) => groups.push((vec![value.to_owned()], Vec::new())),
            ("allow" | "disallow", Some((_, rules))) => rules.push((key.to_owned(), value.to_owned())),
            _ => {}
        }
        None
    });
    groups
}

fn written(groups: &[Group]) -> String {
    let line = |key: &str, value: &str| format!("{key}: {value}\n");
    let group = |(names, rules): &Group| -> String {
        let names = names.iter().map(|name| line("User-agent", name));
        names.chain(rules.iter().map(|(key, value)| line(key, value))).chain(["\n".to_owned()]).collect()
    };
    groups.iter().map(group).collect()
}

/// One group for each name, with all of its rules.
fn merged(subject: Subject) -> Subject {
    let mut merged: Vec<Group> = Vec::new();
    for (names, rules) in groups(&subject) {
        for name in names {
            match merged.iter_mut().find(|(names, _)| names[0].eq_ignore_ascii_case(&name)) {
                Some((_, all)) => all.extend(rules.clone()),
                None => merged.push((vec![name], rules.clone())),
            }
        }
    }
    for (_, rules) in &mut merged {
        // A group must have a rule, or the next name would join it.
        rules.push(("disallow".into(), String::new()));
    }
    Subject { body: written(&merged), ..subject }
}

/// The rules of each group sorted, so that the first that matches is the one that decides.
fn strongest_first(subject: Subject) -> Subject {
    let mut groups = groups(&subject);
    for (_, rules) in &mut groups {
        rules.sort_by_key(|(key, value)| (std::cmp::Reverse(value.len()), key != "allow"));
    }
    Subject { body: written(&groups), ..subject }
}
