//! Location privacy: rounds players' positions, distances and round trips before other callers can observe them.
//!
//! Distances from many points reveal a position (trilateration). So do the order of results and the effect of a limit.
//! Searches therefore see only rounded inputs: a grid cell about 300 km wide, and region round trips in steps. Each
//! search result depends only on these inputs, so searches cannot tell two players of one cell apart. Distances and
//! expected round trips in responses are rounded as well.

use crate::locality::KM_PER_MILE;
use crate::session::Session;

/// Default grid cell size for session positions in searches, degrees (docs/decisions/0011-location-privacy.md).
pub const DEFAULT_SESSION_GRID_DEGREES: f64 = 3.0;

/// Rounding step of distances in responses, miles: 500 km.
pub const DISTANCE_ROUNDING_MILES: f64 = 500.0 / KM_PER_MILE;

/// Rounding step, milliseconds, of expected (not measured) round trips in responses and of stored region round trips.
pub const ROUND_TRIP_ROUNDING_MS: f64 = 25.0;

/// Rounds `value` to the nearest multiple of `step`.
pub fn round_to_step(value: f64, step: f64) -> f64 {
    (value / step).round() * step
}

/// Moves a position to the center of its cell. Cells are `location_grid_degrees` of latitude high and about as wide at
/// every latitude. Cells of a plain degree grid would be narrow near the poles and reveal positions there. A cell size
/// of 0 or less, or NaN, leaves the position unchanged.
///
/// In a square cell of side s with evenly spread players, half of them are farther than 0.4 s from the center: 133 km
/// for [`DEFAULT_SESSION_GRID_DEGREES`].
pub fn snap_to_equal_width_grid(latitude: f64, longitude: f64, location_grid_degrees: f64) -> (f64, f64) {
    if location_grid_degrees.is_nan() || location_grid_degrees <= 0.0 {
        return (latitude, longitude);
    }
    let bands = (180.0 / location_grid_degrees).round().max(1.0);
    let center_latitude = segment_center(latitude, 90.0, bands);
    let columns = (2.0 * bands * center_latitude.to_radians().cos()).round().max(1.0);
    (center_latitude, segment_center(longitude, 180.0, columns))
}

/// Center of the segment that contains `degrees`, of `segments` equal ones from -`end` to `end`.
fn segment_center(degrees: f64, end: f64, segments: f64) -> f64 {
    let width = 2.0 * end / segments;
    let segment = ((degrees + end) / width).floor().clamp(0.0, segments - 1.0);
    (segment + 0.5) * width - end
}

/// Rounds a session's region round trips to [`ROUND_TRIP_ROUNDING_MS`].
pub fn round_region_latencies(session: &mut Session) {
    for region in &mut session.region_latencies {
        region.round_trip_ms = round_to_step(f64::from(region.round_trip_ms), ROUND_TRIP_ROUNDING_MS) as f32;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::locality::{EARTH_RADIUS_MILES, Locality};

    #[test]
    fn equal_width_grid_snaps_known_coordinates() {
        let (center_latitude, center_longitude) = snap_to_equal_width_grid(47.61, -122.33, 3.0);
        assert_eq!((center_latitude, (center_longitude * 1e4).round() / 1e4), (46.5, -121.4458));
        assert_eq!(snap_to_equal_width_grid(90.0, 180.0, 3.0), (88.5, 120.0));
        assert_eq!(snap_to_equal_width_grid(47.61, -122.33, 0.0), (47.61, -122.33));
        assert_eq!(snap_to_equal_width_grid(47.61, -122.33, f64::NAN), (47.61, -122.33));
    }

    proptest! {
        /// SEC-9: cells have the same width at every latitude, and no position is farther from its center than the
        /// corners.
        #[test]
        fn equal_width_grid_cells_are_as_wide_as_high(
            latitude in -90.0..=90.0f64, longitude in -180.0..=180.0f64, location_grid_degrees in 0.5..=10.0f64,
        ) {
            let (center_latitude, center_longitude) = snap_to_equal_width_grid(latitude, longitude, location_grid_degrees);
            let locality = |latitude, longitude| Locality::from_degrees(latitude, longitude).unwrap();
            let height = 180.0 / (180.0 / location_grid_degrees).round();
            let distance = locality(latitude, longitude).chord_miles(locality(center_latitude, center_longitude));
            let max_distance = 0.87 * EARTH_RADIUS_MILES * height.to_radians();
            prop_assert!(distance <= max_distance, "{distance} miles from {center_latitude} {center_longitude}");

            let east = |heights: f64| {
                let degrees = center_longitude + heights * height / center_latitude.to_radians().cos();
                let wrapped = if degrees > 180.0 { degrees - 360.0 } else { degrees };
                snap_to_equal_width_grid(center_latitude, wrapped, location_grid_degrees)
            };
            let is_same_cell = |(latitude, longitude): (f64, f64)| {
                (latitude - center_latitude).abs() < 1e-9 && (longitude - center_longitude).abs() < 1e-9
            };
            prop_assert!(is_same_cell(east(0.0)) && is_same_cell(east(0.48)) && !is_same_cell(east(0.53)));
        }

        #[test]
        fn rounding_moves_a_value_by_at_most_half_a_step(value in 0.0..60_000.0f64) {
            let rounded = round_to_step(value, ROUND_TRIP_ROUNDING_MS);
            prop_assert!((rounded - value).abs() <= ROUND_TRIP_ROUNDING_MS / 2.0);
            prop_assert_eq!(rounded % ROUND_TRIP_ROUNDING_MS, 0.0);
        }
    }
}
