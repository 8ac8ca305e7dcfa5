//! Which origin and path a request is for.
//!
//! A request names its target up to four times: the request line, Host, the tunnel it came through, and the TLS server name. Two
//! readings of one request are how a proxy is walked around, so ambiguity ends here: [`Target`] is made once, and the decision, the
//! pace, the route and the record read nothing else (RFC 9112 §3.2). Names become lower-case A-labels without a final dot, numbers of
//! every spelling become the address they mean, and the path stays exactly as sent.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;
use std::sync::Arc;

use http::uri::{PathAndQuery, Scheme as UriScheme};
use http::{HeaderMap, Uri, Version, header};

/// The name of the proxy itself, for those who come through it. `.internal` is reserved for private use, so it exists nowhere else.
pub const OWN_HOST: &str = "robots-proxy.internal";

/// `http` or `https`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scheme {
    /// Clear text.
    Http,
    /// Over TLS.
    Https,
}

impl Scheme {
    /// The scheme as it stands in a URL.
    pub fn as_str(self) -> &'static str {
        match self {
            Scheme::Http => "http",
            Scheme::Https => "https",
        }
    }

    /// The port that a URL need not name: 80 or 443.
    pub fn default_port(self) -> u16 {
        match self {
            Scheme::Http => 80,
            Scheme::Https => 443,
        }
    }
}

/// A host in its one canonical spelling: a lower-case A-label name without final dot, or an IP address (IPv6 without brackets).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Host(Arc<str>);

impl TryFrom<String> for Host {
    type Error = BadTarget;

    fn try_from(text: String) -> Result<Host, BadTarget> {
        Host::parse(&text)
    }
}

impl From<Host> for String {
    fn from(host: Host) -> String {
        host.as_str().to_owned()
    }
}

impl Host {
    /// Reads a host as it stands in a URL or, for IPv6, with or without brackets.
    ///
    /// # Errors
    /// A host that is empty, has an empty label, a percent escape or an octet that no name may hold.
    pub fn parse(text: &str) -> Result<Host, BadTarget> {
        match is_canonical(text) {
            true => Ok(Host(text.into())),
            false => Host::made_canonical(text),
        }
    }

    fn made_canonical(text: &str) -> Result<Host, BadTarget> {
        let bad = || BadTarget::Malformed(format!("{text:?} is no host name or address"));
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
        if let Ok(IpAddr::V6(address)) = bare.parse() {
            return Ok(Host(address.to_string().into()));
        }
        if text.contains('%') || text.len() > 1024 {
            return Err(bad());
        }
        let name = text.strip_suffix('.').unwrap_or(text);
        match url::Host::parse(name).map_err(|_| bad())? {
            url::Host::Ipv4(address) => Ok(Host(address.to_string().into())),
            url::Host::Domain(name) if name.split('.').all(|label| !label.is_empty()) => Ok(Host(name.into())),
            url::Host::Domain(_) | url::Host::Ipv6(_) => Err(bad()),
        }
    }

    /// The canonical spelling, IPv6 without brackets.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The address, where the host is one.
    pub fn ip(&self) -> Option<IpAddr> {
        self.0.parse().ok()
    }
}

/// Whether a name is as most of them are, small letters, digits and hyphens, so that nothing can be made of it but itself. What this
/// does not tell apart goes the long way.
fn is_canonical(name: &str) -> bool {
    let is_plain = |octet: u8| octet.is_ascii_lowercase() || octet.is_ascii_digit() || octet == b'-';
    let is_label =
        |label: &[u8]| !label.is_empty() && label.iter().copied().all(is_plain) && !label.starts_with(b"xn--");
    // One that begins with a digit may be the end of an IPv4 address.
    let ends_in_letter = |label: &[u8]| label[0].is_ascii_lowercase();
    name.len() <= 253
        && name.as_bytes().split(|&octet| octet == b'.').all(is_label)
        && name.as_bytes().rsplit(|&octet| octet == b'.').next().is_some_and(ends_in_letter)
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.contains(':') {
            true => write!(f, "[{}]", self.0),
            false => f.write_str(&self.0),
        }
    }
}

