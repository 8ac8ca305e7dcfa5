//! What the operator knows about the clients: `[[identity.map]]`.

use std::net::IpAddr;

use http::HeaderValue;
use ipnet::IpNet;
use regex::Regex;

use super::{Asking, Token};
use crate::policy::enforcement::Mode;
use crate::policy::host::HostPattern;

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
    /// Whether what is decided about it is enforced; `None` is as for all others.
    pub mode: Option<Mode>,
    /// The User-Agent that goes on in place of the client's.
    pub send_user_agent: Option<HeaderValue>,
}

impl MapEntry {
    /// An entry without conditions: whoever asks is this bot.
    pub fn of(token: Token) -> MapEntry {
        MapEntry { user: None, client: None, user_agent: None, host: None, token, mode: None, send_user_agent: None }
    }

    pub(super) fn fits(&self, asking: &Asking<'_>) -> bool {
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

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::super::{LastUserAgent, Settings, identify};
    use super::*;

    fn token(text: &str) -> Token {
        text.parse().unwrap()
    }

    fn entry(name: &str) -> MapEntry {
        MapEntry::of(token(name))
    }

    #[test]
    fn an_entry_fits_when_all_its_conditions_hold() {
        let full = MapEntry {
            user: Some("scraper-a".into()),
            client: Some("192.0.2.0/24".parse().unwrap()),
            user_agent: Some(Regex::new("(?i)headless").unwrap()),
            host: Some("*.example.com".parse().unwrap()),
            ..entry("NimbuBot")
        };
        let browser = HeaderMap::from_iter([(http::header::USER_AGENT, "HeadlessChrome/9".parse().unwrap())]);
        let nothing = HeaderMap::new();
        let right = Asking {
            user: Some("scraper-a"),
            client: "192.0.2.7".parse().unwrap(),
            host: "www.example.com",
            headers: &browser,
            tunnel: None,
            last: &LastUserAgent::default(),
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
            let asking = Asking {
                user: name,
                client: [127, 0, 0, 1].into(),
                host: "a.example",
                headers: &own,
                tunnel: None,
                last: &LastUserAgent::default(),
            };
            assert_eq!(identify(&settings, &asking).unwrap().token, token(expected));
        }
    }
}
