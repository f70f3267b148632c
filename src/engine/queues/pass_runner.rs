//! Pass with its panics caught: a panic costs the pass, not the queue and not the server. Its input is kept as a file.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::clock::with_cpu_time;
use crate::domain::queue::pass::{PassOutcome, run_pass_with_memory};
use crate::domain::queue::pass_memory::PassMemory;
use crate::engine::queues::shared_state::SharedState;
use crate::engine::queues::snapshot::QueueSnapshot;
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

/// Outcome of a pass, its memory for the next one, and the processor time that its snapshot and evaluation took.
pub(crate) struct TimedPass {
    pub(crate) outcome: PassOutcome,
    pub(crate) memory: PassMemory,
    pub(crate) cpu_time: Duration,
}

/// Takes a snapshot with `take` and runs a pass over it. `None` if either panicked, or if the set has no queue.
///
/// After a panic the caller must clear what `take` may have left half changed.
pub(crate) async fn run_caught_pass(
    shared: &SharedState,
    key: QueueKey,
    backoff: &mut PassBackoff,
    take: impl FnOnce() -> (QueueSnapshot, PassMemory),
) -> Option<TimedPass> {
    let supervisor = &shared.common.supervisor;
    let (snapshot, snapshot_time) = with_cpu_time(|| supervisor.catch_blocking(TaskLabel::Pass, take));
    let (result, snapshot) = match snapshot {
        Err(reason) => (Err(reason), None),
        Ok((snapshot, memory)) => {
            let snapshot = Arc::new(snapshot);
            let run = {
                let (supervisor, snapshot) = (supervisor.clone(), Arc::clone(&snapshot));
                let evaluate = move || supervisor.catch_blocking(TaskLabel::Pass, || evaluate_pass(&snapshot, memory));
                move || with_cpu_time(evaluate)
            };
            let (result, pass_time) = if snapshot.prepared_tickets.len() < BLOCKING_THREAD_MIN_TICKETS {
                run()
            } else {
                tokio::task::spawn_blocking(run).await.unwrap_or((Ok(None), Duration::ZERO))
            };
            (result.map(|outcome| (outcome, snapshot_time + pass_time)), Some(snapshot))
        }
    };
    match result {
        Ok((outcome, cpu_time)) => {
            backoff.record_success();
            outcome.map(|(outcome, memory)| TimedPass { outcome, memory, cpu_time })
        }
        Err(reason) => {
            let is_first = backoff.failure_count == 0;
            let retry_in_ms = backoff.record_failure(Instant::now()).as_millis();
            let (set_id, silo) = (key.set_id, key.silo);
            tracing::error!(%set_id, %silo, reason, retry_in_ms, "pass failed, the queue's passes wait");
            if let Some(snapshot) = snapshot.filter(|_| is_first) {
                save_failed_pass_input(shared, key, snapshot, reason).await;
            }
            None
        }
    }
}

/// Keeps the input of the first of several failed passes. Each further one would be nearly the same.
async fn save_failed_pass_input(shared: &SharedState, key: QueueKey, snapshot: Arc<QueueSnapshot>, reason: String) {
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
