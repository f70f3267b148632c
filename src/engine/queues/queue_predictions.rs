//! Predictions of round trips between tickets: the current fleet of beacons, and tickets' vectors completed for it.

use std::sync::Arc;

use crate::domain::latency::beacon_fleet::BeaconFleet;
use crate::domain::queue::seat_vectors::{SeatBeaconVectors, SeatIndex};
use crate::domain::queue::ticket::Ticket;
use crate::domain::queue::ticket_vector::TicketBeaconVector;
use crate::domain::ruleset::Ruleset;
use crate::domain::ruleset::probing::{LatencyEstimatePolicy, LatencyTrust};
use crate::domain::session::Session;
use crate::domain::time::UnixMs;
use crate::engine::common::Common;

/// Fleet at a time, and the floors that a ruleset trusts.
#[derive(Clone, Debug)]
pub(crate) struct VectorCompleter {
    fleet: Arc<BeaconFleet>,
    trust: LatencyTrust,
    now: UnixMs,
}

impl VectorCompleter {
    /// Predictions of a ruleset at `now`; `None` if it predicts no round trips, or there are too few beacons.
    pub(crate) fn of_ruleset(common: &Common, ruleset: &Ruleset, now: UnixMs) -> Option<Self> {
        if ruleset.probing.latency_estimate_policy != LatencyEstimatePolicy::PredictedV1 {
            return None;
        }
        Some(Self { fleet: common.beacons.fleet(now)?, trust: ruleset.probing.region_latency_trust, now })
    }

    /// Fleet.
    pub(crate) fn beacon_fleet(&self) -> &Arc<BeaconFleet> {
        &self.fleet
    }

    /// Vector of a ticket; `None` if too few of its players' floors count, or it has no place.
    pub(crate) fn complete_ticket_vector(
        &self,
        ticket: &Ticket,
        seat_vectors: &SeatBeaconVectors,
    ) -> Option<TicketBeaconVector> {
        TicketBeaconVector::new(&self.fleet, seat_vectors, ticket.session.locality, self.trust, self.now)
    }

    /// Vector of a published session, as of a ticket with this vector alone.
    pub(crate) fn complete_session_vector(&self, session: &Session) -> Option<TicketBeaconVector> {
        let vector = session.published_beacon_vector()?.clone();
        let alone = SeatBeaconVectors::new([(SeatIndex(0), vector)]);
        TicketBeaconVector::new(&self.fleet, &alone, session.locality, self.trust, self.now)
    }

    /// Whether a completed vector is the one that [`VectorCompleter::complete_ticket_vector`] gives.
    pub(crate) fn is_current(&self, known: Option<&TicketBeaconVector>, seat_vectors: &SeatBeaconVectors) -> bool {
        match known {
            None => seat_vectors.vectors().is_empty(),
            Some(known) => {
                self.now < known.expires_at && Arc::ptr_eq(&known.fleet, &self.fleet) && known.source == *seat_vectors
            }
        }
    }
}
