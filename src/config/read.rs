//! Reading a configuration file so that every mistake is told at once.
//!
//! serde stops at the first thing it does not like. So the document is read again and again: each time the offending item is noted
//! and taken out, until the rest is in order. An operator then mends a file once, not ten times.

use std::fmt;
use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue, Deserializer};

use super::Config;

/// One mistake in a configuration file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mistake {
    /// The 1-based line.
    pub line: usize,
    /// The key, such as `robots.ttl`; empty where there is none.
    pub key: String,
    /// What is wrong, and what is right.
    pub message: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.key.as_str() {
            "" => write!(f, "line {}: {}", self.line, self.message),
            key => write!(f, "line {}: {key}: {}", self.line, self.message),
        }
    }
}

/// Reads a configuration.
///
/// # Errors
/// Every mistake, in the order of the lines.
pub fn read(text: &str) -> Result<Config, Vec<Mistake>> {
    let (mut document, syntax) = DeTable::parse_recoverable(text);
    if !syntax.is_empty() {
        return Err(syntax.iter().map(|error| mistake(text, error, String::new())).collect());
    }
    let mut mistakes: Vec<Mistake> = Vec::new();
    let mut taken_out = Vec::new();
    loop {
        match Config::deserialize(Deserializer::from(document.clone())) {
            Ok(config) if mistakes.is_empty() => return Ok(config),
            Ok(_) => break,
            Err(error) => {
                let at = error.span().unwrap_or(0..0);
                let key = take_out_of_table(document.get_mut(), &at);
                if !is_our_doing(text, &error, &taken_out) {
                    mistakes.push(mistake(text, &error, key.clone().unwrap_or_default()));
                }
                let Some(key) = key else { break };
                taken_out.push((key, at.start));
            }
        }
    }
    mistakes.sort();
    Err(mistakes)
}

/// Whether a field is missing only because its bad value was taken out: the last header before the value is that of the table.
fn is_our_doing(text: &str, error: &toml::de::Error, taken_out: &[(String, usize)]) -> bool {
    let field = error.message().strip_prefix("missing field `").and_then(|rest| rest.split('`').next());
    let (Some(field), Some(table)) = (field, error.span()) else { return false };
    taken_out.iter().any(|(key, at)| {
        let named = key.rsplit('.').next() == Some(field);
        named && text.get(table.start + 1..*at).is_some_and(|between| !between.contains("\n["))
    })
}

fn mistake(text: &str, error: &toml::de::Error, key: String) -> Mistake {
    let offset = error.span().map_or(0, |span| span.start).min(text.len());
    let line = text.as_bytes()[..offset].iter().filter(|&&octet| octet == b'\n').count() + 1;
    Mistake { line, key, message: error.message().trim().replace('\n', " ") }
}

/// Takes the innermost item at a place out of a table, and returns its key.
fn take_out_of_table(table: &mut DeTable<'_>, at: &Range<usize>) -> Option<String> {
    let here =
        |key: &Spanned<_>, value: &Spanned<DeValue<'_>>| contains(&key.span(), at) || contains(&value.span(), at);
    // A table that was given as [headers] spans only its header, so one that holds the place further in is looked into first.
    for (key, value) in table.iter_mut() {
        if let Some(inner) = take_out_of_value(value.get_mut(), at) {
            return Some(join(key.get_ref(), &inner));
        }
    }
    let key = table.iter().find(|(key, value)| here(key, value)).map(|(key, _)| key.get_ref().to_string())?;
    table.remove(key.as_str());
    Some(key)
}

fn take_out_of_value(value: &mut DeValue<'_>, at: &Range<usize>) -> Option<String> {
    match value {
        DeValue::Table(table) => take_out_of_table(table, at),
        DeValue::Array(array) => take_out_of_array(array, at),
        _ => None,
    }
}

/// In a list an inner mistake is taken out as such, and else the whole element; its line tells which one it was.
fn take_out_of_array(array: &mut DeArray<'_>, at: &Range<usize>) -> Option<String> {
    if let Some(inner) = array.iter_mut().find_map(|element| take_out_of_value(element.get_mut(), at)) {
        return Some(inner);
    }
    let index = array.iter().position(|element| contains(&element.span(), at))?;
    let kept = std::mem::replace(array, DeArray::new());
    *array = kept.into_iter().enumerate().filter(|(place, _)| *place != index).map(|(_, element)| element).collect();
    Some(String::new())
}

fn contains(span: &Range<usize>, at: &Range<usize>) -> bool {
    span.start <= at.start && at.end <= span.end && !span.is_empty()
}

fn join(key: &str, inner: &str) -> String {
    if inner.is_empty() { key.to_owned() } else { format!("{key}.{inner}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mistake_is_told_with_key_and_line() {
        let text = "mode = \"maybe\"\n\
                    listen = [\"127.0.0.1:1\", \"here\"]\n\
                    colour = \"red\"\n\
                    [robots]\n\
                    ttl = \"24\"\n\
                    tll = \"24h\"\n\
                    max_bytes = true\n\
                    [[identity.map]]\n\
                    user = \"a\"\n\
                    [[identity.map]]\n\
                    client = \"192.0.2.0/99\"\n\
                    token = \"a bot\"\n";
        let told: Vec<String> =
            read(text).unwrap_err().iter().map(|mistake| format!("{} {}", mistake.line, mistake.key)).collect();
        let want = [
            "1 mode",
            "2 listen",
            "3 colour",
            "5 robots.ttl",
            "6 robots.tll",
            "7 robots.max_bytes",
            "8 identity.map",
            "11 identity.map.client",
            "12 identity.map.token",
        ];
        assert_eq!(told, want, "{:#?}", read(text));
    }

    #[test]
    fn a_file_that_is_not_toml_is_told_by_line() {
        let mistakes = read("mode = \"enforce\"\nlisten = [\n").unwrap_err();
        assert!(mistakes.iter().all(|mistake| mistake.line >= 2), "{mistakes:?}");
    }
}