/// Scheme, host and port: the owner of one robots.txt (RFC 9309 §2.3).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Origin {
    /// The transport.
    pub scheme: Scheme,
    /// The host.
    pub host: Host,
    /// The port, the default one included.
    pub port: u16,
}

impl Origin {
    /// The origin of an absolute `http` or `https` URL.
    ///
    /// # Errors
    /// Another scheme, no host, or a host or port that cannot be.
    pub fn of(uri: &Uri) -> Result<Origin, BadTarget> {
        let line = uri.authority().map(|authority| Authority::read(authority.as_str(), None)).transpose()?;
        Origin::named(uri, line)
    }

    fn named(uri: &Uri, line: Option<Authority<'_>>) -> Result<Origin, BadTarget> {
        let scheme = known(uri.scheme().ok_or(BadTarget::NotAProxyRequest)?)?;
        let line = line.ok_or(BadTarget::NotAProxyRequest)?;
        Ok(line.origin(scheme))
    }

    /// `host`, or `host:port` where the port is not the default one: what a Host header holds.
    pub fn authority(&self) -> String {
        match self.port == self.scheme.default_port() {
            true => self.host.to_string(),
            false => format!("{}:{}", self.host, self.port),
        }
    }

    /// Where the origin's robots.txt is.
    pub fn robots_url(&self) -> String {
        match self.port == self.scheme.default_port() && !self.host.as_str().contains(':') {
            // As most are, and without the formatting machinery: it is made for each request to a site without rules.
            true => [self.scheme.as_str(), "://", self.host.as_str(), "/robots.txt"].concat(),
            false => format!("{self}/robots.txt"),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.scheme.as_str())?;
        f.write_str("://")?;
        self.host.fmt(f)?;
        match self.port == self.scheme.default_port() {
            true => Ok(()),
            false => write!(f, ":{}", self.port),
        }
    }
}

/// What a CONNECT asked for, and what was found inside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// The host of the CONNECT.
    pub host: Host,
    /// The port of the CONNECT.
    pub port: u16,
    /// The TLS server name, where the client sent one.
    pub server_name: Option<Host>,
    /// [`Scheme::Https`] when TLS was found inside, else [`Scheme::Http`].
    pub scheme: Scheme,
}

impl Tunnel {
    /// The host whose certificate the client expects: the server name, or the CONNECT's host.
    pub fn certificate_host(&self) -> &Host {
        self.server_name.as_ref().unwrap_or(&self.host)
    }

    /// Whether a request inside may be for this host and port: those of the CONNECT, or, where the CONNECT named an address, the
    /// server name.
    fn admits(&self, host: &Host, port: u16) -> bool {
        let named = || self.host.ip().is_some() && self.server_name.as_ref() == Some(host);
        port == self.port && (*host == self.host || named())
    }
}

impl FromStr for Tunnel {
    type Err = BadTarget;

    /// The target of a CONNECT request, `host:port` (RFC 9110 §9.3.6), before anything is known of its inside.
    fn from_str(text: &str) -> Result<Tunnel, BadTarget> {
        if text.contains(['/', '?', '#']) {
            return Err(BadTarget::Malformed(format!("CONNECT wants a target host:port, and not {text:?}")));
        }
        // Five mainstream clients write an IPv6 address without brackets: the port is behind the last colon, then.
        let bracketed = text
            .rsplit_once(':')
            .filter(|(host, _)| host.parse::<Ipv6Addr>().is_ok())
            .map(|(host, port)| format!("[{host}]:{port}"));
        let Authority { host, port, .. } = Authority::read(bracketed.as_deref().unwrap_or(text), None)?;
        let port = port.ok_or_else(|| BadTarget::Malformed(format!("CONNECT {text} names no port")))?;
        Ok(Tunnel { host, port, server_name: None, scheme: Scheme::Https })
    }
}

impl fmt::Display for Tunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// Origin and path of one request: the only thing that is decided on, paced, sent and recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The origin.
    pub origin: Origin,
    /// Path and query as sent, `/` at least, never a fragment.
    pub path: PathAndQuery,
}

