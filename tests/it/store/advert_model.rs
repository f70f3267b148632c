//! Reference model of the advertisement store: lists and plain loops. Shares no code with a store.

use std::sync::Arc;

use fireteam::domain::advertisement::Advertisement;
use fireteam::domain::id::{AdvertisementId, ReservationId};
use fireteam::domain::limit::RESERVATIONS_PER_ADVERTISEMENT_MAX;
use fireteam::domain::time::UnixMs;
use fireteam::store::{
    AdvertVersion, AdvertWrite, ENDED_RESERVATION_RETENTION_MS, Reservation, ReservationState as State,
    StoredAdvertisement, WriteOutcome,
};

fn stored(advertisement: Arc<Advertisement>, expires: UnixMs) -> StoredAdvertisement {
    StoredAdvertisement {
        advertisement,
        expires_at: expires,
        reservations: vec![],
        version: AdvertVersion::default(),
        is_heartbeat_owner: false,
    }
}

/// Advertisements with their reservations; tombstones as pairs.
#[derive(Default)]
pub(crate) struct Model {
    ads: Vec<StoredAdvertisement>,
    tombstones: Vec<(AdvertisementId, UnixMs)>,
}

impl Model {
    pub(crate) fn commit(&mut self, batch: &[AdvertWrite]) -> Vec<WriteOutcome> {
        batch.iter().map(|write| self.apply(write.clone())).collect()
    }

    pub(crate) fn load(&mut self, now: UnixMs) -> Vec<StoredAdvertisement> {
        self.ads.retain(|ad| now < ad.expires_at);
        self.purge(now);
        self.ads.sort_by_key(|ad| ad.advertisement.id);
        self.ads.iter_mut().for_each(|ad| ad.reservations.sort_by_key(|reservation| reservation.id));
        self.ads.clone()
    }

    pub(crate) fn purge(&mut self, now: UnixMs) {
        self.tombstones.retain(|(_, until)| now < *until);
        for ad in &mut self.ads {
            ad.reservations.retain(|reservation| reservation.state != State::Ended || now < reservation.deadline);
        }
    }

    #[expect(clippy::too_many_lines, reason = "one case after another")]
    fn apply(&mut self, write: AdvertWrite) -> WriteOutcome {
        match write {
            AdvertWrite::Publish {
                advertisement,
                expires_at: expires,
                confirmed_reservations: confirmed,
                joined_reservations: joined,
                now,
            } => {
                let id = advertisement.id;
                if self.tombstones.iter().any(|(deleted, until)| *deleted == id && now < *until) {
                    return WriteOutcome::Tombstoned;
                }
                let outcome = match self.ad(id) {
                    Some(ad) => {
                        let since = ad.advertisement.advertised_since;
                        let mut published = (*advertisement).clone();
                        published.advertised_since = since;
                        ad.advertisement = published.into();
                        ad.expires_at = expires;
                        WriteOutcome::Published { created: false, advertised_since: since }
                    }
                    None => {
                        let since = advertisement.advertised_since;
                        self.ads.push(stored(advertisement, expires));
                        WriteOutcome::Published { created: true, advertised_since: since }
                    }
                };
                self.update_reservations(id, &confirmed, &joined, now);
                outcome
            }
            AdvertWrite::ExtendTtl {
                advertisement_id: id,
                expires_at: expires,
                confirmed_reservations: confirmed,
                joined_reservations: joined,
                now,
            } => {
                let Some(ad) = self.ad(id) else { return WriteOutcome::NotFound };
                if ad.expires_at < expires {
                    ad.expires_at = expires;
                }
                self.update_reservations(id, &confirmed, &joined, now);
                WriteOutcome::Applied
            }
            AdvertWrite::Delete { advertisement_id: id, tombstone_until } => {
                self.ads.retain(|ad| ad.advertisement.id != id);
                match self.tombstones.iter_mut().find(|(deleted, _)| *deleted == id) {
                    Some((_, until)) if tombstone_until <= *until => {}
                    Some((_, until)) => *until = tombstone_until,
                    None => self.tombstones.push((id, tombstone_until)),
                }
                WriteOutcome::Applied
            }
            AdvertWrite::Expire { advertisement_id: id, now, .. } => {
                self.ads.retain(|ad| ad.advertisement.id != id || now < ad.expires_at);
                WriteOutcome::Applied
            }
            AdvertWrite::ReserveSeats { reservation, now } => self.reserve(reservation, now),
            AdvertWrite::EndReservation { reservation_id: id, advertisement_id, purge_at } => {
                let Some(ad) = self.ad(advertisement_id) else { return WriteOutcome::NotFound };
                match ad.reservations.iter_mut().find(|reservation| reservation.id == id) {
                    None => WriteOutcome::NotFound,
                    Some(reservation) => {
                        if reservation.state != State::Ended {
                            reservation.state = State::Ended;
                            reservation.deadline = purge_at;
                        }
                        WriteOutcome::Applied
                    }
                }
            }
            AdvertWrite::ReleaseSeat { reservation_id: id, advertisement_id, user, purge_at } => {
                let Some(ad) = self.ad(advertisement_id) else { return WriteOutcome::NotFound };
                let Some(held) = ad.reservations.iter_mut().find(|reservation| reservation.id == id) else {
                    return WriteOutcome::NotFound;
                };
                if held.state != State::Ended && held.users.contains(&user) {
                    held.users.retain(|other| *other != user);
                    held.seats = held.seats.saturating_sub(1);
                    if held.seats == 0 || held.users.is_empty() {
                        (held.state, held.deadline) = (State::Ended, purge_at);
                    }
                }
                WriteOutcome::Applied
            }
        }
    }

