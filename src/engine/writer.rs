//! The one task that changes anything: takes what is queued, has the store confirm it in one transaction, applies it to
//! memory in the same order, answers. Clients cannot cancel it.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::domain::id::{AdvertisementId, IdState};
use crate::domain::time::UnixMs;
use crate::engine::core::Core;
use crate::engine::fault::Fault;
use crate::engine::job::Job;
use crate::engine::others::Others;
use crate::engine::run::Run;
use crate::store::{Outcome, StoreError, Write};

/// Jobs that may wait; more are refused with a retry delay.
pub(super) const INBOX_MAX: usize = 16_384;

/// Jobs in one transaction: enough to hide the cost of a commit, few enough that nobody waits long for it.
const BATCH_MAX: usize = 1_000;

/// What an overloaded or unreachable store makes clients wait before they try again, milliseconds.
pub(super) const RETRY_AFTER_MS: u32 = 500;

/// Runs until told to stop; what was submitted before that is written first.
pub(super) async fn run(core: Arc<Core>, mut inbox: mpsc::Receiver<Job>, stop: CancellationToken) {
    let mut jobs = Vec::with_capacity(BATCH_MAX);
    let mut others = core.sharing.clone().map(Others::new);
    loop {
        let taken = tokio::select! {
            biased;
            taken = inbox.recv_many(&mut jobs, BATCH_MAX) => taken,
            () = stop.cancelled(), if !inbox.is_closed() => {
                inbox.close();
                continue;
            }
        };
        if taken == 0 {
            return;
        }
        let mut batch = Batch::default();
        for job in jobs.drain(..) {
            if batch.must_come_first(&job) {
                batch.commit(&core, others.as_mut()).await;
            }
            match job {
                Job::Rules(living, done) => {
                    let core = Arc::clone(&core);
                    let built = tokio::task::spawn_blocking(move || core.directory.set_living(living)).await;
                    if built.is_ok() {
                        let _ = done.send(());
                    }
                }
                Job::Mark(passed) => {
                    // Whoever wanted to know may have gone.
                    let _ = passed.send(());
                }
                Job::News(news, as_of) => {
                    if let Some(others) = &mut others {
                        others.adopt(&core, *news, as_of);
                        others.catch_up(&core).await;
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
struct Batch {
    jobs: Vec<Job>,
    writes: Vec<Write>,
    changed: HashSet<AdvertisementId, IdState>,
}

impl Batch {
    /// Whether this batch must be in memory before `job` can be judged: it depends on memory, and the batch changes
    /// what it depends on.
    fn must_come_first(&self, job: &Job) -> bool {
        match job {
            Job::Publish(..) | Job::Delete(..) => false,
            Job::Extend(extend, ..) => self.changed.contains(&extend.id),
            Job::Take(take, ..) => self.changed.contains(&take.advertisement_id),
            Job::Release(_, id, ..) | Job::Lapse(_, id, _) | Job::Expire(id, ..) => self.changed.contains(id),
            Job::News(..) | Job::Rules(..) | Job::Mark(_) => !self.jobs.is_empty(),
        }
    }

    /// Adds a job, unless memory already has its answer.
    fn add(&mut self, core: &Core, job: Job) {
        let now = core.clock.now();
        if let Some((job, write)) = core.prepare(job, now) {
            self.changed.insert(write.advertisement_id());
            self.jobs.push(job);
            self.writes.push(write);
        }
    }

    async fn commit(&mut self, core: &Arc<Core>, others: Option<&mut Others>) {
        if self.jobs.is_empty() {
            return;
        }
        let (jobs, writes) = (std::mem::take(&mut self.jobs), std::mem::take(&mut self.writes));
        self.changed.clear();
        if let Some(others) = others {
            return others.commit(core, jobs, &writes).await;
        }
        match core.store.commit(&writes).await {
            Ok(committed) => apply_all(core, jobs, &writes, committed.outcomes),
            Err(error) => refuse_all(core, jobs, &error, core.clock.now()),
        }
    }
}

/// Brings a batch to memory, and answers.
pub(super) fn apply_all(core: &Core, jobs: Vec<Job>, writes: &[Write], outcomes: Vec<Outcome>) {
    let now = core.clock.now();
    let mut run = Run::default();
    for ((job, write), outcome) in jobs.into_iter().zip(writes).zip(outcomes) {
        core.apply(&mut run, job, write, outcome, now);
    }
    core.apply_run(&mut run, now);
}

/// Nothing of the batch happened: whoever waits may try again, and what the sweep wanted it will want again.
fn refuse_all(core: &Core, jobs: Vec<Job>, error: &StoreError, now: UnixMs) {
    tracing::error!(%error, jobs = jobs.len(), at_ms = now.0, "commit a batch");
    let fault = || Fault::StoreUnavailable { retry_after_ms: RETRY_AFTER_MS };
    for job in jobs {
        match job {
            Job::Publish(_, reply, in_flight) => core.answer(reply, in_flight, Err(fault())),
            Job::Extend(_, reply, in_flight) => core.answer(reply, in_flight, Err(fault())),
            Job::Delete(_, _, reply, in_flight) => core.answer(reply, in_flight, Err(fault())),
            Job::Take(_, reply, in_flight) => core.answer(reply, in_flight, Err(fault())),
            Job::Release(_, _, _, reply, in_flight) => core.answer(reply, in_flight, Err(fault())),
            Job::Expire(_, set_id, Some(record)) => core.put_back(set_id, *record),
            Job::Lapse(..) | Job::Expire(_, _, None) | Job::News(..) | Job::Rules(..) | Job::Mark(_) => {}
        }
    }
}
