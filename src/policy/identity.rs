//! Which bot is asking.
//!
//! A client says so in one of several ways, and an operator may know better than the client; the sources are asked in
//! the order of the configuration and the first that answers wins. A header that cannot be understood is an error and
//! never `*`: a bot that spelled its name wrongly would otherwise go by the rules for everybody and nobody would
//! notice. Reading a User-Agent is in `policy/user_agent.rs`. Whether a claim is allowed, and what becomes of those who
//! cannot be told, is decided in `policy/decision.rs`.

use std::borrow::Cow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::header::{HeaderMap, HeaderName, PROXY_AUTHORIZATION, USER_AGENT};
use ipnet::IpNet;
use regex::Regex;

use super::host::HostPattern;

pub use super::user_agent::token_in_user_agent;

/// A bot's product token and how we know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// What is compared with `User-agent:` lines.
    pub token: Token,
    /// What told it.
    pub source: Source,
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
    /// What the operator knows; the first entry that fits wins.
    pub map: Vec<MapEntry>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            order: vec![Source::Map, Source::Header, Source::UserAgent, Source::Default],
            header: HeaderName::from_static("robots-agent"),
            default: Token::star(),
            map: Vec::new(),
        }
    }
}

/// What the operator knows about some clients. Every condition given must hold; without any, all clients are meant.
#[derive(Clone, Debug)]
pub struct MapEntry {
    /// The user name given to the proxy.
    pub user: Option<String>,
    /// Where the client connects from.
    pub client: Option<IpNet>,
    /// A pattern on the User-Agent.
    pub user_agent: Option<Regex>,
    /// The host that is asked for.
    pub host: Option<HostPattern>,
    /// Who it is then.
    pub token: Token,
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
    /// The headers of the CONNECT that the request came through: what they say holds for the tunnel. A request may have a
    /// User-Agent of its own, but no other name in the header for it.
    pub tunnel: Option<&'a HeaderMap>,
}

/// Tells who is asking, by the first source that answers; by the default if none does.
pub fn identify(settings: &Settings, asking: &Asking<'_>) -> Result<Identity, MalformedIdentity> {
    for &source in &settings.order {
        let token = match source {
            Source::Map => by_map(&settings.map, asking),
            Source::Header => by_header(&settings.header, asking)?,
            Source::UserAgent => by_user_agent(asking),
            Source::Default => Some(settings.default.clone()),
        };
        if let Some(token) = token {
            return Ok(Identity { token, source });
        }
    }
    Ok(Identity { token: settings.default.clone(), source: Source::Default })
}

fn by_map(map: &[MapEntry], asking: &Asking<'_>) -> Option<Token> {
    map.iter().find(|entry| entry.fits(asking)).map(|entry| entry.token.clone())
}

impl MapEntry {
    fn fits(&self, asking: &Asking<'_>) -> bool {
        self.user.as_deref().is_none_or(|user| asking.user == Some(user))
            && self.client.is_none_or(|network| contains(&network, asking.client))
            && self.host.as_ref().is_none_or(|host| host.matches(asking.host))
            && self
                .user_agent
                .as_ref()
                .is_none_or(|pattern| asking.user_agent().is_some_and(|it| pattern.is_match(&it)))
    }
}

/// A listener on `[::]` sees an IPv4 client as `::ffff:192.0.2.1`; the operator wrote `192.0.2.0/24`.
fn contains(network: &IpNet, client: IpAddr) -> bool {
    network.contains(&client) || network.contains(&client.to_canonical())
}

