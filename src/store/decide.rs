//! What each change does to what is stored: plain code over plain values, carried out by every store.
//!
//! A store shows this code the part of its rows that a batch touches, lets it make the changes one by one, in order, and
//! then carries out the difference. So a batch means the same everywhere, however fast it is written.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::collections::HashMap;
use std::sync::Arc;

use crate::domain::advertisement::Advertisement;
use crate::domain::id::{AdvertisementId, IdState, ReservationId};
use crate::domain::limit::RESERVATIONS_MAX;
use crate::domain::time::UnixMs;
use crate::store::{Outcome, Reservation, ReservationState, SETTLED_KEPT_MS, Version, Write};

/// An advertisement as far as changes ask about it.
#[derive(Clone, Debug)]
pub(super) struct Standing {
    /// Since when it has been advertised.
    pub(super) since: UnixMs,
    /// Until when it is believed.
    pub(super) expires: UnixMs,
    /// Seats before reservations are deducted.
    pub(super) join_seats: u16,
    /// As the store had it before the batch.
    pub(super) version: Version,
    /// As it was handed in to be published, but for `since`. None while it is only where the store got it from.
    pub(super) published: Option<Arc<Advertisement>>,
    /// Made by a change, not shown by the store: whatever the store has under this id is another, removed one.
    pub(super) fresh: bool,
    /// Which of the picture's reservations are in it.
    pub(super) reservations: BTreeSet<ReservationId>,
}

impl Standing {
    /// As it is to be seen by others, if it was published here.
    pub(super) fn advertisement(&self) -> Option<Arc<Advertisement>> {
        let published = self.published.as_ref()?;
        if published.since == self.since {
            return Some(Arc::clone(published));
        }
        Some(Arc::new(Advertisement { since: self.since, ..(**published).clone() }))
    }
}

/// What a store holds, or as much of it as a batch can touch.
#[derive(Clone, Debug, Default)]
pub(super) struct Picture {
    pub(super) advertisements: HashMap<AdvertisementId, Standing, IdState>,
    pub(super) reservations: BTreeMap<ReservationId, Reservation>,
    /// Until when each deleted advertisement stays deleted.
    pub(super) tombstones: HashMap<AdvertisementId, UnixMs, IdState>,
}

impl Picture {
    /// Makes one change and says what it did.
    pub(super) fn apply(&mut self, write: &Write) -> Outcome {
        match write {
            Write::Put { advertisement, expires, confirmed, settled, now } => {
                let outcome = self.put(advertisement, *expires, *now);
                if let Outcome::Put { .. } = outcome {
                    self.confirm(advertisement.id, confirmed, *now);
                    self.settle(advertisement.id, settled, *now);
                }
                outcome
            }
            Write::Extend { id, expires, confirmed, settled, now } => {
                let Some(standing) = self.advertisements.get_mut(id) else { return Outcome::Absent };
                standing.expires = standing.expires.max(*expires);
                self.confirm(*id, confirmed, *now);
                self.settle(*id, settled, *now);
                Outcome::Done
            }
            Write::Delete { id, tombstone_until } => {
                self.remove(*id);
                let until = self.tombstones.entry(*id).or_default();
                *until = (*until).max(*tombstone_until);
                Outcome::Done
            }
            Write::Expire { id, now, seen } => {
                let due =
                    |standing: &Standing| standing.expires <= *now && seen.is_none_or(|seen| seen == standing.version);
                if self.advertisements.get(id).is_some_and(due) {
                    self.remove(*id);
                }
                Outcome::Done
            }
            Write::Reserve { reservation, now } => self.reserve(reservation, *now),
            Write::End { id, advertisement_id, forget_at } => {
                let Some(reservation) = self.reservation_of(*advertisement_id, *id) else { return Outcome::Absent };
                if reservation.state != ReservationState::Ended {
                    reservation.state = ReservationState::Ended;
                    reservation.until = *forget_at;
                }
                Outcome::Done
            }
        }
    }

    /// Adds an advertisement as the store has it.
    pub(super) fn add_standing(
        &mut self,
        id: AdvertisementId,
        (since, expires): (UnixMs, UnixMs),
        join_seats: u16,
        version: Version,
    ) {
        let reservations = BTreeSet::new();
        let standing = Standing { since, expires, join_seats, version, published: None, fresh: false, reservations };
        self.advertisements.insert(id, standing);
    }

