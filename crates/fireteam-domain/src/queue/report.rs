//! What a pass did, and for every ticket that it left, which rule kept it waiting.

use crate::filter::Refusal;
use crate::id::TicketId;
use crate::queue::avoidance;
use crate::queue::gate::GateReason;
use crate::queue::pass_progress::PassProgress;
use crate::queue::pass_state::{PassState, PassTicket};
use crate::queue::rating_group;
use crate::queue::waiting_list::WaitingList;
use crate::queue::window;
use crate::ruleset::HardRule;
use crate::ruleset::queue::RegionMode;
use crate::time::UnixMs;

/// What a pass did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PassReport {
    /// Why the pass did not begin, if it did not.
    pub gate_reason: Option<GateReason>,
    /// Tickets that it was given.
    pub ticket_count: u32,
    /// Tickets that it put into proposals.
    pub proposed_count: u32,
    /// Every ticket left, in the order of their ids.
    pub unmatched: Vec<UnmatchedTicket>,
    /// How often each rule refused, in the order of `Refusal::counter`; rules that never did are left out. A pair that was
    /// looked at from both sides counts twice.
    pub refusal_counts: Vec<(Refusal, u64)>,
    /// Pairs that were judged.
    pub pair_checks: u64,
    /// The pass ran out of looks before it had come to every ticket.
    pub truncated: bool,
    /// `MaximumWeight` was asked for, and the nearest were taken instead: too many tickets, or matches of more than two.
    pub inexact_selection: bool,
    /// There were more candidates than `look_at`, and only the nearest of them were looked at.
    pub candidate_limit_reached: bool,
    /// As many matches began as may run.
    pub match_limit_reached: bool,
    /// The next moment at which something changes for a ticket left, with nobody coming or going: a range grows, a limit
    /// relaxes, a neighbouring group opens, a bonus suffices, a grudge ends.
    pub next_change_at: Option<UnixMs>,
    /// How far any ticket looks from its own bucket, at most, buckets.
    pub max_window_reach: u32,
}

/// A ticket that still waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnmatchedTicket {
    /// Which.
    pub ticket_id: TicketId,
    /// The rule that kept it waiting: of those that refused, the one that did so most of the time, or else the first.
    pub refusal: Refusal,
}

/// Counters that counted anything, with the refusals whose they are.
pub(super) fn nonzero_refusal_counts(counts: &[u64]) -> Vec<(Refusal, u64)> {
    let counts = counts.iter().enumerate().filter(|(_, count)| 0 < **count);
    counts.map(|(counter, &count)| (Refusal::from_counter_index(counter), count)).collect()
}

/// When something changes for those who are left.
pub(super) fn next_change_at(field: &PassState<'_>, line: &WaitingList, desk: &PassProgress) -> Option<UnixMs> {
    let input = field.input;
    let mut limits: Vec<usize> = input
        .ruleset
        .hard_filters
        .iter()
        .filter_map(|hard| match hard.rule {
            HardRule::Within { expansion, .. } => Some(expansion),
            _ => None,
        })
        .collect();
    if let Some(RegionMode::Stage { expansion }) = input.queue.regions {
        limits.push(expansion);
    }
    limits.sort_unstable();
    limits.dedup();
    let of_row = |row: &PassTicket<'_>| {
        let (waited_ms, entered) = (row.waiting_session.waited_ms, row.prepared.ticket.entered_at);
        let growth = input.queue.window.as_ref();
        let growth = growth.and_then(|it| window::next_growth_at(it, row.prepared.party_rating, entered, input.now));
        let groups =
            input.queue.groups.as_ref().and_then(|groups| rating_group::ms_until_next_group(groups, waited_ms));
        let limits = limits.iter().filter_map(|&limit| input.ruleset.expansions[limit].ms_until_next_growth(waited_ms));
        let in_ms = limits.chain(groups).min().map(|ms| input.now.plus_ms(ms));
        growth.into_iter().chain(in_ms).min()
    };
    let rows = field.tickets.iter().zip(0_u32..).filter(|(_, row)| line.is_waiting(*row));
    let of_rows = rows.filter_map(|(row, _)| of_row(row)).min();
    let of_grudges = avoidance::next_avoidance_end(&input.queue.avoid, input.past_matches, input.now);
    of_rows.into_iter().chain(of_grudges).chain(desk.next_change_at).min()
}
