//! One matchmaking pass over one queue: takes tickets, a ruleset, a time and a seed; returns proposals and a report.
//!
//! Deterministic: the same input gives the same output, independent of the order of the tickets.

use crate::filter::Refusal;
use crate::id::AdvertisementId;
use crate::queue::backfill;
use crate::queue::candidate_match::CandidateMatch;
use crate::queue::duel_fast_path;
use crate::queue::gate::{self, GateReason};
use crate::queue::outcome::{PassReport, UnmatchedTicket};
use crate::queue::pass_memory::PassMemory;
use crate::queue::pass_progress::PassProgress;
use crate::queue::pass_state::PassState;
use crate::queue::queue_without_matches::QueueWithoutMatches;
use crate::queue::report;
use crate::queue::rng::SplitMix64;
use crate::queue::select::Selector;
use crate::queue::select::failed_searches::{RowSearches, SearchTrace};
use crate::queue::team_order::draw_team_order;
use crate::queue::waiting_list::WaitingList;

pub use crate::queue::input::PassInput;
pub use crate::queue::outcome::PassOutcome;

/// Runs a pass. The result is empty if the gate is closed.
pub fn run_pass(input: &PassInput<'_>) -> PassOutcome {
    run_pass_if_gate_open(input, None)
}

/// Runs a pass over a queue that `memory` knows from earlier passes under the same ruleset, and updates it. It makes the same matches as
/// [`run_pass`], but evaluates only what may have changed since.
///
/// [`PassMemory::forget`] must have been called for each ticket that waited at the last pass and is not the same now.
pub fn run_pass_with_memory(input: &PassInput<'_>, memory: &mut PassMemory) -> PassOutcome {
    let outcome = run_pass_if_gate_open(input, Some(memory));
    memory.record_pass(input, &outcome.report);
    outcome
}

fn run_pass_if_gate_open(input: &PassInput<'_>, memory: Option<&mut PassMemory>) -> PassOutcome {
    let players = input.tickets.iter().fold(0_u32, |sum, ticket| sum.saturating_add(ticket.player_count.into()));
    let match_limit = match gate::match_limit_if_gate_open(&input.queue.gate, players, input.gate_counts) {
        Ok(match_limit) => match_limit.map_or(usize::MAX, |match_limit| match_limit as usize),
        Err(GateReason::TooManyMatches { .. }) if has_sessions_to_backfill(input) => 0,
        Err(reason) => return PassOutcome { proposals: Vec::new(), report: gate_closed_report(input, reason) },
    };
    let fast = if match_limit == usize::MAX { duel_fast_path::try_run(input) } else { None };
    let mut outcome = fast.unwrap_or_else(|| run_general_pass(input, match_limit, memory));
    draw_team_order(&mut outcome.proposals, input.teams, input.rng_seed);
    outcome
}

/// Runs a pass without the fast path. It makes at most `match_limit` matches.
pub(super) fn run_general_pass(
    input: &PassInput<'_>,
    match_limit: usize,
    mut memory: Option<&mut PassMemory>,
) -> PassOutcome {
    let tickets = input.tickets.len() as u32;
    let pass_state = PassState::new(input);
    let evaluated = memory.as_mut().and_then(|memory| memory.take_queue_without_matches(input));
    let evaluated = evaluated.filter(|evaluated| evaluated.holds_for(&pass_state));
    let pools = pass_state.partition_by_region_and_equal_values();
    let mut waiting_list = WaitingList::new(&pass_state, &pools);
    let mut progress = PassProgress::new(pass_state.tickets.len(), input.ruleset, input.max_pair_checks);
    let mut searches = memory
        .as_mut()
        .and_then(|memory| RowSearches::begin(&pass_state, &pools, &mut memory.failed_searches, &mut progress));
    let backfills = if has_sessions_to_backfill(input) {
        backfill::fill_open_sessions(&pass_state, &mut waiting_list, &mut progress)
    } else {
        Vec::new()
    };
    let (matches, match_limit_reached) = {
        let known = (evaluated.as_ref(), searches.as_mut());
        select_matches(&pass_state, &pools, &mut waiting_list, &mut progress, match_limit, known)
    };
    if let (Some(memory), Some(searches)) = (memory, searches) {
        memory.failed_searches = searches.end(&pass_state, &waiting_list);
    }
    let proposed_count =
        backfills.iter().map(|it| &it.1).chain(&matches).flat_map(CandidateMatch::ticket_indices).count() as u32;
    let report = PassReport {
        gate_reason: None,
        ticket_count: tickets,
        proposed_ticket_count: proposed_count,
        unmatched: unmatched_tickets(&pass_state, &waiting_list, &progress, match_limit_reached, evaluated.as_ref()),
        refusal_counts: report::nonzero_refusal_counts(&progress.refusal_counts),
        pair_checks: progress.pair_checks,
        truncated: progress.truncated,
        inexact_selection: progress.inexact_selection,
        candidate_limit_reached: progress.candidate_limit_reached,
        match_limit_reached,
        next_change_at: report::next_change_at(&pass_state, &waiting_list, &progress)
            .into_iter()
            .chain(evaluated.as_ref().and_then(QueueWithoutMatches::next_change_at))
            .min(),
        max_window_reach: pass_state.max_window_reach,
    };
    let none: Option<AdvertisementId> = None;
    let all = backfills
        .into_iter()
        .map(|(id, candidate)| (Some(id), candidate))
        .chain(matches.into_iter().map(|candidate| (none, candidate)));
    PassOutcome {
        proposals: all.map(|(session, candidate)| candidate.into_proposal(&pass_state, session)).collect(),
        report,
    }
}

