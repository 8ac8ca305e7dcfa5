//! The files that a log has been rotated into: their names, their compression, and how many of them stay.
//!
//! `audit.jsonl` becomes `audit.20261130T182500.250Z.jsonl`, and that in its own time `….jsonl.gz`. The names sort by time, also where
//! the clock was set back. Each step leaves a state that the next start goes on from: the compressed file appears whole, by a rename,
//! and only then does the plain one go. Several processes may share the work: who has the lock on `….gz.part` does it.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::clock;

/// Of compression: of 100 MiB of records 5 are left after 80 ms. The usual level, 6, leaves 4 and takes 200 ms, on a machine where a busy
/// proxy writes so much in two seconds.
const LEVEL: u32 = 2;

/// Octets of a plain file that are read at once.
const READ: usize = 64 << 10;

/// How the files beside a log are named.
#[derive(Clone, Debug)]
pub(super) struct Names {
    folder: PathBuf,
    /// `audit.`
    stem: String,
    /// `.jsonl`
    ending: String,
}

/// One rotated file, plain or compressed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rotated {
    time: String,
    is_plain: bool,
}

impl Names {
    pub(super) fn of(log: &Path) -> Names {
        let text = |part: Option<&OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
        Names {
            folder: log.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned(),
            stem: format!("{}.", text(log.file_stem())),
            ending: log.extension().map_or(String::new(), |ending| format!(".{}", text(Some(ending)))),
        }
    }

    fn plain(&self, time: &str) -> PathBuf {
        self.folder.join(format!("{}{time}{}", self.stem, self.ending))
    }

    fn compressed(&self, time: &str) -> PathBuf {
        compressed(&self.plain(time))
    }

    fn part(&self, time: &str) -> PathBuf {
        added(&self.compressed(time), ".part")
    }

    /// Where a rotated file is to be read: the plain one while there is one, since it is whole at any time.
    pub(super) fn path(&self, rotated: &Rotated) -> PathBuf {
        if rotated.is_plain { self.plain(&rotated.time) } else { self.compressed(&rotated.time) }
    }

    /// The rotated files, oldest first.
    pub(super) fn existing(&self) -> io::Result<Vec<Rotated>> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&self.folder)? {
            let name = entry?.file_name();
            let Some(rest) = name.to_str().and_then(|name| name.strip_prefix(&self.stem)) else { continue };
            let uncompressed = rest.strip_suffix(".gz");
            let Some(time) = uncompressed.unwrap_or(rest).strip_suffix(&self.ending).filter(|time| is_time(time))
            else {
                continue;
            };
            found.push(Rotated { time: time.to_owned(), is_plain: uncompressed.is_none() });
        }
        // Of the two kinds of one time the plain one stays.
        found.sort_by(|one, other| (&one.time, other.is_plain).cmp(&(&other.time, one.is_plain)));
        found.dedup_by(|one, before| one.time == before.time);
        Ok(found)
    }

    /// The name that the log is to have now: a later one than that of any file before.
    pub(super) fn next(&self, now: SystemTime) -> io::Result<PathBuf> {
        let now = clock::rfc3339(now).replace(['-', ':'], "");
        let latest = self.existing()?.pop().map(|rotated| rotated.time);
        Ok(self.plain(&match latest {
            Some(latest) if latest >= now => after(&latest),
            _ => now,
        }))
    }

    /// Removes all but the newest, and compresses these.
    pub(super) fn tidy(&self, keep: usize) -> io::Result<()> {
        let existing = self.existing()?;
        let (gone, kept) = existing.split_at(existing.len().saturating_sub(keep));
        for rotated in gone {
            for path in [self.plain(&rotated.time), self.compressed(&rotated.time), self.part(&rotated.time)] {
                removed(std::fs::remove_file(path))?;
            }
        }
        for rotated in kept.iter().filter(|rotated| rotated.is_plain) {
            self.compress(&rotated.time)?;
        }
        Ok(())
    }

    fn compress(&self, time: &str) -> io::Result<()> {
        let (plain, part) = (self.plain(time), self.part(time));
        let out = OpenOptions::new().write(true).create(true).truncate(false).open(&part)?;
        if out.try_lock().is_err() {
            return Ok(());
        }
        // Another process may have been through with it in between: what is open here then bears the final name.
        let Ok(mut from) = File::open(&plain) else { return removed(std::fs::remove_file(&part)) };
        out.set_len(0)?;
        out.set_permissions(from.metadata()?.permissions())?;
        let mut encoder = GzEncoder::new(BufWriter::new(&out), Compression::new(LEVEL));
        io::copy(&mut BufReader::with_capacity(READ, &mut from), &mut encoder)?;
        encoder.finish()?.flush()?;
        // Only what the disk has for certain takes the place of the plain file.
        out.sync_all()?;
        std::fs::rename(&part, self.compressed(time))?;
        removed(std::fs::remove_file(&plain))
    }
}

/// What a rotated file is called when it has been compressed.
pub fn compressed(plain: &Path) -> PathBuf {
    added(plain, ".gz")
}

