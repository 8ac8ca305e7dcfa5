//! HTTP/1.1 on the wire (RFC 9112), for both sides of the proxy: heads, bodies, and the octets between.
//!
//! A part of our own, where HTTP/2 is hyper's. A general server and a general client, each a task with channels to it, were two thirds
//! of what a request on kept connections cost; a proxy has one message at a time on its way and needs neither. It also has to know what
//! such a library keeps for itself: how names were spelt, of which two lengths one was dropped, why a head could not be read, and when
//! a connection holds nothing and can be kept without buffers. Heads are read by httparse.
//!
//! [`head`], [`framing`], [`body`] and [`outgoing`] are without IO; [`ahead`] is the stream, [`pipe`] a body's way from one side to the
//! other.

mod ahead;
pub(crate) mod body;
pub(crate) mod framing;
pub(crate) mod head;
mod malformed;
mod outgoing;
pub(crate) mod pipe;
mod silence;

pub(crate) use self::ahead::{Ahead, Stream};
pub(crate) use self::malformed::Malformed;
pub(crate) use self::outgoing::{Encoder, Outgoing};
pub(crate) use self::silence::Silence;
