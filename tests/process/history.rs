//! Call history: each call of each client with its start, end and outcome, to be compared with the tables afterwards.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fireteam_client::{Code, Error};
use tokio::time::Instant;

/// Outcome of a call, as far as its caller can know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallOutcome {
    /// The change was made.
    Succeeded,
    /// The change was not made, and will not be.
    Rejected,
    /// Unknown: the change may have been made, or may still be made.
    Unknown,
}

/// One requested change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Seats for the party of `user`, who leads no other party; `reservation` is empty until it is known.
    Reserve { user: String, advertisement: String, seats: u32, reservation: String },
    /// Release of a reservation.
    Release { user: String },
    /// Publication of a session with the text `word`; `advertisement` is empty until it is known.
    Publish { key: String, advertisement: String, word: u64 },
    /// Deletion of an advertisement.
    Delete { advertisement: String },
}

/// One call.
#[derive(Clone, Debug)]
pub(crate) struct CallRecord {
    pub(crate) client: usize,
    pub(crate) operation: Operation,
    pub(crate) start: Duration,
    pub(crate) end: Duration,
    pub(crate) outcome: CallOutcome,
}

/// All calls so far.
#[derive(Clone)]
pub(crate) struct History {
    started: Instant,
    calls: Arc<Mutex<Vec<CallRecord>>>,
}

impl History {
    pub(crate) fn start() -> Self {
        Self { started: Instant::now(), calls: Arc::default() }
    }

    /// Time since the history started.
    pub(crate) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Adds a call that started at `start` and has just ended.
    pub(crate) fn add(&self, client: usize, operation: Operation, start: Duration, outcome: CallOutcome) {
        let call = CallRecord { client, operation, start, end: self.now(), outcome };
        self.calls.lock().expect("unpoisoned").push(call);
    }

    /// Number of calls with this outcome.
    pub(crate) fn count(&self, outcome: CallOutcome) -> usize {
        self.calls.lock().expect("unpoisoned").iter().filter(|call| call.outcome == outcome).count()
    }

    /// All calls, in the order in which they ended.
    pub(crate) fn calls(&self) -> Vec<CallRecord> {
        self.calls.lock().expect("unpoisoned").clone()
    }

    /// Writes the history to a file, one JSON object per line, and returns its path.
    pub(crate) fn save(&self, test: &str) -> PathBuf {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("history_{test}.jsonl"));
        let mut file = std::io::BufWriter::new(std::fs::File::create(&path).expect("a file"));
        for CallRecord { client, operation, start, end, outcome } in self.calls() {
            let line = serde_json::json!({
                "client": client, "operation": format!("{operation:?}"), "start_us": start.as_micros() as u64,
                "end_us": end.as_micros() as u64, "outcome": format!("{outcome:?}"),
            });
            writeln!(file, "{line}").expect("a line");
        }
        path
    }
}

/// Outcome that a caller can conclude from an answer. A change that a rule rejected was not made; any other error may have
/// occurred after the change.
pub(crate) fn call_outcome<T>(answer: &Result<T, Error>) -> CallOutcome {
    match answer.as_ref().map_err(Error::code) {
        Ok(_) => CallOutcome::Succeeded,
        Err(Some(
            Code::FailedPrecondition
            | Code::ResourceExhausted
            | Code::NotFound
            | Code::AlreadyExists
            | Code::InvalidArgument
            | Code::PermissionDenied
            | Code::Aborted,
        )) => CallOutcome::Rejected,
        Err(_) => CallOutcome::Unknown,
    }
}
