//! Round trip from a searching party to an advertisement, by the best source that both have, as answers and explanations name it.

use crate::filter::{AdvertisementView, Searcher, measure_between, measured_or_predicted_round_trip};
use crate::latency::has_common_region;
use crate::latency::prediction_terms::PredictionTerms;
use crate::measure::Measure;
use crate::probe_result::{MeasuredOrPredictedRoundTrip, PredictedRoundTrip};
use crate::ruleset::Ruleset;

/// Round trip in milliseconds, and its source.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RoundTripWithSource {
    /// Measured by the caller.
    Measured(f64),
    /// Predicted from both sides' round trips to beacons.
    Predicted(PredictedRoundTrip),
    /// Estimated from both sides' round trips to a common region.
    ByRegion(f64),
    /// Estimated from the distance.
    ByDistance(f64),
}

impl RoundTripWithSource {
    /// Milliseconds, from any source.
    pub fn millis(self) -> f64 {
        match self {
            Self::Predicted(predicted) => predicted.round_trip_ms,
            Self::Measured(ms) | Self::ByRegion(ms) | Self::ByDistance(ms) => ms,
        }
    }
}

/// Round trip from `searcher` to `candidate`; `None` if no source has both. A measured one that counts longer, because it is old or faster
/// than light, has the source of the estimate.
pub fn search_round_trip(
    ruleset: &Ruleset,
    searcher: &Searcher<'_>,
    candidate: &AdvertisementView<'_>,
) -> Option<RoundTripWithSource> {
    let (one, other) = (searcher.session_view(), candidate.session_view());
    let estimated = |ms| match has_common_region(one.region_latencies, other.region_latencies) {
        true => RoundTripWithSource::ByRegion(ms),
        false => RoundTripWithSource::ByDistance(ms),
    };
    match measured_or_predicted_round_trip(ruleset, searcher, candidate) {
        Some(MeasuredOrPredictedRoundTrip::Measured { measured, is_as_measured: true, .. }) => {
            Some(RoundTripWithSource::Measured(measured.round_trip_ms))
        }
        Some(MeasuredOrPredictedRoundTrip::Measured { measured, .. }) => Some(estimated(measured.round_trip_ms)),
        Some(MeasuredOrPredictedRoundTrip::Predicted(predicted)) => Some(RoundTripWithSource::Predicted(predicted)),
        None => measure_between(ruleset, Measure::Latency, &one, &other, None).map(estimated),
    }
}

/// Round trip with the terms of its prediction, for operators.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExplainedRoundTrip {
    /// The round trip, and its source.
    pub round_trip: RoundTripWithSource,
    /// Terms of a predicted one.
    pub prediction_terms: Option<PredictionTerms>,
}

/// [`search_round_trip`] with the terms of a prediction.
pub(super) fn explained_round_trip(
    ruleset: &Ruleset,
    searcher: &Searcher<'_>,
    candidate: &AdvertisementView<'_>,
) -> Option<ExplainedRoundTrip> {
    let round_trip = search_round_trip(ruleset, searcher, candidate)?;
    let predictor = searcher.predictor.filter(|_| matches!(round_trip, RoundTripWithSource::Predicted(_)));
    let prediction = predictor.and_then(|predictor| {
        let session = &candidate.advertisement.session;
        let predicted = predictor.predict(ruleset, session, candidate.completed_vector)?;
        Some(predicted.terms(predictor.fleet.constants()))
    });
    Some(ExplainedRoundTrip { round_trip, prediction_terms: prediction })
}
