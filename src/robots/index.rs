//! The rules of one bot, arranged so that a question looks at a few of twenty thousand.
//!
//! Nine rules in ten are a literal beginning. Sorted, all those that begin a path lie on one chain: from the last rule that is not greater
//! than the path, each linked to the longest rule that begins it. So one binary search and a few steps answer, longest first. Rules with a
//! star inside are filed under a piece of their text ([`super::grams`]). Both hold positions on the tape and nothing else: eight octets a
//! rule, about twelve with stars.
//!
//! A trie would save the binary search and cost several times the memory; hashing every beginning of the path costs more on long paths.

use std::cmp::{Ordering, Reverse};

use super::grams::Grams;
use super::normal::{Form, Normal, Side};
use super::parse::Size;
use super::path::Path;
use super::pattern::Found;
use super::tape::{self, TWO_FORMS, Written, has_inner_star, split_anchor};

/// The rules of one bot, compiled.
#[derive(Debug)]
pub(super) struct Index {
    first: Table,
    /// The second forms of those rules that have one.
    second: Option<Box<Table>>,
}

impl Index {
    pub(super) fn new<'a>(tape: &[u8], rules: impl Iterator<Item = Written<'a>> + Clone) -> Index {
        let with_two_forms = rules.clone().filter(|rule| rule.marks & TWO_FORMS != 0);
        let has_second = with_two_forms.clone().next().is_some();
        Index {
            second: has_second.then(|| Box::new(Table::new(tape, with_two_forms, Form::Second))),
            first: Table::new(tape, rules, Form::First),
        }
    }

    /// The strongest rule that matches, if stronger than `best`.
    ///
    /// Both forms of the path are asked about where they differ; a rule with one form is the same in both, so it takes part twice.
    pub(super) fn strongest(&self, tape: &[u8], path: &Path<'_>, best: &mut Option<Found>) {
        self.first.strongest(tape, &path.first, |_| true, best);
        let second_path = path.second.as_deref().unwrap_or(&path.first);
        if path.second.is_some() {
            self.first.strongest(tape, second_path, |rule| rule.marks & TWO_FORMS == 0, best);
        }
        if let Some(second) = &self.second {
            second.strongest(tape, second_path, |_| true, best);
        }
    }

    /// Octets that an index of so many rules holds at most, beside its own size.
    pub(super) fn memory_for(size: Size) -> usize {
        let first = Table::memory_for(size.rules - size.starred, size.starred);
        let second = match size.two_forms {
            0 => 0,
            rules => size_of::<Table>() + Table::memory_for(rules, 0).max(Table::memory_for(0, rules)),
        };
        first + second
    }
}

/// The rules in one normal form.
#[derive(Debug)]
struct Table {
    form: Form,
    /// Rules whose only `*` or `$` is their last octet, if they have any: sorted by their literal.
    beginnings: Box<[Beginning]>,
    /// Rules with a star before that.
    starred: Grams,
}

#[derive(Clone, Copy, Debug)]
struct Beginning {
    rule: u32,
    /// One more than the place of the next shorter rule that begins this one's literal (or equals it); 0: there is none.
    next: u32,
}

