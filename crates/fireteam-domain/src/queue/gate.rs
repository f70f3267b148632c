//! Whether a pass is worth running: enough players wait, not too many matches run, and something has changed since a pass
//! that found nothing (S2-7, S2-12, S0-23, S0-24).

use crate::ruleset::queue::{Gate, GateRounding};
use crate::time::UnixMs;

/// What a gate counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounts {
    /// Players connected to this set and silo, waiting or not.
    pub connected_players: u32,
    /// Matches of this queue that are not over.
    pub active_matches: u32,
}

/// Why a gate is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateReason {
    /// Fewer players wait than must.
    TooFewWaiting {
        /// Players that wait.
        waiting_players: u32,
        /// Players that must.
        required_players: u32,
    },
    /// As many matches run as may.
    TooManyMatches {
        /// Matches that run.
        active_matches: u32,
        /// Matches that may.
        max_matches: u32,
    },
}

/// How many players must wait (S2-7); 3.9 are 4 or 3, as the ruleset rounds (B-25).
pub fn required_waiting_players(gate: &Gate, connected_players: u32) -> u32 {
    let share = f64::from(connected_players) * gate.min_waiting_percent / 100.0;
    let whole = match gate.rounding {
        GateRounding::Up => share.ceil(),
        GateRounding::Down => share.floor(),
    };
    whole as u32
}

/// How many matches a pass may make, `None` for any number; or why it need not begin.
pub fn check_gate(gate: &Gate, waiting_players: u32, crowd: QueueCounts) -> Result<Option<u32>, GateReason> {
    let wanted = required_waiting_players(gate, crowd.connected_players);
    if waiting_players < wanted {
        return Err(GateReason::TooFewWaiting { waiting_players, required_players: wanted });
    }
    let Some(max) = gate.max_parallel_matches else { return Ok(None) };
    match max.checked_sub(crowd.active_matches) {
        None | Some(0) => Err(GateReason::TooManyMatches { active_matches: crowd.active_matches, max_matches: max }),
        more => Ok(more),
    }
}

/// What is remembered of the last pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LastPass {
    /// It made no match, and had looks enough to say so.
    pub found_nothing: bool,
    /// When something changes by itself, as its report says.
    pub next_change_at: Option<UnixMs>,
    /// What its gate counted.
    pub queue_counts: QueueCounts,
}

/// Whether another pass may find what the last did not. `changed` says whether since then a ticket entered, left, came back,
/// was paused or let go, or the ruleset changed (S0-24, B-2).
pub fn should_run_pass(gate: &Gate, last: &LastPass, changed: bool, crowd: QueueCounts, now: UnixMs) -> bool {
    let by_itself = last.next_change_at.is_some_and(|at| at <= now);
    !gate.skip_unchanged || changed || !last.found_nothing || by_itself || last.queue_counts != crowd
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(min_waiting_percent: f64) -> Gate {
        Gate { min_waiting_percent, rounding: GateRounding::Up, max_parallel_matches: None, skip_unchanged: true }
    }

    /// S2-7, B-25: with 39 connected and a tenth asked for, three are too few, unless fractions do not count.
    #[test]
    fn gate_requires_a_share_of_connected_players_to_wait() {
        let crowd = QueueCounts { connected_players: 39, active_matches: 0 };
        assert_eq!(
            check_gate(&gate(10.0), 3, crowd),
            Err(GateReason::TooFewWaiting { waiting_players: 3, required_players: 4 })
        );
        assert_eq!(check_gate(&gate(10.0), 4, crowd), Ok(None));
        assert_eq!(check_gate(&Gate { rounding: GateRounding::Down, ..gate(10.0) }, 3, crowd), Ok(None));
        assert_eq!(check_gate(&gate(0.0), 0, crowd), Ok(None));
    }

    /// S2-12: at most so many matches run at once, those of this pass included.
    #[test]
    fn gate_limits_concurrent_matches() {
        let gate = Gate { max_parallel_matches: Some(100), ..gate(0.0) };
        let running = |running_matches| QueueCounts { connected_players: 0, active_matches: running_matches };
        assert_eq!(check_gate(&gate, 2, running(98)), Ok(Some(2)));
        for too_many in [100, 101] {
            assert_eq!(
                check_gate(&gate, 2, running(too_many)),
                Err(GateReason::TooManyMatches { active_matches: too_many, max_matches: 100 })
            );
        }
    }

    /// S0-23, S0-24, B-2: a pass that found nothing is not repeated until somebody comes or something grows.
    #[test]
    fn unchanged_queue_skips_the_next_pass() {
        let (crowd, now) = (QueueCounts::default(), UnixMs(1_000));
        let quiet = LastPass { found_nothing: true, next_change_at: Some(UnixMs(1_001)), queue_counts: crowd };
        assert!(!should_run_pass(&gate(0.0), &quiet, false, crowd, now));
        assert!(should_run_pass(&gate(0.0), &quiet, true, crowd, now), "somebody came");
        assert!(should_run_pass(&gate(0.0), &quiet, false, crowd, UnixMs(1_001)), "ranges grew");
        assert!(should_run_pass(&gate(0.0), &LastPass { found_nothing: false, ..quiet }, false, crowd, now));
        assert!(should_run_pass(&gate(0.0), &quiet, false, QueueCounts { active_matches: 1, ..crowd }, now));
        let never = Gate { skip_unchanged: false, ..gate(0.0) };
        assert!(should_run_pass(&never, &quiet, false, crowd, now), "unless the ruleset says otherwise");
        assert!(should_run_pass(&gate(0.0), &LastPass::default(), false, crowd, now), "the first is");
    }
}
