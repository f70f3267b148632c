//! Widenings of a ticket's own limits: those since its entry, and the next one with the candidates that it lets in.

use crate::id::TicketId;
use crate::queue::explain::explanation::{NextWidening, TicketSituation, WidenedLimit, Widening};
use crate::queue::explain::{near_miss, ticket_situation};
use crate::queue::input::PassInput;
use crate::queue::pass_state::PassState;
use crate::queue::prepared_ticket::PreparedTicket;
use crate::queue::report::OwnChangeTimes;
use crate::time::UnixMs;

/// Maximum number of widenings that are followed from the entry of a ticket.
const WIDENINGS_MAX: usize = 64;

/// Widenings since the ticket entered, oldest first, by the ruleset of `input`.
pub(super) fn past_widenings(input: &PassInput<'_>, ticket: &PreparedTicket) -> Vec<Widening> {
    let (only, times) = ([ticket], OwnChangeTimes::new(input));
    let mut widenings = Vec::new();
    let (mut at, mut before) = (ticket.ticket.entered_at, situation_at(input, &only, ticket.ticket.entered_at));
    for _ in 0..WIDENINGS_MAX {
        let earlier = PassInput { tickets: &only, now: at, ..*input };
        let state = PassState::new(&earlier);
        let Some(next) = times.next_after(&earlier, &state.tickets[0]).filter(|next| *next <= input.now) else { break };
        let after = situation_at(input, &only, next);
        let limits = widened_limits(&before, &after);
        if !limits.is_empty() {
            widenings.push(Widening { at: next, limits });
        }
        (at, before) = (next, after);
    }
    widenings
}

/// The next widening of a ticket, and the number of `candidates` that no rule refuses then. `compatible_now` has those that no rule
/// refuses now, sorted. `None` if no limit of the ticket widens.
pub(super) fn next_widening(
    input: &PassInput<'_>,
    ticket: &PreparedTicket,
    candidates: &[&PreparedTicket],
    compatible_now: &[TicketId],
) -> Option<NextWidening> {
    let only = [ticket];
    let alone = PassInput { tickets: &only, ..*input };
    let next = OwnChangeTimes::new(input).next_after(&alone, &PassState::new(&alone).tickets[0])?;
    let limits = widened_limits(&situation_at(input, &only, input.now), &situation_at(input, &only, next));
    let later = PassInput { tickets: candidates, now: next, ..*input };
    let state = PassState::new(&later);
    let own_row = state.tickets.iter().position(|it| it.prepared.ticket.id == ticket.ticket.id)? as u32;
    let others = (0..state.tickets.len() as u32).filter(|row| *row != own_row);
    let compatible: Vec<TicketId> = others
        .filter(|&row| near_miss::failed_rules_between(&state, own_row, row).is_none())
        .map(|row| state.tickets[row as usize].prepared.ticket.id)
        .collect();
    let is_new = |id: &&TicketId| compatible_now.binary_search(id).is_err();
    Some(NextWidening {
        widening: Widening { at: next, limits },
        compatible_count: compatible.len() as u32,
        newly_compatible_count: compatible.iter().filter(is_new).count() as u32,
    })
}

/// State of a lone ticket at another time.
fn situation_at(input: &PassInput<'_>, only: &[&PreparedTicket], at: UnixMs) -> TicketSituation {
    let at_that_time = PassInput { tickets: only, now: at, ..*input };
    ticket_situation(&at_that_time, &PassState::new(&at_that_time).tickets[0])
}

/// Limits that differ, with their later values.
fn widened_limits(before: &TicketSituation, after: &TicketSituation) -> Vec<WidenedLimit> {
    let limits = before.expansion_limits.iter().zip(&after.expansion_limits).enumerate();
    let expansions = limits
        .filter(|(_, (before, after))| before != after)
        .map(|(expansion, (_, &limit))| WidenedLimit::Expansion { expansion, limit });
    let window = after.bucket_and_range.filter(|_| before.bucket_and_range != after.bucket_and_range);
    let groups = after.group_and_extra_groups.filter(|_| before.group_and_extra_groups != after.group_and_extra_groups);
    expansions
        .chain(window.map(|(_, range)| WidenedLimit::Window { range }))
        .chain(groups.map(|(_, extra_groups)| WidenedLimit::Groups { extra_groups }))
        .collect()
}
