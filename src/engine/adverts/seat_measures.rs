//! Measures between a session and the party that reserves seats in it, for statistics.

use crate::domain::filter::{AdvertisementView, Searcher, measure_between, measured_or_predicted_round_trip};
use crate::domain::measure::Measure;
use crate::domain::ruleset::Ruleset;
use crate::domain::score::score;

/// Score, distance and round trip of a session for the party that reserves seats in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeatMeasures {
    /// Score, without the cost of avoided players; lower is better.
    pub(super) score: f64,
    /// Distance; `None` if a place is unknown.
    pub(super) distance_miles: Option<f64>,
    /// Measured or expected round trip; `None` if it cannot be estimated.
    pub(super) round_trip_ms: Option<f64>,
}

impl SeatMeasures {
    /// Measures between a party and a session.
    pub(super) fn new(ruleset: &Ruleset, searcher: &Searcher<'_>, session: &AdvertisementView<'_>) -> Self {
        let counted = measured_or_predicted_round_trip(ruleset, searcher, session);
        let (one, other) = (searcher.session_view(), session.session_view());
        Self {
            score: score(ruleset, searcher, session),
            distance_miles: measure_between(ruleset, Measure::Distance, &one, &other, None),
            round_trip_ms: measure_between(ruleset, Measure::Latency, &one, &other, counted),
        }
    }
}
