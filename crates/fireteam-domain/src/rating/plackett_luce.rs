//! The Plackett-Luce model after Weng and Lin, *A Bayesian approximation method for online ranking*, JMLR 12 (2011), algorithm 4,
//! with what OpenSkill adds to it (S2-1, D-10): tau, which keeps deviations from vanishing, and gamma, which holds back how fast
//! they shrink. Ours, since no crate that is kept has it.

use crate::rating::{Side, Skill};

/// What a ruleset says of Plackett-Luce that a match needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Constants {
    /// How much luck there is in a side's game.
    pub(super) beta: f64,
    /// The least factor by which a variance shrinks.
    pub(super) kappa: f64,
    /// Added to every deviation before a game.
    pub(super) tau: f64,
}

/// A side as one: the sums of its players.
#[derive(Clone, Copy, Debug)]
struct SideSum {
    rating_sum: f64,
    variance_sum: f64,
    rank: u32,
}

pub(super) fn rate_match(sides: &[Side], constants: Constants) -> Vec<Vec<Skill>> {
    let grown = |skill: &Skill| skill.estimate.deviation.powi(2) + constants.tau.powi(2);
    let sums: Vec<SideSum> = sides
        .iter()
        .map(|side| SideSum {
            rating_sum: side.players.iter().map(|skill| skill.estimate.rating).sum(),
            variance_sum: side.players.iter().map(grown).sum(),
            rank: side.rank,
        })
        .collect();
    let c = sums.iter().map(|sum| sum.variance_sum + constants.beta.powi(2)).sum::<f64>().sqrt();
    let changes = omega_and_delta(&sums, c);
    let rated = |((side, sum), (shift, shrink)): ((&Side, &SideSum), &(f64, f64))| {
        let each = |skill: &Skill| {
            let variance = grown(skill);
            let share = if 0.0 < sum.variance_sum { variance / sum.variance_sum } else { 0.0 };
            let mut after = *skill;
            after.estimate.rating += share * shift;
            after.estimate.deviation = (variance * (1.0 - share * shrink).max(constants.kappa)).sqrt();
            after
        };
        side.players.iter().map(each).collect()
    };
    sides.iter().zip(&sums).zip(&changes).map(rated).collect()
}

/// Of each side, how far its sum moves and by which part its variance shrinks: the paper's Omega and Delta.
///
/// The order of a match is a series of choices: the first of all, then the first of the rest, and so on. `p` is the chance with
/// which each choice would fall on the side.
fn omega_and_delta(sums: &[SideSum], c: f64) -> Vec<(f64, f64)> {
    let mut changes = vec![(0.0, 0.0); sums.len()];
    for (chosen, choice) in sums.iter().enumerate() {
        let rest = || sums.iter().enumerate().filter(|(_, side)| choice.rank <= side.rank);
        let level = sums.iter().filter(|side| side.rank == choice.rank).count() as f64;
        // The greatest is taken away first, so that no power overflows.
        let greatest = rest().map(|(_, side)| side.rating_sum).fold(f64::NEG_INFINITY, f64::max);
        let strength = |side: &SideSum| ((side.rating_sum - greatest) / c).exp();
        let total: f64 = rest().map(|(_, side)| strength(side)).sum();
        for (place, side) in rest() {
            let p = strength(side) / total;
            let (omega, delta) = &mut changes[place];
            *omega += if place == chosen { 1.0 - p } else { -p } / level;
            *delta += p * (1.0 - p) / level;
        }
    }
    for ((omega, delta), side) in changes.iter_mut().zip(sums) {
        let gamma = side.variance_sum.sqrt() / c;
        *omega *= side.variance_sum / c;
        *delta *= gamma * side.variance_sum / (c * c);
    }
    changes
}
