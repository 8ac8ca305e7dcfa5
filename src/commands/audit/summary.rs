//! `audit --summary`: what a log comes to, so that an operator can decide about enforcing.
//!
//! Counts by decision and reason; which bots, hosts and rules were refused, or would have been; how long requests waited, and how long
//! they would have. Tables are bounded: what finds no place in one is counted as "others".

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::io::{self, Write};

use serde_json::{Value, json};

use super::format::{duration, shown};
use super::record::Record;
use crate::policy::identity::Token;

/// Rows kept of each table while reading: about 20 MB. Rows come in the order in which they first appear.
const ROWS_MAX: usize = 100_000;

#[derive(Default)]
pub(super) struct Summary {
    records: u64,
    first: String,
    last: String,
    decisions: HashMap<String, u64>,
    /// Of those observed: not refused for an exception, and so not when enforcing either.
    excepted: u64,
    reasons: Table<String>,
    agents: Table<Token>,
    hosts: Table<String>,
    rules: Table<Rule>,
    waits: Waits,
    would_waits: Waits,
}

/// The rule that decided, of a site's robots.txt.
#[derive(PartialEq, Eq, Hash)]
struct Rule {
    robots_url: String,
    line: u32,
    rule: String,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, line {} of {}", self.rule, self.line, self.robots_url)
    }
}

/// What came of the requests of a bot, for a host, or by a rule.
#[derive(Clone, Copy, Default)]
struct Tally {
    requests: u64,
    /// Refused, or in observe mode and by an exception not refused.
    barred: u64,
    waits: Waits,
    would_waits: Waits,
}

#[derive(Clone, Copy, Default)]
struct Waits {
    requests: u64,
    sum_ms: u64,
    max_ms: u64,
}

impl Waits {
    fn add(&mut self, wait: Option<u64>) {
        if let Some(wait) = wait.filter(|wait| *wait > 0) {
            self.requests += 1;
            self.sum_ms = self.sum_ms.saturating_add(wait);
            self.max_ms = self.max_ms.max(wait);
        }
    }

    fn json(&self) -> Value {
        json!({"requests": self.requests, "sum_ms": self.sum_ms, "max_ms": self.max_ms})
    }

    /// The mean of those that waited.
    fn mean_ms(&self) -> u64 {
        self.sum_ms.checked_div(self.requests).unwrap_or_default()
    }
}

struct Table<K> {
    rows: HashMap<K, Tally>,
    /// Requests that found no row.
    others: u64,
}

impl<K> Default for Table<K> {
    fn default() -> Table<K> {
        Table { rows: HashMap::new(), others: 0 }
    }
}

impl<K: Eq + Hash + fmt::Display> Table<K> {
    fn add(&mut self, key: K, record: &Record<'_>) {
        if self.rows.len() >= ROWS_MAX && !self.rows.contains_key(&key) {
            self.others += 1;
            return;
        }
        let tally = self.rows.entry(key).or_default();
        tally.requests += 1;
        tally.barred += u64::from(is_barred(record));
        tally.waits.add(record.wait_ms);
        tally.would_waits.add(record.would_wait_ms);
    }

    /// The rows that matter most, those with the most barred requests first, then those with the longest waits.
    fn top(&self, number: usize) -> Vec<(&K, &Tally)> {
        let mut rows: Vec<_> = self.rows.iter().collect();
        let waiting = |tally: &Tally| tally.waits.sum_ms.saturating_add(tally.would_waits.sum_ms);
        let weight = |tally: &Tally| Reverse((tally.barred, waiting(tally), tally.requests));
        rows.sort_by_cached_key(|(key, tally)| (weight(tally), key.to_string()));
        rows.truncate(number);
        rows
    }
}

fn is_barred(record: &Record<'_>) -> bool {
    record.decision == "refuse" || record.decision == "observe"
}

impl Summary {
    pub(super) fn add(&mut self, record: &Record<'_>) {
        self.records += 1;
        if self.first.is_empty() || *record.time < *self.first {
            self.first = record.time.to_string();
        }
        if *record.time > *self.last {
            self.last = record.time.to_string();
        }
        *self.decisions.entry(record.decision.to_string()).or_default() += 1;
        self.excepted += u64::from(record.decision == "observe" && record.exception.is_some());
        self.reasons.add(record.reason.to_string(), record);
        // Names of bots are compared without regard to case, as everywhere.
        self.agents.add(record.agent().parse().unwrap_or_else(|_| Token::star()), record);
        self.hosts.add(record.host().to_owned(), record);
        if let (Some(rule), Some(line), Some(robots), true) =
            (&record.rule, record.line, &record.robots, is_barred(record))
        {
            self.rules.add(Rule { robots_url: robots.url.clone(), line, rule: rule.clone() }, record);
        }
        self.waits.add(record.wait_ms);
        self.would_waits.add(record.would_wait_ms);
    }