impl Target {
    /// The target of a request, from its request line, its Host and the tunnel it came through.
    ///
    /// # Errors
    /// [`BadTarget`] where the request names no target, an impossible one, or more than one.
    pub fn of(uri: &Uri, version: Version, headers: &HeaderMap, tunnel: Option<&Tunnel>) -> Result<Target, BadTarget> {
        let tunnel_host = tunnel.map(|tunnel| &tunnel.host);
        let field = host_field(version, headers, tunnel_host)?;
        match uri.scheme() {
            None if uri.authority().is_some() => {
                let told = format!("{uri} is neither a URL nor a path; a host alone is for CONNECT");
                return Err(BadTarget::Malformed(told));
            }
            None => {}
            Some(scheme) => drop(known(scheme)?),
        }
        // Nearly always the two are spelt alike.
        let line = match uri.authority() {
            Some(line) if field.as_ref().is_some_and(|field| field.text == line.as_str()) => field.clone(),
            Some(line) => Some(Authority::read(line.as_str(), tunnel_host)?),
            None => None,
        };
        if version == Version::HTTP_2 {
            agree(line.as_ref(), field.as_ref(), tunnel.map_or(Scheme::Http, |tunnel| tunnel.scheme))?;
        }
        let origin = match tunnel {
            None => Origin::named(uri, line)?,
            Some(tunnel) => inside(line, field, tunnel)?,
        };
        Ok(Target { origin, path: path_of(uri)? })
    }

    /// Path and query as octets, as the rules are asked about.
    pub fn path_bytes(&self) -> &[u8] {
        self.path.as_str().as_bytes()
    }

    /// Whether this is the origin's robots.txt itself.
    pub fn is_robots_txt(&self) -> bool {
        self.path_bytes() == super::decision::ROBOTS_PATH
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.origin.fmt(f)?;
        f.write_str(self.path.as_str())
    }
}

/// Why a request has no target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTarget {
    /// Origin-form sent to the proxy's own port.
    #[error("this is a proxy: ask for a whole URL, as in GET http://example.com/ HTTP/1.1, or use CONNECT")]
    NotAProxyRequest,
    /// A part that cannot be read, or can be read in two ways.
    #[error("{0}")]
    Malformed(String),
    /// Inside a tunnel: another host than the tunnel's.
    #[error("the request is for {asked}, but this tunnel goes to {tunnel}")]
    AuthorityMismatch {
        /// What Host or `:authority` said.
        asked: String,
        /// What the CONNECT said.
        tunnel: String,
    },
}

/// The scheme of a URL, of those that there are pages under.
fn known(scheme: &UriScheme) -> Result<Scheme, BadTarget> {
    match scheme {
        http if *http == UriScheme::HTTP => Ok(Scheme::Http),
        https if *https == UriScheme::HTTPS => Ok(Scheme::Https),
        other => Err(BadTarget::Malformed(format!("the scheme {other} is neither http nor https"))),
    }
}

/// `host[:port]`, as it stands in a request line or in Host.
#[derive(Clone, Debug)]
struct Authority<'a> {
    text: &'a str,
    host: Host,
    port: Option<u16>,
}

impl<'a> Authority<'a> {
    /// User information is refused, since it is how a link pretends to be of another host. Inside a tunnel nearly always the host
    /// of its CONNECT stands here, spelt alike, and need not be read again.
    fn read(text: &'a str, tunnel_host: Option<&Host>) -> Result<Authority<'a>, BadTarget> {
        let bad = |what: &str| BadTarget::Malformed(format!("{text:?} {what}"));
        // SECURITY: what stands before the @ may be a password, so it is not repeated.
        if let Some((_, host)) = text.rsplit_once('@') {
            return Err(BadTarget::Malformed(format!("user information before {host:?} has no place here")));
        }
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, port),
            _ => (text, ""),
        };
        if host.contains(':') && !host.starts_with('[') {
            return Err(bad("is an IPv6 address without brackets"));
        }
        let port = match port {
            "" => None,
            digits if digits.bytes().all(|octet| octet.is_ascii_digit()) => {
                let number = digits.trim_start_matches('0').parse::<u16>();
                Some(number.map_err(|_| bad("has an impossible port"))?)
            }
            _ => return Err(bad("has an impossible port")),
        };
        let host = match tunnel_host {
            Some(read) if read.as_str() == host => read.clone(),
            _ => Host::parse(host)?,
        };
        Ok(Authority { text, host, port })
    }

    fn origin(self, scheme: Scheme) -> Origin {
        Origin { scheme, host: self.host, port: self.port.unwrap_or(scheme.default_port()) }
    }
}