/// Opens a rotated file, which may have been compressed since it was listed. `None` where it was removed.
///
/// # Errors
/// It cannot be read.
pub fn open(rotated: &Path) -> io::Result<Option<(PathBuf, File)>> {
    for path in [rotated.to_owned(), compressed(rotated)] {
        match File::open(&path) {
            Ok(file) => return Ok(Some((path, file))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// All files of a log in the order of their records: the rotated ones, oldest first, and the live one. The live one is open, so that
/// it is the one that follows the others even if it is rotated while these are read.
///
/// # Errors
/// The log or its folder cannot be read.
pub fn files(log: &Path) -> io::Result<(Vec<PathBuf>, File)> {
    let log = log.canonicalize()?;
    let names = Names::of(&log);
    loop {
        let live = File::open(&log)?;
        let rotated = names.existing()?.iter().map(|rotated| names.path(rotated)).collect();
        let (opened, named) = (live.metadata()?, std::fs::metadata(&log));
        if named.is_ok_and(|named| (named.dev(), named.ino()) == (opened.dev(), opened.ino())) {
            return Ok((rotated, live));
        }
    }
}

/// Another process may have removed it already.
fn removed(result: io::Result<()>) -> io::Result<()> {
    result.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

fn added(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    name.into()
}

/// `20261130T182500.250Z`.
fn is_time(text: &str) -> bool {
    const FORM: &[u8] = b"00000000T000000.000Z";
    let fits = |(octet, form): (u8, &u8)| if *form == b'0' { octet.is_ascii_digit() } else { octet == *form };
    text.len() == FORM.len() && text.bytes().zip(FORM).all(fits)
}

/// The next name after a time: as a number one more, which need not be a time of the clock.
fn after(time: &str) -> String {
    let mut digits = time.as_bytes().to_vec();
    for digit in digits.iter_mut().rev().filter(|octet| octet.is_ascii_digit()) {
        if *digit < b'9' {
            *digit += 1;
            break;
        }
        *digit = b'0';
    }
    String::from_utf8_lossy(&digits).into_owned()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    fn found(names: &Names) -> Vec<String> {
        let name = |rotated| names.path(&rotated).file_name().unwrap().to_string_lossy().into_owned();
        names.existing().unwrap().into_iter().map(name).collect()
    }

    #[test]
    fn names_sort_by_time_also_when_the_clock_was_set_back() {
        let folder = tempfile::tempdir().unwrap();
        let names = Names::of(&folder.path().join("audit.jsonl"));
        let at = UNIX_EPOCH + Duration::from_secs(1_796_051_580);
        for (now, name) in [
            (at, "audit.20261130T151300.000Z.jsonl"),
            (at, "audit.20261130T151300.001Z.jsonl"),
            (at - Duration::from_secs(3600), "audit.20261130T151300.002Z.jsonl"),
            (at + Duration::from_millis(999), "audit.20261130T151300.999Z.jsonl"),
            (at, "audit.20261130T151301.000Z.jsonl"),
        ] {
            let next = names.next(now).unwrap();
            assert_eq!(next.file_name().unwrap(), name);
            std::fs::write(next, "").unwrap();
        }
        assert!(found(&names).is_sorted());
    }

    #[test]
    fn only_files_of_this_log_are_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let names = Names::of(&folder.path().join("audit.jsonl"));
        for name in [
            "audit.jsonl",
            "audit.20261130T151300.000Z.jsonl.gz",
            "audit.20261130T151300.000Z.jsonl",
            "audit.20261130T151301.000Z.jsonl.gz",
            "audit.20261130T151302.000Z.jsonl.gz.part",
            "audit.old.jsonl",
            "audit.20261130T1513.jsonl",
            "other.20261130T151300.000Z.jsonl",
            "audit.20261130T151300.000Z.txt",
        ] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        assert_eq!(found(&names), ["audit.20261130T151300.000Z.jsonl", "audit.20261130T151301.000Z.jsonl.gz"]);
        let bare = Names::of(&folder.path().join("log"));
        std::fs::write(bare.next(UNIX_EPOCH).unwrap(), "").unwrap();
        assert_eq!(found(&bare), ["log.19700101T000000.000Z"]);
    }

    #[test]
    fn the_newest_stay_and_are_compressed_whatever_a_crash_has_left() {
        let folder = tempfile::tempdir().unwrap();
        let names = Names::of(&folder.path().join("audit.jsonl"));
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("audit.20260101T000000.000Z.jsonl", "too old");
        write("audit.20260102T000000.000Z.jsonl", "left in the middle\n");
        write(
            "audit.20260102T000000.000Z.jsonl.gz.part",
            "half of it, and longer than what it becomes, by far: far, far, far",
        );
        write("audit.20260103T000000.000Z.jsonl", "done, but not removed\n");
        write("audit.20260103T000000.000Z.jsonl.gz", "whole");
        names.tidy(2).unwrap();
        let mut left: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["audit.20260102T000000.000Z.jsonl.gz", "audit.20260103T000000.000Z.jsonl.gz"]);
        for (name, text) in left.iter().zip(["left in the middle\n", "done, but not removed\n"]) {
            let mut read = String::new();
            let file = File::open(folder.path().join(name)).unwrap();
            flate2::read::GzDecoder::new(file).read_to_string(&mut read).unwrap();
            assert_eq!(read, text);
        }
    }
}
