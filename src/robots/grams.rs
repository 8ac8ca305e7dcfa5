//! Rules with stars, filed under the rarest three octets of their text.
//!
//! A rule with a star inside may match anywhere, so its beginning does not find it. But whatever it matches contains the pieces between its
//! stars: each rule is filed under the three octets of its pieces that the fewest other rules have, and a path asks for each three octets of
//! its own. Nearly all come back empty from a filter of a few bits, and the rules that are left are tried, each at most once.

use std::borrow::Cow;
use std::cmp::Reverse;

use super::normal::{Form, Normal, Side};
use super::pattern::{self, Found, rank};
use super::tape::{self, Written, split_anchor};

/// Stands behind a path and behind an anchored rule, so that the `$` is a part of what is looked up; no normal form holds it.
const END: u8 = 0;

/// At most so many drawers: the marks of those already opened fit on the stack.
const MAX_DRAWERS: usize = 4096;

/// Bits of the filter for each drawer. Measured: with 32, a path of 40 octets opens about one drawer in vain.
const FILTER_BITS: u32 = 32;

/// Fewer rules than this are tried one by one; looking up every three octets of a path costs more.
const WORTH_FILING: usize = 4;

#[derive(Debug, Default)]
pub(super) struct Grams {
    /// One bit for each fine hash of three octets under which something is filed.
    filter: Box<[u32]>,
    /// Where in `rules` each drawer begins; one more than there are drawers. Empty: nothing is filed.
    drawers: Box<[u32]>,
    /// Positions on the tape, drawer after drawer, the strongest rule of each first; at the end those that have no three octets.
    rules: Box<[u32]>,
}

