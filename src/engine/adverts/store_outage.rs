//! Operation during a store outage: heartbeats and updates are accepted in memory and written later. Changes that the
//! store must decide are refused.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::domain::id::{AdvertisementId, SetId};
use crate::domain::time::UnixMs;
use crate::engine::adverts::advert_set::AdvertRecord;
use crate::engine::adverts::update_answer::UpdateSnapshot;
use crate::engine::adverts::writer::RETRY_AFTER_MS;
use crate::engine::adverts::writer_command::{AdvertWriterCommand, ExtendAdvertTtl, PublishAdvert};
use crate::engine::command::UpdateAdvertAnswer;
use crate::engine::core::Core;
use crate::engine::error::EngineError;
use crate::store::{AdvertWrite, VersionStep, WriteOutcome};

/// Advertisements per commit after an outage.
const CATCH_UP_BATCH_MAX: usize = 1_000;

/// Advertisements whose latest state is not yet in the store.
#[derive(Debug, Default)]
pub(in crate::engine) struct UnwrittenAdverts(BTreeMap<AdvertisementId, SetId>);

impl UnwrittenAdverts {
    pub(in crate::engine) fn len(&self) -> usize {
        self.0.len()
    }

    /// First `CATCH_UP_BATCH_MAX` advertisements.
    fn next_batch(&self) -> Vec<(AdvertisementId, SetId)> {
        self.0.iter().take(CATCH_UP_BATCH_MAX).map(|(id, set_id)| (*id, *set_id)).collect()
    }
}

impl Core {
    /// Executes a command in memory if that is safe; otherwise answers [`EngineError::StoreUnavailable`].
    pub(in crate::engine) fn handle_without_store(
        &self,
        command: AdvertWriterCommand,
        unwritten: &mut UnwrittenAdverts,
        now: UnixMs,
    ) {
        let unavailable = || EngineError::StoreUnavailable { retry_after_ms: RETRY_AFTER_MS };
        match command {
            AdvertWriterCommand::Publish(publish, reply, in_flight) => {
                let answer = self.publish_in_memory(*publish, unwritten, now);
                self.send_answer(reply, in_flight, answer.ok_or_else(unavailable));
            }
            AdvertWriterCommand::ExtendTtl(extend, reply, in_flight) => {
                let answer = self.heartbeat_in_memory(&extend, unwritten, now);
                self.send_answer(reply, in_flight, answer.ok_or_else(unavailable));
            }
            AdvertWriterCommand::Delete(_, _, reply, in_flight) => {
                self.send_answer(reply, in_flight, Err(unavailable()))
            }
            AdvertWriterCommand::ReserveSeats(_, reply, in_flight) => {
                self.send_answer(reply, in_flight, Err(unavailable()))
            }
            AdvertWriterCommand::ReleaseReservation(_, _, _, reply, in_flight) => {
                self.send_answer(reply, in_flight, Err(unavailable()))
            }
            AdvertWriterCommand::ExpireAdvert(_, set_id, Some(record)) => self.restore_expired(set_id, *record),
            AdvertWriterCommand::ExpireHold(..)
            | AdvertWriterCommand::ExpireAdvert(_, _, None)
            | AdvertWriterCommand::ApplyFeed(..)
            | AdvertWriterCommand::SetRulesets(..)
            | AdvertWriterCommand::Flush(_) => {}
        }
    }

    /// Replaces a known advertisement in memory.
    fn publish_in_memory(
        &self,
        publish: PublishAdvert,
        unwritten: &mut UnwrittenAdverts,
        now: UnixMs,
    ) -> Option<UpdateAdvertAnswer> {
        let PublishAdvert {
            advertisement,
            ruleset,
            encoded_advert,
            owner_token,
            ttl_ms,
            confirmed_reservations,
            joined_reservations,
            ignored_fields,
        } = publish;
        // Only the store decides reservations.
        if !confirmed_reservations.is_empty() || !joined_reservations.is_empty() {
            return None;
        }
        let (id, set_id) = (advertisement.id, advertisement.set_id);
        let set = self.advert_sets.get(set_id)?;
        let mut set = set.write();
        let existing = set.get(id)?;
        let mut advertisement = advertisement;
        if advertisement.advertised_since != existing.advertisement.advertised_since {
            Arc::make_mut(&mut advertisement).advertised_since = existing.advertisement.advertised_since;
        }
        let record = AdvertRecord {
            advertisement,
            expires_at: now.plus_ms(u64::from(ttl_ms)),
            ttl_ms,
            encoded_advert,
            is_unwritten: true,
            is_heartbeat_owner: true,
            ..existing.clone()
        };
        let snapshot = UpdateSnapshot::from_record(&record, now);
        set.upsert(record);
        drop(set);
        unwritten.0.insert(id, set_id);
        let answer = self.build_update_answer_with_ruleset(Some(&ruleset), snapshot, Some(owner_token), now);
        Some(UpdateAdvertAnswer { not_yet_durable: true, ignored_fields, ..answer })
    }

