//! How much others may learn of where a player is (SEC-9).
//!
//! Distances to one player from many places give the player's place away, and so does an order, or a limit that lets a
//! session through or does not. So what a player's session is found by is coarse itself: a cell some 300 km wide, and
//! round trips to regions in steps. All that a search answers is a function of those, and no number of searches tells two
//! players of one cell apart. What is shown as a distance or as an expected round trip is told in steps besides.

use crate::locality::KM_PER_MILE;
use crate::session::Session;

/// The grid by which others find sessions where nobody says otherwise, degrees (docs/decisions/0011-coarse-places.md).
pub const DEFAULT_SESSION_GRID_DEGREES: f64 = 3.0;

/// Steps in which distances are told, miles: 500 km.
pub const DISTANCE_ROUNDING_MILES: f64 = 500.0 / KM_PER_MILE;

/// Steps in which round trips are told that nobody has measured, and in which others' round trips to regions count,
/// milliseconds.
pub const ROUND_TRIP_ROUNDING_MS: f64 = 25.0;

/// The step that is nearest to `value`.
pub fn round_to_step(value: f64, step: f64) -> f64 {
    (value / step).round() * step
}

/// Moves a place to the centre of its cell in a grid whose cells are `cell_degrees` of latitude high and, wherever they lie,
/// about as wide: a grid of plain degrees has cells near the poles that are as good as places. A cell size of 0 or less
/// leaves the place alone.
///
/// In a square cell of side s whose people are spread evenly, half of them are farther than 0.4 s from its centre: for
/// [`SESSION_CELL_DEGREES`], 133 km.
pub fn snap_to_equal_width_grid(latitude: f64, longitude: f64, cell_degrees: f64) -> (f64, f64) {
    if cell_degrees.is_nan() || cell_degrees <= 0.0 {
        return (latitude, longitude);
    }
    let bands = (180.0 / cell_degrees).round().max(1.0);
    let middle = segment_center(latitude, 90.0, bands);
    let columns = (2.0 * bands * middle.to_radians().cos()).round().max(1.0);
    (middle, segment_center(longitude, 180.0, columns))
}

/// The centre of the part that `degrees` is in, of `parts` equal ones from -`end` to `end`.
fn segment_center(degrees: f64, end: f64, parts: f64) -> f64 {
    let width = 2.0 * end / parts;
    let part = ((degrees + end) / width).floor().clamp(0.0, parts - 1.0);
    (part + 0.5) * width - end
}

/// Leaves of a session's round trips to regions what others may go by.
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
        let (middle, meridian) = snap_to_equal_width_grid(47.61, -122.33, 3.0);
        assert_eq!((middle, (meridian * 1e4).round() / 1e4), (46.5, -121.4458));
        assert_eq!(snap_to_equal_width_grid(90.0, 180.0, 3.0), (88.5, 120.0));
        assert_eq!(snap_to_equal_width_grid(47.61, -122.33, 0.0), (47.61, -122.33));
        assert_eq!(snap_to_equal_width_grid(47.61, -122.33, f64::NAN), (47.61, -122.33));
    }

    proptest! {
        /// SEC-9: cells are as wide in Lapland as in Kenya, and nobody is farther from a centre than its corners.
        #[test]
        fn cells_are_as_wide_as_high(
            latitude in -90.0..=90.0f64, longitude in -180.0..=180.0f64, cell_degrees in 0.5..=10.0f64,
        ) {
            let (middle, meridian) = snap_to_equal_width_grid(latitude, longitude, cell_degrees);
            let place = |latitude, longitude| Locality::from_degrees(latitude, longitude).unwrap();
            let height = 180.0 / (180.0 / cell_degrees).round();
            let away = place(latitude, longitude).chord_miles(place(middle, meridian));
            prop_assert!(away <= 0.87 * EARTH_RADIUS_MILES * height.to_radians(), "{away} from {middle} {meridian}");

            let east = |heights: f64| {
                let degrees = meridian + heights * height / middle.to_radians().cos();
                snap_to_equal_width_grid(middle, if 180.0 < degrees { degrees - 360.0 } else { degrees }, cell_degrees)
            };
            let is_here = |(latitude, longitude): (f64, f64)| {
                (latitude - middle).abs() < 1e-9 && (longitude - meridian).abs() < 1e-9
            };
            prop_assert!(is_here(east(0.0)) && is_here(east(0.48)) && !is_here(east(0.53)));
        }

        #[test]
        fn steps_are_never_far(value in 0.0..60_000.0f64) {
            let told = round_to_step(value, ROUND_TRIP_ROUNDING_MS);
            prop_assert!((told - value).abs() <= ROUND_TRIP_ROUNDING_MS / 2.0);
            prop_assert_eq!(told % ROUND_TRIP_ROUNDING_MS, 0.0);
        }
    }
}
