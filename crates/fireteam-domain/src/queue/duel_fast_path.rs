//! Fast path for 1v1 queues by rating without filters: sorts by rating and pairs neighbors from the top. It returns the
//! same result as the general pass.

use std::cmp::Reverse;

use crate::filter::Refusal;
use crate::id::{TicketId, UserKey};
use crate::order::ordered_bits;
use crate::queue::input::PassInput;
use crate::queue::outcome::{PassOutcome, PassReport, UnmatchedTicket};
use crate::queue::proposal::{Proposal, ProposedTicket};
use crate::ruleset::queue::{QualitySpec, SelectionMode, SelectionOrder};

/// Runs the pass on the fast path. Returns `None` if it does not apply: rules, parties, or two tickets of one user in a
/// pair.
pub(super) fn try_run(input: &PassInput<'_>) -> Option<PassOutcome> {
    if !is_applicable(input) {
        return None;
    }
    let allows_wishes = input.ruleset.allows_wishes();
    // Copy the few bytes that the loop below needs, for cache locality.
    let mut order: Vec<u128> = Vec::with_capacity(input.tickets.len());
    let mut owners: Vec<(TicketId, UserKey)> = Vec::with_capacity(input.tickets.len());
    for (prepared, index) in input.tickets.iter().zip(0_u32..) {
        let [user] = prepared.users[..] else { return None };
        if allows_wishes && !prepared.ticket.session.wishes().is_empty() {
            return None;
        }
        order.push(u128::from(ordered_bits(prepared.party_rating)) << 32 | u128::from(index));
        owners.push((prepared.ticket.id, user));
    }
    order.sort_unstable();
    let index_of = |key: u128| (key & u128::from(u32::MAX)) as usize;
    for equal_ratings in order.chunk_by_mut(|one, other| one >> 32 == other >> 32).filter(|run| run.len() > 1) {
        equal_ratings.sort_unstable_by_key(|&key| {
            Reverse((input.tickets[index_of(key)].ticket.entered_at, owners[index_of(key)].0))
        });
    }
    let pairs = order.rchunks_exact(2);
    let unmatched: Vec<UnmatchedTicket> = pairs
        .remainder()
        .iter()
        .map(|&key| UnmatchedTicket { ticket_id: owners[index_of(key)].0, refusal: Refusal::CandidatesTaken })
        .collect();
    let mut proposals = Vec::with_capacity(order.len() / 2);
    for pair in pairs {
        let (higher, lower) = (owners[index_of(pair[1])], owners[index_of(pair[0])]);
        if higher.1 == lower.1 {
            return None;
        }
        let teams = [higher, lower].map(|(ticket_id, _)| vec![ProposedTicket { ticket_id, roles: Vec::new() }]).into();
        proposals.push(Proposal {
            teams,
            quality: 0.0,
            region: None,
            backfilled_session: None,
            chosen: Box::default(),
            bots_by_team: Box::default(),
        });
    }
    let report = PassReport {
        ticket_count: order.len() as u32,
        proposed_ticket_count: 2 * proposals.len() as u32,
        refusal_counts: unmatched.iter().map(|ticket| (ticket.refusal, 1)).collect(),
        unmatched,
        pair_checks: proposals.len() as u64,
        ..PassReport::default()
    };
    Some(PassOutcome { proposals, report })
}

fn is_applicable(input: &PassInput<'_>) -> bool {
    let (queue, teams) = (input.queue, input.teams);
    let (selection, count) = (queue.selection, input.tickets.len());
    let highest_first =
        (selection.mode, selection.start_with) == (SelectionMode::FirstWindow, SelectionOrder::HighestRated);
    let nothing_refuses = input.ruleset.hard_filters.is_empty()
        && queue.quality == QualitySpec::Any
        && queue.groups.is_none()
        && queue.regions.is_none()
        && queue.window.is_none()
        && queue.avoid.is_empty()
        && (!queue.backfill || input.open_sessions.is_empty());
    let one_vs_one = teams.team_sizes[..] == [1, 1] && teams.roles.is_empty() && teams.bots.is_none();
    highest_first && nothing_refuses && one_vs_one && count >= 2 && count as u64 / 2 <= input.max_pair_checks
}
