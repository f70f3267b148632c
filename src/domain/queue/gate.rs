//! Whether a pass is worth running: enough players wait, not too many matches run, and something has changed since a pass
//! that found nothing (S2-7, S2-12, S0-23, S0-24).

use crate::domain::ruleset::queue::{Gate, GateRounding};
use crate::domain::time::UnixMs;

/// What a gate counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Crowd {
    /// Players connected to this set and silo, waiting or not.
    pub connected_players: u32,
    /// Matches of this queue that are not over.
    pub running_matches: u32,
}

/// Why a gate is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// Fewer players wait than must.
    TooFewWaiting {
        /// Players that wait.
        waiting: u32,
        /// Players that must.
        wanted: u32,
    },
    /// As many matches run as may.
    TooManyMatches {
        /// Matches that run.
        running: u32,
        /// Matches that may.
        max: u32,
    },
}

/// How many players must wait (S2-7); 3.9 are 4 or 3, as the ruleset rounds (B-25).
pub fn wanted(gate: &Gate, connected_players: u32) -> u32 {
    let share = f64::from(connected_players) * gate.min_waiting_percent / 100.0;
    let whole = match gate.rounding {
        GateRounding::Up => share.ceil(),
        GateRounding::Down => share.floor(),
    };
    whole as u32
}

/// How many matches a pass may make, `None` for any number; or why it need not begin.
pub fn open(gate: &Gate, waiting_players: u32, crowd: Crowd) -> Result<Option<u32>, Closed> {
    let wanted = wanted(gate, crowd.connected_players);
    if waiting_players < wanted {
        return Err(Closed::TooFewWaiting { waiting: waiting_players, wanted });
    }
    let Some(max) = gate.max_parallel_matches else { return Ok(None) };
    match max.checked_sub(crowd.running_matches) {
        None | Some(0) => Err(Closed::TooManyMatches { running: crowd.running_matches, max }),
        more => Ok(more),
    }
}

/// What is remembered of the last pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LastPass {
    /// It made no match, and had looks enough to say so.
    pub found_nothing: bool,
    /// When something changes by itself, as its report says.
    pub next_change: Option<UnixMs>,
    /// What its gate counted.
    pub crowd: Crowd,
}

/// Whether another pass may find what the last did not. `changed` says whether since then a ticket entered, left, came back,
/// was paused or let go, or the ruleset changed (S0-24, B-2).
pub fn is_worth_running(gate: &Gate, last: &LastPass, changed: bool, crowd: Crowd, now: UnixMs) -> bool {
    let by_itself = last.next_change.is_some_and(|at| at <= now);
    !gate.skip_unchanged || changed || !last.found_nothing || by_itself || last.crowd != crowd
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(min_waiting_percent: f64) -> Gate {
        Gate { min_waiting_percent, rounding: GateRounding::Up, max_parallel_matches: None, skip_unchanged: true }
    }

    /// S2-7, B-25: with 39 connected and a tenth asked for, three are too few, unless fractions do not count.
    #[test]
    fn a_share_of_those_connected_must_wait() {
        let crowd = Crowd { connected_players: 39, running_matches: 0 };
        assert_eq!(open(&gate(10.0), 3, crowd), Err(Closed::TooFewWaiting { waiting: 3, wanted: 4 }));
        assert_eq!(open(&gate(10.0), 4, crowd), Ok(None));
        assert_eq!(open(&Gate { rounding: GateRounding::Down, ..gate(10.0) }, 3, crowd), Ok(None));
        assert_eq!(open(&gate(0.0), 0, crowd), Ok(None));
    }

    /// S2-12: at most so many matches run at once, those of this pass included.
    #[test]
    fn no_more_matches_begin_than_may_run() {
        let gate = Gate { max_parallel_matches: Some(100), ..gate(0.0) };
        let running = |running_matches| Crowd { connected_players: 0, running_matches };
        assert_eq!(open(&gate, 2, running(98)), Ok(Some(2)));
        for too_many in [100, 101] {
            assert_eq!(open(&gate, 2, running(too_many)), Err(Closed::TooManyMatches { running: too_many, max: 100 }));
        }
    }

    /// S0-23, S0-24, B-2: a pass that found nothing is not repeated until somebody comes or something grows.
    #[test]
    fn nothing_is_looked_for_twice() {
        let (crowd, now) = (Crowd::default(), UnixMs(1_000));
        let quiet = LastPass { found_nothing: true, next_change: Some(UnixMs(1_001)), crowd };
        assert!(!is_worth_running(&gate(0.0), &quiet, false, crowd, now));
        assert!(is_worth_running(&gate(0.0), &quiet, true, crowd, now), "somebody came");
        assert!(is_worth_running(&gate(0.0), &quiet, false, crowd, UnixMs(1_001)), "ranges grew");
        assert!(is_worth_running(&gate(0.0), &LastPass { found_nothing: false, ..quiet }, false, crowd, now));
        assert!(is_worth_running(&gate(0.0), &quiet, false, Crowd { running_matches: 1, ..crowd }, now));
        let never = Gate { skip_unchanged: false, ..gate(0.0) };
        assert!(is_worth_running(&never, &quiet, false, crowd, now), "unless the ruleset says otherwise");
        assert!(is_worth_running(&gate(0.0), &LastPass::default(), false, crowd, now), "the first is");
    }
}
