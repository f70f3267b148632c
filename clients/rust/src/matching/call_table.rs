//! Calls underway: their attempts, deadlines and repetitions.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::matching::call::{Answer, Call, CallError, CallId, Request};
use crate::matching::monotonic_time::MonotonicTime;
use crate::retry::RetryPolicy;

/// Time after which an attempt counts as lost. The server answers within 5 s.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(6);
/// Attempts of a report, after which it is dropped, and of a draw.
const ATTEMPTS_OF_A_REPORT: u32 = 2;

/// Calls underway.
#[derive(Debug, Default)]
pub(super) struct CallTable {
    next_id: u64,
    pending: BTreeMap<CallId, PendingCall>,
    outbox: VecDeque<Call>,
}

#[derive(Debug)]
struct PendingCall {
    request: Request,
    attempts: u32,
    wait: Wait,
}

#[derive(Clone, Copy, Debug)]
enum Wait {
    Answer { until: MonotonicTime },
    Backoff { until: MonotonicTime },
}

/// Call that is over.
#[derive(Debug)]
pub(super) struct SettledCall {
    pub(super) id: CallId,
    pub(super) request: Request,
    pub(super) result: Result<Answer, CallError>,
}

impl CallTable {
    /// Asks for a call.
    pub(super) fn start(&mut self, request: Request, now: MonotonicTime) -> CallId {
        let id = CallId(self.next_id);
        self.next_id += 1;
        self.outbox.push_back(Call { id, request: request.clone() });
        self.pending
            .insert(id, PendingCall { request, attempts: 1, wait: Wait::Answer { until: now + ANSWER_TIMEOUT } });
        id
    }

    /// Call to make now.
    pub(super) fn poll(&mut self) -> Option<Call> {
        self.outbox.pop_front()
    }

    /// Takes the result of an attempt. `None` if the call goes on, or was over before and failed again. `Err` has an answer to a call that
    /// was over. `jitter` is uniform in [0, 1).
    pub(super) fn settle(
        &mut self,
        id: CallId,
        mut result: Result<Answer, CallError>,
        now: MonotonicTime,
        jitter: f64,
    ) -> Result<Option<SettledCall>, Answer> {
        let Some(call) = self.pending.get_mut(&id) else { return result.map_or(Ok(None), Err) };
        if result.as_ref().is_ok_and(|answer| !call.request.is_answered_by(answer)) {
            result = Err(CallError::wrong_answer());
        }
        if let Err(error) = &result {
            if matches!(call.wait, Wait::Backoff { .. }) {
                return Ok(None);
            }
            if let Some(pause) = pause_before_retry(&call.request, call.attempts, error, jitter) {
                call.wait = Wait::Backoff { until: now + pause };
                return Ok(None);
            }
        }
        self.outbox.retain(|call| call.id != id);
        Ok(self.pending.remove(&id).map(|call| SettledCall { id, request: call.request, result }))
    }

    /// Starts due attempts, and counts those as lost that were not answered. Returns a call that is over by that; call again until `None`.
    pub(super) fn expire(&mut self, now: MonotonicTime, jitter: f64) -> Option<SettledCall> {
        for (id, call) in &mut self.pending {
            if let Wait::Backoff { until } = call.wait
                && until <= now
            {
                call.attempts += 1;
                call.wait = Wait::Answer { until: now + ANSWER_TIMEOUT };
                self.outbox.push_back(Call { id: *id, request: call.request.clone() });
            }
        }
        let is_lost = |call: &PendingCall| matches!(call.wait, Wait::Answer { until } if until <= now);
        let lost: Vec<CallId> = self.pending.iter().filter(|(_, call)| is_lost(call)).map(|(id, _)| *id).collect();
        lost.into_iter().find_map(|id| {
            self.outbox.retain(|call| call.id != id);
            self.settle(id, Err(CallError::unanswered()), now, jitter).ok().flatten()
        })
    }

    /// Drops the calls whose result nothing depends on any longer.
    pub(super) fn forget(&mut self, is_unwanted: impl Fn(CallId, &Request) -> bool) {
        self.pending.retain(|id, call| !is_unwanted(*id, &call.request));
        let pending = &self.pending;
        self.outbox.retain(|call| pending.contains_key(&call.id));
    }

    /// Whether no call is underway.
    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Time at which an attempt is due, or counts as lost.
    pub(super) fn next_timeout(&self) -> Option<MonotonicTime> {
        let until = |call: &PendingCall| match call.wait {
            Wait::Answer { until } | Wait::Backoff { until } => until,
        };
        self.pending.values().map(until).min()
    }
}

/// Pause before the next attempt; `None` if there is none.
fn pause_before_retry(request: &Request, attempts: u32, error: &CallError, jitter: f64) -> Option<Duration> {
    let policy = match request {
        Request::ReportLatency(_) | Request::ChooseAction(_) => {
            RetryPolicy { max_attempts: ATTEMPTS_OF_A_REPORT, ..RetryPolicy::default() }
        }
        _ => RetryPolicy::default(),
    };
    let retry_after = error.retry_after_ms.map(Duration::from_millis);
    if error.is_transient() { policy.pause(attempts, retry_after, jitter) } else { None }
}
