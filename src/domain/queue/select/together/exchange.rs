//! Exchanges partners as long as that gains something (2-opt): a–b and c–d become a–c and b–d.

use crate::domain::queue::select::Work;
use crate::domain::queue::select::together::{Named, weight};

/// Rounds at most; the first two find nearly everything.
const SWEEPS_MAX: usize = 6;

/// Less than this is no gain, only rounding.
const GAIN_MIN: f64 = 1e-9;

/// Who is whose partner by now.
struct Couples<'c> {
    pool: &'c [u32],
    named: &'c Named,
    partners: &'c mut [Option<u32>],
    /// What each has in its pair.
    weights: Vec<f64>,
    /// Exchanges so far.
    moment: u32,
    /// When each last changed partners.
    changed: Vec<u32>,
    /// When each last looked for a better one in vain.
    in_vain: Vec<Option<u32>>,
}

impl Work<'_, '_> {
    pub(super) fn exchange(&mut self, pool: &[u32], named: &Named, partners: &mut [Option<u32>]) {
        let weights = partners.iter().zip(0_u32..).map(|(it, one)| self.weigh(pool, one, *it)).collect();
        let (changed, in_vain) = (vec![0; pool.len()], vec![None; pool.len()]);
        let mut couples = Couples { pool, named, partners, weights, moment: 0, changed, in_vain };
        for _ in 0..SWEEPS_MAX {
            let mut gained = false;
            for one in 0..pool.len() as u32 {
                if couples.is_settled(one) {
                    continue;
                }
                let found = self.better(&mut couples, one);
                couples.in_vain[one as usize] = (!found).then_some(couples.moment);
                gained |= found;
            }
            if !gained || self.desk.out_of_looks {
                return;
            }
        }
    }

    /// Gives `one` a heavier partner, if everybody concerned together gains by it.
    fn better(&mut self, couples: &mut Couples<'_>, one: u32) -> bool {
        for &(wanted, heavier) in couples.named.by(one) {
            let had = couples.weights[one as usize];
            // Any gain has an end whose new pair is heavier than its old one; that end finds it.
            if heavier <= had {
                return false;
            }
            let (left, lost) = (couples.partners[one as usize], couples.partners[wanted as usize]);
            let old = had + couples.weights[wanted as usize];
            let consoled = match (left, lost) {
                (Some(left), Some(lost)) => {
                    let most = couples.named.by(left).first().map_or(0.0, |it| it.1);
                    if heavier + most <= old + GAIN_MIN {
                        continue;
                    }
                    self.named_or_weighed(couples, left, lost)
                }
                _ => 0.0,
            };
            if old + GAIN_MIN < heavier + consoled && (0.0 < consoled || left.is_none() || lost.is_none()) {
                couples.moment += 1;
                couples.join(one, wanted, heavier);
                match (left, lost) {
                    (Some(left), Some(lost)) => couples.join(left, lost, consoled),
                    (Some(alone), None) | (None, Some(alone)) => couples.part(alone),
                    (None, None) => {}
                }
                return true;
            }
        }
        false
    }

    fn named_or_weighed(&mut self, couples: &Couples<'_>, one: u32, other: u32) -> f64 {
        let known = couples.named.by(one).iter().find(|it| it.0 == other).map(|it| it.1);
        known.unwrap_or_else(|| self.weigh(couples.pool, one, Some(other)))
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

impl Couples<'_> {
    /// Whether `one` looked in vain, and neither it nor anybody whom it names has changed partners since: all that it goes by is
    /// as it was.
    fn is_settled(&self, one: u32) -> bool {
        let Some(looked) = self.in_vain[one as usize] else { return false };
        let mut concerned = self.named.by(one).iter().map(|it| it.0).chain([one]);
        concerned.all(|it| self.changed[it as usize] <= looked)
    }

    fn join(&mut self, one: u32, other: u32, weight: f64) {
        self.set(one, Some(other), weight);
        self.set(other, Some(one), weight);
    }

    fn part(&mut self, alone: u32) {
        self.set(alone, None, 0.0);
    }

    fn set(&mut self, one: u32, partner: Option<u32>, weight: f64) {
        let one = one as usize;
        (self.partners[one], self.weights[one], self.changed[one]) = (partner, weight, self.moment);
    }
}
