//! How durations, sizes and rates are written in a configuration: `"30s"`, `"500KiB"`, `"10/s"`.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A value that is written as text: whatever can be read from a string and printed as the same one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Text<T>(pub(super) T);

impl<'de, T: FromStr<Err: fmt::Display>> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Text<T>, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Text).map_err(de::Error::custom)
    }
}

impl<T: fmt::Display> Serialize for Text<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// A duration: a number and `ms`, `s`, `m`, `h` or `d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span(pub(super) Duration);

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Span, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bad = || de::Error::custom(format!("{text:?} is no duration such as \"500ms\", \"30s\" or \"24h\""));
        humantime::parse_duration(&text).map(Span).map_err(|_| bad())
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let milliseconds = self.0.as_millis();
        // One day is written as 24h, as people say it of a life of copies.
        let units = [(86_400_000, "d", 2), (3_600_000, "h", 1), (60_000, "m", 1), (1000, "s", 1)];
        let whole = |(unit, _, least): &&(u128, &str, u128)| {
            milliseconds.is_multiple_of(*unit) && milliseconds / unit >= *least
        };
        match units.iter().find(whole) {
            _ if milliseconds == 0 => f.write_str("0s"),
            Some((unit, name, _)) => write!(f, "{}{name}", milliseconds / unit),
            None => write!(f, "{milliseconds}ms"),
        }
    }
}

/// A number of octets: `"500KiB"`, `"64KB"`, or a plain number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size(pub(super) usize);

#[derive(Deserialize)]
#[serde(untagged, expecting = "a size such as \"500KiB\" or a number of bytes was expected")]
enum Written {
    Number(u64),
    Text(String),
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Size, D::Error> {
        let octets = match Written::deserialize(deserializer)? {
            Written::Number(octets) => octets,
            Written::Text(text) => {
                let bad = || de::Error::custom(format!("{text:?} is no size such as \"500KiB\" or a number of bytes"));
                text.parse::<bytesize::ByteSize>().map_err(|_| bad())?.as_u64()
            }
        };
        usize::try_from(octets).map(Size).map_err(de::Error::custom)
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let octets = self.0;
        match [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")]
            .iter()
            .find(|(unit, _)| octets > 0 && octets.is_multiple_of(*unit))
        {
            Some((unit, name)) => serializer.collect_str(&format_args!("{}{name}", octets / unit)),
            None => serializer.serialize_u64(octets as u64),
        }
    }
}

/// So many per second, minute or hour: `"10/s"`; `"0/s"` is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rate {
    /// How many; `None` is no limit.
    pub(super) number: Option<NonZeroU32>,
    /// Per what time.
    pub(super) period: Duration,
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Rate, String> {
        let bad = || format!("{text:?} is no rate such as \"10/s\", \"600/m\" or \"0/s\"");
        let (number, unit) = text.split_once('/').ok_or_else(bad)?;
        let seconds = match unit.trim() {
            "s" => 1,
            "m" => 60,
            "h" => 3600,
            _ => return Err(bad()),
        };
        let number: u32 = number.trim().parse().map_err(|_| bad())?;
        Ok(Rate { number: NonZeroU32::new(number), period: Duration::from_secs(seconds) })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.period.as_secs() {
            60 => "m",
            3600 => "h",
            _ => "s",
        };
        write!(f, "{}/{unit}", self.number.map_or(0, NonZeroU32::get))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Deserialize, Serialize)]
    struct All {
        span: Span,
        size: Size,
        rate: Text<Rate>,
    }

    #[test]
    fn what_is_read_is_printed_alike() {
        for (span, size, rate) in [
            ("\"24h\"", "\"500KiB\"", "\"10/s\""),
            ("\"30d\"", "\"100MiB\"", "\"0/s\""),
            ("\"500ms\"", "1234", "\"600/m\""),
            ("\"90s\"", "0", "\"5/h\""),
            ("\"0s\"", "\"1GiB\"", "\"1/s\""),
        ] {
            let text = format!("span = {span}\nsize = {size}\nrate = {rate}\n");
            let all: All = toml::from_str(&text).unwrap();
            assert_eq!(toml::to_string(&all).unwrap(), text);
        }
    }

    #[test]
    fn what_cannot_be_read_says_what_it_should_be() {
        for (span, size, rate, want) in [
            ("\"5\"", "1", "\"1/s\"", "no duration"),
            ("\"1s\"", "\"5 apples\"", "\"1/s\"", "no size"),
            ("\"1s\"", "true", "\"1/s\"", "a size such as"),
            ("\"1s\"", "1", "\"10\"", "no rate"),
        ] {
            let error = toml::from_str::<All>(&format!("span = {span}\nsize = {size}\nrate = {rate}\n")).unwrap_err();
            assert!(error.message().contains(want), "{error}");
        }
    }
}
