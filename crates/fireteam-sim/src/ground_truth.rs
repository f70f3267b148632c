//! How good players really are, and what comes of a match of theirs: the one thing that no matchmaker knows.
//!
//! Strengths are in points of Elo: 400 are ten to one. Of several sides the order of arrival is drawn after Plackett
//! and Luce, by which of any two sides each comes in before the other with just the chance that Elo gives it; a team is
//! as strong as its mean.

use rand_distr::{Distribution, Gumbel};

use crate::rng::SimRng;

/// Points of Elo for odds of e to one.
const ELO_POINTS_PER_E_FOLD: f64 = 400.0 / std::f64::consts::LN_10;

/// The chance of each side to come in first.
pub fn win_probabilities(strengths: &[f64]) -> Vec<f64> {
    let best = strengths.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> =
        strengths.iter().map(|strength| ((strength - best) / ELO_POINTS_PER_E_FOLD).exp()).collect();
    let total: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / total).collect()
}

/// Where each side comes in: 1 is best, no two the same.
pub fn draw_ranks(strengths: &[f64], dice: &mut SimRng) -> Vec<u32> {
    let luck = Gumbel::new(0.0, 1.0).ok();
    let drawn: Vec<f64> = strengths
        .iter()
        .map(|strength| strength / ELO_POINTS_PER_E_FOLD + luck.map_or(0.0, |luck| luck.sample(dice)))
        .collect();
    let mut order: Vec<usize> = (0..drawn.len()).collect();
    order.sort_by(|&one, &other| drawn[other].total_cmp(&drawn[one]));
    let mut ranks = vec![0; drawn.len()];
    for (place, side) in order.into_iter().enumerate() {
        ranks[side] = place as u32 + 1;
    }
    ranks
}

/// The chance that one beats another.
pub fn pair_win_probability(one: f64, other: f64) -> f64 {
    1.0 / (1.0 + ((other - one) / ELO_POINTS_PER_E_FOLD).exp())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{RngPurpose, stream_rng};

    #[test]
    fn drawn_ranks_follow_elo_between_any_two_sides() {
        let strengths = [0.0, 200.0, -100.0, 50.0];
        let mut dice = stream_rng(1, RngPurpose::MatchPlay, 0, 0);
        let rounds = 20_000;
        let mut before = 0;
        let mut first = [0; 4];
        for _ in 0..rounds {
            let ranks = draw_ranks(&strengths, &mut dice);
            before += u32::from(ranks[1] < ranks[0]);
            first[ranks.iter().position(|rank| *rank == 1).unwrap()] += 1;
        }
        let share = f64::from(before) / f64::from(rounds);
        assert!((share - pair_win_probability(200.0, 0.0)).abs() < 0.015, "{share}");
        for (count, chance) in first.iter().zip(win_probabilities(&strengths)) {
            assert!((f64::from(*count) / f64::from(rounds) - chance).abs() < 0.015, "{first:?}");
        }
        assert!((pair_win_probability(400.0, 0.0) - 10.0 / 11.0).abs() < 1e-12);
    }
}
