//! The round trip expected between two sessions: from region measurements, else from the distance between them.

use crate::domain::locality::{KM_PER_MILE, Locality};
use crate::domain::session::RegionLatency;

/// Milliseconds from distance, by a straight line: `intercept_ms + ms_per_1000_km * km / 1000`.
///
/// Distance is the chord (S1-26). Fitted on measured round trips the line explains about three quarters of the
/// variance; the thesis's later phases correct the rest (S1-28).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LatencyLine {
    /// Milliseconds at no distance: last miles and hosts. Not negative.
    pub intercept_ms: f64,
    /// Milliseconds added per 1000 km. Not negative.
    pub ms_per_1000_km: f64,
}

/// 20 ms and 16 ms per 1000 km: close to the fit on 59,887 measured pairs of hosts.
pub const DEFAULT_LINE: LatencyLine = LatencyLine { intercept_ms: 20.0, ms_per_1000_km: 16.0 };

impl LatencyLine {
    /// The round trip expected over `chord_miles`.
    pub fn round_trip_ms(&self, chord_miles: f64) -> f64 {
        self.intercept_ms + self.ms_per_1000_km * (chord_miles * KM_PER_MILE / 1000.0)
    }
}

/// One end of a pair whose round trip is asked for.
#[derive(Clone, Copy, Debug)]
pub struct End<'a> {
    /// Where it is, if known.
    pub locality: Option<Locality>,
    /// Its measured round trips to regions, in name order.
    pub regions: &'a [RegionLatency],
}

/// The round trip expected between two ends, best source first: regions that both have measured (the best region,
/// judged by its slower end), then distance by the line. `None` when neither is known.
pub fn expected_round_trip_ms(line: &LatencyLine, one: End<'_>, other: End<'_>) -> Option<f64> {
    if let Some(ms) = best_common_region_ms(one.regions, other.regions) {
        return Some(ms);
    }
    Some(line.round_trip_ms(one.locality?.chord_miles(other.locality?)))
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
