//! Applies committed writes to memory, sends the answers and notifies reservation listeners.

use crate::auth::token::ReservationClaim;
use crate::domain::id::{AdvertisementId, ReservationId, SetId};
use crate::domain::time::UnixMs;
use crate::engine::adverts::advert_set::is_expired_hold;
use crate::engine::adverts::publish_batch::PublishBatch;
use crate::engine::adverts::reservation_view;
use crate::engine::adverts::update_answer::UpdateSnapshot;
use crate::engine::adverts::writer::refuse_command;
use crate::engine::adverts::writer_command::{AdvertWriterCommand, ExtendAdvertTtl, ReserveSeats};
use crate::engine::command::{ReservationChange, ReservationEvent, ReserveAnswer, UpdateAdvertAnswer};
use crate::engine::core::Core;
use crate::engine::error::EngineError;
use crate::store::{AdvertWrite, Reservation, ReservationState, WriteOutcome};

impl Core {
    /// Applies one committed write to memory and answers it.
    ///
    /// Publications are collected in `batch`; the batch is applied before any other command.
    pub(in crate::engine) fn apply_commit(
        &self,
        batch: &mut PublishBatch,
        command: AdvertWriterCommand,
        write: &AdvertWrite,
        outcome: WriteOutcome,
        now: UnixMs,
    ) {
        let is_unknown_row = outcome == WriteOutcome::UnknownRow;
        if is_unknown_row || !matches!(command, AdvertWriterCommand::Publish(..)) {
            self.apply_publish_batch(batch, now);
        }
        if is_unknown_row {
            return refuse_command(self, command);
        }
        match command {
            AdvertWriterCommand::Publish(publish, reply, in_flight) => {
                self.add_to_publish_batch(batch, (*publish, reply, in_flight), write, &outcome, now);
            }
            AdvertWriterCommand::ExtendTtl(extend, reply, in_flight) => {
                let answer = self.apply_extend(*extend, write, &outcome, now);
                self.send_answer(reply, in_flight, answer);
            }
            AdvertWriterCommand::Delete(id, set_id, reply, in_flight) => {
                self.remove_advert(id, set_id);
                self.send_answer(reply, in_flight, Ok(()));
            }
            AdvertWriterCommand::ReserveSeats(reserve, reply, in_flight) => {
                let answer = self.apply_reserve(&reserve, outcome, now);
                self.send_answer(reply, in_flight, answer);
            }
            AdvertWriterCommand::ReleaseReservation(id, advertisement_id, set_id, reply, in_flight) => {
                self.apply_reservation_end(id, advertisement_id, set_id, ReservationChange::Released, now);
                self.send_answer(reply, in_flight, Ok(()));
            }
            AdvertWriterCommand::ExpireHold(id, advertisement_id, set_id) => {
                self.apply_reservation_end(id, advertisement_id, set_id, ReservationChange::Expired, now);
            }
            AdvertWriterCommand::ExpireAdvert(id, ..) => {
                self.reservation_events.remove_listeners(id);
                self.metrics.advertisements_expired.inc();
            }
            AdvertWriterCommand::ApplyFeed(..)
            | AdvertWriterCommand::SetRulesets(..)
            | AdvertWriterCommand::Flush(_) => {}
        }
    }

    fn apply_extend(
        &self,
        extend: ExtendAdvertTtl,
        write: &AdvertWrite,
        outcome: &WriteOutcome,
        now: UnixMs,
    ) -> Result<UpdateAdvertAnswer, EngineError> {
        match outcome {
            WriteOutcome::Applied => {}
            WriteOutcome::NotFound => return Err(EngineError::AdvertisementNotFound),
            other => return Err(self.unexpected_outcome("extend", other)),
        }
        let AdvertWrite::ExtendTtl { expires_at: stored_expires_at, now: decided_at, .. } = write else {
            return Err(self.unexpected_outcome("extend", outcome));
        };
        let set = self.advert_sets.get(extend.set_id).ok_or(EngineError::AdvertisementNotFound)?;
        let mut set = set.write();
        let record = set.get(extend.id).ok_or(EngineError::AdvertisementNotFound)?;
        let ttl_ms = u64::from(extend.ttl_ms.unwrap_or(record.ttl_ms));
        set.record_stored_expiry(extend.id, *stored_expires_at);
        set.extend_expiry(extend.id, decided_at.plus_ms(ttl_ms));
        // The store now records this replica as the heartbeat owner.
        set.update_unindexed_fields(extend.id, |record| record.is_heartbeat_owner = true);
        let events = if extend.confirmed_reservations.is_empty() && extend.joined_reservations.is_empty() {
            Vec::new()
        } else {
            let change = |reservations: &mut Vec<_>| {
                self.confirm_and_end_reservations(
                    reservations,
                    &extend.confirmed_reservations,
                    &extend.joined_reservations,
                    *decided_at,
                )
            };
            set.update_reservations(extend.id, change).unwrap_or_default()
        };
        let snapshot = UpdateSnapshot::from_record(set.get(extend.id).ok_or(EngineError::AdvertisementNotFound)?, now);
        drop(set);
        self.publish_reservation_events(extend.id, events, now);
        Ok(self.build_update_answer(snapshot, extend.owner_token, now))
    }

