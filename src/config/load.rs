//! Finding the configuration, and what its relative paths start from.

use std::path::{Path, PathBuf};

use super::{Config, Mistake, read};
use crate::app;
use crate::policy::identity;

/// A configuration, and where it comes from.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// What it says.
    pub config: Config,
    /// The file; `None` where there is none and the defaults hold.
    pub file: Option<PathBuf>,
    /// What relative paths start from: the file's folder or, without a file, the state folder.
    base: PathBuf,
    /// The platform's state folder; the file's own folder where there is none.
    state: PathBuf,
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file cannot be read.
    #[error("cannot read the configuration {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's words.
        source: std::io::Error,
    },
    /// The file has mistakes.
    #[error("{}", list(path, mistakes))]
    Mistakes {
        /// The file.
        path: PathBuf,
        /// All of them.
        mistakes: Vec<Mistake>,
    },
    /// There is no home folder to keep anything in.
    #[error("no folder for the proxy's state is known on this machine: set state_dir in a configuration file")]
    NoStateDir,
}

fn list(path: &Path, mistakes: &[Mistake]) -> String {
    let lines: Vec<String> = mistakes.iter().map(|mistake| format!("{}: {mistake}", path.display())).collect();
    lines.join("\n")
}

impl Loaded {
    /// Reads the file that was named or, where none was, `./config.toml` or the one in the platform's configuration folder.
    ///
    /// # Errors
    /// The file cannot be read or has mistakes, or there is no folder for the state.
    pub fn load(named: Option<&Path>) -> Result<Loaded, LoadError> {
        let Some(path) = named.map(Path::to_owned).or_else(default_file) else {
            let base = platform_state_dir().ok_or(LoadError::NoStateDir)?;
            return Ok(Loaded { config: Config::default(), file: None, state: base.clone(), base });
        };
        let unreadable = |source| LoadError::Unreadable { path: path.clone(), source };
        let text = std::fs::read_to_string(&path).map_err(unreadable)?;
        let config = read(&text).map_err(|mistakes| LoadError::Mistakes { path: path.clone(), mistakes })?;
        let base = std::path::absolute(&path).map_err(unreadable)?.parent().unwrap_or(Path::new("/")).to_owned();
        let state = platform_state_dir().unwrap_or_else(|| base.clone());
        Ok(Loaded { config, file: Some(path), base, state })
    }

    /// What is in order, but hardly meant; a line each.
    pub fn doubts(&self) -> Vec<String> {
        let place = self.file.as_deref().unwrap_or(Path::new("the defaults")).display();
        identity::review(&self.settings().identity).iter().map(|doubt| format!("{place}: {doubt}")).collect()
    }

    /// All of it, for the parts.
    pub fn settings(&self) -> app::Settings {
        self.config.settings_in(&self.base, &self.state)
    }
}

fn platform_folders() -> Option<directories::ProjectDirs> {
    directories::ProjectDirs::from("", "", "robots-proxy")
}

fn platform_state_dir() -> Option<PathBuf> {
    let folders = platform_folders()?;
    Some(folders.state_dir().unwrap_or(folders.data_local_dir()).to_owned())
}

fn default_file() -> Option<PathBuf> {
    let here = PathBuf::from("config.toml");
    let platform = || platform_folders().map(|folders| folders.config_dir().join("config.toml"));
    Some(here).filter(|file| file.exists()).or_else(platform).filter(|file| file.exists())
}
