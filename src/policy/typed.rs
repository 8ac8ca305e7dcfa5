//! URLs as people type them: the path is used octet for octet, so that spellings can be tested. A URL library would tidy it up first.

use std::borrow::Cow;

use super::target::{BadTarget, Origin};

/// A text that is no URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no URL such as https://example.com/page")]
pub struct NoUrl {
    text: String,
    source: Option<BadTarget>,
}

/// The origin, and everything after the authority as typed, from its first `/`; a fragment is never part of a request.
///
/// # Errors
/// No scheme, or an origin that cannot be.
pub fn split(url: &str) -> Result<(Origin, Cow<'_, str>), NoUrl> {
    let (authority, path) = cut(url)?;
    Ok((origin(authority)?, rooted(path)))
}

/// Scheme and authority, and the rest without a fragment.
fn cut(url: &str) -> Result<(&str, &str), NoUrl> {
    let start = url.find("://").ok_or_else(|| NoUrl { text: url.to_owned(), source: None })? + 3;
    let end = url[start..].find(['/', '?', '#']).map_or(url.len(), |place| start + place);
    let path = url[end..].split('#').next().unwrap_or_default();
    Ok((&url[..end], path))
}

fn rooted(path: &str) -> Cow<'_, str> {
    if path.starts_with('/') { path.into() } else { format!("/{path}").into() }
}

/// The origin of a URL without a path.
///
/// # Errors
/// The origin cannot be.
pub fn origin(authority: &str) -> Result<Origin, NoUrl> {
    let no_url = |source| NoUrl { text: authority.to_owned(), source };
    let uri = format!("{authority}/").parse().map_err(|_| no_url(None))?;
    Origin::of(&uri).map_err(|bad| no_url(Some(bad)))
}

/// Splits the URLs of one list; those of one site follow each other, so the last origin is remembered.
#[derive(Debug, Default)]
pub struct Splitter {
    last: Option<(String, Origin)>,
}

impl Splitter {
    /// As [`split`].
    ///
    /// # Errors
    /// As [`split`].
    pub fn split<'u>(&mut self, url: &'u str) -> Result<(&Origin, Cow<'u, str>), NoUrl> {
        let (authority, path) = cut(url)?;
        let last = match self.last.take() {
            Some(last) if last.0 == authority => last,
            _ => (authority.to_owned(), origin(authority)?),
        };
        Ok((&self.last.insert(last).1, rooted(path)))
    }
}
