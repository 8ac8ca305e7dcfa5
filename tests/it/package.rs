//! The Debian package, made by `packaging/deb` of the program that the tests were built with.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::support::program::run;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Runs it to a good end.
fn good(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// All files below a folder, as paths within it.
fn files(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => found.push(path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned()),
            }
        }
    }
    found.sort();
    found
}

/// What it installs, without the documents.
const FILES: [&str; 8] = [
    "etc/robots-proxy/config.toml",
    "usr/bin/robots-proxy",
    "usr/lib/systemd/system/robots-proxy.service",
    "usr/lib/sysusers.d/robots-proxy.conf",
    "usr/share/bash-completion/completions/robots-proxy",
    "usr/share/fish/vendor_completions.d/robots-proxy.fish",
    "usr/share/man/man1/robots-proxy.1.gz",
    "usr/share/zsh/vendor-completions/_robots-proxy",
];

#[tokio::test]
async fn the_debian_package_holds_what_a_service_needs() {
    let installed = root().join("target/cargo-deb/bin");
    assert!(installed.exists(), "cargo-deb is missing: run tests/setup/cargo-deb");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(std::iter::once(installed).chain(std::env::split_paths(&path))).unwrap();
    let made = good(Command::new(root().join("packaging/deb")).args(["dev", "--no-build"]).env("PATH", path));
    let package = PathBuf::from(String::from_utf8(made.stdout).unwrap().trim());
    let folder = tempfile::tempdir().unwrap();
    let [content, control] = ["content", "control"].map(|name| folder.path().join(name));
    for (option, to) in [("-x", &content), ("-e", &control)] {
        good(Command::new("dpkg-deb").arg(option).arg(root().join(&package)).arg(to));
    }

    let (documents, others): (Vec<_>, Vec<_>) =
        files(&content).into_iter().partition(|file| file.starts_with("usr/share/doc/robots-proxy/"));
    assert_eq!(others, FILES);
    for document in ["README.md", "config.toml.example", "clients.md", "copyright", "deploy.md", "recipes.md"] {
        assert!(documents.iter().any(|file| file.ends_with(document)), "{document} is not in {documents:?}");
    }

    let config = content.join("etc/robots-proxy/config.toml");
    assert_eq!(config.metadata().unwrap().permissions().mode() & 0o777, 0o640, "secrets belong in it");
    assert_eq!(std::fs::read_to_string(control.join("conffiles")).unwrap().trim(), "/etc/robots-proxy/config.toml");
    let ran = run(folder.path(), &["config", "check", "--config", config.to_str().unwrap()]).await;
    assert_eq!(ran.exit, 0, "{}", ran.err);
    let version = good(Command::new(content.join("usr/bin/robots-proxy")).arg("--version"));
    assert_eq!(String::from_utf8_lossy(&version.stdout), format!("robots-proxy {}\n", env!("CARGO_PKG_VERSION")));

    let unit = std::fs::read_to_string(content.join("usr/lib/systemd/system/robots-proxy.service")).unwrap();
    assert!(unit.contains("\nExecStart=/usr/bin/robots-proxy serve\n") && !unit.contains("/usr/local"), "{unit}");
    let manual = good(Command::new("gzip").arg("-dc").arg(content.join("usr/share/man/man1/robots-proxy.1.gz")));
    assert!(String::from_utf8_lossy(&manual.stdout).contains("\n.TH robots-proxy 1"));

    for script in ["postinst", "prerm", "postrm"] {
        good(Command::new("sh").arg("-n").arg(control.join(script)));
    }
    let postinst = std::fs::read_to_string(control.join("postinst")).unwrap();
    let makes_the_user = postinst.find("systemd-sysusers").unwrap();
    assert!(makes_the_user < postinst.find("chown root:robots-proxy").unwrap(), "{postinst}");
}
