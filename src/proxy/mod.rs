//! The road of a request, from the client's socket to the origin and back.

pub mod ahead;
pub mod body;
pub mod error;
pub mod limits;
pub mod listener;
pub mod passthrough;
pub mod pipeline;
pub mod relay;
pub mod tunnel;
mod unreadable;
