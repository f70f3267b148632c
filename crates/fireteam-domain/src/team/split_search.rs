//! Split search: places parties into teams one after the other. The first descent is greedy. An exhaustive search
//! continues by backtracking and prunes branches that cannot beat the best known split.
//!
//! Greedy: large parties first, because they are hardest to place, then by rating downwards. Each goes into the team
//! with the lowest total, the later team on a tie. A full team is skipped. The search backtracks from a dead end.
//!
//! Pruning uses only a proven bound: no completion of the branch has a smaller gap. Empty teams of equal size are
//! interchangeable, so the first party is tried in one of them only.

use crate::team::gap_bound::RemainingRatingBounds;
use crate::team::local_search::improve_by_exchanges;
use crate::team::role_supply::RoleSupply;
use crate::team::split_problem::{PartialTeam, SplitProblem};

/// Maximum number of placements for one split. Two teams of ten single players take some 350,000 without pruning, so
/// each exact split that a ruleset may ask for is within it.
const PLACEMENTS_MAX: u32 = 500_000;

/// Maximum number of splits for an exhaustive search; pruning makes this feasible. Four teams of four single players
/// have 2.6 million.
const EXHAUSTIVE_SPLITS_MAX: f64 = 1e7;

/// Maximum number of placements for a greedy split: one descent, and backtracking from dead ends caused by parties,
/// roles or parties kept apart.
const GREEDY_PLACEMENTS_MAX: u32 = 20_000;

/// Result of a search.
pub(super) struct SplitWithOptimality {
    pub(super) teams: Vec<PartialTeam>,
    /// No split is better.
    pub(super) is_optimal: bool,
}

/// Best split if `exhaustive`, within the work limits; otherwise a good one.
pub(super) fn search_split(problem: &SplitProblem<'_>, exhaustive: bool) -> Option<SplitWithOptimality> {
    let exhaustive = exhaustive && count_splits_of_single_players(problem) <= EXHAUSTIVE_SPLITS_MAX;
    let mut search = SplitSearch::new(problem, exhaustive);
    search.place_party(0, &mut problem.empty_teams());
    let is_optimal = search.is_perfectly_even() || exhaustive && search.placement_count < search.placement_limit();
    let mut teams = search.best_teams?;
    if !is_optimal {
        improve_by_exchanges(problem, &mut teams);
    }
    Some(SplitWithOptimality { teams, is_optimal })
}

/// Number of splits of single players, where teams of equal size are interchangeable. Parties only reduce it.
pub(super) fn count_splits_of_single_players(problem: &SplitProblem<'_>) -> f64 {
    let sizes = &problem.spec.team_sizes;
    let (mut splits, mut players) = (1.0, 0_u16);
    for (index, &size) in sizes.iter().enumerate() {
        // C(players + size, size) ways to fill this team, divided by the number of teams of this size so far.
        for seat in 1..=size {
            players += 1;
            splits *= f64::from(players) / f64::from(seat);
        }
        splits /= sizes[..=index].iter().filter(|other| **other == size).count() as f64;
    }
    splits
}

/// First descent, without improvement.
pub(super) fn search_greedy_split(problem: &SplitProblem<'_>) -> Option<SplitWithOptimality> {
    let mut search = SplitSearch::new(problem, false);
    search.place_party(0, &mut problem.empty_teams());
    let is_optimal = search.is_perfectly_even();
    search.best_teams.map(|teams| SplitWithOptimality { teams, is_optimal })
}

struct SplitSearch<'a> {
    problem: &'a SplitProblem<'a>,
    /// Parties in the order of their placement.
    placement_order: Vec<usize>,
    /// Bounds on the parties still to be placed; `None` for a greedy search.
    remaining: Option<RemainingRatingBounds>,
    /// Roles that the parties still to be placed offer; `None` without roles.
    role_supply: Option<RoleSupply>,
    best_teams: Option<Vec<PartialTeam>>,
    best_gap: f64,
    placement_count: u32,
}

