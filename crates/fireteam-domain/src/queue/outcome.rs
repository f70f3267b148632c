//! Result of a pass: proposals, and a report with counters and the unmatched tickets.

use crate::filter::Refusal;
use crate::id::TicketId;
use crate::queue::gate::GateReason;
use crate::queue::proposal::Proposal;
use crate::time::UnixMs;

/// Result of a pass.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PassOutcome {
    /// Proposed matches, backfills first. A ticket is in at most one.
    pub proposals: Vec<Proposal>,
    /// Report of the pass.
    pub report: PassReport,
}

/// Report of a pass.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PassReport {
    /// Reason why the gate was closed. `None` if the pass ran.
    pub gate_reason: Option<GateReason>,
    /// Tickets in the input.
    pub ticket_count: u32,
    /// Tickets in proposals.
    pub proposed_ticket_count: u32,
    /// Unmatched tickets, sorted by id.
    pub unmatched: Vec<UnmatchedTicket>,
    /// Refusals per rule, in the order of `Refusal::counter_index`, without zeros. A pair evaluated from both sides
    /// counts twice.
    pub refusal_counts: Vec<(Refusal, u64)>,
    /// Pairs evaluated.
    pub pair_checks: u64,
    /// The pair check budget ran out before all tickets were evaluated.
    pub truncated: bool,
    /// `MaximumWeight` was requested, but exact matching was not used: too many tickets, or matches of more than two
    /// tickets.
    pub inexact_selection: bool,
    /// A ticket had more candidates than `max_candidates`; only the nearest were evaluated.
    pub candidate_limit_reached: bool,
    /// The limit of concurrent matches was reached.
    pub match_limit_reached: bool,
    /// Next time at which a match may become possible without new events. A range or limit grows, a rating group opens,
    /// the wait bonus suffices, or an avoidance ends.
    pub next_change_at: Option<UnixMs>,
    /// Maximum distance in buckets from a ticket's own bucket to the end of its window.
    pub max_window_reach: u32,
}

/// Ticket without a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnmatchedTicket {
    /// Ticket id.
    pub ticket_id: TicketId,
    /// Rule that kept it waiting: the majority of its refusals, otherwise the first.
    pub refusal: Refusal,
}
