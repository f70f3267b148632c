//! One pass over one queue: tickets, a ruleset, a moment and dice in; proposals and a report out. Same input, same answer,
//! byte for byte, in whatever order the tickets come.

use crate::filter::Refusal;
use crate::id::AdvertisementId;
use crate::queue::avoidance::PastMatches;
use crate::queue::backfill::{self, OpenSession};
use crate::queue::candidate_match::CandidateMatch;
use crate::queue::duel_fast_path;
use crate::queue::gate::{self, GateReason, QueueCounts};
use crate::queue::pass_progress::PassProgress;
use crate::queue::pass_state::PassState;
use crate::queue::prepared_ticket::PreparedTicket;
use crate::queue::proposal::Proposal;
use crate::queue::report::{self, PassReport, UnmatchedTicket};
use crate::queue::rng::SplitMix64;
use crate::queue::select::Selector;
use crate::queue::waiting_list::WaitingList;
use crate::ruleset::Ruleset;
use crate::ruleset::queue::QueueSpec;
use crate::ruleset::teams::TeamsSpec;
use crate::time::UnixMs;

/// What a pass goes by.
#[derive(Clone, Copy, Debug)]
pub struct PassInput<'a> {
    /// The rules.
    pub ruleset: &'a Ruleset,
    /// Its queue.
    pub queue: &'a QueueSpec,
    /// Its teams.
    pub teams: &'a TeamsSpec,
    /// Everyone who waits, in any order, all of one silo. Tickets with a user in a match are left out.
    pub tickets: &'a [&'a PreparedTicket],
    /// Sessions with open seats; looked at where the queue fills them.
    pub open_sessions: &'a [OpenSession],
    /// Who met whom lately; looked at where the queue avoids anybody.
    pub past_matches: &'a PastMatches,
    /// What the gate counts.
    pub queue_counts: QueueCounts,
    /// The moment.
    pub now: UnixMs,
    /// Dice.
    pub rng_seed: u64,
    /// Pairs that the pass may judge, all together: its budget of time.
    pub max_pair_checks: u64,
}

/// What comes of a pass.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PassOutcome {
    /// Matches, sessions that are filled up first. No ticket is in two.
    pub proposals: Vec<Proposal>,
    /// What it did.
    pub report: PassReport,
}

/// Runs a pass.
pub fn run_pass(input: &PassInput<'_>) -> PassOutcome {
    let players = input.tickets.iter().fold(0_u32, |sum, it| sum.saturating_add(it.player_count.into()));
    let room = match gate::check_gate(&input.queue.gate, players, input.queue_counts) {
        Ok(room) => room.map_or(usize::MAX, |room| room as usize),
        Err(GateReason::TooManyMatches { .. }) if has_sessions_to_backfill(input) => 0,
        Err(closed) => return PassOutcome { proposals: Vec::new(), report: gate_closed_report(input, closed) },
    };
    let lean = if room == usize::MAX { duel_fast_path::try_run(input) } else { None };
    lean.unwrap_or_else(|| run_general_pass(input, room))
}

/// A pass by every step, that may make `room` matches.
pub(super) fn run_general_pass(input: &PassInput<'_>, room: usize) -> PassOutcome {
    let tickets = input.tickets.len() as u32;
    let field = PassState::new(input);
    let pools = field.partition_into_pools();
    let mut line = WaitingList::new(&field, &pools);
    let mut desk = PassProgress::new(field.tickets.len(), input.ruleset.hard_filters.len(), input.max_pair_checks);
    let filled = if has_sessions_to_backfill(input) {
        backfill::fill_open_sessions(&field, &mut line, &mut desk)
    } else {
        Vec::new()
    };
    let (made, at_capacity) = select_matches(&field, &pools, &mut line, &mut desk, room);
    let placed = filled.iter().map(|it| &it.1).chain(&made).flat_map(CandidateMatch::ticket_indices).count() as u32;
    let report = PassReport {
        gate_reason: None,
        ticket_count: tickets,
        proposed_count: placed,
        unmatched: unmatched_tickets(&field, &line, &desk, at_capacity),
        refusal_counts: report::nonzero_refusal_counts(&desk.refusal_counts),
        pair_checks: desk.pair_checks,
        truncated: desk.truncated,
        inexact_selection: desk.inexact_selection,
        candidate_limit_reached: desk.candidate_limit_reached,
        match_limit_reached: at_capacity,
        next_change_at: report::next_change_at(&field, &line, &desk),
        max_window_reach: field.max_window_reach,
    };
    let none: Option<AdvertisementId> = None;
    let all = filled.into_iter().map(|(id, made)| (Some(id), made)).chain(made.into_iter().map(|made| (none, made)));
    PassOutcome { proposals: all.map(|(backfills, made)| made.into_proposal(&field, backfills)).collect(), report }
}

