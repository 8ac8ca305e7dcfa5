//! Reading logs line by line: named ones, or the configuration's with its rotated files in order.
//!
//! A log may be larger than the memory, may be written to meanwhile, and may be damaged: lines come one at a time and are bounded, the
//! last one may be unfinished, and what is no record is counted and named but ends nothing.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read};
use std::path::{Path, PathBuf};

use anyhow::Context;
use flate2::read::MultiGzDecoder;
use indicatif::{ProgressBar, ProgressStyle};

use super::record::Record;
use crate::audit;
use crate::config::Loaded;

/// Far beyond the longest record; what is longer is none.
pub(super) const LINE_MAX: usize = 4 << 20;

/// Below that, reading is done before anybody wonders.
const BAR_FROM: u64 = 64 << 20;

/// The log of the configuration.
pub(super) fn configured(config: Option<&Path>) -> anyhow::Result<PathBuf> {
    let path = Loaded::load(config)?.settings().audit.path;
    path.context("audit.path is standard output: name the file to read")
}

/// Files to read, in the order of their records.
pub(super) struct Logs {
    places: Vec<Place>,
}

enum Place {
    /// `-`
    Input,
    Named(PathBuf),
    /// It may be compressed or removed at any time.
    Rotated(PathBuf),
    Live(PathBuf, File),
}

/// A line of a file.
#[derive(Clone, Copy)]
pub(super) struct At<'a> {
    pub(super) file: &'a str,
    pub(super) line: u64,
}

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: line {}", self.file, self.line)
    }
}

impl Logs {
    /// The files that were named or, where none was, those of the configuration's log.
    pub(super) fn of(config: Option<&Path>, named: &[PathBuf]) -> anyhow::Result<Logs> {
        if named.is_empty() {
            return Logs::all(&configured(config)?);
        }
        let place = |path: &PathBuf| if path == Path::new("-") { Place::Input } else { Place::Named(path.clone()) };
        Ok(Logs { places: named.iter().map(place).collect() })
    }

    /// A log with its rotated files.
    pub(super) fn all(log: &Path) -> anyhow::Result<Logs> {
        let (rotated, live) = audit::files(log).with_context(|| {
            format!("cannot read the audit log {}: name a file, or start the proxy, which makes it", log.display())
        })?;
        let mut places: Vec<Place> = rotated.into_iter().map(Place::Rotated).collect();
        places.push(Place::Live(log.to_owned(), live));
        Ok(Logs { places })
    }

    /// Rotated files.
    pub(super) fn rotated(files: &[PathBuf]) -> Logs {
        Logs { places: files.iter().cloned().map(Place::Rotated).collect() }
    }

    /// A bar for standard error, where that is a terminal on which nothing else appears and there is much to read.
    pub(super) fn bar(&self, prints_lines: bool) -> ProgressBar {
        let size = |place: &Place| match place {
            Place::Input => 0,
            Place::Named(path) | Place::Rotated(path) => std::fs::metadata(path).map_or(0, |found| found.len()),
            Place::Live(_, file) => file.metadata().map_or(0, |found| found.len()),
        };
        let total = self.places.iter().map(size).sum();
        let is_in_the_way = prints_lines && io::stdout().is_terminal();
        if total < BAR_FROM || is_in_the_way || !io::stderr().is_terminal() {
            return ProgressBar::hidden();
        }
        let style = ProgressStyle::with_template("reading {bar:40} {percent} % of {total_bytes}, {eta} left");
        ProgressBar::new(total).with_style(style.expect("a template of known keys"))
    }

    /// Shows every record with its line, and returns the lines that are none. One that is unfinished is none.
    pub(super) fn records(
        self,
        bar: &ProgressBar,
        mut show: impl FnMut(Record<'_>, &[u8]) -> anyhow::Result<()>,
    ) -> anyhow::Result<Bad> {
        let (mut bad, mut unfinished) = (Bad::default(), Bad::default());
        self.each(
            bar,
            |at, line| match Record::read(line) {
                Some(record) => show(record, line),
                None => {
                    bad.add(at);
                    Ok(())
                }
            },
            |at| unfinished.add(at),
        )?;
        bad.also(unfinished);
        Ok(bad)
    }

    /// Shows every line, without its newline. One that has none, or is too long, is shown to `unfinished`.
    pub(super) fn each(
        self,
        bar: &ProgressBar,
        mut show: impl FnMut(At<'_>, &[u8]) -> anyhow::Result<()>,
        mut unfinished: impl FnMut(At<'_>),
    ) -> anyhow::Result<()> {
        for place in self.places {
            let Some((name, reader)) = place.open(bar)? else { continue };
            each_line(&name, reader, &mut show, &mut unfinished)?;
        }
        bar.finish_and_clear();
        Ok(())
    }
}

impl Place {
    /// Name and reader; `None` where rotation has removed it.
    fn open(self, bar: &ProgressBar) -> anyhow::Result<Option<(String, Box<dyn BufRead>)>> {
        let (path, file) = match self {
            Place::Input => return Ok(Some(("standard input".into(), Box::new(BufReader::new(io::stdin()))))),
            Place::Live(path, file) => (path, Ok(file)),
            Place::Named(path) => {
                let file = File::open(&path);
                (path, file)
            }
            Place::Rotated(path) => match audit::open_rotated(&path) {
                Ok(None) => return Ok(None),
                Ok(Some((path, file))) => (path, Ok(file)),
                Err(error) => (path, Err(error)),
            },
        };
        let file = file.with_context(|| format!("cannot read {}", path.display()))?;
        let counted = bar.wrap_read(file);
        let reader: Box<dyn Read> = match path.extension().is_some_and(|ending| ending == "gz") {
            true => Box::new(MultiGzDecoder::new(BufReader::with_capacity(1 << 16, counted))),
            false => Box::new(counted),
        };
        Ok(Some((path.display().to_string(), Box::new(BufReader::with_capacity(1 << 16, reader)))))
    }
}

fn each_line(
    name: &str,
    mut reader: Box<dyn BufRead>,
    show: &mut impl FnMut(At<'_>, &[u8]) -> anyhow::Result<()>,
    unfinished: &mut impl FnMut(At<'_>),
) -> anyhow::Result<()> {
    let (mut line, mut number) = (Vec::new(), 0);
    loop {
        line.clear();
        let came = reader.by_ref().take(LINE_MAX as u64).read_until(b'\n', &mut line);
        if came.with_context(|| format!("cannot read {name} beyond line {number}"))? == 0 {
            return Ok(());
        }
        number += 1;
        let at = At { file: name, line: number };
        match line.strip_suffix(b"\n") {
            Some(whole) => show(at, whole)?,
            None => {
                unfinished(at);
                reader.skip_until(b'\n')?;
            }
        }
    }
}

/// Lines that are no records.
#[derive(Default)]
pub(super) struct Bad {
    count: u64,
    first: Option<String>,
}

impl Bad {
    fn add(&mut self, at: At<'_>) {
        self.count += 1;
        self.first.get_or_insert_with(|| at.to_string());
    }

    /// These as well.
    fn also(&mut self, other: Bad) {
        self.count += other.count;
        self.first = self.first.take().or(other.first);
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Says on standard error that there were some.
    pub(super) fn tell(&self) {
        if let Some(first) = &self.first {
            let lines = if self.count == 1 { "line is no record" } else { "lines are no records" };
            eprintln!("robots-proxy: {} {lines}: first {first}", self.count);
        }
    }
}
