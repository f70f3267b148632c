//! Stateless tokens: what the server would have to remember about a client, signed and handed to the client.

use crate::domain::advertisement::Kind;
use crate::domain::id::{AdvertisementId, ReservationId, SetId, SiloId, UserKey};
use crate::domain::time::UnixMs;

/// Says who may update or delete an advertisement and since when it has been advertised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdvertisementClaim {
    /// Which advertisement.
    pub id: AdvertisementId,
    /// Its set.
    pub set_id: SetId,
    /// Who waits behind it.
    pub kind: Kind,
    /// The caller it was given to; none for anonymous.
    pub subject: Option<UserKey>,
    /// Since when it has been advertised.
    pub since: UnixMs,
}

/// Says since when a search has been running, and for whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchClaim {
    /// The set searched.
    pub set_id: SetId,
    /// The population searched.
    pub silo: SiloId,
    /// A digest of caller and party: the token is good for them alone.
    pub party: [u8; 16],
    /// When the search began.
    pub since: UnixMs,
    /// When the token was last given out.
    pub used: UnixMs,
}

/// Says who may release a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservationClaim {
    /// Which reservation.
    pub id: ReservationId,
    /// In which advertisement.
    pub advertisement_id: AdvertisementId,
    /// Its set.
    pub set_id: SetId,
}

/// Signs and opens tokens.
#[derive(Debug)]
pub struct Signer;
