//! Advertisements and reservations by owner, and which of them a new one replaces; the same plain code for every backend.

use std::collections::{BTreeSet, HashMap};

use crate::domain::id::{AdvertisementId, BuildIdHasher, ReservationId};
use crate::domain::time::UnixMs;
use crate::store::adverts::apply_writes::{AdvertRows, occupies_seats};
use crate::store::adverts::{
    AdvertLimit, AdvertOwner, ClientLimit, OwnerKey, PartyKey, Reservation, ReservationLimit, ReservationState,
};

const FIRST_ADVERT: AdvertisementId = AdvertisementId::from_bytes([0; 16]);
const LAST_ADVERT: AdvertisementId = AdvertisementId::from_bytes([u8::MAX; 16]);
const FIRST_RESERVATION: ReservationId = ReservationId::from_bytes([0; 16]);
const LAST_RESERVATION: ReservationId = ReservationId::from_bytes([u8::MAX; 16]);

/// Rows by owner. Rows without an owner are not in it. If only part of the rows was read: all rows of the owners of the
/// batch, and of the parties that it reserves for.
#[derive(Clone, Debug, Default)]
pub(in crate::store) struct OwnedRows {
    adverts: BTreeSet<(OwnerKey, AdvertisementId)>,
    /// Expiry of advertisements of which nothing else was read.
    counted_adverts: HashMap<AdvertisementId, UnixMs, BuildIdHasher>,
    /// Reservations that have not ended.
    reservations: BTreeSet<(OwnerKey, ReservationId)>,
    party_reservations: BTreeSet<(PartyKey, ReservationId)>,
}

/// Reason why a new advertisement of an owner may not be published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AdvertRefusal {
    /// The owner has the maximum number.
    LimitReached,
    /// It existed before, and another of its owner took its place.
    Replaced,
}

impl OwnedRows {
    pub(super) fn add_advert(&mut self, owner: OwnerKey, id: AdvertisementId) {
        self.adverts.insert((owner, id));
    }

    /// Adds an advertisement that counts and that this batch cannot change.
    pub(in crate::store) fn add_counted_advert(&mut self, owner: OwnerKey, id: AdvertisementId, expires_at: UnixMs) {
        self.adverts.insert((owner, id));
        self.counted_adverts.insert(id, expires_at);
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
}

impl AdvertRows {
    /// Makes room for a new advertisement of `owner`: removes those whose place it takes, and returns them. The reason if it may not be published.
    pub(super) fn make_room_for_advert(
        &mut self,
        owner: &AdvertOwner,
        now: UnixMs,
    ) -> Result<Vec<AdvertisementId>, AdvertRefusal> {
        let (first, last) = owner.key.account_range();
        let all = self.owned.adverts.range((first, FIRST_ADVERT)..=(last, LAST_ADVERT));
        let live = all.filter_map(|(key, id)| {
            let row = self.advertisements.get(id);
            let counted = || self.owned.counted_adverts.get(id).copied();
            let expires_at = row.map(|row| row.expires_at).or_else(counted)?;
            let advertised_since = row.map_or(UnixMs(0), |row| row.advertised_since);
            (now < expires_at).then_some((advertised_since, *id, *key == owner.key))
        });
        let mut live: Vec<_> = live.collect();
        match owner.limit {
            AdvertLimit::Refuse { max } if live.len() >= max as usize => Err(AdvertRefusal::LimitReached),
            AdvertLimit::Refuse { .. } => Ok(Vec::new()),
            AdvertLimit::Replace { limit, tombstone_until, is_create } => {
                live.sort_unstable();
                let replaced = oldest_beyond(limit, live.into_iter().map(|(_, id, is_client)| (id, is_client)));
                if !replaced.is_empty() && !is_create {
                    return Err(AdvertRefusal::Replaced);
                }
                for id in &replaced {
                    self.remove_advertisement(*id);
                    let until = self.tombstones.entry(*id).or_default();
                    *until = (*until).max(tombstone_until);
                }
                Ok(replaced)
            }
        }
    }

    /// Live reservations whose place `wanted` takes: those of its client and account beyond the limit, and those of its
    /// party.
    pub(super) fn reservations_to_replace(
        &self,
        wanted: &Reservation,
        limit: Option<ReservationLimit>,
        now: UnixMs,
    ) -> BTreeSet<ReservationId> {
        let (Some(owner), Some(ReservationLimit { limit, .. })) = (wanted.owner, limit) else {
            return BTreeSet::new();
        };
        let is_live = |id: &ReservationId| self.reservations.get(id).filter(|found| occupies_seats(found, now));
        let (first, last) = owner.client.account_range();
        let all = self.owned.reservations.range((first, FIRST_RESERVATION)..=(last, LAST_RESERVATION));
        let mut live: Vec<_> =
            all.filter_map(|(client, id)| Some((is_live(id)?.deadline, *id, *client == owner.client))).collect();
        live.sort_unstable();
        let replaced = oldest_beyond(limit, live.into_iter().map(|(_, id, is_client)| (id, is_client)));
        let party = (owner.party, FIRST_RESERVATION)..=(owner.party, LAST_RESERVATION);
        let of_party = self.owned.party_reservations.range(party).map(|(_, id)| *id);
        replaced.into_iter().chain(of_party.filter(|id| is_live(id).is_some())).collect()
    }
}

/// Those of `live` that must go so that one more is within the limit: first the oldest of the client, then the oldest of
/// the account. `live` is in order of age, each with whether it is of the client.
fn oldest_beyond<Id: Copy>(limit: ClientLimit, live: impl Iterator<Item = (Id, bool)>) -> Vec<Id> {
    let (of_client, of_others): (Vec<_>, Vec<_>) = live.enumerate().partition(|(_, (_, is_client))| *is_client);
    let excess = (of_client.len() + 1).saturating_sub(limit.per_client.max(1) as usize);
    let (replaced, kept) = of_client.split_at(excess.min(of_client.len()));
    let mut rest: Vec<_> = kept.iter().chain(&of_others).collect();
    rest.sort_unstable_by_key(|(age, _)| *age);
    let excess = (rest.len() + 1).saturating_sub(limit.per_account.max(1) as usize);
    replaced.iter().chain(rest.into_iter().take(excess)).map(|(_, (id, _))| *id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_beyond_takes_the_client_first_and_then_the_account() {
        let limit = |per_client, per_account| ClientLimit { per_client, per_account };
        let beyond = |limit, live: &[(u8, bool)]| oldest_beyond(limit, live.iter().copied());
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
