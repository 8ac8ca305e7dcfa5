//! robots.txt as a library of its own: read once, asked often, and every answer with the line that gave it.
//!
//! RFC 9309 is short and real files are not, so most of what is here is about reading what is plainly meant without ever opening a site by
//! mistake. A verdict names the group and the rule with its line, since somebody will want to know why. `docs/robots.md` tells site owners
//! how each oddity is read; the cases are in `tests/fixtures/`.
//!
//! Pure: no clock, no files, no sockets, nothing of the proxy. In reading order: `line` (one line), `parse` (the file), `tape` (how it is kept),
//! `bots` (whose group), `normal` and `pattern` (one rule, one path), `index` and `grams` (one of twenty thousand rules). A file weighs about as
//! much parsed as it does as text, and a question costs a few comparisons, because tens of thousands of files are kept and one is asked
//! for every request.
//!
//! ```
//! use robots_proxy::robots::RobotsTxt;
//!
//! let robots = RobotsTxt::parse(b"User-agent: NimbuBot/2.0\nDisallow: /prices/\nAllow: /prices/today\n");
//! let verdict = robots.verdict("NimbuBot", b"/prices/2026?page=2");
//! assert!(!verdict.allow);
//! let (group, rule) = (verdict.group.unwrap(), verdict.rule.unwrap());
//! assert_eq!(format!("{group}, line {}: {rule}", rule.line), "NimbuBot/2.0, line 2: Disallow: /prices/");
//! ```

mod bots;
mod grams;
mod index;
mod line;
mod normal;
mod parse;
pub mod path;
mod pattern;
mod remark;
pub mod status;
mod tape;
mod verdict;

use std::sync::OnceLock;
use std::time::Duration;

use bots::{Bots, Key};
use index::Index;
use normal::Form;
use parse::{Parsed, ParsedGroup, Size};
use path::Path;
use pattern::Found;
use tape::{TWO_FORMS, Written};

pub use remark::{Remark, RemarkKind};
pub use verdict::{Group, Place, Rule, RuleKind, Verdict};

/// How much of a file is read: the 500 KiB that RFC 9309 §2.5 demands at least, and no more.
pub const MAX_BYTES: usize = 512_000;

/// Sets of fewer rules are read from beginning to end for each question. Measured: up to there an index saves nothing.
const WORTH_INDEXING: u32 = 8;

/// A robots.txt, parsed.
#[derive(Debug)]
pub struct RobotsTxt {
    tape: Box<[u8]>,
    groups: Box<[GroupAt]>,
    bots: Bots,
    /// Compiled when first asked: of hundreds of groups in a file, a bot asks one.
    indexes: Box<[OnceLock<Index>]>,
    /// Octets that all indexes hold when all are compiled, at most.
    indexes_memory: usize,
    sitemaps: String,
    remarks: Vec<Remark>,
    remarks_left_out: u32,
    is_truncated: bool,
}

/// Where a group is on the tape: names, then rules, up to the next group.
#[derive(Clone, Copy, Debug)]
struct GroupAt {
    names: u32,
    rules: u32,
    /// The group as a part of which its rules are asked; itself unless it only repeats the name of an earlier one.
    leader: u32,
    /// One more than the last group that it leads.
    until: u32,
    /// Of the set of rules that it leads; [`SCANNED`]: so few that they are not compiled.
    index: u32,
}

const SCANNED: u32 = u32::MAX;

impl RobotsTxt {
    /// Reads a robots.txt within [`MAX_BYTES`]. Anything parses; what cannot be used becomes [`RobotsTxt::remarks`].
    pub fn parse(body: &[u8]) -> RobotsTxt {
        RobotsTxt::parse_within(body, MAX_BYTES)
    }

