//! Effect of each advertisement write on the stored rows; the same plain code for every backend.
//!
//! A backend passes in the rows that a batch touches and applies its writes here, in order. Then it stores the
//! difference. So a batch has the same result in every backend.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::collections::HashMap;
use std::sync::Arc;

use crate::domain::advertisement::Advertisement;
use crate::domain::erasure::UserKeyReplacement;
use crate::domain::id::{AdvertisementId, BuildIdHasher, ReservationId, UserKey};
use crate::domain::limit::RESERVATIONS_PER_ADVERTISEMENT_MAX;
use crate::domain::time::UnixMs;
use crate::store::adverts::owned_rows::{OwnedRows, oldest_to_make_room_for_one};
use crate::store::adverts::{
    AdvertLimitPolicy, AdvertOwner, AdvertVersion, AdvertWrite, JOINED_RESERVATION_RETENTION_MS, OwnerKey, Reservation,
    ReservationLimit, ReservationState, UserTraces, WriteOutcome,
};

/// State of an advertisement row that writes depend on.
#[derive(Clone, Debug)]
pub(in crate::store) struct AdvertRowState {
    /// Start of advertising.
    pub(in crate::store) advertised_since: UnixMs,
    pub(in crate::store) expires_at: UnixMs,
    /// Seats before reservations are deducted.
    pub(in crate::store) join_seats: u16,
    /// Version in the store before the batch.
    pub(in crate::store) version: AdvertVersion,
    /// Advertisement that this batch publishes; its `since` is not yet the stored one. `None` if the batch does not
    /// publish it.
    pub(in crate::store) new_advertisement: Option<Arc<Advertisement>>,
    /// Advertisement in the store, if the batch erases a user from it.
    pub(in crate::store) stored_advertisement: Option<Arc<Advertisement>>,
    /// `new_advertisement` is the stored one without a user, not a publication.
    pub(in crate::store) is_erasure_rewrite: bool,
    /// Inserted by this batch. A row that the store has under this id is an older, removed one.
    pub(in crate::store) created_in_batch: bool,
    /// Reservations in it, as keys of [`AdvertRows::reservations`].
    pub(in crate::store) reservation_ids: BTreeSet<ReservationId>,
    /// Owner, if it is known and counted.
    pub(in crate::store) owner: Option<OwnerKey>,
    /// Digest of the request that created it, if it is known.
    pub(in crate::store) create_digest: Option<[u8; 16]>,
}

impl AdvertRowState {
    /// Whether a request with this digest is another one than the request that created it.
    fn is_created_by_other_request(&self, create_digest: Option<[u8; 16]>) -> bool {
        create_digest.zip(self.create_digest).is_some_and(|(asked, known)| asked != known)
    }

    /// Advertisement with its final start of advertising, if this batch publishes it.
    pub(in crate::store) fn advertisement_to_store(&self) -> Option<Arc<Advertisement>> {
        let published = self.new_advertisement.as_ref()?;
        if published.advertised_since == self.advertised_since {
            return Some(Arc::clone(published));
        }
        Some(Arc::new(Advertisement { advertised_since: self.advertised_since, ..(**published).clone() }))
    }
}

/// Reason why a new advertisement of an owner may not be published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MakeRoomError {
    /// The owner has the maximum number.
    LimitReached,
    /// It existed before, and another of its owner took its place.
    Replaced,
}

/// Rows of the store, or those that a batch can touch.
#[derive(Clone, Debug, Default)]
pub(in crate::store) struct AdvertRows {
    pub(in crate::store) advertisements: HashMap<AdvertisementId, AdvertRowState, BuildIdHasher>,
    pub(in crate::store) reservations: BTreeMap<ReservationId, Reservation>,
    /// End of each tombstone.
    pub(in crate::store) tombstones: HashMap<AdvertisementId, UnixMs, BuildIdHasher>,
    /// Advertisements and reservations by owner.
    pub(in crate::store) owned: OwnedRows,
}

