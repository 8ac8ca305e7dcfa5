//! A forward proxy that makes any web client obey robots.txt.
//!
//! A client points `HTTPS_PROXY` at it. The proxy learns which bot is asking, fetches and keeps each origin's robots.txt (RFC 9309),
//! answers a disallowed request with a 403 that explains the deciding rule, lets allowed requests through one by one at the pace of
//! the host's Crawl-delay, and writes an audit log. Tenets, in order: polite, then correct, then fast.
//!
//! # The road of one request
//!
//! [`proxy::pipeline`] is one page: read target → authenticate → identify → look up the standing → decide → pace → forward.
//!
//! # Four rings
//!
//! Each module imports only from rings above its own; `tests/rings.rs` keeps it so.
//!
//! 1. Rules, pure (no await, socket, file or clock): [`robots`], robots.txt as a library of its own; [`policy`], what the proxy does
//!    about it.
//! 2. Parts, each holding one thing for the life of the process: [`clock`], [`metrics`] (what is counted), [`ca`] and its leaf
//!    certificates, [`upstream`] (the connections to origins), [`audit`] (the records), [`auth`] (who may use the proxy), [`queue`] (the
//!    line per host and bot), [`lookup`] (the robots.txt in force). Beside them `http1`, HTTP/1.1 on the wire for both sides, and `hex`,
//!    how digests are written.
//! 3. The road: [`proxy`], with listener, tunnel and pipeline; [`control`], the window into a running proxy; [`admin`], the view inside.
//! 4. Start-up: [`config`], the only place that knows TOML; [`app`], the only place that puts parts together; [`cli`], and
//!    `commands`, one file a subcommand.
//!
//! Reading order for a newcomer: this page, [`proxy::pipeline`], [`policy::decision`], [`robots`], [`app`].
//!
//! # One word for one thing
//!
//! *Origin*: scheme, host and port, the owner of one robots.txt. *Target*: origin, path and query of a request. *Token*: a bot's
//! product token. *Identity*: token and how we know it. *Verdict*: what a robots.txt says about a token and a path. *Standing*: what
//! holds at an origin now. *Decision*: what the proxy does. *Reason*: its code in answer, record and metric. *Copy*: a kept
//! robots.txt. *Slot*: the instant at which a request may start. *Turn*: having waited for it. *Answer*: a response that the proxy
//! makes itself. *Record*: one audit line.

pub mod policy;
pub mod robots;

pub mod audit;
pub mod auth;
pub mod ca;
pub mod clock;
mod hex;
mod http1;
pub mod lookup;
pub mod metrics;
pub mod queue;
pub mod upstream;

pub mod proxy;

pub mod control;

pub mod admin;

pub mod app;
pub mod cli;
mod commands;
pub mod config;
