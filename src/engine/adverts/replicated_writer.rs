//! Writer for a store shared by replicas: applies own and remote changes in store order, and retries unwritten ones.

use std::sync::Arc;

use crate::domain::id::{AdvertisementId, SetId};
use crate::engine::adverts::advert_state::AdvertState;
use crate::engine::adverts::replication_state::{LastLocalBatchByAdvert, ReplicationState};
use crate::engine::adverts::store_outage::UnwrittenAdverts;
use crate::engine::adverts::writer_command::AdvertWriterCommand;
#[cfg(feature = "failpoints")]
use crate::engine::fail_points;
use crate::store::{AdvertWrite, FeedBatch, VersionStep, WriteOutcome};

/// Replication bookkeeping of the advertisement writer.
#[derive(Debug)]
pub(crate) struct ReplicatedWriter {
    replication: Arc<ReplicationState>,
    local_changes: LastLocalBatchByAdvert,
    unwritten: UnwrittenAdverts,
}

impl ReplicatedWriter {
    pub(crate) fn new(replication: Arc<ReplicationState>) -> Self {
        Self { replication, local_changes: LastLocalBatchByAdvert::default(), unwritten: UnwrittenAdverts::default() }
    }

    /// Commits a batch and applies it to memory. Handles it in memory, as far as possible, if the store is down.
    pub(crate) async fn commit_or_handle_without_store(
        &mut self,
        state: &AdvertState,
        commands: Vec<AdvertWriterCommand>,
        writes: &[AdvertWrite],
    ) {
        if !state.common.store.is_format_writable() {
            return commands.into_iter().for_each(|command| state.answer_store_unavailable(command));
        }
        if self.replication.store_health.is_down() {
            state.common.server_outages.record_failure(state.common.clock.now());
            return self.handle_without_store(state, commands);
        }
        #[cfg(not(feature = "failpoints"))]
        let result = state.common.store.commit_adverts(writes).await;
        #[cfg(feature = "failpoints")]
        let result = fail_points::commit_unless_client_gone(&*state.common.store, &commands, writes).await;
        state.common.record_commit(&result);
        match result {
            Ok(committed) => {
                let targets: Vec<_> = commands.iter().map(AdvertWriterCommand::advert_and_set_id).collect();
                let others: Vec<_> = committed.outcomes.iter().flat_map(WriteOutcome::other_advertisements).collect();
                state.apply_committed_batch(commands, writes, committed.outcomes);
                let batch = self.replication.count_applied_batch();
                self.reread_other_adverts_after_commit(others, batch);
                for (target, step) in targets.into_iter().zip(committed.version_steps) {
                    let Some((id, set_id)) = target else { continue };
                    self.advance_advert_version_after_commit(state, (id, set_id, batch), step);
                }
            }
            Err(error) => {
                tracing::error!(%error, commands = commands.len(), "batch commit failed");
                self.replication.store_health.record_failure();
                // The commit may have succeeded despite the error.
                self.replication.request_reread(writes.iter().map(AdvertWrite::advertisement_id));
                self.handle_without_store(state, commands);
            }
        }
    }

    /// Applies other replicas' changes to memory.
    pub(crate) fn apply_feed(&mut self, state: &AdvertState, feed_batch: FeedBatch, as_of_batch: u64) {
        state.apply_feed(feed_batch, as_of_batch, &mut self.local_changes, &self.replication);
    }

    /// Writes the changes that were accepted while the store was down.
    pub(crate) async fn write_unwritten_adverts(&mut self, state: &AdvertState) {
        while !self.replication.store_health.is_down() && self.unwritten.len() > 0 {
            let writes = self.unwritten.prepare_catch_up_writes(state, state.common.clock.now());
            let (sets, writes): (Vec<_>, Vec<AdvertWrite>) = writes.into_iter().unzip();
            if writes.is_empty() {
                continue;
            }
            let result = state.common.store.commit_adverts(&writes).await;
            state.common.record_commit(&result);
            match result {
                Ok(committed) => {
                    let batch = self.replication.count_applied_batch();
                    let others = committed.outcomes.iter().flat_map(WriteOutcome::other_advertisements);
                    self.reread_other_adverts_after_commit(others.collect(), batch);
                    let results = writes.iter().zip(&committed.outcomes).zip(committed.version_steps).zip(sets);
                    for (((write, outcome), step), set_id) in results {
                        self.unwritten.apply_catch_up_outcome(state, set_id, write, outcome);
                        self.advance_advert_version_after_commit(
                            state,
                            (write.advertisement_id(), set_id, batch),
                            step,
                        );
                    }
                }
                Err(error) => {
                    let unwritten = self.unwritten.len();
                    tracing::error!(%error, unwritten, "commit of unwritten advertisements failed");
                    self.replication.store_health.record_failure();
                    self.replication.request_reread(writes.iter().map(AdvertWrite::advertisement_id));
                }
            }
        }
        self.replication.set_unwritten_count(self.unwritten.len());
    }

    fn handle_without_store(&mut self, state: &AdvertState, commands: Vec<AdvertWriterCommand>) {
        let now = state.common.clock.now();
        commands.into_iter().for_each(|command| self.unwritten.handle_without_store(state, command, now));
        self.replication.set_unwritten_count(self.unwritten.len());
    }

    /// Reads advertisements again that a batch changed because of their owners: no version step tells their version.
    fn reread_other_adverts_after_commit(&mut self, ids: Vec<AdvertisementId>, batch: u64) {
        ids.iter().for_each(|id| self.local_changes.record_change(*id, batch));
        if !ids.is_empty() {
            self.replication.request_reread(ids);
        }
    }

    fn advance_advert_version_after_commit(
        &mut self,
        state: &AdvertState,
        (id, set_id, batch): (AdvertisementId, SetId, u64),
        step: VersionStep,
    ) {
        self.local_changes.record_change(id, batch);
        if !try_advance_record_version(state, id, set_id, step) {
            self.replication.request_reread([id]);
        }
    }
}

/// Advances the record's version after a commit. Returns `false` if memory did not have the version before it.
fn try_advance_record_version(state: &AdvertState, id: AdvertisementId, set_id: SetId, step: VersionStep) -> bool {
    let Some(set) = state.advert_sets.get(set_id) else { return true };
    let mut is_known = true;
    set.lock_for_write().update_unindexed_fields(id, |record| {
        is_known = record.version == step.before || record.version == step.after;
        if is_known {
            record.version = step.after;
        }
    });
    is_known
}
