//! Exchanges partners as long as that gains something (2-opt): a–b and c–d become a–c and b–d.

use crate::queue::select::Selector;
use crate::queue::select::maximum_weight::{NeighborLists, pair_weight};

/// Rounds at most; the first two find nearly everything.
const SWEEPS_MAX: usize = 6;

/// Less than this is no gain, only rounding.
const GAIN_MIN: f64 = 1e-9;

/// Who is whose partner by now.
struct Pairing<'c> {
    pool: &'c [u32],
    neighbor_lists: &'c NeighborLists,
    partners: &'c mut [Option<u32>],
    /// What each has in its pair.
    pair_weights: Vec<f64>,
    /// Exchanges so far.
    exchange_count: u32,
    /// When each last changed partners.
    last_changed: Vec<u32>,
    /// When each last looked for a better one in vain.
    last_failed: Vec<Option<u32>>,
}

impl Selector<'_, '_> {
    pub(super) fn improve_by_two_opt(&mut self, pool: &[u32], named: &NeighborLists, partners: &mut [Option<u32>]) {
        let weights = partners.iter().zip(0_u32..).map(|(it, one)| self.compute_pair_weight(pool, one, *it)).collect();
        let (changed, in_vain) = (vec![0; pool.len()], vec![None; pool.len()]);
        let mut couples = Pairing {
            pool,
            neighbor_lists: named,
            partners,
            pair_weights: weights,
            exchange_count: 0,
            last_changed: changed,
            last_failed: in_vain,
        };
        for _ in 0..SWEEPS_MAX {
            let mut gained = false;
            for one in 0..pool.len() as u32 {
                if couples.is_unchanged_since_failure(one) {
                    continue;
                }
                let found = self.try_exchange(&mut couples, one);
                couples.last_failed[one as usize] = (!found).then_some(couples.exchange_count);
                gained |= found;
            }
            if !gained || self.progress.truncated {
                return;
            }
        }
    }

    /// Gives `one` a heavier partner, if everybody concerned together gains by it.
    fn try_exchange(&mut self, couples: &mut Pairing<'_>, one: u32) -> bool {
        for &(wanted, heavier) in couples.neighbor_lists.neighbors_of(one) {
            let had = couples.pair_weights[one as usize];
            // Any gain has an end whose new pair is heavier than its old one; that end finds it.
            if heavier <= had {
                return false;
            }
            let (left, lost) = (couples.partners[one as usize], couples.partners[wanted as usize]);
            let old = had + couples.pair_weights[wanted as usize];
            let consoled = match (left, lost) {
                (Some(left), Some(lost)) => {
                    let most = couples.neighbor_lists.neighbors_of(left).first().map_or(0.0, |it| it.1);
                    if heavier + most <= old + GAIN_MIN {
                        continue;
                    }
                    self.known_or_computed_weight(couples, left, lost)
                }
                _ => 0.0,
            };
            if old + GAIN_MIN < heavier + consoled && (0.0 < consoled || left.is_none() || lost.is_none()) {
                couples.exchange_count += 1;
                couples.pair(one, wanted, heavier);
                match (left, lost) {
                    (Some(left), Some(lost)) => couples.pair(left, lost, consoled),
                    (Some(alone), None) | (None, Some(alone)) => couples.unpair(alone),
                    (None, None) => {}
                }
                return true;
            }
        }
        false
    }

    fn known_or_computed_weight(&mut self, couples: &Pairing<'_>, one: u32, other: u32) -> f64 {
        let known = couples.neighbor_lists.neighbors_of(one).iter().find(|it| it.0 == other).map(|it| it.1);
        known.unwrap_or_else(|| self.compute_pair_weight(couples.pool, one, Some(other)))
    }

    /// What a pair weighs; 0 when it may not be.
    fn compute_pair_weight(&mut self, pool: &[u32], one: u32, other: Option<u32>) -> f64 {
        let Some(other) = other else { return 0.0 };
        let (one, other) = (pool[one as usize], pool[other as usize]);
        if !self.progress.spend_pair_check() || self.pass_state.check_pair(one, other).is_err() {
            return 0.0;
        }
        let reached = self.pass_state.pair_quality(one, other, self.progress);
        let nearness = self.pass_state.key_distance(one, other);
        reached.map_or(0.0, |reached| pair_weight(&self.pass_state.input.queue.quality, reached, nearness))
    }
}

impl Pairing<'_> {
    /// Whether `one` looked in vain, and neither it nor anybody whom it names has changed partners since: all that it goes by is
    /// as it was.
    fn is_unchanged_since_failure(&self, one: u32) -> bool {
        let Some(looked) = self.last_failed[one as usize] else { return false };
        let mut concerned = self.neighbor_lists.neighbors_of(one).iter().map(|it| it.0).chain([one]);
        concerned.all(|it| self.last_changed[it as usize] <= looked)
    }

    fn pair(&mut self, one: u32, other: u32, weight: f64) {
        self.set_partner(one, Some(other), weight);
        self.set_partner(other, Some(one), weight);
    }

    fn unpair(&mut self, alone: u32) {
        self.set_partner(alone, None, 0.0);
    }

    fn set_partner(&mut self, one: u32, partner: Option<u32>, weight: f64) {
        let one = one as usize;
        (self.partners[one], self.pair_weights[one], self.last_changed[one]) = (partner, weight, self.exchange_count);
    }
}
