//! What goes on while the store that servers share is out of reach: known advertisements are kept alive in memory, and
//! written when it is back. What must be decided by the store is refused.

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

/// Advertisements that are written together when the store is back.
const CATCH_UP_BATCH_MAX: usize = 1_000;

/// What the store has yet to be told of.
#[derive(Debug, Default)]
pub(in crate::engine) struct UnwrittenAdverts(BTreeMap<AdvertisementId, SetId>);

impl UnwrittenAdverts {
    pub(in crate::engine) fn len(&self) -> usize {
        self.0.len()
    }

    /// Some of it.
    fn next_batch(&self) -> Vec<(AdvertisementId, SetId)> {
        self.0.iter().take(CATCH_UP_BATCH_MAX).map(|(id, set_id)| (*id, *set_id)).collect()
    }
}

impl Core {
    /// Does without the store what can be done without it, and refuses the rest.
    pub(in crate::engine) fn handle_without_store(
        &self,
        job: AdvertWriterCommand,
        pending: &mut UnwrittenAdverts,
        now: UnixMs,
    ) {
        let fault = || EngineError::StoreUnavailable { retry_after_ms: RETRY_AFTER_MS };
        match job {
            AdvertWriterCommand::Publish(publish, reply, in_flight) => {
                let kept = self.publish_in_memory(*publish, pending, now);
                self.send_answer(reply, in_flight, kept.ok_or_else(fault));
            }
            AdvertWriterCommand::ExtendTtl(extend, reply, in_flight) => {
                let kept = self.heartbeat_in_memory(&extend, pending, now);
                self.send_answer(reply, in_flight, kept.ok_or_else(fault));
            }
            AdvertWriterCommand::Delete(_, _, reply, in_flight) => self.send_answer(reply, in_flight, Err(fault())),
            AdvertWriterCommand::ReserveSeats(_, reply, in_flight) => self.send_answer(reply, in_flight, Err(fault())),
            AdvertWriterCommand::ReleaseReservation(_, _, _, reply, in_flight) => {
                self.send_answer(reply, in_flight, Err(fault()))
            }
            AdvertWriterCommand::ExpireAdvert(_, set_id, Some(record)) => self.restore_expired(set_id, *record),
            AdvertWriterCommand::ExpireHold(..)
            | AdvertWriterCommand::ExpireAdvert(_, _, None)
            | AdvertWriterCommand::ApplyFeed(..)
            | AdvertWriterCommand::SetRulesets(..)
            | AdvertWriterCommand::Flush(_) => {}
        }
    }

    /// Replaces a known advertisement in memory alone.
    fn publish_in_memory(
        &self,
        publish: PublishAdvert,
        pending: &mut UnwrittenAdverts,
        now: UnixMs,
    ) -> Option<UpdateAdvertAnswer> {
        let PublishAdvert {
            advertisement,
            ruleset,
            encoded_advert: encoded,
            owner_token: proof,
            ttl_ms: time_to_live_ms,
            confirmed_reservations: confirmed,
            joined_reservations: settled,
            ignored_fields: ignored,
        } = publish;
        // Seats are the store's to decide.
        if !confirmed.is_empty() || !settled.is_empty() {
            return None;
        }
        let (id, set_id) = (advertisement.id, advertisement.set_id);
        let shelf = self.advert_sets.get(set_id)?;
        let mut shelf = shelf.write();
        let known = shelf.get(id)?;
        let mut advertisement = advertisement;
        if advertisement.advertised_since != known.advertisement.advertised_since {
            Arc::make_mut(&mut advertisement).advertised_since = known.advertisement.advertised_since;
        }
        let record = AdvertRecord {
            advertisement,
            expires_at: now.plus_ms(u64::from(time_to_live_ms)),
            ttl_ms: time_to_live_ms,
            encoded_advert: encoded,
            is_unwritten: true,
            is_heartbeat_owner: true,
            ..known.clone()
        };
        let seen = UpdateSnapshot::from_record(&record, now);
        shelf.upsert(record);
        drop(shelf);
        pending.0.insert(id, set_id);
        let answer = self.build_update_answer_with_ruleset(Some(&ruleset), seen, Some(proof), now);
        Some(UpdateAdvertAnswer { not_yet_durable: true, ignored_fields: ignored, ..answer })
    }

