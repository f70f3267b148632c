//! Pass with its panics caught: a panic costs the pass, not the queue and not the server. Its input is kept as a file.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::clock::with_cpu_time;
use crate::domain::queue::pass::{PassOutcome, run_pass_with_memory};
use crate::domain::queue::pass_memory::PassMemory;
use crate::domain::ruleset::Ruleset;
use crate::domain::time::UnixMs;
use crate::engine::queues::shared_state::SharedState;
use crate::engine::queues::snapshot::{PreparedTicketCache, QueueSnapshot};
use crate::store::queues::QueueKey;
use crate::telemetry::label::TaskLabel;

/// Number of tickets from which a pass runs on a blocking thread, so that it does not delay calls.
const BLOCKING_THREAD_MIN_TICKETS: usize = 256;

/// Delay of a queue's next pass after the first panic; doubles with each further one.
const RETRY_DELAY_MIN: Duration = Duration::from_secs(1);

/// Longest delay of a queue's next pass.
const RETRY_DELAY_MAX: Duration = Duration::from_secs(60);

/// Delays of a queue's passes after panics. Only passes wait: deadlines and game servers do not.
#[derive(Debug, Default)]
pub(crate) struct PassBackoff {
    failure_count: u32,
    retry_at: Option<Instant>,
}

impl PassBackoff {
    /// Time before which no pass runs.
    pub(crate) fn retry_at(&self) -> Option<Instant> {
        self.retry_at
    }

    fn record_success(&mut self) {
        *self = Self::default();
    }

    /// Returns the delay of the next pass.
    fn record_failure(&mut self, now: Instant) -> Duration {
        let delay = RETRY_DELAY_MIN.saturating_mul(1 << self.failure_count.min(16)).min(RETRY_DELAY_MAX);
        self.failure_count += 1;
        self.retry_at = Some(now + delay);
        delay
    }
}

/// Pass to run: everything that it needs, owned, so that another thread can run it.
pub(crate) struct PassTask {
    pub(crate) shared: Arc<SharedState>,
    pub(crate) key: QueueKey,
    pub(crate) ruleset: Arc<Ruleset>,
    /// Tickets and memory of the last pass.
    pub(crate) ticket_cache: PreparedTicketCache,
    pub(crate) now: UnixMs,
}

/// Outcome of a pass, the tickets and memory for the next one, and the processor time that its snapshot and evaluation took.
pub(crate) struct TimedPass {
    pub(crate) outcome: PassOutcome,
    pub(crate) ticket_cache: PreparedTicketCache,
    pub(crate) cpu_time: Duration,
}

/// Result of a pass on its thread: `Ok(None)` if the set has no queue, the reason if it panicked. The snapshot, if one was taken.
type CaughtPass = (Result<Option<TimedPass>, String>, Option<QueueSnapshot>);

/// Runs a pass. `None` if it panicked, or if the set has no queue: then what it knew of its tickets is dropped too.
pub(crate) async fn run_caught_pass(task: PassTask, backoff: &mut PassBackoff) -> Option<TimedPass> {
    let (shared, key) = (Arc::clone(&task.shared), task.key);
    let tickets = shared.cache.read().queue_index(key).map_or(0, |index| index.waiting_ticket_count());
    let (result, snapshot) = if tickets < BLOCKING_THREAD_MIN_TICKETS {
        task.run()
    } else {
        tokio::task::spawn_blocking(|| task.run()).await.unwrap_or((Ok(None), None))
    };
    match result {
        Ok(pass) => {
            backoff.record_success();
            pass
        }
        Err(reason) => {
            let is_first = backoff.failure_count == 0;
            let retry_in_ms = backoff.record_failure(Instant::now()).as_millis();
            let (set_id, silo) = (key.set_id, key.silo);
            tracing::error!(%set_id, %silo, reason, retry_in_ms, "pass failed, the queue's passes wait");
            if let Some(snapshot) = snapshot.filter(|_| is_first) {
                save_failed_pass_input(&shared, key, snapshot, reason).await;
            }
            None
        }
    }
}

impl PassTask {
    /// Takes the snapshot and evaluates it, both with their panics caught.
    fn run(mut self) -> CaughtPass {
        let supervisor = self.shared.common.supervisor.clone();
        let take = || with_cpu_time(|| self.take_snapshot());
        let (snapshot, snapshot_time) = match supervisor.catch_blocking(TaskLabel::Pass, take) {
            Ok((Some(snapshot), snapshot_time)) => (snapshot, snapshot_time),
            Ok((None, _)) => return (Ok(None), None),
            Err(reason) => return (Err(reason), None),
        };
        let memory = self.ticket_cache.take_pass_memory();
        let evaluate = || with_cpu_time(|| evaluate_pass(&snapshot, memory));
        let result = supervisor.catch_blocking(TaskLabel::Pass, evaluate).map(|(evaluated, pass_time)| {
            let (outcome, memory) = evaluated?;
            let mut ticket_cache = self.ticket_cache;
            ticket_cache.keep_pass_memory(memory);
            Some(TimedPass { outcome, ticket_cache, cpu_time: snapshot_time + pass_time })
        });
        (result, Some(snapshot))
    }

    fn take_snapshot(&mut self) -> Option<QueueSnapshot> {
        let queue = self.ruleset.queue.as_ref()?;
        Some(QueueSnapshot::take(&self.shared, self.key, &self.ruleset, queue, &mut self.ticket_cache, self.now))
    }
}

/// Keeps the input of the first of several failed passes. Each further one would be nearly the same.
async fn save_failed_pass_input(shared: &SharedState, key: QueueKey, snapshot: QueueSnapshot, reason: String) {
    let folder = shared.common.pass_failures.clone();
    if !folder.is_enabled() {
        tracing::warn!("input of the failed pass discarded; set --pass-failure-dir to keep it");
        return;
    }
    let save = move || snapshot.with_pass_input(|input| folder.save(input, key.silo, &reason));
    match tokio::task::spawn_blocking(save).await {
        Ok(Some(Ok(Some(file)))) => {
            tracing::error!(file = %file.display(), "input of the failed pass kept");
        }
        Ok(Some(Err(error))) => {
            tracing::error!(%error, "input of the failed pass lost, its file cannot be written");
        }
        Ok(Some(Ok(None)) | None) => {}
        Err(error) => {
            tracing::error!(%error, "input of the failed pass lost, its encoding panicked");
        }
    }
}

fn evaluate_pass(snapshot: &QueueSnapshot, mut memory: PassMemory) -> Option<(PassOutcome, PassMemory)> {
    let outcome = snapshot.with_pass_input(|input| {
        #[cfg(feature = "failpoints")]
        crate::engine::fail_points::fail_in_pass(input.ruleset.set_id);
        run_pass_with_memory(input, &mut memory)
    });
    outcome.map(|outcome| (outcome, memory))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R20: the delay of a queue's passes doubles up to its limit, and a pass that works ends it.
    #[tokio::test]
    async fn pass_backoff_doubles_up_to_its_limit() {
        let (mut backoff, now) = (PassBackoff::default(), Instant::now());
        let delays: Vec<u64> = (0..40).map(|_| backoff.record_failure(now).as_secs()).collect();
        assert_eq!(delays[..8], [1, 2, 4, 8, 16, 32, 60, 60]);
        assert!(delays[8..].iter().all(|delay| *delay == 60));
        assert_eq!(backoff.retry_at(), Some(now + RETRY_DELAY_MAX));
        backoff.record_success();
        assert_eq!((backoff.retry_at(), backoff.record_failure(now)), (None, RETRY_DELAY_MIN));
    }
}
