//! What a file says about one bot and one path, with the evidence: the group, the rule, the lines.
//!
//! Everything is borrowed from the parsed file and as written there, so that it can be shown beside the file. Octets that are not UTF-8
//! are `?` in names and U+FFFD in rules that are printed.

use std::borrow::Cow;
use std::fmt;

use super::tape::{self, Written};

/// The answer to "may this bot fetch this path?"
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict<'a> {
    /// It may.
    pub allow: bool,
    /// Where the deciding rule stands; the first group for the bot if no rule decided; `None` if no group is for it.
    pub group: Option<Group<'a>>,
    /// The deciding rule; `None` if no rule matches, which allows.
    pub rule: Option<Rule<'a>>,
}

impl Verdict<'_> {
    /// Where group and rule stand in their file; `None` if no group is for the bot.
    pub fn place(&self) -> Option<Place> {
        let group = self.group?;
        let (end, names, name) = (group.tape.len() as u32, group.names, group.name);
        Some(Place { end, names, name, rule: self.rule.map(|rule| rule.at) })
    }
}

/// Where the group and the rule of a verdict stand in their file: it outlives the verdict, for who may want the words later. The file
/// tells them: [`RobotsTxt::group_at`](super::RobotsTxt::group_at), [`RobotsTxt::rule_at`](super::RobotsTxt::rule_at).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub(super) end: u32,
    pub(super) names: u32,
    pub(super) name: u32,
    pub(super) rule: Option<u32>,
}

/// A group of rules, as seen by a bot that it is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Group<'a> {
    /// The tape up to the end of the group's names.
    tape: &'a [u8],
    names: u32,
    name: u32,
}

impl<'a> Group<'a> {
    pub(super) fn new(tape: &'a [u8], name: u32, names: u32) -> Group<'a> {
        Group { tape, names, name }
    }

    /// The name that speaks to the bot, as its `User-agent` line has it.
    pub fn as_str(&self) -> &'a str {
        text(tape::name(self.tape, self.name).name)
    }

    /// The line of that name, from 1.
    pub fn line(&self) -> u32 {
        tape::name(self.tape, self.name).line()
    }

    /// All names of the group with their lines: a rule is for each of them, also where Crawl-delay or empty lines stand between.
    pub fn user_agents(&self) -> impl Iterator<Item = (&'a str, u32)> + use<'a> {
        tape::names(self.tape, self.names, self.tape.len() as u32).map(|named| (text(named.name), named.line()))
    }
}

fn text(name: &[u8]) -> &str {
    std::str::from_utf8(name).unwrap_or_default()
}

impl fmt::Display for Group<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

impl fmt::Debug for Group<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Group({:?}, line {})", self.as_str(), self.line())
    }
}

/// One rule, as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule<'a> {
    /// Which of the two.
    pub kind: RuleKind,
    /// The pattern, without blanks and comment around it.
    pub value: &'a [u8],
    /// Its line, from 1.
    pub line: u32,
    at: u32,
}

/// Rules allow or disallow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleKind {
    /// `Allow:`
    Allow,
    /// `Disallow:`, however it was spelled.
    Disallow,
}

impl RuleKind {
    /// The field's name.
    pub fn as_str(self) -> &'static str {
        match self {
            RuleKind::Allow => "Allow",
            RuleKind::Disallow => "Disallow",
        }
    }
}

impl<'a> Rule<'a> {
    pub(super) fn of(written: &Written<'a>) -> Rule<'a> {
        let kind = if written.is_allow() { RuleKind::Allow } else { RuleKind::Disallow };
        Rule { kind, value: written.value, line: written.line(), at: written.at }
    }

    /// The pattern as text.
    pub fn value_lossy(&self) -> Cow<'a, str> {
        String::from_utf8_lossy(self.value)
    }
}

impl fmt::Display for Rule<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.kind.as_str(), self.value_lossy())
    }
}