/// The one Host field, checked (RFC 9112 §3.2: none, two or a bad one in HTTP/1.1 is an error).
fn host_field<'h>(
    version: Version,
    headers: &'h HeaderMap,
    tunnel_host: Option<&Host>,
) -> Result<Option<Authority<'h>>, BadTarget> {
    let mut fields = headers.get_all(header::HOST).iter();
    let (first, second) = (fields.next(), fields.next());
    match first {
        _ if second.is_some() => Err(BadTarget::Malformed("the request has two Host fields".into())),
        None if version == Version::HTTP_11 => Err(BadTarget::Malformed("the request has no Host field".into())),
        None => Ok(None),
        Some(value) => {
            let text = value.to_str().map_err(|_| BadTarget::Malformed("the Host field is not ASCII".into()))?;
            Authority::read(text, tunnel_host).map(Some)
        }
    }
}

/// The origin of a request inside a tunnel: whatever it names must be the tunnel's target.
fn inside(line: Option<Authority<'_>>, field: Option<Authority<'_>>, tunnel: &Tunnel) -> Result<Origin, BadTarget> {
    let mut origin = None;
    for authority in [line, field].into_iter().flatten() {
        let asked = authority.text;
        let named = authority.origin(tunnel.scheme);
        if !tunnel.admits(&named.host, named.port) {
            return Err(BadTarget::AuthorityMismatch { asked: asked.to_owned(), tunnel: tunnel.to_string() });
        }
        if origin.as_ref().is_some_and(|earlier| *earlier != named) {
            return Err(BadTarget::Malformed("request line and Host name different hosts".into()));
        }
        origin = Some(named);
    }
    // HTTP/1.0 may leave Host out: then the tunnel's target is meant.
    Ok(origin.unwrap_or_else(|| Origin { scheme: tunnel.scheme, host: tunnel.host.clone(), port: tunnel.port }))
}

/// HTTP/2 has `:authority` in the place of Host; a client that sends both, and different ones, asks for two things (RFC 9113 §8.3.1).
fn agree(line: Option<&Authority<'_>>, field: Option<&Authority<'_>>, scheme: Scheme) -> Result<(), BadTarget> {
    let (Some(line), Some(field)) = (line, field) else { return Ok(()) };
    match line.clone().origin(scheme) == field.clone().origin(scheme) {
        true => Ok(()),
        false => Err(BadTarget::Malformed(format!(":authority is {}, but Host is {}", line.text, field.text))),
    }
}

/// A target for people and records, whatever it is, without a user name and password.
pub fn without_user(text: &str) -> String {
    let start = text.find("://").map_or(0, |at| at + 3);
    let end = text[start..].find(['/', '?', '#']).map_or(text.len(), |at| start + at);
    match text[start..end].rfind('@') {
        Some(at) => format!("{}{}", &text[..start], &text[start + at + 1..]),
        None => text.to_owned(),
    }
}

