//! The live file of the audit log.
//!
//! Records are written at the end of the file, those that come together with one `write`, under an advisory lock that is held for a
//! moment only, so that several processes may share a log: whoever finds it large enough rotates it, and the others, who see at their
//! next record that another file has its name, go on with that one. A kill, a full disk or a crash can leave half a record at the end;
//! nobody was answered on its account, and whoever writes next cuts it off. In a chain the end of the file is also where the next record
//! finds the hash before it, whichever process wrote that.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;

use super::chain::Head;
use super::rotated::{self, Names};
use crate::clock;

/// Where the end of a file is looked for its last records: far beyond the longest record.
const TAIL_MAX: u64 = 16 << 20;

/// How often a file may change under the name of the log before that is called a failure.
const SWITCHES_MAX: usize = 100;

/// Records are joined up to so many octets, and one more record.
const JOINED_MAX: usize = 64 << 10;

/// Every record begins so.
const RECORD_BEGINS: &[u8] = b"{\"id\":\"";

/// The file that records are appended to.
#[derive(Debug)]
pub(super) struct Log {
    /// As configured; [`Names`] has where it leads to.
    path: PathBuf,
    names: Names,
    file: File,
    device_and_inode: (u64, u64),
    /// What is no regular file, such as a pipe, is only written to.
    is_regular: bool,
    /// Where the last write of this process ended.
    end: u64,
    /// Rotated beyond this; 0 is never.
    rotate: u64,
    rotate_at: u64,
    chain: Option<Head>,
}

/// Records that are written together.
#[derive(Debug, Default)]
struct Joined {
    octets: Vec<u8>,
    /// Where each of them ends, and where the chain stands then.
    ends: Vec<(usize, Option<Head>)>,
}

/// What came of appending.
#[derive(Debug)]
pub(super) struct Appended {
    /// So many lines were written.
    pub(super) lines: usize,
    /// Why the next one was not.
    pub(super) error: Option<io::Error>,
    /// There is a new rotated file.
    pub(super) rotated: bool,
}

