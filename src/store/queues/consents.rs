//! Consents that were taken or revoked: a row each, kept until the consent has expired everywhere.

use crate::domain::id::{AdvertisementId, ConsentId, MatchId, TicketId};
use crate::domain::time::UnixMs;

/// Retention of a row after its consent has expired, milliseconds: the clocks of servers differ by less.
pub const CONSENT_RETENTION_AFTER_EXPIRY_MS: u64 = 10 * 60 * 1_000;

/// Consent that a player granted, as its token says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantedConsent {
    /// Consent id.
    pub id: ConsentId,
    /// Expiry of the token.
    pub expires_at: UnixMs,
}

/// Taker of a consent: the id of a ticket, a search, an advertisement, or a match of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsentConsumer(pub [u8; 16]);

impl From<TicketId> for ConsentConsumer {
    fn from(id: TicketId) -> Self {
        Self(*id.as_bytes())
    }
}

impl From<AdvertisementId> for ConsentConsumer {
    fn from(id: AdvertisementId) -> Self {
        Self(*id.as_bytes())
    }
}

impl From<MatchId> for ConsentConsumer {
    fn from(id: MatchId) -> Self {
        Self(*id.as_bytes())
    }
}

/// Row of a consent. A consent that was neither taken nor revoked has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) struct StoredConsent {
    /// Its taker; `None` if it was revoked before.
    pub(in crate::store) consumer: Option<ConsentConsumer>,
    pub(in crate::store) is_revoked: bool,
    pub(in crate::store) expires_at: UnixMs,
}
