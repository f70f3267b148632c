//! Properties of predictions: finite, ordered, symmetric, within the bounds, monotone in round trips between beacons.

use proptest::prelude::*;

use crate::latency::beacon_vector::VectorPairBounds;
use crate::latency::min_possible_round_trip_ms;
use crate::latency::prediction::predict;
use crate::latency::prediction::tests::{FleetExample, PRECISIONS, PartyExample, any_pair, equal_floors, locality};
use crate::latency::prediction::{PairPrecision, clipped_models};
use crate::latency::prediction_terms::PredictionTerms;
use crate::latency::predictor_constants::{IntervalConstants, PREDICTOR_V1, PredictorConstants};

proptest! {
    /// LAT-3: a prediction is finite and lies in its interval.
    #[test]
    fn prediction_is_finite_and_within_its_interval((fleet, one, other) in any_pair()) {
        let live = fleet.fleet(PREDICTOR_V1);
        for precision in PRECISIONS {
            let found = predict(&live, &one.completed(&live), &other.completed(&live), precision).unwrap();
            let parts = found.intermediates;
            let values = [
                found.low_ms, found.round_trip_ms, found.high_ms, parts.arc_km, parts.best_route_ms, parts.max_floor_difference_ms,
                parts.mean_residual_ms, parts.access_ms[0], parts.access_ms[1], parts.far_model_ms, parts.near_model_ms, parts.far_share,
            ];
            prop_assert!(values.iter().all(|value| value.is_finite()), "{found:?}");
            prop_assert!(0.0 <= found.low_ms && found.low_ms <= found.round_trip_ms, "{found:?}");
            prop_assert!(1.0 <= found.round_trip_ms && found.round_trip_ms < found.high_ms, "{found:?}");
        }
    }

    /// Both orders of a pair have the same prediction, to the bit: a queue judges each side by the other.
    #[test]
    fn prediction_is_symmetric((fleet, one, other) in any_pair()) {
        let live = fleet.fleet(PREDICTOR_V1);
        let (one, other) = (one.completed(&live), other.completed(&live));
        for precision in [PairPrecision::Exact, PairPrecision::Queue] {
            let there = predict(&live, &one, &other, precision).unwrap();
            let mut back = predict(&live, &other, &one, precision).unwrap();
            back.intermediates.access_ms.reverse();
            prop_assert_eq!(there, back);
        }
    }

    /// No prediction is above the route through beacons, nor below the difference of floors where that is the lesser bound.
    #[test]
    fn prediction_is_within_the_bounds_of_floors((fleet, one, other) in any_pair()) {
        let live = fleet.fleet(PREDICTOR_V1);
        for (precision, slack_ms) in PRECISIONS.into_iter().zip([0.0, 12.5, 25.0]) {
            let found = predict(&live, &one.completed(&live), &other.completed(&live), precision).unwrap();
            let (upper_ms, lower_ms) = (found.intermediates.best_route_ms + slack_ms, found.intermediates.max_floor_difference_ms - slack_ms);
            prop_assert!(found.round_trip_ms <= upper_ms.max(1.0), "{found:?}");
            prop_assert!(found.intermediates.far_share < 1.0 || lower_ms.min(upper_ms) <= found.round_trip_ms, "{found:?}");
        }
    }

    /// The terms of a prediction are those of both models, and the parts of distance and beacons add up to the round trip.
    #[test]
    fn prediction_terms_add_up_to_the_round_trip((fleet, one, other) in any_pair()) {
        let live = fleet.fleet(PREDICTOR_V1);
        for (precision, slack_ms) in PRECISIONS.into_iter().zip([0.0, 12.5, 25.0]) {
            let found = predict(&live, &one.completed(&live), &other.completed(&live), precision).unwrap();
            let terms = found.terms(live.constants());
            let PredictionTerms { near, far, far_share, distance_part_ms, beacon_part_ms, .. } = terms;
            let upper_ms = found.intermediates.best_route_ms + slack_ms;
            let lower_ms = (found.intermediates.max_floor_difference_ms - slack_ms).max(0.0);
            let far_ms = far.distance_ms + far.route_ms + far.detour_ms;
            prop_assert_eq!(near.clipped_sum_ms, (near.distance_ms + near.access_ms).max(1.0).min(upper_ms));
            prop_assert_eq!(far.clipped_sum_ms, far_ms.max(lower_ms).min(upper_ms));
            let blended_ms = (1.0 - far_share) * near.clipped_sum_ms + far_share * far.clipped_sum_ms;
            prop_assert_eq!(found.round_trip_ms, blended_ms.max(1.0));
            prop_assert!((distance_part_ms + beacon_part_ms - found.round_trip_ms).abs() < 1e-9, "{terms:?}");
            let of_distance_ms = (1.0 - far_share) * near.distance_ms + far_share * far.distance_ms;
            prop_assert!((distance_part_ms - of_distance_ms).abs() < 1e-9, "{terms:?}");
        }
    }

    /// A longer round trip between two beacons never shortens a prediction.
    #[test]
    fn prediction_is_monotone_in_round_trips_between_beacons(
        (fleet, one, other) in any_pair(), at in 0.0..1.0f64, longer_ms in 0.0..500.0f64,
    ) {
        let mut longer = fleet.clone();
        let position = (at * fleet.pairs_ms.len() as f64) as usize;
        longer.pairs_ms[position] = longer.pairs_ms[position].map(|ms| ms + longer_ms);
        let [fleet, longer] = [fleet, longer].map(|example| example.fleet(PREDICTOR_V1));
        for precision in PRECISIONS {
            let [before, after] =
                [&fleet, &longer].map(|it| predict(it, &one.completed(it), &other.completed(it), precision).unwrap());
            prop_assert!(before.intermediates.best_route_ms <= after.intermediates.best_route_ms);
            prop_assert!(before.round_trip_ms <= after.round_trip_ms + 1e-9, "{before:?} {after:?}");
        }
    }

    /// A greater upper estimate alone never shortens either model.
    #[test]
    fn prediction_models_are_monotone_in_the_upper_estimate(
        arc_km in 0.0..20_000.0f64, upper_ms in 0.0..1_000.0f64, more_ms in 0.0..500.0f64, lower_ms in 0.0..500.0f64,
        middle_ms in -300.0..300.0f64, access_ms in -100.0..100.0f64, slack_ms in 0.0..25.0f64,
    ) {
        let parts = |upper_ms| {
            let pair = VectorPairBounds { best_route_ms: upper_ms, max_floor_difference_ms: lower_ms, mean_residual_ms: middle_ms };
            clipped_models(&PREDICTOR_V1, slack_ms, arc_km, pair, [access_ms, 0.0])
        };
        let (before, after) = (parts(upper_ms), parts(upper_ms + more_ms));
        prop_assert!(before.far_model_ms <= after.far_model_ms && before.near_model_ms <= after.near_model_ms, "{before:?} {after:?}");
    }
}

/// LAT-3: the low end is never below the time that light needs, nor above the prediction.
#[test]
fn prediction_low_end_respects_the_speed_of_light() {
    let wide = IntervalConstants { error_scale: [1_000.0, 0.0, 0.0], ..PREDICTOR_V1.exact };
    let fleet = FleetExample::around_the_equator(12).fleet(PredictorConstants { exact: wide, ..PREDICTOR_V1 });
    let (here, there) = (locality(0.0, 0.0), locality(0.0, 150.0));
    let light_ms = min_possible_round_trip_ms(Some(here), Some(there));
    assert!((50.0..60.0).contains(&light_ms), "{light_ms} ms");
    let predicted = |floor_ms| {
        let party = |place| PartyExample { place, floors: equal_floors(12, floor_ms) }.completed(&fleet);
        predict(&fleet, &party(here), &party(there), PairPrecision::Exact).unwrap()
    };
    let plausible = predicted(60.0);
    assert!(light_ms < plausible.round_trip_ms);
    assert_eq!(plausible.low_ms, light_ms);
    let too_fast = predicted(1.0);
    assert!(too_fast.round_trip_ms < light_ms);
    assert_eq!(too_fast.low_ms, too_fast.round_trip_ms);
}
