//! docs/clients.md: what came of the matrix, and the lines for each client.

use std::fmt::Write;

use regex::Regex;

use super::{CELLS, Cell, Outcome, Row, programs, root};

const INTRODUCTION: &str = include_str!("../../clients/introduction.md");

/// Fails where the page says something else than what came of the matrix. `GOLDEN=write cargo test` takes the new text; look at the
/// difference before it is committed.
pub(super) fn compare(rows: &[Row]) {
    let file = root().join("docs/clients.md");
    let page = page(rows);
    if std::env::var_os("GOLDEN").is_some() {
        std::fs::write(&file, &page).unwrap();
    }
    assert!(
        std::fs::read_to_string(&file).unwrap_or_default() == page,
        "docs/clients.md is not what came of it; GOLDEN=write takes this:\n{page}"
    );
}

fn page(rows: &[Row]) -> String {
    let mut page = format!("{INTRODUCTION}\n{}", table(rows));
    for row in rows {
        page.push_str(&section(row));
    }
    page
}

fn table(rows: &[Row]) -> String {
    let mut table = String::from(
        "| client | allowed | refused | paced | redirect | 20 MiB | by header | by User-Agent | by proxy user |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let anchor = row.client.name.to_lowercase().replace(' ', "-").replace('/', "");
        write!(table, "| [{}](#{anchor}) |", row.client.name).unwrap();
        for cell in CELLS {
            let word = match &row.outcomes[&cell] {
                Outcome::Yes => "yes",
                Outcome::IfAsked => "if asked",
                Outcome::Cannot => "no",
            };
            write!(table, " {word} |").unwrap();
        }
        table.push('\n');
    }
    table
}

fn section(row: &Row) -> String {
    let client = &row.client;
    let mut section = format!("\n## {}\n\n```sh\n", client.name);
    for line in client.setup.lines().chain(client.run.lines()) {
        writeln!(section, "{line}").unwrap();
    }
    section.push_str("```\n");
    if let Some(program) = &client.program {
        let text = std::fs::read_to_string(programs().join(program)).unwrap();
        let (name, language) = (program.rsplit('/').next().unwrap(), language(program));
        write!(section, "\n`{name}`:\n\n```{language}\n{text}```\n").unwrap();
    }
    write!(section, "\nA refused page:\n\n```text\n{}```\n", excerpt(&row.refusal)).unwrap();
    let mut notes = client.notes.clone();
    for (what, run) in
        [("A large file", &client.large), ("By User-Agent", &client.user_agent), ("By proxy user", &client.user)]
    {
        notes.extend(run.as_ref().map(|run| format!("{what}: `{run}`.")));
    }
    if let Outcome::IfAsked = row.outcomes[&Cell::User] {
        notes.push("The proxy's user is sent only to a proxy that asks for it (`auth.htpasswd`).".to_owned());
    }
    notes.extend(client.cannot.iter().map(|(cell, reason)| format!("Not {}: {reason}.", named(*cell))));
    if !notes.is_empty() {
        section.push('\n');
    }
    for note in notes {
        writeln!(section, "- {note}").unwrap();
    }
    section
}

fn named(cell: Cell) -> &'static str {
    match cell {
        Cell::Allowed => "an allowed page",
        Cell::Refused => "a refused page",
        Cell::Paced => "paced",
        Cell::Redirect => "through a redirect",
        Cell::Large => "a large download",
        Cell::Header => "by header",
        Cell::UserAgent => "by User-Agent",
        Cell::User => "by proxy user",
    }
}

fn language(program: &str) -> &'static str {
    match program.rsplit('.').next() {
        Some("py") => "python",
        Some("mjs") => "js",
        Some("go") => "go",
        Some("java") => "java",
        Some("rb") => "ruby",
        Some("rs") => "rust",
        _ => "text",
    }
}

/// The first lines that name the refusal, without what differs from run to run.
fn excerpt(refusal: &str) -> String {
    let time = Regex::new(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+Z)?").unwrap();
    let record = Regex::new(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}").unwrap();
    let told = refusal.lines().map(str::trim_end).filter(|line| line.contains("isallow")).take(2);
    told.map(|line| {
        let line = time.replace_all(line, "2026-11-30 12:00:00");
        format!("{}\n", record.replace_all(&line, "01a22d2b-916f-7032-be40-0ff8c97c7420"))
    })
    .collect()
}
