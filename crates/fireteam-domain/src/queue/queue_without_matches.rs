//! Queue without a possible match: what a pass over windows leaves behind, so that the next pass examines only windows that a newcomer
//! touches.
//!
//! A window without a newcomer holds the same tickets as in the last pass, which refused it. While no ticket has left or changed, and no
//! limit has grown since, it would be refused again.

use crate::filter::Refusal;
use crate::id::TicketId;
use crate::queue::outcome::{PassReport, UnmatchedTicket};
use crate::queue::pass_state::PassState;
use crate::queue::prepared_ticket::PreparedTicket;
use crate::ruleset::queue::{QueueSpec, SelectionMode};
use crate::ruleset::teams::TeamsSpec;
use crate::time::UnixMs;

/// Tickets of a queue that a pass has evaluated whole, without a match.
#[derive(Clone, Debug)]
pub struct QueueWithoutMatches {
    /// Sorted by id.
    unmatched: Vec<UnmatchedTicket>,
    next_change_at: Option<UnixMs>,
    max_window_reach: u32,
}

impl QueueWithoutMatches {
    /// Queue after a pass with this report. `None` if the next pass must examine all tickets: this one made a match or was not complete,
    /// or the ruleset does not select windows or has rules that depend on more than the waiting tickets.
    pub fn reusable_after_pass(queue: &QueueSpec, teams: &TeamsSpec, report: &PassReport) -> Option<Self> {
        let depends_on_tickets_only = queue.avoid.is_empty() && !queue.backfill && teams.bots.is_none();
        let is_complete = report.gate_reason.is_none()
            && report.proposed_ticket_count == 0
            && !report.truncated
            && !report.match_limit_reached;
        (queue.selection.mode == SelectionMode::FirstWindow && depends_on_tickets_only && is_complete).then(|| Self {
            unmatched: report.unmatched.clone(),
            next_change_at: report.next_change_at,
            max_window_reach: report.max_window_reach,
        })
    }

    /// Whether all its tickets are among `tickets`.
    pub(super) fn is_part_of(&self, tickets: &[&PreparedTicket]) -> bool {
        tickets.iter().filter(|it| self.refusal_of(it.ticket.id).is_some()).count() == self.unmatched.len()
    }

    /// Whether the windows that it has evaluated would be refused again. Requires that its tickets still wait, unchanged.
    pub(super) fn holds_for(&self, pass_state: &PassState<'_>) -> bool {
        let has_changed = self.next_change_at.is_some_and(|at| at <= pass_state.input.now);
        !has_changed && self.max_window_reach == pass_state.max_window_reach
    }

    /// Rule that kept a ticket waiting. `None` for a newcomer.
    pub(super) fn refusal_of(&self, id: TicketId) -> Option<Refusal> {
        let found = self.unmatched.binary_search_by_key(&id, |it| it.ticket_id).ok()?;
        Some(self.unmatched[found].refusal)
    }

    /// Time at which a match among its tickets may become possible without new events.
    pub(super) fn next_change_at(&self) -> Option<UnixMs> {
        self.next_change_at
    }
}
