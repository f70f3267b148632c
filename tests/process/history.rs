//! What clients asked, when, and what they were told: one line each, kept to be held against the tables.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fireteam_client::{Code, Error};
use tokio::time::Instant;

/// How a call ended, as far as its caller can know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It happened.
    Done,
    /// It did not, and will not.
    Refused,
    /// Nobody knows, and it may yet happen.
    Unknown,
}

/// What was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// Seats for a party that is led by `user`, whom no other party has; `reservation` once it is known.
    Reserve { user: String, advertisement: String, seats: u32, reservation: String },
    /// Seats given back.
    Release { user: String },
    /// A session published as `word`; `advertisement` once it is known.
    Publish { key: String, advertisement: String, word: u64 },
    /// A session withdrawn.
    Delete { advertisement: String },
}

/// One call.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) client: usize,
    pub(crate) asked: Asked,
    pub(crate) start: Duration,
    pub(crate) end: Duration,
    pub(crate) outcome: Outcome,
}

/// All calls so far.
#[derive(Clone)]
pub(crate) struct History {
    begun: Instant,
    lines: Arc<Mutex<Vec<Told>>>,
}

impl History {
    pub(crate) fn begin() -> Self {
        Self { begun: Instant::now(), lines: Arc::default() }
    }

    /// Now, by the history's clock.
    pub(crate) fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Notes a call that began at `start` and has just ended.
    pub(crate) fn note(&self, client: usize, asked: Asked, start: Duration, outcome: Outcome) {
        let told = Told { client, asked, start, end: self.now(), outcome };
        self.lines.lock().expect("unpoisoned").push(told);
    }

    /// How many calls ended so.
    pub(crate) fn count(&self, outcome: Outcome) -> usize {
        self.lines.lock().expect("unpoisoned").iter().filter(|told| told.outcome == outcome).count()
    }

    /// Everything, in the order in which it ended.
    pub(crate) fn lines(&self) -> Vec<Told> {
        self.lines.lock().expect("unpoisoned").clone()
    }

    /// Writes it to a file, a JSON object a line, and says where that is.
    pub(crate) fn save(&self, chapter: &str) -> PathBuf {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("history_{chapter}.jsonl"));
        let mut file = std::io::BufWriter::new(std::fs::File::create(&path).expect("a file"));
        for Told { client, asked, start, end, outcome } in self.lines() {
            let line = serde_json::json!({
                "client": client, "asked": format!("{asked:?}"), "start_us": start.as_micros() as u64,
                "end_us": end.as_micros() as u64, "outcome": format!("{outcome:?}"),
            });
            writeln!(file, "{line}").expect("a line");
        }
        path
    }
}

/// What an answer lets its caller know. What the server refused by a rule did not happen; whatever else went wrong may
/// have come after the change.
pub(crate) fn outcome<T>(answer: &Result<T, Error>) -> Outcome {
    match answer.as_ref().map_err(Error::code) {
        Ok(_) => Outcome::Done,
        Err(Some(
            Code::FailedPrecondition
            | Code::ResourceExhausted
            | Code::NotFound
            | Code::AlreadyExists
            | Code::InvalidArgument
            | Code::PermissionDenied
            | Code::Aborted,
        )) => Outcome::Refused,
        Err(_) => Outcome::Unknown,
    }
}
