//! The one task that changes anything: takes what is queued, has the store confirm it in one transaction, applies it to
//! memory in the same order, answers. Clients cannot cancel it.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::domain::id::{AdvertisementId, BuildIdHasher};
use crate::domain::time::UnixMs;
use crate::engine::adverts::publish_batch::PublishBatch;
use crate::engine::adverts::replicated_writer::ReplicatedWriter;
use crate::engine::adverts::writer_command::AdvertWriterCommand;
use crate::engine::core::Core;
use crate::engine::error::EngineError;
use crate::store::{AdvertWrite, StoreError, WriteOutcome};

/// Jobs that may wait; more are refused with a retry delay.
pub(in crate::engine) const WRITER_INBOX_CAPACITY: usize = 16_384;

/// Jobs in one transaction: enough to hide the cost of a commit, few enough that nobody waits long for it.
const BATCH_COMMANDS_MAX: usize = 1_000;

/// What an overloaded or unreachable store makes clients wait before they try again, milliseconds.
pub(in crate::engine) const RETRY_AFTER_MS: u32 = 500;

/// Runs until told to stop; what was submitted before that is written first.
pub(in crate::engine) async fn run_advert_writer(
    core: Arc<Core>,
    mut inbox: mpsc::Receiver<AdvertWriterCommand>,
    stop: CancellationToken,
) {
    let mut jobs = Vec::with_capacity(BATCH_COMMANDS_MAX);
    let mut others = core.replication.clone().map(ReplicatedWriter::new);
    loop {
        let taken = tokio::select! {
            biased;
            taken = inbox.recv_many(&mut jobs, BATCH_COMMANDS_MAX) => taken,
            () = stop.cancelled(), if !inbox.is_closed() => {
                inbox.close();
                continue;
            }
        };
        if taken == 0 {
            return;
        }
        let mut batch = AdvertBatch::default();
        for job in jobs.drain(..) {
            if batch.must_commit_before(&job) {
                batch.commit(&core, others.as_mut()).await;
            }
            match job {
                AdvertWriterCommand::SetRulesets(living, done) => {
                    let core = Arc::clone(&core);
                    let built =
                        tokio::task::spawn_blocking(move || core.advert_sets.set_indexed_rulesets(living)).await;
                    if built.is_ok() {
                        let _ = done.send(());
                    }
                }
                AdvertWriterCommand::Flush(passed) => {
                    // Whoever wanted to know may have gone.
                    let _ = passed.send(());
                }
                AdvertWriterCommand::ApplyFeed(news, as_of) => {
                    if let Some(others) = &mut others {
                        others.apply_feed(&core, *news, as_of);
                        others.write_unwritten_adverts(&core).await;
                    }
                }
                job => batch.add(&core, job),
            }
        }
        batch.commit(&core, others.as_mut()).await;
    }
}

/// Jobs that share a transaction, with their writes.
#[derive(Default)]
struct AdvertBatch {
    commands: Vec<AdvertWriterCommand>,
    writes: Vec<AdvertWrite>,
    changed_adverts: HashSet<AdvertisementId, BuildIdHasher>,
}

impl AdvertBatch {
    /// Whether this batch must be in memory before `job` can be judged: it depends on memory, and the batch changes
    /// what it depends on.
    fn must_commit_before(&self, job: &AdvertWriterCommand) -> bool {
        match job {
            AdvertWriterCommand::Publish(..) | AdvertWriterCommand::Delete(..) => false,
            AdvertWriterCommand::ExtendTtl(extend, ..) => self.changed_adverts.contains(&extend.id),
            AdvertWriterCommand::ReserveSeats(take, ..) => self.changed_adverts.contains(&take.advertisement_id),
            AdvertWriterCommand::ReleaseReservation(_, id, ..)
            | AdvertWriterCommand::ExpireHold(_, id, _)
            | AdvertWriterCommand::ExpireAdvert(id, ..) => self.changed_adverts.contains(id),
            AdvertWriterCommand::ApplyFeed(..)
            | AdvertWriterCommand::SetRulesets(..)
            | AdvertWriterCommand::Flush(_) => !self.commands.is_empty(),
        }
    }

    /// Adds a job, unless memory already has its answer.
    fn add(&mut self, core: &Core, job: AdvertWriterCommand) {
        let now = core.clock.now();
        if let Some((job, write)) = core.prepare_write(job, now) {
            self.changed_adverts.insert(write.advertisement_id());
            self.commands.push(job);
            self.writes.push(write);
        }
    }

    async fn commit(&mut self, core: &Arc<Core>, others: Option<&mut ReplicatedWriter>) {
        if self.commands.is_empty() {
            return;
        }
        let (jobs, writes) = (std::mem::take(&mut self.commands), std::mem::take(&mut self.writes));
        self.changed_adverts.clear();
        if let Some(others) = others {
            return others.commit(core, jobs, &writes).await;
        }
        match core.store.commit(&writes).await {
            Ok(committed) => apply_committed_batch(core, jobs, &writes, committed.outcomes),
            Err(error) => fail_batch(core, jobs, &error, core.clock.now()),
        }
    }
}

/// Brings a batch to memory, and answers.
pub(in crate::engine) fn apply_committed_batch(
    core: &Core,
    jobs: Vec<AdvertWriterCommand>,
    writes: &[AdvertWrite],
    outcomes: Vec<WriteOutcome>,
) {
    let now = core.clock.now();
    let mut run = PublishBatch::default();
    for ((job, write), outcome) in jobs.into_iter().zip(writes).zip(outcomes) {
        core.apply_commit(&mut run, job, write, outcome, now);
    }
    core.apply_publish_batch(&mut run, now);
}

/// Nothing of the batch happened: whoever waits may try again, and what the sweep wanted it will want again.
fn fail_batch(core: &Core, jobs: Vec<AdvertWriterCommand>, error: &StoreError, now: UnixMs) {
    tracing::error!(%error, jobs = jobs.len(), at_ms = now.0, "commit a batch");
    let fault = || EngineError::StoreUnavailable { retry_after_ms: RETRY_AFTER_MS };
    for job in jobs {
        match job {
            AdvertWriterCommand::Publish(_, reply, in_flight) => core.send_answer(reply, in_flight, Err(fault())),
            AdvertWriterCommand::ExtendTtl(_, reply, in_flight) => core.send_answer(reply, in_flight, Err(fault())),
            AdvertWriterCommand::Delete(_, _, reply, in_flight) => core.send_answer(reply, in_flight, Err(fault())),
            AdvertWriterCommand::ReserveSeats(_, reply, in_flight) => core.send_answer(reply, in_flight, Err(fault())),
            AdvertWriterCommand::ReleaseReservation(_, _, _, reply, in_flight) => {
                core.send_answer(reply, in_flight, Err(fault()))
            }
            AdvertWriterCommand::ExpireAdvert(_, set_id, Some(record)) => core.restore_expired(set_id, *record),
            AdvertWriterCommand::ExpireHold(..)
            | AdvertWriterCommand::ExpireAdvert(_, _, None)
            | AdvertWriterCommand::ApplyFeed(..)
            | AdvertWriterCommand::SetRulesets(..)
            | AdvertWriterCommand::Flush(_) => {}
        }
    }
}
