//! The proxy that this one goes through, where an organisation lets nobody out otherwise.
//!
//! HTTP and HTTPS parents take requests in clear text with their whole URL (many allow CONNECT to port 443 alone), everything else
//! through a CONNECT; SOCKS5 takes all (RFC 1928, 1929). Names go to the parent unresolved, which is why the address guard sees only
//! addresses that stand in place of a name. What the parent itself answers is never taken for the origin's word. Its credentials are
//! shown to nobody else: they are redacted wherever the URL is printed.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::HeaderValue;
use percent_encoding::percent_decode_str;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio_rustls::TlsConnector;

use super::Error;
use super::dial::{HostPort, Stream};
use super::headers::Form;
use super::patient::Patient;
use super::tls::handshake;
use crate::policy::target::Host;

/// `http://user:password@host:port`, or `https://` or `socks5://`.
#[derive(Clone, PartialEq, Eq)]
pub struct ParentUrl {
    protocol: Protocol,
    place: HostPort,
    credentials: Option<Credentials>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Http,
    Https,
    Socks5,
}

#[derive(Clone, PartialEq, Eq)]
struct Credentials {
    user: String,
    password: String,
}

impl FromStr for ParentUrl {
    type Err = &'static str;

    // SECURITY: no message repeats the text, since it may hold a password.
    fn from_str(text: &str) -> Result<ParentUrl, &'static str> {
        let url = url::Url::parse(text).map_err(|_| "this is no URL such as \"http://user:password@parent:3128\"")?;
        let (protocol, default_port) = match url.scheme() {
            "http" => (Protocol::Http, 80),
            "https" => (Protocol::Https, 443),
            "socks5" | "socks5h" => (Protocol::Socks5, 1080),
            _ => return Err("a parent proxy is http://, https:// or socks5://"),
        };
        if !matches!(url.path(), "" | "/") || url.query().is_some() || url.fragment().is_some() {
            return Err("give host and port alone, without a path");
        }
        let host = Host::parse(url.host_str().unwrap_or_default()).map_err(|_| "this URL has no host")?;
        let decode = |part: &str| percent_decode_str(part).decode_utf8().map(|part| part.into_owned());
        let (user, password) = (decode(url.username()), decode(url.password().unwrap_or_default()));
        let (Ok(user), Ok(password)) = (user, password) else { return Err("the credentials are not UTF-8") };
        // RFC 1929 §2 counts them in one octet each; RFC 7617 §2 has no place for a colon in a user name.
        if user.len() > 255 || password.len() > 255 || user.contains(':') {
            return Err("user and password have 255 octets at most, and a user no colon");
        }
        let credentials = (!user.is_empty() || !password.is_empty()).then_some(Credentials { user, password });
        Ok(ParentUrl { protocol, place: HostPort { host, port: url.port().unwrap_or(default_port) }, credentials })
    }
}

impl fmt::Display for ParentUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.protocol {
            Protocol::Http => "http",
            Protocol::Https => "https",
            Protocol::Socks5 => "socks5",
        };
        let redacted = if self.credentials.is_some() { "***@" } else { "" };
        write!(f, "{scheme}://{redacted}{}", self.place)
    }
}

impl fmt::Debug for ParentUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Credentials {
    fn basic(&self) -> String {
        format!("Basic {}", BASE64.encode(format!("{}:{}", self.user, self.password)))
    }
}

/// The parent proxy, and how it is spoken to.
pub(super) struct ParentProxy {
    url: ParentUrl,
    tls: TlsConnector,
}

impl ParentProxy {
    /// `tls` is for an `https` parent.
    pub(super) fn new(url: ParentUrl, tls: TlsConnector) -> ParentProxy {
        ParentProxy { url, tls }
    }

    /// Where it listens.
    pub(super) fn place(&self) -> &HostPort {
        &self.url.place
    }

