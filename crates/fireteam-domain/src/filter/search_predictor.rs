//! Predictor of a searching or waiting party: round trips to advertisements, from its own floors to beacons and their published vectors.

use crate::latency::beacon_fleet::BeaconFleet;
use crate::latency::beacon_vector::{CompletedVector, complete_published_vector};
use crate::latency::prediction::{PairPrecision, Prediction, predict};
use crate::probe_result::PredictedRoundTrip;
use crate::ruleset::Ruleset;
use crate::session::Session;
use crate::time::UnixMs;

/// Predictor of a searching or waiting party.
#[derive(Clone, Copy, Debug)]
pub struct RoundTripPredictor<'a> {
    /// Live beacons.
    pub fleet: &'a BeaconFleet,
    /// The party's floors, completed with `fleet`: in its own search the exact ones, from its 1 degree cell; in a queue those that others may
    /// know.
    pub own_vector: &'a CompletedVector,
    /// Time at which published vectors must be fresh.
    pub now: UnixMs,
    /// Exactness of both sides.
    pub precision: PairPrecision,
}

impl RoundTripPredictor<'_> {
    /// Predicts the round trip to an advertised session, with all quantities. `completed` is its vector if it was completed before.
    /// `None` if the vector is missing, old, not trusted by the ruleset, or has too few floors to live beacons.
    pub fn predict(
        &self,
        ruleset: &Ruleset,
        session: &Session,
        completed: Option<&CompletedVector>,
    ) -> Option<Prediction> {
        let vector = session
            .published_beacon_vector()
            .filter(|vector| vector.is_usable_at(self.now, ruleset.probing.region_latency_trust))?;
        let predict_to = |other| predict(self.fleet, self.own_vector, other, self.precision).ok();
        match completed.filter(|completed| completed.was_completed_with_round_trips_of(self.fleet)) {
            Some(completed) => predict_to(completed),
            None => predict_to(&complete_published_vector(self.fleet, session.locality, vector).ok()?),
        }
    }

    /// Predicted round trip to a session whose vector counts, by its completed vector, milliseconds. `None` if that was completed with
    /// another fleet.
    #[inline]
    pub(crate) fn predict_completed(&self, completed: &CompletedVector) -> Option<f64> {
        let is_current = completed.was_completed_with_round_trips_of(self.fleet);
        let predicted = is_current.then(|| predict(self.fleet, self.own_vector, completed, self.precision).ok())??;
        Some(predicted.round_trip_ms)
    }

    /// Predicted round trip, as filters and scores use it.
    pub(super) fn predict_round_trip(
        &self,
        ruleset: &Ruleset,
        session: &Session,
        completed: Option<&CompletedVector>,
    ) -> Option<PredictedRoundTrip> {
        let Prediction { round_trip_ms, low_ms, high_ms, .. } = self.predict(ruleset, session, completed)?;
        Some(PredictedRoundTrip { round_trip_ms, low_ms, high_ms })
    }
}
