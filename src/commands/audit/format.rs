//! How records are printed: for people, as they are, as a table, or in the Elastic Common Schema.

use std::io::{self, Write};

use clap::ValueEnum;
use serde_json::{Value, json};

use super::record::Record;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// A line for people
    #[default]
    Text,
    /// The records as they are
    Json,
    /// A table with a head
    Csv,
    /// Elastic Common Schema, one JSON object a line
    Ecs,
}

/// Prints records in one format.
pub(super) struct Printer<W: Write> {
    out: Out<W>,
}

enum Out<W: Write> {
    Text(W),
    Json(W),
    Ecs(W),
    Csv(Box<csv::Writer<W>>),
}

impl<W: Write> Printer<W> {
    pub(super) fn new(format: Format, out: W) -> anyhow::Result<Printer<W>> {
        let out = match format {
            Format::Text => Out::Text(out),
            Format::Json => Out::Json(out),
            Format::Ecs => Out::Ecs(out),
            Format::Csv => {
                let mut table = csv::Writer::from_writer(out);
                table.write_record(COLUMNS.map(|(name, _)| name))?;
                Out::Csv(Box::new(table))
            }
        };
        Ok(Printer { out })
    }

    /// A record, and the line that it was read from.
    pub(super) fn print(&mut self, record: &Record<'_>, line: &[u8]) -> anyhow::Result<()> {
        match &mut self.out {
            Out::Text(out) => writeln!(out, "{}", text(record))?,
            Out::Json(out) => {
                out.write_all(line)?;
                out.write_all(b"\n")?;
            }
            Out::Ecs(out) => writeln!(out, "{}", ecs(record, &serde_json::from_slice(line)?))?,
            Out::Csv(table) => {
                let value: Value = serde_json::from_slice(line)?;
                table.write_record(COLUMNS.map(|(_, pointer)| cell(value.pointer(pointer))))?;
            }
        }
        Ok(())
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        match &mut self.out {
            Out::Text(out) | Out::Json(out) | Out::Ecs(out) => out.flush(),
            Out::Csv(table) => table.flush(),
        }
    }
}

/// `2026-11-30T15:13:00.250Z  refuse  NimbuBot  GET https://a.test/prices/ 403 disallowed  line 18 "Disallow: /prices/"`
fn text(record: &Record<'_>) -> String {
    let mut line = format!("{}  {:7}  {}", record.time, record.decision, shown(record.agent()));
    line += &format!("  {} {}", shown(&record.method), shown(&record.url));
    if let Some(status) = record.status {
        line += &format!(" {status}");
    }
    line += &format!("  {}", shown(&record.reason));
    match (&record.rule, record.line, &record.detail) {
        (Some(rule), Some(number), _) => line += &format!("  line {number} \"{}\"", shown(rule)),
        (_, _, Some(detail)) => line += &format!("  ({})", shown(detail)),
        _ => {}
    }
    if let Some(wait) = record.wait_ms.filter(|wait| *wait > 0) {
        line += &format!("  waited {}", duration(wait));
    }
    if let Some(wait) = record.would_wait_ms.filter(|wait| *wait > 0) {
        line += &format!("  would have waited {}", duration(wait));
    }
    line
}

/// What others wrote must not steer a terminal.
pub(super) fn shown(text: &str) -> String {
    let escaped = |letter: char| match letter.is_control() {
        true => letter.escape_default().to_string(),
        false => letter.to_string(),
    };
    text.chars().map(escaped).collect()
}

/// Milliseconds as people say them.
pub(super) fn duration(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    match seconds {
        0 => format!("{milliseconds} ms"),
        1..60 => format!("{seconds}.{} s", milliseconds % 1000 / 100),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..172_800 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} days {} h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// The columns of the table, and where a record has them.
const COLUMNS: [(&str, &str); 39] = [
    ("id", "/id"),
    ("time", "/time"),
    ("decision", "/decision"),
    ("reason", "/reason"),
    ("mode", "/mode"),
    ("agent", "/agent"),
    ("agent_source", "/agent_source"),
    ("agent_conflict", "/agent_conflict"),
    ("client", "/client"),
    ("user", "/user"),
    ("user_agent", "/user_agent"),
    ("method", "/method"),
    ("url", "/url"),
    ("dest", "/dest"),
    ("group", "/group"),
    ("rule", "/rule"),
    ("line", "/line"),
    ("robots_url", "/robots/url"),
    ("robots_final_url", "/robots/final_url"),
    ("robots_status", "/robots/status"),
    ("robots_fetched_at", "/robots/fetched_at"),
    ("robots_sha256", "/robots/sha256"),
    ("robots_stale", "/robots/stale"),
    ("robots_truncated", "/robots/truncated"),
    ("robots_note", "/robots/note"),
    ("crawl_delay_s", "/crawl_delay_s"),
    ("capped", "/capped"),
    ("paced", "/paced"),
    ("exception", "/exception"),
    ("stripped", "/stripped"),
    ("via", "/via"),
    ("wait_ms", "/wait_ms"),
    ("would_wait_ms", "/would_wait_ms"),
    ("status", "/status"),
    ("bytes", "/bytes"),
    ("detail", "/detail"),
    ("duration_ms", "/duration_ms"),
    ("version", "/version"),
    ("config", "/config"),
];

fn cell(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(words)) => words.iter().map(|word| cell(Some(word))).collect::<Vec<_>>().join(" "),
        Some(other) => other.to_string(),
    }
}

/// The version of the schema whose fields these are.
const ECS_VERSION: &str = "8.17.0";

