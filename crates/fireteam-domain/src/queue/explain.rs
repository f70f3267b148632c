//! Explanation of a waiting ticket: refusals by rule, near misses, and the smallest relaxation of a rule that gives a
//! match.

mod explanation;
mod near_miss;
mod relaxation;
mod widening;

use crate::filter::Refusal;
use crate::id::TicketId;
use crate::queue::explain::relaxation::SingleRelaxationSearch;
use crate::queue::gate;
use crate::queue::input::PassInput;
use crate::queue::pass::run_pass;
use crate::queue::pass_state::{PassState, PassTicket};
use crate::queue::prepared_ticket::PreparedTicket;

pub use crate::queue::explain::explanation::{
    Explanation, MeasuredAndLimit, NearMissTicket, NextWidening, Relaxation, TicketSituation, WidenedLimit, Widening,
};

/// Ticket to explain, with limits.
#[derive(Clone, Copy, Debug)]
pub struct ExplainQuery {
    /// Ticket to explain; one of the tickets of the pass.
    pub ticket_id: TicketId,
    /// Maximum number of near misses in the answer.
    pub max_near_misses: usize,
    /// Maximum number of pair evaluations.
    pub max_pair_checks: u64,
}

/// Maximum number of evaluated tickets, nearest first. Nearer tickets explain more than farther ones.
const CANDIDATES_MAX: usize = 512;

/// Explains a ticket. Returns `None` if it is not among the tickets of the pass.
pub fn explain_ticket(input: &PassInput<'_>, query: &ExplainQuery) -> Option<Explanation> {
    let pass_state = PassState::new(input);
    let index = pass_state.tickets.iter().position(|ticket| ticket.prepared.ticket.id == query.ticket_id)?;
    let row = index as u32;
    let max_candidates = CANDIDATES_MAX.min(usize::try_from(query.max_pair_checks).unwrap_or(usize::MAX));
    let candidates = tickets_nearest_by_sort_key(&pass_state, row, max_candidates);
    let mut counts = vec![0; Refusal::counter_count(input.ruleset.refusing_rule_count())];
    let mut refused = Vec::new();
    let mut compatible = Vec::new();
    for &other in &candidates {
        match near_miss::failed_rules_between(&pass_state, row, other) {
            None => compatible.push(pass_state.tickets[other as usize].prepared.ticket.id),
            Some(failed) => {
                counts[failed.near_miss.first_refusal.counter_index()] += 1;
                refused.push(failed);
            }
        }
    }
    refused.sort_by(|one, other| one.closeness_key().total_cmp(&other.closeness_key()));
    let nonzero = counts.iter().enumerate().filter(|(_, count)| **count > 0);
    let pair_checks_left = query.max_pair_checks.saturating_sub(candidates.len() as u64);
    let tickets: Vec<&PreparedTicket> =
        candidates.iter().chain([&row]).map(|&row| pass_state.tickets[row as usize].prepared).collect();
    let mut trial = SingleRelaxationSearch::new(input, &tickets, query.ticket_id, pair_checks_left);
    let matches_now = trial.matches_at_baseline();
    let mut relaxations =
        if matches_now { Vec::new() } else { trial.smallest_relaxation_of_each_kind(&refused) }.into_iter();
    compatible.sort_unstable();
    let own = pass_state.tickets[index].prepared;
    let players = input.tickets.iter().fold(0_u32, |sum, ticket| sum.saturating_add(ticket.player_count.into()));
    Some(Explanation {
        situation: ticket_situation(input, &pass_state.tickets[index]),
        gate_reason: gate::match_limit_if_gate_open(&input.queue.gate, players, input.gate_counts).err(),
        candidate_count: candidates.len() as u32,
        refusal_counts: nonzero.map(|(counter, &count)| (Refusal::from_counter_index(counter), count)).collect(),
        blocking_refusal: blocking_refusal(input, query.ticket_id),
        compatible_count: compatible.len() as u32,
        near_misses: refused.iter().take(query.max_near_misses).map(|ticket| ticket.near_miss).collect(),
        matches_now,
        smallest_relaxation: relaxations.next(),
        other_relaxations: relaxations.collect(),
        past_widenings: widening::past_widenings(input, own),
        next_widening: widening::next_widening(input, own, &tickets, &compatible),
        truncated: trial.is_out_of_pair_checks() || candidates.len() + 1 < pass_state.tickets.len(),
    })
}

/// Rule that keeps a ticket waiting in a pass, as the status of the ticket names it.
fn blocking_refusal(input: &PassInput<'_>, id: TicketId) -> Option<Refusal> {
    let unmatched = run_pass(input).report.unmatched;
    let index = unmatched.binary_search_by_key(&id, |ticket| ticket.ticket_id).ok()?;
    Some(unmatched[index].refusal)
}

/// Tickets nearest to one by sort key, nearest first.
fn tickets_nearest_by_sort_key(pass_state: &PassState<'_>, row: u32, max_count: usize) -> Vec<u32> {
    let (mut below, mut above) =
        (row.checked_sub(1), Some(row + 1).filter(|&it| (it as usize) < pass_state.tickets.len()));
    let mut nearest = Vec::new();
    while nearest.len() < max_count {
        let distance = |side: Option<u32>| side.map_or(f64::INFINITY, |it| pass_state.sort_key_distance(row, it));
        let goes_down = match (below, above) {
            (None, None) => break,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some(_), Some(_)) => distance(below) <= distance(above),
        };
        if goes_down {
            nearest.extend(below);
            below = below.and_then(|it| it.checked_sub(1));
        } else {
            nearest.extend(above);
            above = above.map(|it| it + 1).filter(|&it| (it as usize) < pass_state.tickets.len());
        }
    }
    nearest
}

fn ticket_situation(input: &PassInput<'_>, ticket: &PassTicket<'_>) -> TicketSituation {
    let (prepared, waited_ms) = (ticket.prepared, ticket.waiting_session.waited_ms);
    TicketSituation {
        waited_ms,
        party_rating: prepared.party_rating,
        leaderboard_position: prepared.leaderboard_position,
        player_count: prepared.player_count,
        group_and_extra_groups: input.queue.groups.as_ref().map(|_| (prepared.rating_group, ticket.extra_groups)),
        bucket_and_range: input.queue.window.as_ref().map(|_| (prepared.rating_bucket, ticket.window_range)),
        range_factor: prepared.range_factor(input.queue),
        rating_shift: prepared.window_center_lowered_by(input.queue),
        limit_factor: Some(prepared.attribute_values.limit_factor()).filter(|factor| *factor != 1.0),
        expansion_limits: input
            .ruleset
            .expansions
            .iter()
            .map(|it| prepared.attribute_values.limit_of(it, waited_ms))
            .collect(),
    }
}
