//! How uneven teams must become at least, whatever is still done: what lets a search turn back without losing anything.

use crate::domain::team::board::{Board, Team};

/// What those who are still to be seated can add to a team, for every depth of the search.
pub(super) struct Rest {
    /// `least[depth][n]`: the sum of the n lowest ratings among those who are seated from `depth` on.
    least: Vec<Vec<f64>>,
    /// The sum of the n highest.
    most: Vec<Vec<f64>>,
    players: f64,
    total: f64,
}

impl Rest {
    pub(super) fn new(board: &Board<'_>, order: &[usize]) -> Self {
        let mut rest = Self { least: Vec::new(), most: Vec::new(), players: 0.0, total: 0.0 };
        for depth in 0..=order.len() {
            let ratings = order[depth..].iter().flat_map(|&party| board.parties[party].ratings);
            let mut ratings: Vec<f64> = ratings.copied().collect();
            ratings.sort_unstable_by(f64::total_cmp);
            rest.least.push(running(ratings.iter()));
            rest.most.push(running(ratings.iter().rev()));
        }
        rest.players = board.spec.sizes.iter().map(|&size| f64::from(size)).sum();
        rest.total = board.sums.iter().sum();
        rest
    }

    /// No split that goes on from these teams has a smaller gap than this, rounding apart.
    ///
    /// A team that has n seats open ends with at least its sum and the n lowest ratings that are left, and with at most its sum and
    /// the n highest; parties that stay whole only narrow that. Then two things hold. The gap is no less than what lies between
    /// one team's least and another's most. And the other teams have what one team leaves, so one of them is on the far side
    /// of their common mean.
    pub(super) fn least_gap(&self, board: &Board<'_>, depth: usize, teams: &[Team]) -> f64 {
        let (mut highest_least, mut lowest_most, mut apart) = (f64::NEG_INFINITY, f64::INFINITY, 0.0_f64);
        for (at, team) in teams.iter().enumerate() {
            let size = f64::from(board.spec.sizes[at]);
            let least = team.sum + self.least[depth][team.open];
            let most = team.sum + self.most[depth][team.open];
            highest_least = highest_least.max(board.measure(at, least));
            lowest_most = lowest_most.min(board.measure(at, most));
            if self.players <= size {
                continue;
            }
            let others = |sum: f64| (self.total - sum) / (self.players - size);
            let scale = if board.alike { size } else { 1.0 };
            apart = apart.max((least / size - others(least)) * scale).max((others(most) - most / size) * scale);
        }
        apart.max(highest_least - lowest_most)
    }
}

/// The sums of the first 0, 1, 2 and so on.
fn running<'a>(ratings: impl Iterator<Item = &'a f64>) -> Vec<f64> {
    let sums = ratings.scan(0.0, |sum, rating| {
        *sum += rating;
        Some(*sum)
    });
    std::iter::once(0.0).chain(sums).collect()
}
