//! Keys of the advertisement rows that a batch can touch: a backend reads these rows before it applies the batch.

use std::collections::{BTreeMap, BTreeSet};

use crate::domain::id::{AdvertisementId, ReservationId, UserKey};
use crate::store::adverts::{AdvertLimitPolicy, AdvertWrite, OwnerKey, ReservedPartyKey};

/// Ids in a batch, each once.
#[derive(Default)]
pub(in crate::store) struct TouchedAdvertKeys {
    pub(in crate::store) advertisements: BTreeSet<AdvertisementId>,
    /// Advertisements whose open seats are counted.
    pub(in crate::store) seat_counted_advertisements: BTreeSet<AdvertisementId>,
    pub(in crate::store) reservations: BTreeSet<ReservationId>,
    /// Advertisements to lock where servers share the store: `advertisements`, and those of the named reservations.
    pub(in crate::store) locked_advertisements: BTreeSet<AdvertisementId>,
    /// Owners who publish, as first keys of their accounts, and whether a new advertisement replaces others. Their
    /// advertisements are needed if one of the published ones is new.
    pub(in crate::store) advertisers: BTreeMap<OwnerKey, bool>,
    /// Owners who reserve, as first keys of their accounts. Their live reservations are read.
    pub(in crate::store) reservers: BTreeSet<OwnerKey>,
    /// Parties that seats are reserved for. Their live reservations are read.
    pub(in crate::store) parties: BTreeSet<ReservedPartyKey>,
    /// Users who are erased from the reservations of an advertisement. Those reservations are read.
    pub(in crate::store) erased_users: BTreeSet<(AdvertisementId, UserKey)>,
}

impl TouchedAdvertKeys {
    pub(in crate::store) fn of_batch(batch: &[AdvertWrite]) -> Self {
        let mut keys = Self::default();
        for write in batch {
            match write {
                AdvertWrite::Publish { advertisement, confirmed_reservations, joined_reservations, owner, .. } => {
                    keys.advertisements.insert(advertisement.id);
                    if let Some(owner) = owner {
                        let replaces = matches!(owner.limit, AdvertLimitPolicy::Replace { .. });
                        *keys.advertisers.entry(owner.key.account_range().0).or_default() |= replaces;
                    }
                    keys.reservations.extend(confirmed_reservations.iter().chain(joined_reservations));
                }
                AdvertWrite::ExtendTtl { advertisement_id, confirmed_reservations, joined_reservations, .. } => {
                    keys.advertisements.insert(*advertisement_id);
                    keys.reservations.extend(confirmed_reservations.iter().chain(joined_reservations));
                }
                AdvertWrite::Delete { advertisement_id, .. } | AdvertWrite::Expire { advertisement_id, .. } => {
                    keys.advertisements.insert(*advertisement_id);
                }
                AdvertWrite::ReserveSeats { reservation, limit, .. } => {
                    if let Some(owner) = reservation.owner.filter(|_| limit.is_some()) {
                        keys.reservers.insert(owner.client.account_range().0);
                        keys.parties.insert(owner.party);
                    }
                    keys.advertisements.insert(reservation.advertisement_id);
                    keys.seat_counted_advertisements.insert(reservation.advertisement_id);
                    keys.reservations.insert(reservation.id);
                }
                AdvertWrite::EraseUser { advertisement_id, user, .. } => {
                    keys.advertisements.insert(*advertisement_id);
                    keys.erased_users.insert((*advertisement_id, *user));
                }
                AdvertWrite::EndReservation { reservation_id, advertisement_id, .. }
                | AdvertWrite::ReleaseSeat { reservation_id, advertisement_id, .. } => {
                    keys.locked_advertisements.insert(*advertisement_id);
                    keys.reservations.insert(*reservation_id);
                }
            }
        }
        keys.locked_advertisements.extend(&keys.advertisements);
        keys
    }
}

/// Whether a batch is known to add advertisements or reservations of owners, before any row is read.
pub(in crate::store) fn adds_owned_rows(batch: &[AdvertWrite]) -> bool {
    // An advertisement that the batch removes and publishes again is new, too.
    let removes = batch.iter().any(AdvertWrite::may_remove_advertisement);
    batch.iter().any(|write| match write {
        AdvertWrite::Publish { owner: Some(owner), .. } => removes || owner.is_new_advert,
        AdvertWrite::ReserveSeats { reservation, limit, .. } => reservation.owner.is_some() && limit.is_some(),
        _ => false,
    })
}
