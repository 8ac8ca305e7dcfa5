//! `config`: validates or shows the configuration.

use std::path::Path;
use std::process::ExitCode;

use clap::Subcommand;

use crate::config::Loaded;

/// `config`.
#[derive(Debug, Subcommand)]
pub(crate) enum Config {
    /// Tell every mistake in the configuration
    Check,
    /// Print the configuration in force, defaults included
    Show,
}

pub(crate) fn run(config: Option<&Path>, what: &Config) -> anyhow::Result<ExitCode> {
    let loaded = Loaded::load(config)?;
    let source =
        loaded.file.as_ref().map_or("no file, so the defaults hold".to_owned(), |file| file.display().to_string());
    match what {
        Config::Check => {
            println!("in order: {source}");
            loaded.doubts().iter().for_each(|doubt| eprintln!("warning: {doubt}"));
        }
        Config::Show => print!("# {source}\n{}", toml::to_string(&loaded.config)?),
    }
    Ok(ExitCode::SUCCESS)
}
