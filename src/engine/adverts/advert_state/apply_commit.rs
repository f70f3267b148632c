//! Applies committed writes to memory, sends the answers and notifies reservation listeners.

use thin_vec::ThinVec;

use crate::auth::token::ReservationClaim;
use crate::domain::id::{AdvertisementId, ReservationId, SetId};
use crate::domain::time::UnixMs;
use crate::engine::adverts::advert_set::is_expired_hold;
use crate::engine::adverts::advert_state::AdvertState;
use crate::engine::adverts::in_flight_changes::end_change_and_answer;
use crate::engine::adverts::publish_batch::{PublishBatch, unexpected_outcome};
use crate::engine::adverts::reservation_view;
use crate::engine::adverts::update_answer::UpdateSnapshot;
use crate::engine::adverts::writer_command::{AdvertWriterCommand, ExtendAdvertTtl, ReserveSeats};
use crate::engine::command::{ReservationChange, ReserveAnswer, UpdateAdvertAnswer};
use crate::engine::error::EngineError;
use crate::engine::writer_inbox::RETRY_AFTER_MS;
use crate::store::{AdvertWrite, ReservationState, WriteOutcome};

impl AdvertState {
    /// Applies a committed batch to memory and answers its commands.
    pub(crate) fn apply_committed_batch(
        &self,
        commands: Vec<AdvertWriterCommand>,
        writes: &[AdvertWrite],
        outcomes: Vec<WriteOutcome>,
    ) {
        let now = self.common.clock.now();
        let mut publish_batch = PublishBatch::default();
        for ((command, write), outcome) in commands.into_iter().zip(writes).zip(outcomes) {
            self.apply_commit(&mut publish_batch, command, write, outcome, now);
        }
        publish_batch.apply(self, now);
    }

    /// Answers a command whose write was not applied with [`EngineError::StoreUnavailable`].
    pub(crate) fn answer_store_unavailable(&self, command: AdvertWriterCommand) {
        let unavailable = || EngineError::StoreUnavailable { retry_after_ms: RETRY_AFTER_MS };
        match command {
            AdvertWriterCommand::Publish(_, reply, in_flight) => {
                end_change_and_answer(reply, in_flight, Err(unavailable()))
            }
            AdvertWriterCommand::ExtendTtl(_, reply, in_flight) => {
                end_change_and_answer(reply, in_flight, Err(unavailable()))
            }
            AdvertWriterCommand::Delete(_, _, reply, in_flight) => {
                end_change_and_answer(reply, in_flight, Err(unavailable()))
            }
            AdvertWriterCommand::ReserveSeats(_, reply, in_flight) => {
                end_change_and_answer(reply, in_flight, Err(unavailable()))
            }
            AdvertWriterCommand::ReleaseReservation(_, _, _, reply, in_flight) => {
                end_change_and_answer(reply, in_flight, Err(unavailable()))
            }
            AdvertWriterCommand::ReleaseSeat(_, _, _, _, reply, in_flight) => {
                end_change_and_answer(reply, in_flight, Err(unavailable()))
            }
            AdvertWriterCommand::EraseUser(_, reply, in_flight) => {
                end_change_and_answer(reply, in_flight, Err(unavailable()))
            }
            AdvertWriterCommand::ExpireAdvert(_, set_id, Some(record)) => {
                self.restore_after_failed_expiry(set_id, *record)
            }
            AdvertWriterCommand::ExpireHold(..)
            | AdvertWriterCommand::ExpireAdvert(_, _, None)
            | AdvertWriterCommand::ApplyFeed(..)
            | AdvertWriterCommand::SetRulesets(..)
            | AdvertWriterCommand::Flush(_) => {}
        }
    }