/// What the CONNECT says and what the request says must be one name: with two, a bot could choose the looser rules.
fn by_header(name: &HeaderName, asking: &Asking<'_>) -> Result<Option<Token>, MalformedIdentity> {
    let mut told: Option<Token> = None;
    let everywhere = asking.tunnel.into_iter().chain([asking.headers]);
    for value in everywhere.flat_map(|headers| headers.get_all(name)) {
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
    token_in_user_agent(&asking.user_agent()?)?.parse().ok()
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

/// A user name and a password, as sent.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user name.
    pub user: String,
    /// The password, in whatever encoding the client has.
    pub password: Vec<u8>,
}

/// SECURITY: without the password, since debug output ends up in logs.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

/// What `Proxy-Authorization: Basic …` holds. `None` for other schemes, for what cannot be read, and for more than one such header.
pub fn basic_credentials(headers: &HeaderMap) -> Option<Credentials> {
    let mut values = headers.get_all(PROXY_AUTHORIZATION).into_iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    let (scheme, credentials) = value.to_str().ok()?.trim().split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let mut decoded = BASE64.decode(credentials.trim()).ok()?;
    // RFC 7617 §2: the user name ends at the first colon; a password may hold more.
    let colon = decoded.iter().position(|&octet| octet == b':')?;
    let password = decoded.split_off(colon + 1);
    decoded.truncate(colon);
    Some(Credentials { user: String::from_utf8(decoded).ok()?, password })
}

/// The user name alone.
///
/// SECURITY: the password is not looked at here; whoever uses the name must have had it checked, against the same
/// header.
pub fn basic_user(headers: &HeaderMap) -> Option<String> {
    basic_credentials(headers).map(|credentials| credentials.user)
}

/// A bot's product token as written, or `*`.
///
/// RFC 9309 §2.2.1 allows letters, `_` and `-`; bots that exist have digits and dots as well (`MJ12bot`,
/// `archive.org_bot`), and cutting their names to the letter of the RFC would address somebody else. Compared without
/// regard to case.
#[derive(Clone)]
pub struct Token(Arc<str>);

/// Chosen; the longest of a known crawler has 29. A token is a key of lines, metrics and records, so a client must not
/// make it long.
pub(super) const LONGEST_TOKEN: usize = 128;

impl Token {
    /// `*`: nobody in particular, so that only the group for everybody applies.
    pub fn star() -> Token {
        Token(Arc::from("*"))
    }

    /// Whether this is `*`.
    pub fn is_star(&self) -> bool {
        self.as_str() == "*"
    }

    /// The token as written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Token {
    type Err = InvalidToken;

    fn from_str(text: &str) -> Result<Token, InvalidToken> {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let is_token = !text.is_empty() && text.len() <= LONGEST_TOKEN && text.bytes().all(is_name);
        if is_token || text == "*" {
            Ok(Token(Arc::from(text)))
        } else {
            Err(InvalidToken(text.chars().take(LONGEST_TOKEN).collect()))
        }
    }
}

impl PartialEq for Token {
    fn eq(&self, other: &Token) -> bool {
        self.0.eq_ignore_ascii_case(&other.0)
    }
}

impl Eq for Token {}

impl Hash for Token {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for byte in self.0.bytes() {
            state.write_u8(byte.to_ascii_lowercase());
        }
        state.write_u8(0xff);
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({})", self.0)
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

/// A text that is no product token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no product token: it is `*`, or at most {LONGEST_TOKEN} letters, digits, `.`, `_` and `-`")]
pub struct InvalidToken(String);

/// A text that is no source of identities.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} tells no identity: use \"map\", \"header\", \"user-agent\" or \"default\"")]
pub struct InvalidSource(String);

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

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
        let asking = Asking { user: None, client, host: "www.example.com", headers: &own, tunnel: tunnel.as_ref() };
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
            map: vec![entry("MapBot")],
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

    fn entry(name: &str) -> MapEntry {
        MapEntry { user: None, client: None, user_agent: None, host: None, token: token(name) }
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
            (
                &[("robots-agent", "InnerBot")],
                &[("robots-agent", "TunnelBot")],
                "robots-agent names both TunnelBot and InnerBot: send one of them",
            ),
            (&[("robots-agent", "a b")], &[("robots-agent", "TunnelBot")], MALFORMED),
            (&[("robots-agent", "InnerBot")], &[("robots-agent", "a b")], MALFORMED),
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
    fn a_user_agent_with_other_octets_still_names_its_bot() {
        let mut own = HeaderMap::new();
        own.insert(USER_AGENT, http::HeaderValue::from_bytes(b"NimbuBot/1.0 (Gr\xf6\xdfe)").unwrap());
        let asking =
            Asking { user: None, client: [127, 0, 0, 1].into(), host: "a.example", headers: &own, tunnel: None };
        assert_eq!(identify(&Settings::default(), &asking).unwrap().token, token("NimbuBot"));
    }

    #[test]
    fn an_entry_fits_when_all_its_conditions_hold() {
        let full = MapEntry {
            user: Some("scraper-a".into()),
            client: Some("192.0.2.0/24".parse().unwrap()),
            user_agent: Some(Regex::new("(?i)headless").unwrap()),
            host: Some("*.example.com".parse().unwrap()),
            token: token("NimbuBot"),
        };
        let browser = headers(&[("user-agent", "HeadlessChrome/9")]);
        let nothing = HeaderMap::new();
        let right = Asking {
            user: Some("scraper-a"),
            client: "192.0.2.7".parse().unwrap(),
            host: "www.example.com",
            headers: &browser,
            tunnel: None,
        };
        let cases = [
            (right, true, "all"),
            (Asking { user: None, ..right }, false, "no user"),
            (Asking { user: Some("Scraper-A"), ..right }, false, "user names have case"),
            (Asking { client: "198.51.100.1".parse().unwrap(), ..right }, false, "another network"),
            (Asking { client: "::ffff:192.0.2.7".parse().unwrap(), ..right }, true, "IPv4 seen through an IPv6 socket"),
            (Asking { client: "::1".parse().unwrap(), ..right }, false, "IPv6"),
            (Asking { host: "example.com", ..right }, false, "another host"),
            (Asking { headers: &nothing, ..right }, false, "no User-Agent"),
            (Asking { headers: &nothing, tunnel: Some(&browser), ..right }, true, "the tunnel's User-Agent"),
        ];
        for (asking, fits, shows) in cases {
            assert_eq!(full.fits(&asking), fits, "{shows}");
            assert!(entry("Anybody").fits(&asking), "{shows}: an entry without conditions is about everybody");
        }
        let mapped_network = MapEntry { client: Some("::ffff:192.0.2.0/120".parse().unwrap()), ..entry("NimbuBot") };
        assert!(mapped_network.fits(&Asking { client: "::ffff:192.0.2.7".parse().unwrap(), ..right }));
    }

    #[test]
    fn the_first_entry_that_fits_wins() {
        let user = |name: &str, bot| MapEntry { user: Some(name.into()), ..entry(bot) };
        let settings = Settings { map: vec![user("a", "A"), user("b", "B"), entry("Rest")], ..Settings::default() };
        let own = HeaderMap::new();
        for (name, expected) in [(Some("a"), "A"), (Some("b"), "B"), (Some("c"), "Rest"), (None, "Rest")] {
            let asking =
                Asking { user: name, client: [127, 0, 0, 1].into(), host: "a.example", headers: &own, tunnel: None };
            assert_eq!(identify(&settings, &asking).unwrap().token, token(expected));
        }
    }

    #[test]
    fn basic_credentials_name_a_user() {
        let basic = |text: &str| format!("Basic {}", BASE64.encode(text));
        let cases = [
            (vec![basic("scraper-a:secret")], Some("scraper-a")),
            (vec![basic("scraper-a:with:colons")], Some("scraper-a")),
            (vec![basic("scraper-a:")], Some("scraper-a")),
            (vec![basic("müller:x")], Some("müller")),
            (vec![basic("a:b").replace("Basic", "bAsIc ")], Some("a")),
            (vec![basic("no colon")], None),
            (vec!["Basic !!!".into()], None),
            (vec!["Basic".into()], None),
            (vec!["Bearer YTpi".into()], None),
            (vec![basic("a:b"), basic("c:d")], None),
            (vec![], None),
        ];
        for (values, user) in cases {
            let lines: Vec<_> = values.iter().map(|value| ("proxy-authorization", value.as_str())).collect();
            assert_eq!(basic_user(&headers(&lines)).as_deref(), user, "{values:?}");
        }
    }

    #[test]
    fn tokens_are_compared_whole_and_without_case() {
        assert_eq!(token("NimbuBot"), token("NIMBUBOT"));
        assert_ne!(token("NimbuBot"), token("NimbuBot-Image"));
        assert_eq!(HashSet::from([token("NimbuBot"), token("nimbubot")]).len(), 1);
        assert_eq!(token("NimbuBot").to_string(), "NimbuBot");
        assert!(token("*").is_star() && !token("NimbuBot").is_star());
        for text in ["", "**", "a b", "a/1", "ä", "a*", &"a".repeat(LONGEST_TOKEN + 1)] {
            assert!(text.parse::<Token>().is_err(), "{text}");
        }
        assert!("MAP".parse::<Source>().is_err());
    }
}
