//! Queue gate: decides whether a pass runs.
//!
//! A pass needs enough waiting players, fewer matches than the limit, and a change since a pass that found nothing.

use crate::ruleset::queue::{Gate, GateRounding};
use crate::time::UnixMs;

/// Counts that the gate compares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GateCounts {
    /// Players connected to this set and silo, waiting or not. May be 0 if the gate requires no share of them.
    pub connected_players: u32,
    /// Matches of this queue that have not ended.
    pub active_matches: u32,
}

/// Reason why the gate is closed and no pass runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateReason {
    /// Fewer players wait than the ruleset requires.
    TooFewWaiting {
        /// Players waiting.
        waiting_players: u32,
        /// Players required.
        required_players: u32,
    },
    /// The limit of concurrent matches is reached.
    TooManyMatches {
        /// Matches that have not ended.
        active_matches: u32,
        /// Maximum number of concurrent matches.
        max_matches: u32,
    },
}

/// Players that must wait before a pass runs. Fractions are rounded as the ruleset says.
pub fn required_waiting_players(gate: &Gate, connected_players: u32) -> u32 {
    let share = f64::from(connected_players) * gate.min_waiting_percent / 100.0;
    let whole = match gate.rounding {
        GateRounding::Up => share.ceil(),
        GateRounding::Down => share.floor(),
    };
    whole as u32
}

/// Maximum number of matches for a pass, `None` if unlimited. Fails with the reason if the gate is closed.
pub fn match_limit_if_gate_open(
    gate: &Gate,
    waiting_players: u32,
    counts: GateCounts,
) -> Result<Option<u32>, GateReason> {
    let required = required_waiting_players(gate, counts.connected_players);
    if waiting_players < required {
        return Err(GateReason::TooFewWaiting { waiting_players, required_players: required });
    }
    let Some(max) = gate.max_concurrent_matches else { return Ok(None) };
    match max.checked_sub(counts.active_matches) {
        None | Some(0) => Err(GateReason::TooManyMatches { active_matches: counts.active_matches, max_matches: max }),
        remaining => Ok(remaining),
    }
}

/// State of the last pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LastPass {
    /// It proposed no match and was not truncated.
    pub found_nothing: bool,
    /// Time of the next change without new events, from its report.
    pub next_change_at: Option<UnixMs>,
    /// Counts at that pass.
    pub gate_counts: GateCounts,
}

/// Whether another pass may find a match that the last one did not. `changed`: since then a ticket entered, left,
/// returned, was paused or resumed, or the ruleset changed.
pub fn next_pass_may_find_match(gate: &Gate, last: &LastPass, changed: bool, counts: GateCounts, now: UnixMs) -> bool {
    let time_has_come = last.next_change_at.is_some_and(|at| at <= now);
    !gate.skip_unchanged || changed || !last.found_nothing || time_has_come || last.gate_counts != counts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(min_waiting_percent: f64) -> Gate {
        Gate { min_waiting_percent, rounding: GateRounding::Up, max_concurrent_matches: None, skip_unchanged: true }
    }

    /// S2-7, B-25: with 39 connected players and 10 % required, three are too few, unless fractions are rounded down.
    #[test]
    fn gate_requires_a_share_of_connected_players_to_wait() {
        let counts = GateCounts { connected_players: 39, active_matches: 0 };
        assert_eq!(
            match_limit_if_gate_open(&gate(10.0), 3, counts),
            Err(GateReason::TooFewWaiting { waiting_players: 3, required_players: 4 })
        );
        assert_eq!(match_limit_if_gate_open(&gate(10.0), 4, counts), Ok(None));
        assert_eq!(match_limit_if_gate_open(&Gate { rounding: GateRounding::Down, ..gate(10.0) }, 3, counts), Ok(None));
        assert_eq!(match_limit_if_gate_open(&gate(0.0), 0, counts), Ok(None));
    }

    /// S2-12: the limit of concurrent matches includes those of this pass.
    #[test]
    fn gate_limits_concurrent_matches() {
        let gate = Gate { max_concurrent_matches: Some(100), ..gate(0.0) };
        let active = |active_matches| GateCounts { connected_players: 0, active_matches };
        assert_eq!(match_limit_if_gate_open(&gate, 2, active(98)), Ok(Some(2)));
        for too_many in [100, 101] {
            assert_eq!(
                match_limit_if_gate_open(&gate, 2, active(too_many)),
                Err(GateReason::TooManyMatches { active_matches: too_many, max_matches: 100 })
            );
        }
    }

    /// S0-23, S0-24, B-2: after a pass that found nothing, the next one runs on a new event or when a range grows.
    #[test]
    fn unchanged_queue_skips_the_next_pass() {
        let (counts, now) = (GateCounts::default(), UnixMs(1_000));
        let found_nothing = LastPass { found_nothing: true, next_change_at: Some(UnixMs(1_001)), gate_counts: counts };
        assert!(!next_pass_may_find_match(&gate(0.0), &found_nothing, false, counts, now));
        assert!(next_pass_may_find_match(&gate(0.0), &found_nothing, true, counts, now), "a ticket entered");
        assert!(next_pass_may_find_match(&gate(0.0), &found_nothing, false, counts, UnixMs(1_001)), "a range grew");
        assert!(next_pass_may_find_match(
            &gate(0.0),
            &LastPass { found_nothing: false, ..found_nothing },
            false,
            counts,
            now
        ));
        assert!(next_pass_may_find_match(
            &gate(0.0),
            &found_nothing,
            false,
            GateCounts { active_matches: 1, ..counts },
            now
        ));
        let always = Gate { skip_unchanged: false, ..gate(0.0) };
        assert!(next_pass_may_find_match(&always, &found_nothing, false, counts, now), "skip_unchanged is off");
        assert!(
            next_pass_may_find_match(&gate(0.0), &LastPass::default(), false, counts, now),
            "the first pass always runs"
        );
    }
}
