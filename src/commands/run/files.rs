//! What the variables of a run name: files in a folder that only this user can look into, and that goes with the command.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use rustls::pki_types::CertificateDer;
use tempfile::TempDir;

use super::env::{self, Facts, User};
use crate::ca::Ca;

/// The files.
pub(super) struct Files {
    /// Removed with the value.
    _folder: TempDir,
    added: PathBuf,
    bundle: PathBuf,
    wgetrc: PathBuf,
}

impl Files {
    /// Writes them.
    pub(super) fn write(ca: &Ca, user: User<'_>, url: &str, keep_no_proxy: bool) -> anyhow::Result<Files> {
        let folder = tempfile::Builder::new().prefix("robots-proxy-run-").tempdir();
        let folder = folder
            .context("cannot make a folder for the command's certificates; set TMPDIR to one that can be written")?;
        let [added, bundle, wgetrc] = ["ca.pem", "bundle.pem", "wgetrc"].map(|name| folder.path().join(name));
        let ours = ca.certificate_der().clone();
        let write = |path: &Path, text: String| {
            fs::write(path, text)
                .with_context(|| format!("cannot write {}; set TMPDIR to another folder", path.display()))
        };
        write(&added, pem(named(&env::ADDING, user), &ours))?;
        write(&bundle, pem([of_the_system(user), named(&env::REPLACING, user)].concat(), &ours))?;
        let own = user("WGETRC").map(PathBuf::from).or_else(|| Some(Path::new(&user("HOME")?).join(".wgetrc")));
        let own = own.and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default();
        write(&wgetrc, env::wgetrc(&own, url, &bundle, keep_no_proxy))?;
        Ok(Files { _folder: folder, added, bundle, wgetrc })
    }

    /// Where they are, for the variables.
    pub(super) fn facts<'a>(&'a self, url: &'a str, keep_no_proxy: bool) -> Facts<'a> {
        Facts { url, keep_no_proxy, added: &self.added, bundle: &self.bundle, wgetrc: &self.wgetrc }
    }
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
fn pem(mut certificates: Vec<CertificateDer<'static>>, ours: &CertificateDer<'static>) -> String {
    certificates.push(ours.clone());
    certificates.sort_by(|one, other| one.as_ref().cmp(other.as_ref()));
    certificates.dedup();
    let blocks: Vec<pem::Pem> = certificates.iter().map(|der| pem::Pem::new("CERTIFICATE", der.to_vec())).collect();
    pem::encode_many_config(&blocks, pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF))
}
