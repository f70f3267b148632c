//! Latency model: expected round trip between two sessions, from region measurements, from distance, or predicted from floors
//! to beacons.

pub mod beacon_fleet;
pub mod beacon_vector;
pub mod prediction;
pub mod prediction_terms;
pub mod prediction_unavailable;
pub mod predictor_constants;
pub mod published_vector;
pub mod round_trip_estimate;
pub mod worst_pair;

use crate::locality::{KM_PER_MILE, Locality};
use crate::session::RegionLatency;

/// Linear latency model: round trip in milliseconds = `intercept_ms + ms_per_1000_km * km / 1000`.
///
/// Distance is the chord through the sphere. Fitted to measured round trips, the line explains about three quarters of
/// the variance. Measured round trips in the later phases of the thesis correct the rest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LatencyModel {
    /// Round trip at distance 0, caused by access networks and hosts, milliseconds; 0 or more.
    pub intercept_ms: f64,
    /// Milliseconds per 1000 km; 0 or more.
    pub ms_per_1000_km: f64,
}

/// 20 ms plus 16 ms per 1000 km: close to the fit on 59,887 measured pairs of hosts.
pub const DEFAULT_LATENCY_MODEL: LatencyModel = LatencyModel { intercept_ms: 20.0, ms_per_1000_km: 16.0 };

impl LatencyModel {
    /// Expected round trip over `chord_miles`, milliseconds.
    pub fn round_trip_ms(&self, chord_miles: f64) -> f64 {
        self.intercept_ms + self.ms_per_1000_km * (chord_miles * KM_PER_MILE / 1000.0)
    }
}

/// One of the two sessions between which a round trip is estimated.
#[derive(Clone, Copy, Debug)]
pub struct LatencyEndpoint<'a> {
    /// Position, if known.
    pub locality: Option<Locality>,
    /// Measured round trips to regions, in name order.
    pub region_latencies: &'a [RegionLatency],
}

/// Expected round trip between two endpoints, milliseconds. Uses the regions that both have measured: the minimum over
/// regions of the slower side's round trip. Otherwise uses the distance. `None` if neither is known.
pub fn round_trip_by_regions_or_distance(
    model: &LatencyModel,
    one: LatencyEndpoint<'_>,
    other: LatencyEndpoint<'_>,
) -> Option<f64> {
    if let Some(ms) = best_common_region_slower_side_ms(one.region_latencies, other.region_latencies) {
        return Some(ms);
    }
    Some(model.round_trip_ms(one.locality?.chord_miles(other.locality?)))
}

/// Whether [`round_trip_by_regions_or_distance`] uses a region that both have measured.
pub fn has_common_region(one: &[RegionLatency], other: &[RegionLatency]) -> bool {
    best_common_region_slower_side_ms(one, other).is_some()
}

/// Distance that light travels in fiber per millisecond, kilometers: two thirds of its speed in vacuum.
pub const FIBER_ONE_WAY_KM_PER_MS: f64 = 200.0;

/// Maximum error of a distance between two geolocated sessions, kilometers. Geolocation usually drops positions with an
/// accuracy radius above 500 km (`geoip_max_accuracy_radius_km`), and there are two positions. The center of a
/// session's grid cell is up to 250 km away (`location_privacy`).
pub const GEOLOCATED_DISTANCE_ERROR_KM_MAX: f64 = 1_250.0;

/// Lower bound of the round trip between two positions, milliseconds: the one-way travel time of light in fiber over
/// the distance less [`GEOLOCATED_DISTANCE_ERROR_KM_MAX`]. 0 if a position is unknown. Reported round trips below it are implausible.
pub fn min_possible_round_trip_ms(one: Option<Locality>, other: Option<Locality>) -> f64 {
    let (Some(one), Some(other)) = (one, other) else { return 0.0 };
    ((one.chord_miles(other) * KM_PER_MILE - GEOLOCATED_DISTANCE_ERROR_KM_MAX) / FIBER_ONE_WAY_KM_PER_MS).max(0.0)
}

/// Minimum, over the regions in both lists, of the slower side's round trip.
fn best_common_region_slower_side_ms(one: &[RegionLatency], other: &[RegionLatency]) -> Option<f64> {
    let (mut left, mut right) = (0, 0);
    let mut best_ms: Option<f64> = None;
    while let (Some(ours), Some(theirs)) = (one.get(left), other.get(right)) {
        match ours.region.cmp(&theirs.region) {
            std::cmp::Ordering::Less => left += 1,
            std::cmp::Ordering::Greater => right += 1,
            std::cmp::Ordering::Equal => {
                let slower_ms = f64::from(ours.round_trip_ms.max(theirs.round_trip_ms));
                best_ms = Some(best_ms.map_or(slower_ms, |known_ms| known_ms.min(slower_ms)));
                (left, right) = (left + 1, right + 1);
            }
        }
    }
    best_ms
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SEC-6: a round trip faster than light is detected; with an unknown position there is no lower bound.
    #[test]
    fn min_possible_round_trip_respects_the_speed_of_light() {
        let at = |latitude, longitude| Locality::from_degrees(latitude, longitude);
        let check = |one, other, low: f64, high: f64| {
            let bound_ms = min_possible_round_trip_ms(one, other);
            assert!((low..=high).contains(&bound_ms), "{bound_ms}");
            assert_eq!(bound_ms, min_possible_round_trip_ms(other, one));
        };
        let (seattle, los_angeles, london, sydney) =
            (at(47.6, -122.3), at(34.1, -118.2), at(51.5, -0.1), at(-33.9, 151.2));
        check(seattle, seattle, 0.0, 0.0);
        check(seattle, los_angeles, 1.0, 2.0);
        check(seattle, london, 27.0, 34.0);
        check(london, sydney, 54.0, 59.0);
        check(None, sydney, 0.0, 0.0);
        // The maximum distance of two positions.
        check(at(90.0, 0.0), at(-90.0, 0.0), 58.0, 59.0);
    }
}
