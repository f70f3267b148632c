//! From an outcome of the store to memory, to the answer, and to whoever must hear.

use crate::auth::token::ReservationClaim;
use crate::domain::id::{AdvertisementId, ReservationId, SetId};
use crate::domain::time::UnixMs;
use crate::engine::adverts::advert_set::is_expired_hold;
use crate::engine::adverts::publish_batch::PublishBatch;
use crate::engine::adverts::reservation_view;
use crate::engine::adverts::update_answer::UpdateSnapshot;
use crate::engine::adverts::writer_command::{AdvertWriterCommand, ExtendAdvertTtl, ReserveSeats};
use crate::engine::command::{ReservationChange, ReservationEvent, ReserveAnswer, UpdateAdvertAnswer};
use crate::engine::core::Core;
use crate::engine::error::EngineError;
use crate::store::{AdvertWrite, Reservation, ReservationState, WriteOutcome};

impl Core {
    /// Brings memory to where the store is, then answers. Publications wait in `run` for others that may join them, and
    /// go before whatever else comes.
    pub(in crate::engine) fn apply_commit(
        &self,
        run: &mut PublishBatch,
        job: AdvertWriterCommand,
        write: &AdvertWrite,
        outcome: WriteOutcome,
        now: UnixMs,
    ) {
        if !matches!(job, AdvertWriterCommand::Publish(..)) {
            self.apply_publish_batch(run, now);
        }
        match job {
            AdvertWriterCommand::Publish(publish, reply, in_flight) => {
                self.add_to_publish_batch(run, (*publish, reply, in_flight), write, &outcome, now);
            }
            AdvertWriterCommand::ExtendTtl(extend, reply, in_flight) => {
                let answer = self.apply_extend(*extend, write, &outcome, now);
                self.send_answer(reply, in_flight, answer);
            }
            AdvertWriterCommand::Delete(id, set_id, reply, in_flight) => {
                self.remove_advert(id, set_id);
                self.send_answer(reply, in_flight, Ok(()));
            }
            AdvertWriterCommand::ReserveSeats(take, reply, in_flight) => {
                let answer = self.apply_reserve(&take, outcome, now);
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
        let AdvertWrite::ExtendTtl { expires_at: stored_expires, now: decided, .. } = write else {
            return Err(self.unexpected_outcome("extend", outcome));
        };
        let shelf = self.advert_sets.get(extend.set_id).ok_or(EngineError::AdvertisementNotFound)?;
        let mut shelf = shelf.write();
        let record = shelf.get(extend.id).ok_or(EngineError::AdvertisementNotFound)?;
        let time_to_live_ms = u64::from(extend.ttl_ms.unwrap_or(record.ttl_ms));
        shelf.record_stored_expiry(extend.id, *stored_expires);
        shelf.extend_expiry(extend.id, decided.plus_ms(time_to_live_ms));
        // The store now has this server for the one that took the last heartbeat.
        shelf.update_unindexed(extend.id, |record| record.is_heartbeat_owner = true);
        let events = if extend.confirmed_reservations.is_empty() && extend.joined_reservations.is_empty() {
            Vec::new()
        } else {
            let change = |all: &mut Vec<_>| {
                self.confirm_and_end_reservations(
                    all,
                    &extend.confirmed_reservations,
                    &extend.joined_reservations,
                    *decided,
                )
            };
            shelf.update_reservations(extend.id, change).unwrap_or_default()
        };
        let seen = UpdateSnapshot::from_record(shelf.get(extend.id).ok_or(EngineError::AdvertisementNotFound)?, now);
        drop(shelf);
        self.publish_reservation_events(extend.id, events, now);
        Ok(self.build_update_answer(seen, extend.owner_token, now))
    }

    fn apply_reserve(
        &self,
        take: &ReserveSeats,
        outcome: WriteOutcome,
        now: UnixMs,
    ) -> Result<ReserveAnswer, EngineError> {
        let (reservation, replayed) = match outcome {
            WriteOutcome::SeatsReserved { reservation, is_replay: replayed } => (reservation, replayed),
            WriteOutcome::NotEnoughSeats { open_seats } => return Err(EngineError::SeatsTaken { open_seats }),
            WriteOutcome::NotFound => return Err(EngineError::AdvertisementNotFound),
            WriteOutcome::IdempotencyKeyReused => return Err(EngineError::IdempotencyKeyReused),
            WriteOutcome::TooManyReservations => return Err(EngineError::TooManyReservations),
            other => return Err(self.unexpected_outcome("reserve", &other)),
        };
        if reservation.state == ReservationState::Ended || is_expired_hold(&reservation, now) {
            return Err(EngineError::ReservationEnded);
        }
        let shelf = self.advert_sets.get(take.set_id).ok_or(EngineError::AdvertisementNotFound)?;
        let mut shelf = shelf.write();
        let held = reservation.clone();
        shelf.update_reservations(take.advertisement_id, |all| {
            all.retain(|known| known.state != ReservationState::Ended || now < known.deadline);
            if !all.iter().any(|known| known.id == held.id) {
                all.push(held);
            }
        });
        let record = shelf.get(take.advertisement_id).ok_or(EngineError::AdvertisementNotFound)?;
        let connect_data = record.advertisement.connect_data.clone();
        drop(shelf);
        let claim = ReservationClaim {
            reservation_id: reservation.id,
            advertisement_id: take.advertisement_id,
            set_id: take.set_id,
            subject: take.subject,
        };
        let token = self.token_signer.sign(&claim);
        let answer =
            ReserveAnswer { reservation: reservation_view::reservation_view(&reservation, token, now), connect_data };
        if !replayed {
            self.publish_reservation_events(take.advertisement_id, vec![(reservation, ReservationChange::Held)], now);
        }
        Ok(answer)
    }

    fn remove_advert(&self, id: AdvertisementId, set_id: SetId) {
        if let Some(shelf) = self.advert_sets.get(set_id) {
            shelf.write().remove(id);
        }
        self.reservation_events.remove_listeners(id);
    }

    fn apply_reservation_end(
        &self,
        id: ReservationId,
        from: AdvertisementId,
        set_id: SetId,
        change: ReservationChange,
        now: UnixMs,
    ) {
        let Some(shelf) = self.advert_sets.get(set_id) else { return };
        let forget_at = now.plus_ms(self.settings.ended_reservation_retention_ms);
        let ended = shelf.write().update_reservations(from, |all| {
            let live = |known: &&mut Reservation| known.id == id && known.state != ReservationState::Ended;
            all.iter_mut().find(live).map(|reservation| end_reservation(reservation, forget_at))
        });
        if let Some(Some(reservation)) = ended {
            self.publish_reservation_events(from, vec![(reservation, change)], now);
        }
    }

    /// Confirms and ends reservations as the store has done; says what listeners must hear.
    pub(in crate::engine) fn confirm_and_end_reservations(
        &self,
        all: &mut Vec<Reservation>,
        confirmed: &[ReservationId],
        settled: &[ReservationId],
        now: UnixMs,
    ) -> Vec<(Reservation, ReservationChange)> {
        let forget_at = now.plus_ms(self.settings.ended_reservation_retention_ms);
        let mut events = Vec::new();
        for reservation in all.iter_mut() {
            let held = reservation.state == ReservationState::Held && now < reservation.deadline;
            if held && confirmed.contains(&reservation.id) {
                reservation.state = ReservationState::Confirmed;
                events.push((reservation.clone(), ReservationChange::Confirmed));
            }
            if reservation.state != ReservationState::Ended && settled.contains(&reservation.id) {
                end_reservation(reservation, forget_at);
            }
        }
        all.retain(|known| known.state != ReservationState::Ended || now < known.deadline);
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

    /// The store answered a question that was not asked: our bug.
    pub(in crate::engine) fn unexpected_outcome(&self, asked: &'static str, outcome: &WriteOutcome) -> EngineError {
        tracing::error!(asked, ?outcome, "store answered something else");
        EngineError::Internal
    }
}

fn end_reservation(reservation: &mut Reservation, forget_at: UnixMs) -> Reservation {
    reservation.state = ReservationState::Ended;
    reservation.deadline = forget_at;
    reservation.clone()
}