impl Log {
    /// Opens the file, and brings its end in order.
    pub(super) fn open(path: &Path, rotate: u64, chain: bool) -> io::Result<Log> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let file = append(path)?;
        let resolved = path.canonicalize()?;
        let opened = file.metadata()?;
        let mut log = Log {
            path: path.to_owned(),
            names: Names::of(&resolved),
            device_and_inode: identity(&opened),
            is_regular: opened.is_file(),
            file,
            end: 0,
            rotate,
            rotate_at: rotate,
            chain: chain.then(Head::start),
        };
        if log.is_regular {
            if chain && opened.len() == 0 {
                log.chain = Some(log.later_of_chain_and_rotated()?);
            }
            log.lock()?;
            log.file.unlock()?;
        }
        Ok(log)
    }

    /// How the files beside it are named.
    pub(super) fn names(&self) -> &Names {
        &self.names
    }

    /// Appends lines, and rotates the file when it is large enough.
    pub(super) fn append<'a>(&mut self, lines: impl Iterator<Item = &'a [u8]>) -> Appended {
        let mut appended = Appended { lines: 0, error: None, rotated: false };
        appended.error = self.append_locked(lines, &mut appended).err();
        appended
    }

    fn append_locked<'a>(&mut self, lines: impl Iterator<Item = &'a [u8]>, done: &mut Appended) -> io::Result<()> {
        if self.is_regular {
            self.lock()?;
        }
        let written = self.write_all(lines, &mut done.lines);
        if self.is_regular {
            if self.rotate > 0 && self.end >= self.rotate_at && written.is_ok() {
                done.rotated = self.rotate();
            }
            // After a rotation this is the new file, which was not locked.
            self.file.unlock()?;
        }
        written
    }

    /// Opens the file that has the name now, for where it was moved by others.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        let resolved = self.path.canonicalize().unwrap_or_else(|_| self.path.clone());
        self.names = Names::of(&resolved);
        self.switch()
    }

    /// Locks the file that has the name of the log, and sees to its end.
    fn lock(&mut self) -> io::Result<()> {
        self.find_and_lock().inspect_err(|_| drop(self.file.unlock()))
    }

    fn find_and_lock(&mut self) -> io::Result<()> {
        for _ in 0..SWITCHES_MAX {
            self.file.lock()?;
            match std::fs::metadata(&self.path) {
                Ok(found) if identity(&found) == self.device_and_inode => {
                    return if found.len() == self.end { Ok(()) } else { self.go_on_from(found.len()) };
                }
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => self.file.unlock()?,
            }
            self.switch()?;
        }
        Err(io::Error::other("another file has the name of the log again and again"))
    }

    /// Goes on with the file that has the name of the log.
    fn switch(&mut self) -> io::Result<()> {
        let file = append(&self.path)?;
        let opened = file.metadata()?;
        if identity(&opened) == self.device_and_inode {
            return Ok(());
        }
        if self.chain.is_some() && opened.len() == 0 {
            // The end of the chain is in the file that was left or, where several were rotated meanwhile, in a later one.
            if self.file.metadata()?.len() != self.end {
                self.chain = Tail::read(&self.file)?.head().or(self.chain.take());
            }
            self.chain = Some(self.later_of_chain_and_rotated()?);
        }
        self.device_and_inode = identity(&opened);
        self.is_regular = opened.is_file();
        self.file = file;
        self.end = 0;
        self.rotate_at = self.rotate;
        Ok(())
    }

    /// Somebody else wrote, or the file is new to this process: cuts half a record off, and finds the end of the chain.
    fn go_on_from(&mut self, length: u64) -> io::Result<()> {
        self.end = length;
        if length == 0 {
            // It was cut down to nothing by others, such as logrotate's copytruncate; the chain goes on.
            return Ok(());
        }
        if self.chain.is_none() && ends_in_newline(&self.file, length)? {
            return Ok(());
        }
        let tail = Tail::read(&self.file)?;
        if !tail.torn.is_empty() {
            self.cut_off(&tail.torn)?;
        }
        if self.chain.is_some() {
            self.chain = Some(match tail.last {
                Some(_) => tail.head().unwrap_or_else(Head::start),
                None => self.later_of_chain_and_rotated()?,
            });
        }
        Ok(())
    }

    fn cut_off(&mut self, torn: &[u8]) -> io::Result<()> {
        let begins: String = String::from_utf8_lossy(torn).chars().take(200).collect();
        tracing::warn!(
            "the audit log {} ended in the middle of a line, which no record follows on: {begins}",
            self.path.display()
        );
        let whole = self.end - torn.len() as u64;
        // What is not the beginning of a record is not ours to remove, and a file may be one that can only be appended to: then the
        // next record gets a line of its own.
        let is_ours = torn.starts_with(RECORD_BEGINS) || RECORD_BEGINS.starts_with(torn);
        if is_ours && self.file.set_len(whole).is_ok() {
            self.end = whole;
        } else {
            self.end += self.file.write(b"\n")? as u64;
        }
        Ok(())
    }

    fn write_all<'a>(&mut self, lines: impl Iterator<Item = &'a [u8]>, written: &mut usize) -> io::Result<()> {
        let mut lines = lines.peekable();
        // In a pipe that others write to as well, only what is short stays whole.
        let most = if self.is_regular { JOINED_MAX } else { 0 };
        while lines.peek().is_some() {
            self.write(&Joined::of(&mut lines, self.chain.clone(), most), written)?;
        }
        Ok(())
    }

    /// One `write`: each record is in the file whole, or not at all.
    fn write(&mut self, joined: &Joined, written: &mut usize) -> io::Result<()> {
        let octets = joined.octets.as_slice();
        let taken = match self.is_regular {
            true => write_once(&self.file, octets)?,
            false => self.file.write_all(octets).map(|()| octets.len())?,
        };
        let whole = joined.ends.iter().take_while(|(end, _)| *end <= taken);
        let mut whole_octets = 0;
        for (end, head) in whole {
            *written += 1;
            whole_octets = *end;
            self.chain.clone_from(head);
        }
        self.end += whole_octets as u64;
        if taken < octets.len() {
            // Where that fails, too, the next one to write finds half a record and does it.
            let _ = self.file.set_len(self.end);
            return Err(io::Error::new(io::ErrorKind::StorageFull, "only a part of the records fits"));
        }
        Ok(())
    }

    /// Gives the file its lasting name and begins a new one. A failure is told, and tried again when the file has grown as much again.
    fn rotate(&mut self) -> bool {
        let rotated = self.move_away();
        if let Err(error) = &rotated {
            self.rotate_at = self.end.saturating_add(self.rotate);
            tracing::warn!(%error, "the audit log {} cannot be rotated and grows on", self.path.display());
        }
        rotated.is_ok()
    }

    fn move_away(&mut self) -> io::Result<()> {
        let resolved = self.path.canonicalize()?;
        std::fs::rename(&resolved, self.names.next(clock::wall())?)?;
        let new = append(&self.path)?;
        new.set_permissions(self.file.metadata()?.permissions())?;
        self.device_and_inode = identity(&new.metadata()?);
        self.file = new;
        self.end = 0;
        self.rotate_at = self.rotate;
        Ok(())
    }

    /// The end of the chain where the live file is empty: in the newest rotated file, unless this process has gone further.
    fn later_of_chain_and_rotated(&self) -> io::Result<Head> {
        let own = self.chain.clone().unwrap_or_else(Head::start);
        let Some(newest) = self.names.existing()?.pop() else { return Ok(own) };
        let Some((path, file)) = rotated::open(&self.names.path(&newest))? else { return Ok(own) };
        let rotated = Tail::of_rotated(&path, file)?.head();
        Ok(rotated.filter(|rotated| rotated.seq > own.seq).unwrap_or(own))
    }
}

