//! Plackett-Luce model after Weng and Lin, *A Bayesian approximation method for online ranking*, JMLR 12 (2011),
//! algorithm 4. Two additions are from OpenSkill: tau keeps deviations from vanishing, and gamma slows how fast they
//! shrink. Implemented here because no maintained crate has it.

use crate::rating::skill::{Side, Skill};

/// Plackett-Luce parameters of a ruleset.
#[derive(Clone, Copy, Debug)]
pub(super) struct Constants {
    /// Deviation of the performance of a side in one match.
    pub(super) beta: f64,
    /// Minimum factor by which a variance shrinks.
    pub(super) kappa: f64,
    /// Added (in quadrature) to each deviation before a match.
    pub(super) tau: f64,
}

/// Sums over the players of a side.
#[derive(Clone, Copy, Debug)]
struct SideSum {
    rating_sum: f64,
    variance_sum: f64,
    rank: u32,
}

pub(super) fn rate_match(sides: &[Side], constants: Constants) -> Vec<Vec<Skill>> {
    let variance_with_tau = |skill: &Skill| skill.estimate.deviation.powi(2) + constants.tau.powi(2);
    let sums: Vec<SideSum> = sides
        .iter()
        .map(|side| SideSum {
            rating_sum: side.players.iter().map(|skill| skill.estimate.rating).sum(),
            variance_sum: side.players.iter().map(variance_with_tau).sum(),
            rank: side.rank,
        })
        .collect();
    let c = sums.iter().map(|sum| sum.variance_sum + constants.beta.powi(2)).sum::<f64>().sqrt();
    let changes = omega_and_delta(&sums, c);
    let rated_side = |((side, sum), (shift, shrink)): ((&Side, &SideSum), &(f64, f64))| {
        let rated_player = |skill: &Skill| {
            let variance = variance_with_tau(skill);
            let share = if sum.variance_sum > 0.0 { variance / sum.variance_sum } else { 0.0 };
            let mut after = *skill;
            after.estimate.rating += share * shift;
            after.estimate.deviation = (variance * (1.0 - share * shrink).max(constants.kappa)).sqrt();
            after
        };
        side.players.iter().map(rated_player).collect()
    };
    sides.iter().zip(&sums).zip(&changes).map(rated_side).collect()
}

/// Change of each side's rating sum and relative decrease of its variance: Omega and Delta of the paper.
///
/// The ranking is a series of choices: the first side among all, then the first among the rest, and so on. `p` is the
/// probability that a choice falls on the side.
fn omega_and_delta(sums: &[SideSum], c: f64) -> Vec<(f64, f64)> {
    let mut changes = vec![(0.0, 0.0); sums.len()];
    for (chosen, choice) in sums.iter().enumerate() {
        let rest = || sums.iter().enumerate().filter(|(_, side)| choice.rank <= side.rank);
        let tied = sums.iter().filter(|side| side.rank == choice.rank).count() as f64;
        // Subtracts the maximum first, so that no exponential overflows.
        let max_rating_sum = rest().map(|(_, side)| side.rating_sum).fold(f64::NEG_INFINITY, f64::max);
        let strength = |side: &SideSum| ((side.rating_sum - max_rating_sum) / c).exp();
        let total: f64 = rest().map(|(_, side)| strength(side)).sum();
        for (index, side) in rest() {
            let p = strength(side) / total;
            let (omega, delta) = &mut changes[index];
            *omega += if index == chosen { 1.0 - p } else { -p } / tied;
            *delta += p * (1.0 - p) / tied;
        }
    }
    for ((omega, delta), side) in changes.iter_mut().zip(sums) {
        let gamma = side.variance_sum.sqrt() / c;
        *omega *= side.variance_sum / c;
        *delta *= gamma * side.variance_sum / (c * c);
    }
    changes
}
