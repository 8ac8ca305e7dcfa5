//! Which groups speak to a bot: the names of all `User-agent` lines, sorted.
//!
//! A token names a bot as a whole (RFC 9309 §2.2.1), in any case: `bot` is not `Googlebot`, `Googlebot-News` not `Googlebot`. Files name
//! bots more freely than the grammar, with digits, versions and remarks, so a line `Foo/1.0` names Foo as well as `Foo/1.0`. Groups that
//! name one bot alone are one set of rules to it, however often the bot is named again.

use std::cmp::Ordering;
use std::ops::Range;
use std::time::Duration;

use super::tape;

/// No delay; also: no bot seen yet.
const NONE: u32 = u32::MAX;
/// More than one bot.
const SEVERAL: u32 = u32::MAX - 1;

/// The key of star groups.
const STAR: &[u8] = b"*";

#[derive(Debug, Default)]
pub(super) struct Bots {
    keys: Vec<Key>,
    /// The keys of star groups, which most questions end with.
    everyone: Range<usize>,
    delays: Vec<Delays>,
}

/// How slowly a bot is asked to go, by the two lines that can say so.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Delays {
    pub(super) crawl_delay: Option<Duration>,
    pub(super) request_rate: Option<Duration>,
}

impl Delays {
    /// The longer of each.
    pub(super) fn longest(self, other: Delays) -> Delays {
        Delays {
            crawl_delay: self.crawl_delay.max(other.crawl_delay),
            request_rate: self.request_rate.max(other.request_rate),
        }
    }
}

/// One spelling that finds a group. Kept small, as a file may be nothing but names, each with two of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    /// Where the line's name is on the tape, and in the lowest bit whether the key is the whole of it or its beginning.
    name: u32,
    /// The group, or the first of the groups whose rules it stands for.
    pub(super) group: u32,
    delay: u32,
}

impl Key {
    /// Where the line's name is on the tape.
    pub(super) fn name(&self) -> u32 {
        self.name >> 1
    }

    pub(super) fn text<'a>(&self, tape: &'a [u8]) -> &'a [u8] {
        let name = tape::name(tape, self.name()).name;
        if self.name & 1 == 1 { name } else { beginning(name) }
    }
}

