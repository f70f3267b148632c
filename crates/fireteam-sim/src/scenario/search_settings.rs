//! `[latency]` of a scenario: searches of sessions, and the network on which they are probed.

use serde::Deserialize;

/// Searches of sessions, and the network on which they are probed.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SearchSettings {
    /// Beacons by which round trips are predicted: 0 to 64. With fewer than 12, distance replaces predictions.
    pub beacons: u32,
    /// Beacons that each party and each session has measured, the nearest: 0 to 32. With fewer than 8, distance replaces
    /// predictions.
    pub floors: u32,
    /// Share of the probes that stay unanswered because a packet was lost: 0 to 0.9.
    pub loss: f64,
    /// Mean of the exponential delay that each probe has above the round trip, milliseconds: 0 to 1,000.
    pub jitter_ms: f64,
    /// Sessions on game servers that searches may join: 1 to 1,000.
    pub sessions: u32,
    /// Searches, one player each: 1 to 100,000.
    pub searches: u32,
}

impl Default for SearchSettings {
    fn default() -> Self {
        Self { beacons: 24, floors: 12, loss: 0.01, jitter_ms: 3.0, sessions: 60, searches: 1_000 }
    }
}

impl SearchSettings {
    /// Fields with their values, and the least and the greatest valid ones.
    pub(super) fn bounds(&self) -> [(&'static str, f64, f64, f64); 6] {
        [
            ("latency.beacons", f64::from(self.beacons), 0.0, 64.0),
            ("latency.floors", f64::from(self.floors), 0.0, 32.0),
            ("latency.loss", self.loss, 0.0, 0.9),
            ("latency.jitter_ms", self.jitter_ms, 0.0, 1_000.0),
            ("latency.sessions", f64::from(self.sessions), 1.0, 1_000.0),
            ("latency.searches", f64::from(self.searches), 1.0, 100_000.0),
        ]
    }
}
