//! Renewal of the round trips of a ticket: they expire with the latency token that they came with, so the latest token is sent while it waits.

use std::time::Duration;

use crate::matching::{CallError, CallId, MonotonicTime};

/// Shortest and longest time after which a latency token is sent again whose heartbeat has failed, with all its attempts.
const RETRY_PAUSE_RANGE: [Duration; 2] = [Duration::from_secs(30), Duration::from_secs(300)];

/// Latest latency token of a loop, and whether the server has it.
#[derive(Default)]
pub(super) struct TokenRenewal {
    /// Empty for none.
    latest: Vec<u8>,
    /// Time from which it is to be sent. `None` if the server has it.
    send_due_at: Option<MonotonicTime>,
    /// Heartbeat with a token, underway.
    call: Option<CallId>,
}

impl TokenRenewal {
    /// Takes a token, to be sent from `due_at` on; `None`: it is sent in another way. Returns whether it is a new one.
    pub(super) fn set_latest(&mut self, token: Vec<u8>, due_at: Option<MonotonicTime>) -> bool {
        let is_new = token != self.latest;
        if is_new {
            self.send_due_at = due_at.filter(|_| !token.is_empty());
            self.latest = token;
        }
        is_new
    }

    /// Token to send now; the server has it then.
    pub(super) fn take_to_send(&mut self) -> Vec<u8> {
        self.send_due_at = None;
        self.latest.clone()
    }

    /// Time at which a heartbeat with the token is due. `None` while one is underway, and if the server has the token.
    pub(super) fn due_at(&self) -> Option<MonotonicTime> {
        self.send_due_at.filter(|_| self.call.is_none())
    }

    /// A heartbeat with the token was started.
    pub(super) fn on_started(&mut self, call: CallId) {
        self.call = Some(call);
    }

    /// Whether a call is that heartbeat.
    pub(super) fn is_call(&self, id: CallId) -> bool {
        self.call == Some(id)
    }

    /// The heartbeat has ended. If it failed and a repetition may succeed, the latest token is sent again later.
    pub(super) fn on_ended(&mut self, failure: Option<CallError>, now: MonotonicTime) {
        self.call = None;
        if let Some(error) = failure.filter(|error| !error.is_final() && !self.latest.is_empty()) {
            let [least, most] = RETRY_PAUSE_RANGE;
            let pause = error.retry_after_ms.map_or(least, Duration::from_millis).clamp(least, most);
            self.send_due_at.get_or_insert(now + pause);
        }
    }
}