    fn reserve(&mut self, mut wanted: Reservation, now: UnixMs) -> WriteOutcome {
        for stored in self.ads.iter().flat_map(|ad| &ad.reservations) {
            if stored.id == wanted.id {
                if stored.request_digest != wanted.request_digest || stored.advertisement_id != wanted.advertisement_id
                {
                    return WriteOutcome::IdempotencyKeyReused;
                }
                return WriteOutcome::SeatsReserved { reservation: stored.clone(), is_replay: true };
            }
        }
        let Some(ad) = self.ad(wanted.advertisement_id) else { return WriteOutcome::NotFound };
        let (mut taken, mut live) = (0, 0);
        for reservation in &ad.reservations {
            let held = reservation.state == State::Held && now < reservation.deadline;
            if held || reservation.state == State::Confirmed {
                taken += u32::from(reservation.seats);
                live += 1;
            }
        }
        let total = u32::from(ad.advertisement.session.join_seats);
        let open = total.saturating_sub(taken);
        if open < u32::from(wanted.seats) {
            return WriteOutcome::NotEnoughSeats { open_seats: open as u16 };
        }
        if live == RESERVATIONS_PER_ADVERTISEMENT_MAX {
            return WriteOutcome::TooManyReservations;
        }
        wanted.state = State::Held;
        ad.reservations.push(wanted.clone());
        WriteOutcome::SeatsReserved { reservation: wanted, is_replay: false }
    }

    fn update_reservations(
        &mut self,
        id: AdvertisementId,
        confirmed: &[ReservationId],
        joined: &[ReservationId],
        now: UnixMs,
    ) {
        let Some(ad) = self.ad(id) else { return };
        for reservation in &mut ad.reservations {
            let held = reservation.state == State::Held && now < reservation.deadline;
            if confirmed.contains(&reservation.id) && held {
                reservation.state = State::Confirmed;
            }
            if joined.contains(&reservation.id) && reservation.state != State::Ended {
                reservation.state = State::Ended;
                reservation.deadline = UnixMs(now.0 + ENDED_RESERVATION_RETENTION_MS);
            }
        }
    }

    fn ad(&mut self, id: AdvertisementId) -> Option<&mut StoredAdvertisement> {
        self.ads.iter_mut().find(|ad| ad.advertisement.id == id)
    }
}
