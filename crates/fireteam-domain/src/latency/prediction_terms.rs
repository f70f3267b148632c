//! Terms of a prediction, for explanations to an operator: the parts that come from distance, and those from round trips to beacons.

use crate::latency::predictor_constants::PredictorConstants;

/// Terms of a predicted round trip, milliseconds. Only for operators: they reveal a place within its cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PredictionTerms {
    /// Distance along the surface, kilometers.
    pub arc_km: f64,
    /// Share of the far model, 0 to 1; the near model has the rest.
    pub far_share: f64,
    /// Part of the round trip that follows from the distance alone.
    pub distance_part_ms: f64,
    /// Part that follows from round trips to beacons, with the bounds that they set; may be negative. Both parts add up to the round trip.
    pub beacon_part_ms: f64,
    /// Near model.
    pub near: NearModelTerms,
    /// Far model.
    pub far: FarModelTerms,
}

/// Terms of the near model, milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NearModelTerms {
    /// Constant and distance.
    pub distance_ms: f64,
    /// Access delay of both sides.
    pub access_ms: f64,
    /// Sum, within the bounds that round trips to beacons set.
    pub clipped_sum_ms: f64,
}

/// Terms of the far model, milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FarModelTerms {
    /// Constant and distance.
    pub distance_ms: f64,
    /// Least route through beacons.
    pub route_ms: f64,
    /// Detours that beacons around the other side see.
    pub detour_ms: f64,
    /// Sum, within the bounds that round trips to beacons set.
    pub clipped_sum_ms: f64,
}

/// Terms of the near model: constant and distance, access delay of both sides.
#[inline]
pub(super) fn near_terms_ms(constants: &PredictorConstants, arc_km: f64, access_ms: [f64; 2]) -> [f64; 2] {
    let [near_ms, ms_per_km, of_access] = constants.near;
    [near_ms + ms_per_km * arc_km, of_access * (access_ms[0] + access_ms[1])]
}

/// Terms of the far model: constant and distance, least route through beacons, detours.
#[inline]
pub(super) fn far_terms_ms(constants: &PredictorConstants, arc_km: f64, upper_ms: f64, middle_ms: f64) -> [f64; 3] {
    let [far_ms, ms_per_km, of_upper, of_middle] = constants.far;
    [far_ms + ms_per_km * arc_km, of_upper * upper_ms, of_middle * middle_ms]
}
