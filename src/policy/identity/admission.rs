//! Who is turned away for what he is, before any rule is asked.
//!
//! `identity.require` wants every client to be told by something; `identity.allow` names the tokens that a client may claim. What the
//! operator says himself, in the map, is no claim. The message says how to be told, as far as the configuration lets a client do it.

use std::fmt;

use http::HeaderName;

use super::{Identity, Settings, Source, Token};

/// Whether a client may go on as who it is.
///
/// # Errors
/// It cannot be told and must be, or it claims a token that it may not.
pub fn admit(settings: &Settings, identity: &Identity) -> Result<(), Unidentified> {
    match identity.source {
        Source::Map => Ok(()),
        Source::Default if !settings.require => Ok(()),
        Source::Default => {
            let header = settings.order.contains(&Source::Header).then(|| settings.header.clone());
            Err(Unidentified::Nobody { header, by_user_agent: settings.order.contains(&Source::UserAgent) })
        }
        Source::Header | Source::UserAgent if settings.may_claim(&identity.token) => Ok(()),
        Source::Header => {
            Err(Unidentified::NotAllowed { token: identity.token.clone(), place: settings.header.to_string() })
        }
        Source::UserAgent => {
            Err(Unidentified::NotAllowed { token: identity.token.clone(), place: "User-Agent".to_owned() })
        }
    }
}

impl Settings {
    pub(super) fn may_claim(&self, token: &Token) -> bool {
        self.allow.is_empty() || self.allow.contains(token)
    }
}

/// Why a client is turned away for what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unidentified {
    /// Nothing told which bot it is.
    Nobody {
        /// The header in which it can say so.
        header: Option<HeaderName>,
        /// Whether the User-Agent would tell.
        by_user_agent: bool,
    },
    /// It claims a token that is not in `identity.allow`.
    NotAllowed {
        /// The token.
        token: Token,
        /// The header that holds it.
        place: String,
    },
}

impl std::error::Error for Unidentified {}

impl fmt::Display for Unidentified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unidentified::NotAllowed { token, place } => write!(
                f,
                "{token}, the name in {place}, is not one that clients of this proxy may give themselves: \
                 send one that they may, or have this one added to identity.allow"
            ),
            Unidentified::Nobody { header, by_user_agent } => {
                f.write_str("this proxy must know which bot asks: ")?;
                match (header, by_user_agent) {
                    (Some(header), true) => {
                        write!(f, "send its name as in `{header}: NimbuBot`, or in the User-Agent as in `NimbuBot/1.0`")
                    }
                    (Some(header), false) => write!(f, "send its name as in `{header}: NimbuBot`"),
                    (None, true) => f.write_str("send its name in the User-Agent as in `NimbuBot/1.0`"),
                    (None, false) => f.write_str("have this client added to identity.map"),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_must_be_told_and_who_may_claim_what() {
        let settings = |require, allow: &[&str]| Settings {
            require,
            allow: allow.iter().map(|token| token.parse().unwrap()).collect(),
            ..Settings::default()
        };
        for (require, allow, token, source, admitted) in [
            (false, &[][..], "*", Source::Default, true),
            (true, &[], "*", Source::Default, false),
            (true, &[], "AnyBot", Source::Default, false),
            (true, &[], "AnyBot", Source::UserAgent, true),
            (true, &[], "AnyBot", Source::Header, true),
            (true, &["NimbuBot"], "AnyBot", Source::Map, true),
            (false, &["NimbuBot"], "*", Source::Default, true),
            (false, &["FooBot", "NimbuBot"], "nimbubot", Source::Header, true),
            (false, &["NimbuBot"], "NimbuBot-Image", Source::Header, false),
            (false, &["NimbuBot"], "curl", Source::UserAgent, false),
            (true, &["NimbuBot"], "NimbuBot", Source::UserAgent, true),
        ] {
            let identity = Identity::new(token.parse().unwrap(), source);
            let outcome = admit(&settings(require, allow), &identity);
            assert_eq!(outcome.is_ok(), admitted, "{require} {allow:?} {token} {source}");
        }
    }

    #[test]
    fn the_message_names_only_ways_that_are_open() {
        for (order, says) in [
            ("map header user-agent", "`robots-agent: NimbuBot`, or in the User-Agent as in `NimbuBot/1.0`"),
            ("map header", "send its name as in `robots-agent: NimbuBot`"),
            ("user-agent", "send its name in the User-Agent as in `NimbuBot/1.0`"),
            ("map", "have this client added to identity.map"),
        ] {
            let order = order.split(' ').map(|source| source.parse().unwrap()).collect();
            let settings = Settings { order, require: true, ..Settings::default() };
            let nobody = Identity::new(Token::star(), Source::Default);
            let told = admit(&settings, &nobody).unwrap_err().to_string();
            assert!(told.ends_with(says), "{told}");
        }
    }
}
