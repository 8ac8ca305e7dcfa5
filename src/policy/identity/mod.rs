//! Which bot is asking.
//!
//! A client says so in one of several ways, and an operator may know better than the client; the sources are asked in
//! the order of the configuration and the first that answers wins. A header that cannot be understood is an error and
//! never `*`: a bot that spelled its name wrongly would otherwise go by the rules for everybody and nobody would
//! notice. Who has been told by nothing, or claims a name that is not his to claim, is turned away by [`admit`]. Reading a User-Agent is
//! in `policy/user_agent.rs`.

mod admission;
mod credentials;
mod last;
mod map;
mod review;
mod token;

use std::borrow::Cow;
use std::cell::LazyCell;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use http::header::{HeaderMap, HeaderName, HeaderValue, USER_AGENT};

pub use self::admission::{Unidentified, admit};
pub use self::credentials::{Credentials, basic_credentials, basic_user};
pub use self::last::LastUserAgent;
pub use self::map::MapEntry;
pub use self::review::{Doubt, review};
pub(super) use self::token::LONGEST_TOKEN;
pub use self::token::{InvalidToken, Token};
pub use super::user_agent::token_in_user_agent;

use super::enforcement::Mode;

/// A bot's product token and how we know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// What is compared with `User-agent:` lines.
    pub token: Token,
    /// What told it.
    pub source: Source,
    /// The other name, where header and User-Agent hold two.
    pub conflict: Option<Token>,
    /// Whether what is decided about this bot is enforced; `None` is as for all others.
    pub mode: Option<Mode>,
    /// The User-Agent that goes on in place of the client's.
    pub send_user_agent: Option<HeaderValue>,
}

impl Identity {
    /// A token, and what told it.
    pub fn new(token: Token, source: Source) -> Identity {
        Identity { token, source, conflict: None, mode: None, send_user_agent: None }
    }
}

/// How identities are told.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The sources in the order in which they are asked.
    pub order: Vec<Source>,
    /// The request header in which a client names itself.
    pub header: HeaderName,
    /// The token of a client that cannot be told.
    pub default: Token,
    /// Whether such a client is turned away.
    pub require: bool,
    /// The tokens that a client may claim by header or User-Agent; any, where there are none.
    pub allow: Vec<Token>,
    /// What the operator knows; the first entry that fits wins.
    pub map: Vec<MapEntry>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            order: vec![Source::Map, Source::Header, Source::UserAgent, Source::Default],
            header: HeaderName::from_static("robots-agent"),
            default: Token::star(),
            require: false,
            allow: Vec::new(),
            map: Vec::new(),
        }
    }
}

/// What is known of a request before anybody has been told from it.
#[derive(Clone, Copy, Debug)]
pub struct Asking<'a> {
    /// The user name given to the proxy.
    pub user: Option<&'a str>,
    /// The peer of the socket, whatever headers say.
    pub client: IpAddr,
    /// The target's host.
    pub host: &'a str,
    /// The request's own headers.
    pub headers: &'a HeaderMap,
    /// The headers of the CONNECT that the request came through: what they say holds for the tunnel, unless the request
    /// says otherwise.
    pub tunnel: Option<&'a HeaderMap>,
    /// What was read on its connection before.
    pub last: &'a LastUserAgent,
}

/// Tells who is asking, by the first source that answers; by the default if none does.
pub fn identify(settings: &Settings, asking: &Asking<'_>) -> Result<Identity, MalformedIdentity> {
    let header = LazyCell::new(|| by_header(&settings.header, asking));
    for &source in &settings.order {
        let told = match source {
            Source::Map => by_map(&settings.map, asking),
            Source::Header => header.clone()?.map(|token| Identity {
                conflict: by_user_agent(asking).filter(|other| *other != token),
                ..Identity::new(token, source)
            }),
            Source::UserAgent => by_user_agent(asking).map(|token| Identity {
                conflict: header.clone().ok().flatten().filter(|other| *other != token),
                ..Identity::new(token, source)
            }),
            Source::Default => break,
        };
        if let Some(identity) = told {
            return Ok(identity);
        }
    }
    Ok(Identity::new(settings.default.clone(), Source::Default))
}

