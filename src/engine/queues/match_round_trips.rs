//! Round trips between the tickets of a match, by which its host is chosen.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use crate::domain::id::{BuildIdHasher, TicketId};
use crate::domain::latency::round_trip_estimate::{EstimateEnd, RoundTripEstimate, estimate_round_trip};
use crate::domain::latency::{LatencyEndpoint, LatencyModel};
use crate::domain::queue::ticket_vector::TicketBeaconVector;
use crate::domain::ruleset::Ruleset;
use crate::domain::ruleset::probing::LatencyEstimatePolicy;
use crate::domain::session::Session;
use crate::domain::time::UnixMs;
use crate::engine::common::Common;
use crate::engine::queues::queue_predictions::RoundTripPredictor;
use crate::engine::queues::ticket_match_cache::TicketMatchCache;

/// Estimates of round trips between tickets at a time. A ticket's vector is completed once.
pub(crate) struct MatchRoundTrips {
    model: LatencyModel,
    /// `None`: too few beacons, so that regions and distance decide.
    predictions: Option<RoundTripPredictor>,
    vectors: RefCell<HashMap<TicketId, Option<Arc<TicketBeaconVector>>, BuildIdHasher>>,
}

impl MatchRoundTrips {
    /// Estimates by a ruleset; `None` if it predicts no round trips.
    pub(crate) fn of_ruleset(common: &Common, ruleset: &Ruleset, now: UnixMs) -> Option<Self> {
        let predictions = RoundTripPredictor::of_ruleset(common, ruleset, now);
        let model = ruleset.latency_model;
        (ruleset.probing.source == LatencyEstimatePolicy::PredictedV1).then(|| Self {
            model,
            predictions,
            vectors: RefCell::default(),
        })
    }

    /// Estimated round trip between two tickets; `None` if it is unknown.
    pub(crate) fn between(
        &self,
        cache: &TicketMatchCache,
        one: TicketId,
        other: TicketId,
    ) -> Option<RoundTripEstimate> {
        let vectors = [self.vector_of(cache, one), self.vector_of(cache, other)];
        let end = |id: TicketId, index: usize| {
            let session = &cache.ticket(id)?.ticket.session;
            let Session { locality, region_latencies, .. } = session;
            let endpoint = LatencyEndpoint { locality: *locality, region_latencies };
            Some(EstimateEnd { endpoint, prediction: vectors[index].as_ref().map(|vector| vector.prediction_input()) })
        };
        estimate_round_trip(&self.model, end(one, 0)?, end(other, 1)?)
    }

    fn vector_of(&self, cache: &TicketMatchCache, id: TicketId) -> Option<Arc<TicketBeaconVector>> {
        let predictions = self.predictions.as_ref()?;
        let mut vectors = self.vectors.borrow_mut();
        let complete = || {
            let stored = cache.ticket(id)?;
            predictions.complete_ticket_vector(&stored.ticket, &stored.seat_vectors).map(Arc::new)
        };
        vectors.entry(id).or_insert_with(complete).clone()
    }
}
