//! Operation during a store outage: heartbeats and updates are accepted in memory and written later. Changes that the
//! store must decide are refused.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::domain::id::{AdvertisementId, SetId};
use crate::domain::time::UnixMs;
use crate::engine::adverts::advert_set::AdvertRecord;
use crate::engine::adverts::advert_state::AdvertState;
use crate::engine::adverts::in_flight_changes::end_change_and_answer;
use crate::engine::adverts::owner_limits;
use crate::engine::adverts::update_answer::UpdateSnapshot;
use crate::engine::adverts::writer_command::{AdvertWriterCommand, ExtendAdvertTtl, PublishAdvert};
use crate::engine::command::UpdateAdvertAnswer;
use crate::engine::error::EngineError;
use crate::engine::writer_inbox::RETRY_AFTER_MS;
use crate::store::{AdvertWrite, WriteOutcome};

/// Advertisements per commit after an outage.
const CATCH_UP_BATCH_MAX: usize = 1_000;

/// Advertisements whose latest state is not yet in the store.
#[derive(Debug, Default)]
pub(crate) struct UnwrittenAdverts(BTreeMap<AdvertisementId, SetId>);

impl UnwrittenAdverts {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// First `CATCH_UP_BATCH_MAX` advertisements.
    fn next_batch(&self) -> Vec<(AdvertisementId, SetId)> {
        self.0.iter().take(CATCH_UP_BATCH_MAX).map(|(id, set_id)| (*id, *set_id)).collect()
    }

    /// Executes a command in memory if that is safe; otherwise answers [`EngineError::StoreUnavailable`].
    pub(crate) fn handle_without_store(&mut self, state: &AdvertState, command: AdvertWriterCommand, now: UnixMs) {
        let unavailable = || EngineError::StoreUnavailable { retry_after_ms: RETRY_AFTER_MS };
        match command {
            AdvertWriterCommand::Publish(publish, reply, in_flight) => {
                let answer = self.replace_in_memory(state, *publish, now);
                end_change_and_answer(reply, in_flight, answer.ok_or_else(unavailable));
            }
            AdvertWriterCommand::ExtendTtl(extend, reply, in_flight) => {
                let answer = self.heartbeat_in_memory(state, &extend, now);
                end_change_and_answer(reply, in_flight, answer.ok_or_else(unavailable));
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
                state.restore_after_failed_expiry(set_id, *record)
            }
            AdvertWriterCommand::ExpireHold(..)
            | AdvertWriterCommand::ExpireAdvert(_, _, None)
            | AdvertWriterCommand::ApplyFeed(..)
            | AdvertWriterCommand::SetRulesets(..)
            | AdvertWriterCommand::Flush(_) => {}
        }
    }

    /// Replaces a known advertisement in memory.
    fn replace_in_memory(
        &mut self,
        state: &AdvertState,
        publish: PublishAdvert,
        now: UnixMs,
    ) -> Option<UpdateAdvertAnswer> {
        let PublishAdvert {
            advertisement,
            ruleset,
            token_to_return: advertisement_token,
            ttl_ms,
            confirmed_reservations,
            joined_reservations,
            ignored_fields,
            silo_use: _silo_use,
            owner: _,
            create_digest: _,
        } = publish;
        // Only the store decides reservations.
        if !confirmed_reservations.is_empty() || !joined_reservations.is_empty() {
            return None;
        }
        let (id, set_id) = (advertisement.id, advertisement.set_id);
        let set = state.advert_sets.get(set_id)?;
        let mut set = set.lock_for_write();
        let existing = set.get(id)?;
        let mut advertisement = advertisement;
        if advertisement.advertised_since != existing.advertisement.advertised_since {
            Arc::make_mut(&mut advertisement).advertised_since = existing.advertisement.advertised_since;
        }
        let record = AdvertRecord {
            advertisement,
            expires_at: now.plus_ms(u64::from(ttl_ms)),
            ttl_ms,
            is_unwritten: true,
            is_heartbeat_owner: true,
            ..existing.clone()
        };
        let snapshot = UpdateSnapshot::from_record(&record, now);
        set.upsert(record);
        drop(set);
        self.0.insert(id, set_id);
        let answer = snapshot.into_answer_with_ruleset(
            &state.common,
            &state.host_events,
            Some(&ruleset),
            Some(advertisement_token),
            now,
        );
        Some(UpdateAdvertAnswer { not_yet_durable: true, ignored_fields, ..answer })
    }