fn by_map(map: &[MapEntry], asking: &Asking<'_>) -> Option<Identity> {
    map.iter().find(|entry| entry.fits(asking)).map(|entry| Identity {
        mode: entry.mode,
        send_user_agent: entry.send_user_agent.clone(),
        ..Identity::new(entry.token.clone(), Source::Map)
    })
}

fn by_header(name: &HeaderName, asking: &Asking<'_>) -> Result<Option<Token>, MalformedIdentity> {
    let Some(headers) = asking.headers_with(name) else { return Ok(None) };
    let mut told: Option<Token> = None;
    for value in headers.get_all(name) {
        let token =
            token_in_header(value.as_bytes()).ok_or_else(|| MalformedIdentity::NoToken { header: name.clone() })?;
        match &told {
            Some(first) if *first != token => {
                return Err(MalformedIdentity::Contradictory {
                    header: name.clone(),
                    first: first.clone(),
                    second: token,
                });
            }
            _ => told = Some(token),
        }
    }
    Ok(told)
}

/// `NimbuBot`, `NimbuBot/1.0` and `NimbuBot/1.0 (comment)`. Not `*`: a client has a name, or leaves the header out.
fn token_in_header(value: &[u8]) -> Option<Token> {
    let value = str::from_utf8(value).ok()?.trim_matches([' ', '\t']);
    let (product, comment) = match value.split_once([' ', '\t']) {
        Some((product, comment)) => (product, comment.trim_start_matches([' ', '\t'])),
        None => (value, ""),
    };
    let (name, version) = product.split_once('/').unwrap_or((product, "-"));
    let is_version = |byte: u8| byte.is_ascii_graphic() && !b"/,;()\"".contains(&byte);
    let is_comment = comment.is_empty() || (comment.starts_with('(') && comment.ends_with(')'));
    if name == "*" || version.is_empty() || !version.bytes().all(is_version) || !is_comment {
        return None;
    }
    name.parse().ok()
}

fn by_user_agent(asking: &Asking<'_>) -> Option<Token> {
    let value = asking.headers_with(&USER_AGENT)?.get(USER_AGENT)?;
    asking.last.token(value)
}

impl<'a> Asking<'a> {
    /// The request's headers if they have this one, else the tunnel's if those do.
    fn headers_with(&self, name: &HeaderName) -> Option<&'a HeaderMap> {
        [Some(self.headers), self.tunnel].into_iter().flatten().find(|headers| headers.contains_key(name))
    }

    /// Octets that are no UTF-8 are replaced: the name is often plain where the rest of the string is not.
    fn user_agent(&self) -> Option<Cow<'a, str>> {
        let value = self.headers_with(&USER_AGENT)?.get(USER_AGENT)?;
        Some(String::from_utf8_lossy(value.as_bytes()))
    }
}

/// What told an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// The operator's map.
    Map,
    /// The identity header.
    Header,
    /// The name in the User-Agent.
    UserAgent,
    /// Nothing did.
    Default,
}

impl Source {
    /// The word in configuration and records.
    pub fn as_str(self) -> &'static str {
        match self {
            Source::Map => "map",
            Source::Header => "header",
            Source::UserAgent => "user-agent",
            Source::Default => "default",
        }
    }
}

impl FromStr for Source {
    type Err = InvalidSource;

    fn from_str(text: &str) -> Result<Source, InvalidSource> {
        let sources = [Source::Map, Source::Header, Source::UserAgent, Source::Default];
        sources.into_iter().find(|source| source.as_str() == text).ok_or_else(|| InvalidSource(text.to_owned()))
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A header that names nobody, or two.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MalformedIdentity {
    /// The value is no product token.
    #[error(
        "{header} must hold one product token of letters, digits, `.`, `_` and `-`, \
         as in `NimbuBot` or `NimbuBot/1.0 (comment)`"
    )]
    NoToken {
        /// The header at fault.
        header: HeaderName,
    },
    /// Two values that differ.
    #[error("{header} names both {first} and {second}: send one of them")]
    Contradictory {
        /// The header at fault.
        header: HeaderName,
        /// One name.
        first: Token,
        /// The other.
        second: Token,
    },
}

