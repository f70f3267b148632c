//! Location privacy: rounds players' positions, distances and round trips before other callers can observe them.
//!
//! Distances from many points reveal a position (trilateration). So do the order of results, the effect of a limit, the
//! quality of a match, and who is matched with whom. Sessions and parties are therefore judged by others only by rounded
//! inputs: a grid cell about 300 km wide, and region round trips as they would be from its center, in steps. Each result
//! depends only on these inputs, so others cannot tell two players of one cell apart. Distances and expected round trips
//! in responses are rounded as well.

mod region_places;

use crate::locality::{EARTH_RADIUS_MILES, KM_PER_MILE, Locality};
use crate::session::RegionLatency;

pub use region_places::RegionPlaces;

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

/// Rounds `value` up to a multiple of `step`.
pub fn round_up_to_step(value: f64, step: f64) -> f64 {
    (value / step).ceil() * step
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

/// Radius of the sphere for lengths of paths along the surface, kilometers: the mean radius of the Earth.
const EARTH_RADIUS_KM: f64 = 6_371.0;

/// Milliseconds of round trip per kilometer along the surface, fitted to measured round trips between hosts.
const MS_PER_ARC_KM: f64 = 0.016_567;

/// Kilometers along the surface per mile of chord, at least.
pub(crate) const ARC_KM_PER_CHORD_MILE_MIN: f64 = EARTH_RADIUS_KM / EARTH_RADIUS_MILES;

/// Distance along the surface, kilometers.
pub fn arc_km(one: Locality, other: Locality) -> f64 {
    2.0 * EARTH_RADIUS_KM * (one.chord_miles(other) / (2.0 * EARTH_RADIUS_MILES)).min(1.0).asin()
}

/// Round trip to a region as others may know it, milliseconds: as if measured from `center`, the center of the cell of
/// `place`, and rounded to [`ROUND_TRIP_ROUNDING_MS`]. Where `place`, `center` or the region's place is unknown, only
/// rounded. Without the move, steps of round trips to a dozen regions reveal a place within the cell.
pub fn coarsened_round_trip_ms(
    round_trip_ms: f64,
    place_and_center: Option<(Locality, Locality)>,
    region_place: Option<Locality>,
) -> f64 {
    let moved = match (place_and_center, region_place) {
        (Some((place, center)), Some(region)) => {
            round_trip_ms - MS_PER_ARC_KM * (arc_km(place, region) - arc_km(center, region))
        }
        _ => round_trip_ms,
    };
    round_to_step(moved.max(0.0), ROUND_TRIP_ROUNDING_MS)
}

/// Replaces round trips to regions by those that others may know ([`coarsened_round_trip_ms`]).
pub fn coarsen_region_latencies(
    region_latencies: &mut [RegionLatency],
    place_and_center: Option<(Locality, Locality)>,
    region_place: impl Fn(&str) -> Option<Locality>,
) {
    for latency in region_latencies {
        let place = region_place(&latency.region);
        let shared_ms = coarsened_round_trip_ms(f64::from(latency.round_trip_ms), place_and_center, place);
        latency.round_trip_ms = shared_ms as f32;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn equal_width_grid_snaps_known_coordinates() {
        let (center_latitude, center_longitude) = snap_to_equal_width_grid(47.61, -122.33, 3.0);
        assert_eq!((center_latitude, (center_longitude * 1e4).round() / 1e4), (46.5, -121.4458));
        assert_eq!(snap_to_equal_width_grid(90.0, 180.0, 3.0), (88.5, 120.0));
        assert_eq!(snap_to_equal_width_grid(47.61, -122.33, 0.0), (47.61, -122.33));
        assert_eq!(snap_to_equal_width_grid(47.61, -122.33, f64::NAN), (47.61, -122.33));
    }

    #[test]
    fn shared_round_trip_is_moved_to_the_cell_center_and_rounded() {
        let locality = |latitude, longitude| Locality::from_degrees(latitude, longitude).unwrap();
        let (place, center, region) = (locality(0.0, 1.4), locality(0.0, 0.0), locality(0.0, 60.0));
        // The place is 155.7 km nearer to the region than the center: 2.58 ms.
        assert!((arc_km(center, region) - arc_km(place, region) - 155.7).abs() < 0.1);
        let shared = |ms, region| coarsened_round_trip_ms(ms, Some((place, center)), region);
        assert_eq!((shared(61.0, Some(region)), shared(61.0, None)), (75.0, 50.0));
        assert_eq!((shared(12.4, None), shared(12.5, None)), (0.0, 25.0));
        assert_eq!(coarsened_round_trip_ms(61.0, None, Some(region)), 50.0);
        let west = coarsened_round_trip_ms(1.0, Some((center, place)), Some(region));
        assert_eq!(west, 0.0, "never below 0");
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

        /// SEC-9: positions of one cell whose round trips follow the line to the region count alike for others.
        #[test]
        fn shared_round_trips_hide_the_place_within_a_cell(
            latitude in -80.0..=80.0f64, longitude in -180.0..=180.0f64,
            region_latitude in -80.0..=80.0f64, region_longitude in -180.0..=180.0f64, last_mile_ms in 1.0..80.0f64,
        ) {
            let locality = |latitude, longitude| Locality::from_degrees(latitude, longitude).unwrap();
            let region = locality(region_latitude, region_longitude);
            let place = locality(latitude, longitude);
            let (center_latitude, center_longitude) = snap_to_equal_width_grid(latitude, longitude, 3.0);
            let center = locality(center_latitude, center_longitude);
            let round_trip_ms = |from| last_mile_ms + MS_PER_ARC_KM * arc_km(from, region);
            let from_place = coarsened_round_trip_ms(round_trip_ms(place), Some((place, center)), Some(region));
            let from_center = coarsened_round_trip_ms(round_trip_ms(center), Some((center, center)), Some(region));
            // At the edge of a step, rounding errors may choose either side.
            let to_edge = (round_trip_ms(center) / ROUND_TRIP_ROUNDING_MS).fract() - 0.5;
            prop_assert!(from_place == from_center || to_edge.abs() < 1e-6, "{from_place} {from_center}");
        }

        #[test]
        fn rounding_moves_a_value_by_at_most_half_a_step(value in 0.0..60_000.0f64) {
            let rounded = round_to_step(value, ROUND_TRIP_ROUNDING_MS);
            prop_assert!((rounded - value).abs() <= ROUND_TRIP_ROUNDING_MS / 2.0);
            prop_assert_eq!(rounded % ROUND_TRIP_ROUNDING_MS, 0.0);
        }
    }
}
