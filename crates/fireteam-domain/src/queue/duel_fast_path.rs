//! One against one by rating alone, where no rule could refuse anybody: sorted, and neighbours paired from the top. The same answer
//! as the long way, for the price of sorting.

use std::cmp::Reverse;

use crate::filter::Refusal;
use crate::id::{TicketId, UserKey};
use crate::queue::pass::{PassInput, PassOutcome};
use crate::queue::pass_state::ordered_bits;
use crate::queue::proposal::{Proposal, ProposedTicket};
use crate::queue::report::{PassReport, UnmatchedTicket};
use crate::ruleset::queue::{QualitySpec, SelectionMode, SelectionOrder};

/// The pass, if it is one of that kind: parties of one, and no user twice in a pair.
pub(super) fn try_run(input: &PassInput<'_>) -> Option<PassOutcome> {
    if !is_applicable(input) {
        return None;
    }
    // One walk over everybody; what follows looks at these few bytes of each, not at tickets all over the place.
    let mut order: Vec<u128> = Vec::with_capacity(input.tickets.len());
    let mut who: Vec<(TicketId, UserKey)> = Vec::with_capacity(input.tickets.len());
    for (entrant, place) in input.tickets.iter().zip(0_u32..) {
        let [user] = entrant.users[..] else { return None };
        order.push(u128::from(ordered_bits(entrant.party_rating)) << 32 | u128::from(place));
        who.push((entrant.ticket.id, user));
    }
    order.sort_unstable();
    let place = |it: u128| (it & u128::from(u32::MAX)) as usize;
    for equals in order.chunk_by_mut(|one, other| one >> 32 == other >> 32).filter(|it| 1 < it.len()) {
        equals.sort_unstable_by_key(|&it| Reverse((input.tickets[place(it)].ticket.entered_at, who[place(it)].0)));
    }
    let pairs = order.rchunks_exact(2);
    let left: Vec<UnmatchedTicket> = pairs
        .remainder()
        .iter()
        .map(|&it| UnmatchedTicket { ticket_id: who[place(it)].0, refusal: Refusal::CandidatesTaken })
        .collect();
    let mut proposals = Vec::with_capacity(order.len() / 2);
    for pair in pairs {
        let (higher, lower) = (who[place(pair[1])], who[place(pair[0])]);
        if higher.1 == lower.1 {
            return None;
        }
        let teams =
            [higher, lower].map(|(ticket, _)| vec![ProposedTicket { ticket_id: ticket, roles: Vec::new() }]).into();
        proposals.push(Proposal { teams, quality: 0.0, region: None, backfilled_session: None });
    }
    let report = PassReport {
        ticket_count: order.len() as u32,
        proposed_count: 2 * proposals.len() as u32,
        refusal_counts: left.iter().map(|it| (it.refusal, 1)).collect(),
        unmatched: left,
        pair_checks: proposals.len() as u64,
        ..PassReport::default()
    };
    Some(PassOutcome { proposals, report })
}

fn is_applicable(input: &PassInput<'_>) -> bool {
    let (queue, teams) = (input.queue, input.teams);
    let (selection, count) = (queue.selection, input.tickets.len());
    let from_the_top =
        (selection.mode, selection.start_with) == (SelectionMode::BestWindow, SelectionOrder::HighestRated);
    let nothing_refuses = input.ruleset.hard_filters.is_empty()
        && queue.quality == QualitySpec::Any
        && queue.groups.is_none()
        && queue.regions.is_none()
        && queue.window.is_none()
        && queue.avoid.is_empty()
        && (!queue.backfill || input.open_sessions.is_empty());
    let duels = teams.team_sizes[..] == [1, 1] && teams.roles.is_empty();
    from_the_top && nothing_refuses && duels && 2 <= count && count as u64 / 2 <= input.max_pair_checks
}