    fn apply_reserve(
        &self,
        reserve: &ReserveSeats,
        outcome: WriteOutcome,
        now: UnixMs,
    ) -> Result<ReserveAnswer, EngineError> {
        let (reservation, is_replay) = match outcome {
            WriteOutcome::SeatsReserved { reservation, is_replay } => (reservation, is_replay),
            WriteOutcome::NotEnoughSeats { open_seats } => return Err(EngineError::SeatsTaken { open_seats }),
            WriteOutcome::NotFound => return Err(EngineError::AdvertisementNotFound),
            WriteOutcome::IdempotencyKeyReused => return Err(EngineError::IdempotencyKeyReused),
            WriteOutcome::TooManyReservations => return Err(EngineError::TooManyReservations),
            other => return Err(self.unexpected_outcome("reserve", &other)),
        };
        if reservation.state == ReservationState::Ended || is_expired_hold(&reservation, now) {
            return Err(EngineError::ReservationEnded);
        }
        let set = self.advert_sets.get(reserve.set_id).ok_or(EngineError::AdvertisementNotFound)?;
        let mut set = set.write();
        let held = reservation.clone();
        set.update_reservations(reserve.advertisement_id, |reservations| {
            reservations.retain(|existing| existing.state != ReservationState::Ended || now < existing.deadline);
            if !reservations.iter().any(|existing| existing.id == held.id) {
                reservations.push(held);
            }
        });
        let record = set.get(reserve.advertisement_id).ok_or(EngineError::AdvertisementNotFound)?;
        let connect_data = record.advertisement.connect_data.clone();
        drop(set);
        let claim = ReservationClaim {
            reservation_id: reservation.id,
            advertisement_id: reserve.advertisement_id,
            set_id: reserve.set_id,
            subject: reserve.subject,
        };
        let token = self.token_signer.sign(&claim);
        let answer =
            ReserveAnswer { reservation: reservation_view::reservation_view(&reservation, token, now), connect_data };
        if !is_replay {
            self.publish_reservation_events(
                reserve.advertisement_id,
                vec![(reservation, ReservationChange::Held)],
                now,
            );
        }
        Ok(answer)
    }

    fn remove_advert(&self, id: AdvertisementId, set_id: SetId) {
        if let Some(set) = self.advert_sets.get(set_id) {
            set.write().remove(id);
        }
        self.reservation_events.remove_listeners(id);
    }

    fn apply_reservation_end(
        &self,
        id: ReservationId,
        advertisement_id: AdvertisementId,
        set_id: SetId,
        change: ReservationChange,
        now: UnixMs,
    ) {
        let Some(set) = self.advert_sets.get(set_id) else { return };
        let purge_at = now.plus_ms(self.settings.ended_reservation_retention_ms);
        let ended_reservation = set.write().update_reservations(advertisement_id, |reservations| {
            let is_unended =
                |existing: &&mut Reservation| existing.id == id && existing.state != ReservationState::Ended;
            reservations.iter_mut().find(is_unended).map(|reservation| end_reservation(reservation, purge_at))
        });
        if let Some(Some(reservation)) = ended_reservation {
            self.publish_reservation_events(advertisement_id, vec![(reservation, change)], now);
        }
    }

    /// Confirms held reservations and ends joined ones, as the store did. Returns the events for listeners.
    pub(in crate::engine) fn confirm_and_end_reservations(
        &self,
        reservations: &mut Vec<Reservation>,
        confirmed: &[ReservationId],
        joined: &[ReservationId],
        now: UnixMs,
    ) -> Vec<(Reservation, ReservationChange)> {
        let purge_at = now.plus_ms(self.settings.ended_reservation_retention_ms);
        let mut events = Vec::new();
        for reservation in reservations.iter_mut() {
            let held = reservation.state == ReservationState::Held && now < reservation.deadline;
            if held && confirmed.contains(&reservation.id) {
                reservation.state = ReservationState::Confirmed;
                events.push((reservation.clone(), ReservationChange::Confirmed));
            }
            if reservation.state != ReservationState::Ended && joined.contains(&reservation.id) {
                end_reservation(reservation, purge_at);
            }
        }
        reservations.retain(|existing| existing.state != ReservationState::Ended || now < existing.deadline);
        events
    }

    pub(in crate::engine) fn publish_reservation_events(
        &self,
        id: AdvertisementId,
        events: Vec<(Reservation, ReservationChange)>,
        now: UnixMs,
    ) {
        for (reservation, change) in events {
            let reservation = reservation_view::reservation_view(&reservation, Vec::new(), now);
            self.reservation_events.publish(&ReservationEvent { advertisement_id: id, reservation, change });
        }
    }

    /// The store returned an outcome that does not belong to the write: a bug.
    pub(in crate::engine) fn unexpected_outcome(&self, operation: &'static str, outcome: &WriteOutcome) -> EngineError {
        tracing::error!(operation, ?outcome, "invalid store outcome received");
        EngineError::Internal
    }
}

fn end_reservation(reservation: &mut Reservation, purge_at: UnixMs) -> Reservation {
    reservation.state = ReservationState::Ended;
    reservation.deadline = purge_at;
    reservation.clone()
}
