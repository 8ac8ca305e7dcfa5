//! What the proxy does about a request, as rules: no await, no socket, no file, no clock.

pub mod address;
pub mod answer;
pub mod decision;
pub mod enforcement;
pub mod explained;
pub mod hints;
pub mod hold;
pub mod host;
pub mod identity;
pub mod opening;
pub mod pacing;
pub mod port;
pub mod reason;
pub mod requisite;
pub mod standing;
pub mod target;
pub mod typed;
mod user_agent;
