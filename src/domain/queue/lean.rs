//! One against one by rating alone, where no rule could refuse anybody: sorted, and neighbours paired from the top. The same answer
//! as the long way, for the price of sorting.

use std::cmp::Reverse;

use crate::domain::filter::Refusal;
use crate::domain::queue::entrant::Entrant;
use crate::domain::queue::field::ordered_bits;
use crate::domain::queue::pass::{PassInput, PassOutcome};
use crate::domain::queue::proposal::{Placed, Proposal};
use crate::domain::queue::report::{Left, PassReport};
use crate::domain::ruleset::queue::{Quality, SelectionMode, StartWith};

/// The pass, if it is one of that kind.
pub(super) fn run(input: &PassInput<'_>) -> Option<PassOutcome> {
    if !is_plain(input) {
        return None;
    }
    let rated = |(entrant, place): (&&Entrant, u32)| (ordered_bits(entrant.rating), place);
    let mut order: Vec<(u64, u32)> = input.entrants.iter().zip(0..).map(rated).collect();
    order.sort_unstable();
    let entrant = |place: u32| input.entrants[place as usize];
    for equals in order.chunk_by_mut(|one, other| one.0 == other.0).filter(|it| 1 < it.len()) {
        equals.sort_unstable_by_key(|&(_, place)| Reverse((entrant(place).ticket.entered, entrant(place).ticket.id)));
    }
    let pairs = order.rchunks_exact(2);
    let left: Vec<Left> = pairs
        .remainder()
        .iter()
        .map(|&(_, place)| Left { ticket: entrant(place).ticket.id, refusal: Refusal::Taken })
        .collect();
    let team = |place: u32| vec![Placed { ticket: entrant(place).ticket.id, roles: Vec::new() }];
    let mut proposals = Vec::with_capacity(order.len() / 2);
    for pair in pairs {
        let (higher, lower) = (pair[1].1, pair[0].1);
        if entrant(higher).users == entrant(lower).users {
            return None;
        }
        let teams = vec![team(higher), team(lower)];
        proposals.push(Proposal { teams, quality: 0.0, region: None, backfills: None });
    }
    let report = PassReport {
        tickets: order.len() as u32,
        placed: 2 * proposals.len() as u32,
        refusals: left.iter().map(|it| (it.refusal, 1)).collect(),
        left,
        looks: proposals.len() as u64,
        ..PassReport::default()
    };
    Some(PassOutcome { proposals, report })
}

fn is_plain(input: &PassInput<'_>) -> bool {
    let (queue, teams) = (input.queue, input.teams);
    let (selection, count) = (queue.selection, input.entrants.len());
    let from_the_top = (selection.mode, selection.start_with) == (SelectionMode::BestWindow, StartWith::HighestRated);
    let nothing_refuses = input.ruleset.hard.is_empty()
        && queue.quality == Quality::Any
        && queue.groups.is_none()
        && queue.regions.is_none()
        && queue.window.is_none()
        && queue.avoid.is_empty()
        && (!queue.backfill || input.sessions.is_empty());
    let alone =
        teams.sizes[..] == [1, 1] && teams.roles.is_empty() && input.entrants.iter().all(|it| it.users.len() == 1);
    from_the_top && nothing_refuses && alone && 2 <= count && count as u64 / 2 <= input.looks_max
}
