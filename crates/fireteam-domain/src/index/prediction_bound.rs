//! Lower bound of predicted round trips by columns: a prediction is not monotone in distance, but never less than the least of
//! three planes over distance and the excesses of the row's vector.
//!
//! A prediction blends a near and a far model, each at most at the upper estimate plus slack. So it is at least the least of
//! the three. Along any route through beacons, floors and round trips between beacons exceed what light takes over the straight
//! path, which gives the bounds of the upper estimate and of the middle residual.

use crate::filter::RoundTripPredictor;
use crate::latency::beacon_fleet::FIBER_ROUND_TRIP_MS_PER_KM;
use crate::latency::prediction::interval_constants;
use crate::location_privacy::ARC_KM_PER_CHORD_MILE_MIN;

/// Plane over the distance and the two excesses of a row: milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct BoundPlane {
    pub(super) constant: f32,
    /// Per mile of chord; 0 or more.
    pub(super) per_mile: f32,
    /// Per millisecond of `LeastPathExcess::near_ms`; 0 or more.
    pub(super) of_near: f32,
    /// Per millisecond of `LeastPathExcess::light_ms`; 0 or more.
    pub(super) of_light: f32,
}

/// Milliseconds by which rounded columns, distances and sums may miss the exact value, with room.
const ROUNDING_MARGIN_MS: f64 = 1.0;

/// Planes whose least value bounds predictions from below; `None` if a constant of the predictor does not allow it.
pub(super) fn bound_planes(predictor: &RoundTripPredictor<'_>) -> Option<[BoundPlane; 3]> {
    let RoundTripPredictor { fleet, own, condition, .. } = predictor;
    let constants = fleet.constants();
    let shortfall_ms = fleet.max_light_shortfall_ms();
    let [intercept_ms, ms_per_km] = constants.line;
    let (least_residual_ms, mean_km) = own.least_residual_and_mean_beacon_km(fleet);
    let detour_ms_per_km = ms_per_km - FIBER_ROUND_TRIP_MS_PER_KM;
    // Upper estimate, less the row's excess over light and what light takes.
    let upper_ms = own.light_excess_ms() - shortfall_ms;
    // Middle residual, less half of: the row's excess over light, and a line over the distance.
    let middle_ms = (least_residual_ms - shortfall_ms - intercept_ms - detour_ms_per_km * mean_km) / 2.0;

    let [near_ms, near_ms_per_km, of_access] = constants.near;
    let near = [near_ms + of_access * own.access_ms(), near_ms_per_km, of_access, 0.0];
    let slack_ms = interval_constants(constants, *condition).slack_ms;
    let upper = [upper_ms + slack_ms, FIBER_ROUND_TRIP_MS_PER_KM, 0.0, 1.0];
    let [far_ms, far_ms_per_km, of_upper, of_middle] = constants.far;
    let far = [
        far_ms + of_upper * upper_ms + of_middle * middle_ms,
        far_ms_per_km + of_upper * FIBER_ROUND_TRIP_MS_PER_KM - of_middle * detour_ms_per_km / 2.0,
        0.0,
        of_upper + of_middle / 2.0,
    ];
    let plane = |[constant, per_km, of_near, of_light]: [f64; 4]| {
        let coefficients = [per_km, of_near, of_light];
        let is_monotone = constant.is_finite() && coefficients.iter().all(|coefficient| *coefficient >= 0.0);
        is_monotone.then_some(BoundPlane {
            constant: (constant - ROUNDING_MARGIN_MS) as f32,
            per_mile: (per_km * ARC_KM_PER_CHORD_MILE_MIN) as f32,
            of_near: of_near as f32,
            of_light: of_light as f32,
        })
    };
    let is_fit = detour_ms_per_km >= 0.0 && of_upper >= 0.0 && of_middle >= 0.0;
    if !is_fit {
        return None;
    }
    Some([plane(near)?, plane(upper)?, plane(far)?])
}
