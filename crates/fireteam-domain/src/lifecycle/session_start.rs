//! Start of a match by the host of a searched session: session, parties and request.

use crate::id::{AdvertisementId, ReservationId};

/// Start of a match by the host of a searched session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionMatchStartByHost {
    /// Advertisement of the session.
    pub advertisement: AdvertisementId,
    /// Reservation of each ticket, in the order of the match's tickets. `None` for the host's own party.
    pub reservations: Vec<Option<ReservationId>>,
    /// Digest of the request; detects reuse of an idempotency key for another request.
    pub request_digest: [u8; 16],
}
