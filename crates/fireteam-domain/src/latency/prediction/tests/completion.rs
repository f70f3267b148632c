//! Completion and prediction against the definition, in slow and obvious code.

use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::latency::min_possible_round_trip_ms;
use crate::latency::prediction::tests::{FleetExample, PRECISIONS, PartyExample, any_pair};
use crate::latency::prediction::{PairPrecision, predict};
use crate::latency::predictor_constants::PREDICTOR_V1;
use crate::location_privacy::arc_km;

/// One party by definition.
struct SlowParty {
    floors_ms: BTreeMap<usize, f64>,
    completed_ms: Vec<f64>,
    weights: Vec<f64>,
    residuals_ms: Vec<f64>,
    access_ms: f64,
}

const LINE: [f64; 2] = [14.1456, 0.016567];

impl SlowParty {
    fn new(fleet: &FleetExample, party: &PartyExample) -> Self {
        let count = fleet.places.len();
        let floors_ms: BTreeMap<usize, f64> =
            party.floors.iter().map(|floor| (floor.beacon_id as usize, floor.floor_ms)).collect();
        let arcs_km: Vec<f64> = fleet.places.iter().map(|beacon| arc_km(party.place, *beacon)).collect();
        let mut completed_ms = vec![f64::MAX; count];
        for (via, floor_ms) in &floors_ms {
            for (to, completed_ms) in completed_ms.iter_mut().enumerate() {
                *completed_ms = completed_ms.min(floor_ms + fleet.round_trip_ms(*via, to));
            }
        }
        let weights: Vec<f64> = arcs_km.iter().map(|km| (-km / 800.0).exp() + 1e-6).collect();
        let weight_sum: f64 = weights.iter().sum();
        let excess = |index: usize, ms: f64| ms - (LINE[0] + LINE[1] * arcs_km[index]);
        Self {
            weights: weights.iter().map(|weight| weight / weight_sum).collect(),
            residuals_ms: completed_ms.iter().enumerate().map(|(index, ms)| excess(index, *ms)).collect(),
            access_ms: floors_ms.iter().map(|(index, ms)| ms - LINE[1] * arcs_km[*index]).fold(f64::MAX, f64::min),
            completed_ms,
            floors_ms,
        }
    }

    fn residual_around(&self, other: &Self) -> f64 {
        other.weights.iter().zip(&self.residuals_ms).map(|(weight, ms)| weight * ms).sum()
    }
}

/// The definition's constants of a precision: slack, scale and quantiles.
fn interval_of(precision: PairPrecision) -> (f64, [f64; 3], [f64; 2]) {
    match precision {
        PairPrecision::Exact => (0.0, [0.802471, 0.0403466, 0.248002], [-3.11731, 4.35587]),
        PairPrecision::Search => (12.5, [2.0489, 0.0427542, 0.209638], [-2.95347, 3.74097]),
        PairPrecision::Queue => (25.0, [3.52373, 0.0417714, 0.165274], [-2.82028, 3.58167]),
    }
}

fn is_close(found: f64, expected: f64) -> bool {
    (found - expected).abs() <= 1e-9 * expected.abs().max(1.0)
}

proptest! {
    /// LAT-1: each quantity of a prediction equals its definition, for any fleet and any two parties.
    #[test]
    fn prediction_equals_the_definition((fleet, one, other) in any_pair()) {
        let live = fleet.fleet(PREDICTOR_V1);
        let (slow_one, slow_other) = (SlowParty::new(&fleet, &one), SlowParty::new(&fleet, &other));
        let km = arc_km(one.place, other.place);
        let upper = slow_other.floors_ms.iter().map(|(to, ms)| slow_one.completed_ms[*to] + ms).fold(f64::MAX, f64::min);
        let common = slow_one.floors_ms.iter().filter_map(|(to, ms)| Some(ms - slow_other.floors_ms.get(to)?));
        let lower = common.map(f64::abs).fold(0.0, f64::max);
        let middle = (slow_one.residual_around(&slow_other) + slow_other.residual_around(&slow_one)) / 2.0;
        let access = slow_one.access_ms + slow_other.access_ms;
        for precision in PRECISIONS {
            let found = predict(&live, &one.completed(&live), &other.completed(&live), precision).unwrap();
            let (slack, scale, quantiles) = interval_of(precision);
            let far = 2.54114 + 0.00542558 * km + 0.67139 * upper + 0.346952 * middle;
            let far = far.max(lower - slack).max(0.0).min(upper + slack);
            let near = (32.2039 + 0.0166146 * km + 0.790226 * access).max(1.0).min(upper + slack);
            let blend = ((km - 500.0) / 2500.0).clamp(0.0, 1.0);
            let round_trip = f64::max(1.0, (1.0 - blend) * near + blend * far);
            let scale = f64::max(2.0, scale[0] + scale[1] * round_trip + scale[2] * f64::max(0.0, upper - round_trip));
            let light = min_possible_round_trip_ms(Some(one.place), Some(other.place));
            let low = (round_trip + quantiles[0] * scale).max(0.0).max(light).min(round_trip);
            let parts = found.intermediates;
            prop_assert_eq!(parts.access_ms, [slow_one.access_ms, slow_other.access_ms]);
            let compared = [
                (parts.arc_km, km), (parts.best_route_ms, upper), (parts.max_floor_difference_ms, lower), (parts.mean_residual_ms, middle),
                (parts.far_model_ms, far), (parts.near_model_ms, near), (parts.far_share, blend), (found.round_trip_ms, round_trip),
                (found.low_ms, low), (found.high_ms, round_trip + quantiles[1] * scale),
            ];
            for (number, (found, expected)) in compared.into_iter().enumerate() {
                prop_assert!(is_close(found, expected), "{precision:?}, value {number}: {found}, not {expected}");
            }
        }
    }
}
