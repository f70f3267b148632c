//! Windows of a pool that may have changed since the last pass: those that would examine a newcomer, or a ticket that this pass has matched.

use std::collections::BTreeSet;

use crate::filter::Refusal;
use crate::queue::pass_state::PassState;
use crate::queue::queue_without_matches::QueueWithoutMatches;
use crate::ruleset::queue::SelectionOrder;

/// Changed tickets of a pool, which is sorted as its windows are.
pub(super) struct ChangedTickets<'p> {
    pool: &'p [u32],
    /// Positions in the pool.
    changed_positions: BTreeSet<usize>,
}

impl<'p> ChangedTickets<'p> {
    /// The newcomers of a pool, and tickets that had the pool for themselves.
    pub(super) fn new(pool: &'p [u32], pass_state: &PassState<'_>, evaluated: &QueueWithoutMatches) -> Self {
        let has_changed = |row: u32| {
            let refusal = evaluated.refusal_of(pass_state.tickets[row as usize].prepared.ticket.id);
            refusal.is_none_or(|refusal| refusal == Refusal::NoCandidates)
        };
        let positions = pool.iter().enumerate().filter(|(_, row)| has_changed(**row)).map(|(position, _)| position);
        Self { pool, changed_positions: positions.collect() }
    }

    /// Records that tickets were matched: windows that examined them have room for others.
    pub(super) fn record_matched(&mut self, rows: impl Iterator<Item = u32>) {
        self.changed_positions.extend(rows.filter_map(|row| self.pool.binary_search(&row).ok()));
    }

    /// Whether a window for `row` may examine a changed ticket. `true` if it is not known.
    pub(super) fn may_be_in_window_of(&self, row: u32, pass_state: &PassState<'_>) -> bool {
        let Ok(position) = self.pool.binary_search(&row) else { return true };
        let selection = &pass_state.input.queue.selection;
        let lowest = position.saturating_sub(selection.max_candidates.max(1) as usize);
        match selection.start_with {
            // One window, from `row` down to the first ticket out of reach, which is the rule that is named. It examines the nearest
            // changed ticket if it reaches the one above.
            SelectionOrder::HighestRated => {
                self.changed_positions.range(lowest..=position).next_back().is_some_and(|&changed| {
                    changed == position || pass_state.refusal_of_all_beyond(row, self.pool[changed + 1]).is_none()
                })
            }
            // Windows that contain `row`: they start at most a match above it.
            SelectionOrder::LongestWaiting => {
                let highest = position + usize::from(pass_state.input.teams.players_per_match());
                self.changed_positions.range(lowest..=highest).next().is_some()
            }
        }
    }
}
