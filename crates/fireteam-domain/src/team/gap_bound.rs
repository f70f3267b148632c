//! Lower bound of the rating gap of a partial split, for pruning the search without losing the best split.

use crate::team::split_problem::{PartialTeam, SplitProblem};

/// Rating sums that the parties still to be placed can add to a team, for each depth of the search.
pub(super) struct RemainingRatingBounds {
    /// `lowest_rating_sums[depth][n]`: sum of the n lowest ratings among the players placed from `depth` on.
    lowest_rating_sums: Vec<Vec<f64>>,
    /// Same for the n highest ratings.
    highest_rating_sums: Vec<Vec<f64>>,
    match_player_count: f64,
    match_rating_total: f64,
}

impl RemainingRatingBounds {
    pub(super) fn new(problem: &SplitProblem<'_>, placement_order: &[usize]) -> Self {
        let mut remaining = Self {
            lowest_rating_sums: Vec::new(),
            highest_rating_sums: Vec::new(),
            match_player_count: 0.0,
            match_rating_total: 0.0,
        };
        for depth in 0..=placement_order.len() {
            let ratings = placement_order[depth..].iter().flat_map(|&party| problem.parties[party].ratings);
            let mut ratings: Vec<f64> = ratings.copied().collect();
            ratings.sort_unstable_by(f64::total_cmp);
            remaining.lowest_rating_sums.push(prefix_sums(ratings.iter()));
            remaining.highest_rating_sums.push(prefix_sums(ratings.iter().rev()));
        }
        remaining.match_player_count = problem.spec.team_sizes.iter().map(|&size| f64::from(size)).sum();
        remaining.match_rating_total = problem.party_rating_sums.iter().sum();
        remaining
    }

    /// Lower bound of the gap of each split that extends these teams, except for rounding.
    ///
    /// A team with n open seats ends with at least its sum plus the n lowest remaining ratings, and at most its sum
    /// plus the n highest. Whole parties only narrow this range. Two bounds follow. First, the gap is at least the
    /// difference between one team's minimum and another team's maximum. Second, the other teams share the remaining
    /// rating, so one of them is on the far side of their common mean.
    pub(super) fn gap_lower_bound(&self, problem: &SplitProblem<'_>, depth: usize, teams: &[PartialTeam]) -> f64 {
        let (mut highest_minimum, mut lowest_maximum, mut largest_gap) = (f64::NEG_INFINITY, f64::INFINITY, 0.0_f64);
        for (index, team) in teams.iter().enumerate() {
            let size = f64::from(problem.spec.team_sizes[index]);
            let minimum = team.rating_sum + self.lowest_rating_sums[depth][team.open_seats];
            let maximum = team.rating_sum + self.highest_rating_sums[depth][team.open_seats];
            highest_minimum = highest_minimum.max(problem.team_strength(index, minimum));
            lowest_maximum = lowest_maximum.min(problem.team_strength(index, maximum));
            if self.match_player_count <= size {
                continue;
            }
            let mean_of_others = |sum: f64| (self.match_rating_total - sum) / (self.match_player_count - size);
            let scale = if problem.equal_sizes { size } else { 1.0 };
            largest_gap = largest_gap
                .max((minimum / size - mean_of_others(minimum)) * scale)
                .max((mean_of_others(maximum) - maximum / size) * scale);
        }
        largest_gap.max(highest_minimum - lowest_maximum)
    }
}

/// Sums of the first 0, 1, 2 and so on ratings.
fn prefix_sums<'a>(ratings: impl Iterator<Item = &'a f64>) -> Vec<f64> {
    let sums = ratings.scan(0.0, |sum, rating| {
        *sum += rating;
        Some(*sum)
    });
    std::iter::once(0.0).chain(sums).collect()
}