impl AdvertRows {
    /// Applies one write and returns its outcome.
    pub(in crate::store) fn apply_write(&mut self, write: &AdvertWrite) -> WriteOutcome {
        match write {
            AdvertWrite::Publish {
                advertisement,
                expires_at,
                confirmed_reservations,
                joined_reservations,
                owner,
                create_digest,
                now,
            } => {
                let outcome = self.publish(advertisement, (*expires_at, *create_digest), owner.as_ref(), *now);
                if let WriteOutcome::Published { .. } = outcome {
                    self.confirm_reservations(advertisement.id, confirmed_reservations, *now);
                    self.end_joined_reservations(advertisement.id, joined_reservations, *now);
                }
                outcome
            }
            AdvertWrite::ExtendTtl {
                advertisement_id,
                expires_at,
                confirmed_reservations,
                joined_reservations,
                create_digest,
                now,
            } => {
                let Some(row) = self.advertisements.get_mut(advertisement_id) else { return WriteOutcome::NotFound };
                if row.is_created_by_other_request(*create_digest) {
                    return WriteOutcome::IdempotencyKeyReused;
                }
                row.expires_at = row.expires_at.max(*expires_at);
                self.confirm_reservations(*advertisement_id, confirmed_reservations, *now);
                self.end_joined_reservations(*advertisement_id, joined_reservations, *now);
                WriteOutcome::Applied
            }
            AdvertWrite::Delete { advertisement_id, tombstone_until } => {
                self.remove_advertisement(*advertisement_id);
                let until = self.tombstones.entry(*advertisement_id).or_default();
                *until = (*until).max(*tombstone_until);
                WriteOutcome::Applied
            }
            AdvertWrite::Expire { advertisement_id, now, expected_version } => {
                let is_due = |row: &AdvertRowState| {
                    row.expires_at <= *now && expected_version.is_none_or(|expected| expected == row.version)
                };
                if self.advertisements.get(advertisement_id).is_some_and(is_due) {
                    self.remove_advertisement(*advertisement_id);
                }
                WriteOutcome::Applied
            }
            AdvertWrite::ReserveSeats { reservation, limit, now } => self.reserve_seats(reservation, *limit, *now),
            AdvertWrite::EndReservation { reservation_id, advertisement_id, purge_at } => {
                if self.reservation_in_advertisement(*advertisement_id, *reservation_id).is_none() {
                    return WriteOutcome::NotFound;
                }
                self.end_reservation(*reservation_id, *purge_at);
                WriteOutcome::Applied
            }
            AdvertWrite::ReleaseSeat { reservation_id, advertisement_id, user, purge_at } => {
                let Some(reservation) = self.reservation_in_advertisement(*advertisement_id, *reservation_id) else {
                    return WriteOutcome::NotFound;
                };
                reservation.release_seat(*user, *purge_at);
                WriteOutcome::Applied
            }
            AdvertWrite::EraseUser { advertisement_id, user, seed, purge_at } => {
                self.erase_user(*advertisement_id, *user, seed, *purge_at)
            }
        }
    }

    /// Adds an advertisement that is in the store.
    pub(in crate::store) fn add_stored_advertisement(
        &mut self,
        id: AdvertisementId,
        (advertised_since, expires_at): (UnixMs, UnixMs),
        join_seats: u16,
        version: AdvertVersion,
        owner: Option<OwnerKey>,
    ) {
        owner.into_iter().for_each(|owner| self.owned.add_advert(owner, id));
        let row = AdvertRowState {
            advertised_since,
            expires_at,
            join_seats,
            version,
            new_advertisement: None,
            stored_advertisement: None,
            is_erasure_rewrite: false,
            created_in_batch: false,
            reservation_ids: BTreeSet::new(),
            owner,
            create_digest: None,
        };
        self.advertisements.insert(id, row);
    }