impl Grams {
    pub(super) fn new(rules: &[Written<'_>], form: Form) -> Grams {
        let mut rules: Vec<_> = rules.iter().map(|rule| (rank(rule), rule)).collect();
        rules.sort_unstable_by_key(|(rank, _)| Reverse(*rank));
        let rules: Vec<&Written<'_>> = rules.into_iter().map(|(_, rule)| rule).collect();
        if rules.len() < WORTH_FILING {
            return Grams { rules: rules.iter().map(|rule| rule.at).collect(), ..Grams::default() };
        }

        let cabinet = Cabinet::for_rules(rules.len());
        let rarest = cabinet.rarest(&rules, form);
        let mut filter = vec![0; cabinet.drawers()].into_boxed_slice();
        let mut drawers = vec![0; cabinet.drawers() + 1].into_boxed_slice();
        for hash in rarest.iter().flatten() {
            filter[cabinet.drawer(*hash)] |= bit(*hash);
            drawers[cabinet.drawer(*hash) + 1] += 1;
        }
        for drawer in 1..drawers.len() {
            drawers[drawer] += drawers[drawer - 1];
        }
        // Rules without a gram come last, as if they were filed in a drawer behind the others.
        let mut next: Vec<u32> = drawers.to_vec();
        let mut filed = vec![0; rules.len()].into_boxed_slice();
        for (rule, hash) in rules.iter().zip(&rarest) {
            let place = &mut next[hash.map_or(cabinet.drawers(), |hash| cabinet.drawer(hash))];
            filed[*place as usize] = rule.at;
            *place += 1;
        }
        Grams { filter, drawers, rules: filed }
    }

    /// The strongest rule that matches `path`, if stronger than `best`.
    pub(super) fn strongest(
        &self,
        tape: &[u8],
        form: Form,
        path: &[u8],
        is_asked: impl Fn(&Written<'_>) -> bool,
        best: &mut Option<Found>,
    ) {
        let mut open = |drawer: &[u32]| {
            for at in drawer {
                let rule = tape::rule(tape, *at);
                // The rules of a drawer come strongest first.
                if best.is_some_and(|best| best.strength() > rule.strength()) {
                    return;
                }
                if is_asked(&rule) && pattern::matches(&rule, form, path) {
                    return Found::new(&rule).or_stronger(best);
                }
            }
        };
        let Some(cabinet) = Cabinet::of(self) else { return open(&self.rules) };
        let filed = self.drawers[cabinet.drawers()] as usize;
        open(&self.rules[filed..]);
        let mut opened = [0u64; MAX_DRAWERS / 64];
        for_each_gram(path, true, |hash| {
            let drawer = cabinet.drawer(hash);
            if self.filter[drawer] & bit(hash) == 0 || opened[drawer / 64] & 1 << (drawer % 64) != 0 {
                return;
            }
            opened[drawer / 64] |= 1 << (drawer % 64);
            open(&self.rules[self.drawers[drawer] as usize..self.drawers[drawer + 1] as usize]);
        });
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        size_of_val(&*self.filter) + size_of_val(&*self.drawers) + size_of_val(&*self.rules)
    }

    /// Octets that so many rules take.
    pub(super) fn memory_for(rules: usize) -> usize {
        let tables = if rules < WORTH_FILING { 0 } else { 2 * Cabinet::for_rules(rules).drawers() + 1 };
        (tables + rules) * size_of::<u32>()
    }
}

/// How three octets find their drawer: the upper bits of a hash, as many as there are drawers; the next five are their bit in the filter.
#[derive(Clone, Copy)]
struct Cabinet {
    bits: u32,
}

impl Cabinet {
    fn for_rules(rules: usize) -> Cabinet {
        Cabinet { bits: rules.next_power_of_two().min(MAX_DRAWERS).ilog2() }
    }

    fn of(grams: &Grams) -> Option<Cabinet> {
        (!grams.filter.is_empty()).then(|| Cabinet { bits: grams.filter.len().ilog2() })
    }

    fn drawers(self) -> usize {
        1 << self.bits
    }

    fn drawer(self, hash: u32) -> usize {
        (hash >> (32 - self.bits)) as usize
    }

    /// For each rule, the three octets that the fewest rules have; `None` where all pieces are shorter.
    fn rarest(self, rules: &[&Written<'_>], form: Form) -> Vec<Option<u32>> {
        let mut having = vec![0u32; self.drawers()];
        for rule in rules {
            for_each_rule_gram(rule, form, |hash| having[self.drawer(hash)] += 1);
        }
        let rarest = |rule: &&Written<'_>| {
            let mut rarest = None;
            for_each_rule_gram(rule, form, |hash| {
                let others = having[self.drawer(hash)];
                if rarest.is_none_or(|(fewest, _)| others < fewest) {
                    rarest = Some((others, hash));
                }
            });
            rarest.map(|(_, hash)| hash)
        };
        rules.iter().map(rarest).collect()
    }
}

fn bit(hash: u32) -> u32 {
    // The multiplication leaves its best bits on top; the drawers take up to twelve of them, these come right below.
    1 << (hash >> 15 & (FILTER_BITS - 1))
}

fn for_each_rule_gram(rule: &Written<'_>, form: Form, mut visit: impl FnMut(u32)) {
    let (text, is_anchored) = split_anchor(rule.value);
    let text = match rule.is_plain(form) {
        true => Cow::Borrowed(text),
        false => Cow::Owned(Normal::new(text, Side::Rule, form).collect()),
    };
    let mut pieces = text.rsplit(|octet| *octet == b'*');
    for_each_gram(pieces.next().unwrap_or_default(), is_anchored, &mut visit);
    pieces.for_each(|piece| for_each_gram(piece, false, &mut visit));
}

/// Hashes of each three octets that follow one another in `text`, the end counting as an octet if `with_end`.
fn for_each_gram(text: &[u8], with_end: bool, mut visit: impl FnMut(u32)) {
    let [first, second, rest @ ..] = text else { return };
    let mut gram = u32::from(*first) << 8 | u32::from(*second);
    let end: &[u8] = if with_end { &[END] } else { &[] };
    for octet in rest.iter().chain(end) {
        gram = (gram << 8 | u32::from(*octet)) & 0x00FF_FFFF;
        visit(gram.wrapping_mul(0x9E37_79B1));
    }
}