/// Path and query as they will be sent: at least `/`.
fn path_of(uri: &Uri) -> Result<PathAndQuery, BadTarget> {
    let Some(path) = uri.path_and_query() else { return Ok(PathAndQuery::from_static("/")) };
    match path.as_str() {
        // An empty one before a fragment reads the same, but is not equal.
        "/" => Ok(PathAndQuery::from_static("/")),
        "*" => Err(BadTarget::Malformed("the target * is not a page".into())),
        text if text.starts_with('/') => Ok(path.clone()),
        text => {
            let whole = format!("/{text}");
            PathAndQuery::try_from(whole).map_err(|_| BadTarget::Malformed(format!("{text:?} is no path")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(line: &str, host: &[&str], tunnel: Option<&str>) -> Result<String, BadTarget> {
        let mut headers = HeaderMap::new();
        for value in host {
            headers.append(header::HOST, value.parse().unwrap());
        }
        let tunnel = tunnel.map(|text| text.parse::<Tunnel>().unwrap());
        Target::of(&line.parse().unwrap(), Version::HTTP_11, &headers, tunnel.as_ref()).map(|target| target.to_string())
    }

    proptest::proptest! {
        #[test]
        fn a_name_that_is_taken_as_canonical_is(name in "((xn)?-{0,2}[a-z0-9]{1,4}-{0,2}[0-9a]{0,3}[.]){0,3}[a-y][a-z0-9-]{0,5}") {
            proptest::prop_assume!(is_canonical(&name));
            proptest::prop_assert_eq!(Host::made_canonical(&name).map(|host| host.to_string()), Ok(name));
        }
    }

    proptest::proptest! {
        #[test]
        fn a_host_is_read_the_same_whether_it_is_known_or_not(
            host in "a[.]test|xn--bcher-kva[.]test|192[.]0[.]2[.]1|\\[::1\\]",
            text in "(a[.]test|xn--bcher-kva[.]test|192[.]0[.]2[.]1|\\[::1\\]|::1)[.]?(:[0-9+]{0,6})?[.@b]{0,2}",
        ) {
            same_as_unknown(&text, &Host::parse(&host).unwrap());
        }
    }

    fn same_as_unknown(text: &str, known: &Host) {
        let read = |known| Authority::read(text, known).map(|read| (read.host, read.port));
        assert_eq!(read(Some(known)), read(None), "{text}");
    }

    #[test]
    fn a_known_host_makes_no_port_good_and_no_other_host_its_own() {
        let known = Host::parse("a.test").unwrap();
        for port in ["", ":", ":81", ":0", ":00", ":00081", ":65536", ":+1"] {
            same_as_unknown(&format!("a.test{port}"), &known);
        }
        for other in ["A.test:8443", "a.test.", "b.test", "a.test.b:1", "u@a.test", "xa.test"] {
            same_as_unknown(other, &known);
        }
        let read = |text| Authority::read(text, Some(&known)).map(|read| (read.host, read.port));
        assert_eq!(read("a.test"), Ok((known.clone(), None)));
        assert_eq!(read("a.test:81"), Ok((known.clone(), Some(81))));
        assert!(read("a.test:0").is_err());
    }

    #[test]
    fn an_empty_path_is_a_slash_whatever_comes_behind_it() {
        let target =
            |line: &str| Target::of(&line.parse().unwrap(), Version::HTTP_10, &HeaderMap::new(), None).unwrap();
        for line in ["http://a.test", "http://a.test#x", "http://a.test/#x"] {
            assert_eq!(target(line), target("http://a.test/"), "{line}");
        }
    }

    #[test]
    fn every_spelling_of_one_target_is_one_target() {
        for (line, shown) in [
            ("http://a.test/x", "http://a.test/x"),
            ("HTTP://A.Test:080/x", "http://a.test/x"),
            ("http://a.test./x", "http://a.test/x"),
            ("http://a.test", "http://a.test/"),
            ("http://a.test?q", "http://a.test/?q"),
            ("http://a.test:8080//b/../c?", "http://a.test:8080//b/../c?"),
            ("http://2130706433/", "http://127.0.0.1/"),
            ("http://0x7f.1/", "http://127.0.0.1/"),
            ("http://[0:0::1]:81/", "http://[::1]:81/"),
            ("https://a.test:443/", "https://a.test/"),
        ] {
            assert_eq!(target(line, &["a.test"], None).as_deref(), Ok(shown), "{line}");
        }
    }

    #[test]
    fn a_password_is_never_shown() {
        for (text, shown) in [
            ("http://a:b@c.test/x@y?z@w", "http://c.test/x@y?z@w"),
            ("http://a:b@c@d.test", "http://d.test"),
            ("a:b@c.test:443", "c.test:443"),
            ("http://c.test/a@b", "http://c.test/a@b"),
            ("/a@b", "/a@b"),
            ("*", "*"),
            ("", ""),
        ] {
            assert_eq!(without_user(text), shown);
        }
    }

    #[test]
    fn rfc9112_3_2_the_request_line_wins_over_host() {
        assert_eq!(target("http://a.test/x", &["other.test"], None).as_deref(), Ok("http://a.test/x"));
    }

    #[test]
    fn rfc9112_3_2_no_host_two_hosts_or_a_bad_host_is_an_error() {
        for host in [&[][..], &["a.test", "a.test"], &[""], &["a.test/zz"], &["u@a.test"], &["a..test"], &["a.test:x"]]
        {
            assert!(matches!(target("http://a.test/", host, None), Err(BadTarget::Malformed(_))), "{host:?}");
        }
    }

    #[test]
    fn what_is_no_target_says_so() {
        assert_eq!(target("/x", &["a.test"], None), Err(BadTarget::NotAProxyRequest));
        for line in ["http://u:p@a.test/", "ftp://a.test/", "http://a.test:99999/", "http://a..b/"] {
            assert!(matches!(target(line, &["a.test"], None), Err(BadTarget::Malformed(_))), "{line}");
        }
    }

    #[test]
    fn user_information_is_never_repeated() {
        for (uri, without) in [
            ("http://user:secret@a.test/x", "http://a.test/x"),
            ("user:secret@a.test:443", "a.test:443"),
            ("http://a.test/user@x", "http://a.test/user@x"),
        ] {
            assert_eq!(without_user(uri), without);
        }
        let refused = target("http://user:secret@a.test/x", &["a.test"], None).unwrap_err().to_string();
        assert!(!refused.contains("secret") && refused.contains("a.test"), "{refused}");
    }

    #[test]
    fn inside_a_tunnel_host_is_the_tunnels_target() {
        let tunnel = Some("a.test:443");
        assert_eq!(target("/x", &["A.test."], tunnel).as_deref(), Ok("https://a.test/x"));
        assert_eq!(target("https://a.test/x", &["a.test:443"], tunnel).as_deref(), Ok("https://a.test/x"));
        for (line, host) in [("/x", "b.test"), ("/x", "a.test:444"), ("https://b.test/x", "a.test")] {
            let mismatch = target(line, &[host], tunnel);
            assert!(matches!(mismatch, Err(BadTarget::AuthorityMismatch { .. })), "{line} {host}");
        }
    }

    #[test]
    fn a_tunnel_to_an_address_may_carry_its_server_name() {
        let mut tunnel = "192.0.2.1:443".parse::<Tunnel>().unwrap();
        tunnel.server_name = Some(Host::parse("a.test").unwrap());
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, "a.test".parse().unwrap());
        let target = Target::of(&"/".parse().unwrap(), Version::HTTP_11, &headers, Some(&tunnel)).unwrap();
        assert_eq!(target.to_string(), "https://a.test/");
    }

    #[test]
    fn a_connect_names_host_and_port_and_nothing_else() {
        for (text, shown) in [
            ("A.test.:0443", Some("a.test:443")),
            ("[::1]:443", Some("[::1]:443")),
            ("::1:443", Some("[::1]:443")),
            ("2001:DB8::1:443", Some("[2001:db8::1]:443")),
            ("1:2:3:4:5:6:7:8:443", Some("[1:2:3:4:5:6:7:8]:443")),
            ("::ffff:192.0.2.1:443", Some("[::ffff:192.0.2.1]:443")),
            ("1:2:3:4:5:6:7:8", None),
            ("::1", None),
            ("[::1]", None),
            ("fe80::1%eth0:443", None),
            ("a:b:443", None),
            ("a.test", None),
            ("a.test:", None),
            (":443", None),
            ("https://b:443/", None),
            ("b:443/x", None),
            ("b:443?x", None),
            ("u@a.test:443", None),
            ("u:p@a.test:443", None),
            ("a.test:0x50", None),
            ("a.test:+80", None),
            ("a.test:99999", None),
            ("a.test:0", None),
            ("é.test:443", Some("xn--9ca.test:443")),
        ] {
            let tunnel = text.parse::<Tunnel>().ok().map(|tunnel| tunnel.to_string());
            assert_eq!(tunnel.as_deref(), shown, "{text}");
        }
    }
}