    /// The form of requests that it takes in clear text, if it takes any.
    pub(super) fn whole_urls(&self) -> Option<Form> {
        let credentials = self.url.credentials.as_ref();
        match self.url.protocol {
            Protocol::Socks5 => None,
            Protocol::Http | Protocol::Https => {
                let basic = credentials.and_then(|credentials| HeaderValue::try_from(credentials.basic()).ok());
                Some(Form::WholeUrl(basic.map(|mut value| {
                    value.set_sensitive(true);
                    value
                })))
            }
        }
    }

    /// Begins what comes before its own protocol: TLS, where it wants that.
    pub(super) async fn begin(&self, stream: Patient) -> Result<Stream, Error> {
        match self.url.protocol {
            Protocol::Https => Ok(Box::new(handshake(&self.tls, self.place(), stream).await?)),
            Protocol::Http | Protocol::Socks5 => Ok(Box::new(stream)),
        }
    }

    /// Asks for a tunnel to a host on a connection to the parent.
    pub(super) async fn tunnel(&self, stream: Stream, to: &HostPort) -> Result<Stream, Error> {
        let mut stream = BufReader::new(stream);
        let asked = match self.url.protocol {
            Protocol::Http | Protocol::Https => self.connect(&mut stream, to).await,
            Protocol::Socks5 => self.socks(&mut stream, to).await,
        };
        match asked {
            Ok(Ok(())) => Ok(Box::new(stream)),
            Ok(Err(problem)) => Err(self.problem(problem)),
            Err(error) => Err(self.problem(format!("broke off: {error}"))),
        }
    }

    /// RFC 9110 §9.3.6. An IPv6 address stands in brackets, in Host, too.
    async fn connect(&self, stream: &mut BufReader<Stream>, to: &HostPort) -> std::io::Result<Result<(), String>> {
        let credentials = self.url.credentials.as_ref().map(|credentials| credentials.basic());
        let credentials = credentials.map(|basic| format!("Proxy-Authorization: {basic}\r\n")).unwrap_or_default();
        let request = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n{credentials}\r\n");
        stream.write_all(request.as_bytes()).await?;
        stream.flush().await?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") && !head.ends_with(b"\n\n") {
            let line = (&mut *stream).take(HEAD_MAX - head.len() as u64).read_until(b'\n', &mut head).await?;
            if line == 0 {
                return Ok(Err("did not answer a CONNECT in HTTP".into()));
            }
        }
        let head = String::from_utf8_lossy(&head);
        let status = head.split(' ').nth(1).filter(|_| head.starts_with("HTTP/1.")).unwrap_or_default();
        Ok(match status {
            "407" => Err(WANTS_CREDENTIALS.into()),
            status if status.starts_with('2') => Ok(()),
            status => Err(format!("refuses a tunnel to {to} (status {status:?})")),
        })
    }

    async fn socks(&self, stream: &mut BufReader<Stream>, to: &HostPort) -> std::io::Result<Result<(), String>> {
        let methods: &[u8] = if self.url.credentials.is_some() { &[5, 2, 0, 2] } else { &[5, 1, 0] };
        stream.write_all(methods).await?;
        stream.flush().await?;
        let mut chosen = [0; 2];
        stream.read_exact(&mut chosen).await?;
        match (chosen, &self.url.credentials) {
            ([5, 0], _) => {}
            ([5, 2], Some(Credentials { user, password })) => {
                let mut login = vec![1, user.len() as u8];
                login.extend_from_slice(user.as_bytes());
                login.push(password.len() as u8);
                login.extend_from_slice(password.as_bytes());
                stream.write_all(&login).await?;
                stream.flush().await?;
                let mut accepted = [0; 2];
                stream.read_exact(&mut accepted).await?;
                if accepted[1] != 0 {
                    return Ok(Err(WANTS_CREDENTIALS.into()));
                }
            }
            ([5, _], _) => return Ok(Err(WANTS_CREDENTIALS.into())),
            _ => return Ok(Err("does not speak SOCKS5".into())),
        }
        let Some(request) = socks_request(to) else {
            return Ok(Err(format!("cannot be asked for {to}: SOCKS5 has no place for so long a name")));
        };
        stream.write_all(&request).await?;
        stream.flush().await?;
        let mut reply = [0; 4];
        stream.read_exact(&mut reply).await?;
        if reply[1] != 0 {
            return Ok(Err(format!("cannot connect to {to}: {}", socks_failure(reply[1]))));
        }
        // The address that it connects from, and a port: of no use here.
        let address = match reply[3] {
            1 => 4,
            4 => 16,
            _ => stream.read_u8().await?.into(),
        };
        stream.read_exact(&mut vec![0; address + 2]).await?;
        Ok(Ok(()))
    }

    /// A failure on the way to the parent, which is not the origin's.
    pub(super) fn error(&self, error: &Error) -> Error {
        match error {
            Error::Itself { host } => Error::Itself { host: host.clone() },
            error => self.problem(format!("cannot be reached: {error}")),
        }
    }

    /// The parent does not let us through.
    pub(super) fn wants_credentials(&self) -> Error {
        self.problem(WANTS_CREDENTIALS.into())
    }

    fn problem(&self, problem: String) -> Error {
        Error::Parent { parent: self.url.place.to_string(), problem }
    }
}

