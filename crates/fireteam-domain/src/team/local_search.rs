//! Local search: makes a split more even by exchanging parties between two teams, within a work limit.

use crate::team::split_problem::{PartialTeam, SplitProblem};

/// Maximum number of exchanges evaluated for one split. Two teams of 32 have 1,024 exchanges of single parties, and
/// some 280,000 of up to two against up to two.
const EXCHANGES_EVALUATED_MAX: u32 = 400_000;

/// One or two parties of a team that move together.
#[derive(Clone, Copy)]
struct PartyGroup {
    party_indexes: [usize; 2],
    party_count: usize,
    player_count: usize,
    rating_sum: f64,
}

impl PartyGroup {
    fn parties(&self) -> &[usize] {
        &self.party_indexes[..self.party_count]
    }
}

/// An exchange that improves the split.
struct PartyExchange {
    /// Resulting gap, then the resulting distance of the two teams. A gap shared by two pairs of teams shrinks only if
    /// both pairs improve.
    cost: (f64, f64),
    teams: [usize; 2],
    groups: [PartyGroup; 2],
}

/// Applies the best exchange of single parties until none helps, then the best of up to two parties against up to two.
/// The gap never grows. Recomputes sums after each exchange.
pub(super) fn improve_by_exchanges(problem: &SplitProblem<'_>, teams: &mut Vec<PartialTeam>) {
    *teams = problem.with_recomputed_sums(teams);
    let mut evaluated = 0;
    while let Some(exchange) =
        [1, 2].into_iter().find_map(|max_parties| best_exchange(problem, teams, max_parties, &mut evaluated))
    {
        let [a, b] = exchange.teams;
        let [from_a, from_b] = exchange.groups;
        teams[a].parties = parties_after_exchange(&teams[a], &from_a, &from_b);
        teams[b].parties = parties_after_exchange(&teams[b], &from_b, &from_a);
        *teams = problem.with_recomputed_sums(teams);
    }
}

/// Best exchange of up to `max_parties` parties of each of two teams.
fn best_exchange(
    problem: &SplitProblem<'_>,
    teams: &[PartialTeam],
    max_parties: usize,
    evaluated: &mut u32,
) -> Option<PartyExchange> {
    let gap = problem.rating_gap(teams);
    if gap <= problem.rounding_tolerance {
        return None;
    }
    let groups: Vec<Vec<PartyGroup>> = teams.iter().map(|team| party_groups(problem, team, max_parties)).collect();
    let mut best: Option<PartyExchange> = None;
    for a in 0..teams.len() {
        for b in a + 1..teams.len() {
            let strengths = [a, b].map(|at| problem.team_strength(at, teams[at].rating_sum));
            let (lowest_of_others, highest_of_others) = strength_range_of_others(problem, teams, [a, b]);
            let mut cost = best.as_ref().map_or((gap, (strengths[0] - strengths[1]).abs()), |known| known.cost);
            for from_a in &groups[a] {
                for from_b in groups[b].iter().filter(|from_b| from_b.player_count == from_a.player_count) {
                    *evaluated += 1;
                    if *evaluated > EXCHANGES_EVALUATED_MAX {
                        return best;
                    }
                    let rating_moved = from_b.rating_sum - from_a.rating_sum;
                    let after_a = problem.team_strength(a, teams[a].rating_sum + rating_moved);
                    let after_b = problem.team_strength(b, teams[b].rating_sum - rating_moved);
                    let distance = (after_a - after_b).abs();
                    let gap = highest_of_others.max(after_a).max(after_b) - lowest_of_others.min(after_a).min(after_b);
                    let is_better = gap < cost.0 - problem.rounding_tolerance
                        || gap <= cost.0
                            && distance < cost.1 - problem.rounding_tolerance
                            && best.as_ref().is_none_or(|known| known.teams == [a, b]);
                    if is_better
                        && problem.is_valid_team(&parties_after_exchange(&teams[a], from_a, from_b))
                        && problem.is_valid_team(&parties_after_exchange(&teams[b], from_b, from_a))
                    {
                        cost = (gap, distance);
                        best = Some(PartyExchange { cost, teams: [a, b], groups: [*from_a, *from_b] });
                    }
                }
            }
        }
    }
    best
}

/// Smallest and largest strength of all teams except these two.
fn strength_range_of_others(problem: &SplitProblem<'_>, teams: &[PartialTeam], excluded: [usize; 2]) -> (f64, f64) {
    let others = (0..teams.len())
        .filter(|index| !excluded.contains(index))
        .map(|index| problem.team_strength(index, teams[index].rating_sum));
    others.fold((f64::INFINITY, f64::NEG_INFINITY), |(lowest, highest), strength| {
        (lowest.min(strength), highest.max(strength))
    })
}

/// All groups of up to `max_parties` parties of a team.
fn party_groups(problem: &SplitProblem<'_>, team: &PartialTeam, max_parties: usize) -> Vec<PartyGroup> {
    let single = |party: usize| PartyGroup {
        party_indexes: [party; 2],
        party_count: 1,
        player_count: problem.party_size(party),
        rating_sum: problem.party_rating_sums[party],
    };
    let mut groups: Vec<PartyGroup> = team.parties.iter().map(|&party| single(party)).collect();
    if max_parties < 2 {
        return groups;
    }
    for (index, &first) in team.parties.iter().enumerate() {
        groups.extend(team.parties[index + 1..].iter().map(|&second| PartyGroup {
            party_indexes: [first, second],
            party_count: 2,
            player_count: problem.party_size(first) + problem.party_size(second),
            rating_sum: problem.party_rating_sums[first] + problem.party_rating_sums[second],
        }));
    }
    groups
}

/// Parties of the team after `leaving` left and `joining` joined.
fn parties_after_exchange(team: &PartialTeam, leaving: &PartyGroup, joining: &PartyGroup) -> Vec<usize> {
    let staying = team.parties.iter().filter(|party| !leaving.parties().contains(party));
    staying.chain(joining.parties()).copied().collect()
}