    /// The same with another limit. Give at least one octet more than `max_bytes` of a longer file, so that the cut can be seen: a line that
    /// does not end within the limit is dropped, since a piece of a rule is another rule.
    pub fn parse_within(body: &[u8], max_bytes: usize) -> RobotsTxt {
        let Parsed { tape, groups, mut bots, sitemaps, remarks, remarks_left_out, is_truncated } =
            parse::parse(body, max_bytes);
        let leaders = bots.settle(&tape, groups.len());
        let sets = sets(&groups, &leaders);
        let mut indexes = Vec::new();
        let mut indexes_memory = 0;
        let groups = groups
            .iter()
            .zip(leaders)
            .enumerate()
            .map(|(place, (group, leader))| {
                let set = sets[place];
                let is_alone = set.until as usize <= place + 1;
                let mut index = SCANNED;
                if !is_alone || set.size.rules >= WORTH_INDEXING {
                    index = indexes.len() as u32;
                    indexes.push(OnceLock::new());
                    indexes_memory += Index::memory_for(set.size);
                }
                GroupAt { names: group.names, rules: group.rules, leader, until: set.until, index }
            })
            .collect();
        let indexes = indexes.into_boxed_slice();
        RobotsTxt { tape, groups, bots, indexes, indexes_memory, sitemaps, remarks, remarks_left_out, is_truncated }
    }