    /// Applies one committed write to memory and answers it.
    ///
    /// Publications are collected in `batch`; the batch is applied before any other command.
    fn apply_commit(
        &self,
        batch: &mut PublishBatch,
        command: AdvertWriterCommand,
        write: &AdvertWrite,
        outcome: WriteOutcome,
        now: UnixMs,
    ) {
        let is_unknown_row = outcome == WriteOutcome::UnknownRow;
        if is_unknown_row || !matches!(command, AdvertWriterCommand::Publish(..)) {
            batch.apply(self, now);
        }
        if is_unknown_row {
            return self.answer_store_unavailable(command);
        }
        match command {
            AdvertWriterCommand::Publish(publish, reply, in_flight) => {
                batch.add(self, (*publish, reply, in_flight), write, &outcome, now);
                if let WriteOutcome::Published { replaced, .. } = outcome
                    && !replaced.is_empty()
                {
                    batch.apply(self, now);
                    replaced.into_iter().for_each(|id| self.remove_replaced_advert(id, now));
                }
            }
            AdvertWriterCommand::ExtendTtl(extend, reply, in_flight) => {
                let answer = self.apply_extend(*extend, write, &outcome, now);
                end_change_and_answer(reply, in_flight, answer);
            }
            AdvertWriterCommand::Delete(id, set_id, reply, in_flight) => {
                self.remove_advert(id, set_id, now);
                end_change_and_answer(reply, in_flight, Ok(()));
            }
            AdvertWriterCommand::ReserveSeats(reserve, reply, in_flight) => {
                let answer = self.apply_reserve(&reserve, outcome, now);
                if let Err(error) = &answer {
                    self.record_refused_seats(&reserve, error, now);
                }
                end_change_and_answer(reply, in_flight, answer);
            }
            AdvertWriterCommand::ReleaseReservation(id, advertisement_id, set_id, reply, in_flight) => {
                self.end_reservation_in_memory(id, advertisement_id, set_id, ReservationChange::Released, now);
                end_change_and_answer(reply, in_flight, Ok(()));
            }
            AdvertWriterCommand::ReleaseSeat(user, id, advertisement_id, set_id, reply, in_flight) => {
                self.release_seat_in_memory((user, id), advertisement_id, set_id, now);
                end_change_and_answer(reply, in_flight, Ok(()));
            }
            AdvertWriterCommand::EraseUser(erase, reply, in_flight) => {
                end_change_and_answer(reply, in_flight, self.apply_user_erasure(&erase, outcome, now));
            }
            AdvertWriterCommand::ExpireHold(id, advertisement_id, set_id) => {
                self.end_reservation_in_memory(id, advertisement_id, set_id, ReservationChange::Expired, now);
            }
            AdvertWriterCommand::ExpireAdvert(id, _, record) => {
                record.into_iter().for_each(|record| self.record_end_of_sessions_reservations(&record, now));
                self.host_events.remove_listeners_unless_hosting(id);
                self.common.metrics.advertisements_expired.inc();
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
            WriteOutcome::IdempotencyKeyReused => return Err(EngineError::IdempotencyKeyReused),
            other => return Err(unexpected_outcome("extend", other)),
        }
        let AdvertWrite::ExtendTtl { expires_at: stored_expires_at, now: decided_at, .. } = write else {
            return Err(unexpected_outcome("extend", outcome));
        };
        let set = self.advert_sets.get(extend.set_id).ok_or(EngineError::AdvertisementNotFound)?;
        let mut set = set.lock_for_write();
        let record = set.get(extend.id).ok_or(EngineError::AdvertisementNotFound)?;
        let ttl_ms = u64::from(extend.ttl_ms.unwrap_or(record.ttl_ms));
        set.record_stored_expiry(extend.id, *stored_expires_at);
        set.extend_expiry(extend.id, decided_at.plus_ms(ttl_ms));
        // The store now records this replica as the heartbeat owner.
        set.update_unindexed_fields(extend.id, |record| record.is_heartbeat_owner = true);
        let events = if extend.confirmed_reservations.is_empty() && extend.joined_reservations.is_empty() {
            Vec::new()
        } else {
            let change = |reservations: &mut ThinVec<_>| {
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
        let answer = snapshot.into_answer(&self.common, &self.host_events, extend.token_to_return, now);
        Ok(UpdateAdvertAnswer { ignored_fields: extend.ignored_fields, ..answer })
    }

    fn apply_reserve(
        &self,
        reserve: &ReserveSeats,
        outcome: WriteOutcome,
        now: UnixMs,
    ) -> Result<ReserveAnswer, EngineError> {
        let (reservation, is_retry) = match outcome {
            WriteOutcome::SeatsReserved { reservation, is_retry, replaced } => {
                replaced.into_iter().for_each(|(advert, id)| self.end_replaced_reservation(advert, id, now));
                (reservation, is_retry)
            }
            WriteOutcome::NotEnoughSeats { open_seats } => return Err(EngineError::SeatsTaken { open_seats }),
            WriteOutcome::NotFound => return Err(EngineError::AdvertisementNotFound),
            WriteOutcome::IdempotencyKeyReused => return Err(EngineError::IdempotencyKeyReused),
            WriteOutcome::TooManyReservationsInAdvert => return Err(EngineError::AdvertisementReservationsFull),
            other => return Err(unexpected_outcome("reserve", &other)),
        };
        if reservation.state == ReservationState::Ended || is_expired_hold(&reservation, now) {
            return Err(EngineError::ReservationEnded);
        }
        let set = self.advert_sets.get(reserve.set_id).ok_or(EngineError::AdvertisementNotFound)?;
        let mut set = set.lock_for_write();
        let held = reservation.clone();
        set.update_reservations(reserve.advertisement_id, |reservations| {
            reservations
                .retain(|existing| existing.state != ReservationState::Ended || now < existing.expires_or_purge_at);
            if !reservations.iter().any(|existing| existing.id == held.id) {
                reservations.push(held);
            }
        });
        let record = set.get(reserve.advertisement_id).ok_or(EngineError::AdvertisementNotFound)?;
        let connect_data = record.advertisement.connect_data.to_vec();
        drop(set);
        if !is_retry {
            self.keep_unsettled_reservation_of_search(reserve, &reservation, now);
        }
        let claim = ReservationClaim {
            reservation_id: reservation.id,
            advertisement_id: reserve.advertisement_id,
            set_id: reserve.set_id,
            subject: reserve.subject,
        };
        let token = self.common.token_signer.sign(&claim);
        let answer = ReserveAnswer {
            reservation: reservation_view::client_view_of_reservation(&reservation, token, now),
            connect_data,
        };
        if !is_retry {
            self.publish_reservation_events(
                reserve.advertisement_id,
                vec![(reservation, ReservationChange::Held)],
                now,
            );
        }
        Ok(answer)
    }

    /// Removes an advertisement whose place another of its owner took, from the set that has it.
    fn remove_replaced_advert(&self, id: AdvertisementId, now: UnixMs) {
        self.advert_sets.all_sets().iter().for_each(|(set_id, set)| {
            if set.lock_for_read().get(id).is_some() {
                self.remove_advert(id, *set_id, now);
            }
        });
        self.host_events.remove_listeners_unless_hosting(id);
    }

    /// Ends a reservation whose place another took, and tells the host of its advertisement.
    fn end_replaced_reservation(&self, advertisement_id: AdvertisementId, id: ReservationId, now: UnixMs) {
        let sets = self.advert_sets.all_sets();
        let holds = sets.iter().filter(|(_, set)| set.lock_for_read().get(advertisement_id).is_some());
        holds.for_each(|(set_id, _)| {
            self.end_reservation_in_memory(id, advertisement_id, *set_id, ReservationChange::Released, now);
        });
    }

    fn remove_advert(&self, id: AdvertisementId, set_id: SetId, now: UnixMs) {
        if let Some(set) = self.advert_sets.get(set_id) {
            let removed = set.lock_for_write().remove(id);
            removed.iter().for_each(|record| self.record_end_of_sessions_reservations(record, now));
        }
        self.host_events.remove_listeners_unless_hosting(id);
    }
}
