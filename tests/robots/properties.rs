//! Generated files and paths: the engine and the slow model must agree, and nothing may panic.

use proptest::collection::vec;
use proptest::prelude::*;
use robots_proxy::robots::path::without_dot_segments;
use robots_proxy::robots::{MAX_BYTES, RobotsTxt, RuleKind};

use super::model::Model;

/// Pieces of paths and patterns: few, so that they meet, and each with some trouble in it.
fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => prop::sample::select(&["/", "a", "b", "ab", "/a", "/ab", "x.php", "?", "=", "&"][..]).prop_map(String::from),
        3 => prop::sample::select(&["*", "$", "**", "*$", "$*"][..]).prop_map(String::from),
        3 => prop::sample::select(&["%", "%2", "%61", "%2F", "%2f", "%3A", "%3a", ":", "%3D", "%26", "%2B", "+", "%3F", "%24", "%2A"][..])
            .prop_map(String::from),
        1 => prop::sample::select(&["é", "%C3%A9", "%c3%a9", " ", "%20", "|", "%7C", "~", "%7E", "#", "\u{0}", "..", "%2e"][..])
            .prop_map(String::from),
    ]
}

fn path() -> impl Strategy<Value = String> {
    vec(piece(), 0..9).prop_map(|pieces| format!("/{}", pieces.concat()))
}

fn pattern() -> impl Strategy<Value = String> {
    prop_oneof![9 => path(), 2 => vec(piece(), 0..5).prop_map(|pieces| pieces.concat()), 1 => path().prop_map(|path| format!("*{path}"))]
}

fn name() -> impl Strategy<Value = String> {
    prop::sample::select(
        &["*", "* all", "foo", "Foo", "FOO/1.0", "Foo Bar", "bar", "ba", "bar-baz", "", "*foo", "1.x_y"][..],
    )
    .prop_map(String::from)
}

fn line() -> impl Strategy<Value = String> {
    let key = prop::sample::select(&["Disallow: ", "Disallow:", "Allow: ", "allow :", "disallow ", "Dissallow:"][..]);
    prop_oneof![
        12 => (key, pattern()).prop_map(|(key, pattern)| format!("{key}{pattern}")),
        4 => name().prop_map(|name| format!("User-agent: {name}")),
        1 => name().prop_map(|name| format!("useragent:{name}")),
        1 => prop::sample::select(&["1", "0.5", "10", "x", "", "2."][..]).prop_map(|delay| format!("Crawl-delay: {delay}")),
        1 => prop::sample::select(&["1/5", "2/1m", "3/10s 0600-0845", "1", "0/1"][..]).prop_map(|rate| format!("Request-rate: {rate}")),
        1 => prop::sample::select(&["", "# comment", "Sitemap: https://a.test/s.xml", "Host: x", "nonsense", "\u{c} "][..]).prop_map(String::from),
    ]
}

fn file() -> impl Strategy<Value = String> {
    let end = prop::sample::select(&["\n", "\n", "\r\n", "\r", "\n\n"][..]);
    (name(), vec((line(), end), 0..40)).prop_map(|(name, lines)| {
        lines.iter().fold(format!("User-agent: {name}\n"), |text, (line, end)| text + line + end)
    })
}

fn token() -> impl Strategy<Value = &'static str> {
    prop::sample::select(&["foo", "FOO", "bar", "ba", "*", "nobody", "Foo Bar", "bar-baz", "1.x_y", "foo/1.0"][..])
}