    /// May the bot `token` fetch `path`?
    ///
    /// `token` is one product token in any case, `*` for a bot without a name. `path` is the request target as sent, from its first `/`, with its
    /// query; resolving dot segments is the caller's second question ([`path::without_dot_segments`]).
    pub fn verdict(&self, token: &str, path: &[u8]) -> Verdict<'_> {
        let keys = self.bots.of(&self.tape, token);
        let Some(first) = keys.first() else { return Verdict { allow: true, group: None, rule: None } };
        let path = Path::new(path);
        let mut best = None;
        if !path.is_robots_txt() {
            for key in keys {
                self.strongest(key.group, &path, &mut best);
            }
        }
        let Some(found) = best else {
            return Verdict { allow: true, group: Some(self.group(first.name(), first.group)), rule: None };
        };
        let rule = tape::rule(&self.tape, found.at);
        Verdict { allow: rule.is_allow(), group: Some(self.group_of(&rule, keys)), rule: Some(Rule::of(&rule)) }
    }

    /// The group of a verdict that this file gave.
    ///
    /// # Panics
    /// Where another file gave it, perhaps.
    pub fn group_at(&self, place: Place) -> Group<'_> {
        Group::new(&self.tape[..place.end as usize], place.name, place.names)
    }

    /// The deciding rule of a verdict that this file gave, if a rule decided.
    ///
    /// # Panics
    /// Where another file gave it, perhaps.
    pub fn rule_at(&self, place: Place) -> Option<Rule<'_>> {
        place.rule.map(|at| Rule::of(&tape::rule(&self.tape, at)))
    }

    /// Every rule for the bot that matches the path, strongest first: the first one decides. For explanations; it looks at every rule.
    pub fn matching(&self, token: &str, path: &[u8]) -> Vec<(Group<'_>, Rule<'_>)> {
        let path = Path::new(path);
        if path.is_robots_txt() {
            return Vec::new();
        }
        let keys = self.bots.of(&self.tape, token);
        let mut matching: Vec<_> =
            keys.iter().flat_map(|key| self.rules_of(key.group)).filter(|rule| matches(rule, &path)).collect();
        matching.sort_by_key(|rule| std::cmp::Reverse(pattern::rank(rule)));
        matching.iter().map(|rule| (self.group_of(rule, keys), Rule::of(rule))).collect()
    }

    /// The rule that closes the whole site to the bot, if there is one and no other opens any of it again.
    pub fn closed_by(&self, token: &str) -> Option<(Group<'_>, Rule<'_>)> {
        let keys = self.bots.of(&self.tape, token);
        let rules = || keys.iter().flat_map(|key| self.rules_of(key.group));
        if rules().any(|rule| rule.is_allow()) {
            return None;
        }
        let is_everything = |value: &[u8]| value.strip_prefix(b"/").unwrap_or(value).iter().all(|&octet| octet == b'*');
        let closing = rules().find(|rule| !rule.value.is_empty() && is_everything(rule.value))?;
        Some((self.group_of(&closing, keys), Rule::of(&closing)))
    }

    /// Both delays at once: what [`RobotsTxt::crawl_delay`] and [`RobotsTxt::request_rate`] tell.
    pub fn delays(&self, token: &str) -> (Option<Duration>, Option<Duration>) {
        let delays = self.bots.delays(self.bots.of(&self.tape, token));
        (delays.crawl_delay, delays.request_rate)
    }

    /// How long the bot is asked to wait between two requests: the longest of all delays that are for it, in its own groups or, where it has
    /// none, in those for everyone. Zero is an answer.
    pub fn crawl_delay(&self, token: &str) -> Option<Duration> {
        self.delays(token).0
    }

    /// The same said by `Request-rate: 1/10s`, as the time for each request. The hours that may follow it are not looked at.
    pub fn request_rate(&self, token: &str) -> Option<Duration> {
        self.delays(token).1
    }

    /// The file was longer than the limit.
    pub fn is_truncated(&self) -> bool {
        self.is_truncated
    }

    /// Addresses of Sitemap lines, wherever they stand, in the order of the file.
    pub fn sitemaps(&self) -> impl Iterator<Item = &str> {
        self.sitemaps.lines()
    }

    /// What could not be used, in the order of the file; at most a hundred, see [`RobotsTxt::remarks_left_out`].
    pub fn remarks(&self) -> &[Remark] {
        &self.remarks
    }

    /// How many more remarks there would be.
    pub fn remarks_left_out(&self) -> u32 {
        self.remarks_left_out
    }

    /// Octets held, with the indexes as if all were compiled: the weight of a copy in a cache must not grow with the questions.
    pub fn memory(&self) -> usize {
        size_of::<RobotsTxt>()
            + self.tape.len()
            + size_of_val(&*self.groups)
            + self.bots.memory()
            + size_of_val(&*self.indexes)
            + self.indexes_memory
            + self.sitemaps.capacity()
            + self.remarks.capacity() * size_of::<Remark>()
    }

    /// The strongest rule that matches in the set that `leader` leads, if stronger than `best`.
    fn strongest(&self, leader: u32, path: &Path<'_>, best: &mut Option<Found>) {
        let index = self.groups[leader as usize].index;
        if index == SCANNED {
            self.rules_of(leader)
                .filter(|rule| matches(rule, path))
                .for_each(|rule| Found::new(&rule).or_stronger(best));
            return;
        }
        let index = self.indexes[index as usize].get_or_init(|| Index::new(&self.tape, || self.rules_of(leader)));
        index.strongest(&self.tape, path, best);
    }

    /// The rules of all groups that `leader` leads.
    fn rules_of(&self, leader: u32) -> impl Iterator<Item = Written<'_>> {
        let places = leader as usize..self.groups[leader as usize].until as usize;
        places.filter(move |place| self.groups[*place].leader == leader).flat_map(|place| {
            let end = self.groups.get(place + 1).map_or(self.tape.len() as u32, |next| next.names);
            tape::rules(&self.tape, self.groups[place].rules, end)
        })
    }

    /// The group that a rule stands in, by the name that fits the keys it was asked with.
    fn group_of(&self, rule: &Written<'_>, keys: &[Key]) -> Group<'_> {
        let place = self.groups.partition_point(|group| group.rules <= rule.at) - 1;
        let by_key = keys.iter().find(|key| key.group as usize == place).map(|key| key.name());
        let name = by_key.or_else(|| {
            let token = keys.first()?.text(&self.tape);
            let mut names = tape::names(&self.tape, self.groups[place].names, self.groups[place].rules);
            names.find(|named| bots::names(named.name, token)).map(|named| named.at)
        });
        self.group(name.unwrap_or(self.groups[place].names), place as u32)
    }

    fn group(&self, name: u32, place: u32) -> Group<'_> {
        let at = self.groups[place as usize];
        Group::new(&self.tape[..at.rules as usize], name, at.names)
    }
}

/// The groups that one group leads: the last of them, and how much is in them together.
#[derive(Clone, Copy, Default)]
struct Set {
    until: u32,
    size: Size,
}

fn sets(groups: &[ParsedGroup], leaders: &[u32]) -> Vec<Set> {
    let mut sets = vec![Set::default(); groups.len()];
    for ((group, leader), until) in groups.iter().zip(leaders).zip(1..) {
        let set = &mut sets[*leader as usize];
        set.until = until;
        set.size += group.size;
    }
    sets
}

/// Does the rule match the path in either form?
fn matches(rule: &Written<'_>, path: &Path<'_>) -> bool {
    pattern::matches(rule, Form::First, &path.first)
        || (path.second.is_some() || rule.marks & TWO_FORMS != 0)
            && pattern::matches(rule, Form::Second, path.second.as_deref().unwrap_or(&path.first))
}
