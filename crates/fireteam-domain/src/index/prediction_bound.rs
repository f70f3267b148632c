//! Lower bound of predicted round trips by columns.
//!
//! A prediction blends a near and a far model by the distance, each at most at the upper estimate plus slack. So each model is at
//! least the lesser of its own plane and the plane of the upper estimate, over the distance and an excess of the row's vector. Along
//! any route through beacons, floors and round trips between beacons exceed what light takes over the straight path, which gives
//! the planes of the upper estimate and of the middle residual.
//!
//! The blend of two planes is a parabola over the distance, so the least value beyond a distance is at one of the ends of the blend:
//! none is more than [`BoundPlanes::dip_ms`] lower between them.

use crate::filter::RoundTripPredictor;
use crate::latency::beacon_fleet::FIBER_ROUND_TRIP_MS_PER_KM;
use crate::latency::prediction::{BLEND_START_KM, BLEND_WIDTH_KM, interval_constants};
use crate::locality::EARTH_RADIUS_MILES;
use crate::location_privacy::ARC_KM_PER_CHORD_MILE_MIN;

/// Plane over the distance and one excess of a row: milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct BoundPlane {
    constant: f32,
    /// Per kilometer; 0 or more.
    per_km: f32,
    /// Per millisecond of the excess; 0 or more.
    of_excess: f32,
}

impl BoundPlane {
    /// `None` if a coefficient is negative.
    fn new(constant: f64, per_km: f64, of_excess: f64) -> Option<Self> {
        let is_monotone = constant.is_finite() && per_km >= 0.0 && of_excess >= 0.0;
        is_monotone.then_some(Self {
            constant: (constant - ROUNDING_MARGIN_MS) as f32,
            per_km: per_km as f32,
            of_excess: of_excess as f32,
        })
    }

    #[inline(always)]
    fn value(&self, arc_km: f32, excess_ms: f32) -> f32 {
        self.constant + self.per_km * arc_km + self.of_excess * excess_ms
    }
}

/// Planes that bound predictions from below.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct BoundPlanes {
    /// Near model, over `LeastPathExcess::near_ms`.
    near: BoundPlane,
    /// Upper estimate with its slack, over `LeastPathExcess::light_ms`.
    upper: BoundPlane,
    /// Far model, over `LeastPathExcess::light_ms`.
    far: BoundPlane,
    /// Largest amount by which a blend between two distances is less than at both.
    dip_ms: f32,
    /// Far model without the part of the upper estimate, over `LeastPathExcess::light_ms`.
    far_without_upper: BoundPlane,
    /// Share of the upper estimate in the far model.
    of_upper: f32,
    /// Slack of the upper estimate, less the margin for rounding.
    slack_ms: f32,
}

/// Milliseconds by which rounded columns, distances and sums may miss the exact value, with room.
const ROUNDING_MARGIN_MS: f64 = 0.1;
/// Largest error of the share of the far model, from the distance as [`BoundPlanes::least_prediction_ms`] computes it: less than a
/// kilometer where models are blended, with room.
const BLEND_ERROR: f32 = 0.001;

/// Largest share by which [`arc_km_at_least`] is less than the arc, up to the end of the blend, with room.
const ARC_ERROR: f32 = 0.001;

impl BoundPlanes {
    /// Lower bound of predictions to a row, or to each row of a leaf, at this chord: of a row the chord itself, of a leaf the least.
    #[inline(always)]
    pub(super) fn least_prediction_ms(&self, is_row: bool, chord_miles: f32, near_ms: f32, light_ms: f32) -> f32 {
        const BLEND_END_KM: f32 = (BLEND_START_KM + BLEND_WIDTH_KM) as f32;
        let arc_km = arc_km_at_least(chord_miles);
        let upper = self.upper.value(arc_km, light_ms);
        let near = lesser(self.near.value(arc_km, near_ms), upper);
        let far = lesser(self.far.value(arc_km, light_ms), upper);
        if is_row {
            return blended_at_least(arc_km, near, far);
        }
        let blended = near + far_share_at(arc_km) * (far - near);
        let end_km = if arc_km < BLEND_END_KM { BLEND_END_KM } else { arc_km };
        let at_end = lesser(self.far.value(end_km, light_ms), self.upper.value(end_km, light_ms));
        lesser(blended, at_end) - self.dip_ms
    }

    /// Lower bound of the prediction to a row, where the upper estimate is at least `upper_ms`.
    #[inline(always)]
    pub(super) fn least_prediction_with_upper_ms(
        &self,
        chord_miles: f32,
        upper_ms: f32,
        near_ms: f32,
        light_ms: f32,
    ) -> f32 {
        self.blend_with_upper_ms(arc_km_at_least(chord_miles), upper_ms, near_ms, light_ms)
    }

