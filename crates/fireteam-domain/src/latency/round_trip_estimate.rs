//! Estimated round trip between two parties that have not measured it, by the best source that both have: predicted, then
//! by a common region, then by distance.

use crate::latency::beacon_fleet::BeaconFleet;
use crate::latency::beacon_vector::CompletedVector;
use crate::latency::prediction::{PairPrecision, Prediction, predict};
use crate::latency::prediction_terms::PredictionTerms;
use crate::latency::{LatencyEndpoint, LatencyModel, has_common_region, round_trip_by_regions_or_distance};

/// Party as one end of a prediction.
#[derive(Clone, Copy, Debug)]
pub struct PredictionEnd<'a> {
    /// Fleet with which `vector` was completed.
    pub fleet: &'a BeaconFleet,
    /// Floors of the party.
    pub vector: &'a CompletedVector,
    /// Exactness of the pair, by which the first of two ends decides.
    pub precision: PairPrecision,
}

/// Party as one end of an estimate.
#[derive(Clone, Copy, Debug)]
pub struct EstimateEnd<'a> {
    /// Place and round trips to regions.
    pub locality_and_region_latencies: LatencyEndpoint<'a>,
    /// Its vector; `None`: nothing is predicted.
    pub prediction_end: Option<PredictionEnd<'a>>,
}

/// Source of an estimate, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EstimateSource {
    /// Round trips of both to beacons.
    Predicted,
    /// A region that both have measured.
    Region,
    /// Distance.
    Distance,
}

/// Estimated round trip.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RoundTripEstimate {
    /// Expected round trip, milliseconds.
    pub round_trip_ms: f64,
    /// Low and high end of a prediction's interval, which holds nine of ten round trips; the round trip itself for other
    /// sources, which have no interval. Milliseconds.
    pub interval_ms: [f64; 2],
    /// Source.
    pub source: EstimateSource,
}

impl RoundTripEstimate {
    /// Round trip that nine of ten pairs do not exceed by much: what careful rules compare with limits.
    pub fn high_ms(&self) -> f64 {
        self.interval_ms[1]
    }
}

/// Estimated round trip between two parties; `None` if no source has both of them. Never a mean of two sources. The same for
/// both orders of a pair whose ends have one precision.
#[inline]
pub fn estimate_round_trip(
    model: &LatencyModel,
    one: EstimateEnd<'_>,
    other: EstimateEnd<'_>,
) -> Option<RoundTripEstimate> {
    if let Some(predicted) = predicted_round_trip(one, other) {
        let Prediction { round_trip_ms, low_ms, high_ms, .. } = predicted;
        let source = EstimateSource::Predicted;
        return Some(RoundTripEstimate { round_trip_ms, interval_ms: [low_ms, high_ms], source });
    }
    let (one, other) = (one.locality_and_region_latencies, other.locality_and_region_latencies);
    let round_trip_ms = round_trip_by_regions_or_distance(model, one, other)?;
    let source = match has_common_region(one.region_latencies, other.region_latencies) {
        true => EstimateSource::Region,
        false => EstimateSource::Distance,
    };
    Some(RoundTripEstimate { round_trip_ms, interval_ms: [round_trip_ms; 2], source })
}

/// Estimated round trip with the terms of its prediction, for operators.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExplainedEstimate {
    /// The estimate.
    pub estimate: RoundTripEstimate,
    /// Terms of a predicted one.
    pub prediction_terms: Option<PredictionTerms>,
}

/// [`estimate_round_trip`] with the terms of a prediction.
pub fn explain_estimate(
    model: &LatencyModel,
    one: EstimateEnd<'_>,
    other: EstimateEnd<'_>,
) -> Option<ExplainedEstimate> {
    let estimate = estimate_round_trip(model, one, other)?;
    let constants = one.prediction_end.map(|end| end.fleet.constants());
    let terms =
        predicted_round_trip(one, other).zip(constants).map(|(predicted, constants)| predicted.terms(constants));
    Some(ExplainedEstimate { estimate, prediction_terms: terms })
}

/// Expected round trip of [`estimate_round_trip`], milliseconds.
#[inline]
pub fn estimated_round_trip_ms(model: &LatencyModel, one: EstimateEnd<'_>, other: EstimateEnd<'_>) -> Option<f64> {
    match predicted_round_trip(one, other) {
        Some(predicted) => Some(predicted.round_trip_ms),
        None => round_trip_by_regions_or_distance(
            model,
            one.locality_and_region_latencies,
            other.locality_and_region_latencies,
        ),
    }
}

/// Prediction between two parties; `None` if one of them has no vector.
#[inline]
fn predicted_round_trip(one: EstimateEnd<'_>, other: EstimateEnd<'_>) -> Option<Prediction> {
    let (ours, theirs) = (one.prediction_end?, other.prediction_end?);
    predict(ours.fleet, ours.vector, theirs.vector, ours.precision).ok()
}
