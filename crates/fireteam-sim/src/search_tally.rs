//! Samples of simulated searches.

use crate::latency_source::LatencySource;

/// Samples of simulated searches.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SearchTally {
    /// Number of searches.
    pub begun: u64,
    /// Number of searches that ended without a session.
    pub gave_up: u64,
    /// Searches that joined a session.
    pub joined: Vec<JoinedSearch>,
}

/// Search that joined a session.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JoinedSearch {
    /// Source of the round trip by which the session was chosen.
    pub source: LatencySource,
    /// True round trip to the session, milliseconds.
    pub round_trip_ms: f64,
    /// Excess over the least true round trip to a session with an open seat, milliseconds.
    pub regret_ms: f64,
    /// True round trip to the first session in the order of the estimates, less that to the joined one, milliseconds.
    pub gain_ms: f64,
    /// Packets of quick phases.
    pub quick_packets: u32,
    /// Packets of involved phases.
    pub involved_packets: u32,
    /// Time in probe phases, with their reports, milliseconds.
    pub probing_ms: f64,
    /// Time from the start to the joined session, milliseconds.
    pub seeking_ms: f64,
}

impl SearchTally {
    /// Adds the tally of other searches of the same scenario.
    pub fn merge(&mut self, other: Self) {
        self.begun += other.begun;
        self.gave_up += other.gave_up;
        self.joined.extend(other.joined);
    }
}