/// The engine and the model about one file.
pub(crate) fn agree(body: &[u8], max_bytes: usize, token: &str, paths: &[&[u8]]) {
    let robots = RobotsTxt::parse_within(body, max_bytes);
    let model = Model::read(body, max_bytes);
    assert_eq!(robots.crawl_delay(token), model.crawl_delay(token), "delay of {token}");
    assert_eq!(robots.request_rate(token), model.request_rate(token), "rate of {token}");
    for path in paths {
        let verdict = robots.verdict(token, path);
        let answer = model.answer(token, path);
        let rule = verdict.rule.map(|rule| (rule.kind == RuleKind::Allow, rule.value.to_vec(), rule.line));
        assert_eq!((verdict.allow, rule), (answer.allow, answer.rule), "{token} {}", path.escape_ascii());
        assert_eq!(verdict.group.is_some(), answer.has_group, "{token} {}", path.escape_ascii());
        assert_eq!(
            robots.matching(token, path).first().map(|(_, rule)| *rule),
            verdict.rule,
            "{}",
            path.escape_ascii()
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn engine_and_model_agree(file in file(), token in token(), paths in vec(path(), 1..8)) {
        agree(file.as_bytes(), MAX_BYTES, token, &paths.iter().map(String::as_bytes).collect::<Vec<_>>());
    }

    #[test]
    fn one_large_group_and_its_model_agree(patterns in vec((any::<bool>(), pattern()), 8..120), paths in vec(path(), 1..8)) {
        let mut file = String::from("User-agent: *\n");
        for (is_allow, pattern) in patterns {
            file += &format!("{}: {pattern}\n", if is_allow { "Allow" } else { "Disallow" });
        }
        agree(file.as_bytes(), MAX_BYTES, "x", &paths.iter().map(String::as_bytes).collect::<Vec<_>>());
    }

    #[test]
    fn a_cut_file_agrees_with_its_model(file in file(), max_bytes in 0usize..300, path in path()) {
        agree(file.as_bytes(), max_bytes, "foo", &[path.as_bytes()]);
    }

    #[test]
    fn any_octets_are_a_file_and_a_path(body in vec(any::<u8>(), 0..300), path in vec(any::<u8>(), 0..40)) {
        agree(&body, MAX_BYTES, "foo", &[&path]);
        let robots = RobotsTxt::parse(&body);
        prop_assert!(robots.remarks().len() <= 100);
        prop_assert!(robots.sitemaps().all(|address| address.to_ascii_lowercase().starts_with("http")));
    }

    #[test]
    fn resolving_dots_once_leaves_none(path in vec(prop::sample::select(&["/", ".", "..", "%2e", "%2E", "a", "?", "%2F"][..]), 0..12)) {
        let target = format!("/{}", path.concat());
        if let Some(resolved) = without_dot_segments(target.as_bytes()) {
            prop_assert!(resolved.starts_with(b"/"));
            prop_assert_eq!(without_dot_segments(&resolved), None);
        }
    }
}

#[test]
fn a_rule_stays_in_its_own_group_and_line_when_groups_merge() {
    let file = b"User-agent: a\nDisallow: /1\n\nUser-agent: b\nDisallow: /x\n\nUser-agent: A/2.0\nUser-agent: b\nDisallow: /2\n\nUser-agent: a\nDisallow: /3\n";
    let robots = RobotsTxt::parse(file);
    for (path, name, line, names) in
        [("/1", "a", 2, vec!["a"]), ("/2", "A/2.0", 9, vec!["A/2.0", "b"]), ("/3", "a", 12, vec!["a"])]
    {
        let verdict = robots.verdict("a", path.as_bytes());
        let (group, rule) = (verdict.group.unwrap(), verdict.rule.unwrap());
        assert_eq!((group.as_str(), rule.line), (name, line), "{path}");
        assert_eq!(group.user_agents().map(|(name, _)| name).collect::<Vec<_>>(), names, "{path}");
    }
    assert_eq!(robots.verdict("a", b"/x").group.map(|group| group.line()), Some(1), "no rule decides: the first group");
}

#[test]
fn both_sides_are_compared_in_the_same_form() {
    // One form has the colon escaped on one side, the other has `=` escaped on one side: neither matches.
    let file = b"User-agent: *\nDisallow: /:*%3D\n";
    let many = [&file[..], &b"Disallow: /x\n".repeat(20)].concat();
    for (path, allow) in [("/%3A?x%3D", true), ("/:?x%3D", false), ("/%3Ax%3D", false), ("/%3Ax=", false)] {
        assert_eq!(RobotsTxt::parse(file).verdict("x", path.as_bytes()).allow, allow, "{path}");
        assert_eq!(RobotsTxt::parse(&many).verdict("x", path.as_bytes()).allow, allow, "{path}, indexed");
        assert_eq!(Model::read(file, MAX_BYTES).answer("x", path.as_bytes()).allow, allow, "{path}, by the model");
    }
}

#[test]
fn a_path_without_its_slash_is_read_with_it() {
    let file = b"User-agent: z\nAllow: a\nDisallow: /a$\n";
    assert!(!RobotsTxt::parse(file).verdict("z", b"a").allow);
    agree(file, MAX_BYTES, "z", &[b"a", b"", b"*", b"?a"]);
}

#[test]
fn a_name_that_is_not_utf8_is_not_the_name_that_stands_for_it() {
    let file = b"User-agent: \x83\nDisallow: /\n\nUser-agent: Foo\x83\nDisallow: /foo\n";
    let robots = RobotsTxt::parse(file);
    assert!(robots.verdict("?", b"/").allow && robots.verdict("Foo?", b"/foo").allow);
    assert!(!robots.verdict("Foo", b"/foo").allow);
    for token in ["?", "Foo?", "Foo", "x"] {
        agree(file, MAX_BYTES, token, &[b"/", b"/foo"]);
    }
}

#[test]
fn a_parsed_file_is_shared_between_threads() {
    let robots = RobotsTxt::parse(&b"User-agent: *\nDisallow: /a/1\n".repeat(20));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert!(!robots.verdict("x", b"/a/1").allow));
        }
    });
}

#[test]
fn remarks_and_sitemaps_are_told_with_their_lines() {
    let file = b"Disallow: /early\nUser-agent: a\nDissallow: /x\nCrawl-delay: soon\nFrobnicate: 1\nContent-Signal: ai-train=no\nwhat is this\n\
        Disallow private\nUser-agent:\nSitemap: https://a.test/1.xml\nsitemap: /2.xml\nSITEMAP:HTTP://a.test/3.xml # third\n";
    let robots = RobotsTxt::parse(file);
    let remarks: Vec<String> = robots.remarks().iter().map(ToString::to_string).collect();
    assert_eq!(
        remarks,
        [
            "outside-group line 1",
            "misspelled-field line 3",
            "bad-crawl-delay line 4",
            "unknown-field line 5",
            "unused-field line 6",
            "unreadable line 7",
            "missing-colon line 8",
            "never-matches line 8",
            "empty-user-agent line 9",
            "bad-sitemap line 11",
        ]
    );
    assert_eq!(robots.sitemaps().collect::<Vec<_>>(), ["https://a.test/1.xml", "HTTP://a.test/3.xml"]);

    let many = RobotsTxt::parse(&b"?\n".repeat(150));
    assert_eq!((many.remarks().len(), many.remarks_left_out()), (100, 50));
}