    /// Extends a known advertisement in memory.
    fn heartbeat_in_memory(
        &mut self,
        state: &AdvertState,
        extend: &ExtendAdvertTtl,
        now: UnixMs,
    ) -> Option<UpdateAdvertAnswer> {
        if !extend.confirmed_reservations.is_empty() || !extend.joined_reservations.is_empty() {
            return None;
        }
        let set = state.advert_sets.get(extend.set_id)?;
        let mut set = set.lock_for_write();
        let existing = set.get(extend.id)?;
        let ttl_ms = extend.ttl_ms.unwrap_or(existing.ttl_ms);
        set.extend_expiry(extend.id, now.plus_ms(u64::from(ttl_ms)));
        set.update_unindexed_fields(extend.id, |record| {
            (record.is_unwritten, record.is_heartbeat_owner) = (true, true)
        });
        let snapshot = UpdateSnapshot::from_record(set.get(extend.id)?, now);
        drop(set);
        self.0.insert(extend.id, extend.set_id);
        Some(UpdateAdvertAnswer {
            not_yet_durable: true,
            ..snapshot.into_answer(&state.common, &state.host_events, None, now)
        })
    }

    /// Writes for one batch of unwritten advertisements. Drops those that have expired.
    pub(crate) fn prepare_catch_up_writes(&mut self, state: &AdvertState, now: UnixMs) -> Vec<(SetId, AdvertWrite)> {
        let mut writes = Vec::new();
        for (id, set_id) in self.next_batch() {
            let write = state.advert_sets.get(set_id).and_then(|set| {
                let set = set.lock_for_read();
                let record = set.get(id).filter(|record| record.is_unwritten && now < record.expires_at)?;
                let expires_at = record.expires_at.plus_ms(u64::from(record.ttl_ms));
                let advertisement = Arc::clone(&record.advertisement);
                Some(AdvertWrite::Publish {
                    advertisement,
                    expires_at,
                    confirmed_reservations: Vec::new(),
                    joined_reservations: Vec::new(),
                    owner: owner_limits::advert_owner_from_memory(&state.common, &record.advertisement, now),
                    create_digest: None,
                    now,
                })
            });
            match write {
                Some(write) => writes.push((set_id, write)),
                None => self.clear_unwritten(state, id, set_id),
            }
        }
        writes
    }

    /// Marks an advertisement as written.
    pub(crate) fn apply_catch_up_outcome(
        &mut self,
        state: &AdvertState,
        set_id: SetId,
        write: &AdvertWrite,
        outcome: &WriteOutcome,
    ) {
        let AdvertWrite::Publish { advertisement, expires_at, .. } = write else { return };
        let id = advertisement.id;
        self.clear_unwritten(state, id, set_id);
        let Some(set) = state.advert_sets.get(set_id) else { return };
        match outcome {
            // Another replica deleted it meanwhile, or replaced it with values that this server does not know, or its
            // owner has others in its place.
            WriteOutcome::Tombstoned | WriteOutcome::UnknownRow | WriteOutcome::TooManyAdvertisements => {
                set.lock_for_write().remove(id);
                state.host_events.remove_listeners_unless_hosting(id);
            }
            // A publish sets the expiry, even to an earlier time than before the outage.
            _ => set.lock_for_write().update_unindexed_fields(id, |record| record.stored_expires_at = *expires_at),
        }
    }

    fn clear_unwritten(&mut self, state: &AdvertState, id: AdvertisementId, set_id: SetId) {
        self.0.remove(&id);
        if let Some(set) = state.advert_sets.get(set_id) {
            set.lock_for_write().update_unindexed_fields(id, |record| record.is_unwritten = false);
        }
    }
}
