//! The rules of one bot, arranged so that a question looks at a few of twenty thousand.
//!
//! Nine rules in ten are a literal beginning. Sorted, all those that begin a path lie on one chain: from the last rule that is not greater
//! than the path, each linked to the longest rule that begins it. So one binary search and a few steps answer, longest first. Rules with a
//! star inside are filed under a piece of their text ([`super::grams`]). Both hold positions on the tape and nothing else: eight octets a
//! rule, about twelve with stars.
//!
//! A trie would save the binary search and cost several times the memory; hashing every beginning of the path costs more on long paths.

use std::borrow::Cow;
use std::cmp::{Ordering, Reverse};

use super::grams::Grams;
use super::normal::{Form, Normal, Side};
use super::parse::Size;
use super::path::Path;
use super::pattern::Found;
use super::tape::{self, STARRED, TWO_FORMS, Written, split_anchor};

/// The rules of one bot, compiled.
#[derive(Debug)]
pub(super) struct Index {
    first: Table,
    /// The second forms of those rules that have one.
    second: Option<Box<Table>>,
}

impl Index {
    /// Compiles what `rules` gives; it is asked twice if some have a second form.
    pub(super) fn new<'a, Rules: Iterator<Item = Written<'a>>>(tape: &'a [u8], rules: impl Fn() -> Rules) -> Index {
        let mut has_second = false;
        let first = Table::new(tape, rules().inspect(|rule| has_second |= rule.marks & TWO_FORMS != 0), Form::First);
        let second = has_second
            .then(|| Box::new(Table::new(tape, rules().filter(|rule| rule.marks & TWO_FORMS != 0), Form::Second)));
        Index { first, second }
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
    /// The sort key of each sixteenth of them, from the first on.
    guide: Box<[u64]>,
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
    fn new<'a>(tape: &'a [u8], rules: impl Iterator<Item = Written<'a>>, form: Form) -> Table {
        let mut starred = Vec::new();
        let mut beginnings = Vec::new();
        for rule in rules {
            if rule.marks & STARRED != 0 {
                starred.push(rule);
            } else {
                beginnings.push((sort_keys(&Literal::of(&rule, form).octets()), rule.at));
            }
        }
        let (beginnings, guide) = chained(tape, beginnings, form);
        Table { form, beginnings, guide, starred: Grams::new(&starred, form) }
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
        let mut place = self.place_of(tape, path);
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

    /// How many literals are not greater than `path`; the last of them is the head of its chain.
    fn place_of(&self, tape: &[u8], path: &[u8]) -> usize {
        let [key, _] = sort_keys(path);
        let begin = self.guide.partition_point(|other| *other < key);
        let end = begin + self.guide[begin..].partition_point(|other| *other == key);
        let begin = begin.saturating_sub(1) * GUIDED;
        let end = self.beginnings.len().min(end * GUIDED);
        begin
            + self.beginnings[begin..end].partition_point(|entry| {
                Literal::of(&tape::rule(tape, entry.rule), self.form).cmp_path(path) != Ordering::Greater
            })
    }

    fn memory_for(beginnings: u32, starred: u32) -> usize {
        let beginnings = beginnings as usize;
        beginnings * size_of::<Beginning>()
            + beginnings.div_ceil(GUIDED) * size_of::<u64>()
            + Grams::memory_for(starred as usize)
    }
}

/// Every so many literals there is one in the guide. Measured: it spares two thirds of the looks at the tape for half an octet a rule.
const GUIDED: usize = 16;

/// Sorts the rules by literal, keeps the strongest of equal ones, and links each to the next shorter one that begins it.
fn chained<'a>(tape: &'a [u8], mut rules: Vec<([u64; 2], u32)>, form: Form) -> (Box<[Beginning]>, Box<[u64]>) {
    let octets = |rule: &Written<'a>| Literal::of(rule, form).octets();
    // By number first, without a branch or a look at the text; then the few that this does not tell apart.
    rules.sort_unstable_by_key(|(keys, _)| u128::from(keys[0]) << 64 | u128::from(keys[1]));
    for equal in rules.chunk_by_mut(|one, other| one.0 == other.0) {
        equal.sort_unstable_by(|one, other| {
            let (one, other) = (tape::rule(tape, one.1), tape::rule(tape, other.1));
            octets(&one).cmp(&octets(&other)).then_with(|| in_run(&one).cmp(&in_run(&other)))
        });
    }

    let mut entries: Vec<Beginning> = Vec::with_capacity(rules.len());
    let mut guide = Vec::with_capacity(rules.len().div_ceil(GUIDED));
    let mut open: Vec<(Cow<'_, [u8]>, usize)> = Vec::new();
    let mut sorted = rules.iter().map(|(keys, at)| (keys[0], tape::rule(tape, *at))).peekable();
    while let Some((key, rule)) = sorted.next() {
        let literal = octets(&rule);
        // Of one literal and ending only the strongest, which is the last, can ever decide.
        if sorted.peek().is_some_and(|(next_key, next)| {
            *next_key == key && ending(next) == ending(&rule) && octets(next) == literal
        }) {
            continue;
        }
        while open.last().is_some_and(|(shorter, _)| !literal.starts_with(shorter)) {
            open.pop();
        }
        if entries.len().is_multiple_of(GUIDED) {
            guide.push(key);
        }
        entries.push(Beginning { rule: rule.at, next: open.last().map_or(0, |(_, place)| place + 1) as u32 });
        open.push((literal, entries.len() - 1));
    }
    entries.shrink_to_fit();
    (entries.into_boxed_slice(), guide.into_boxed_slice())
}

/// The order of rules with the same literal: by ending, then weakest first.
fn in_run(rule: &Written<'_>) -> (Option<u8>, bool, Reverse<u32>) {
    (ending(rule), rule.is_allow(), Reverse(rule.at))
}

fn ending(rule: &Written<'_>) -> Option<u8> {
    rule.value.last().copied().filter(|octet| matches!(octet, b'*' | b'$'))
}

/// The octets behind the first, which is `/` in all, as numbers: in the order of the literals, and most are told apart by them.
fn sort_keys(literal: &[u8]) -> [u64; 2] {
    let literal = literal.get(1..).unwrap_or_default();
    [literal, literal.get(8..).unwrap_or_default()].map(|octets| {
        let mut key = [0; 8];
        let len = octets.len().min(key.len());
        key[..len].copy_from_slice(&octets[..len]);
        u64::from_be_bytes(key)
    })
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

    fn octets(&self) -> Cow<'a, [u8]> {
        if self.is_plain { Cow::Borrowed(self.text) } else { Cow::Owned(self.iter().collect()) }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn held(table: &Table) -> usize {
        size_of_val(&*table.beginnings) + size_of_val(&*table.guide) + table.starred.held()
    }

    #[test]
    fn holds_no_more_than_was_said_beforehand() {
        for pattern in ["/{}", "/*{}$", "/%3a{}", "/*{}%3A", "/é{}*", "/a", "/*a*b"] {
            let mut written = Vec::new();
            let mut size = Size::default();
            for number in 0..300 {
                let value = pattern.replace("{}", &number.to_string()).into_bytes();
                let marks = tape::marks(false, &value, super::super::normal::holds(&value));
                tape::write_rule(&mut written, marks, &value, number);
                size += Size {
                    rules: 1,
                    starred: (marks & STARRED != 0).into(),
                    two_forms: (marks & TWO_FORMS != 0).into(),
                };
            }
            let index = Index::new(&written, || tape::rules(&written, 0, written.len() as u32));
            let second = index.second.as_ref().map_or(0, |second| size_of::<Table>() + held(second));
            assert!(held(&index.first) + second <= Index::memory_for(size), "{pattern}");
        }
    }
}
