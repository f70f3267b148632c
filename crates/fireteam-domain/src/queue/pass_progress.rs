//! What a pass keeps while it works: looks, refusals, and when something changes next.

use crate::filter::Refusal;
use crate::time::UnixMs;

/// Counts of a pass, and for every row what kept it waiting.
#[derive(Clone, Debug)]
pub(super) struct PassProgress {
    /// Pairs judged so far.
    pub(super) pair_checks: u64,
    /// Pairs that may be judged before the work at hand must end.
    pub(super) max_pair_checks: u64,
    /// By `Refusal::counter`.
    pub(super) refusal_counts: Vec<u64>,
    refusal_majorities: Vec<RefusalMajority>,
    /// The next moment at which waiting alone makes good what quality lacked.
    pub(super) next_change_at: Option<UnixMs>,
    /// Somebody had more candidates than may be looked at for one match.
    pub(super) candidate_limit_reached: bool,
    /// `MaximumWeight` was not exact.
    pub(super) inexact_selection: bool,
    /// Work ended for want of looks.
    pub(super) truncated: bool,
}

/// What refused one row: the first rule, and the one that leads (Boyer and Moore's majority vote).
#[derive(Clone, Copy, Debug, Default)]
struct RefusalMajority {
    first_refusal: Option<u16>,
    leading_refusal: u16,
    lead: u32,
}

impl PassProgress {
    pub(super) fn new(rows: usize, hard_filters: usize, looks_max: u64) -> Self {
        Self {
            pair_checks: 0,
            max_pair_checks: looks_max,
            refusal_counts: vec![0; Refusal::counter_count(hard_filters)],
            refusal_majorities: vec![RefusalMajority::default(); rows],
            next_change_at: None,
            candidate_limit_reached: false,
            inexact_selection: false,
            truncated: false,
        }
    }

    /// Takes a look; `false`, and remembered, when there is none left.
    pub(super) fn spend_pair_check(&mut self) -> bool {
        if self.max_pair_checks <= self.pair_checks {
            self.truncated = true;
            return false;
        }
        self.pair_checks += 1;
        true
    }

    /// Notes that a rule kept `row` from somebody.
    pub(super) fn record_refusal(&mut self, row: u32, refusal: Refusal) {
        let counter = refusal.counter_index();
        self.refusal_counts[counter] += 1;
        let (why, counter) = (&mut self.refusal_majorities[row as usize], counter as u16);
        why.first_refusal.get_or_insert(counter);
        if why.lead == 0 {
            (why.leading_refusal, why.lead) = (counter, 1);
        } else if why.leading_refusal == counter {
            why.lead += 1;
        } else {
            why.lead -= 1;
        }
    }

    /// The rule that kept `row` waiting; `None` when none refused it anybody.
    pub(super) fn leading_refusal(&self, row: u32) -> Option<Refusal> {
        let why = self.refusal_majorities[row as usize];
        let first = why.first_refusal?;
        Some(Refusal::from_counter_index(usize::from(if 0 < why.lead { why.leading_refusal } else { first })))
    }

    /// Something changes by itself at `moment`.
    pub(super) fn record_change_at(&mut self, moment: UnixMs) {
        self.next_change_at = Some(self.next_change_at.map_or(moment, |known| known.min(moment)));
    }
}
