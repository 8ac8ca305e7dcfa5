//! The User-Agent that was read last on a connection, and the name in it.
//!
//! A client sends the same one with every request of a connection, and telling the name takes longer than comparing.

use std::sync::{Mutex, PoisonError};

use http::HeaderValue;

use super::Token;
use crate::policy::user_agent::token_in_user_agent;

/// What was read last.
#[derive(Debug, Default)]
pub struct LastUserAgent(Mutex<Option<Read>>);

#[derive(Debug)]
struct Read {
    /// Copied, since a header value holds on to all that was read with it: 8 KiB for as long as the connection lives.
    user_agent: Box<[u8]>,
    token: Option<Token>,
}

impl LastUserAgent {
    /// The product token that a User-Agent names, if it can be told. Octets that are no UTF-8 are replaced: the name is often plain
    /// where the rest of the string is not.
    pub(super) fn token(&self, user_agent: &HeaderValue) -> Option<Token> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(read) = &*last
            && *read.user_agent == *user_agent.as_bytes()
        {
            return read.token.clone();
        }
        let text = String::from_utf8_lossy(user_agent.as_bytes());
        let token = token_in_user_agent(&text).and_then(|name| name.parse().ok());
        *last = Some(Read { user_agent: user_agent.as_bytes().into(), token: token.clone() });
        token
    }
}