const WANTS_CREDENTIALS: &str = "wants other credentials: check the user and password in upstream.proxy";

/// Octets of the answer to a CONNECT; nobody sends a longer one that says yes.
const HEAD_MAX: u64 = 16 * 1024;

/// RFC 1928 §4; names stay names, so that the parent resolves them.
fn socks_request(to: &HostPort) -> Option<Vec<u8>> {
    let mut request = vec![5, 1, 0];
    match to.host.ip() {
        Some(IpAddr::V4(address)) => {
            request.push(1);
            request.extend_from_slice(&address.octets());
        }
        Some(IpAddr::V6(address)) => {
            request.push(4);
            request.extend_from_slice(&address.octets());
        }
        None => {
            let name = to.host.as_str();
            request.extend_from_slice(&[3, u8::try_from(name.len()).ok()?]);
            request.extend_from_slice(name.as_bytes());
        }
    }
    request.extend_from_slice(&to.port.to_be_bytes());
    Some(request)
}

/// RFC 1928 §6.
fn socks_failure(reply: u8) -> &'static str {
    match reply {
        2 => "its rules forbid it",
        3 => "the network is unreachable",
        4 => "the host is unreachable",
        5 => "the host refuses connections",
        6 => "the time to live expired",
        _ => "it failed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parent_is_a_url_of_host_and_port() {
        for (text, shown) in [
            ("http://parent:3128", "http://parent:3128"),
            ("http://parent:3128/", "http://parent:3128"),
            ("https://Parent.Test", "https://parent.test:443"),
            ("http://parent", "http://parent:80"),
            ("socks5://[::1]:9050", "socks5://[::1]:9050"),
            ("socks5h://parent", "socks5://parent:1080"),
            ("http://user:pass@parent:3128", "http://***@parent:3128"),
            ("socks5://user@parent", "socks5://***@parent:1080"),
        ] {
            let url: ParentUrl = text.parse().unwrap();
            assert_eq!((url.to_string().as_str(), format!("{url:?}").as_str()), (shown, shown));
        }
        for text in ["parent:3128", "ftp://parent", "http://", "http://parent/path", "http://parent?x", "", "http://%"]
        {
            assert!(text.parse::<ParentUrl>().is_err(), "{text}");
        }
    }

    #[test]
    fn credentials_are_decoded_and_never_shown() {
        let url: ParentUrl = "http://us%40er:p%C3%A4ss%3a@parent:3128".parse().unwrap();
        let credentials = url.credentials.as_ref().unwrap();
        assert_eq!((credentials.user.as_str(), credentials.password.as_str()), ("us@er", "päss:"));
        assert_eq!(credentials.basic(), "Basic dXNAZXI6cMOkc3M6");
        for bad in
            ["http://u:secret@", "ftp://u:secret@parent", "http://u:secret@parent/x", "http://u:%ffsecret@parent"]
        {
            let told = bad.parse::<ParentUrl>().unwrap_err();
            assert!(!told.contains("secret"), "{told}");
        }
    }
}
