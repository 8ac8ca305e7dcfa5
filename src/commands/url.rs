//! URLs as people type them: the path is used octet for octet, so that spellings can be tested. A URL library would tidy it up first.

use anyhow::Context;

use crate::policy::target::Origin;

/// The origin, and everything after the authority as typed, from its first `/`; a fragment is never part of a request.
pub(super) fn split(url: &str) -> anyhow::Result<(Origin, String)> {
    let (authority, path) = cut(url)?;
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    Ok((origin(authority)?, path))
}

/// Scheme and authority, and the rest without a fragment.
fn cut(url: &str) -> anyhow::Result<(&str, &str)> {
    let start = url.find("://").with_context(|| no_url(url))? + 3;
    let end = url[start..].find(['/', '?', '#']).map_or(url.len(), |place| start + place);
    let path = url[end..].split('#').next().unwrap_or_default();
    Ok((&url[..end], path))
}

/// The origin of a URL without a path.
pub(super) fn origin(authority: &str) -> anyhow::Result<Origin> {
    let uri = format!("{authority}/").parse().with_context(|| no_url(authority))?;
    Origin::of(&uri).with_context(|| no_url(authority))
}

fn no_url(text: &str) -> String {
    format!("{text:?} is no URL such as https://example.com/page")
}

/// Splits the URLs of one list; those of one site follow each other, so the last origin is remembered.
#[derive(Default)]
pub(super) struct Splitter {
    authority: String,
    origin: Option<Origin>,
}

impl Splitter {
    /// As [`split`]; the path is borrowed where it can be.
    pub(super) fn split<'u>(&mut self, url: &'u str) -> anyhow::Result<(&Origin, std::borrow::Cow<'u, str>)> {
        let (authority, path) = cut(url)?;
        if self.origin.is_none() || self.authority != authority {
            self.origin = Some(origin(authority)?);
            self.authority = authority.to_owned();
        }
        let path = if path.starts_with('/') { path.into() } else { format!("/{path}").into() };
        Ok((self.origin.as_ref().context("just set")?, path))
    }
}
