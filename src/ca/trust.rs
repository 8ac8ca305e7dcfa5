//! What it takes to make a trust store believe the CA, and to take it back.
//!
//! Each store becomes command lines, which are shown before they are run and can as well be pasted by hand; nothing is done here. The
//! certificate has a name that is made from its own hash, so that it is found again, two CAs do not meet, and doing everything twice
//! changes nothing.

use std::path::{Path, PathBuf};

use rustls::pki_types::CertificateDer;
use sha2::{Digest, Sha256};

use crate::hex::hex;

/// A place that programs look into for the certificates that they trust.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Store {
    /// The system's, on Linux: a file in a folder, and a program that gathers these.
    Anchors {
        /// The folder.
        folder: PathBuf,
        /// What the file's name ends in.
        extension: &'static str,
        /// The program, with its arguments; empty where it is for another system.
        gather: &'static [&'static str],
    },
    /// The system's, on macOS.
    Keychain,
    /// An NSS database: Chromium's, or that of a Firefox profile.
    Nss {
        /// Its folder.
        folder: PathBuf,
        /// Whether it must be made first.
        is_new: bool,
    },
    /// Java's.
    Java {
        /// The program that changes it.
        keytool: PathBuf,
        /// The file, usually `cacerts`.
        keystore: PathBuf,
    },
}

/// A program and its arguments.
pub type Line = Vec<String>;

/// How Linux distributions gather the certificates that an administrator adds; the first whose folder exists is meant.
pub const ANCHORS: [(&str, &str, &[&str]); 4] = [
    // Fedora, RHEL
    ("etc/pki/ca-trust/source/anchors", "pem", &["update-ca-trust", "extract"]),
    // Debian, Ubuntu, Alpine
    ("usr/local/share/ca-certificates", "crt", &["update-ca-certificates"]),
    // Arch
    ("etc/ca-certificates/trust-source/anchors", "crt", &["trust", "extract-compat"]),
    // openSUSE
    ("etc/pki/trust/anchors", "pem", &["update-ca-certificates"]),
];

/// The password of Java's own trust store.
const JAVA_PASSWORD: &str = super::forms::PASSWORD;

/// A certificate and the name that stores know it by.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The file, PEM.
    pub certificate: &'a Path,
    /// Such as `robots-proxy-1f3a9c04`.
    pub name: &'a str,
}

/// The name of a certificate.
pub fn name_of(certificate: &CertificateDer<'_>) -> String {
    format!("robots-proxy-{}", hex(&Sha256::digest(certificate)[..4]))
}

impl Store {
    /// The commands after which the certificate is trusted.
    pub fn install(&self, subject: Subject<'_>) -> Vec<Line> {
        let certificate = text(subject.certificate);
        match self {
            Store::Anchors { gather, .. } => {
                let file = text(&self.anchor(subject.name));
                with(vec![line(&["install", "-m", "644", &certificate, &file])], gather)
            }
            Store::Keychain => {
                let keychain = "/Library/Keychains/System.keychain";
                vec![line(&["security", "add-trusted-cert", "-d", "-r", "trustRoot", "-k", keychain, &certificate])]
            }
            Store::Nss { folder, is_new } => {
                let (database, folder) = (sql(folder), text(folder));
                let mut lines = Vec::new();
                if *is_new {
                    lines.push(line(&["mkdir", "-p", &folder]));
                    lines.push(line(&["certutil", "-d", &database, "-N", "--empty-password"]));
                }
                // "C": trusted to vouch for servers, and for nothing else.
                let name = subject.name;
                lines.push(line(&["certutil", "-d", &database, "-A", "-t", "C,,", "-n", name, "-i", &certificate]));
                lines
            }
            Store::Java { .. } => {
                vec![self.keytool(&["-importcert", "-noprompt", "-alias", subject.name, "-file", &certificate])]
            }
        }
    }

    /// The commands after which it is trusted no more.
    pub fn uninstall(&self, subject: Subject<'_>) -> Vec<Line> {
        match self {
            Store::Anchors { gather, .. } => with(vec![line(&["rm", "-f", &text(&self.anchor(subject.name))])], gather),
            Store::Keychain => vec![line(&["security", "remove-trusted-cert", "-d", &text(subject.certificate)])],
            Store::Nss { folder, .. } => vec![line(&["certutil", "-d", &sql(folder), "-D", "-n", subject.name])],
            Store::Java { .. } => vec![self.keytool(&["-delete", "-alias", subject.name])],
        }
    }

