//! The round trip expected between two sessions: from region measurements, else from the distance between them.

use crate::locality::{KM_PER_MILE, Locality};
use crate::session::RegionLatency;

/// Milliseconds from distance, by a straight line: `intercept_ms + ms_per_1000_km * km / 1000`.
///
/// Distance is the chord (S1-26). Fitted on measured round trips the line explains about three quarters of the
/// variance; the thesis's later phases correct the rest (S1-28).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LatencyModel {
    /// Milliseconds at no distance: last miles and hosts. Not negative.
    pub intercept_ms: f64,
    /// Milliseconds added per 1000 km. Not negative.
    pub ms_per_1000_km: f64,
}

/// 20 ms and 16 ms per 1000 km: close to the fit on 59,887 measured pairs of hosts.
pub const DEFAULT_LATENCY_MODEL: LatencyModel = LatencyModel { intercept_ms: 20.0, ms_per_1000_km: 16.0 };

impl LatencyModel {
    /// The round trip expected over `chord_miles`.
    pub fn round_trip_ms(&self, chord_miles: f64) -> f64 {
        self.intercept_ms + self.ms_per_1000_km * (chord_miles * KM_PER_MILE / 1000.0)
    }
}

/// One end of a pair whose round trip is asked for.
#[derive(Clone, Copy, Debug)]
pub struct LatencyEndpoint<'a> {
    /// Where it is, if known.
    pub locality: Option<Locality>,
    /// Its measured round trips to regions, in name order.
    pub region_latencies: &'a [RegionLatency],
}

/// The round trip expected between two ends, best source first: regions that both have measured (the best region,
/// judged by its slower end), then distance by the line. `None` when neither is known.
pub fn expected_round_trip_ms(
    line: &LatencyModel,
    one: LatencyEndpoint<'_>,
    other: LatencyEndpoint<'_>,
) -> Option<f64> {
    if let Some(ms) = best_common_region_ms(one.region_latencies, other.region_latencies) {
        return Some(ms);
    }
    Some(line.round_trip_ms(one.locality?.chord_miles(other.locality?)))
}

/// How far light comes in fibre in a millisecond, kilometres: two thirds of its speed in vacuum (SEC-6).
pub const FIBER_KM_PER_MS: f64 = 200.0;

/// How much nearer two people may be than their addresses' places, kilometres: a place that its file doubts by more than 500
/// is usually none (`max_accuracy_radius_km`), there are two, and the middle of a session's cell is up to 250 away
/// (`coarse`).
pub const LOCATION_ERROR_KM: f64 = 1_250.0;

/// Less than this no round trip between two places takes, milliseconds: the time that light needs one way, over what is
/// left of their distance when both places are as wrong as they may be. 0 when one is unknown.
pub fn min_possible_round_trip_ms(one: Option<Locality>, other: Option<Locality>) -> f64 {
    let (Some(one), Some(other)) = (one, other) else { return 0.0 };
    ((one.chord_miles(other) * KM_PER_MILE - LOCATION_ERROR_KM) / FIBER_KM_PER_MS).max(0.0)
}

/// Over the regions that both lists name, the least of the slower end's round trip.
fn best_common_region_ms(one: &[RegionLatency], other: &[RegionLatency]) -> Option<f64> {
    let (mut left, mut right) = (0, 0);
    let mut best: Option<f64> = None;
    while let (Some(a), Some(b)) = (one.get(left), other.get(right)) {
        match a.region.cmp(&b.region) {
            std::cmp::Ordering::Less => left += 1,
            std::cmp::Ordering::Greater => right += 1,
            std::cmp::Ordering::Equal => {
                let slower = f64::from(a.round_trip_ms.max(b.round_trip_ms));
                best = Some(best.map_or(slower, |known| known.min(slower)));
                (left, right) = (left + 1, right + 1);
            }
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SEC-6: what no signal can do is told from what is merely fast; where nobody is known to be, anything may be true.
    #[test]
    fn min_possible_round_trip_respects_the_speed_of_light() {
        let at = |latitude, longitude| Locality::from_degrees(latitude, longitude);
        let check = |one, other, low: f64, high: f64| {
            let least = min_possible_round_trip_ms(one, other);
            assert!((low..=high).contains(&least), "{least}");
            assert_eq!(least, min_possible_round_trip_ms(other, one));
        };
        let (seattle, los_angeles, london, sydney) =
            (at(47.6, -122.3), at(34.1, -118.2), at(51.5, -0.1), at(-33.9, 151.2));
        check(seattle, seattle, 0.0, 0.0);
        check(seattle, los_angeles, 1.0, 2.0);
        check(seattle, london, 27.0, 34.0);
        check(london, sydney, 54.0, 59.0);
        check(None, sydney, 0.0, 0.0);
        // The farthest that two places can be apart.
        check(at(90.0, 0.0), at(-90.0, 0.0), 58.0, 59.0);
    }
}
