//! Statistics of simulated searches, computed from a tally.

use serde::Serialize;

use crate::latency_source::LatencySource;
use crate::percentiles::Percentiles;
use crate::search_tally::{JoinedSearch, SearchTally};

/// Statistics of searches that choose by one source.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SearchStatistics {
    /// Source of the round trips by which sessions were chosen.
    pub source: LatencySource,
    /// Number of searches.
    pub begun: u64,
    /// Number of searches that ended without a session.
    pub gave_up: u64,
    /// Joined searches whose session had a measured round trip.
    pub joined_by_measured: u64,
    /// Joined searches whose session had a predicted round trip.
    pub joined_by_predicted: u64,
    /// Joined searches whose session had a round trip by distance only.
    pub joined_by_distance: u64,
    /// True round trip to the joined session, milliseconds.
    pub round_trip_ms: Percentiles,
    /// Excess over the least true round trip to a session with an open seat, milliseconds.
    pub regret_ms: Percentiles,
    /// Milliseconds by which probing shortened the true round trip; negative where the first of the order was better.
    pub gain_ms: Percentiles,
    /// Packets of quick phases, per search.
    pub quick_packets: Percentiles,
    /// Packets of involved phases, per search.
    pub involved_packets: Percentiles,
    /// Time in probe phases, with their reports, seconds.
    pub probing_s: Percentiles,
    /// Time from the start to the joined session, seconds.
    pub seeking_s: Percentiles,
}

impl SearchStatistics {
    /// Statistics of a tally.
    pub fn from_tally(source: LatencySource, tally: &SearchTally) -> Self {
        let of = |value: fn(&JoinedSearch) -> f64| Percentiles::from_values(tally.joined.iter().map(value));
        let joined_by = |source| tally.joined.iter().filter(|search| search.source == source).count() as u64;
        Self {
            source,
            begun: tally.begun,
            gave_up: tally.gave_up,
            joined_by_measured: joined_by(LatencySource::Measured),
            joined_by_predicted: joined_by(LatencySource::Predicted),
            joined_by_distance: joined_by(LatencySource::Distance),
            round_trip_ms: of(|search| search.round_trip_ms),
            regret_ms: of(|search| search.regret_ms),
            gain_ms: of(|search| search.gain_ms),
            quick_packets: of(|search| f64::from(search.quick_packets)),
            involved_packets: of(|search| f64::from(search.involved_packets)),
            probing_s: of(|search| search.probing_ms / 1_000.0),
            seeking_s: of(|search| search.seeking_ms / 1_000.0),
        }
    }
}
