//! The writer's part where servers share a store: its own changes and the others' come to memory in an order that the
//! store would agree with, and what could not be written is written later.

use std::sync::Arc;

use crate::domain::id::{AdvertisementId, SetId};
use crate::engine::core::Core;
use crate::engine::job::Job;
#[cfg(feature = "mutants")]
use crate::engine::mutant;
use crate::engine::outage::Pending;
use crate::engine::sharing::{Recent, Sharing};
use crate::engine::writer::apply_all;
use crate::store::{News, Step, Write};

/// What the writer keeps about the others.
#[derive(Debug)]
pub(super) struct Others {
    sharing: Arc<Sharing>,
    recent: Recent,
    pending: Pending,
}

impl Others {
    pub(super) fn new(sharing: Arc<Sharing>) -> Self {
        Self { sharing, recent: Recent::default(), pending: Pending::default() }
    }

    /// Has the store confirm a batch, and brings it to memory; without the store, does what can be done.
    pub(super) async fn commit(&mut self, core: &Arc<Core>, jobs: Vec<Job>, writes: &[Write]) {
        if self.sharing.is_down() {
            return self.weather(core, jobs);
        }
        #[cfg(not(feature = "mutants"))]
        let committed = core.store.commit(writes).await;
        #[cfg(feature = "mutants")]
        let committed = mutant::commit(core, &jobs, writes).await;
        match committed {
            Ok(committed) => {
                let about: Vec<_> = jobs.iter().map(Job::about).collect();
                apply_all(core, jobs, writes, committed.outcomes);
                let batch = self.sharing.applied();
                for (about, step) in about.into_iter().zip(committed.steps) {
                    let Some((id, set_id)) = about else { continue };
                    self.stamp(core, (id, set_id, batch), step);
                }
            }
            Err(error) => {
                tracing::error!(%error, jobs = jobs.len(), "commit a batch");
                self.sharing.failed(core.clock.now());
                // It may have happened all the same.
                self.sharing.read_again(writes.iter().map(Write::advertisement_id));
                self.weather(core, jobs);
            }
        }
    }

    /// Brings other servers' changes to memory.
    pub(super) fn adopt(&mut self, core: &Core, news: News, as_of: u64) {
        core.adopt(news, as_of, &mut self.recent, &self.sharing);
    }

    /// Tells the store what it has missed.
    pub(super) async fn catch_up(&mut self, core: &Core) {
        while !self.sharing.is_down() && 0 < self.pending.len() {
            let writes = core.pending_writes(&mut self.pending, core.clock.now());
            let (sets, writes): (Vec<_>, Vec<Write>) = writes.into_iter().unzip();
            if writes.is_empty() {
                continue;
            }
            match core.store.commit(&writes).await {
                Ok(committed) => {
                    let batch = self.sharing.applied();
                    let told = writes.iter().zip(&committed.outcomes).zip(committed.steps).zip(sets);
                    for (((write, outcome), step), set_id) in told {
                        core.told(set_id, write, outcome, &mut self.pending);
                        self.stamp(core, (write.advertisement_id(), set_id, batch), step);
                    }
                }
                Err(error) => {
                    tracing::error!(%error, pending = self.pending.len(), "write what is pending");
                    self.sharing.failed(core.clock.now());
                    self.sharing.read_again(writes.iter().map(Write::advertisement_id));
                }
            }
        }
        self.sharing.set_pending(self.pending.len());
    }

    fn weather(&mut self, core: &Core, jobs: Vec<Job>) {
        let now = core.clock.now();
        jobs.into_iter().for_each(|job| core.weather(job, &mut self.pending, now));
        self.sharing.set_pending(self.pending.len());
    }

    fn stamp(&mut self, core: &Core, (id, set_id, batch): (AdvertisementId, SetId, u64), step: Step) {
        self.recent.note(id, batch);
        if !core.stamp(id, set_id, step) {
            self.sharing.read_again([id]);
        }
    }
}