impl Table {
    fn new<'a>(tape: &[u8], rules: impl Iterator<Item = Written<'a>> + Clone, form: Form) -> Table {
        let starred = Grams::new(tape, rules.clone().filter(|rule| has_inner_star(rule.value)), form);
        let beginnings: Vec<_> = rules.filter(|rule| !has_inner_star(rule.value)).collect();
        Table { form, beginnings: chained(&beginnings, form), starred }
    }

    fn strongest(&self, tape: &[u8], path: &[u8], is_asked: impl Fn(&Written<'_>) -> bool, best: &mut Option<Found>) {
        self.strongest_beginning(tape, path, &is_asked, best);
        self.starred.strongest(tape, self.form, path, is_asked, best);
    }

    fn strongest_beginning(
        &self,
        tape: &[u8],
        path: &[u8],
        is_asked: impl Fn(&Written<'_>) -> bool,
        best: &mut Option<Found>,
    ) {
        let literal = |place: usize| Literal::of(&tape::rule(tape, self.beginnings[place].rule), self.form);
        let mut place = self.beginnings.partition_point(|entry| {
            Literal::of(&tape::rule(tape, entry.rule), self.form).cmp_path(path) != Ordering::Greater
        });
        if place == 0 {
            return;
        }
        // Every literal on the chain begins the one at its head, so those no longer than this begin the path as well.
        let shared = literal(place - 1).shared_with(path);
        while place > 0 {
            let entry = self.beginnings[place - 1];
            let rule = tape::rule(tape, entry.rule);
            let len = Literal::of(&rule, self.form).len();
            // What follows on the chain is no longer than this literal and one `*` or `$`.
            if self.form == Form::First && best.is_some_and(|best| best.strength() as usize > len + 1) {
                return;
            }
            let is_match = len <= shared && (!rule.value.ends_with(b"$") || len == path.len());
            if is_match && is_asked(&rule) {
                Found::new(&rule).or_stronger(best);
            }
            place = entry.next as usize;
        }
    }

    fn memory_for(beginnings: u32, starred: u32) -> usize {
        beginnings as usize * size_of::<Beginning>() + Grams::memory_for(starred as usize)
    }
}

/// Sorts the rules by literal, keeps the strongest of equal ones, and links each to the next shorter one that begins it.
fn chained(rules: &[Written<'_>], form: Form) -> Box<[Beginning]> {
    let odd: Vec<Vec<u8>> =
        rules.iter().filter(|rule| !rule.is_plain(form)).map(|rule| Literal::of(rule, form).iter().collect()).collect();
    let mut odd = odd.iter();
    let mut sorted: Vec<_> = rules
        .iter()
        .map(|rule| {
            let literal = if rule.is_plain(form) {
                Literal::of(rule, form).text
            } else {
                odd.next().map_or(&[][..], |text| text)
            };
            let ending = rule.value.last().filter(|octet| matches!(octet, b'*' | b'$'));
            (sort_key(literal), literal, ending, rule.is_allow(), Reverse(rule.at))
        })
        .collect();
    sorted.sort_unstable();
    // Of one literal and ending only the strongest, which is the last, can ever decide.
    let mut entries: Vec<Beginning> = Vec::with_capacity(sorted.len());
    let mut open: Vec<(&[u8], usize)> = Vec::new();
    let mut sorted = sorted.into_iter().peekable();
    while let Some((_, literal, ending, _, Reverse(rule))) = sorted.next() {
        if sorted.peek().is_some_and(|next| (next.1, next.2) == (literal, ending)) {
            continue;
        }
        while open.last().is_some_and(|(shorter, _)| !literal.starts_with(shorter)) {
            open.pop();
        }
        entries.push(Beginning { rule, next: open.last().map_or(0, |(_, place)| place + 1) as u32 });
        open.push((literal, entries.len() - 1));
    }
    entries.into_boxed_slice()
}

/// The first octets as one number, so that most comparisons while sorting need no look at the text.
fn sort_key(literal: &[u8]) -> u64 {
    let mut key = [0; 8];
    let len = literal.len().min(8);
    key[..len].copy_from_slice(&literal[..len]);
    u64::from_be_bytes(key)
}

/// What a rule without inner stars matches literally.
struct Literal<'a> {
    text: &'a [u8],
    is_plain: bool,
    form: Form,
}

impl<'a> Literal<'a> {
    fn of(rule: &Written<'a>, form: Form) -> Literal<'a> {
        let text = match rule.value {
            [text @ .., b'*'] => text,
            value => split_anchor(value).0,
        };
        Literal { text, is_plain: rule.is_plain(form), form }
    }

    fn iter(&self) -> Normal<'a> {
        Normal::new(self.text, Side::Rule, self.form)
    }

    fn len(&self) -> usize {
        if self.is_plain { self.text.len() } else { self.iter().count() }
    }

    fn cmp_path(&self, path: &[u8]) -> Ordering {
        if self.is_plain { self.text.cmp(path) } else { self.iter().cmp(path.iter().copied()) }
    }

    fn shared_with(&self, path: &[u8]) -> usize {
        let mut path = path.iter();
        if self.is_plain {
            self.text.iter().zip(path).take_while(|(one, other)| one == other).count()
        } else {
            self.iter().take_while(|octet| path.next() == Some(octet)).count()
        }
    }
}
