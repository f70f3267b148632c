//! Writer for a store shared by replicas: applies own and remote changes in store order, and retries unwritten ones.

use std::sync::Arc;

use crate::domain::id::{AdvertisementId, SetId};
use crate::engine::adverts::replication_state::{LocalChangeLog, ReplicationState};
use crate::engine::adverts::store_outage::UnwrittenAdverts;
use crate::engine::adverts::writer::{apply_committed_batch, refuse_command};
use crate::engine::adverts::writer_command::AdvertWriterCommand;
use crate::engine::core::Core;
#[cfg(feature = "mutants")]
use crate::engine::fail_points;
use crate::store::{AdvertWrite, FeedBatch, VersionStep};

/// Replication bookkeeping of the advertisement writer.
#[derive(Debug)]
pub(in crate::engine) struct ReplicatedWriter {
    replication: Arc<ReplicationState>,
    local_changes: LocalChangeLog,
    unwritten: UnwrittenAdverts,
}

impl ReplicatedWriter {
    pub(in crate::engine) fn new(replication: Arc<ReplicationState>) -> Self {
        Self { replication, local_changes: LocalChangeLog::default(), unwritten: UnwrittenAdverts::default() }
    }

    /// Commits a batch and applies it to memory. Handles it in memory, as far as possible, if the store is down.
    pub(in crate::engine) async fn commit(
        &mut self,
        core: &Arc<Core>,
        commands: Vec<AdvertWriterCommand>,
        writes: &[AdvertWrite],
    ) {
        if !core.store.is_writable() {
            return commands.into_iter().for_each(|command| refuse_command(core, command));
        }
        if self.replication.is_store_down() {
            return self.handle_without_store(core, commands);
        }
        #[cfg(not(feature = "mutants"))]
        let result = core.store.commit(writes).await;
        #[cfg(feature = "mutants")]
        let result = fail_points::commit_unless_client_gone(core, &commands, writes).await;
        match result {
            Ok(committed) => {
                let targets: Vec<_> = commands.iter().map(AdvertWriterCommand::advert_and_set_id).collect();
                apply_committed_batch(core, commands, writes, committed.outcomes);
                let batch = self.replication.record_applied_batch();
                for (target, step) in targets.into_iter().zip(committed.version_steps) {
                    let Some((id, set_id)) = target else { continue };
                    self.record_version(core, (id, set_id, batch), step);
                }
            }
            Err(error) => {
                tracing::error!(%error, commands = commands.len(), "batch commit failed");
                self.replication.record_store_failure(core.clock.now());
                // The commit may have succeeded despite the error.
                self.replication.request_reread(writes.iter().map(AdvertWrite::advertisement_id));
                self.handle_without_store(core, commands);
            }
        }
    }

    /// Applies other replicas' changes to memory.
    pub(in crate::engine) fn apply_feed(&mut self, core: &Core, feed_batch: FeedBatch, as_of: u64) {
        core.apply_feed(feed_batch, as_of, &mut self.local_changes, &self.replication);
    }

    /// Writes the changes that were accepted while the store was down.
    pub(in crate::engine) async fn write_unwritten_adverts(&mut self, core: &Core) {
        while !self.replication.is_store_down() && self.unwritten.len() > 0 {
            let writes = core.catch_up_writes(&mut self.unwritten, core.clock.now());
            let (sets, writes): (Vec<_>, Vec<AdvertWrite>) = writes.into_iter().unzip();
            if writes.is_empty() {
                continue;
            }
            match core.store.commit(&writes).await {
                Ok(committed) => {
                    let batch = self.replication.record_applied_batch();
                    let results = writes.iter().zip(&committed.outcomes).zip(committed.version_steps).zip(sets);
                    for (((write, outcome), step), set_id) in results {
                        core.apply_catch_up_outcome(set_id, write, outcome, &mut self.unwritten);
                        self.record_version(core, (write.advertisement_id(), set_id, batch), step);
                    }
                }
                Err(error) => {
                    let unwritten = self.unwritten.len();
                    tracing::error!(%error, unwritten, "commit of unwritten advertisements failed");
                    self.replication.record_store_failure(core.clock.now());
                    self.replication.request_reread(writes.iter().map(AdvertWrite::advertisement_id));
                }
            }
        }
        self.replication.set_unwritten_count(self.unwritten.len());
    }

    fn handle_without_store(&mut self, core: &Core, commands: Vec<AdvertWriterCommand>) {
        let now = core.clock.now();
        commands.into_iter().for_each(|command| core.handle_without_store(command, &mut self.unwritten, now));
        self.replication.set_unwritten_count(self.unwritten.len());
    }

    fn record_version(&mut self, core: &Core, (id, set_id, batch): (AdvertisementId, SetId, u64), step: VersionStep) {
        self.local_changes.record_change(id, batch);
        if !core.advance_version(id, set_id, step) {
            self.replication.request_reread([id]);
        }
    }
}
