//! Parties into teams one after the other: the first way down is greedy, and where all ways are wanted, those that
//! cannot be better than what is known are cut off.
//!
//! Greedy (S4-13): large parties first, for they are hardest to seat, then by rating downwards; each into the team
//! whose total is lowest, the later of two that are level; a full team closes. Where that leads nowhere the search
//! turns back.
//!
//! Nothing is cut off for being unlikely (B-23): only where a bound says that no way on from here leads to a smaller
//! gap. Teams of one size that are still empty are interchangeable, and the first party in one of them stands for all
//! (B-19).

use crate::team::gap_bound::RemainingPlayers;
use crate::team::local_search::improve_by_exchanges;
use crate::team::split_problem::{PartialTeam, SplitProblem};

/// Parties that may be seated on the way to one split. Two teams of ten players who come alone take some 350,000 when
/// nothing is cut off: all that a ruleset may ask to be exact is within it.
const PLACEMENTS_MAX: u32 = 500_000;

/// Splits that there may be for the best of them to be looked for; what is cut off makes so many bearable. Four teams
/// of four who come alone have 2.6 million.
const EXHAUSTIVE_SPLITS_MAX: f64 = 1e7;

/// As `SEATED_MAX`, where the first split will do: one way down and what it takes to turn back from where parties,
/// roles or those who are to stay apart do not let it end.
const GREEDY_PLACEMENTS_MAX: u32 = 20_000;

/// What a search has found.
pub(super) struct SplitResult {
    pub(super) teams: Vec<PartialTeam>,
    /// Nothing is better.
    pub(super) is_optimal: bool,
}

/// The best split where `exhaustive`, as far as bounds on work let it be found; otherwise a good one.
pub(super) fn search_best_split(board: &SplitProblem<'_>, exhaustive: bool) -> Option<SplitResult> {
    let exhaustive = exhaustive && count_splits(board) <= EXHAUSTIVE_SPLITS_MAX;
    let mut search = SplitSearch::new(board, exhaustive);
    search.place_party(0, &mut board.empty_teams());
    let exact = search.is_perfectly_even() || exhaustive && search.placement_count < search.placement_limit();
    let mut teams = search.best_teams?;
    if !exact {
        improve_by_exchanges(board, &mut teams);
    }
    Some(SplitResult { teams, is_optimal: exact })
}

/// How many splits there would be if all came alone, teams of one size being interchangeable: with parties there are
/// fewer.
pub(super) fn count_splits(board: &SplitProblem<'_>) -> f64 {
    let sizes = &board.spec.team_sizes;
    let (mut splits, mut players) = (1.0, 0_u16);
    for (at, &size) in sizes.iter().enumerate() {
        // C(players + size, size) ways to fill this team, and one in as many as there are of its size is another one.
        for seat in 1..=size {
            players += 1;
            splits *= f64::from(players) / f64::from(seat);
        }
        splits /= sizes[..=at].iter().filter(|other| **other == size).count() as f64;
    }
    splits
}

/// The first way down, as it is.
pub(super) fn search_greedy_split(board: &SplitProblem<'_>) -> Option<SplitResult> {
    let mut search = SplitSearch::new(board, false);
    search.place_party(0, &mut board.empty_teams());
    let exact = search.is_perfectly_even();
    search.best_teams.map(|teams| SplitResult { teams, is_optimal: exact })
}

struct SplitSearch<'a> {
    problem: &'a SplitProblem<'a>,
    /// Who is seated when.
    placement_order: Vec<usize>,
    /// What is known about those who are still to be seated; `None` where the first split will do.
    remaining: Option<RemainingPlayers>,
    best_teams: Option<Vec<PartialTeam>>,
    best_gap: f64,
    placement_count: u32,
}

impl<'a> SplitSearch<'a> {
    fn new(board: &'a SplitProblem<'a>, exhaustive: bool) -> Self {
        let mut order: Vec<usize> = (0..board.parties.len()).collect();
        let mean = |party: usize| board.party_rating_sums[party] / board.party_size(party) as f64;
        order.sort_by(|&a, &b| {
            board.party_size(b).cmp(&board.party_size(a)).then(mean(b).total_cmp(&mean(a))).then(a.cmp(&b))
        });
        let rest = exhaustive.then(|| RemainingPlayers::new(board, &order));
        Self {
            problem: board,
            placement_order: order,
            remaining: rest,
            best_teams: None,
            best_gap: f64::INFINITY,
            placement_count: 0,
        }
    }

    /// Seats whoever is `depth`th in order, and all after them, in every way that could be better.
    fn place_party(&mut self, depth: usize, teams: &mut [PartialTeam]) {
        let Some(&party) = self.placement_order.get(depth) else {
            return self.record_split(teams);
        };
        for at in self.teams_by_preference(teams, party) {
            if self.is_finished() {
                return;
            }
            self.placement_count += 1;
            let before = teams[at].rating_sum;
            teams[at].parties.push(party);
            teams[at].open_seats -= self.problem.party_size(party);
            teams[at].rating_sum = before + self.problem.party_rating_sums[party];
            if self.can_improve(depth + 1, teams) {
                self.place_party(depth + 1, teams);
            }
            teams[at].parties.pop();
            teams[at].open_seats += self.problem.party_size(party);
            teams[at].rating_sum = before;
        }
    }

    /// The teams that `party` could join, the one that greedy would choose first.
    fn teams_by_preference(&self, teams: &[PartialTeam], party: usize) -> Vec<usize> {
        let sizes = &self.problem.spec.team_sizes;
        let is_first_empty = |at: usize| {
            let later = at + 1..teams.len();
            !teams[at].parties.is_empty()
                || !later.into_iter().any(|other| teams[other].parties.is_empty() && sizes[other] == sizes[at])
        };
        let fits = (0..teams.len()).filter(|&at| is_first_empty(at) && self.problem.party_fits(&teams[at], party));
        let mut fits: Vec<usize> = fits.collect();
        let total = |at: usize| self.problem.team_strength(at, teams[at].rating_sum);
        fits.sort_by(|&a, &b| total(a).total_cmp(&total(b)).then(b.cmp(&a)));
        fits
    }

    fn can_improve(&self, depth: usize, teams: &[PartialTeam]) -> bool {
        self.remaining.as_ref().is_none_or(|rest| {
            rest.gap_lower_bound(self.problem, depth, teams) - self.problem.rounding_tolerance < self.best_gap
        })
    }

    /// All are seated. The first split is made as good as it can be at once: the better what is known, the more is cut
    /// off.
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
        self.placement_limit() <= self.placement_count
            || self.is_perfectly_even()
            || self.remaining.is_none() && self.best_teams.is_some()
    }

    fn placement_limit(&self) -> u32 {
        if self.remaining.is_some() { PLACEMENTS_MAX } else { GREEDY_PLACEMENTS_MAX }
    }

    /// As even as sums of these numbers can be told to be.
    fn is_perfectly_even(&self) -> bool {
        self.best_gap <= self.problem.rounding_tolerance
    }
}
