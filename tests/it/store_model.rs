//! What a store should do, in the most obvious way: lists, and a loop for every question. Knows no store.

use std::sync::Arc;

use fireteam::domain::advertisement::Advertisement;
use fireteam::domain::id::{AdvertisementId, ReservationId};
use fireteam::domain::limit::RESERVATIONS_MAX;
use fireteam::domain::time::UnixMs;
use fireteam::store::{
    Outcome, Reservation, ReservationState as State, SETTLED_KEPT_MS, StoredAdvertisement, Version, Write,
};

fn stored(advertisement: Arc<Advertisement>, expires: UnixMs) -> StoredAdvertisement {
    StoredAdvertisement { advertisement, expires, reservations: vec![], version: Version::default(), held_here: false }
}

/// Advertisements hold their reservations; tombstones are pairs.
#[derive(Default)]
pub(crate) struct Model {
    ads: Vec<StoredAdvertisement>,
    tombstones: Vec<(AdvertisementId, UnixMs)>,
}

impl Model {
    pub(crate) fn commit(&mut self, batch: &[Write]) -> Vec<Outcome> {
        batch.iter().map(|write| self.one(write.clone())).collect()
    }

    pub(crate) fn load(&mut self, now: UnixMs) -> Vec<StoredAdvertisement> {
        self.ads.retain(|ad| now < ad.expires);
        self.forget(now);
        self.ads.sort_by_key(|ad| ad.advertisement.id);
        self.ads.iter_mut().for_each(|ad| ad.reservations.sort_by_key(|reservation| reservation.id));
        self.ads.clone()
    }

    pub(crate) fn forget(&mut self, now: UnixMs) {
        self.tombstones.retain(|(_, until)| now < *until);
        for ad in &mut self.ads {
            ad.reservations.retain(|reservation| reservation.state != State::Ended || now < reservation.until);
        }
    }

    fn one(&mut self, write: Write) -> Outcome {
        match write {
            Write::Put { advertisement, expires, confirmed, settled, now } => {
                let id = advertisement.id;
                if self.tombstones.iter().any(|(buried, until)| *buried == id && now < *until) {
                    return Outcome::Tombstoned;
                }
                let outcome = match self.ad(id) {
                    Some(ad) => {
                        let since = ad.advertisement.since;
                        let mut published = (*advertisement).clone();
                        published.since = since;
                        ad.advertisement = published.into();
                        ad.expires = expires;
                        Outcome::Put { created: false, since }
                    }
                    None => {
                        let since = advertisement.since;
                        self.ads.push(stored(advertisement, expires));
                        Outcome::Put { created: true, since }
                    }
                };
                self.mark(id, &confirmed, &settled, now);
                outcome
            }
            Write::Extend { id, expires, confirmed, settled, now } => {
                let Some(ad) = self.ad(id) else { return Outcome::Absent };
                if ad.expires < expires {
                    ad.expires = expires;
                }
                self.mark(id, &confirmed, &settled, now);
                Outcome::Done
            }
            Write::Delete { id, tombstone_until } => {
                self.ads.retain(|ad| ad.advertisement.id != id);
                match self.tombstones.iter_mut().find(|(buried, _)| *buried == id) {
                    Some((_, until)) if tombstone_until <= *until => {}
                    Some((_, until)) => *until = tombstone_until,
                    None => self.tombstones.push((id, tombstone_until)),
                }
                Outcome::Done
            }
            Write::Expire { id, now, .. } => {
                self.ads.retain(|ad| ad.advertisement.id != id || now < ad.expires);
                Outcome::Done
            }
            Write::Reserve { reservation, now } => self.reserve(reservation, now),
            Write::End { id, advertisement_id, forget_at } => {
                let Some(ad) = self.ad(advertisement_id) else { return Outcome::Absent };
                match ad.reservations.iter_mut().find(|reservation| reservation.id == id) {
                    None => Outcome::Absent,
                    Some(reservation) => {
                        if reservation.state != State::Ended {
                            reservation.state = State::Ended;
                            reservation.until = forget_at;
                        }
                        Outcome::Done
                    }
                }
            }
        }
    }

    fn reserve(&mut self, mut wanted: Reservation, now: UnixMs) -> Outcome {
        for stored in self.ads.iter().flat_map(|ad| &ad.reservations) {
            if stored.id == wanted.id {
                if stored.payload != wanted.payload || stored.advertisement_id != wanted.advertisement_id {
                    return Outcome::KeyReused;
                }
                return Outcome::Reserved { reservation: stored.clone(), replayed: true };
            }
        }
        let Some(ad) = self.ad(wanted.advertisement_id) else { return Outcome::Absent };
        let (mut taken, mut live) = (0, 0);
        for reservation in &ad.reservations {
            let held = reservation.state == State::Held && now < reservation.until;
            if held || reservation.state == State::Confirmed {
                taken += u32::from(reservation.seats);
                live += 1;
            }
        }
        let total = u32::from(ad.advertisement.session.join_seats);
        let open = total.saturating_sub(taken);
        if open < u32::from(wanted.seats) {
            return Outcome::Full { open_seats: open as u16 };
        }
        if live == RESERVATIONS_MAX {
            return Outcome::TooManyReservations;
        }
        wanted.state = State::Held;
        ad.reservations.push(wanted.clone());
        Outcome::Reserved { reservation: wanted, replayed: false }
    }

    fn mark(&mut self, id: AdvertisementId, confirmed: &[ReservationId], settled: &[ReservationId], now: UnixMs) {
        let Some(ad) = self.ad(id) else { return };
        for reservation in &mut ad.reservations {
            let held = reservation.state == State::Held && now < reservation.until;
            if confirmed.contains(&reservation.id) && held {
                reservation.state = State::Confirmed;
            }
            if settled.contains(&reservation.id) && reservation.state != State::Ended {
                reservation.state = State::Ended;
                reservation.until = UnixMs(now.0 + SETTLED_KEPT_MS);
            }
        }
    }

    fn ad(&mut self, id: AdvertisementId) -> Option<&mut StoredAdvertisement> {
        self.ads.iter_mut().find(|ad| ad.advertisement.id == id)
    }
}
