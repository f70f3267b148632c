//! How uneven teams must become at least, whatever is still done: what lets a search turn back without losing anything.

use crate::team::split_problem::{PartialTeam, SplitProblem};

/// What those who are still to be seated can add to a team, for every depth of the search.
pub(super) struct RemainingPlayers {
    /// `least[depth][n]`: the sum of the n lowest ratings among those who are seated from `depth` on.
    lowest_rating_sums: Vec<Vec<f64>>,
    /// The sum of the n highest.
    highest_rating_sums: Vec<Vec<f64>>,
    player_count: f64,
    rating_total: f64,
}

impl RemainingPlayers {
    pub(super) fn new(board: &SplitProblem<'_>, order: &[usize]) -> Self {
        let mut rest = Self {
            lowest_rating_sums: Vec::new(),
            highest_rating_sums: Vec::new(),
            player_count: 0.0,
            rating_total: 0.0,
        };
        for depth in 0..=order.len() {
            let ratings = order[depth..].iter().flat_map(|&party| board.parties[party].ratings);
            let mut ratings: Vec<f64> = ratings.copied().collect();
            ratings.sort_unstable_by(f64::total_cmp);
            rest.lowest_rating_sums.push(prefix_sums(ratings.iter()));
            rest.highest_rating_sums.push(prefix_sums(ratings.iter().rev()));
        }
        rest.player_count = board.spec.team_sizes.iter().map(|&size| f64::from(size)).sum();
        rest.rating_total = board.party_rating_sums.iter().sum();
        rest
    }

    /// No split that goes on from these teams has a smaller gap than this, rounding apart.
    ///
    /// A team that has n seats open ends with at least its sum and the n lowest ratings that are left, and with at most
    /// its sum and the n highest; parties that stay whole only narrow that. Then two things hold. The gap is no less
    /// than what lies between one team's least and another's most. And the other teams have what one team leaves, so
    /// one of them is on the far side of their common mean.
    pub(super) fn gap_lower_bound(&self, board: &SplitProblem<'_>, depth: usize, teams: &[PartialTeam]) -> f64 {
        let (mut highest_least, mut lowest_most, mut apart) = (f64::NEG_INFINITY, f64::INFINITY, 0.0_f64);
        for (at, team) in teams.iter().enumerate() {
            let size = f64::from(board.spec.team_sizes[at]);
            let least = team.rating_sum + self.lowest_rating_sums[depth][team.open_seats];
            let most = team.rating_sum + self.highest_rating_sums[depth][team.open_seats];
            highest_least = highest_least.max(board.team_strength(at, least));
            lowest_most = lowest_most.min(board.team_strength(at, most));
            if self.player_count <= size {
                continue;
            }
            let others = |sum: f64| (self.rating_total - sum) / (self.player_count - size);
            let scale = if board.equal_sizes { size } else { 1.0 };
            apart = apart.max((least / size - others(least)) * scale).max((others(most) - most / size) * scale);
        }
        apart.max(highest_least - lowest_most)
    }
}

/// The sums of the first 0, 1, 2 and so on.
fn prefix_sums<'a>(ratings: impl Iterator<Item = &'a f64>) -> Vec<f64> {
    let sums = ratings.scan(0.0, |sum, rating| {
        *sum += rating;
        Some(*sum)
    });
    std::iter::once(0.0).chain(sums).collect()
}
