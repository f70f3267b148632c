//! Why a ticket still waits: what each rule refuses it, who comes nearest, and the least that would have to give.

mod near_miss;
mod relaxation;

use crate::filter::Refusal;
use crate::id::TicketId;
use crate::queue::explain::relaxation::RelaxationTrial;
use crate::queue::gate::{self, GateReason};
use crate::queue::pass::PassInput;
use crate::queue::pass_state::{PassState, PassTicket};
use crate::queue::prepared_ticket::PreparedTicket;

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub struct ExplainQuery {
    /// Which ticket; one of the pass's entrants.
    pub ticket_id: TicketId,
    /// How many of those who come nearest to name.
    pub max_near_misses: usize,
    /// Pairs that may be judged.
    pub max_pair_checks: u64,
}

/// Why a ticket still waits.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// How it stands.
    pub situation: TicketSituation,
    /// Why no pass runs, if none does.
    pub gate_reason: Option<GateReason>,
    /// Other tickets that were held against it.
    pub candidate_count: u32,
    /// Of these, how many each rule refused first, in the order of `Refusal::counter`.
    pub refusal_counts: Vec<(Refusal, u32)>,
    /// Of these, how many no rule refused: it would be in a match if there were enough of them, or they are wanted elsewhere.
    pub compatible_count: u32,
    /// Those who come nearest, nearest first: fewest rules in the way, then the least beyond the limit.
    pub near_misses: Vec<NearMissTicket>,
    /// It would be in a match as things are, if it were served first and the gate were open.
    pub matches_now: bool,
    /// The least single change that would make a match now, in proportion to what it changes; `None` when there is one
    /// already, or when no single change would do.
    pub smallest_relaxation: Option<Relaxation>,
    /// Other single changes that would, each the least of its kind, in the order of their size.
    pub other_relaxations: Vec<Relaxation>,
    /// Judged no further, for there were no more looks.
    pub truncated: bool,
}

/// How a ticket stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TicketSituation {
    /// How long it has waited, milliseconds.
    pub waited_ms: u64,
    /// Its rating.
    pub party_rating: f64,
    /// Its place on the leaderboard, 0 for the best.
    pub leaderboard_position: Option<f64>,
    /// Its players.
    pub player_count: u16,
    /// Its rating group and how many further it may look, where there are groups.
    pub group_and_extra_groups: Option<(u16, u16)>,
    /// Its bucket and how many it looks to either side, where there is a window.
    pub bucket_and_range: Option<(i64, u32)>,
    /// By how much it looks further because one of its players is frustrated (S1-97).
    pub range_factor: Option<f64>,
    /// By how many rating points the middle of where it looks lies below its rating, for the same reason.
    pub rating_shift: Option<f64>,
    /// Its limits by now, in the order of `Ruleset::expansions`.
    pub expansion_limits: Vec<f64>,
}

/// Somebody whom a rule keeps from it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NearMissTicket {
    /// Who.
    pub ticket_id: TicketId,
    /// The rule that refuses first.
    pub first_refusal: Refusal,
    /// How many rules refuse.
    pub failed_rule_count: u16,
    /// By how much the first does, for rules that have a measure.
    pub margin: Option<RuleMargin>,
}

/// What a rule measures, and what it allows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RuleMargin {
    /// What was measured: the filter's measure, buckets, groups, or quality.
    pub measured: f64,
    /// What the rule allows at most, or of quality at least.
    pub limit: f64,
}

/// A single change that would make a match now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Relaxation {
    /// Its limit of an expansion, for everybody.
    Expansion {
        /// A place in `Ruleset::expansions`.
        expansion: usize,
        /// The limit that it has.
        current: f64,
        /// The least limit that would do.
        required: f64,
    },
    /// Wider ranges, for everybody.
    Window {
        /// Buckets more to either side.
        more_buckets: u32,
    },
    /// Groups further, for everybody.
    ExtraGroups {
        /// Groups more to either side.
        more: u16,
    },
    /// A lower bar for quality: its threshold, or its greatest score, or what it requires, in the ruleset's own unit.
    Quality {
        /// As it is.
        from: f64,
        /// What would do, to within a thousandth of the way to what nobody misses.
        to: f64,
    },
    /// Waiting.
    Wait {
        /// How much longer, milliseconds.
        more_ms: u64,
    },
    /// More tickets like it: so many at least.
    MoreTickets {
        /// How many.
        more: u16,
    },
}

