//! `ca install` and `ca uninstall`: finds the trust stores of this machine, and has the CA believed there, or no more.
//!
//! Every command line is printed before it is run, those that need root with `sudo` in front. What is in order already is left alone.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, bail};
use clap::Args;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::ca::Ca;
use crate::ca::trust::{ANCHORS, Line, Store, Subject, name_of};

/// Which stores; without any, all that this machine has.
#[derive(Debug, Args)]
pub(crate) struct Trust {
    /// The system's trust store: curl, wget, git, Python's ssl, Ruby, Go, …
    #[arg(long)]
    system: bool,
    /// The NSS databases of this user: Chromium, and every profile of Firefox (needs certutil)
    #[arg(long)]
    nss: bool,
    /// Java's trust store (needs keytool)
    #[arg(long)]
    java: bool,
    /// Print the commands, and run none
    #[arg(long)]
    dry_run: bool,
    /// With --system: the root of another system, such as an image that is being built; its own program is then yours to run
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
}

pub(super) fn install(ca: &Ca, options: &Trust) -> anyhow::Result<ExitCode> {
    println!("Whoever has {} can then pose, towards every program that uses the", ca.key_path().display());
    println!(
        "stores below, as {}. Keep that file to yourself. ca.permitted makes a CA for some hosts alone;",
        ca.permitted()
    );
    println!("robots-proxy ca uninstall takes the trust back.");
    let (certificate, name) = (ca.certificate_path(), ca.trust_name());
    for store in stores(options)? {
        println!("\n{store}:");
        match has(&store, &name) {
            true => println!("  nothing to do: {name} is there"),
            false => perform(store.install(Subject { certificate, name: &name }), store.place(), options)?,
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Also of the certificates that the CA had before it was renewed.
pub(super) fn uninstall(ca: &Ca, options: &Trust) -> anyhow::Result<ExitCode> {
    let mut certificates = vec![(ca.certificate_path().to_owned(), ca.trust_name())];
    certificates.extend(earlier(ca.certificate_path()));
    for store in stores(options)? {
        println!("\n{store}:");
        let mut was_there = false;
        for (certificate, name) in &certificates {
            // NSS has one name for all certificates of a subject, and removes one of them at a time.
            for _ in 0..certificates.len() {
                if !has(&store, name) || (options.dry_run && was_there) {
                    break;
                }
                was_there = true;
                perform(store.uninstall(Subject { certificate, name }), store.place(), options)?;
            }
        }
        if !was_there {
            println!("  nothing to do: {} is not there", ca.trust_name());
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The certificates that `ca renew` has kept beside the present one, with the names that stores know them by.
fn earlier(present: &Path) -> Vec<(PathBuf, String)> {
    let entries = present.parent().and_then(|folder| std::fs::read_dir(folder).ok());
    let files = entries.into_iter().flatten().flatten().map(|entry| entry.path());
    let kept = files.filter(|file| file != present && file.extension().is_some_and(|extension| extension == "pem"));
    kept.filter_map(|file| {
        let certificate = CertificateDer::from_pem_file(&file).ok()?;
        Some((file, name_of(&certificate)))
    })
    .collect()
}

fn has(store: &Store, name: &str) -> bool {
    !matches!(store, Store::Nss { is_new: true, .. }) && succeeds(&store.look(name))
}

/// Prints each command, and runs it.
fn perform(lines: Vec<Line>, place: &Path, options: &Trust) -> anyhow::Result<()> {
    for line in as_whoever_may(lines, place) {
        println!("  {}", line.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "));
        if !options.dry_run {
            run(&line)?;
        }
    }
    Ok(())
}

fn stores(options: &Trust) -> anyhow::Result<Vec<Store>> {
    let all = !(options.system || options.nss || options.java);
    let mut stores = Vec::new();
    if options.system || all {
        stores.push(system(options.root.as_deref())?);
    }
    if options.root.is_some() && !options.system {
        bail!("--root is for the system's trust store alone: add --system");
    }
    if options.nss || all {
        match (program("certutil"), options.nss) {
            (Some(_), _) => stores.extend(databases()),
            (None, true) => {
                bail!("certutil is missing: install libnss3-tools (Debian), nss-tools (Fedora) or nss (Arch, Homebrew)")
            }
            (None, false) => {}
        }
    }
    if options.java || all {
        match (java(), options.java) {
            (Some(store), _) => stores.push(store),
            (None, true) => bail!("no Java is found: set JAVA_HOME, or put keytool into PATH"),
            (None, false) => {}
        }
    }
    Ok(stores)
}

fn system(root: Option<&Path>) -> anyhow::Result<Store> {
    if cfg!(target_os = "macos") && root.is_none() {
        return Ok(Store::Keychain);
    }
    let base = root.unwrap_or(Path::new("/"));
    let (folder, extension, gather) = ANCHORS
        .into_iter()
        .find(|(folder, _, _)| base.join(folder).is_dir())
        .context("no folder for additional certificates is known on this system: install ca-certificates, or use --nss or --java")?;
    Ok(Store::Anchors { folder: base.join(folder), extension, gather: if root.is_some() { &[] } else { gather } })
}

/// Folders below the user's own in which Chromium keeps its database; the first is made where there is none.
const CHROMIUM: [&str; 3] = [".pki/nssdb", ".local/share/pki/nssdb", "snap/chromium/current/.pki/nssdb"];

/// Folders with the profiles of Firefox.
const FIREFOX: [&str; 4] = [
    ".mozilla/firefox",
    ".config/mozilla/firefox",
    "snap/firefox/common/.mozilla/firefox",
    "Library/Application Support/Firefox/Profiles",
];

fn databases() -> Vec<Store> {
    let Some(home) = std::env::var_os("HOME").map(PathBuf::from) else { return Vec::new() };
    let is_there = |folder: &PathBuf| folder.join("cert9.db").exists();
    let mut folders: Vec<PathBuf> = CHROMIUM.iter().map(|folder| home.join(folder)).filter(is_there).collect();
    let mut stores = Vec::new();
    if folders.is_empty() {
        stores.push(Store::Nss { folder: home.join(CHROMIUM[0]), is_new: true });
    }
    for profiles in FIREFOX {
        let entries = std::fs::read_dir(home.join(profiles)).into_iter().flatten().flatten();
        folders.extend(entries.map(|entry| entry.path()).filter(is_there));
    }
    stores.extend(folders.into_iter().map(|folder| Store::Nss { folder, is_new: false }));
    stores
}

/// Java is where `JAVA_HOME` says, or where the keytool in `PATH` belongs to.
fn java() -> Option<Store> {
    let named = std::env::var_os("JAVA_HOME").map(PathBuf::from);
    let found = || program("keytool").and_then(|tool| Some(tool.canonicalize().ok()?.parent()?.parent()?.to_owned()));
    let home = named.or_else(found)?;
    let (keytool, keystore) = (home.join("bin/keytool"), home.join("lib/security/cacerts"));
    (keytool.exists() && keystore.exists()).then_some(Store::Java { keytool, keystore })
}

fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// With `sudo` in front where this user may not write.
fn as_whoever_may(lines: Vec<Line>, place: &Path) -> Vec<Line> {
    let existing = place.ancestors().find(|folder| folder.exists()).unwrap_or(place);
    if rustix::fs::access(existing, rustix::fs::Access::WRITE_OK).is_ok() {
        return lines;
    }
    lines.into_iter().map(|line| [vec!["sudo".to_owned()], line].concat()).collect()
}

fn succeeds(line: &Line) -> bool {
    let mut command = Command::new(&line[0]);
    command.args(&line[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn run(line: &Line) -> anyhow::Result<()> {
    let shown = line.join(" ");
    // What it prints is shown; a password that sudo asks for comes from the terminal.
    let status = Command::new(&line[0]).args(&line[1..]).status().with_context(|| format!("cannot run `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` ended with {status}; nothing after it was done");
    }
    Ok(())
}

/// As a shell takes it for one word.
fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_alphanumeric() || "_-./:=,@%+".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}
