//! The user name and password that a client gives to the proxy (HTTP Basic, RFC 7617).

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::header::{HeaderMap, PROXY_AUTHORIZATION};

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

#[cfg(test)]
mod tests {
    use super::*;

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
            let headers = values.iter().map(|value| (PROXY_AUTHORIZATION, value.parse().unwrap())).collect();
            assert_eq!(basic_user(&headers).as_deref(), user, "{values:?}");
        }
    }
}