    /// Adds a reservation to the picture, and to its advertisement when that is in the picture.
    pub(super) fn add_reservation(&mut self, reservation: Reservation) {
        if let Some(standing) = self.advertisements.get_mut(&reservation.advertisement_id) {
            standing.reservations.insert(reservation.id);
        }
        self.reservations.insert(reservation.id, reservation);
    }

    /// Takes an advertisement out, with its reservations.
    pub(super) fn remove(&mut self, id: AdvertisementId) {
        if let Some(standing) = self.advertisements.remove(&id) {
            for reservation in &standing.reservations {
                self.reservations.remove(reservation);
            }
        }
    }

    fn put(&mut self, advertisement: &Arc<Advertisement>, expires: UnixMs, now: UnixMs) -> Outcome {
        if self.tombstones.get(&advertisement.id).is_some_and(|until| now < *until) {
            return Outcome::Tombstoned;
        }
        let join_seats = advertisement.session.join_seats;
        match self.advertisements.get_mut(&advertisement.id) {
            Some(standing) => {
                standing.expires = expires;
                standing.join_seats = join_seats;
                standing.published = Some(Arc::clone(advertisement));
                Outcome::Put { created: false, since: standing.since }
            }
            None => {
                let since = advertisement.since;
                let published = Some(Arc::clone(advertisement));
                let reservations = BTreeSet::new();
                let version = Version::default();
                let standing = Standing { since, expires, join_seats, version, published, fresh: true, reservations };
                self.advertisements.insert(advertisement.id, standing);
                Outcome::Put { created: true, since }
            }
        }
    }

    fn reserve(&mut self, wanted: &Reservation, now: UnixMs) -> Outcome {
        if let Some(stored) = self.reservations.get(&wanted.id) {
            let same = stored.payload == wanted.payload && stored.advertisement_id == wanted.advertisement_id;
            return match same {
                true => Outcome::Reserved { reservation: stored.clone(), replayed: true },
                false => Outcome::KeyReused,
            };
        }
        let Some(standing) = self.advertisements.get(&wanted.advertisement_id) else { return Outcome::Absent };
        let all = standing.reservations.iter().filter_map(|id| self.reservations.get(id));
        let live = all.filter(|reservation| takes_seats(reservation, now));
        let (count, held) = live.fold((0, 0_usize), |(count, seats), it| (count + 1, seats + usize::from(it.seats)));
        let open_seats = u16::try_from(usize::from(standing.join_seats).saturating_sub(held)).unwrap_or(u16::MAX);
        if open_seats < wanted.seats {
            return Outcome::Full { open_seats };
        }
        if RESERVATIONS_MAX <= count {
            return Outcome::TooManyReservations;
        }
        let reservation = Reservation { state: ReservationState::Held, ..wanted.clone() };
        self.add_reservation(reservation.clone());
        Outcome::Reserved { reservation, replayed: false }
    }

    fn confirm(&mut self, advertisement_id: AdvertisementId, ids: &[ReservationId], now: UnixMs) {
        for id in ids {
            if let Some(reservation) = self.reservation_of(advertisement_id, *id)
                && reservation.state == ReservationState::Held
                && now < reservation.until
            {
                reservation.state = ReservationState::Confirmed;
            }
        }
    }

    fn settle(&mut self, advertisement_id: AdvertisementId, ids: &[ReservationId], now: UnixMs) {
        for id in ids {
            if let Some(reservation) = self.reservation_of(advertisement_id, *id)
                && reservation.state != ReservationState::Ended
            {
                reservation.state = ReservationState::Ended;
                reservation.until = now.after(SETTLED_KEPT_MS);
            }
        }
    }

    /// A reservation, if it is in this advertisement: nobody acts on another's seats.
    fn reservation_of(&mut self, advertisement_id: AdvertisementId, id: ReservationId) -> Option<&mut Reservation> {
        self.reservations.get_mut(&id).filter(|reservation| reservation.advertisement_id == advertisement_id)
    }
}

/// Whether a reservation's seats are not open.
fn takes_seats(reservation: &Reservation, now: UnixMs) -> bool {
    match reservation.state {
        ReservationState::Held => now < reservation.until,
        ReservationState::Confirmed => true,
        ReservationState::Ended => false,
    }
}
