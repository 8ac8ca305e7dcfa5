//! What the variables of a run name: files in a folder that only this user can look into, and that goes with the command.

use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context;
use rustls::pki_types::CertificateDer;
use tempfile::TempDir;

use super::Run;
use super::env::{self, Facts, User};
use super::home::Home;
use crate::ca::{Ca, forms};

/// The files.
pub(super) struct Files {
    added: PathBuf,
    bundle: PathBuf,
    wgetrc: PathBuf,
    java: Option<PathBuf>,
    /// Before the folder, so that it is tidied up first.
    home: Option<Home>,
    /// Removed with the value.
    _folder: TempDir,
}

impl Files {
    /// Writes them.
    pub(super) fn write(ca: &Ca, user: User<'_>, url: &str, proxy: SocketAddr, options: &Run) -> anyhow::Result<Files> {
        let folder = tempfile::Builder::new().prefix("robots-proxy-run-").tempdir();
        let folder = folder
            .context("cannot make a folder for the command's certificates; set TMPDIR to one that can be written")?;
        let [added, bundle, wgetrc, java] =
            ["ca.pem", "bundle.pem", "wgetrc", "trust.p12"].map(|name| folder.path().join(name));
        let ours = ca.certificate_der();
        let trusted = with(ours, [of_the_system(user), named(&env::REPLACING, user)].concat());
        write(&added, forms::pem(&with(ours, named(&env::ADDING, user))))?;
        write(&bundle, forms::pem(&trusted))?;
        let own = user("WGETRC").map(PathBuf::from).or_else(|| Some(Path::new(&user("HOME")?).join(".wgetrc")));
        let own = own.and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default();
        write(&wgetrc, env::wgetrc(&own, url, &bundle, options.keep_no_proxy))?;
        let java = options.java.then_some(java);
        if let Some(java) = &java {
            write(java, forms::pkcs12(&trusted).context("cannot make a trust store for Java")?)?;
        }
        let home = match options.browser {
            true => {
                let real = user("HOME").context("--browser needs HOME to be set")?;
                Some(Home::make(folder.path(), real.into(), &added, proxy)?)
            }
            false => None,
        };
        Ok(Files { added, bundle, wgetrc, java, home, _folder: folder })
    }

    /// Where they are, for the variables.
    pub(super) fn facts<'a>(&'a self, url: &'a str, proxy: SocketAddr, keep_no_proxy: bool) -> Facts<'a> {
        Facts {
            url,
            proxy,
            keep_no_proxy,
            added: &self.added,
            bundle: &self.bundle,
            wgetrc: &self.wgetrc,
            java: self.java.as_deref(),
            home: self.home.as_ref().map(Home::path),
        }
    }
}

fn write(path: &Path, content: impl AsRef<[u8]>) -> anyhow::Result<()> {
    fs::write(path, content).with_context(|| format!("cannot write {}; set TMPDIR to another folder", path.display()))
}

/// What the system trusts, whatever the user's variables say.
fn of_the_system(user: User<'_>) -> Vec<CertificateDer<'static>> {
    let mut found = rustls_native_certs::load_native_certs().certs;
    // Where these are set, nothing else has been read so far.
    if ["SSL_CERT_FILE", "SSL_CERT_DIR"].iter().any(|name| user(name).is_some()) {
        for folder in openssl_probe::candidate_cert_dirs() {
            found.extend(rustls_native_certs::load_certs_from_paths(None, Some(folder)).certs);
        }
    }
    found
}

/// What the user's own variables name.
fn named(variables: &[&str], user: User<'_>) -> Vec<CertificateDer<'static>> {
    let mut found = Vec::new();
    let mut read: Vec<OsString> = Vec::new();
    for name in variables {
        let Some(value) = user(name).filter(|value| !read.contains(value)) else { continue };
        let path = Path::new(&value);
        let (file, folder) = if path.is_dir() { (None, Some(path)) } else { (Some(path), None) };
        let certificates = rustls_native_certs::load_certs_from_paths(file, folder).certs;
        if certificates.is_empty() {
            eprintln!(
                "robots-proxy: {name} names {}, which holds no certificate in PEM form; it is left out",
                path.display()
            );
        }
        found.extend(certificates);
        read.push(value);
    }
    found
}

/// These and ours, each once.
fn with(
    ours: &CertificateDer<'static>,
    mut certificates: Vec<CertificateDer<'static>>,
) -> Vec<CertificateDer<'static>> {
    certificates.push(ours.clone());
    certificates.sort_by(|one, other| one.as_ref().cmp(other.as_ref()));
    certificates.dedup();
    certificates
}
