//! The writer's part where servers share a store: its own changes and the others' come to memory in an order that the
//! store would agree with, and what could not be written is written later.

use std::sync::Arc;

use crate::domain::id::{AdvertisementId, SetId};
use crate::engine::adverts::replication_state::{LocalChangeLog, ReplicationState};
use crate::engine::adverts::store_outage::UnwrittenAdverts;
use crate::engine::adverts::writer::apply_committed_batch;
use crate::engine::adverts::writer_command::AdvertWriterCommand;
use crate::engine::core::Core;
#[cfg(feature = "mutants")]
use crate::engine::fail_points;
use crate::store::{AdvertWrite, FeedBatch, VersionStep};

/// What the writer keeps about the others.
#[derive(Debug)]
pub(in crate::engine) struct ReplicatedWriter {
    replication: Arc<ReplicationState>,
    local_changes: LocalChangeLog,
    unwritten: UnwrittenAdverts,
}

impl ReplicatedWriter {
    pub(in crate::engine) fn new(sharing: Arc<ReplicationState>) -> Self {
        Self { replication: sharing, local_changes: LocalChangeLog::default(), unwritten: UnwrittenAdverts::default() }
    }

    /// Has the store confirm a batch, and brings it to memory; without the store, does what can be done.
    pub(in crate::engine) async fn commit(
        &mut self,
        core: &Arc<Core>,
        jobs: Vec<AdvertWriterCommand>,
        writes: &[AdvertWrite],
    ) {
        if self.replication.is_store_down() {
            return self.handle_without_store(core, jobs);
        }
        #[cfg(not(feature = "mutants"))]
        let committed = core.store.commit(writes).await;
        #[cfg(feature = "mutants")]
        let committed = fail_points::commit_unless_client_gone(core, &jobs, writes).await;
        match committed {
            Ok(committed) => {
                let about: Vec<_> = jobs.iter().map(AdvertWriterCommand::advert_and_set_id).collect();
                apply_committed_batch(core, jobs, writes, committed.outcomes);
                let batch = self.replication.record_applied_batch();
                for (about, step) in about.into_iter().zip(committed.version_steps) {
                    let Some((id, set_id)) = about else { continue };
                    self.record_version(core, (id, set_id, batch), step);
                }
            }
            Err(error) => {
                tracing::error!(%error, jobs = jobs.len(), "commit a batch");
                self.replication.record_store_failure(core.clock.now());
                // It may have happened all the same.
                self.replication.request_reread(writes.iter().map(AdvertWrite::advertisement_id));
                self.handle_without_store(core, jobs);
            }
        }
    }

    /// Brings other servers' changes to memory.
    pub(in crate::engine) fn apply_feed(&mut self, core: &Core, news: FeedBatch, as_of: u64) {
        core.apply_feed(news, as_of, &mut self.local_changes, &self.replication);
    }

    /// Tells the store what it has missed.
    pub(in crate::engine) async fn write_unwritten_adverts(&mut self, core: &Core) {
        while !self.replication.is_store_down() && 0 < self.unwritten.len() {
            let writes = core.catch_up_writes(&mut self.unwritten, core.clock.now());
            let (sets, writes): (Vec<_>, Vec<AdvertWrite>) = writes.into_iter().unzip();
            if writes.is_empty() {
                continue;
            }
            match core.store.commit(&writes).await {
                Ok(committed) => {
                    let batch = self.replication.record_applied_batch();
                    let told = writes.iter().zip(&committed.outcomes).zip(committed.version_steps).zip(sets);
                    for (((write, outcome), step), set_id) in told {
                        core.apply_catch_up_outcome(set_id, write, outcome, &mut self.unwritten);
                        self.record_version(core, (write.advertisement_id(), set_id, batch), step);
                    }
                }
                Err(error) => {
                    tracing::error!(%error, pending = self.unwritten.len(), "write what is pending");
                    self.replication.record_store_failure(core.clock.now());
                    self.replication.request_reread(writes.iter().map(AdvertWrite::advertisement_id));
                }
            }
        }
        self.replication.set_unwritten_count(self.unwritten.len());
    }

    fn handle_without_store(&mut self, core: &Core, jobs: Vec<AdvertWriterCommand>) {
        let now = core.clock.now();
        jobs.into_iter().for_each(|job| core.handle_without_store(job, &mut self.unwritten, now));
        self.replication.set_unwritten_count(self.unwritten.len());
    }

    fn record_version(&mut self, core: &Core, (id, set_id, batch): (AdvertisementId, SetId, u64), step: VersionStep) {
        self.local_changes.record_change(id, batch);
        if !core.advance_version(id, set_id, step) {
            self.replication.request_reread([id]);
        }
    }
}
