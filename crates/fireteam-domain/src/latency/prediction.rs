//! Round trip predictor: the expected round trip between two parties, with an interval, from their floors to beacons.
//!
//! Two linear models: near parties by distance and access delay, far ones by distance, the best route through beacons and
//! the detours that beacons around the other party see. Both are clipped to the bounds that floors give, and blended by
//! distance. A vector without a place is never used.

use crate::latency::beacon_fleet::BeaconFleet;
use crate::latency::beacon_vector::{CompletedVector, VectorPairBounds};
use crate::latency::min_possible_round_trip_ms;
use crate::latency::prediction_terms::{FarModelTerms, NearModelTerms, PredictionTerms, far_terms_ms, near_terms_ms};
use crate::latency::prediction_unavailable::PredictionUnavailable;
use crate::latency::predictor_constants::{ERROR_SCALE_MS_MIN, IntervalConstants, PredictorConstants};
use crate::location_privacy::arc_km;

/// Exactness of the two sides of a prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PairPrecision {
    /// Exact places and floors on both sides: the reference vectors, and the fit of the constants. No pair of a server has them: the
    /// players of a match are known by published floors, and those of a game server have steps too, though from its exact place.
    Exact,
    /// The searcher's own floors, with its cell of 1 degree, and published floors of the other side.
    Search,
    /// Published floors on both sides.
    Queue,
}

/// Predicted round trip. All values are finite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// Expected round trip, milliseconds, 1 or more.
    pub round_trip_ms: f64,
    /// Low end of the interval that holds nine of ten measured round trips, milliseconds, 0 to `round_trip_ms`.
    pub low_ms: f64,
    /// High end of the interval, milliseconds, above `round_trip_ms`.
    pub high_ms: f64,
    /// Quantities that it was computed from, for explanations to an operator. Never for other callers: they reveal a place
    /// within its cell.
    pub intermediates: PredictionIntermediates,
}

/// Quantities that a prediction was computed from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PredictionIntermediates {
    /// Distance along the surface, kilometers.
    pub arc_km: f64,
    /// Upper estimate: the least round trip through beacons, milliseconds.
    pub best_route_ms: f64,
    /// Lower estimate: the largest difference of two floors to one beacon, milliseconds; 0 without a common beacon.
    pub max_floor_difference_ms: f64,
    /// Middle residual: excess over the line that each side has at the beacons around the other, mean of both, milliseconds.
    pub mean_residual_ms: f64,
    /// Access delay of both sides, milliseconds: the least excess of a floor over the straight path; may be negative.
    pub access_ms: [f64; 2],
    /// Far model, clipped, milliseconds.
    pub far_model_ms: f64,
    /// Near model, clipped, milliseconds.
    pub near_model_ms: f64,
    /// Share of the far model, 0 up to 500 km, 1 from 3000 km on.
    pub far_share: f64,
}

impl Prediction {
    /// Terms of the prediction, which was made with `constants`.
    pub fn terms(&self, constants: &PredictorConstants) -> PredictionTerms {
        let parts = &self.intermediates;
        let [near_distance_ms, access_ms] = near_terms_ms(constants, parts.arc_km, parts.access_ms);
        let [far_distance_ms, route_ms, detour_ms] =
            far_terms_ms(constants, parts.arc_km, parts.best_route_ms, parts.mean_residual_ms);
        let distance_part_ms = (1.0 - parts.far_share) * near_distance_ms + parts.far_share * far_distance_ms;
        PredictionTerms {
            arc_km: parts.arc_km,
            far_share: parts.far_share,
            distance_part_ms,
            beacon_part_ms: self.round_trip_ms - distance_part_ms,
            near: NearModelTerms { distance_ms: near_distance_ms, access_ms, clipped_sum_ms: parts.near_model_ms },
            far: FarModelTerms {
                distance_ms: far_distance_ms,
                route_ms,
                detour_ms,
                clipped_sum_ms: parts.far_model_ms,
            },
        }
    }
}

/// Distance up to which only the near model counts, and the distance beyond it over which the far model replaces it,
/// kilometers.
pub(crate) const BLEND_START_KM: f64 = 500.0;
pub(crate) const BLEND_WIDTH_KM: f64 = 2_500.0;
/// Least predicted round trip, milliseconds.
const ROUND_TRIP_MS_MIN: f64 = 1.0;

