//! Saved form of a queue loop, so that a game that restarts finds its ticket or match again.
//!
//! Bytes: `FTQ` and the version 1; TTL of the ticket, milliseconds, 8 bytes; the ticket and the request that entered it, each with its
//! length before it.

use prost::Message;

use crate::pb;

/// First bytes: the format and its version.
const MAGIC: [u8; 4] = *b"FTQ\x01";

/// Ticket and request of a loop.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SavedTicket {
    /// Id, token and resume token. Empty before the ticket is entered.
    pub(super) ticket: pb::TicketReference,
    /// Request with its idempotency key.
    pub(super) request: pb::QueueEnterRequest,
    /// TTL without a watch, milliseconds.
    pub(super) ttl_ms: u64,
}

impl SavedTicket {
    /// The bytes. They contain the ticket's token: keep them where other players cannot read them.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(self.ttl_ms.to_be_bytes());
        bytes.extend(self.ticket.encode_length_delimited_to_vec());
        bytes.extend(self.request.encode_length_delimited_to_vec());
        bytes
    }

    /// Reads bytes of [`Self::encode`]. `None` if they are none.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(&MAGIC)?;
        let (expires_in_ms, mut rest) = rest.split_first_chunk::<8>()?;
        let ticket = pb::TicketReference::decode_length_delimited(&mut rest).ok()?;
        let request = pb::QueueEnterRequest::decode_length_delimited(&mut rest).ok()?;
        rest.is_empty().then_some(Self { ticket, request, ttl_ms: u64::from_be_bytes(*expires_in_ms) })
    }
}