    /// Adds a reservation, also to its advertisement if that is present.
    pub(in crate::store) fn add_reservation(&mut self, reservation: Reservation) {
        if let Some(row) = self.advertisements.get_mut(&reservation.advertisement_id) {
            row.reservation_ids.insert(reservation.id);
        }
        self.owned.add_reservation(&reservation);
        self.reservations.insert(reservation.id, reservation);
    }

    /// Removes an advertisement with its reservations.
    pub(in crate::store) fn remove_advertisement(&mut self, id: AdvertisementId) {
        if let Some(row) = self.advertisements.remove(&id) {
            row.owner.into_iter().for_each(|owner| self.owned.remove_advert(owner, id));
            for reservation in row.reservation_ids.iter().filter_map(|id| self.reservations.remove(id)) {
                self.owned.remove_reservation(&reservation);
            }
        }
    }

    fn publish(
        &mut self,
        advertisement: &Arc<Advertisement>,
        (expires_at, create_digest): (UnixMs, Option<[u8; 16]>),
        owner: Option<&AdvertOwner>,
        now: UnixMs,
    ) -> WriteOutcome {
        if let Some(row) = self.advertisements.get(&advertisement.id)
            && row.is_created_by_other_request(create_digest)
        {
            if now < row.expires_at {
                return WriteOutcome::IdempotencyKeyReused;
            }
            // The other one has expired, and is made again in its place.
            self.remove_advertisement(advertisement.id);
        }
        if self.tombstones.get(&advertisement.id).is_some_and(|until| now < *until) {
            return WriteOutcome::Tombstoned;
        }
        let join_seats = advertisement.session.offered_seats;
        match self.advertisements.get_mut(&advertisement.id) {
            Some(row) => {
                row.expires_at = expires_at;
                row.join_seats = join_seats;
                row.new_advertisement = Some(Arc::clone(advertisement));
                row.is_erasure_rewrite = false;
                WriteOutcome::Published { created: false, advertised_since: row.advertised_since, replaced: Vec::new() }
            }
            None => {
                let replaced = match owner.map_or(Ok(Vec::new()), |owner| self.make_room_for_advert(owner, now)) {
                    Ok(replaced) => replaced,
                    Err(MakeRoomError::LimitReached) => return WriteOutcome::TooManyAdvertisements,
                    Err(MakeRoomError::Replaced) => return WriteOutcome::Tombstoned,
                };
                let owner = owner.map(|owner| owner.key);
                owner.into_iter().for_each(|owner| self.owned.add_advert(owner, advertisement.id));
                let advertised_since = advertisement.advertised_since;
                let row = AdvertRowState {
                    advertised_since,
                    expires_at,
                    join_seats,
                    version: AdvertVersion::default(),
                    new_advertisement: Some(Arc::clone(advertisement)),
                    stored_advertisement: None,
                    is_erasure_rewrite: false,
                    created_in_batch: true,
                    reservation_ids: BTreeSet::new(),
                    owner,
                    create_digest,
                };
                self.advertisements.insert(advertisement.id, row);
                WriteOutcome::Published { created: true, advertised_since, replaced }
            }
        }
    }

    /// Makes room for a new advertisement of `owner`: removes those whose place it takes, and returns them. The reason if it
    /// may not be published.
    fn make_room_for_advert(
        &mut self,
        owner: &AdvertOwner,
        now: UnixMs,
    ) -> Result<Vec<AdvertisementId>, MakeRoomError> {
        let live = self.owned.adverts_of_account(owner.key).filter_map(|(id, is_client)| {
            let row = self.advertisements.get(&id);
            let expires_at = row.map(|row| row.expires_at).or_else(|| self.owned.expiry_of_count_only_advert(id))?;
            let advertised_since = row.map_or(UnixMs(0), |row| row.advertised_since);
            (now < expires_at).then_some((advertised_since, id, is_client))
        });
        let mut live: Vec<_> = live.collect();
        match owner.limit {
            AdvertLimitPolicy::Refuse { max } if live.len() >= max as usize => Err(MakeRoomError::LimitReached),
            AdvertLimitPolicy::Refuse { .. } => Ok(Vec::new()),
            AdvertLimitPolicy::Replace { limit, tombstone_until, is_create } => {
                live.sort_unstable();
                let replaced =
                    oldest_to_make_room_for_one(limit, live.into_iter().map(|(_, id, is_client)| (id, is_client)));
                if !replaced.is_empty() && !is_create {
                    return Err(MakeRoomError::Replaced);
                }
                for id in &replaced {
                    self.remove_advertisement(*id);
                    if fail_point_replaces_without_tombstone() {
                        continue;
                    }
                    let until = self.tombstones.entry(*id).or_default();
                    *until = (*until).max(tombstone_until);
                }
                Ok(replaced)
            }
        }
    }

