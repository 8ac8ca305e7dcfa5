//! A home for browsers: the user's own, but with certificate databases that trust the CA.
//!
//! Chromium looks for its database at one place, `$HOME/.pki/nssdb`, and for Firefox it is in the profile; no option and no variable
//! names another. Adding the CA to the user's own would have every browser of theirs trust it, during the run and, after a crash, for
//! ever. So the command gets a home of links to everything in the real one, save these two. What it puts there anew is moved to the
//! real home at the end.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

/// Made here, and not links.
const OWN: [&str; 2] = [".pki", ".mozilla"];

/// The home of a run.
pub(super) struct Home {
    real: PathBuf,
    made: PathBuf,
}

impl Home {
    /// Makes the home in a folder.
    pub(super) fn make(folder: &Path, real: PathBuf, ca: &Path, proxy: std::net::SocketAddr) -> anyhow::Result<Home> {
        let made = folder.join("home");
        fs::create_dir(&made)?;
        let entries = fs::read_dir(&real).with_context(|| format!("cannot read your home, {}", real.display()))?;
        for entry in entries.flatten().filter(|entry| OWN.iter().all(|own| entry.file_name() != *own)) {
            symlink(entry.path(), made.join(entry.file_name()))?;
        }
        let chromium = made.join(".pki/nssdb");
        database(&chromium, Some(&real.join(".pki/nssdb")), ca)?;
        let firefox = made.join(".mozilla/firefox");
        database(&firefox.join("run"), None, ca)?;
        fs::write(firefox.join("profiles.ini"), PROFILES)?;
        fs::write(firefox.join("run/user.js"), preferences(proxy))?;
        Ok(Home { real, made })
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.made
    }

    /// Moves what the command has put there to the real home.
    fn bring_back(&self) -> std::io::Result<()> {
        for entry in fs::read_dir(&self.made)? {
            let entry = entry?;
            let name = entry.file_name();
            if entry.file_type()?.is_symlink() || OWN.iter().any(|own| name == *own) {
                continue;
            }
            move_to(&entry.path(), &self.real.join(name))?;
        }
        Ok(())
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if let Err(error) = self.bring_back() {
            eprintln!(
                "robots-proxy: what the command wrote into its home cannot be moved to {}: {error}",
                self.real.display()
            );
        }
    }
}

/// A rename, or a copy where the two are on different disks.
fn move_to(from: &Path, to: &Path) -> std::io::Result<()> {
    if fs::rename(from, to).is_ok() {
        return Ok(());
    }
    if !from.is_dir() {
        return fs::copy(from, to).map(drop);
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        move_to(&entry.path(), &to.join(entry.file_name()))?;
    }
    Ok(())
}

/// An NSS database that trusts the CA: a copy of the user's where that can be changed, else a new one.
fn database(folder: &Path, own: Option<&Path>, ca: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder)?;
    let copied = own.is_some_and(|own| {
        ["cert9.db", "key4.db"].iter().all(|name| fs::copy(own.join(name), folder.join(name)).is_ok())
    });
    let database = format!("sql:{}", folder.display());
    let ca = ca.display().to_string();
    let add = ["-d", &database, "-A", "-t", "C,,", "-n", "robots-proxy run", "-i", &ca];
    // One with a password cannot be added to without asking for it.
    if copied && certutil(&add).is_ok() {
        return Ok(());
    }
    for name in ["cert9.db", "key4.db", "pkcs11.txt"] {
        let _ = fs::remove_file(folder.join(name));
    }
    certutil(&["-d", &database, "-N", "--empty-password"])?;
    certutil(&add)
}

fn certutil(arguments: &[&str]) -> anyhow::Result<()> {
    let ran = Command::new("certutil").args(arguments).stdin(Stdio::null()).output();
    let output = ran.context(
        "--browser needs certutil: install libnss3-tools (Debian), nss-tools (Fedora) or nss (Arch, Homebrew)",
    )?;
    if !output.status.success() {
        bail!("certutil cannot write the browsers' database: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

const PROFILES: &str =
    "[Profile0]\nName=run\nIsRelative=1\nPath=run\nDefault=1\n\n[General]\nStartWithLastProfile=1\nVersion=2\n";

/// What leads Firefox to the proxy, localhost included.
fn preferences(proxy: std::net::SocketAddr) -> String {
    let (host, port) = (proxy.ip(), proxy.port());
    format!(
        "user_pref(\"network.proxy.type\", 1);\n\
         user_pref(\"network.proxy.http\", \"{host}\");\nuser_pref(\"network.proxy.http_port\", {port});\n\
         user_pref(\"network.proxy.ssl\", \"{host}\");\nuser_pref(\"network.proxy.ssl_port\", {port});\n\
         user_pref(\"network.proxy.no_proxies_on\", \"\");\nuser_pref(\"network.proxy.allow_hijacking_localhost\", true);\n\
         user_pref(\"network.trr.mode\", 5);\nuser_pref(\"browser.shell.checkDefaultBrowser\", false);\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_command_puts_into_its_home_is_found_in_the_real_one() {
        let folder = tempfile::tempdir().unwrap();
        let [real, made] = ["real", "home"].map(|name| folder.path().join(name));
        fs::create_dir_all(real.join("kept")).unwrap();
        fs::create_dir_all(made.join(".pki")).unwrap();
        fs::write(real.join(".history"), "old").unwrap();
        for name in ["kept", ".history"] {
            symlink(real.join(name), made.join(name)).unwrap();
        }
        let home = Home { real: real.clone(), made: made.clone() };
        fs::write(made.join("kept/page"), "through the link").unwrap();
        // As editors and shells replace files: a new one, renamed.
        fs::write(made.join(".new"), "new").unwrap();
        fs::rename(made.join(".new"), made.join(".history")).unwrap();
        fs::create_dir_all(made.join("crawl/deep")).unwrap();
        fs::write(made.join("crawl/deep/page"), "made").unwrap();
        drop(home);
        let read = |name: &str| fs::read_to_string(real.join(name)).unwrap_or_default();
        assert_eq!(read("kept/page"), "through the link");
        assert_eq!(read(".history"), "new");
        assert_eq!(read("crawl/deep/page"), "made");
        assert!(!real.join(".pki").exists());
    }
}