/// Whether there is anything to fill up.
fn has_sessions_to_backfill(input: &PassInput<'_>) -> bool {
    input.queue.backfill && !input.open_sessions.is_empty()
}

/// Makes matches pool by pool; each pool has its share of the looks that are left. Also says whether no more could be made.
fn select_matches<'a>(
    field: &PassState<'a>,
    pools: &[Vec<u32>],
    line: &mut WaitingList,
    desk: &mut PassProgress,
    room: usize,
) -> (Vec<CandidateMatch<'a>>, bool) {
    let looks_max = desk.max_pair_checks;
    let mut dice = SplitMix64(field.input.rng_seed);
    let mut work = Selector {
        pass_state: field,
        waiting_list: line,
        progress: desk,
        rng: &mut dice,
        matches_left: room,
        matches: Vec::new(),
    };
    let (mut rows_left, mut ran_out) = (field.tickets.len() as u64, false);
    for pool in pools {
        let waiting: Vec<u32> = pool.iter().copied().filter(|&row| work.waiting_list.is_waiting(row)).collect();
        let looks_left = u128::from(looks_max.saturating_sub(work.progress.pair_checks));
        let share = looks_left * pool.len() as u128 / u128::from(rows_left.max(1));
        work.progress.max_pair_checks =
            work.progress.pair_checks.saturating_add(u64::try_from(share).unwrap_or(u64::MAX));
        rows_left -= pool.len() as u64;
        work.progress.truncated = false;
        if 0 < work.matches_left && !waiting.is_empty() {
            work.select_from_pool(&waiting);
        }
        ran_out |= work.progress.truncated;
    }
    let (room_left, made) = (work.matches_left, work.matches);
    (desk.max_pair_checks, desk.truncated) = (looks_max, ran_out);
    (made, room_left == 0)
}

fn unmatched_tickets(
    field: &PassState<'_>,
    line: &WaitingList,
    desk: &PassProgress,
    at_capacity: bool,
) -> Vec<UnmatchedTicket> {
    let otherwise = if at_capacity {
        Refusal::GateClosed
    } else if desk.truncated {
        Refusal::NotEvaluated
    } else {
        Refusal::CandidatesTaken
    };
    let waiting = (0..field.tickets.len() as u32).filter(|&row| line.is_waiting(row));
    let of = |row: u32| UnmatchedTicket {
        ticket_id: field.tickets[row as usize].prepared.ticket.id,
        refusal: desk.leading_refusal(row).unwrap_or(otherwise),
    };
    let mut left: Vec<UnmatchedTicket> = waiting.map(of).collect();
    left.sort_unstable_by_key(|it| it.ticket_id);
    left
}

fn gate_closed_report(input: &PassInput<'_>, closed: GateReason) -> PassReport {
    let mut left: Vec<UnmatchedTicket> = input
        .tickets
        .iter()
        .map(|it| UnmatchedTicket { ticket_id: it.ticket.id, refusal: Refusal::GateClosed })
        .collect();
    left.sort_unstable_by_key(|it| it.ticket_id);
    PassReport { gate_reason: Some(closed), ticket_count: left.len() as u32, unmatched: left, ..PassReport::default() }
}