    /// Live reservations whose place `wanted` takes: those of its client and account beyond the limit, and those of its
    /// party.
    fn reservations_to_replace(
        &self,
        wanted: &Reservation,
        limit: Option<ReservationLimit>,
        now: UnixMs,
    ) -> BTreeSet<ReservationId> {
        let (Some(owner), Some(ReservationLimit { limit, .. })) = (wanted.owner, limit) else {
            return BTreeSet::new();
        };
        let is_live = |id: ReservationId| self.reservations.get(&id).filter(|found| occupies_seats(found, now));
        let all = self.owned.reservations_of_account(owner.client);
        let mut live: Vec<_> =
            all.filter_map(|(id, is_client)| Some((is_live(id)?.expires_or_purge_at, id, is_client))).collect();
        live.sort_unstable();
        let replaced = oldest_to_make_room_for_one(limit, live.into_iter().map(|(_, id, is_client)| (id, is_client)));
        let of_party = self.owned.reservations_of_party(owner.party).filter(|id| is_live(*id).is_some());
        replaced.into_iter().chain(of_party).collect()
    }

    fn reserve_seats(&mut self, wanted: &Reservation, limit: Option<ReservationLimit>, now: UnixMs) -> WriteOutcome {
        if let Some(stored) = self.reservations.get(&wanted.id) {
            let is_retry =
                stored.request_digest == wanted.request_digest && stored.advertisement_id == wanted.advertisement_id;
            return if is_retry {
                WriteOutcome::SeatsReserved { reservation: stored.clone(), is_retry, replaced: Vec::new() }
            } else {
                WriteOutcome::IdempotencyKeyReused
            };
        }
        let Some(row) = self.advertisements.get(&wanted.advertisement_id) else { return WriteOutcome::NotFound };
        let to_replace = self.reservations_to_replace(wanted, limit, now);
        let all = row.reservation_ids.iter().filter_map(|id| self.reservations.get(id));
        let live = all.filter(|reservation| occupies_seats(reservation, now) && !to_replace.contains(&reservation.id));
        let (count, taken_seats) =
            live.fold((0, 0_usize), |(count, seats), reservation| (count + 1, seats + usize::from(reservation.seats)));
        let open_seats = u16::try_from(usize::from(row.join_seats).saturating_sub(taken_seats)).unwrap_or(u16::MAX);
        if open_seats < wanted.seats {
            return WriteOutcome::NotEnoughSeats { open_seats };
        }
        if count >= RESERVATIONS_PER_ADVERTISEMENT_MAX {
            return WriteOutcome::TooManyReservationsInAdvert;
        }
        let purge_at = limit.map_or(now, |limit| limit.replaced_purge_at);
        let replaced =
            to_replace.into_iter().filter_map(|id| Some((self.end_reservation(id, purge_at)?, id))).collect();
        let reservation = Reservation { state: ReservationState::Held, ..wanted.clone() };
        self.add_reservation(reservation.clone());
        WriteOutcome::SeatsReserved { reservation, is_retry: false, replaced }
    }

