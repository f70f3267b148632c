//! Trial of a ruleset on waiting tickets: pairs that it allows, refusals by rule, and the tickets that a pass would match.

use crate::filter::Refusal;
use crate::id::TicketId;
use crate::queue::input::PassInput;
use crate::queue::pass::run_pass;
use crate::queue::pass_state::PassState;

/// Effect of one ruleset on waiting tickets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RulesetTrial {
    /// Number of pairs.
    pub pair_count: u64,
    /// Pairs that no rule refuses.
    pub allowed_pair_count: u64,
    /// Tickets with at least one such pair.
    pub tickets_with_partner: u32,
    /// Pairs by the first rule that refuses them, in the order of `Refusal::counter_index`; rules without a refusal are left out.
    pub refusal_counts: Vec<(Refusal, u64)>,
    /// Tickets that a pass would match, sorted.
    pub matched_tickets: Vec<TicketId>,
}

/// Checks each pair of tickets once, from the side that comes first in the pass, and runs one pass. The number of pairs grows with the
/// square of the number of tickets: the caller limits it.
pub fn try_ruleset(input: &PassInput<'_>) -> RulesetTrial {
    let state = PassState::new(input);
    let rows = state.tickets.len() as u32;
    let mut has_partner = vec![false; rows as usize];
    let mut counts = vec![0_u64; Refusal::counter_count(input.ruleset.refusing_rule_count())];
    let mut trial = RulesetTrial::default();
    for one in 0..rows {
        for other in one + 1..rows {
            trial.pair_count += 1;
            match state.check_pair(one, other) {
                Ok(()) => {
                    trial.allowed_pair_count += 1;
                    (has_partner[one as usize], has_partner[other as usize]) = (true, true);
                }
                Err(refusal) => counts[refusal.counter_index()] += 1,
            }
        }
    }
    trial.tickets_with_partner = has_partner.iter().filter(|has| **has).count() as u32;
    let nonzero = counts.into_iter().enumerate().filter(|(_, count)| 0 < *count);
    trial.refusal_counts = nonzero.map(|(counter, count)| (Refusal::from_counter_index(counter), count)).collect();
    let proposals = run_pass(input).proposals;
    let matched = proposals.iter().flat_map(|proposal| proposal.teams.iter().flatten()).map(|ticket| ticket.ticket_id);
    trial.matched_tickets = matched.collect();
    trial.matched_tickets.sort_unstable();
    trial
}
