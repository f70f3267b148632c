//! Makes a split more even by exchanging parties between two teams, as long as that helps and the bound on work allows.

use crate::team::split_problem::{PartialTeam, SplitProblem};

/// Exchanges that may be looked at for one split; two teams of 32 have 1,024 of single parties, and some 280,000 of up
/// to two against up to two.
const EXCHANGES_EVALUATED_MAX: u32 = 400_000;

/// Parties of one team that move together: one, or two.
#[derive(Clone, Copy)]
struct PartyGroup {
    party_slots: [usize; 2],
    party_count: usize,
    player_count: usize,
    rating_sum: f64,
}

impl PartyGroup {
    fn parties(&self) -> &[usize] {
        &self.party_slots[..self.party_count]
    }
}

/// An exchange that helps.
struct PartyExchange {
    /// The gap that it leaves, and then how far apart the two teams are: a gap that two teams share narrows only when
    /// both do.
    cost: (f64, f64),
    teams: [usize; 2],
    groups: [PartyGroup; 2],
}

/// Makes the best exchange of single parties, again and again; where none helps, the best of up to two parties against
/// up to two. The gap never grows. Sums are added up anew after each.
pub(super) fn improve_by_exchanges(board: &SplitProblem<'_>, teams: &mut Vec<PartialTeam>) {
    *teams = board.with_recomputed_sums(teams);
    let mut looks = 0;
    while let Some(exchange) = [1, 2].into_iter().find_map(|most| best_exchange(board, teams, most, &mut looks)) {
        let [a, b] = exchange.teams;
        let [from_a, from_b] = exchange.groups;
        teams[a].parties = parties_after_exchange(&teams[a], &from_a, &from_b);
        teams[b].parties = parties_after_exchange(&teams[b], &from_b, &from_a);
        *teams = board.with_recomputed_sums(teams);
    }
}

/// The best exchange of up to `most` parties of each of two teams.
fn best_exchange(
    board: &SplitProblem<'_>,
    teams: &[PartialTeam],
    most: usize,
    looks: &mut u32,
) -> Option<PartyExchange> {
    let gap = board.rating_gap(teams);
    if gap <= board.rounding_tolerance {
        return None;
    }
    let bundles: Vec<Vec<PartyGroup>> = teams.iter().map(|team| party_groups(board, team, most)).collect();
    let mut found: Option<PartyExchange> = None;
    for a in 0..teams.len() {
        for b in a + 1..teams.len() {
            let measures = [a, b].map(|at| board.team_strength(at, teams[at].rating_sum));
            let (least, most) = strength_range_of_others(board, teams, [a, b]);
            let mut worth = found.as_ref().map_or((gap, (measures[0] - measures[1]).abs()), |found| found.cost);
            for from_a in &bundles[a] {
                for from_b in bundles[b].iter().filter(|from_b| from_b.player_count == from_a.player_count) {
                    *looks += 1;
                    if EXCHANGES_EVALUATED_MAX < *looks {
                        return found;
                    }
                    let moved = from_b.rating_sum - from_a.rating_sum;
                    let after_a = board.team_strength(a, teams[a].rating_sum + moved);
                    let after_b = board.team_strength(b, teams[b].rating_sum - moved);
                    let between = (after_a - after_b).abs();
                    let gap = most.max(after_a).max(after_b) - least.min(after_a).min(after_b);
                    let is_better = gap < worth.0 - board.rounding_tolerance
                        || gap <= worth.0
                            && between < worth.1 - board.rounding_tolerance
                            && found.as_ref().is_none_or(|it| it.teams == [a, b]);
                    if is_better
                        && board.is_valid_team(&parties_after_exchange(&teams[a], from_a, from_b))
                        && board.is_valid_team(&parties_after_exchange(&teams[b], from_b, from_a))
                    {
                        worth = (gap, between);
                        found = Some(PartyExchange { cost: worth, teams: [a, b], groups: [*from_a, *from_b] });
                    }
                }
            }
        }
    }
    found
}

/// The least and the greatest measure of all teams but these two.
fn strength_range_of_others(board: &SplitProblem<'_>, teams: &[PartialTeam], but: [usize; 2]) -> (f64, f64) {
    let others =
        (0..teams.len()).filter(|at| !but.contains(at)).map(|at| board.team_strength(at, teams[at].rating_sum));
    others.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), it| (least.min(it), most.max(it)))
}

/// Every set of up to `most` parties of a team.
fn party_groups(board: &SplitProblem<'_>, team: &PartialTeam, most: usize) -> Vec<PartyGroup> {
    let one = |party: usize| PartyGroup {
        party_slots: [party; 2],
        party_count: 1,
        player_count: board.party_size(party),
        rating_sum: board.party_rating_sums[party],
    };
    let mut bundles: Vec<PartyGroup> = team.parties.iter().map(|&party| one(party)).collect();
    if most < 2 {
        return bundles;
    }
    for (at, &first) in team.parties.iter().enumerate() {
        bundles.extend(team.parties[at + 1..].iter().map(|&second| PartyGroup {
            party_slots: [first, second],
            party_count: 2,
            player_count: board.party_size(first) + board.party_size(second),
            rating_sum: board.party_rating_sums[first] + board.party_rating_sums[second],
        }));
    }
    bundles
}

/// The team's parties when `goes` has gone and `comes` has come.
fn parties_after_exchange(team: &PartialTeam, goes: &PartyGroup, comes: &PartyGroup) -> Vec<usize> {
    let stay = team.parties.iter().filter(|party| !goes.parties().contains(party));
    stay.chain(comes.parties()).copied().collect()
}
