//! Counters and the pair check budget of a running pass.

use crate::filter::Refusal;
use crate::queue::refusal_majority::{RefusalMajority, SearchRefusals};
use crate::ruleset::Ruleset;
use crate::time::UnixMs;

/// Counters of a pass, and the leading refusal of each ticket.
#[derive(Clone, Debug)]
pub(super) struct PassProgress {
    /// Pairs evaluated so far.
    pub(super) pair_checks: u64,
    /// Maximum number of pairs for the current step.
    pub(super) max_pair_checks: u64,
    /// Refusals per rule, indexed by `Refusal::counter_index`.
    pub(super) refusal_counts: Vec<u64>,
    refusal_majorities: Vec<RefusalMajority>,
    /// Next time at which a match becomes good enough by waiting alone.
    pub(super) next_change_at: Option<UnixMs>,
    /// A ticket had more candidates than one match may examine.
    pub(super) candidate_limit_reached: bool,
    /// `MaximumWeight` did not use exact matching.
    pub(super) inexact_selection: bool,
    /// The pair check budget ran out.
    pub(super) truncated: bool,
}

impl PassProgress {
    pub(super) fn new(ticket_count: usize, ruleset: &Ruleset, max_pair_checks: u64) -> Self {
        Self {
            pair_checks: 0,
            max_pair_checks,
            refusal_counts: vec![0; Refusal::counter_count(ruleset.refusing_rule_count())],
            refusal_majorities: vec![RefusalMajority::default(); ticket_count],
            next_change_at: None,
            candidate_limit_reached: false,
            inexact_selection: false,
            truncated: false,
        }
    }

    /// Takes one pair check from the budget. Returns `false` and sets `truncated` if none is left.
    pub(super) fn spend_pair_check(&mut self) -> bool {
        if self.max_pair_checks <= self.pair_checks {
            self.truncated = true;
            return false;
        }
        self.pair_checks += 1;
        true
    }

    /// Records that a rule refused a candidate for `row`.
    pub(super) fn record_refusal(&mut self, row: u32, refusal: Refusal) {
        let counter = refusal.counter_index();
        self.refusal_counts[counter] += 1;
        self.refusal_majorities[row as usize].add(counter as u16);
    }

    /// Adds the refusals of a search of `row` from an earlier pass.
    pub(super) fn add_kept_refusals(&mut self, row: u32, kept: &SearchRefusals) {
        kept.counts.iter().for_each(|&(counter, count)| self.refusal_counts[usize::from(counter)] += u64::from(count));
        self.add_refusals(row, kept.majority);
    }

    /// Refusals of `row` up to now. Clears them.
    pub(super) fn take_refusals(&mut self, row: u32) -> RefusalMajority {
        std::mem::take(&mut self.refusal_majorities[row as usize])
    }

    /// Adds refusals of `row` from another time.
    pub(super) fn add_refusals(&mut self, row: u32, refusals: RefusalMajority) {
        self.refusal_majorities[row as usize].add_all(refusals);
    }

    /// Rule that refused most candidates of `row`. `None` if no rule refused any.
    pub(super) fn leading_refusal(&self, row: u32) -> Option<Refusal> {
        self.refusal_majorities[row as usize].leading_refusal()
    }

    /// Records that a match may become possible at `moment` without new events.
    pub(super) fn record_next_change_at(&mut self, at: UnixMs) {
        self.next_change_at = Some(self.next_change_at.map_or(at, |known| known.min(at)));
    }
}
