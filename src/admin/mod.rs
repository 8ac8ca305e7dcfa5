//! The view inside: health, metrics, a JSON API and a dashboard, on a listener of its own that is off unless configured.
//!
//! What is seen here is other people's traffic, and copies can be dropped, so `guard` stands before every page: a token wherever others
//! can reach the listener, and no site that the operator's browser visits can read or change anything. Answers come from the same code as
//! those of [`crate::control`]. Everything is bounded: connections, their life, live feeds, and the time that an answer takes.

mod api;
mod asked;
mod copies;
mod decisions;
mod guard;
mod health;
mod login;
mod metrics;
mod page;
mod secret;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwapOption;
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware;
use axum::routing::{MethodRouter, get, post};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use self::secret::Keys;
pub use self::secret::Secret;
use crate::clock;
use crate::proxy::listener::Proxy;
use crate::proxy::socket::{Accepted, Listen, Listener};
use crate::proxy::tls::Failure;

/// Where the view is, and who may see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Where it listens.
    pub listen: Listen,
    /// What a viewer has to know; `None` only where nobody else can reach it.
    pub token: Option<Secret>,
}

/// Others could look in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("others can reach {listen}: set a token, or listen on 127.0.0.1")]
pub struct Unguarded {
    listen: Listen,
}

impl Settings {
    /// Whether a viewer is either on this machine or has to know a token.
    ///
    /// # Errors
    /// Neither.
    pub fn check(&self) -> Result<(), Unguarded> {
        let is_private = self.listen.address().is_none_or(|address| address.ip().to_canonical().is_loopback());
        match is_private || self.token.is_some() {
            true => Ok(()),
            false => Err(Unguarded { listen: self.listen.clone() }),
        }
    }
}

/// The view at work.
pub struct Admin {
    proxy: Arc<Proxy>,
    /// Where the proxy listens.
    listening: Vec<Listen>,
    listen: Listen,
    keys: ArcSwapOption<Keys>,
    started: SystemTime,
    feeds: Arc<Semaphore>,
}

/// Connections at once; further ones wait. Chosen: a few people, each with a browser's six, and what scrapes metrics.
const CONNECTIONS_MAX: usize = 64;

/// Live feeds at once, each a connection that stays; beyond that 503. Leaves room for everything else.
const FEEDS_MAX: usize = 16;

/// To receive a request head, or to begin TLS; an idle connection is closed after it, too.
const HEADER_TIMEOUT: Duration = Duration::from_secs(15);

/// To answer: longer than a fetch of robots.txt takes by default.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// The life of a connection, whatever goes on; a live feed comes back by itself.
const CONNECTION_LIFE: Duration = Duration::from_secs(3600);

/// Octets of a request's body: a token.
const BODY_MAX: usize = 4096;

impl Admin {
    /// A view of a proxy.
    pub fn new(settings: Settings, proxy: Arc<Proxy>, listening: Vec<Listen>) -> Arc<Admin> {
        let Settings { listen, token } = settings;
        let keys = ArcSwapOption::new(token.map(|token| Arc::new(Keys::new(token))));
        let feeds = Arc::new(Semaphore::new(FEEDS_MAX));
        Arc::new(Admin { proxy, listening, listen, keys, started: clock::wall(), feeds })
    }

    /// Takes another token; who has shown the old one shows the new one. Where the settings are for another listener, which needs a
    /// restart, the token stays, too: theirs may be that of a listener that nobody else can reach.
    pub fn reload(&self, settings: Settings) {
        let Settings { listen, token } = settings;
        let is_same = match (&token, &*self.keys.load()) {
            (Some(token), Some(keys)) => keys.are_of(token),
            (None, None) => true,
            _ => false,
        };
        if listen == self.listen && !is_same {
            self.keys.store(token.map(|token| Arc::new(Keys::new(token))));
        }
    }