impl<'a> SplitSearch<'a> {
    fn new(problem: &'a SplitProblem<'a>, exhaustive: bool) -> Self {
        let mut placement_order: Vec<usize> = (0..problem.parties.len()).collect();
        let mean = |party: usize| problem.party_rating_sums[party] / problem.party_size(party) as f64;
        placement_order.sort_by(|&a, &b| {
            problem.party_size(b).cmp(&problem.party_size(a)).then(mean(b).total_cmp(&mean(a))).then(a.cmp(&b))
        });
        Self {
            problem,
            remaining: exhaustive.then(|| RemainingRatingBounds::new(problem, &placement_order)),
            role_supply: RoleSupply::new(problem, &placement_order),
            placement_order,
            best_teams: None,
            best_gap: f64::INFINITY,
            placement_count: 0,
        }
    }

    /// Places the party at `depth` of the order, and all after it, in every way that could improve the best split.
    fn place_party(&mut self, depth: usize, teams: &mut [PartialTeam]) {
        let Some(&party) = self.placement_order.get(depth) else {
            return self.record_split(teams);
        };
        for index in self.teams_by_preference(teams, party) {
            if self.is_finished() {
                return;
            }
            self.placement_count += 1;
            let rating_sum = teams[index].rating_sum;
            teams[index].parties.push(party);
            teams[index].open_seats -= self.problem.party_size(party);
            teams[index].rating_sum = rating_sum + self.problem.party_rating_sums[party];
            if self.role_supply_suffices(depth + 1, teams) && self.can_improve(depth + 1, teams) {
                self.place_party(depth + 1, teams);
            }
            teams[index].parties.pop();
            teams[index].open_seats += self.problem.party_size(party);
            teams[index].rating_sum = rating_sum;
        }
    }

    /// Teams that `party` may join, the greedy choice first.
    fn teams_by_preference(&self, teams: &[PartialTeam], party: usize) -> Vec<usize> {
        let sizes = &self.problem.spec.team_sizes;
        let is_first_empty = |index: usize| {
            let later = index + 1..teams.len();
            !teams[index].parties.is_empty()
                || !later.into_iter().any(|other| teams[other].parties.is_empty() && sizes[other] == sizes[index])
        };
        let fitting =
            (0..teams.len()).filter(|&index| is_first_empty(index) && self.problem.party_fits(&teams[index], party));
        let mut fitting: Vec<usize> = fitting.collect();
        let total = |index: usize| self.problem.team_strength(index, teams[index].rating_sum);
        fitting.sort_by(|&a, &b| total(a).total_cmp(&total(b)).then(b.cmp(&a)));
        fitting
    }

    fn role_supply_suffices(&self, depth: usize, teams: &[PartialTeam]) -> bool {
        self.role_supply.as_ref().is_none_or(|supply| supply.suffices(self.problem, depth, teams))
    }

    fn can_improve(&self, depth: usize, teams: &[PartialTeam]) -> bool {
        self.remaining.as_ref().is_none_or(|remaining| {
            remaining.gap_lower_bound(self.problem, depth, teams) - self.problem.rounding_tolerance < self.best_gap
        })
    }

    /// Records a complete split. Improves the first one at once: the better the known split, the more branches are
    /// pruned.
    fn record_split(&mut self, teams: &[PartialTeam]) {
        let mut teams = teams.to_vec();
        if self.best_teams.is_none() && self.remaining.is_some() {
            improve_by_exchanges(self.problem, &mut teams);
        }
        let gap = self.problem.rating_gap(&teams);
        if gap < self.best_gap {
            (self.best_gap, self.best_teams) = (gap, Some(teams));
        }
    }

    fn is_finished(&self) -> bool {
        self.placement_count >= self.placement_limit()
            || self.is_perfectly_even()
            || self.remaining.is_none() && self.best_teams.is_some()
    }

    fn placement_limit(&self) -> u32 {
        if self.remaining.is_some() { PLACEMENTS_MAX } else { GREEDY_PLACEMENTS_MAX }
    }

    /// True if the gap is within the rounding error.
    fn is_perfectly_even(&self) -> bool {
        self.best_gap <= self.problem.rounding_tolerance
    }
}
