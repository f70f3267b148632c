//! Sources of the round trips by which simulated searches choose a session.

use serde::Serialize;

/// Source of the round trips by which a search chooses a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LatencySource {
    /// Distance between the cells of both sides, by the ruleset's latency model. Nothing is probed.
    Distance,
    /// Prediction from floors to beacons, otherwise distance. Nothing is probed.
    Predicted,
    /// As `Predicted`, and the best are probed, as many as the ruleset's `<Latency>` says.
    Measured,
}

impl LatencySource {
    /// All sources, the least exact first.
    pub const ALL: [Self; 3] = [Self::Distance, Self::Predicted, Self::Measured];

    /// Name in flags and reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Distance => "distance",
            Self::Predicted => "predicted",
            Self::Measured => "measured",
        }
    }
}
