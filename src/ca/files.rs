//! The two files that are a CA, on disk.
//!
//! Both appear whole or not at all, the key with its mode from the first moment, and a file that is there is replaced only
//! on command, with its old self kept beside it: renaming without replacing is atomic, and a lock on the folder makes simultaneous first starts wait for
//! each other. What is wrong with a pair is said and left as it is, since a key that is gone cannot be had back.

use std::fs::{self, DirBuilder, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use rcgen::KeyPair;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use tempfile::NamedTempFile;

use super::Error;

/// The pair of files that is a CA.
#[derive(Clone, Debug)]
pub struct Files {
    /// What clients are told to trust.
    pub certificate: PathBuf,
    /// What must stay secret.
    pub key: PathBuf,
}

impl Files {
    pub(super) fn of(dir: &Path) -> Files {
        Files { certificate: dir.join("ca.pem"), key: dir.join("ca.key") }
    }

    fn dir(&self) -> &Path {
        self.key.parent().unwrap_or(Path::new("."))
    }

    /// Which of the two exist: certificate, key.
    fn present(&self) -> Result<(bool, bool), Error> {
        let exists = |path: &Path| path.try_exists().map_err(|source| Error::io("look at", path, source));
        Ok((exists(&self.certificate)?, exists(&self.key)?))
    }

    pub(super) fn check_complete(&self) -> Result<(), Error> {
        match self.present()? {
            (true, true) => Ok(()),
            (true, false) => Err(Error::KeyMissing(self.clone())),
            (false, true) => Err(Error::CertificateMissing(self.clone())),
            (false, false) => Err(Error::Absent(self.dir().to_owned())),
        }
    }

    /// Says whether it made a CA. Whoever finds the pair incomplete waits for the process that may be making it, and
    /// looks again.
    pub(super) fn make_unless_there(
        &self,
        make: impl FnOnce() -> Result<(String, String), Error>,
    ) -> Result<bool, Error> {
        if self.present()? == (true, true) {
            return Ok(false);
        }
        make_dir(self.dir())?;
        let _turn = turn(self.dir());
        if self.present()? != (false, false) {
            return Ok(false);
        }
        let (key, certificate) = make()?;
        self.publish(&key, &certificate)?;
        Ok(true)
    }

    fn publish(&self, key: &str, certificate: &str) -> Result<(), Error> {
        publish(&self.key, key, 0o600)?;
        publish(&self.certificate, certificate, 0o644).inspect_err(|_| {
            // Ours, a moment old and trusted by nobody: leaving it would make the next start complain of half a pair.
            let _ = fs::remove_file(&self.key);
        })?;
        // Some file systems cannot sync a folder. A crash in the next seconds then loses a CA that nobody trusts yet.
        let _ = File::open(self.dir()).and_then(|dir| dir.sync_all());
        Ok(())
    }

    /// Waits until nobody else makes or renews the pair.
    pub(super) fn turn(&self) -> Option<File> {
        turn(self.dir())
    }

    /// Gives a file that will be replaced a second name, and returns it: `ca.TIME.pem`.
    pub(super) fn keep(&self, path: &Path, time: &str) -> Result<PathBuf, Error> {
        let extension = path.extension().unwrap_or_default().to_string_lossy();
        let kept = path.with_extension(format!("{time}.{extension}"));
        fs::hard_link(path, &kept).map_err(|source| Error::io("keep the old file as", &kept, source))?;
        Ok(kept)
    }

    pub(super) fn replace_key(&self, pem: &str) -> Result<(), Error> {
        replace(&self.key, pem, 0o600)
    }

    pub(super) fn replace_certificate(&self, pem: &str) -> Result<(), Error> {
        replace(&self.certificate, pem, 0o644)
    }

    pub(super) fn read_certificate(&self) -> Result<String, Error> {
        read(&self.certificate)
    }

    pub(super) fn read_key(&self) -> Result<KeyPair, Error> {
        check_private(&self.key)?;
        let pem = read(&self.key)?;
        // `KeyPair::from_pem` reads the first block only; `openssl ecparam -genkey` puts the curve's parameters before
        // the key.
        let der = PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|_| Error::NotAKey(self.key.clone()))?;
        KeyPair::try_from(&der).map_err(|_| Error::NotAKey(self.key.clone()))
    }
}

/// One maker at a time in a folder, for as long as the handle lives. The lock is on the folder itself, so that no lock
/// file stays behind. Where a file system cannot lock (some NFS), the loser of a race of first starts stops with an
/// error instead of waiting.
fn turn(dir: &Path) -> Option<File> {
    let dir = File::open(dir).ok()?;
    dir.lock().ok()?;
    Some(dir)
}

fn make_dir(dir: &Path) -> Result<(), Error> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir).map_err(|source| Error::io("make the folder", dir, source))
}

/// The file appears whole, with its mode from the first moment, or not at all; one that is there stays as it is.
fn publish(path: &Path, text: &str, mode: u32) -> Result<(), Error> {
    let file = written(path, text, mode)?;
    file.persist_noclobber(path).map_err(|refused| Error::io("write", path, refused.error))?;
    Ok(())
}

/// The same in the place of one that is there.
fn replace(path: &Path, text: &str, mode: u32) -> Result<(), Error> {
    let file = written(path, text, mode)?;
    file.persist(path).map_err(|refused| Error::io("write", path, refused.error))?;
    Ok(())
}

/// A file beside its place, on disk.
fn written(path: &Path, text: &str, mode: u32) -> Result<NamedTempFile, Error> {
    let failed = |source| Error::io("write", path, source);
    let dir = path.parent().unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    builder.prefix(".ca-");
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(mode));
    let mut file = builder.tempfile_in(dir).map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    file.as_file().sync_all().map_err(failed)?;
    Ok(file)
}

fn read(path: &Path) -> Result<String, Error> {
    fs::read_to_string(path).map_err(|source| Error::io("read", path, source))
}

// SECURITY: a key that others can read is power over this machine's traffic in their hands; it may have been copied
// already.
#[cfg(unix)]
fn check_private(key: &Path) -> Result<(), Error> {
    use std::os::unix::fs::PermissionsExt;

    let mode = fs::metadata(key).map_err(|source| Error::io("look at", key, source))?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 { Err(Error::KeyReadable { key: key.to_owned(), mode }) } else { Ok(()) }
}

#[cfg(not(unix))]
fn check_private(_key: &Path) -> Result<(), Error> {
    Ok(())
}
