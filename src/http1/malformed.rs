//! What is wrong with octets that should be HTTP/1.1.

/// What is wrong with octets that should be HTTP/1.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
    /// A head that is longer than it may be, or has too many fields.
    #[error("the head is too large")]
    TooLarge,
    /// A head that is none.
    #[error("the head cannot be read: {0}")]
    Head(httparse::Error),
    /// A head whose parts are not what they have to be.
    #[error("the head cannot be read: invalid {0}")]
    Part(&'static str),
    /// A head with two ends, or with one that is unknown here.
    #[error("{0}")]
    Framing(&'static str),
    /// A body in chunks that are none.
    #[error("invalid {0}")]
    Chunk(&'static str),
    /// The stream has ended in the middle.
    #[error("it ended in the middle of a message")]
    Ended,
}
