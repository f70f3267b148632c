//! Memory of a queue between passes: what earlier passes have evaluated without a match, so that the next pass evaluates only what may
//! have changed.

use crate::id::TicketId;
use crate::queue::input::PassInput;
use crate::queue::outcome::PassReport;
use crate::queue::queue_without_matches::QueueWithoutMatches;
use crate::queue::select::failed_searches::FailedSearches;

/// Memory of one queue under one ruleset. Empty, it changes nothing.
#[derive(Clone, Debug, Default)]
pub struct PassMemory {
    pub(super) queue_without_matches: Option<QueueWithoutMatches>,
    pub(super) failed_searches: FailedSearches,
}

impl PassMemory {
    /// Records that a ticket is not as the last pass evaluated it. Not needed for tickets that have entered or left.
    pub fn forget(&mut self, id: TicketId) {
        self.queue_without_matches = None;
        self.failed_searches.forget(id);
    }

    /// The queue at the last pass, if its tickets still wait. Clears it.
    pub(super) fn take_queue_without_matches(&mut self, input: &PassInput<'_>) -> Option<QueueWithoutMatches> {
        self.queue_without_matches.take().filter(|evaluated| evaluated.is_part_of(input.tickets))
    }

    /// Records the report of a pass.
    pub(super) fn record_pass(&mut self, input: &PassInput<'_>, report: &PassReport) {
        self.queue_without_matches = QueueWithoutMatches::reusable_after_pass(input.queue, input.teams, report);
    }
}
