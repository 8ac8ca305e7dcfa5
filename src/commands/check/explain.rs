//! A decision as a compiler would explain it: the outcome, the place, the line, and notes.

use std::fmt::Write;

use super::Check;
use super::rules::Known;
use crate::policy::decision::Decision;
use crate::policy::reason::Reason;
use crate::policy::standing::{Effect, Standing};
use crate::robots::{Group, RobotsTxt, Rule, path};

/// The explanation of one decision, with its line end.
pub(super) fn decision(
    url: &str,
    options: &Check,
    path: &[u8],
    decision: &Decision,
    exception: Option<&str>,
    standing: &Standing,
) -> String {
    let agent = options.agent.as_str();
    let verdict = match decision.reason.allows() {
        true => "allowed",
        false if exception.is_some() => "would be refused",
        false => "refused",
    };
    let mut text = format!("{verdict}: {agent} {url}\n");
    match &standing.effect {
        Effect::Rules(robots) => by_rules(&mut text, options, path, decision, robots, &standing.evidence.robots_url),
        Effect::NoRules => note(&mut text, &format!("{} says that there are no rules", standing.evidence.robots_url)),
        Effect::DisallowAll(_) => {
            let failure = standing.failure.as_deref().unwrap_or("no answer");
            note(&mut text, &format!("{} cannot be read: {failure}", standing.evidence.robots_url));
        }
    }
    if let Some(reason) = exception {
        note(&mut text, &format!("exception: {reason}"));
    }
    if let Some(delay) = decision.crawl_delay {
        note(&mut text, &format!("crawl delay: {} s", delay.as_secs_f64()));
    }
    text
}

fn by_rules(text: &mut String, options: &Check, path: &[u8], decision: &Decision, robots: &RobotsTxt, place: &str) {
    if decision.reason == Reason::RobotsTxt {
        return note(text, "robots.txt itself may always be asked for");
    }
    let as_sent = robots.matching(&options.agent, path);
    let resolved = path::without_dot_segments(path).map(|resolved| robots.matching(&options.agent, &resolved));
    let deciding = |rules: &[(Group<'_>, Rule<'_>)]| {
        rules.first().is_some_and(|(_, rule)| Some(rule.line) == decision.rule().map(|rule| rule.line))
    };
    let by_resolved = resolved.filter(|rules| !deciding(&as_sent) && deciding(rules));
    let is_resolved = by_resolved.is_some();
    let matching = by_resolved.unwrap_or(as_sent);
    match matching.first() {
        Some((group, rule)) => show(text, group, rule, place),
        None => no_rule(text, options, robots, path, place),
    }
    if is_resolved {
        note(text, "the path was read as a server may read it, with its dot segments resolved");
    }
    let others = matching.len().saturating_sub(1);
    match options.all {
        true => list(text, &matching),
        false if others > 0 => {
            note(text, &format!("stronger than {others} other matching rule{} (--all lists them)", plural(others)))
        }
        false => {}
    }
}

/// The deciding line under the name of its group, with the value marked.
fn show(text: &mut String, group: &Group<'_>, rule: &Rule<'_>, place: &str) {
    let width = rule.line.max(group.line()).to_string().len();
    let field = format!("{}: ", rule.kind.as_str());
    let marks = "^".repeat(rule.value_lossy().chars().count().max(1));
    let _ = writeln!(text, "{:width$}--> {place}:{}", "", rule.line);
    let _ = writeln!(text, "{:width$} |", "");
    let mut above = 0;
    for (name, line) in group.user_agents() {
        let _ = writeln!(text, "{line:width$} | User-agent: {name}");
        above = line;
    }
    if rule.line > above + 1 {
        let _ = writeln!(text, "{:width$} | …", "");
    }
    let _ = writeln!(text, "{:width$} | {field}{}", rule.line, rule.value_lossy());
    let _ = writeln!(text, "{:width$} | {:2$}{marks}", "", "", field.len());
}

fn no_rule(text: &mut String, options: &Check, robots: &RobotsTxt, path: &[u8], place: &str) {
    match robots.verdict(&options.agent, path).group {
        Some(group) => {
            let _ = writeln!(text, " --> {place}:{}", group.line());
            note(text, &format!("no rule of the group for {group} matches, so it is allowed"));
        }
        None => {
            let _ = writeln!(text, " --> {place}");
            note(text, &format!("no group is for {}, so it is allowed", options.agent));
        }
    }
}

fn list(text: &mut String, matching: &[(Group<'_>, Rule<'_>)]) {
    note(text, &format!("{} matching rule{}, the strongest first:", matching.len(), plural(matching.len())));
    for (group, rule) in matching {
        let _ = writeln!(text, "     line {:4}  {rule}  (User-agent: {group})", rule.line);
    }
}

/// What is odd about a file, and its sitemaps; empty where there is nothing to tell.
pub(super) fn file(known: &Known) -> String {
    let (mut text, robots) = (String::new(), &known.standing.evidence.robots_url);
    if !known.notes.remarks.is_empty() {
        note(
            &mut text,
            &format!("{robots} has lines that were not used as written: {}", known.notes.remarks.join(", ")),
        );
    }
    let left_out = known.robots().map_or(0, RobotsTxt::remarks_left_out);
    if left_out > 0 {
        note(&mut text, &format!("and {left_out} more"));
    }
    if known.standing.evidence.truncated {
        note(&mut text, &format!("{robots} is longer than what is read of it"));
    }
    for sitemap in &known.notes.sitemaps {
        note(&mut text, &format!("sitemap: {sitemap}"));
    }
    text
}

fn note(text: &mut String, what: &str) {
    let _ = writeln!(text, "  = {what}");
}

fn plural(number: usize) -> &'static str {
    if number == 1 { "" } else { "s" }
}
