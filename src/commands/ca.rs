//! `ca`: looks at the local certificate authority.

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
    let ca = ca::Ca::load(&Loaded::load(config)?.settings().ca.dir)?;
    match what {
        Ca::Path => println!("{}", ca.certificate_path().display()),
        Ca::Show => show(&ca),
        Ca::Export { format: Form::Pem } => print!("{}", ca.certificate_pem()),
        Ca::Export { format: Form::Der } => std::io::stdout().write_all(ca.certificate_der())?,
        Ca::Export { format: Form::Spki } => println!("{}", ca.spki_sha256_base64()),
    }
    Ok(ExitCode::SUCCESS)
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
