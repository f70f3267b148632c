//! What a pass keeps while it works: looks, refusals, and when something changes next.

use crate::domain::filter::Refusal;
use crate::domain::time::UnixMs;

/// Counts of a pass, and for every row what kept it waiting.
#[derive(Clone, Debug)]
pub(super) struct Desk {
    /// Pairs judged so far.
    pub(super) looks: u64,
    /// Pairs that may be judged before the work at hand must end.
    pub(super) looks_max: u64,
    /// By `Refusal::counter`.
    pub(super) counts: Vec<u64>,
    why: Vec<Why>,
    /// The next moment at which waiting alone makes good what quality lacked.
    pub(super) next_change: Option<UnixMs>,
    /// Somebody had more candidates than may be looked at for one match.
    pub(super) narrowed: bool,
    /// `MaximumWeight` was not exact.
    pub(super) fell_back: bool,
    /// Work ended for want of looks.
    pub(super) out_of_looks: bool,
}

/// What refused one row: the first rule, and the one that leads (Boyer and Moore's majority vote).
#[derive(Clone, Copy, Debug, Default)]
struct Why {
    first: Option<u16>,
    leads: u16,
    votes: u32,
}

impl Desk {
    pub(super) fn new(rows: usize, hard_filters: usize, looks_max: u64) -> Self {
        Self {
            looks: 0,
            looks_max,
            counts: vec![0; Refusal::counters(hard_filters)],
            why: vec![Why::default(); rows],
            next_change: None,
            narrowed: false,
            fell_back: false,
            out_of_looks: false,
        }
    }

    /// Takes a look; `false`, and remembered, when there is none left.
    pub(super) fn look(&mut self) -> bool {
        if self.looks_max <= self.looks {
            self.out_of_looks = true;
            return false;
        }
        self.looks += 1;
        true
    }

    /// Notes that a rule kept `row` from somebody.
    pub(super) fn refused(&mut self, row: u32, refusal: Refusal) {
        let counter = refusal.counter();
        self.counts[counter] += 1;
        let (why, counter) = (&mut self.why[row as usize], counter as u16);
        why.first.get_or_insert(counter);
        if why.votes == 0 {
            (why.leads, why.votes) = (counter, 1);
        } else if why.leads == counter {
            why.votes += 1;
        } else {
            why.votes -= 1;
        }
    }

    /// The rule that kept `row` waiting; `None` when none refused it anybody.
    pub(super) fn why(&self, row: u32) -> Option<Refusal> {
        let why = self.why[row as usize];
        let first = why.first?;
        Some(Refusal::of_counter(usize::from(if 0 < why.votes { why.leads } else { first })))
    }

    /// Something changes by itself at `moment`.
    pub(super) fn changes_at(&mut self, moment: UnixMs) {
        self.next_change = Some(self.next_change.map_or(moment, |known| known.min(moment)));
    }
}