    fn decided(&self, decision: &str) -> u64 {
        self.decisions.get(decision).copied().unwrap_or_default()
    }

    /// For people.
    pub(super) fn print(&self, out: &mut impl Write, top: usize) -> io::Result<()> {
        if self.records == 0 {
            return writeln!(out, "no records");
        }
        writeln!(out, "{} records, {} to {}\n", self.records, self.first, self.last)?;
        for decision in ["allow", "refuse", "observe", "error"] {
            let number = self.decided(decision);
            if number > 0 {
                writeln!(out, "{number:>9}  {decision}")?;
            }
        }
        heading(out, "reason", "requests", &self.reasons, top)?;
        for (reason, tally) in self.reasons.top(top) {
            writeln!(out, "{:>9}  {}", tally.requests, shown(reason))?;
        }
        print_tallies(out, "bot", &self.agents, top)?;
        print_tallies(out, "host", &self.hosts, top)?;
        if !self.rules.rows.is_empty() {
            heading(out, "rule", "barred", &self.rules, top)?;
            for (rule, tally) in self.rules.top(top) {
                writeln!(out, "{:>9}  {}", tally.barred, shown(&rule.to_string()))?;
            }
        }
        writeln!(out)?;
        self.print_conclusion(out)
    }

    /// What enforcing costs, or would.
    fn print_conclusion(&self, out: &mut impl Write) -> io::Result<()> {
        let (refused, observed) = (self.decided("refuse"), self.decided("observe") - self.excepted);
        let share = |number: u64| format!("{:.1} %", number as f64 * 100.0 / self.records as f64);
        if refused > 0 {
            writeln!(out, "Refused: {}, {} of those recorded.", requests(refused), share(refused))?;
        }
        if self.waits.requests > 0 {
            let Waits { requests: number, sum_ms, max_ms } = self.waits;
            let mean = duration(self.waits.mean_ms());
            writeln!(
                out,
                "Waited: {}, {mean} on average, {} at most, {} in all.",
                requests(number),
                duration(max_ms),
                duration(sum_ms)
            )?;
        }
        if observed > 0 || self.would_waits.requests > 0 {
            let Waits { requests: number, sum_ms, max_ms } = self.would_waits;
            writeln!(
                out,
                "Enforcing would have refused {}, {} of those recorded,",
                requests(observed),
                share(observed)
            )?;
            let mean = duration(self.would_waits.mean_ms());
            writeln!(
                out,
                "and let {number} wait, {mean} on average, {} at most, {} in all.",
                duration(max_ms),
                duration(sum_ms)
            )?;
        }
        if self.excepted > 0 {
            writeln!(out, "Let through by an exception: {}.", requests(self.excepted))?;
        }
        if self.decided("allow") == 0 && self.decided("refuse") + self.decided("observe") > 0 {
            writeln!(
                out,
                "No allowed request is among these records: audit.record = \"all\" records them, with their waits."
            )?;
        }
        Ok(())
    }

    /// One object.
    pub(super) fn json(&self, top: usize, bad_lines: u64) -> Value {
        let rule = |(rule, tally): (&Rule, &Tally)| {
            let Rule { robots_url, line, rule } = rule;
            json!({"rule": rule, "line": line, "robots_url": robots_url, "barred": tally.barred})
        };
        let decisions =
            ["allow", "refuse", "observe", "error"].map(|name| (name.to_owned(), json!(self.decided(name))));
        json!({
            "records": self.records,
            "bad_lines": bad_lines,
            "first": (self.records > 0).then_some(&self.first),
            "last": (self.records > 0).then_some(&self.last),
            "decisions": Value::Object(decisions.into_iter().collect()),
            "excepted": self.excepted,
            "reasons": rows("reason", &self.reasons, top),
            "agents": rows("agent", &self.agents, top),
            "hosts": rows("host", &self.hosts, top),
            "rules": self.rules.top(top).into_iter().map(rule).collect::<Vec<_>>(),
            "waited": self.waits.json(),
            "would_wait": self.would_waits.json(),
        })
    }
}

fn rows<K: Eq + Hash + fmt::Display>(name: &str, table: &Table<K>, top: usize) -> Vec<Value> {
    let row = |(key, tally): (&K, &Tally)| {
        json!({
            name: key.to_string(),
            "requests": tally.requests,
            "barred": tally.barred,
            "waited": tally.waits.json(),
            "would_wait": tally.would_waits.json(),
        })
    };
    table.top(top).into_iter().map(row).collect()
}

