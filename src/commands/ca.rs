//! `ca`: looks at the local certificate authority, and renews it.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::{Subcommand, ValueEnum};

use crate::ca;
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
}

/// Forms of the certificate.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Form {
    /// Text, as most programs read it
    Pem,
    /// Binary, as Windows and Android read it
    Der,
    /// The hash for Chromium's --ignore-certificate-errors-spki-list
    Spki,
}

pub(crate) fn run(config: Option<&Path>, what: &Ca) -> anyhow::Result<ExitCode> {
    let settings = Loaded::load(config)?.settings().ca;
    let load = || ca::Ca::load(&settings.dir);
    match what {
        Ca::Path => println!("{}", load()?.certificate_path().display()),
        Ca::Show => show(&load()?),
        Ca::Export { format: Form::Pem } => print!("{}", load()?.certificate_pem()),
        Ca::Export { format: Form::Der } => std::io::stdout().write_all(load()?.certificate_der())?,
        Ca::Export { format: Form::Spki } => println!("{}", load()?.spki_sha256_base64()),
        Ca::Renew { new_key } => told(&ca::renew(&settings, clock::wall(), *new_key)?),
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
