//! Who may use the proxy: the users of an htpasswd file, by HTTP Basic authentication (RFC 7617).
//!
//! bcrypt is slow on purpose, some 50 ms a password, and a client sends its password with every request. So what was found right is
//! remembered, under a keyed hash and never as text, and costs one bcrypt and not one per request. A bcrypt runs on a thread of its
//! own and few at once, so that guesses do not starve requests. A name that nobody has is checked as long as a wrong password, or the
//! time would tell who has an account. Only bcrypt is read: the other forms of htpasswd are broken by a rented graphics card.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::HeaderMap;
use moka::sync::Cache;
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;

use crate::policy::identity::{Credentials, basic_credentials};

/// Who may use the proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The file of users; `None` lets everybody in, and a user name is a claim then.
    pub htpasswd: Option<PathBuf>,
}

/// The users.
pub struct Auth {
    /// bcrypt hashes by user name.
    hashes: HashMap<String, Arc<str>>,
    /// The most expensive of them, for names that nobody has.
    slowest: Arc<str>,
    /// Keyed hashes of credentials that were right.
    verified: Cache<[u8; 32], ()>,
    key: [u8; 32],
    at_once: Semaphore,
    computed: AtomicU64,
}

/// Why a client may not use the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// No user name and password, or none that can be read.
    #[error("this proxy wants a user name and a password")]
    Missing,
    /// Wrong ones.
    #[error("the user name or the password for this proxy is wrong")]
    Wrong,
}

/// Why there are no users.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file cannot be read.
    #[error("cannot read {}, named in auth.htpasswd: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's words.
        source: std::io::Error,
    },
    /// A line of it is no user.
    #[error("{}, line {line}: {what}; make entries with: htpasswd -B {} NAME", path.display(), path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The 1-based line.
        line: usize,
        /// What is wrong with it.
        what: &'static str,
    },
    /// It names nobody.
    #[error("{} holds no users, so nobody could use the proxy; make entries with: htpasswd -B {} NAME", .0.display(), .0.display())]
    Nobody(PathBuf),
    /// The system has no random numbers.
    #[error("no random numbers: {0:?}")]
    Random(rustls::crypto::GetRandomFailed),
}

/// Credentials remembered. 32 octets each and moka's own 100.
const REMEMBERED: u64 = 10_000;

impl Auth {
    /// Reads the users; `None` where nobody has to say who they are.
    ///
    /// # Errors
    /// The file cannot be read, or a line of it is no bcrypt entry.
    pub fn open(settings: &Settings) -> Result<Option<Auth>, OpenError> {
        let Some(path) = &settings.htpasswd else { return Ok(None) };
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|source| OpenError::Unreadable { path: path.clone(), source })?;
        let hashes = users(path, &text)?;
        let slowest = hashes.values().max_by_key(|hash| cost(hash)).ok_or_else(|| OpenError::Nobody(path.clone()))?;
        let mut key = [0; 32];
        let random = rustls::crypto::aws_lc_rs::default_provider().secure_random;
        random.fill(&mut key).map_err(OpenError::Random)?;
        let at_once = std::thread::available_parallelism().map_or(1, |cores| cores.get().div_ceil(2));
        Ok(Some(Auth {
            slowest: Arc::clone(slowest),
            hashes,
            verified: Cache::new(REMEMBERED),
            key,
            at_once: Semaphore::new(at_once),
            computed: AtomicU64::new(0),
        }))
    }

    /// Reads the users again. Where they are the same, so is what comes back, with the passwords that it remembers.
    ///
    /// # Errors
    /// The file cannot be read, or a line of it is no bcrypt entry.
    pub fn reopen(before: Option<&Arc<Auth>>, settings: &Settings) -> Result<Option<Arc<Auth>>, OpenError> {
        let opened = Auth::open(settings)?.map(Arc::new);
        Ok(opened.map(|auth| before.filter(|before| before.hashes == auth.hashes).map_or(auth, Arc::clone)))
    }

    /// Checks `Proxy-Authorization`.
    ///
    /// # Errors
    /// It is missing or wrong.
    pub async fn check(&self, headers: &HeaderMap) -> Result<(), Refused> {
        let credentials = basic_credentials(headers).ok_or(Refused::Missing)?;
        let remembered = self.keyed(&credentials);
        if self.verified.contains_key(&remembered) {
            return Ok(());
        }
        let _turn = self.at_once.acquire().await.expect("the semaphore is never closed");
        // Many requests of one client come together; the first one has done it for them.
        if self.verified.contains_key(&remembered) {
            return Ok(());
        }
        let known = self.hashes.get(&credentials.user);
        let (is_known, hash) = (known.is_some(), Arc::clone(known.unwrap_or(&self.slowest)));
        self.computed.fetch_add(1, Ordering::Relaxed);
        let compared = tokio::task::spawn_blocking(move || bcrypt::verify(&credentials.password, &hash));
        match compared.await {
            Ok(Ok(true)) if is_known => {
                self.verified.insert(remembered, ());
                Ok(())
            }
            _ => Err(Refused::Wrong),
        }
    }

    /// bcrypts computed since start.
    pub fn computed(&self) -> u64 {
        self.computed.load(Ordering::Relaxed)
    }

    /// SECURITY: keyed, so that neither the memory of this process nor the time of a look-up tells a password.
    fn keyed(&self, credentials: &Credentials) -> [u8; 32] {
        let hash = Sha256::new().chain_update(self.key).chain_update(credentials.user.len().to_le_bytes());
        hash.chain_update(&credentials.user).chain_update(&credentials.password).finalize().into()
    }
}