    /// The command that succeeds where the certificate is in the store.
    pub fn look(&self, name: &str) -> Line {
        match self {
            Store::Anchors { .. } => line(&["test", "-e", &text(&self.anchor(name))]),
            Store::Keychain => {
                line(&["security", "find-certificate", "-c", name, "/Library/Keychains/System.keychain"])
            }
            Store::Nss { folder, .. } => line(&["certutil", "-d", &sql(folder), "-L", "-n", name]),
            Store::Java { .. } => self.keytool(&["-list", "-alias", name]),
        }
    }

    /// What must be writable; where it is not, root has to do it.
    pub fn place(&self) -> &Path {
        match self {
            Store::Anchors { folder, .. } | Store::Nss { folder, .. } => folder,
            Store::Keychain => Path::new("/Library/Keychains/System.keychain"),
            Store::Java { keystore, .. } => keystore,
        }
    }

    fn anchor(&self, name: &str) -> PathBuf {
        match self {
            Store::Anchors { folder, extension, .. } => folder.join(format!("{name}.{extension}")),
            _ => PathBuf::new(),
        }
    }

    fn keytool(&self, arguments: &[&str]) -> Line {
        let Store::Java { keytool, keystore } = self else { return Vec::new() };
        let (keytool, keystore) = (text(keytool), text(keystore));
        let store = ["-keystore", &keystore, "-storepass", JAVA_PASSWORD];
        line(&[&[keytool.as_str()][..], &arguments[..1], &store, &arguments[1..]].concat())
    }
}

impl std::fmt::Display for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Store::Anchors { folder, .. } => write!(f, "the system's trust store ({})", folder.display()),
            Store::Keychain => f.write_str("the system's keychain"),
            Store::Nss { folder, .. } => write!(f, "the NSS database {}", folder.display()),
            Store::Java { keystore, .. } => write!(f, "Java's trust store {}", keystore.display()),
        }
    }
}

fn line(words: &[&str]) -> Line {
    words.iter().map(|&word| word.to_owned()).collect()
}

fn with(mut lines: Vec<Line>, gather: &[&str]) -> Vec<Line> {
    if !gather.is_empty() {
        lines.push(line(gather));
    }
    lines
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn sql(folder: &Path) -> String {
    format!("sql:{}", folder.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(lines: Vec<Line>) -> String {
        lines.iter().map(|line| line.join(" ")).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn each_store_has_its_commands_and_takes_back_what_it_did() {
        let subject = Subject { certificate: Path::new("/ca.pem"), name: "robots-proxy-1f3a9c04" };
        let anchors = |number: usize| {
            let (folder, extension, gather) = ANCHORS[number];
            Store::Anchors { folder: Path::new("/").join(folder), extension, gather }
        };
        let nss = |is_new| Store::Nss { folder: "/home/me/.pki/nssdb".into(), is_new };
        let java = Store::Java { keytool: "keytool".into(), keystore: "/java/cacerts".into() };
        for (store, install, uninstall) in [
            (
                anchors(1),
                "install -m 644 /ca.pem /usr/local/share/ca-certificates/robots-proxy-1f3a9c04.crt; update-ca-certificates",
                "rm -f /usr/local/share/ca-certificates/robots-proxy-1f3a9c04.crt; update-ca-certificates",
            ),
            (
                anchors(0),
                "install -m 644 /ca.pem /etc/pki/ca-trust/source/anchors/robots-proxy-1f3a9c04.pem; update-ca-trust extract",
                "rm -f /etc/pki/ca-trust/source/anchors/robots-proxy-1f3a9c04.pem; update-ca-trust extract",
            ),
            (
                nss(false),
                "certutil -d sql:/home/me/.pki/nssdb -A -t C,, -n robots-proxy-1f3a9c04 -i /ca.pem",
                "certutil -d sql:/home/me/.pki/nssdb -D -n robots-proxy-1f3a9c04",
            ),
            (
                nss(true),
                "mkdir -p /home/me/.pki/nssdb; certutil -d sql:/home/me/.pki/nssdb -N --empty-password; \
                 certutil -d sql:/home/me/.pki/nssdb -A -t C,, -n robots-proxy-1f3a9c04 -i /ca.pem",
                "certutil -d sql:/home/me/.pki/nssdb -D -n robots-proxy-1f3a9c04",
            ),
            (
                java,
                "keytool -importcert -keystore /java/cacerts -storepass changeit -noprompt -alias robots-proxy-1f3a9c04 -file /ca.pem",
                "keytool -delete -keystore /java/cacerts -storepass changeit -alias robots-proxy-1f3a9c04",
            ),
        ] {
            assert_eq!(shown(store.install(subject)), install);
            assert_eq!(shown(store.uninstall(subject)), uninstall);
        }
    }
}