/// Tickets that are held against one, the nearest of all. Whoever is further has nearer ones to explain it.
const CANDIDATES_MAX: usize = 512;

/// Explains a ticket; `None` when it is not among the pass's entrants.
pub fn explain_ticket(input: &PassInput<'_>, question: &ExplainQuery) -> Option<Explanation> {
    let field = PassState::new(input);
    let place = field.tickets.iter().position(|row| row.prepared.ticket.id == question.ticket_id)?;
    let row = place as u32;
    let most = CANDIDATES_MAX.min(usize::try_from(question.max_pair_checks).unwrap_or(usize::MAX));
    let near = nearest_tickets(&field, row, most);
    let mut counts = vec![0; Refusal::counter_count(input.ruleset.hard_filters.len())];
    let mut misses = Vec::new();
    let mut suitable = 0;
    for &other in &near {
        match near_miss::failed_rules_between(&field, row, other) {
            None => suitable += 1,
            Some(miss) => {
                counts[miss.near_miss.first_refusal.counter_index()] += 1;
                misses.push(miss);
            }
        }
    }
    misses.sort_by(|one, other| one.closeness_key().total_cmp(&other.closeness_key()));
    let counted = counts.iter().enumerate().filter(|(_, count)| 0 < **count);
    let looks_left = question.max_pair_checks.saturating_sub(near.len() as u64);
    let entrants: Vec<&PreparedTicket> =
        near.iter().chain([&row]).map(|&row| field.tickets[row as usize].prepared).collect();
    let mut trial = RelaxationTrial::new(input, &entrants, question.ticket_id, looks_left);
    let matches_now = trial.matches_unchanged();
    let mut remedies = if matches_now { Vec::new() } else { trial.smallest_relaxations(&misses) }.into_iter();
    let players = input.tickets.iter().fold(0_u32, |sum, it| sum.saturating_add(it.player_count.into()));
    Some(Explanation {
        situation: ticket_situation(input, &field.tickets[place]),
        gate_reason: gate::check_gate(&input.queue.gate, players, input.queue_counts).err(),
        candidate_count: near.len() as u32,
        refusal_counts: counted.map(|(counter, &count)| (Refusal::from_counter_index(counter), count)).collect(),
        compatible_count: suitable,
        near_misses: misses.iter().take(question.max_near_misses).map(|it| it.near_miss).collect(),
        matches_now,
        smallest_relaxation: remedies.next(),
        other_relaxations: remedies.collect(),
        truncated: trial.is_truncated() || near.len() + 1 < field.tickets.len(),
    })
}

/// The rows nearest to one, nearest first.
fn nearest_tickets(field: &PassState<'_>, row: u32, most: usize) -> Vec<u32> {
    let (mut low, mut high) = (row.checked_sub(1), Some(row + 1).filter(|&it| (it as usize) < field.tickets.len()));
    let mut near = Vec::new();
    while near.len() < most {
        let far = |side: Option<u32>| side.map_or(f64::INFINITY, |it| field.key_distance(row, it));
        let goes_down = match (low, high) {
            (None, None) => break,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some(_), Some(_)) => far(low) <= far(high),
        };
        if goes_down {
            near.extend(low);
            low = low.and_then(|it| it.checked_sub(1));
        } else {
            near.extend(high);
            high = high.map(|it| it + 1).filter(|&it| (it as usize) < field.tickets.len());
        }
    }
    near
}

fn ticket_situation(input: &PassInput<'_>, row: &PassTicket<'_>) -> TicketSituation {
    let (entrant, waited_ms) = (row.prepared, row.waiting_session.waited_ms);
    TicketSituation {
        waited_ms,
        party_rating: entrant.party_rating,
        leaderboard_position: entrant.leaderboard_position,
        player_count: entrant.player_count,
        group_and_extra_groups: input.queue.groups.as_ref().map(|_| (entrant.rating_group, row.extra_groups)),
        bucket_and_range: input.queue.window.as_ref().map(|_| (entrant.rating_bucket, row.window_range)),
        range_factor: entrant.range_factor(input.queue),
        rating_shift: entrant.rating_shift(input.queue),
        expansion_limits: input.ruleset.expansions.iter().map(|it| it.limit_at(waited_ms)).collect(),
    }
}
