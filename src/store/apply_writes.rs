//! What each change does to what is stored: plain code over plain values, carried out by every store.
//!
//! A store shows this code the part of its rows that a batch touches, lets it make the changes one by one, in order, and
//! then carries out the difference. So a batch means the same everywhere, however fast it is written.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::collections::HashMap;
use std::sync::Arc;

use crate::domain::advertisement::Advertisement;
use crate::domain::id::{AdvertisementId, BuildIdHasher, ReservationId};
use crate::domain::limit::RESERVATIONS_PER_ADVERTISEMENT_MAX;
use crate::domain::time::UnixMs;
use crate::store::{
    AdvertVersion, AdvertWrite, ENDED_RESERVATION_RETENTION_MS, Reservation, ReservationState, WriteOutcome,
};

/// An advertisement as far as changes ask about it.
#[derive(Clone, Debug)]
pub(super) struct AdvertRowState {
    /// Since when it has been advertised.
    pub(super) advertised_since: UnixMs,
    /// Until when it is believed.
    pub(super) expires_at: UnixMs,
    /// Seats before reservations are deducted.
    pub(super) join_seats: u16,
    /// As the store had it before the batch.
    pub(super) version: AdvertVersion,
    /// As it was handed in to be published, but for `since`. None while it is only where the store got it from.
    pub(super) new_advertisement: Option<Arc<Advertisement>>,
    /// Made by a change, not shown by the store: whatever the store has under this id is another, removed one.
    pub(super) created_in_batch: bool,
    /// Which of the picture's reservations are in it.
    pub(super) reservation_ids: BTreeSet<ReservationId>,
}

impl AdvertRowState {
    /// As it is to be seen by others, if it was published here.
    pub(super) fn advertisement_to_store(&self) -> Option<Arc<Advertisement>> {
        let published = self.new_advertisement.as_ref()?;
        if published.advertised_since == self.advertised_since {
            return Some(Arc::clone(published));
        }
        Some(Arc::new(Advertisement { advertised_since: self.advertised_since, ..(**published).clone() }))
    }
}

/// What a store holds, or as much of it as a batch can touch.
#[derive(Clone, Debug, Default)]
pub(super) struct AdvertRows {
    pub(super) advertisements: HashMap<AdvertisementId, AdvertRowState, BuildIdHasher>,
    pub(super) reservations: BTreeMap<ReservationId, Reservation>,
    /// Until when each deleted advertisement stays deleted.
    pub(super) tombstones: HashMap<AdvertisementId, UnixMs, BuildIdHasher>,
}

impl AdvertRows {
    /// Makes one change and says what it did.
    pub(super) fn apply_write(&mut self, write: &AdvertWrite) -> WriteOutcome {
        match write {
            AdvertWrite::Publish {
                advertisement,
                expires_at: expires,
                confirmed_reservations: confirmed,
                joined_reservations: settled,
                now,
            } => {
                let outcome = self.publish(advertisement, *expires, *now);
                if let WriteOutcome::Published { .. } = outcome {
                    self.confirm_reservations(advertisement.id, confirmed, *now);
                    self.end_reservations(advertisement.id, settled, *now);
                }
                outcome
            }
            AdvertWrite::ExtendTtl {
                advertisement_id: id,
                expires_at: expires,
                confirmed_reservations: confirmed,
                joined_reservations: settled,
                now,
            } => {
                let Some(standing) = self.advertisements.get_mut(id) else { return WriteOutcome::NotFound };
                standing.expires_at = standing.expires_at.max(*expires);
                self.confirm_reservations(*id, confirmed, *now);
                self.end_reservations(*id, settled, *now);
                WriteOutcome::Applied
            }
            AdvertWrite::Delete { advertisement_id: id, tombstone_until } => {
                self.remove_advertisement(*id);
                let until = self.tombstones.entry(*id).or_default();
                *until = (*until).max(*tombstone_until);
                WriteOutcome::Applied
            }
            AdvertWrite::Expire { advertisement_id: id, now, expected_version: seen } => {
                let due = |standing: &AdvertRowState| {
                    standing.expires_at <= *now && seen.is_none_or(|seen| seen == standing.version)
                };
                if self.advertisements.get(id).is_some_and(due) {
                    self.remove_advertisement(*id);
                }
                WriteOutcome::Applied
            }
            AdvertWrite::ReserveSeats { reservation, now } => self.reserve_seats(reservation, *now),
            AdvertWrite::EndReservation { reservation_id: id, advertisement_id, purge_at: forget_at } => {
                let Some(reservation) = self.reservation_in_advertisement(*advertisement_id, *id) else {
                    return WriteOutcome::NotFound;
                };
                if reservation.state != ReservationState::Ended {
                    reservation.state = ReservationState::Ended;
                    reservation.deadline = *forget_at;
                }
                WriteOutcome::Applied
            }
        }
    }

