//! Advertisements and reservations by owner, and which of them a new one replaces; the same plain code for every backend.

use std::collections::{BTreeSet, HashMap};

use crate::domain::id::{AdvertisementId, BuildIdHasher, ReservationId};
use crate::domain::time::UnixMs;
use crate::store::adverts::{LimitPerClientAndAccount, OwnerKey, Reservation, ReservationState, ReservedPartyKey};

const MIN_ADVERTISEMENT_ID: AdvertisementId = AdvertisementId::from_bytes([0; 16]);
const MAX_ADVERTISEMENT_ID: AdvertisementId = AdvertisementId::from_bytes([u8::MAX; 16]);
const MIN_RESERVATION_ID: ReservationId = ReservationId::from_bytes([0; 16]);
const MAX_RESERVATION_ID: ReservationId = ReservationId::from_bytes([u8::MAX; 16]);

/// Rows by owner. Rows without an owner are not in it. If only part of the rows was read: all rows of the owners of the
/// batch, and of the parties that it reserves for.
#[derive(Clone, Debug, Default)]
pub(in crate::store) struct OwnedRows {
    adverts: BTreeSet<(OwnerKey, AdvertisementId)>,
    /// Expiry of advertisements of which nothing else was read.
    count_only_advert_expiries: HashMap<AdvertisementId, UnixMs, BuildIdHasher>,
    /// Reservations that have not ended.
    reservations: BTreeSet<(OwnerKey, ReservationId)>,
    party_reservations: BTreeSet<(ReservedPartyKey, ReservationId)>,
}

impl OwnedRows {
    pub(super) fn add_advert(&mut self, owner: OwnerKey, id: AdvertisementId) {
        self.adverts.insert((owner, id));
    }

    /// Adds an advertisement that counts and that this batch cannot change.
    pub(in crate::store) fn add_count_only_advert(&mut self, owner: OwnerKey, id: AdvertisementId, expires_at: UnixMs) {
        self.adverts.insert((owner, id));
        self.count_only_advert_expiries.insert(id, expires_at);
    }

    pub(super) fn remove_advert(&mut self, owner: OwnerKey, id: AdvertisementId) {
        self.adverts.remove(&(owner, id));
    }

    pub(super) fn add_reservation(&mut self, reservation: &Reservation) {
        if let Some(owner) = reservation.owner.filter(|_| reservation.state != ReservationState::Ended) {
            self.reservations.insert((owner.client, reservation.id));
            self.party_reservations.insert((owner.party, reservation.id));
        }
    }

    pub(super) fn remove_reservation(&mut self, reservation: &Reservation) {
        if let Some(owner) = reservation.owner {
            self.reservations.remove(&(owner.client, reservation.id));
            self.party_reservations.remove(&(owner.party, reservation.id));
        }
    }

    /// Advertisements of the owner's account, each with whether it is of the same client.
    pub(super) fn adverts_of_account(&self, owner: OwnerKey) -> impl Iterator<Item = (AdvertisementId, bool)> {
        let (first, last) = owner.account_range();
        let all = self.adverts.range((first, MIN_ADVERTISEMENT_ID)..=(last, MAX_ADVERTISEMENT_ID));
        all.map(move |(key, id)| (*id, *key == owner))
    }

    /// Expiry of an advertisement that only counts.
    pub(super) fn expiry_of_count_only_advert(&self, id: AdvertisementId) -> Option<UnixMs> {
        self.count_only_advert_expiries.get(&id).copied()
    }

    /// Reservations of the owner's account that have not ended, each with whether it is of the same client.
    pub(super) fn reservations_of_account(&self, owner: OwnerKey) -> impl Iterator<Item = (ReservationId, bool)> {
        let (first, last) = owner.account_range();
        let all = self.reservations.range((first, MIN_RESERVATION_ID)..=(last, MAX_RESERVATION_ID));
        all.map(move |(key, id)| (*id, *key == owner))
    }

    /// Reservations of a party that have not ended.
    pub(super) fn reservations_of_party(&self, party: ReservedPartyKey) -> impl Iterator<Item = ReservationId> {
        self.party_reservations.range((party, MIN_RESERVATION_ID)..=(party, MAX_RESERVATION_ID)).map(|(_, id)| *id)
    }
}

/// Those of `live` that must go so that one more is within the limit: first the oldest of the client, then the oldest of
/// the account. `live` is in order of age, each with whether it is of the client.
pub(super) fn oldest_to_make_room_for_one<Id: Copy>(
    limit: LimitPerClientAndAccount,
    live: impl Iterator<Item = (Id, bool)>,
) -> Vec<Id> {
    if fail_point_keeps_replaced_rows() {
        return Vec::new();
    }
    let (of_client, of_others): (Vec<_>, Vec<_>) = live.enumerate().partition(|(_, (_, is_client))| *is_client);
    let excess = (of_client.len() + 1).saturating_sub(limit.per_client.max(1) as usize);
    let (replaced, kept) = of_client.split_at(excess.min(of_client.len()));
    let mut rest: Vec<_> = kept.iter().chain(&of_others).collect();
    rest.sort_unstable_by_key(|(age, _)| *age);
    let excess = (rest.len() + 1).saturating_sub(limit.per_account.max(1) as usize);
    replaced.iter().chain(rest.into_iter().take(excess)).map(|(_, (id, _))| *id).collect()
}

/// Whether the fail point is on that leaves rows whose place a new one takes.
fn fail_point_keeps_replaced_rows() -> bool {
    fail::fail_point!("keep_replaced_rows", |_| true);
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_beyond_takes_the_client_first_and_then_the_account() {
        let limit = |per_client, per_account| LimitPerClientAndAccount { per_client, per_account };
        let beyond = |limit, live: &[(u8, bool)]| oldest_to_make_room_for_one(limit, live.iter().copied());
        assert_eq!(beyond(limit(1, 1), &[]), [0; 0]);
        assert_eq!(beyond(limit(1, 1), &[(1, true)]), [1]);
        assert_eq!(beyond(limit(1, 2), &[(1, false), (2, true)]), [2]);
        assert_eq!(beyond(limit(1, 2), &[(1, false)]), [0; 0]);
        assert_eq!(beyond(limit(1, 2), &[(1, false), (2, false)]), [1]);
        assert_eq!(beyond(limit(2, 2), &[(1, true), (2, true)]), [1]);
        assert_eq!(beyond(limit(2, 4), &[(1, true)]), [0; 0]);
        // The setting was lowered: all beyond it go.
        assert_eq!(beyond(limit(1, 1), &[(1, false), (2, true), (3, false)]), [2, 1, 3]);
    }
}
