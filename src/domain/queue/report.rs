//! What a pass did, and for every ticket that it left, which rule kept it waiting.

use crate::domain::filter::Refusal;
use crate::domain::id::TicketId;
use crate::domain::queue::avoid;
use crate::domain::queue::desk::Desk;
use crate::domain::queue::field::{Field, Row};
use crate::domain::queue::gate::Closed;
use crate::domain::queue::group;
use crate::domain::queue::line::Line;
use crate::domain::queue::window;
use crate::domain::ruleset::HardRule;
use crate::domain::ruleset::queue::Regions;
use crate::domain::time::UnixMs;

/// What a pass did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PassReport {
    /// Why the pass did not begin, if it did not.
    pub closed: Option<Closed>,
    /// Tickets that it was given.
    pub tickets: u32,
    /// Tickets that it put into proposals.
    pub placed: u32,
    /// Every ticket left, in the order of their ids.
    pub left: Vec<Left>,
    /// How often each rule refused, in the order of `Refusal::counter`; rules that never did are left out. A pair that was
    /// looked at from both sides counts twice.
    pub refusals: Vec<(Refusal, u64)>,
    /// Pairs that were judged.
    pub looks: u64,
    /// The pass ran out of looks before it had come to every ticket.
    pub out_of_looks: bool,
    /// `MaximumWeight` was asked for, and the nearest were taken instead: too many tickets, or matches of more than two.
    pub fell_back: bool,
    /// There were more candidates than `look_at`, and only the nearest of them were looked at.
    pub narrowed: bool,
    /// As many matches began as may run.
    pub at_capacity: bool,
    /// The next moment at which something changes for a ticket left, with nobody coming or going: a range grows, a limit
    /// relaxes, a neighbouring group opens, a bonus suffices, a grudge ends.
    pub next_change: Option<UnixMs>,
    /// How far any ticket looks from its own bucket, at most, buckets.
    pub widest_range: u32,
}

/// A ticket that still waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// Which.
    pub ticket: TicketId,
    /// The rule that kept it waiting: of those that refused, the one that did so most of the time, or else the first.
    pub refusal: Refusal,
}

/// Counters that counted anything, with the refusals whose they are.
pub(super) fn counted(counts: &[u64]) -> Vec<(Refusal, u64)> {
    let counts = counts.iter().enumerate().filter(|(_, count)| 0 < **count);
    counts.map(|(counter, &count)| (Refusal::of_counter(counter), count)).collect()
}

/// When something changes for those who are left.
pub(super) fn next_change(field: &Field<'_>, line: &Line, desk: &Desk) -> Option<UnixMs> {
    let input = field.input;
    let mut limits: Vec<usize> = input
        .ruleset
        .hard
        .iter()
        .filter_map(|hard| match hard.rule {
            HardRule::Within { expansion, .. } => Some(expansion),
            _ => None,
        })
        .collect();
    if let Some(Regions::Stage { expansion }) = input.queue.regions {
        limits.push(expansion);
    }
    limits.sort_unstable();
    limits.dedup();
    let of_row = |row: &Row<'_>| {
        let (waited_ms, entered) = (row.waits.waited_ms, row.entrant.ticket.entered);
        let growth = input.queue.window.as_ref();
        let growth = growth.and_then(|it| window::next_growth(it, row.entrant.rating, entered, input.now));
        let groups = input.queue.groups.as_ref().and_then(|groups| group::next_neighbour_in_ms(groups, waited_ms));
        let limits = limits.iter().filter_map(|&limit| input.ruleset.expansions[limit].next_growth_in_ms(waited_ms));
        let in_ms = limits.chain(groups).min().map(|ms| input.now.after(ms));
        growth.into_iter().chain(in_ms).min()
    };
    let rows = field.rows.iter().zip(0_u32..).filter(|(_, row)| line.is_waiting(*row));
    let of_rows = rows.filter_map(|(row, _)| of_row(row)).min();
    let of_grudges = avoid::next_end(&input.queue.avoid, input.meetings, input.now);
    of_rows.into_iter().chain(of_grudges).chain(desk.next_change).min()
}