/// Whether the queue backfills and there are open sessions.
fn has_sessions_to_backfill(input: &PassInput<'_>) -> bool {
    input.queue.backfill && !input.open_sessions.is_empty()
}

/// Selects matches pool by pool. Each pool gets a proportional share of the remaining pair checks. The flag is `true`
/// if the match limit is reached.
fn select_matches<'a>(
    pass_state: &PassState<'a>,
    pools: &[Vec<u32>],
    waiting_list: &mut WaitingList,
    progress: &mut PassProgress,
    match_limit: usize,
    (queue_before_newcomers, searches): (Option<&QueueWithoutMatches>, Option<&mut RowSearches>),
) -> (Vec<CandidateMatch<'a>>, bool) {
    let max_pair_checks = progress.max_pair_checks;
    let mut rng = SplitMix64(pass_state.input.rng_seed);
    let (matches_left, matches) = (match_limit, Vec::new());
    let mut selector = Selector {
        pass_state,
        waiting_list,
        progress,
        rng: &mut rng,
        queue_before_newcomers,
        searches,
        search_trace: SearchTrace::default(),
        matches_left,
        matches,
    };
    let (mut tickets_left, mut truncated) = (pass_state.tickets.len() as u64, false);
    for pool in pools {
        let waiting: Vec<u32> = pool.iter().copied().filter(|&row| selector.waiting_list.is_waiting(row)).collect();
        let checks_left = u128::from(max_pair_checks.saturating_sub(selector.progress.pair_checks));
        let pool_checks = checks_left * pool.len() as u128 / u128::from(tickets_left.max(1));
        selector.progress.max_pair_checks =
            selector.progress.pair_checks.saturating_add(u64::try_from(pool_checks).unwrap_or(u64::MAX));
        tickets_left -= pool.len() as u64;
        selector.progress.truncated = false;
        if selector.matches_left > 0 && !waiting.is_empty() {
            selector.select_from_pool(&waiting);
            selector.select_with_bots(&waiting);
        }
        truncated |= selector.progress.truncated;
    }
    let (matches_left, matches) = (selector.matches_left, selector.matches);
    (progress.max_pair_checks, progress.truncated) = (max_pair_checks, truncated);
    (matches, matches_left == 0)
}

fn unmatched_tickets(
    pass_state: &PassState<'_>,
    waiting_list: &WaitingList,
    progress: &PassProgress,
    match_limit_reached: bool,
    evaluated: Option<&QueueWithoutMatches>,
) -> Vec<UnmatchedTicket> {
    let default_refusal = if match_limit_reached {
        Refusal::GateClosed
    } else if progress.truncated {
        Refusal::NotEvaluated
    } else {
        Refusal::CandidatesTaken
    };
    let waiting = (0..pass_state.tickets.len() as u32).filter(|&row| waiting_list.is_waiting(row));
    let unmatched = |row: u32| {
        let ticket_id = pass_state.tickets[row as usize].prepared.ticket.id;
        let before = || evaluated.and_then(|evaluated| evaluated.refusal_of(ticket_id));
        UnmatchedTicket { ticket_id, refusal: progress.leading_refusal(row).or_else(before).unwrap_or(default_refusal) }
    };
    let mut tickets: Vec<UnmatchedTicket> = waiting.map(unmatched).collect();
    tickets.sort_unstable_by_key(|it| it.ticket_id);
    tickets
}

fn gate_closed_report(input: &PassInput<'_>, reason: GateReason) -> PassReport {
    let mut unmatched: Vec<UnmatchedTicket> = input
        .tickets
        .iter()
        .map(|it| UnmatchedTicket { ticket_id: it.ticket.id, refusal: Refusal::GateClosed })
        .collect();
    unmatched.sort_unstable_by_key(|it| it.ticket_id);
    PassReport { gate_reason: Some(reason), ticket_count: unmatched.len() as u32, unmatched, ..PassReport::default() }
}