impl Bots {
    /// Notes the name that is on the tape at `at`; is anybody named? A name that is not there `as_written`, since it was not UTF-8, is as a
    /// whole no token's, but what it begins with may be.
    pub(super) fn name(&mut self, tape: &[u8], at: u32, group: u32, as_written: bool) -> bool {
        let before = self.keys.len();
        let name = tape::name(tape, at).name;
        for key in keys(name).filter(|key| as_written || key.len() < name.len()) {
            let is_whole = u32::from(key.len() == name.len());
            self.keys.push(Key { name: at << 1 | is_whole, group, delay: NONE });
        }
        self.keys.len() > before
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// The first key of the last group, while the file is read.
    pub(super) fn first_key_of(&self, group: u32) -> usize {
        self.keys.partition_point(|key| key.group < group)
    }

    /// While the file is read: the delays of the keys in this range.
    pub(super) fn set_delays(&mut self, keys: Range<usize>, delays: Delays) {
        if delays != Delays::default() && !keys.is_empty() {
            for key in &mut self.keys[keys] {
                key.delay = self.delays.len() as u32;
            }
            self.delays.push(delays);
        }
    }

    /// Sorts the names and puts together what is the same to a bot. The result tells for each group of which other it is a part; itself
    /// for most.
    pub(super) fn settle(&mut self, tape: &[u8], groups: usize) -> Vec<u32> {
        let mut keys = std::mem::take(&mut self.keys);
        keys.sort_by(|one, other| compare(one.text(tape), other.text(tape)));
        let bots: Vec<&[Key]> =
            keys.chunk_by(|one, other| one.text(tape).eq_ignore_ascii_case(other.text(tape))).collect();
        let only = only_bots(&bots, groups);
        let mut leaders: Vec<u32> = (0..groups as u32).collect();
        for (bot, keys) in (0..).zip(bots) {
            let mut own = None;
            let mut last = None;
            for key in keys {
                let is_own = only[key.group as usize] == bot;
                let same = if is_own { own } else { last.filter(|last: &usize| self.keys[*last].group == key.group) };
                if let Some(same) = same {
                    leaders[key.group as usize] = self.keys[same].group;
                    self.keys[same].delay = self.longest(self.keys[same].delay, key.delay);
                    continue;
                }
                last = Some(self.keys.len());
                own = own.or(last.filter(|_| is_own));
                self.keys.push(*key);
            }
        }
        self.everyone = self.named(tape, STAR);
        self.keys.shrink_to_fit();
        self.delays.shrink_to_fit();
        leaders
    }

    fn longest(&mut self, one: u32, other: u32) -> u32 {
        match [one, other].map(|delays| self.delays.get(delays as usize).copied()) {
            [_, None] => one,
            [None, _] => other,
            [Some(delays), Some(others)] => {
                self.delays.push(delays.longest(others));
                self.delays.len() as u32 - 1
            }
        }
    }

    /// The keys of the groups that apply to a bot: its own, else those for everyone, else none.
    pub(super) fn of(&self, tape: &[u8], token: &str) -> &[Key] {
        let named = self.named(tape, token.as_bytes());
        if named.is_empty() { &self.keys[self.everyone.clone()] } else { &self.keys[named] }
    }

    fn named(&self, tape: &[u8], token: &[u8]) -> Range<usize> {
        let begin = self.keys.partition_point(|key| compare(key.text(tape), token) == Ordering::Less);
        let len = self.keys[begin..].iter().take_while(|key| key.text(tape).eq_ignore_ascii_case(token)).count();
        begin..begin + len
    }

    /// The longest delays that these keys have.
    pub(super) fn delays(&self, keys: &[Key]) -> Delays {
        let delays = keys.iter().filter_map(|key| self.delays.get(key.delay as usize));
        delays.fold(Delays::default(), |longest, delays| longest.longest(*delays))
    }

    /// Octets held.
    pub(super) fn memory(&self) -> usize {
        self.keys.capacity() * size_of::<Key>() + self.delays.capacity() * size_of::<Delays>()
    }
}

/// For each group the number of the only bot that it names, or [`SEVERAL`].
fn only_bots(bots: &[&[Key]], groups: usize) -> Vec<u32> {
    let mut only = vec![NONE; groups];
    for (bot, keys) in (0..).zip(bots) {
        for key in *keys {
            let only = &mut only[key.group as usize];
            *only = if *only == NONE || *only == bot { bot } else { SEVERAL };
        }
    }
    only
}

/// Does a `User-agent` line with this name speak to the bot `token`, `*` for everyone?
pub(super) fn names(name: &[u8], token: &[u8]) -> bool {
    keys(name).any(|key| key.eq_ignore_ascii_case(token))
}

/// What finds a name: the product token it begins with, and the whole of it where that is more. A star, also with a remark behind it, is
/// everyone; an empty name is nobody.
fn keys(name: &[u8]) -> impl Iterator<Item = &[u8]> {
    let beginning = beginning(name);
    let whole = if beginning == STAR || beginning.len() == name.len() { &[] } else { name };
    [beginning, whole].into_iter().filter(|key| !key.is_empty())
}

/// The product token that a name begins with; the star of everyone.
fn beginning(name: &[u8]) -> &[u8] {
    match name {
        [b'*'] | [b'*', b' ' | b'\t' | 0x0B | 0x0C, ..] => STAR,
        name => {
            let is_of_token = |octet: &&u8| octet.is_ascii_alphanumeric() || matches!(octet, b'-' | b'.' | b'_');
            &name[..name.iter().take_while(is_of_token).count()]
        }
    }
}

fn compare(one: &[u8], other: &[u8]) -> Ordering {
    let lower = |octet: &u8| octet.to_ascii_lowercase();
    one.iter().map(lower).cmp(other.iter().map(lower))
}