    /// Adds an advertisement as the store has it.
    pub(super) fn add_advertisement(
        &mut self,
        id: AdvertisementId,
        (since, expires): (UnixMs, UnixMs),
        join_seats: u16,
        version: AdvertVersion,
    ) {
        let reservations = BTreeSet::new();
        let standing = AdvertRowState {
            advertised_since: since,
            expires_at: expires,
            join_seats,
            version,
            new_advertisement: None,
            created_in_batch: false,
            reservation_ids: reservations,
        };
        self.advertisements.insert(id, standing);
    }

    /// Adds a reservation to the picture, and to its advertisement when that is in the picture.
    pub(super) fn add_reservation(&mut self, reservation: Reservation) {
        if let Some(standing) = self.advertisements.get_mut(&reservation.advertisement_id) {
            standing.reservation_ids.insert(reservation.id);
        }
        self.reservations.insert(reservation.id, reservation);
    }

    /// Takes an advertisement out, with its reservations.
    pub(super) fn remove_advertisement(&mut self, id: AdvertisementId) {
        if let Some(standing) = self.advertisements.remove(&id) {
            for reservation in &standing.reservation_ids {
                self.reservations.remove(reservation);
            }
        }
    }

    fn publish(&mut self, advertisement: &Arc<Advertisement>, expires: UnixMs, now: UnixMs) -> WriteOutcome {
        if self.tombstones.get(&advertisement.id).is_some_and(|until| now < *until) {
            return WriteOutcome::Tombstoned;
        }
        let join_seats = advertisement.session.join_seats;
        match self.advertisements.get_mut(&advertisement.id) {
            Some(standing) => {
                standing.expires_at = expires;
                standing.join_seats = join_seats;
                standing.new_advertisement = Some(Arc::clone(advertisement));
                WriteOutcome::Published { created: false, advertised_since: standing.advertised_since }
            }
            None => {
                let since = advertisement.advertised_since;
                let published = Some(Arc::clone(advertisement));
                let reservations = BTreeSet::new();
                let version = AdvertVersion::default();
                let standing = AdvertRowState {
                    advertised_since: since,
                    expires_at: expires,
                    join_seats,
                    version,
                    new_advertisement: published,
                    created_in_batch: true,
                    reservation_ids: reservations,
                };
                self.advertisements.insert(advertisement.id, standing);
                WriteOutcome::Published { created: true, advertised_since: since }
            }
        }
    }

    fn reserve_seats(&mut self, wanted: &Reservation, now: UnixMs) -> WriteOutcome {
        if let Some(stored) = self.reservations.get(&wanted.id) {
            let same =
                stored.request_digest == wanted.request_digest && stored.advertisement_id == wanted.advertisement_id;
            return match same {
                true => WriteOutcome::SeatsReserved { reservation: stored.clone(), is_replay: true },
                false => WriteOutcome::IdempotencyKeyReused,
            };
        }
        let Some(standing) = self.advertisements.get(&wanted.advertisement_id) else { return WriteOutcome::NotFound };
        let all = standing.reservation_ids.iter().filter_map(|id| self.reservations.get(id));
        let live = all.filter(|reservation| occupies_seats(reservation, now));
        let (count, held) = live.fold((0, 0_usize), |(count, seats), it| (count + 1, seats + usize::from(it.seats)));
        let open_seats = u16::try_from(usize::from(standing.join_seats).saturating_sub(held)).unwrap_or(u16::MAX);
        if open_seats < wanted.seats {
            return WriteOutcome::NotEnoughSeats { open_seats };
        }
        if RESERVATIONS_PER_ADVERTISEMENT_MAX <= count {
            return WriteOutcome::TooManyReservations;
        }
        let reservation = Reservation { state: ReservationState::Held, ..wanted.clone() };
        self.add_reservation(reservation.clone());
        WriteOutcome::SeatsReserved { reservation, is_replay: false }
    }

    fn confirm_reservations(&mut self, advertisement_id: AdvertisementId, ids: &[ReservationId], now: UnixMs) {
        for id in ids {
            if let Some(reservation) = self.reservation_in_advertisement(advertisement_id, *id)
                && reservation.state == ReservationState::Held
                && now < reservation.deadline
            {
                reservation.state = ReservationState::Confirmed;
            }
        }
    }

    fn end_reservations(&mut self, advertisement_id: AdvertisementId, ids: &[ReservationId], now: UnixMs) {
        for id in ids {
            if let Some(reservation) = self.reservation_in_advertisement(advertisement_id, *id)
                && reservation.state != ReservationState::Ended
            {
                reservation.state = ReservationState::Ended;
                reservation.deadline = now.plus_ms(ENDED_RESERVATION_RETENTION_MS);
            }
        }
    }

    /// A reservation, if it is in this advertisement: nobody acts on another's seats.
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
        ReservationState::Held => now < reservation.deadline,
        ReservationState::Confirmed => true,
        ReservationState::Ended => false,
    }
}