/// The field names of Elastic Common Schema; what it has no name for is under `labels`, whose values are words.
fn ecs(record: &Record<'_>, value: &Value) -> Value {
    let (kind, outcome) = match &*record.decision {
        "allow" => ("allowed", "success"),
        "observe" => ("info", "success"),
        "refuse" => ("denied", "failure"),
        _ => ("error", "failure"),
    };
    let mut ecs = json!({
        "@timestamp": record.time,
        "ecs": { "version": ECS_VERSION },
        "event": {
            "kind": "event",
            "category": ["web"],
            "type": ["access", kind],
            "module": "robots-proxy",
            "dataset": "robots-proxy.audit",
            "id": record.id,
            "action": record.decision,
            "outcome": outcome,
            "reason": record.reason,
            "duration": value["duration_ms"].as_u64().map(|milliseconds| milliseconds.saturating_mul(1_000_000)),
        },
        "http": {
            "request": { "method": record.method },
            "response": { "status_code": record.status, "body": { "bytes": value["bytes"] } },
        },
        "url": { "full": record.url, "domain": record.host() },
        "client": { "ip": value["client"] },
        "user": { "name": value["user"] },
        "user_agent": { "original": value["user_agent"] },
        "rule": { "name": record.rule },
        "message": record.detail,
        "labels": labels(value),
    });
    prune(&mut ecs);
    ecs
}

/// What Elastic Common Schema has no name for.
fn labels(record: &Value) -> Value {
    let label = |(name, pointer): &(&str, &str)| {
        let text = cell(record.pointer(pointer));
        let name = if name.starts_with("robots_") { (*name).to_owned() } else { format!("robots_proxy_{name}") };
        (!text.is_empty()).then_some((name, Value::String(text)))
    };
    const NAMED: [&str; 13] = [
        "id",
        "time",
        "decision",
        "reason",
        "client",
        "user",
        "user_agent",
        "method",
        "url",
        "rule",
        "status",
        "bytes",
        "detail",
    ];
    COLUMNS.iter().filter(|(name, _)| !NAMED.contains(name)).filter_map(label).collect::<serde_json::Map<_, _>>().into()
}

/// Leaves out what a record does not have.
fn prune(value: &mut Value) {
    if let Value::Object(members) = value {
        members.values_mut().for_each(prune);
        members.retain(|_, member| !member.is_null() && member.as_object().is_none_or(|object| !object.is_empty()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"id":"0198","time":"2026-11-30T15:13:00.250Z","decision":"refuse","reason":"disallowed","mode":"enforce","agent":"NimbuBot","client":"127.0.0.1","method":"GET","url":"https://a.test/prices/x?a,b","rule":"Disallow: /prices/","line":18,"robots":{"url":"https://a.test/robots.txt","status":200},"stripped":["x-original-url","x-rewrite-url"],"wait_ms":2500,"status":403,"bytes":12,"duration_ms":3}"#;

    fn printed(format: Format, line: &str) -> String {
        let mut out = Vec::new();
        let mut printer = Printer::new(format, &mut out).unwrap();
        printer.print(&Record::read(line.as_bytes()).unwrap(), line.as_bytes()).unwrap();
        printer.flush().unwrap();
        drop(printer);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_line_for_people_tells_the_rule_and_the_wait_and_steers_no_terminal() {
        assert_eq!(
            printed(Format::Text, LINE),
            "2026-11-30T15:13:00.250Z  refuse   NimbuBot  GET https://a.test/prices/x?a,b 403  disallowed  line 18 \"Disallow: /prices/\"  waited 2.5 s\n"
        );
        let evil = LINE.replace("https://a.test/prices", "\\u001b[2J\\u009b");
        assert!(printed(Format::Text, &evil).contains("GET \\u{1b}[2J\\u{9b}/x"), "{evil}");
    }

    #[test]
    fn json_is_the_record_as_it_is() {
        assert_eq!(printed(Format::Json, LINE), format!("{LINE}\n"));
    }

    #[test]
    fn a_table_has_a_head_and_quotes_what_it_must() {
        let table = printed(Format::Csv, LINE);
        let (head, row) = table.split_once('\n').unwrap();
        assert!(head.starts_with("id,time,decision,reason,mode,agent,"), "{head}");
        assert!(
            row.contains(",\"https://a.test/prices/x?a,b\",") && row.contains(",18,https://a.test/robots.txt,"),
            "{row}"
        );
        assert_eq!(head.split(',').count(), COLUMNS.len());
    }

    #[test]
    fn elastic_has_its_field_names_and_labels_for_the_rest() {
        let ecs: Value = serde_json::from_str(&printed(Format::Ecs, LINE)).unwrap();
        for (pointer, value) in [
            ("/@timestamp", json!("2026-11-30T15:13:00.250Z")),
            ("/event/action", json!("refuse")),
            ("/event/type/1", json!("denied")),
            ("/event/duration", json!(3_000_000)),
            ("/url/domain", json!("a.test")),
            ("/rule/name", json!("Disallow: /prices/")),
            ("/http/response/status_code", json!(403)),
            ("/labels/robots_proxy_line", json!("18")),
            ("/labels/robots_proxy_stripped", json!("x-original-url x-rewrite-url")),
            ("/labels/robots_url", json!("https://a.test/robots.txt")),
        ] {
            assert_eq!(ecs.pointer(pointer), Some(&value), "{pointer}");
        }
        assert!(ecs.get("user").is_none() && ecs.get("user_agent").is_none(), "{ecs}");
    }

    #[test]
    fn durations_are_as_people_say_them() {
        for (milliseconds, told) in [
            (0, "0 ms"),
            (999, "999 ms"),
            (2500, "2.5 s"),
            (61_000, "1 min 1 s"),
            (7_260_000, "2 h 1 min"),
            (180_000_000, "2 days 2 h"),
        ] {
            assert_eq!(duration(milliseconds), told);
        }
    }
}
