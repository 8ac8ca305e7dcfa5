//! `ca`: looks at the local certificate authority, renews it, hands its certificate out, and has trust stores believe it.

mod trust;

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Subcommand, ValueEnum};

use self::trust::Trust;
use crate::ca::{self, forms};
use crate::clock;
use crate::config::Loaded;

/// `ca`.
#[derive(Debug, Subcommand)]
pub(crate) enum Ca {
    /// Print the path of the certificate
    Path,
    /// Print what the certificate says
    Show,
    /// Print the certificate, for the trust store of a client
    Export {
        /// In which form
        #[arg(long, value_enum, default_value_t = Form::Pem)]
        format: Form,
        /// Write it to this file instead of standard output
        #[arg(long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Replace the certificate by one with a new life; the old files are kept beside it
    ///
    /// Key and name stay, so that clients that trust the old certificate go on until it ends. Give them the new one before.
    Renew {
        /// Make a new key, too: for a key that somebody else may have, or when ca.permitted has changed. Every client must trust the
        /// new CA then
        #[arg(long)]
        new_key: bool,
    },
    /// Have this machine's trust stores believe the CA
    ///
    /// Every program that uses a store then believes whoever has the CA's key. Prints each command before it runs it; what is in order
    /// already is left alone. To trust it in one program alone use `robots-proxy run`, or that program's own option.
    Install(Trust),
    /// Take that back
    Uninstall(Trust),
}

/// Forms of the certificate.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Form {
    /// Text, as most programs read it
    Pem,
    /// Binary, as Windows and Android read it
    Der,
    /// PKCS#12 trust store without a key, as Java and Windows read it; its password is "changeit"
    P12,
    /// The hash for Chromium's --ignore-certificate-errors-spki-list
    Spki,
}

pub(crate) fn run(config: Option<&Path>, what: &Ca) -> anyhow::Result<ExitCode> {
    let settings = Loaded::load(config)?.settings().ca;
    let load = || ca::Ca::load(&settings.dir);
    match what {
        Ca::Path => println!("{}", load()?.certificate_path().display()),
        Ca::Show => show(&load()?),
        Ca::Export { format, output } => export(&load()?, *format, output.as_deref())?,
        Ca::Renew { new_key } => told(&ca::renew(&settings, clock::wall(), *new_key)?),
        Ca::Install(options) => return trust::install(&load()?, options),
        Ca::Uninstall(options) => return trust::uninstall(&load()?, options),
    }
    Ok(ExitCode::SUCCESS)
}

/// What is to be done now.
fn told(renewed: &ca::Renewed) {
    show(&renewed.ca);
    println!("kept         {}", renewed.old_certificate.display());
    if let Some(key) = &renewed.old_key {
        println!("kept         {}", key.display());
        println!("\nRestart the proxy. Then no client trusts it until it trusts the new certificate:");
        println!("give it to every one, and take the old one out of their trust stores.");
        return;
    }
    println!(
        "\nRestart the proxy. Clients that trust the old certificate go on until {};",
        clock::rfc3339(renewed.old_not_after)
    );
    println!("give them the new one before.");
}

fn export(ca: &ca::Ca, format: Form, output: Option<&Path>) -> anyhow::Result<()> {
    let octets = match format {
        Form::Pem => ca.certificate_pem().as_bytes().to_vec(),
        Form::Der => ca.certificate_der().to_vec(),
        Form::P12 => forms::pkcs12(std::slice::from_ref(ca.certificate_der())).context("cannot write PKCS#12")?,
        Form::Spki => format!("{}\n", ca.spki_sha256_base64()).into_bytes(),
    };
    match output {
        Some(path) => std::fs::write(path, octets).with_context(|| format!("cannot write {}", path.display()))?,
        None if matches!(format, Form::Der | Form::P12) && std::io::stdout().is_terminal() => {
            bail!("this form is binary, and standard output is a terminal: add --output FILE")
        }
        None => std::io::stdout().write_all(&octets)?,
    }
    Ok(())
}

fn show(ca: &ca::Ca) {
    println!("certificate  {}", ca.certificate_path().display());
    println!("private key  {}", ca.key_path().display());
    println!("subject      {}", ca.subject());
    println!("valid from   {}", clock::rfc3339(ca.not_before()));
    println!("valid until  {}", clock::rfc3339(ca.not_after()));
    println!("signs for    {}", ca.permitted());
    println!("SHA-256      {}", ca.fingerprint());
    println!("public key   {} (sha256)", ca.spki_sha256_base64());
}