impl Joined {
    /// Takes lines until there is so much of them, at least one.
    fn of<'a>(lines: &mut impl Iterator<Item = &'a [u8]>, mut head: Option<Head>, most: usize) -> Joined {
        let mut joined = Joined::default();
        for line in lines {
            match &mut head {
                Some(head) => joined.octets.extend_from_slice(&head.append(line)),
                None => joined.octets.extend_from_slice(line),
            }
            joined.ends.push((joined.octets.len(), head.clone()));
            if joined.octets.len() >= most {
                break;
            }
        }
        joined
    }
}

fn write_once(mut file: &File, octets: &[u8]) -> io::Result<usize> {
    loop {
        match file.write(octets) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            written => return written,
        }
    }
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).append(true).create(true).open(path)
}

fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

fn ends_in_newline(file: &File, length: u64) -> io::Result<bool> {
    let mut last = [0];
    file.read_exact_at(&mut last, length - 1)?;
    Ok(last == *b"\n")
}

/// The end of a file.
#[derive(Default)]
struct Tail {
    /// The last whole line.
    last: Option<Vec<u8>>,
    /// What stands behind it.
    torn: Vec<u8>,
}

impl Tail {
    /// Reads backwards, in growing steps, until there are two newlines.
    fn read(file: &File) -> io::Result<Tail> {
        let length = file.metadata()?.len();
        let mut window = 4096;
        loop {
            let from = length.saturating_sub(window);
            let mut octets = vec![0; usize::try_from(length - from).unwrap_or(usize::MAX)];
            file.read_exact_at(&mut octets, from)?;
            let whole = octets.iter().rposition(|&octet| octet == b'\n').map_or(0, |at| at + 1);
            let before = octets[..whole.saturating_sub(1)].iter().rposition(|&octet| octet == b'\n');
            if from > 0 && before.is_none() && window < TAIL_MAX {
                window *= 2;
                continue;
            }
            let begins = before.map_or(0, |at| at + 1);
            let last = (whole > 0).then(|| octets[begins..whole].to_vec());
            return Ok(Tail { last, torn: octets[whole..].to_vec() });
        }
    }

    /// A compressed file has to be read from its beginning.
    fn of_rotated(path: &Path, file: File) -> io::Result<Tail> {
        if path.extension().is_none_or(|ending| ending != "gz") {
            return Tail::read(&file);
        }
        let mut reader = BufReader::new(MultiGzDecoder::new(BufReader::new(file)));
        let (mut tail, mut line) = (Tail::default(), Vec::new());
        while reader.by_ref().take(TAIL_MAX).read_until(b'\n', &mut line)? > 0 {
            tail.last = Some(std::mem::take(&mut line));
        }
        Ok(tail)
    }

    /// Where the chain stands after the last whole line.
    fn head(&self) -> Option<Head> {
        self.last.as_deref().and_then(Head::after)
    }
}
