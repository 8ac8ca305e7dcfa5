//! What the operator has set about requests: who may ask, who is who, and what is enforced on whom.
//!
//! A request takes the terms once, at its beginning, and goes by them to its end, however often they are reloaded meanwhile; the next one
//! on the same connection, or in the same tunnel, takes those that are in force then.

use std::sync::Arc;

use http::{HeaderMap, header};

use super::error::Refusal;
use super::pipeline::Client;
use crate::audit::Record;
use crate::auth::Auth;
use crate::policy::enforcement::{Enforcement, Exception, Mode};
use crate::policy::hints::SEC_FETCH_DEST;
use crate::policy::identity::{self, Asking, Identity};
use crate::policy::target::Target;

/// The terms in force.
pub struct Terms {
    /// Who may ask; `None` is everybody.
    pub auth: Option<Arc<Auth>>,
    /// Who is asking.
    pub identity: identity::Settings,
    /// Whether decisions are put into practice.
    pub mode: Mode,
    /// Sites whose rules are not enforced.
    pub exceptions: Vec<Exception>,
}

impl Terms {
    /// Whether the client may use the proxy. One that comes through a tunnel is taken at the word of its CONNECT: the password has been
    /// found right then and is remembered, but its user may have been taken off the list since.
    pub(super) async fn authenticate(&self, client: &Client, headers: &HeaderMap) -> Result<(), Refusal> {
        match &self.auth {
            Some(auth) => Ok(Box::pin(auth.check(client.connect_headers().unwrap_or(headers))).await?),
            None => Ok(()),
        }
    }

    /// Which bot is asking, and what is enforced on it there.
    pub(super) fn identify(
        &self,
        client: &Client,
        headers: &HeaderMap,
        target: Target,
        record: &mut Record,
    ) -> Result<Asked, Refusal> {
        let user = client.user(headers);
        record.client_said(headers.get(header::USER_AGENT), user.as_ref());
        record.wanted_for(headers.get(SEC_FETCH_DEST));
        let asking = Asking {
            user: user.as_deref(),
            client: client.address.ip(),
            host: target.origin.host.as_str(),
            headers,
            tunnel: client.connect_headers(),
            last: &client.last,
        };
        let identity = identity::identify(&self.identity, &asking)?;
        record.identified(&identity);
        let enforcement = Enforcement::of(&identity, asking.host, self.mode, &self.exceptions);
        record.enforced(&enforcement);
        let asked = Asked { user, identity, target, enforcement };
        if let Err(unidentified) = identity::admit(&self.identity, &asked.identity) {
            asked.enforce(unidentified.into(), record)?;
        }
        Ok(asked)
    }
}

/// Who asks for what, and what is enforced on it.
pub(super) struct Asked {
    /// The user name given to the proxy.
    pub(super) user: Option<Arc<str>>,
    pub(super) identity: Identity,
    pub(super) target: Target,
    pub(super) enforcement: Enforcement,
}

impl Asked {
    /// Refuses, or records that it would have.
    pub(super) fn enforce(&self, refusal: Refusal, record: &mut Record) -> Result<(), Refusal> {
        if !self.enforcement.waives(refusal.reason) {
            return Err(refusal);
        }
        record.waived(refusal.reason);
        Ok(())
    }
}