    /// Serves viewers until it is told to stop. That is later than the proxy stops, since whoever waits for it asks `/readyz`.
    pub async fn serve(self: Arc<Self>, listener: Listener, stop: CancellationToken) {
        let (router, connections) = (router(&self), Arc::new(Semaphore::new(CONNECTIONS_MAX)));
        loop {
            let permit = Arc::clone(&connections).acquire_owned().await.expect("the semaphore is never closed");
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = stop.cancelled() => return,
            };
            let (admin, router, stop) = (Arc::clone(&self), router.clone(), stop.clone());
            tokio::spawn(async move {
                let served = tokio::select! {
                    served = clock::timeout(CONNECTION_LIFE, admin.converse(accepted, router)) => served.unwrap_or(Ok(())),
                    () = stop.cancelled() => Ok(()),
                };
                if let Err(error) = served {
                    tracing::debug!(%error, "a viewer's connection ended");
                }
                drop(permit);
            });
        }
    }

    async fn converse(&self, accepted: Accepted, router: Router) -> Result<(), Failure> {
        let Accepted { stream, entrance, .. } = accepted;
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
        let service = TowerToHyperService::new(router);
        match entrance {
            Listen::Https(own) => {
                let handshake = self.proxy.interception.as_proxy(stream, own.ip());
                let stream = clock::timeout(HEADER_TIMEOUT, handshake).await.ok_or("the handshake took too long")??;
                builder.serve_connection(TokioIo::new(stream), service).await?;
            }
            Listen::Http(_) | Listen::Unix(_) => builder.serve_connection(TokioIo::new(stream), service).await?,
        }
        Ok(())
    }
}

/// What `openapi.json` describes.
fn described() -> Vec<(&'static str, MethodRouter<Arc<Admin>>)> {
    vec![
        ("/healthz", get(health::alive)),
        ("/readyz", get(health::ready)),
        ("/metrics", get(metrics::metrics)),
        ("/api/openapi.json", get(api::description)),
        ("/api/status", get(health::status)),
        ("/api/decisions", get(decisions::recent)),
        ("/api/decisions/live", get(decisions::live)),
        ("/api/blocked", get(decisions::blocked)),
        ("/api/lines", get(api::lines)),
        ("/api/explain", get(api::explain)),
        ("/api/copies", get(copies::list)),
        ("/api/copy", get(copies::show).delete(copies::forget)),
        ("/api/copy/refresh", post(copies::refresh)),
        ("/ca.pem", get(api::ca_pem)),
        ("/ca.der", get(api::ca_der)),
    ]
}

fn router(admin: &Arc<Admin>) -> Router {
    let pages = Router::new()
        .route("/", get(page::index))
        .route("/app.js", get(page::script))
        .route("/style.css", get(page::style))
        .route("/login", get(login::form).post(login::log_in))
        .route("/logout", post(login::log_out));
    let all = described().into_iter().fold(pages, |router, (path, methods)| router.route(path, methods));
    all.fallback(api::nothing_here)
        .method_not_allowed_fallback(api::not_like_this)
        .layer(DefaultBodyLimit::max(BODY_MAX))
        .layer(middleware::from_fn_with_state(Arc::clone(admin), guard::guard))
        .with_state(Arc::clone(admin))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_description_names_every_path_and_no_other() {
        let document: serde_json::Value = serde_json::from_str(api::DESCRIPTION).unwrap();
        let named: BTreeSet<&str> = document["paths"].as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(named, described().iter().map(|(path, _)| *path).collect());
    }

    #[test]
    fn a_token_is_wanted_wherever_others_can_come() {
        for (listen, token, is_fine) in [
            ("127.0.0.1:3129", None, true),
            ("[::1]:3129", None, true),
            ("unix:/run/admin.sock", None, true),
            ("0.0.0.0:3129", None, false),
            ("192.0.2.1:3129", None, false),
            ("https://[::]:3129", None, false),
            ("0.0.0.0:3129", Some("a token"), true),
        ] {
            let token = token.map(|token| token.parse().unwrap());
            let settings = Settings { listen: listen.parse().unwrap(), token };
            assert_eq!(settings.check().is_ok(), is_fine, "{listen}");
        }
    }
}
