//! The road of a request, from the client's socket to the origin and back.

pub mod body;
pub mod error;
mod http1;
pub mod limits;
pub mod listener;
mod own;
mod passthrough;
pub mod pipeline;
mod relay;
pub mod socket;
mod stream;
pub mod terms;
pub mod tls;
mod tunnel;
mod unhurried;
mod unreadable;
mod websocket;
