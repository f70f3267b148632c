//! Reasons for which bytes are no valid packet.

use thiserror::Error;

/// Reason to drop a packet. It is for counters only: no answer tells it.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum PacketError {
    /// Another protocol, version or type of packet.
    #[error("not a packet of this type")]
    OtherType,
    /// Too short, too long, or a length field that contradicts the length.
    #[error("wrong length")]
    Length,
    /// A flag that this version does not know.
    #[error("unknown flags")]
    Flags,
    /// A padding byte that is not zero, or a value that the field does not have.
    #[error("invalid field")]
    Field,
    /// Bytes that were not written with the key.
    #[error("wrong authentication code")]
    Mac,
}
