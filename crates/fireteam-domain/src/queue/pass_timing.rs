//! Time of the next pass of a queue.

use std::time::Duration;

use crate::ruleset::queue::{PassTrigger, QueueSpec};

/// A pass on change, or after a pass without a match, begins after this many times the processor time of the last pass, from its
/// start: so these passes take at most a tenth of a processor core.
const START_TO_START_RATIO: u32 = 10;

/// Longest time until the next pass after one that failed, where passes run on change: the end of the failure changes nothing in
/// the queue.
const RETRY_AFTER_FAILURE: Duration = Duration::from_secs(1);

/// Times by which the next pass is planned.
#[derive(Clone, Copy, Debug, Default)]
pub struct PassHistory {
    /// Time since the start of the last pass; `None` before the first one.
    pub since_last_pass: Option<Duration>,
    /// Processor time of the last pass.
    pub last_pass_cpu_time: Duration,
    /// Whether the last pass found no match although it examined all that it may.
    pub last_pass_found_nothing: bool,
    /// Time since the first change after the last pass; `None` if nothing has changed.
    pub since_first_change: Option<Duration>,
    /// Time since the last pass failed, or a match that it proposed could not be stored; `None` if neither happened.
    pub since_failure: Option<Duration>,
}

/// Time until the next pass may run.
pub fn time_to_next_pass(queue: &QueueSpec, history: &PassHistory) -> Duration {
    let until = |time_from_last_pass: Duration| {
        history.since_last_pass.map_or(Duration::ZERO, |since| time_from_last_pass.saturating_sub(since))
    };
    let until_share_ends = until(history.last_pass_cpu_time * START_TO_START_RATIO);
    let mut until_interval_ends = until(Duration::from_millis(queue.pass_interval_ms.into()));
    if history.last_pass_found_nothing {
        until_interval_ends = until_interval_ends.max(until_share_ends);
    }
    let PassTrigger::Change { gather_ms } = queue.pass_trigger else { return until_interval_ends };
    match (history.since_first_change, history.since_failure) {
        (Some(since_change), _) => {
            let gathered = Duration::from_millis(gather_ms.into()).saturating_sub(since_change);
            gathered.max(until_share_ends)
        }
        (None, Some(since_failure)) => until_interval_ends.min(RETRY_AFTER_FAILURE.saturating_sub(since_failure)),
        (None, None) => until_interval_ends,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::tests::fixture::random_queue_fixture;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn passes_follow_changes_and_leave_nine_tenths_of_a_core() {
        let mut fixture = random_queue_fixture(1, 2);
        let queue = fixture.queue_mut();
        queue.pass_interval_ms = 250;
        let history = |since_last_pass: u64, took: u64, since_first_change: Option<u64>| PassHistory {
            since_last_pass: Some(ms(since_last_pass)),
            last_pass_cpu_time: ms(took),
            last_pass_found_nothing: false,
            since_first_change: since_first_change.map(ms),
            since_failure: None,
        };
        let failed = |since_failure: u64, history: PassHistory| PassHistory {
            since_failure: Some(ms(since_failure)),
            ..history
        };
        let without_match = |history: PassHistory| PassHistory { last_pass_found_nothing: true, ..history };
        let cases = [
            // Time since the last pass, its processor time, time since the change; time to the next pass at intervals, and on change.
            (history(40, 1, None), 210, 210),
            (history(40, 1, Some(0)), 210, 5),
            (history(40, 1, Some(3)), 210, 2),
            (history(40, 1, Some(9)), 210, 0),
            (history(40, 6, Some(0)), 210, 20),
            (history(40, 6, Some(9)), 210, 20),
            (history(300, 0, Some(0)), 0, 5),
            (history(300, 60, Some(0)), 0, 300),
            (PassHistory { since_first_change: Some(ms(1)), ..PassHistory::default() }, 0, 4),
            (PassHistory::default(), 0, 0),
            (failed(30, history(40, 1, None)), 210, 210),
            (failed(950, history(100, 1, None)), 150, 50),
            (failed(30, history(40, 6, Some(0))), 210, 20),
            // Passes without a match leave nine tenths of a core too.
            (without_match(history(40, 6, Some(0))), 210, 20),
            (without_match(history(40, 60, Some(0))), 560, 560),
            (without_match(history(40, 60, None)), 560, 560),
            (without_match(history(700, 60, Some(5))), 0, 0),
        ];
        for (trigger, at) in [(PassTrigger::Interval, 0), (PassTrigger::Change { gather_ms: 5 }, 1)] {
            queue.pass_trigger = trigger;
            for (history, at_intervals, on_change) in &cases {
                let expected = ms([*at_intervals, *on_change][at]);
                assert_eq!(time_to_next_pass(queue, history), expected, "{trigger:?} {history:?}");
            }
        }
    }
}
