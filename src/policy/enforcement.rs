//! What is enforced of what is decided.
//!
//! Everything is always decided; whether it is also done depends on who asks (observe mode, for all bots or for one) and on the site (an
//! exception: it gave its permission, or is the operator's own). An exception lifts what robots.txt forbids and nothing else: permission
//! for a page is no permission to ask for pages in a hurry, so the pace stays. What protects the proxy and its network is never lifted. Pure.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::host::HostPattern;
use super::identity::{Identity, Token};
use super::reason::Reason;

/// Whether decisions are put into practice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// They are.
    #[default]
    Enforce,
    /// They are recorded, but nothing is refused or delayed.
    Observe,
}

impl Mode {
    /// The word in configuration and records.
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::Enforce => "enforce",
            Mode::Observe => "observe",
        }
    }
}

impl FromStr for Mode {
    type Err = InvalidMode;

    fn from_str(text: &str) -> Result<Mode, InvalidMode> {
        [Mode::Enforce, Mode::Observe].into_iter().find(|mode| mode.as_str() == text).ok_or(InvalidMode)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A text that is no mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("use \"enforce\" or \"observe\"")]
pub struct InvalidMode;

/// A site whose rules are recorded, but not enforced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exception {
    /// The hosts that are meant.
    pub host: HostPattern,
    /// The bot that is meant; `None` is all.
    pub token: Option<Token>,
    /// Why, for every record.
    pub reason: Arc<str>,
}

impl Exception {
    /// The first exception for a bot at a host.
    pub fn find<'a>(exceptions: &'a [Exception], token: &Token, host: &str) -> Option<&'a Exception> {
        let is_meant = |it: &&Exception| it.host.matches(host) && it.token.as_ref().is_none_or(|meant| meant == token);
        exceptions.iter().find(is_meant)
    }

    /// Why a bot, by its name as typed, is let through at a host, whatever robots.txt says.
    pub fn reason_for<'a>(exceptions: &'a [Exception], agent: &str, host: &str) -> Option<&'a str> {
        let token: Token = agent.parse().ok()?;
        Some(&*Exception::find(exceptions, &token, host)?.reason)
    }
}

/// What is enforced on one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enforcement {
    /// Of all that is decided.
    pub mode: Mode,
    /// Why the site's rules are not enforced, where they are not.
    pub exception: Option<Arc<str>>,
}

impl Enforcement {
    /// What is enforced on a bot at a host, where `mode` is for bots that have none of their own.
    pub fn of(identity: &Identity, host: &str, mode: Mode, exceptions: &[Exception]) -> Enforcement {
        let exception = Exception::find(exceptions, &identity.token, host);
        Enforcement {
            mode: identity.mode.unwrap_or(mode),
            exception: exception.map(|exception| Arc::clone(&exception.reason)),
        }
    }

    /// Whether a request goes on that was refused for this reason.
    pub fn waives(&self, reason: Reason) -> bool {
        match reason {
            _ if reason.is_by_rules() => self.mode == Mode::Observe || self.exception.is_some(),
            Reason::Unidentified | Reason::QueueFull | Reason::WaitTooLong => self.mode == Mode::Observe,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::identity::Source;
    use super::*;

    fn exception(host: &str, token: Option<&str>, reason: &str) -> Exception {
        let token = token.map(|token| token.parse().unwrap());
        Exception { host: host.parse().unwrap(), token, reason: reason.into() }
    }

    fn identity(token: &str, mode: Option<Mode>) -> Identity {
        Identity { mode, ..Identity::new(token.parse().unwrap(), Source::Header) }
    }

    #[test]
    fn the_first_exception_for_host_and_bot_is_the_one_that_is_told() {
        let exceptions = [
            exception("a.test", Some("NimbuBot"), "first"),
            exception("*.a.test", None, "below"),
            exception("a.test", None, "last"),
        ];
        for (token, host, reason) in [
            ("NimbuBot", "a.test", Some("first")),
            ("nimbubot", "A.test", Some("first")),
            ("FooBot", "a.test", Some("last")),
            ("*", "a.test", Some("last")),
            ("NimbuBot", "www.a.test", Some("below")),
            ("NimbuBot", "b.test", None),
            ("NimbuBot", "xa.test", None),
        ] {
            let found = Enforcement::of(&identity(token, None), host, Mode::Enforce, &exceptions);
            assert_eq!(found.exception.as_deref(), reason, "{token} {host}");
        }
    }

    #[test]
    fn a_bot_of_its_own_mode_minds_no_other() {
        for (own, all, holds) in [
            (None, Mode::Enforce, Mode::Enforce),
            (None, Mode::Observe, Mode::Observe),
            (Some(Mode::Observe), Mode::Enforce, Mode::Observe),
            (Some(Mode::Enforce), Mode::Observe, Mode::Enforce),
        ] {
            assert_eq!(Enforcement::of(&identity("A", own), "a.test", all, &[]).mode, holds);
        }
    }

    #[test]
    fn an_exception_lifts_the_rules_and_observe_mode_the_pace_too_but_nothing_lifts_a_guard() {
        let exception = Enforcement { mode: Mode::Enforce, exception: Some("mine".into()) };
        let observe = Enforcement { mode: Mode::Observe, exception: None };
        for (reason, by_exception, by_observe) in [
            (Reason::Disallowed, true, true),
            (Reason::RobotsUnavailable, true, true),
            (Reason::RobotsUnreachable, true, true),
            (Reason::Unidentified, false, true),
            (Reason::WaitTooLong, false, true),
            (Reason::QueueFull, false, true),
            (Reason::PrivateAddress, false, false),
            (Reason::Loop, false, false),
            (Reason::AuthenticationRequired, false, false),
            (Reason::ClientLimit, false, false),
            (Reason::BadRequest, false, false),
            (Reason::AuthorityMismatch, false, false),
        ] {
            assert_eq!((exception.waives(reason), observe.waives(reason)), (by_exception, by_observe), "{reason:?}");
        }
        let neither = Enforcement { mode: Mode::Enforce, exception: None };
        assert!(!neither.waives(Reason::Disallowed));
    }
}
