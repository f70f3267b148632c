//! Exchanges partners as long as that gains something (2-opt): a–b and c–d become a–c and b–d.

use crate::domain::queue::select::Work;
use crate::domain::queue::select::together::{Named, weight};

/// Rounds at most; the first two find nearly everything.
const SWEEPS_MAX: usize = 6;

/// Less than this is no gain, only rounding.
const GAIN_MIN: f64 = 1e-9;

impl Work<'_, '_> {
    pub(super) fn exchange(&mut self, pool: &[u32], named: &Named, partners: &mut [Option<u32>]) {
        let mut weights: Vec<f64> = partners.iter().zip(0_u32..).map(|(it, one)| self.weigh(pool, one, *it)).collect();
        for _ in 0..SWEEPS_MAX {
            let mut gained = false;
            for one in 0..pool.len() as u32 {
                gained |= self.better(pool, named, partners, &mut weights, one);
            }
            if !gained || self.desk.out_of_looks {
                return;
            }
        }
    }

    /// Gives `one` a heavier partner, if everybody concerned together gains by it.
    fn better(
        &mut self,
        pool: &[u32],
        named: &Named,
        partners: &mut [Option<u32>],
        weights: &mut [f64],
        one: u32,
    ) -> bool {
        for &(wanted, heavier) in named.by(one) {
            let had = weights[one as usize];
            // Any gain has an end whose new pair is heavier than its old one; that end finds it.
            if heavier <= had {
                return false;
            }
            let (left, lost) = (partners[one as usize], partners[wanted as usize]);
            let old = had + weights[wanted as usize];
            let consoled = match (left, lost) {
                (Some(left), Some(lost)) => {
                    let most = named.by(left).first().map_or(0.0, |it| it.1);
                    if heavier + most <= old + GAIN_MIN {
                        continue;
                    }
                    self.named_or_weighed(pool, named, left, lost)
                }
                _ => 0.0,
            };
            if old + GAIN_MIN < heavier + consoled && (0.0 < consoled || left.is_none() || lost.is_none()) {
                join(partners, weights, one, wanted, heavier);
                match (left, lost) {
                    (Some(left), Some(lost)) => join(partners, weights, left, lost, consoled),
                    (Some(alone), None) | (None, Some(alone)) => {
                        (partners[alone as usize], weights[alone as usize]) = (None, 0.0);
                    }
                    (None, None) => {}
                }
                return true;
            }
        }
        false
    }

    fn named_or_weighed(&mut self, pool: &[u32], named: &Named, one: u32, other: u32) -> f64 {
        let known = named.by(one).iter().find(|it| it.0 == other).map(|it| it.1);
        known.unwrap_or_else(|| self.weigh(pool, one, Some(other)))
    }

    /// What a pair weighs; 0 when it may not be.
    fn weigh(&mut self, pool: &[u32], one: u32, other: Option<u32>) -> f64 {
        let Some(other) = other else { return 0.0 };
        let (one, other) = (pool[one as usize], pool[other as usize]);
        if !self.desk.look() || self.field.meet(one, other).is_err() {
            return 0.0;
        }
        let reached = self.field.pair_quality(one, other, self.desk);
        let nearness = self.field.nearness(one, other);
        reached.map_or(0.0, |reached| weight(&self.field.input.queue.quality, reached, nearness))
    }
}

fn join(partners: &mut [Option<u32>], weights: &mut [f64], one: u32, other: u32, weight: f64) {
    (partners[one as usize], weights[one as usize]) = (Some(other), weight);
    (partners[other as usize], weights[other as usize]) = (Some(one), weight);
}
