//! Beacon vector of a waiting ticket or an open session, completed once, by which round trips between them are predicted.

use std::sync::Arc;

use crate::filter::RoundTripPredictor;
use crate::latency::beacon_fleet::BeaconFleet;
use crate::latency::beacon_vector::CompletedVector;
use crate::latency::prediction::PairPrecision;
use crate::latency::round_trip_estimate::PredictionEnd;
use crate::locality::Locality;
use crate::queue::seat_vectors::SeatBeaconVectors;
use crate::ruleset::probing::LatencyTrust;
use crate::time::UnixMs;

/// Completed vector of a party's published floors.
#[derive(Clone, Debug)]
pub struct TicketBeaconVector {
    /// Fleet with which it was completed.
    pub fleet: Arc<BeaconFleet>,
    /// Published vectors that it was made from.
    pub source: SeatBeaconVectors,
    /// Floors, completed.
    pub completed: CompletedVector,
    /// Time at which it expires: from then on the ticket is matched by another vector, or by none.
    pub expires_at: UnixMs,
}

impl TicketBeaconVector {
    /// Vector of a party whose grid cell has its center at `center`, by its players' vectors that count at `now` for rules that trust
    /// floors of `trust`. `None` if there are too few floors, or no place.
    pub fn new(
        fleet: &Arc<BeaconFleet>,
        seat_vectors: &SeatBeaconVectors,
        center: Option<Locality>,
        trust: LatencyTrust,
        now: UnixMs,
    ) -> Option<Self> {
        let (floors, expires_at) = seat_vectors.party_beacon_floors(trust, now)?;
        let completed = CompletedVector::new(fleet, center, &floors).ok()?;
        Some(Self { fleet: Arc::clone(fleet), source: seat_vectors.clone(), completed, expires_at })
    }

    /// Predictor of the party's round trips to sessions that it may join.
    pub fn search_predictor(&self, now: UnixMs) -> RoundTripPredictor<'_> {
        RoundTripPredictor { fleet: &self.fleet, own_vector: &self.completed, now, precision: PairPrecision::Queue }
    }

    /// The party as one end of a prediction for a queue.
    pub fn prediction_input(&self) -> PredictionEnd<'_> {
        PredictionEnd { fleet: &self.fleet, vector: &self.completed, precision: PairPrecision::Queue }
    }
}
