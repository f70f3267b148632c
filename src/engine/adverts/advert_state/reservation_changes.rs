//! Reservation changes in memory: confirmation, end, and the events for listeners.

use thin_vec::ThinVec;

use crate::domain::id::{AdvertisementId, ReservationId, SetId, UserKey};
use crate::domain::time::UnixMs;
use crate::engine::adverts::advert_state::AdvertState;
use crate::engine::adverts::reservation_view;
use crate::engine::command::{ReservationChange, ReservationEvent};
use crate::store::{JOINED_RESERVATION_RETENTION_MS, Reservation, ReservationState};
use crate::telemetry::label::SeatOutcomeLabel;

impl AdvertState {
    /// Ends a reservation and notifies listeners, if it has not ended before.
    pub(crate) fn end_reservation_in_memory(
        &self,
        id: ReservationId,
        advertisement_id: AdvertisementId,
        set_id: SetId,
        change: ReservationChange,
        now: UnixMs,
    ) {
        let Some(set) = self.advert_sets.get(set_id) else { return };
        let purge_at = now.plus_ms(self.common.settings.ended_reservation_retention_ms);
        let mut set = set.lock_for_write();
        let ended_reservation = set.update_reservations(advertisement_id, |reservations| {
            let is_unended = |existing: &&mut Reservation| {
                existing.id == id && (existing.state != ReservationState::Ended || existing.has_joined)
            };
            reservations.iter_mut().find(is_unended).map(|reservation| mark_reservation_ended(reservation, purge_at))
        });
        if let Some(Some(reservation)) = ended_reservation {
            self.record_ended_reservation(&reservation, seat_outcome_of_end(change), now);
            if self.common.fills_open_sessions(set_id)
                && let Some(record) = set.get(advertisement_id)
            {
                self.wake_backfill_if_open(record);
            }
            drop(set);
            self.publish_reservation_events(advertisement_id, vec![(reservation, change)], now);
        }
    }

    /// Releases the seat of a user in a reservation and notifies listeners, if the user still has it.
    pub(crate) fn release_seat_in_memory(
        &self,
        (user, id): (UserKey, ReservationId),
        advertisement_id: AdvertisementId,
        set_id: SetId,
        now: UnixMs,
    ) {
        let Some(set) = self.advert_sets.get(set_id) else { return };
        let purge_at = now.plus_ms(self.common.settings.ended_reservation_retention_ms);
        let mut set = set.lock_for_write();
        let changed = set.update_reservations(advertisement_id, |reservations| {
            let reservation = reservations.iter_mut().find(|existing| existing.id == id)?;
            reservation.release_seat(user, purge_at).then(|| reservation.clone())
        });
        let Some(Some(reservation)) = changed else { return };
        if reservation.state == ReservationState::Ended {
            self.record_ended_reservation(&reservation, SeatOutcomeLabel::Released, now);
        }
        if self.common.fills_open_sessions(set_id)
            && let Some(record) = set.get(advertisement_id)
        {
            self.wake_backfill_if_open(record);
        }
        drop(set);
        let change = host_change_of_released_seat(reservation.state);
        self.publish_reservation_events(advertisement_id, vec![(reservation, change)], now);
    }

    /// Confirms held reservations and ends joined ones, as the store did. Returns the events for listeners.
    pub(crate) fn confirm_and_end_reservations(
        &self,
        reservations: &mut ThinVec<Reservation>,
        confirmed: &[ReservationId],
        joined: &[ReservationId],
        now: UnixMs,
    ) -> Vec<(Reservation, ReservationChange)> {
        let joined_until = now.plus_ms(JOINED_RESERVATION_RETENTION_MS);
        let mut events = Vec::new();
        for reservation in reservations.iter_mut() {
            let held = reservation.state == ReservationState::Held && now < reservation.expires_or_purge_at;
            if held && confirmed.contains(&reservation.id) {
                reservation.state = ReservationState::Confirmed;
                events.push((reservation.clone(), ReservationChange::Confirmed));
                self.common.statistics.record_settled_reservation(reservation.id, now, &self.common.metrics);
            }
            if reservation.state != ReservationState::Ended && joined.contains(&reservation.id) {
                let had_seats =
                    reservation.state == ReservationState::Confirmed || now < reservation.expires_or_purge_at;
                mark_reservation_ended(reservation, joined_until);
                reservation.has_joined = had_seats;
                if had_seats {
                    self.common.statistics.record_settled_reservation(reservation.id, now, &self.common.metrics);
                }
            }
        }
        reservations.retain(|existing| existing.state != ReservationState::Ended || now < existing.expires_or_purge_at);
        events
    }

    /// Notifies the listeners of an advertisement.
    pub(crate) fn publish_reservation_events(
        &self,
        id: AdvertisementId,
        events: Vec<(Reservation, ReservationChange)>,
        now: UnixMs,
    ) {
        for (reservation, change) in events {
            let reservation = reservation_view::client_view_of_reservation(&reservation, Vec::new(), now);
            self.host_events.publish_reservation(ReservationEvent { advertisement_id: id, reservation, change });
        }
    }
}

/// Change to tell the host, which receives the number of seats that are left.
pub(super) fn host_change_of_released_seat(state: ReservationState) -> ReservationChange {
    match state {
        ReservationState::Held => ReservationChange::Held,
        ReservationState::Confirmed => ReservationChange::Confirmed,
        ReservationState::Ended => ReservationChange::Released,
    }
}

fn seat_outcome_of_end(change: ReservationChange) -> SeatOutcomeLabel {
    if change == ReservationChange::Expired { SeatOutcomeLabel::Expired } else { SeatOutcomeLabel::Released }
}

fn mark_reservation_ended(reservation: &mut Reservation, purge_at: UnixMs) -> Reservation {
    reservation.state = ReservationState::Ended;
    reservation.has_joined = false;
    reservation.expires_or_purge_at = purge_at;
    reservation.clone()
}