fn print_tallies<K: Eq + Hash + fmt::Display>(
    out: &mut impl Write,
    name: &str,
    table: &Table<K>,
    top: usize,
) -> io::Result<()> {
    let columns = format!("{:>9} {:>9} {:>12} {:>12}", "barred", "requests", "waited", "would wait");
    heading(out, name, &columns, table, top)?;
    for (key, tally) in table.top(top) {
        let (waited, would) = (told(&tally.waits), told(&tally.would_waits));
        let key = shown(&key.to_string());
        writeln!(out, "{:>9} {:>9} {waited:>12} {would:>12}  {key}", tally.barred, tally.requests)?;
    }
    Ok(())
}

fn heading<K>(out: &mut impl Write, name: &str, columns: &str, table: &Table<K>, top: usize) -> io::Result<()> {
    let rows = table.rows.len();
    let more = if rows > top { format!(" ({top} of {rows}; --top shows more)") } else { String::new() };
    let others = if table.others > 0 { format!(", {} requests of others", table.others) } else { String::new() };
    writeln!(out, "\n{columns:>9}  {name}{more}{others}")
}

fn requests(number: u64) -> String {
    format!("{number} {}", if number == 1 { "request" } else { "requests" })
}

/// A sum of waits for a table.
fn told(waits: &Waits) -> String {
    if waits.requests == 0 { "-".into() } else { duration(waits.sum_ms) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(lines: &[Value]) -> Summary {
        let mut summary = Summary::default();
        for line in lines {
            let line = line.to_string();
            summary.add(&Record::read(line.as_bytes()).unwrap());
        }
        summary
    }

    fn record(decision: &str, agent: &str, url: &str, would_wait_ms: u64) -> Value {
        let time = format!("2026-11-30T15:13:0{}.000Z", url.len() % 10);
        let mut record = json!({"id": "", "time": time, "decision": decision, "reason": decision, "method": "GET", "agent": agent,
            "url": url, "robots": {"url": "http://a.test/robots.txt"}, "would_wait_ms": would_wait_ms});
        if decision == "observe" {
            (record["rule"], record["line"]) = (json!("Disallow: /p"), json!(2));
        }
        record
    }

    #[test]
    fn what_enforcing_would_cost_is_told_by_bot_host_and_rule() {
        let mut excepted = record("observe", "C", "http://c.test/p", 0);
        excepted["exception"] = json!("it is ours");
        let summary = summary(&[
            record("observe", "A", "http://a.test/p/1", 0),
            record("observe", "A", "http://a.test/p/22", 0),
            record("observe", "B", "http://b.test/p", 0),
            record("allow", "B", "http://a.test/", 2000),
            record("allow", "b", "http://a.test/", 4000),
            excepted,
        ]);
        let mut out = Vec::new();
        summary.print(&mut out, 1).unwrap();
        let told = String::from_utf8(out).unwrap();
        for part in [
            "6 records, 2026-11-30T15:13:04.000Z to 2026-11-30T15:13:08.000Z",
            "        2  allow\n        4  observe\n",
            "   barred  requests       waited   would wait  bot (1 of 3; --top shows more)\n        2         2            -            -  A\n",
            "        2         4            -        6.0 s  a.test\n",
            "        4  Disallow: /p, line 2 of http://a.test/robots.txt\n",
            "\nLet through by an exception: 1 request.\n",
            "Enforcing would have refused 3 requests, 50.0 % of those recorded,\nand let 2 wait, 3.0 s on average, 4.0 s at most, 6.0 s in all.\n",
        ] {
            assert!(told.contains(part), "{part:?} is missing:\n{told}");
        }
        let json = summary.json(10, 7);
        assert_eq!(json["would_wait"], json!({"requests": 2, "sum_ms": 6000, "max_ms": 4000}));
        assert_eq!((&json["agents"][0]["agent"], &json["agents"][0]["barred"]), (&json!("A"), &json!(2)));
        assert_eq!((&json["rules"][0]["line"], &json["decisions"]["observe"]), (&json!(2), &json!(4)));
        assert_eq!(json["bad_lines"], 7);
    }

    #[test]
    fn a_log_of_blocked_requests_says_that_the_others_are_not_in_it() {
        let mut out = Vec::new();
        summary(&[record("refuse", "A", "http://a.test/p", 0)]).print(&mut out, 10).unwrap();
        assert!(String::from_utf8(out).unwrap().contains("audit.record = \"all\""));
    }

    #[test]
    fn what_finds_no_row_is_counted() {
        let mut table = Table::default();
        for number in 0..ROWS_MAX + 3 {
            let line = record("refuse", "A", "http://a.test/p", 0).to_string();
            table.add(number, &Record::read(line.as_bytes()).unwrap());
        }
        assert_eq!((table.rows.len(), table.others), (ROWS_MAX, 3));
    }
}
