//! `audit --follow`: records as they are written, through rotations.
//!
//! The file is looked at again every fifth of a second, since that works on every file system. Another file under its name means that
//! nothing is written to the open one any more: it is read to its end, then the ones that were rotated meanwhile, then the new one.

use std::collections::VecDeque;
use std::fs::{File, Metadata};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use indicatif::ProgressBar;

use super::filter::Filter;
use super::format::Printer;
use super::print_records;
use super::read::{LINE_MAX, Logs};
use super::record::Record;
use crate::audit;
use crate::clock;

const LOOK_EVERY: Duration = Duration::from_millis(200);

/// So many records are shown of what is there already, as tail does.
const SHOWN_FIRST: usize = 10;

struct Followed<'a> {
    path: &'a Path,
    /// The rotated files that were there when the open one was opened.
    rotated: Vec<PathBuf>,
    reader: BufReader<File>,
    /// A line whose end has not come yet.
    line: Vec<u8>,
}

/// Prints the last records of a log, or with a beginning all since then, and then each as it comes, until somebody ends it.
pub(super) async fn follow<W: Write>(path: &Path, filter: &Filter, mut printer: Printer<W>) -> anyhow::Result<()> {
    let mut followed = Followed::open(path)?;
    if filter.has_since() {
        show_rotated(&followed.rotated, filter, &mut printer)?;
    } else {
        followed.show_last(filter, &mut printer)?;
    }
    loop {
        followed.show_what_came(filter, &mut printer)?;
        printer.flush()?;
        if let Some(next) = followed.next_file()? {
            followed.show_what_came(filter, &mut printer)?;
            let is_new = |file: &&PathBuf| !followed.rotated.iter().any(|known| is_same(known, file));
            // The first of the new ones is the one that was read here.
            let missed: Vec<PathBuf> = next.rotated.iter().filter(is_new).skip(1).cloned().collect();
            show_rotated(&missed, filter, &mut printer)?;
            followed = next;
            continue;
        }
        clock::sleep(LOOK_EVERY).await;
    }
}

/// Compressed meanwhile or not.
fn is_same(one: &Path, other: &Path) -> bool {
    one == other || audit::compressed(one) == other || one == audit::compressed(other)
}

impl<'a> Followed<'a> {
    fn open(path: &'a Path) -> anyhow::Result<Followed<'a>> {
        let (rotated, live) = audit::files(path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(Followed { path, rotated, reader: BufReader::new(live), line: Vec::new() })
    }

    /// The file that has the name now, if it is another one. Between two files there may be none for a moment.
    fn next_file(&self) -> anyhow::Result<Option<Followed<'a>>> {
        let open = self.reader.get_ref().metadata()?;
        let is_open = |named: Metadata| (named.dev(), named.ino()) == (open.dev(), open.ino());
        match std::fs::metadata(self.path).map(is_open) {
            Ok(false) => Ok(Followed::open(self.path).ok()),
            _ => Ok(None),
        }
    }

    /// The next line that has its end.
    fn next_line(&mut self) -> anyhow::Result<Option<Vec<u8>>> {
        self.reader.read_until(b'\n', &mut self.line)?;
        if self.line.pop_if(|last| *last == b'\n').is_some() {
            return Ok(Some(std::mem::take(&mut self.line)));
        }
        anyhow::ensure!(self.line.len() < LINE_MAX, "{} is no audit log: a line has no end", self.path.display());
        Ok(None)
    }

    fn show_what_came<W: Write>(&mut self, filter: &Filter, printer: &mut Printer<W>) -> anyhow::Result<()> {
        while let Some(line) = self.next_line()? {
            if let Some(record) = Record::read(&line).filter(|record| filter.admits(record)) {
                printer.print(&record, &line)?;
            }
        }
        Ok(())
    }

    fn show_last<W: Write>(&mut self, filter: &Filter, printer: &mut Printer<W>) -> anyhow::Result<()> {
        let mut last = VecDeque::with_capacity(SHOWN_FIRST + 1);
        while let Some(line) = self.next_line()? {
            if Record::read(&line).is_some_and(|record| filter.admits(&record)) {
                last.push_back(line);
                last.drain(..last.len().saturating_sub(SHOWN_FIRST));
            }
        }
        for line in &last {
            if let Some(record) = Record::read(line) {
                printer.print(&record, line)?;
            }
        }
        Ok(())
    }
}

fn show_rotated<W: Write>(files: &[PathBuf], filter: &Filter, printer: &mut Printer<W>) -> anyhow::Result<()> {
    print_records(Logs::rotated(files), &ProgressBar::hidden(), filter, printer)?.tell();
    Ok(())
}
