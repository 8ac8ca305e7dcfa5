//! What the proxy does about robots.txt: who is asking, and for which host.

pub mod host;
pub mod identity;
mod user_agent;