    /// Applies [`AdvertWrite::EraseUser`].
    fn erase_user(
        &mut self,
        advertisement_id: AdvertisementId,
        user: UserKey,
        seed: &[u8; 16],
        purge_at: UnixMs,
    ) -> WriteOutcome {
        let Some(row) = self.advertisements.get_mut(&advertisement_id) else { return WriteOutcome::NotFound };
        let replacement = UserKeyReplacement { user, key: UserKey::of_erased(seed, advertisement_id.as_bytes()) };
        let known = row.new_advertisement.as_ref().or(row.stored_advertisement.as_ref());
        let erased = known.and_then(|known| replacement.erase_from_advertisement(known));
        let was_in_advertisement = erased.is_some();
        if let Some(erased) = erased {
            row.is_erasure_rewrite |= row.new_advertisement.is_none();
            // It could be computed from the accounts of the players.
            row.create_digest = row.create_digest.map(|_| *replacement.key.as_bytes());
            row.new_advertisement = Some(Arc::new(erased));
        }
        let traces = UserTraces::of_user(user);
        let mut reservations = Vec::new();
        for id in &row.reservation_ids {
            let Some(reservation) = self.reservations.get_mut(id) else { continue };
            let before = reservation.clone();
            if reservation.erase_user_and_release_seat(&traces, UserKey::of_erased(seed, id.as_bytes()), purge_at) {
                self.owned.remove_reservation(&before);
                self.owned.add_reservation(reservation);
                reservations.push(reservation.clone());
            }
        }
        WriteOutcome::EraseUserApplied { was_in_advertisement, reservations }
    }

    /// Ends a reservation unless it has ended, and returns its advertisement.
    fn end_reservation(&mut self, id: ReservationId, purge_at: UnixMs) -> Option<AdvertisementId> {
        let reservation = self.reservations.get_mut(&id)?;
        reservation.has_joined = false;
        if reservation.state != ReservationState::Ended {
            reservation.state = ReservationState::Ended;
            reservation.expires_or_purge_at = purge_at;
            self.owned.remove_reservation(reservation);
        }
        Some(reservation.advertisement_id)
    }

    fn confirm_reservations(&mut self, advertisement_id: AdvertisementId, ids: &[ReservationId], now: UnixMs) {
        for id in ids {
            if let Some(reservation) = self.reservation_in_advertisement(advertisement_id, *id)
                && reservation.state == ReservationState::Held
                && now < reservation.expires_or_purge_at
            {
                reservation.state = ReservationState::Confirmed;
            }
        }
    }

    fn end_joined_reservations(&mut self, advertisement_id: AdvertisementId, ids: &[ReservationId], now: UnixMs) {
        for id in ids {
            let reservation = self.reservation_in_advertisement(advertisement_id, *id);
            let Some(had_seats) = reservation.map(|reservation| occupies_seats(reservation, now)) else { continue };
            if self.reservations.get(id).is_some_and(|reservation| reservation.has_joined) {
                continue;
            }
            self.end_reservation(*id, now.plus_ms(JOINED_RESERVATION_RETENTION_MS));
            if let Some(reservation) = self.reservations.get_mut(id) {
                reservation.has_joined = had_seats;
            }
        }
    }

    /// The reservation, if it belongs to this advertisement. A host cannot change the reservations of another
    /// advertisement.
    fn reservation_in_advertisement(
        &mut self,
        advertisement_id: AdvertisementId,
        id: ReservationId,
    ) -> Option<&mut Reservation> {
        self.reservations.get_mut(&id).filter(|reservation| reservation.advertisement_id == advertisement_id)
    }
}

/// Whether a reservation's seats are not open.
fn occupies_seats(reservation: &Reservation, now: UnixMs) -> bool {
    match reservation.state {
        ReservationState::Held => now < reservation.expires_or_purge_at,
        ReservationState::Confirmed => true,
        ReservationState::Ended => false,
    }
}

/// Whether the fail point is on that lets a replaced advertisement be published again.
fn fail_point_replaces_without_tombstone() -> bool {
    fail::fail_point!("leave_no_tombstone", |_| true);
    false
}
