//! Round trips between the tickets of a match: its worst pair, and those by which its host is chosen.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use crate::domain::id::{BuildIdHasher, TicketId};
use crate::domain::latency::round_trip_estimate::{EstimateEnd, RoundTripEstimate, estimate_round_trip};
use crate::domain::latency::worst_pair::WorstPair;
use crate::domain::latency::{LatencyEndpoint, LatencyModel};
use crate::domain::lifecycle::MatchTicket;
use crate::domain::queue::ticket_vector::TicketBeaconVector;
use crate::domain::ruleset::Ruleset;
use crate::domain::ruleset::probing::LatencyEstimatePolicy;
use crate::domain::session::Session;
use crate::domain::time::UnixMs;
use crate::engine::common::Common;
use crate::engine::queues::queue_predictions::VectorCompleter;
use crate::engine::queues::ticket_match_cache::TicketMatchCache;

/// Estimates of round trips between tickets at a time. A ticket's vector is completed once.
pub(crate) struct MatchRoundTrips {
    model: LatencyModel,
    /// `None`: too few beacons, so that regions and distance decide.
    vector_completer: Option<VectorCompleter>,
    vectors: RefCell<HashMap<TicketId, Option<Arc<TicketBeaconVector>>, BuildIdHasher>>,
}

impl MatchRoundTrips {
    /// Estimates by a ruleset; `None` if it predicts no round trips.
    pub(crate) fn of_ruleset(common: &Common, ruleset: &Ruleset, now: UnixMs) -> Option<Self> {
        let predictions = VectorCompleter::of_ruleset(common, ruleset, now);
        let model = ruleset.latency_model;
        (ruleset.probing.latency_estimate_policy == LatencyEstimatePolicy::PredictedV1).then(|| Self {
            model,
            vector_completer: predictions,
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
        let [ours, theirs] = [one, other].map(|id| self.vector_of(cache, id));
        let (one, other) =
            (round_trip_endpoint(cache, one, ours.as_deref())?, round_trip_endpoint(cache, other, theirs.as_deref())?);
        estimate_round_trip(&self.model, one, other)
    }

    /// Worst pair of tickets, as indices; `None` for fewer than two.
    pub(crate) fn worst_pair(&self, cache: &TicketMatchCache, tickets: &[MatchTicket]) -> Option<WorstPair> {
        let ids = || tickets.iter().map(|ticket| ticket.ticket_id);
        let vectors: Vec<Option<Arc<TicketBeaconVector>>> = ids().map(|id| self.vector_of(cache, id)).collect();
        let ends = ids().zip(&vectors).map(|(id, vector)| round_trip_endpoint(cache, id, vector.as_deref()));
        WorstPair::of_parties(&self.model, &ends.collect::<Option<Vec<_>>>()?)
    }

    fn vector_of(&self, cache: &TicketMatchCache, id: TicketId) -> Option<Arc<TicketBeaconVector>> {
        let predictions = self.vector_completer.as_ref()?;
        let mut vectors = self.vectors.borrow_mut();
        let complete = || {
            let stored = cache.ticket(id)?;
            predictions.complete_ticket_vector(&stored.ticket, &stored.seat_vectors).map(Arc::new)
        };
        vectors.entry(id).or_insert_with(complete).clone()
    }
}

/// Ticket as one end of an estimate; `None` if it is unknown.
fn round_trip_endpoint<'a>(
    cache: &'a TicketMatchCache,
    id: TicketId,
    vector: Option<&'a TicketBeaconVector>,
) -> Option<EstimateEnd<'a>> {
    let Session { locality, region_latencies, .. } = &cache.ticket(id)?.ticket.session;
    let endpoint = LatencyEndpoint { locality: *locality, region_latencies };
    Some(EstimateEnd {
        locality_and_region_latencies: endpoint,
        prediction_end: vector.map(TicketBeaconVector::prediction_input),
    })
}
