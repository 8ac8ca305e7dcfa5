//! A new certificate for a CA that nears its end, or a new CA for one whose key somebody else may have.
//!
//! With the same key and name the two certificates stand for each other: clients that trust the old one go on until it ends, and
//! nobody has to visit them all in one night. Only what this program made is renewed, since it cannot know what else an operator's own
//! authority put into a certificate. The old files stay beside the new ones.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rcgen::DnType;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use super::{Ca, Error, Files, ORGANIZATION, Permitted, Settings, make, parse_chain, root};
use crate::clock;

/// A CA that was renewed.
#[derive(Debug)]
pub struct Renewed {
    /// The CA as it is now.
    pub ca: Ca,
    /// The certificate as it was.
    pub old_certificate: PathBuf,
    /// The key as it was, where there is a new one.
    pub old_key: Option<PathBuf>,
    /// When the old certificate ends.
    pub old_not_after: SystemTime,
}

/// Renews the CA of this folder: its certificate, or with `new_key` all of it.
///
/// # Errors
/// There is none, it is not of our making, or a file cannot be written; what was there is there still.
pub fn renew(settings: &Settings, now: SystemTime, new_key: bool) -> Result<Renewed, Error> {
    let files = Files::of(&settings.dir);
    files.check_complete()?;
    let _turn = files.turn();
    let pem = files.read_certificate()?;
    let old_not_after = check_is_ours(&files, &pem)?;
    let permitted = Permitted::new(&settings.permitted);
    let (key, certificate) = match new_key {
        true => make(now, &permitted).map(|(key, certificate)| (Some(key), certificate))?,
        false => (None, again(&settings.dir, now, &permitted)?),
    };
    let time = clock::rfc3339(now).replace(['-', ':'], "");
    let old_certificate = files.keep(&files.certificate, &time)?;
    let old_key = key.as_ref().map(|_| files.keep(&files.key, &time)).transpose()?;
    if let Some(key) = key {
        files.replace_key(&key)?;
    }
    files.replace_certificate(&certificate)?;
    Ok(Renewed { ca: Ca::load(&settings.dir)?, old_certificate, old_key, old_not_after })
}

/// The certificate of the same key and name, with a life and a serial of its own.
fn again(dir: &Path, now: SystemTime, permitted: &Permitted) -> Result<String, Error> {
    let old = Ca::load(dir)?;
    let mut params = root(now)?;
    let (_, certificate) = X509Certificate::from_der(old.certificate_der())
        .map_err(|_| Error::NotACertificate(old.certificate_path().to_owned()))?;
    let mut names = certificate.subject().iter_common_name().filter_map(|name| name.as_str().ok());
    params.distinguished_name.push(DnType::CommonName, names.next().unwrap_or_default());
    params.name_constraints = permitted.constraints();
    Ok(params.self_signed(old.issuer.key())?.pem())
}

/// Whether a certificate is one that [`make`] or [`again`] made; and when it ends.
fn check_is_ours(files: &Files, pem: &str) -> Result<SystemTime, Error> {
    let chain = parse_chain(files, pem)?;
    let (_, certificate) =
        X509Certificate::from_der(&chain[0]).map_err(|_| Error::NotACertificate(files.certificate.clone()))?;
    let made_here = certificate.subject().iter_organization().any(|name| name.as_str() == Ok(ORGANIZATION));
    match made_here && certificate.subject().as_raw() == certificate.issuer().as_raw() {
        true => Ok(super::unix_time(certificate.validity().not_after.timestamp())),
        false => Err(Error::NotOurs(files.certificate.clone())),
    }
}
