//! Limit of the bytes that the log may grow in a minute.

use std::sync::{Mutex, PoisonError};

/// Length of a window, milliseconds.
const WINDOW_MS: u64 = 60_000;

/// Importance of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineImportance {
    /// Warnings and errors: may use the whole budget.
    Problem,
    /// Information: may use half of the budget, so that it cannot displace problems.
    Information,
    /// Events of matches, of which a busy server has many a second: may use a quarter of the budget.
    MatchEvent,
    /// Audit records, and levels that an operator has turned on to search for a fault: not limited.
    Unlimited,
}

/// Decision for one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// The line is written, after a notice of the number of lines dropped in the window before, if it is not 0.
    Write {
        /// Lines dropped in the window before.
        dropped_before: u64,
    },
    /// The line is dropped; it is the first of this window, so a notice is written instead.
    DropWithNotice,
    /// The line is dropped.
    Drop,
}

/// Use of the budget in the current window.
#[derive(Debug, Default)]
struct Window {
    started_at_ms: u64,
    used_bytes: u64,
    dropped: u64,
}

/// Budget of log bytes per minute.
#[derive(Debug)]
pub(super) struct LogByteBudget {
    bytes_max: u64,
    window: Mutex<Window>,
}

impl LogByteBudget {
    /// Creates a budget of `bytes_max` bytes a minute.
    pub(super) fn new(bytes_max: u64) -> Self {
        Self { bytes_max, window: Mutex::default() }
    }

    /// Decides for a line of `bytes` bytes at `now_ms`.
    pub(super) fn admit(&self, importance: LineImportance, bytes: usize, now_ms: u64) -> Admission {
        let limit = match importance {
            LineImportance::Unlimited => return Admission::Write { dropped_before: 0 },
            LineImportance::Problem => self.bytes_max,
            LineImportance::Information => self.bytes_max / 2,
            LineImportance::MatchEvent => self.bytes_max / 4,
        };
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let mut dropped_before = 0;
        // A window also ends if the clock was set back.
        if now_ms < window.started_at_ms || WINDOW_MS <= now_ms - window.started_at_ms {
            dropped_before = window.dropped;
            *window = Window { started_at_ms: now_ms, ..Window::default() };
        }
        let used_bytes = window.used_bytes + bytes as u64;
        if used_bytes <= limit {
            window.used_bytes = used_bytes;
            return Admission::Write { dropped_before };
        }
        window.dropped += 1;
        if window.dropped == 1 { Admission::DropWithNotice } else { Admission::Drop }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_budget_drops_information_first_and_tells_the_number() {
        let budget = LogByteBudget::new(1_000);
        let write = Admission::Write { dropped_before: 0 };
        let (problem, information) = (LineImportance::Problem, LineImportance::Information);
        let match_event = LineImportance::MatchEvent;
        assert_eq!(budget.admit(match_event, 250, 4), write);
        assert_eq!(budget.admit(match_event, 1, 4), Admission::DropWithNotice, "events of matches use a quarter");
        assert_eq!(budget.admit(information, 150, 5), write);
        assert_eq!(budget.admit(information, 200, 5), Admission::Drop);
        assert_eq!(budget.admit(information, 101, 5), Admission::Drop);
        assert_eq!(budget.admit(problem, 600, 6), write, "warnings may use the other half");
        assert_eq!(budget.admit(problem, 1, 7), Admission::Drop);
        assert_eq!(budget.admit(LineImportance::Unlimited, 5_000, 7), write);
        assert_eq!(budget.admit(problem, 1, 60_005), Admission::Write { dropped_before: 4 });
        assert_eq!(budget.admit(problem, 1, 60_006), write);
        assert_eq!(budget.admit(problem, 1_001, 1), Admission::DropWithNotice, "the clock was set back");
    }
}