    /// Extends a known advertisement in memory.
    fn heartbeat_in_memory(
        &self,
        extend: &ExtendAdvertTtl,
        unwritten: &mut UnwrittenAdverts,
        now: UnixMs,
    ) -> Option<UpdateAdvertAnswer> {
        if !extend.confirmed_reservations.is_empty() || !extend.joined_reservations.is_empty() {
            return None;
        }
        let set = self.advert_sets.get(extend.set_id)?;
        let mut set = set.write();
        let existing = set.get(extend.id)?;
        let ttl_ms = extend.ttl_ms.unwrap_or(existing.ttl_ms);
        set.extend_expiry(extend.id, now.plus_ms(u64::from(ttl_ms)));
        set.update_unindexed_fields(extend.id, |record| {
            (record.is_unwritten, record.is_heartbeat_owner) = (true, true)
        });
        let snapshot = UpdateSnapshot::from_record(set.get(extend.id)?, now);
        drop(set);
        unwritten.0.insert(extend.id, extend.set_id);
        Some(UpdateAdvertAnswer { not_yet_durable: true, ..self.build_update_answer(snapshot, None, now) })
    }

    /// Writes for one batch of unwritten advertisements. Drops those that have expired.
    pub(in crate::engine) fn catch_up_writes(
        &self,
        unwritten: &mut UnwrittenAdverts,
        now: UnixMs,
    ) -> Vec<(SetId, AdvertWrite)> {
        let mut writes = Vec::new();
        for (id, set_id) in unwritten.next_batch() {
            let write = self.advert_sets.get(set_id).and_then(|set| {
                let set = set.read();
                let record = set.get(id).filter(|record| record.is_unwritten && now < record.expires_at)?;
                let expires_at = record.expires_at.plus_ms(u64::from(record.ttl_ms));
                let advertisement = Arc::clone(&record.advertisement);
                Some(AdvertWrite::Publish {
                    advertisement,
                    expires_at,
                    confirmed_reservations: Vec::new(),
                    joined_reservations: Vec::new(),
                    now,
                })
            });
            match write {
                Some(write) => writes.push((set_id, write)),
                None => self.clear_unwritten(id, set_id, unwritten),
            }
        }
        writes
    }

    /// Marks an advertisement as written.
    pub(in crate::engine) fn apply_catch_up_outcome(
        &self,
        set_id: SetId,
        write: &AdvertWrite,
        outcome: &WriteOutcome,
        unwritten: &mut UnwrittenAdverts,
    ) {
        let AdvertWrite::Publish { advertisement, expires_at, .. } = write else { return };
        let id = advertisement.id;
        self.clear_unwritten(id, set_id, unwritten);
        let Some(set) = self.advert_sets.get(set_id) else { return };
        match outcome {
            // Another replica deleted it meanwhile, or replaced it with values that this server does not know.
            WriteOutcome::Tombstoned | WriteOutcome::UnknownRow => {
                set.write().remove(id);
                self.reservation_events.remove_listeners(id);
            }
            // A publish sets the expiry, even to an earlier time than before the outage.
            _ => set.write().update_unindexed_fields(id, |record| record.stored_expires_at = *expires_at),
        }
    }

    fn clear_unwritten(&self, id: AdvertisementId, set_id: SetId, unwritten: &mut UnwrittenAdverts) {
        unwritten.0.remove(&id);
        if let Some(set) = self.advert_sets.get(set_id) {
            set.write().update_unindexed_fields(id, |record| record.is_unwritten = false);
        }
    }

    /// Advances the record's version after a commit. Returns `false` if memory did not have the version before it.
    pub(in crate::engine) fn advance_version(&self, id: AdvertisementId, set_id: SetId, step: VersionStep) -> bool {
        let Some(set) = self.advert_sets.get(set_id) else { return true };
        let mut is_known = true;
        set.write().update_unindexed_fields(id, |record| {
            is_known = record.version == step.before || record.version == step.after;
            if is_known {
                record.version = step.after;
            }
        });
        is_known
    }
}