/// A text that is no source of identities.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} tells no identity: use \"map\", \"header\", \"user-agent\" or \"default\"")]
pub struct InvalidSource(String);

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&str, &str)]) -> HeaderMap {
        lines
            .iter()
            .map(|(name, value)| {
                (name.parse::<HeaderName>().unwrap(), http::HeaderValue::from_bytes(value.as_bytes()).unwrap())
            })
            .collect()
    }

    fn token(text: &str) -> Token {
        text.parse().unwrap()
    }

    /// `token source`, or the error.
    fn told(settings: &Settings, own: &[(&str, &str)], tunnel: Option<&[(&str, &str)]>) -> String {
        let (own, tunnel) = (headers(own), tunnel.map(headers));
        let client = "192.0.2.7".parse().unwrap();
        let asking = Asking {
            user: None,
            client,
            host: "www.example.com",
            headers: &own,
            tunnel: tunnel.as_ref(),
            last: &LastUserAgent::default(),
        };
        match identify(settings, &asking) {
            Ok(identity) => format!("{} {}", identity.token, identity.source),
            Err(error) => error.to_string(),
        }
    }

    const MALFORMED: &str = "robots-agent must hold one product token of letters, digits, `.`, `_` and `-`, \
                             as in `NimbuBot` or `NimbuBot/1.0 (comment)`";

    #[test]
    fn the_first_source_that_answers_wins() {
        let agent = ("user-agent", "FooBot/1.0");
        let header = ("robots-agent", "NimbuBot");
        let mapped = |order: &str| Settings {
            order: order.split(' ').map(|source| source.parse().unwrap()).collect(),
            map: vec![MapEntry::of(token("MapBot"))],
            ..Settings::default()
        };
        let cases = [
            (Settings::default(), vec![header, agent], "NimbuBot header"),
            (Settings::default(), vec![agent], "FooBot user-agent"),
            (Settings::default(), vec![], "* default"),
            (mapped("map header"), vec![header, agent], "MapBot map"),
            (mapped("header map"), vec![header, agent], "NimbuBot header"),
            (mapped("user-agent header map"), vec![header, agent], "FooBot user-agent"),
            (mapped("user-agent header map"), vec![header], "NimbuBot header"),
            (mapped("default map"), vec![header, agent], "* default"),
            (mapped("header"), vec![agent], "* default"),
            (mapped("map header"), vec![("robots-agent", "a b")], "MapBot map"),
        ];
        for (settings, own, expected) in cases {
            assert_eq!(told(&settings, &own, None), expected, "{:?} {own:?}", settings.order);
        }
    }

    #[test]
    fn the_header_holds_one_token_or_fails_loudly() {
        let cases = [
            ("NimbuBot", "NimbuBot header"),
            (" NimbuBot\t", "NimbuBot header"),
            ("NimbuBot/1.0", "NimbuBot header"),
            ("NimbuBot/1.0 (+https://nimbu.example/bot; Größe)", "NimbuBot header"),
            ("NimbuBot (comment)", "NimbuBot header"),
            ("archive.org_bot", "archive.org_bot header"),
            ("MJ12bot/v1.4.8", "MJ12bot header"),
            ("", MALFORMED),
            ("*", MALFORMED),
            ("Nimbu Bot", MALFORMED),
            ("NimbuBot, FooBot", MALFORMED),
            ("NimbuBot/", MALFORMED),
            ("/1.0", MALFORMED),
            ("NimbuBot/1.0 FooBot/1.0", MALFORMED),
            ("NimbuBot;q=1", MALFORMED),
            ("Nimbü", MALFORMED),
        ];
        for (value, expected) in cases {
            assert_eq!(told(&Settings::default(), &[("robots-agent", value)], None), expected, "{value:?}");
        }
        let long = "a".repeat(LONGEST_TOKEN + 1);
        assert_eq!(told(&Settings::default(), &[("robots-agent", &long)], None), MALFORMED);
    }

    #[test]
    fn two_names_in_the_header_are_an_error() {
        let both =
            |first, second| told(&Settings::default(), &[("robots-agent", first), ("robots-agent", second)], None);
        assert_eq!(both("NimbuBot", "FooBot"), "robots-agent names both NimbuBot and FooBot: send one of them");
        assert_eq!(both("NimbuBot", "nimbubot/2.0"), "nimbubot header", "one name twice is one name");
    }

    #[test]
    fn the_tunnel_speaks_where_the_request_does_not() {
        type Lines = &'static [(&'static str, &'static str)];
        let cases: [(Lines, Lines, &str); 8] = [
            (&[], &[("robots-agent", "TunnelBot")], "TunnelBot header"),
            (&[("robots-agent", "InnerBot")], &[("robots-agent", "TunnelBot")], "InnerBot header"),
            (&[("robots-agent", "a b")], &[("robots-agent", "TunnelBot")], MALFORMED),
            (&[("robots-agent", "InnerBot")], &[("robots-agent", "a b")], "InnerBot header"),
            (&[("user-agent", "InnerBot/1")], &[("robots-agent", "TunnelBot")], "TunnelBot header"),
            (&[("user-agent", "InnerBot/1")], &[("user-agent", "TunnelBot/1")], "InnerBot user-agent"),
            (&[], &[("user-agent", "TunnelBot/1")], "TunnelBot user-agent"),
            (&[("user-agent", "Mozilla/5.0 Chrome/9")], &[("user-agent", "TunnelBot/1")], "* default"),
        ];
        for (own, tunnel, expected) in cases {
            assert_eq!(told(&Settings::default(), own, Some(tunnel)), expected, "{own:?} in {tunnel:?}");
        }
    }

    #[test]
    fn the_name_that_did_not_win_is_a_conflict() {
        let by = |order: &str| Settings {
            order: order.split(' ').map(|source| source.parse().unwrap()).collect(),
            map: vec![MapEntry { user: Some("a".into()), ..MapEntry::of(token("MapBot")) }],
            ..Settings::default()
        };
        let header_first = "map header user-agent";
        for (order, user, own, tunnel, conflict) in [
            (header_first, None, [Some("NimbuBot"), Some("FooBot/1")], None, Some("FooBot")),
            (header_first, None, [Some("NimbuBot"), Some("nimbubot/2")], None, None),
            (header_first, None, [Some("NimbuBot"), Some("Mozilla/5.0 Chrome/9")], None, None),
            (header_first, None, [Some("NimbuBot"), None], None, None),
            (header_first, None, [None, Some("FooBot/1")], Some("NimbuBot"), Some("FooBot")),
            (header_first, Some("a"), [Some("NimbuBot"), Some("FooBot/1")], None, None),
            ("user-agent header", None, [Some("NimbuBot"), Some("FooBot/1")], None, Some("NimbuBot")),
            ("user-agent header", None, [Some("a b"), Some("FooBot/1")], None, None),
        ] {
            let named = ["robots-agent", "user-agent"].into_iter().zip(own);
            let own: Vec<_> = named.filter_map(|(name, value)| Some((name, value?))).collect();
            let (own, tunnel) = (headers(&own), tunnel.map(|value| headers(&[("robots-agent", value)])));
            let client = "192.0.2.7".parse().unwrap();
            let asking = Asking {
                user,
                client,
                host: "a.example",
                headers: &own,
                tunnel: tunnel.as_ref(),
                last: &LastUserAgent::default(),
            };
            let identity = identify(&by(order), &asking).unwrap();
            assert_eq!(identity.conflict, conflict.map(token), "{order} {own:?} in {tunnel:?}");
        }
    }

    #[test]
    fn a_user_agent_with_other_octets_still_names_its_bot() {
        let mut own = HeaderMap::new();
        own.insert(USER_AGENT, http::HeaderValue::from_bytes(b"NimbuBot/1.0 (Gr\xf6\xdfe)").unwrap());
        let asking = Asking {
            user: None,
            client: [127, 0, 0, 1].into(),
            host: "a.example",
            headers: &own,
            tunnel: None,
            last: &LastUserAgent::default(),
        };
        assert_eq!(identify(&Settings::default(), &asking).unwrap().token, token("NimbuBot"));
    }

    #[test]
    fn sources_are_written_in_small_letters() {
        assert!("MAP".parse::<Source>().is_err());
    }
}
