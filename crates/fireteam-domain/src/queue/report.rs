//! Parts of a pass report: counters per rule, and the next time at which a match may become possible.

use crate::filter::Refusal;
use crate::queue::avoidance;
use crate::queue::pass_progress::PassProgress;
use crate::queue::pass_state::{PassState, PassTicket};
use crate::queue::rating_group;
use crate::queue::waiting_list::WaitingList;
use crate::queue::window;
use crate::ruleset::HardRule;
use crate::ruleset::queue::RegionMode;
use crate::time::UnixMs;

pub use crate::queue::outcome::{PassReport, UnmatchedTicket};

/// Nonzero counters with their refusals.
pub(super) fn nonzero_refusal_counts(counts: &[u64]) -> Vec<(Refusal, u64)> {
    let counts = counts.iter().enumerate().filter(|(_, count)| **count > 0);
    counts.map(|(counter, &count)| (Refusal::from_counter_index(counter), count)).collect()
}

/// Next time at which an unmatched ticket may find a match without new events.
pub(super) fn next_change_at(
    pass_state: &PassState<'_>,
    waiting_list: &WaitingList,
    progress: &PassProgress,
) -> Option<UnixMs> {
    let input = pass_state.input;
    let mut limits: Vec<usize> = input
        .ruleset
        .hard_filters
        .iter()
        .filter_map(|filter| match filter.rule {
            HardRule::Within { expansion, .. } => Some(expansion),
            _ => None,
        })
        .collect();
    if let Some(RegionMode::Filter { expansion }) = input.queue.regions {
        limits.push(expansion);
    }
    limits.sort_unstable();
    limits.dedup();
    let change_of = |ticket: &PassTicket<'_>| {
        let (waited_ms, entered_at) = (ticket.waiting_session.waited_ms, ticket.prepared.ticket.entered_at);
        let growth = input.queue.window.as_ref();
        let growth = growth
            .and_then(|window| window::next_growth_at(window, ticket.prepared.party_rating, entered_at, input.now));
        let groups =
            input.queue.groups.as_ref().and_then(|groups| rating_group::ms_until_next_group(groups, waited_ms));
        let limits = limits.iter().filter_map(|&limit| input.ruleset.expansions[limit].ms_until_next_growth(waited_ms));
        let in_ms = limits.chain(groups).min().map(|ms| input.now.plus_ms(ms));
        growth.into_iter().chain(in_ms).min()
    };
    let waiting = pass_state.tickets.iter().zip(0_u32..).filter(|(_, row)| waiting_list.is_waiting(*row));
    let of_tickets = waiting.filter_map(|(ticket, _)| change_of(ticket)).min();
    let of_avoidance = avoidance::next_avoidance_end(&input.queue.avoid, input.past_matches, input.now);
    of_tickets.into_iter().chain(of_avoidance).chain(progress.next_change_at).min()
}
