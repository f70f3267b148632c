//! True skill of players, and match results drawn from it. No matchmaker knows it.
//!
//! True skills are in Elo points: 400 mean odds of ten to one. The ranking of several sides is drawn by Plackett-Luce,
//! so that each pair has Elo's probabilities. The skill of a team is its mean.

use rand_distr::{Distribution, Gumbel};

use crate::rng::SimRng;

/// Elo points for odds of e to one.
const ELO_POINTS_PER_E_FOLD: f64 = 400.0 / std::f64::consts::LN_10;

/// Win probability of each side.
pub fn win_probabilities(strengths: &[f64]) -> Vec<f64> {
    let best = strengths.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> =
        strengths.iter().map(|strength| ((strength - best) / ELO_POINTS_PER_E_FOLD).exp()).collect();
    let total: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / total).collect()
}

/// Draws the rank of each side: 1 is best, without ties.
pub fn draw_ranks(strengths: &[f64], rng: &mut SimRng) -> Vec<u32> {
    let noise = Gumbel::new(0.0, 1.0).ok();
    let performances: Vec<f64> = strengths
        .iter()
        .map(|strength| strength / ELO_POINTS_PER_E_FOLD + noise.map_or(0.0, |noise| noise.sample(rng)))
        .collect();
    let mut order: Vec<usize> = (0..performances.len()).collect();
    order.sort_by(|&one, &other| performances[other].total_cmp(&performances[one]));
    let mut ranks = vec![0; performances.len()];
    for (position, side) in order.into_iter().enumerate() {
        ranks[side] = position as u32 + 1;
    }
    ranks
}

/// Probability that `one` beats `other`.
pub fn pair_win_probability(strength: f64, other_strength: f64) -> f64 {
    1.0 / (1.0 + ((other_strength - strength) / ELO_POINTS_PER_E_FOLD).exp())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{RngPurpose, stream_rng};

    #[test]
    fn drawn_ranks_follow_elo_between_any_two_sides() {
        let strengths = [0.0, 200.0, -100.0, 50.0];
        let mut rng = stream_rng(1, RngPurpose::MatchPlay, 0, 0);
        let round_count = 20_000;
        let mut wins_of_second = 0;
        let mut first_places = [0; 4];
        for _ in 0..round_count {
            let ranks = draw_ranks(&strengths, &mut rng);
            wins_of_second += u32::from(ranks[1] < ranks[0]);
            first_places[ranks.iter().position(|rank| *rank == 1).unwrap()] += 1;
        }
        let share = f64::from(wins_of_second) / f64::from(round_count);
        assert!((share - pair_win_probability(200.0, 0.0)).abs() < 0.015, "{share}");
        for (count, probability) in first_places.iter().zip(win_probabilities(&strengths)) {
            assert!((f64::from(*count) / f64::from(round_count) - probability).abs() < 0.015, "{first_places:?}");
        }
        assert!((pair_win_probability(400.0, 0.0) - 10.0 / 11.0).abs() < 1e-12);
    }
}
