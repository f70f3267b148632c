//! 2-opt improvement of a pairing: exchanges partners, a–b and c–d to a–c and b–d, while the total weight grows.

use crate::queue::select::Selector;
use crate::queue::select::maximum_weight::{WeightedCandidateLists, pair_weight};

/// Maximum number of sweeps; the first two find nearly all gains.
const SWEEPS_MAX: usize = 6;

/// Smallest gain; smaller differences are rounding errors.
const GAIN_MIN: f64 = 1e-9;

/// Current partners of all tickets in a pool.
struct Pairing<'c> {
    pool: &'c [u32],
    neighbor_lists: &'c WeightedCandidateLists,
    partners: &'c mut [Option<u32>],
    /// Weight of each ticket's current pair; 0 if unpaired.
    pair_weights: Vec<f64>,
    /// Number of exchanges so far.
    exchange_count: u32,
    /// Value of `exchange_count` when each ticket last changed its partner.
    last_changed: Vec<u32>,
    /// Value of `exchange_count` when each ticket last found no exchange.
    last_failed: Vec<Option<u32>>,
}

impl Selector<'_, '_> {
    pub(super) fn improve_by_two_opt(
        &mut self,
        pool: &[u32],
        neighbor_lists: &WeightedCandidateLists,
        partners: &mut [Option<u32>],
    ) {
        let pair_weights =
            partners.iter().zip(0_u32..).map(|(it, one)| self.compute_pair_weight(pool, one, *it)).collect();
        let (last_changed, last_failed) = (vec![0; pool.len()], vec![None; pool.len()]);
        let mut pairing =
            Pairing { pool, neighbor_lists, partners, pair_weights, exchange_count: 0, last_changed, last_failed };
        for _ in 0..SWEEPS_MAX {
            let mut improved = false;
            for one in 0..pool.len() as u32 {
                if pairing.is_unchanged_since_failure(one) {
                    continue;
                }
                let found = self.try_exchange(&mut pairing, one);
                pairing.last_failed[one as usize] = (!found).then_some(pairing.exchange_count);
                improved |= found;
            }
            if !improved || self.progress.truncated {
                return;
            }
        }
    }

    /// Gives `one` a heavier partner if the total weight of the affected pairs grows.
    fn try_exchange(&mut self, pairing: &mut Pairing<'_>, one: u32) -> bool {
        for &(other, new_weight) in pairing.neighbor_lists.candidates_by_weight_of(one) {
            let current_weight = pairing.pair_weights[one as usize];
            // Every gain has a ticket whose new pair is heavier than its old one, so that ticket finds it.
            if new_weight <= current_weight {
                return false;
            }
            let (old_partner, other_partner) = (pairing.partners[one as usize], pairing.partners[other as usize]);
            let old_total = current_weight + pairing.pair_weights[other as usize];
            let rest_weight = match (old_partner, other_partner) {
                (Some(old_partner), Some(other_partner)) => {
                    let heaviest_rest =
                        pairing.neighbor_lists.candidates_by_weight_of(old_partner).first().map_or(0.0, |it| it.1);
                    if new_weight + heaviest_rest <= old_total + GAIN_MIN {
                        continue;
                    }
                    self.known_or_computed_weight(pairing, old_partner, other_partner)
                }
                _ => 0.0,
            };
            if old_total + GAIN_MIN < new_weight + rest_weight
                && (rest_weight > 0.0 || old_partner.is_none() || other_partner.is_none())
            {
                pairing.exchange_count += 1;
                pairing.pair(one, other, new_weight);
                match (old_partner, other_partner) {
                    (Some(old_partner), Some(other_partner)) => pairing.pair(old_partner, other_partner, rest_weight),
                    (Some(unpaired), None) | (None, Some(unpaired)) => pairing.unpair(unpaired),
                    (None, None) => {}
                }
                return true;
            }
        }
        false
    }

    fn known_or_computed_weight(&mut self, pairing: &Pairing<'_>, one: u32, other: u32) -> f64 {
        let known = pairing.neighbor_lists.candidates_by_weight_of(one).iter().find(|it| it.0 == other).map(|it| it.1);
        known.unwrap_or_else(|| self.compute_pair_weight(pairing.pool, one, Some(other)))
    }

    /// Weight of a pair; 0 if it is not allowed.
    fn compute_pair_weight(&mut self, pool: &[u32], one: u32, other: Option<u32>) -> f64 {
        let Some(other) = other else { return 0.0 };
        let (one, other) = (pool[one as usize], pool[other as usize]);
        if !self.progress.spend_pair_check() || self.pass_state.check_pair(one, other).is_err() {
            return 0.0;
        }
        let reached = self.pass_state.pair_quality(one, other, self.progress);
        let distance = self.pass_state.sort_key_distance(one, other);
        reached.map_or(0.0, |reached| pair_weight(&self.pass_state.input.queue.quality, reached, distance))
    }
}

impl Pairing<'_> {
    /// Whether `one` found no exchange, and neither it nor its candidates changed partners since then.
    fn is_unchanged_since_failure(&self, one: u32) -> bool {
        let Some(failed_at) = self.last_failed[one as usize] else { return false };
        let mut affected = self.neighbor_lists.candidates_by_weight_of(one).iter().map(|it| it.0).chain([one]);
        affected.all(|it| self.last_changed[it as usize] <= failed_at)
    }

    fn pair(&mut self, one: u32, other: u32, weight: f64) {
        self.set_partner(one, Some(other), weight);
        self.set_partner(other, Some(one), weight);
    }

    fn unpair(&mut self, one: u32) {
        self.set_partner(one, None, 0.0);
    }

    fn set_partner(&mut self, one: u32, partner: Option<u32>, weight: f64) {
        let one = one as usize;
        (self.partners[one], self.pair_weights[one], self.last_changed[one]) = (partner, weight, self.exchange_count);
    }
}