/// Predicts the round trip between two parties. Does not allocate. The same for both orders of a pair.
///
/// # Errors
///
/// [`PredictionUnavailable::OtherFleet`] if a vector was completed with other beacons than those of `fleet`.
#[inline]
pub fn predict(
    fleet: &BeaconFleet,
    one: &CompletedVector,
    other: &CompletedVector,
    precision: PairPrecision,
) -> Result<Prediction, PredictionUnavailable> {
    if !one.was_completed_with_beacons_of(fleet) || !other.was_completed_with_beacons_of(fleet) {
        return Err(PredictionUnavailable::OtherFleet);
    }
    let constants = fleet.constants();
    let interval = interval_constants(constants, precision);
    let arc_km = arc_km(one.place(), other.place());
    let access_ms = [one.access_ms(), other.access_ms()];
    let parts = clipped_models(constants, interval.slack_ms, arc_km, one.bounds_with(other), access_ms);
    let blended_ms = (1.0 - parts.far_share) * parts.near_model_ms + parts.far_share * parts.far_model_ms;
    let round_trip_ms = blended_ms.max(ROUND_TRIP_MS_MIN);

    let [scale_ms, of_round_trip, of_excess] = interval.error_scale;
    let excess_ms = (parts.best_route_ms - round_trip_ms).max(0.0);
    let scale_ms = (scale_ms + of_round_trip * round_trip_ms + of_excess * excess_ms).max(ERROR_SCALE_MS_MIN);
    let light_ms = min_possible_round_trip_ms(Some(one.place()), Some(other.place()));
    let low_ms = (round_trip_ms + interval.quantiles[0] * scale_ms).max(light_ms);
    // Floors that are faster than light predict less than the light bound; the interval still holds the prediction.
    let low_ms = low_ms.min(round_trip_ms);
    let high_ms = round_trip_ms + interval.quantiles[1] * scale_ms;
    Ok(Prediction { round_trip_ms, low_ms, high_ms, intermediates: parts })
}

/// Constants of the interval of a precision.
pub(crate) fn interval_constants(constants: &PredictorConstants, precision: PairPrecision) -> &IntervalConstants {
    match precision {
        PairPrecision::Exact => &constants.exact,
        PairPrecision::Search => &constants.search,
        PairPrecision::Queue => &constants.queue,
    }
}

/// Both models, clipped to the bounds that floors give, which rounded floors may miss by `slack_ms`.
#[inline]
fn clipped_models(
    constants: &PredictorConstants,
    slack_ms: f64,
    arc_km: f64,
    pair: VectorPairBounds,
    access_ms: [f64; 2],
) -> PredictionIntermediates {
    let VectorPairBounds { best_route_ms: upper_ms, max_floor_difference_ms: lower_ms, mean_residual_ms: middle_ms } =
        pair;
    let upper_bound_ms = upper_ms + slack_ms;
    let lower_bound_ms = (lower_ms - slack_ms).max(0.0);
    // The upper bound wins: rounded floors may put the lower one above it.
    let clip = |ms: f64, least_ms: f64| ms.max(least_ms).min(upper_bound_ms);

    let [far_distance_ms, route_ms, detour_ms] = far_terms_ms(constants, arc_km, upper_ms, middle_ms);
    let far_ms = far_distance_ms + route_ms + detour_ms;
    let [near_distance_ms, both_access_ms] = near_terms_ms(constants, arc_km, access_ms);
    let near_ms = near_distance_ms + both_access_ms;
    PredictionIntermediates {
        arc_km,
        best_route_ms: upper_ms,
        max_floor_difference_ms: lower_ms,
        mean_residual_ms: middle_ms,
        access_ms,
        far_model_ms: clip(far_ms, lower_bound_ms),
        near_model_ms: clip(near_ms, ROUND_TRIP_MS_MIN),
        far_share: ((arc_km - BLEND_START_KM) / BLEND_WIDTH_KM).clamp(0.0, 1.0),
    }
}

#[cfg(test)]
mod tests;