    /// Keeps a known advertisement alive in memory alone.
    fn heartbeat_in_memory(
        &self,
        extend: &ExtendAdvertTtl,
        pending: &mut UnwrittenAdverts,
        now: UnixMs,
    ) -> Option<UpdateAdvertAnswer> {
        if !extend.confirmed_reservations.is_empty() || !extend.joined_reservations.is_empty() {
            return None;
        }
        let shelf = self.advert_sets.get(extend.set_id)?;
        let mut shelf = shelf.write();
        let known = shelf.get(extend.id)?;
        let time_to_live_ms = extend.ttl_ms.unwrap_or(known.ttl_ms);
        shelf.extend_expiry(extend.id, now.plus_ms(u64::from(time_to_live_ms)));
        shelf.update_unindexed(extend.id, |record| (record.is_unwritten, record.is_heartbeat_owner) = (true, true));
        let seen = UpdateSnapshot::from_record(shelf.get(extend.id)?, now);
        drop(shelf);
        pending.0.insert(extend.id, extend.set_id);
        Some(UpdateAdvertAnswer { not_yet_durable: true, ..self.build_update_answer(seen, None, now) })
    }

    /// What to write of what is pending, a batch at most; what has expired meanwhile is let go.
    pub(in crate::engine) fn catch_up_writes(
        &self,
        pending: &mut UnwrittenAdverts,
        now: UnixMs,
    ) -> Vec<(SetId, AdvertWrite)> {
        let mut writes = Vec::new();
        for (id, set_id) in pending.next_batch() {
            let write = self.advert_sets.get(set_id).and_then(|shelf| {
                let shelf = shelf.read();
                let record = shelf.get(id).filter(|record| record.is_unwritten && now < record.expires_at)?;
                let expires = record.expires_at.plus_ms(u64::from(record.ttl_ms));
                let advertisement = Arc::clone(&record.advertisement);
                Some(AdvertWrite::Publish {
                    advertisement,
                    expires_at: expires,
                    confirmed_reservations: Vec::new(),
                    joined_reservations: Vec::new(),
                    now,
                })
            });
            match write {
                Some(write) => writes.push((set_id, write)),
                None => self.clear_unwritten(id, set_id, pending),
            }
        }
        writes
    }

    /// The store has been told.
    pub(in crate::engine) fn apply_catch_up_outcome(
        &self,
        set_id: SetId,
        write: &AdvertWrite,
        outcome: &WriteOutcome,
        pending: &mut UnwrittenAdverts,
    ) {
        let AdvertWrite::Publish { advertisement, expires_at: expires, .. } = write else { return };
        let id = advertisement.id;
        self.clear_unwritten(id, set_id, pending);
        let Some(shelf) = self.advert_sets.get(set_id) else { return };
        match outcome {
            // Another server deleted it meanwhile.
            WriteOutcome::Tombstoned => {
                shelf.write().remove(id);
                self.reservation_events.remove_listeners(id);
            }
            // Publishing says when, even sooner than what was stored before the outage.
            _ => shelf.write().update_unindexed(id, |record| record.stored_expires_at = *expires),
        }
    }

    fn clear_unwritten(&self, id: AdvertisementId, set_id: SetId, pending: &mut UnwrittenAdverts) {
        pending.0.remove(&id);
        if let Some(shelf) = self.advert_sets.get(set_id) {
            shelf.write().update_unindexed(id, |record| record.is_unwritten = false);
        }
    }

    /// Notes how a batch has moved an advertisement in the store; `false` when memory did not know where it was before.
    pub(in crate::engine) fn advance_version(&self, id: AdvertisementId, set_id: SetId, step: VersionStep) -> bool {
        let Some(shelf) = self.advert_sets.get(set_id) else { return true };
        let mut in_step = true;
        shelf.write().update_unindexed(id, |record| {
            in_step = record.version == step.before || record.version == step.after;
            if in_step {
                record.version = step.after;
            }
        });
        in_step
    }
}
