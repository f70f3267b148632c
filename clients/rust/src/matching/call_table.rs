//! Calls underway: their attempts, deadlines and repetitions.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::matching::call::{CallError, CallId};
use crate::matching::monotonic_time::MonotonicTime;
use crate::retry::RetryPolicy;

/// Time after which an attempt counts as lost. The server answers within 5 s.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(6);

/// Request that may be sent again, because a second one has no other effect.
pub(crate) trait IdempotentRequest: Clone {
    /// Its answer.
    type Answer;

    /// Whether an answer is one to this kind of request.
    fn is_answered_by(&self, answer: &Self::Answer) -> bool;

    /// Attempts after which the call has failed; `None` for those of the [`RetryPolicy`].
    fn attempts_max(&self) -> Option<u32>;
}

/// Calls underway.
#[derive(Debug)]
pub(crate) struct CallTable<Request> {
    next_id: u64,
    pending: BTreeMap<CallId, PendingCall<Request>>,
    outbox: VecDeque<(CallId, Request)>,
}

#[derive(Debug)]
struct PendingCall<Request> {
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
pub(crate) struct SettledCall<Request: IdempotentRequest> {
    pub(crate) id: CallId,
    pub(crate) request: Request,
    pub(crate) result: Result<Request::Answer, CallError>,
}

impl<Request> Default for CallTable<Request> {
    fn default() -> Self {
        Self { next_id: 0, pending: BTreeMap::new(), outbox: VecDeque::new() }
    }
}

impl<Request: IdempotentRequest> CallTable<Request> {
    /// Asks for a call.
    pub(crate) fn start(&mut self, request: Request, now: MonotonicTime) -> CallId {
        let id = CallId(self.next_id);
        self.next_id += 1;
        self.outbox.push_back((id, request.clone()));
        self.pending
            .insert(id, PendingCall { request, attempts: 1, wait: Wait::Answer { until: now + ATTEMPT_TIMEOUT } });
        id
    }

    /// Call to make now.
    pub(crate) fn poll(&mut self) -> Option<(CallId, Request)> {
        self.outbox.pop_front()
    }

    /// Takes the result of an attempt. `None` if the call goes on, or was over before and failed again. `Err` has an answer to a call that
    /// was over. `jitter` is uniform in [0, 1).
    pub(crate) fn settle(
        &mut self,
        id: CallId,
        mut result: Result<Request::Answer, CallError>,
        now: MonotonicTime,
        jitter: f64,
    ) -> Result<Option<SettledCall<Request>>, Request::Answer> {
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
        self.outbox.retain(|(other, _)| *other != id);
        Ok(self.pending.remove(&id).map(|call| SettledCall { id, request: call.request, result }))
    }

    /// Starts due attempts, and counts those as lost that were not answered. Returns a call that is over by that; call again until `None`.
    pub(crate) fn handle_due_attempts(&mut self, now: MonotonicTime, jitter: f64) -> Option<SettledCall<Request>> {
        for (id, call) in &mut self.pending {
            if let Wait::Backoff { until } = call.wait
                && until <= now
            {
                call.attempts += 1;
                call.wait = Wait::Answer { until: now + ATTEMPT_TIMEOUT };
                self.outbox.push_back((*id, call.request.clone()));
            }
        }
        let is_lost = |call: &PendingCall<Request>| matches!(call.wait, Wait::Answer { until } if until <= now);
        let lost: Vec<CallId> = self.pending.iter().filter(|(_, call)| is_lost(call)).map(|(id, _)| *id).collect();
        lost.into_iter().find_map(|id| {
            self.outbox.retain(|(other, _)| *other != id);
            self.settle(id, Err(CallError::new_unanswered()), now, jitter).ok().flatten()
        })
    }

    /// Drops the calls whose result nothing depends on any longer.
    pub(crate) fn forget_unwanted(&mut self, is_unwanted: impl Fn(CallId, &Request) -> bool) {
        self.pending.retain(|id, call| !is_unwanted(*id, &call.request));
        let pending = &self.pending;
        self.outbox.retain(|(id, _)| pending.contains_key(id));
    }

    /// Drops all calls, and returns their requests.
    pub(crate) fn take_requests(&mut self) -> Vec<Request> {
        self.outbox.clear();
        std::mem::take(&mut self.pending).into_values().map(|call| call.request).collect()
    }

    /// Number of calls underway.
    pub(crate) fn len(&self) -> usize {
        self.pending.len()
    }

    /// Whether no call is underway.
    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Time at which an attempt is due, or counts as lost.
    pub(crate) fn next_timeout(&self) -> Option<MonotonicTime> {
        let until = |call: &PendingCall<Request>| match call.wait {
            Wait::Answer { until } | Wait::Backoff { until } => until,
        };
        self.pending.values().map(until).min()
    }
}

/// Pause before the next attempt; `None` if there is none.
fn pause_before_retry(
    request: &impl IdempotentRequest,
    attempts: u32,
    error: &CallError,
    jitter: f64,
) -> Option<Duration> {
    let policy = RetryPolicy::default();
    let policy = RetryPolicy { max_attempts: request.attempts_max().unwrap_or(policy.max_attempts), ..policy };
    let retry_after = error.retry_after_ms.map(Duration::from_millis);
    if error.is_transient() { policy.pause(attempts, retry_after, jitter) } else { None }
}