    /// Lower bound of the predictions to the rows of a leaf, where each upper estimate is at least `upper_ms`, and the chords are between
    /// these two. Without an upper estimate that grows with the distance, a blend of two lines is a parabola that opens upwards at most
    /// as much as the far model rises.
    #[inline(always)]
    pub(super) fn least_prediction_of_leaf_with_upper_ms(
        &self,
        chords_miles: [f32; 2],
        upper_ms: f32,
        near_ms: f32,
        light_ms: f32,
    ) -> f32 {
        const START_KM: f32 = BLEND_START_KM as f32;
        const END_KM: f32 = (BLEND_START_KM + BLEND_WIDTH_KM) as f32;
        let [nearest_km, farthest_km] = chords_miles.map(arc_km_at_least);
        // The arc of the farthest point may be this much longer than its lower bound, on the other side of the earth.
        let farthest_km = farthest_km * (1.0 + ARC_ERROR);
        let last_km = if farthest_km < END_KM { farthest_km } else { END_KM };
        let last_km = if last_km < nearest_km { nearest_km } else { last_km };
        let first_km = if nearest_km < START_KM { START_KM } else { nearest_km };
        let blended_km = if first_km < last_km { last_km - first_km } else { 0.0 };
        let dip_ms = self.far_without_upper.per_km * (0.25 / BLEND_WIDTH_KM as f32) * blended_km * blended_km;
        let at = |arc_km: f32| self.blend_with_upper_ms(arc_km, upper_ms, near_ms, light_ms);
        lesser(at(nearest_km), at(last_km)) - dip_ms
    }

    #[inline(always)]
    fn blend_with_upper_ms(&self, arc_km: f32, upper_ms: f32, near_ms: f32, light_ms: f32) -> f32 {
        let upper = upper_ms + self.slack_ms;
        let near = lesser(self.near.value(arc_km, near_ms), upper);
        let far = self.far_without_upper.value(arc_km, light_ms) + self.of_upper * upper_ms;
        blended_at_least(arc_km, near, lesser(far, upper))
    }
}

#[inline(always)]
fn lesser(one: f32, other: f32) -> f32 {
    if other < one { other } else { one }
}

/// Kilometers along the surface, at least: the first two terms of the arc sine.
#[inline(always)]
pub(super) fn arc_km_at_least(chord_miles: f32) -> f32 {
    const HALF_ANGLE_SINE_PER_MILE: f32 = (0.5 / EARTH_RADIUS_MILES) as f32;
    const KM_PER_MILE: f32 = ARC_KM_PER_CHORD_MILE_MIN as f32;
    let sine = chord_miles * HALF_ANGLE_SINE_PER_MILE;
    chord_miles * KM_PER_MILE * (1.0 + sine * sine * (1.0 / 6.0))
}

/// Share of the far model.
#[inline(always)]
fn far_share_at(arc_km: f32) -> f32 {
    ((arc_km - BLEND_START_KM as f32) * (1.0 / BLEND_WIDTH_KM as f32)).clamp(0.0, 1.0)
}

/// Blend of the two models, less what the error of the distance may add.
#[inline(always)]
fn blended_at_least(arc_km: f32, near: f32, far: f32) -> f32 {
    let excess_of_near = near - far;
    let error = BLEND_ERROR * if excess_of_near < 0.0 { 0.0 } else { excess_of_near };
    near + far_share_at(arc_km) * (far - near) - error
}

/// Planes that bound predictions from below; `None` if a constant of the predictor does not allow it.
pub(super) fn bound_planes(predictor: &RoundTripPredictor<'_>) -> Option<BoundPlanes> {
    let RoundTripPredictor { fleet, own_vector: own, precision, .. } = predictor;
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
    let near = BoundPlane::new(near_ms + of_access * own.access_ms(), near_ms_per_km, of_access)?;
    let slack_ms = interval_constants(constants, *precision).slack_ms;
    let upper = BoundPlane::new(upper_ms + slack_ms, FIBER_ROUND_TRIP_MS_PER_KM, 1.0)?;
    let [far_ms, far_ms_per_km, of_upper, of_middle] = constants.far;
    let far = BoundPlane::new(
        far_ms + of_upper * upper_ms + of_middle * middle_ms,
        far_ms_per_km + of_upper * FIBER_ROUND_TRIP_MS_PER_KM - of_middle * detour_ms_per_km / 2.0,
        of_upper + of_middle / 2.0,
    )?;
    let far_without_upper = BoundPlane::new(
        far_ms + of_middle * middle_ms,
        far_ms_per_km - of_middle * detour_ms_per_km / 2.0,
        of_middle / 2.0,
    )?;
    let is_fit = detour_ms_per_km >= 0.0 && of_upper >= 0.0 && of_middle >= 0.0;
    // A parabola that opens upwards is at most this much lower between two distances than at both.
    let steepest_far = if far.per_km < upper.per_km { upper.per_km } else { far.per_km };
    let flattest_near = if near.per_km < upper.per_km { near.per_km } else { upper.per_km };
    let dip_ms = (steepest_far - flattest_near) * BLEND_WIDTH_KM as f32 / 4.0;
    let (of_upper, slack_ms) = (of_upper as f32, (slack_ms - ROUNDING_MARGIN_MS) as f32);
    is_fit.then_some(BoundPlanes { near, upper, far, dip_ms, far_without_upper, of_upper, slack_ms })
}