/// `name:hash`, one a line; empty lines and those that begin with `#` are left out.
fn users(path: &Path, text: &str) -> Result<HashMap<String, Arc<str>>, OpenError> {
    let mut hashes = HashMap::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim_end();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let bad = |what| OpenError::Line { path: path.to_owned(), line: number + 1, what };
        let (name, hash) = line.split_once(':').ok_or_else(|| bad("not of the form name:hash"))?;
        if name.is_empty() {
            return Err(bad("the user name is missing"));
        }
        if cost(hash).is_none_or(|cost| !(4..=31).contains(&cost)) {
            return Err(bad("not a bcrypt hash ($2y$…)"));
        }
        if hashes.insert(name.to_owned(), Arc::from(hash)).is_some() {
            return Err(bad("this user is named above already"));
        }
    }
    Ok(hashes)
}

/// The cost of a bcrypt hash: its time is two to the power of this.
fn cost(hash: &str) -> Option<u32> {
    hash.parse::<bcrypt::HashParts>().ok().map(|parts| parts.get_cost())
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use http::header::PROXY_AUTHORIZATION;

    use super::*;

    fn opened(text: &str) -> Result<Option<Auth>, OpenError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        std::fs::write(&path, text).unwrap();
        Auth::open(&Settings { htpasswd: Some(path) })
    }

    fn headers(credentials: &[u8]) -> HeaderMap {
        let value = format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(credentials));
        HeaderMap::from_iter([(PROXY_AUTHORIZATION, value.parse().unwrap())])
    }

    fn entry(name: &str, password: &str) -> String {
        format!("{name}:{}\n", bcrypt::hash(password, 4).unwrap())
    }

    #[tokio::test]
    async fn the_right_password_opens_and_costs_one_hash() {
        let file = format!("# users\n\n{}{}", entry("ann", "secret"), entry("bob", "p:w"));
        let auth = opened(&file).unwrap().unwrap();
        for _ in 0..3 {
            assert_eq!(auth.check(&headers(b"ann:secret")).await, Ok(()));
            assert_eq!(auth.check(&headers(b"bob:p:w")).await, Ok(()), "a password may hold colons");
        }
        assert_eq!(auth.computed(), 2);
        let together = (0..50).map(|_| async { auth.check(&headers(b"ann:other")).await });
        assert!(futures_util::future::join_all(together).await.iter().all(|checked| *checked == Err(Refused::Wrong)));
    }

    #[tokio::test]
    async fn a_wrong_name_costs_as_much_as_a_wrong_password_and_nothing_wrong_is_remembered() {
        let auth = opened(&entry("ann", "secret")).unwrap().unwrap();
        let wrong: [&[u8]; 6] = [b"ann:Secret", b"ann:", b"bob:secret", b":secret", b"an:nsecret", b"ann:secret\xff"];
        for (number, credentials) in wrong.iter().cycle().take(12).enumerate() {
            assert_eq!(auth.check(&headers(credentials)).await, Err(Refused::Wrong), "{credentials:?}");
            assert_eq!(auth.computed(), number as u64 + 1);
        }
        for missing in [HeaderMap::new(), headers(b"ann"), headers(b"\xff:secret")] {
            assert_eq!(auth.check(&missing).await, Err(Refused::Missing));
        }
        let mut twice = headers(b"ann:secret");
        twice.append(PROXY_AUTHORIZATION, "Basic eDp5".parse().unwrap());
        assert_eq!(auth.check(&twice).await, Err(Refused::Missing));
    }

    #[tokio::test]
    async fn a_file_that_is_read_again_keeps_what_it_remembers_unless_it_has_changed() {
        let folder = tempfile::tempdir().unwrap();
        let settings = Settings { htpasswd: Some(folder.path().join("users")) };
        let write = |text: &str| std::fs::write(folder.path().join("users"), text).unwrap();
        let (ann, bob) = (entry("ann", "secret"), entry("bob", "p"));
        write(&ann);
        let first = Auth::reopen(None, &settings).unwrap().unwrap();
        assert_eq!(first.check(&headers(b"ann:secret")).await, Ok(()));
        write(&format!("# the same\n{ann}"));
        let second = Auth::reopen(Some(&first), &settings).unwrap().unwrap();
        assert_eq!((second.check(&headers(b"ann:secret")).await, second.computed()), (Ok(()), 1));
        write(&bob);
        let third = Auth::reopen(Some(&second), &settings).unwrap().unwrap();
        assert_eq!(third.check(&headers(b"ann:secret")).await, Err(Refused::Wrong), "what was right is not any more");
        assert_eq!(third.check(&headers(b"bob:p")).await, Ok(()));
        assert!(Auth::reopen(Some(&third), &Settings::default()).unwrap().is_none());
    }

    #[test]
    fn a_bad_file_is_told_in_one_line_with_its_number() {
        let good = entry("ann", "secret");
        for (text, says) in [
            (format!("{good}bob\n"), "line 2: not of the form name:hash"),
            (format!("\n{good}:x\n"), "line 3: the user name is missing"),
            (format!("{good}bob:$apr1$x$y\n"), "line 2: not a bcrypt hash"),
            (format!("bob:secret\n{good}"), "line 1: not a bcrypt hash"),
            (good.replace("$04$", "$99$"), "line 1: not a bcrypt hash"),
            (format!("{good}{good}"), "line 2: this user is named above already"),
            ("# nobody\n".into(), "holds no users"),
        ] {
            let error = opened(&text).map(|_| ()).unwrap_err().to_string();
            assert!(error.contains(says) && error.contains("htpasswd -B") && !error.contains('\n'), "{error}");
            assert!(!error.contains("$04") && !error.contains("$apr1"), "no hash is shown: {error}");
        }
        assert!(Auth::open(&Settings { htpasswd: Some("/nowhere/users".into()) }).is_err());
        assert!(Auth::open(&Settings::default()).unwrap().is_none());
    }
}
