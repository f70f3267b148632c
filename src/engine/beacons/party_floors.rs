//! Floors of a party to beacons: as others are matched by them, and for its own searches.

use std::sync::Arc;

use crate::auth::token::{BeaconRoundTrip, BeaconRoundTripSource};
use crate::domain::filter::RoundTripPredictor;
use crate::domain::latency::beacon_fleet::BeaconFleet;
use crate::domain::latency::beacon_vector::{CompletedVector, MeasuredBeaconFloor, published_vector};
use crate::domain::latency::prediction::PairPrecision;
use crate::domain::latency::published_vector::PublishedVector;
use crate::domain::locality::Locality;
use crate::domain::ruleset::probing::LatencyTrust;
use crate::domain::time::UnixMs;
use crate::engine::beacon_directory::BeaconDirectory;

/// Floors of a party to beacons: of each beacon the longest of its members'.
#[derive(Debug, Default)]
pub(crate) struct PartyBeaconFloors {
    /// By beacon id.
    pub(crate) floors: Vec<MeasuredBeaconFloor>,
    /// Time of the oldest measurement.
    oldest_measured_at: UnixMs,
    /// The weakest source.
    weakest_source: LatencyTrust,
}

impl PartyBeaconFloors {
    pub(super) fn new(entries: &[BeaconRoundTrip], trust: LatencyTrust, now: UnixMs) -> Self {
        let mut party = Self { floors: Vec::new(), oldest_measured_at: now, weakest_source: LatencyTrust::Proven };
        for entry in entries {
            let source = trust_of_source(entry.source);
            if source <= trust {
                party.floors.push(MeasuredBeaconFloor { beacon_id: entry.beacon_id, floor_ms: entry.floor_ms });
                party.oldest_measured_at = party.oldest_measured_at.min(UnixMs(now.0.saturating_sub(entry.age_ms)));
                party.weakest_source = party.weakest_source.max(source);
            }
        }
        party
    }

    /// Vector by which others may be matched with the party at `place`, as if it were at `center` of its cell. `None` if no floor
    /// is to a beacon of the fleet, or the fleet is too small to predict.
    pub(crate) fn to_published_vector(
        &self,
        beacons: &BeaconDirectory,
        place_and_center: Option<(Locality, Locality)>,
        now: UnixMs,
    ) -> Option<PublishedVector> {
        if self.floors.is_empty() {
            return None;
        }
        let fleet = beacons.fleet(now)?;
        published_vector(&fleet, &self.floors, place_and_center?, self.oldest_measured_at, self.weakest_source)
    }

    /// Predictor of the party's own search from its 1 degree cell at `place`, by the floors as they are. `None` if the fleet is too
    /// small to predict, too few floors are to its beacons, or the place is unknown.
    pub(crate) fn predictor(
        &self,
        beacons: &BeaconDirectory,
        place: Option<Locality>,
        now: UnixMs,
    ) -> Option<PartyPredictor> {
        if self.floors.is_empty() {
            return None;
        }
        let fleet = beacons.fleet(now)?;
        let own = CompletedVector::new(&fleet, place, &self.floors).ok()?;
        Some(PartyPredictor { fleet, own, now })
    }
}

/// Predictor of a searching party, with the beacons that it uses.
#[derive(Debug)]
pub(crate) struct PartyPredictor {
    fleet: Arc<BeaconFleet>,
    own: CompletedVector,
    now: UnixMs,
}

impl PartyPredictor {
    /// The predictor as filters and scores use it.
    pub(crate) fn as_search_predictor(&self) -> RoundTripPredictor<'_> {
        RoundTripPredictor {
            fleet: &self.fleet,
            own_vector: &self.own,
            now: self.now,
            precision: PairPrecision::Search,
        }
    }
}

/// Trust that a ruleset must have for round trips of a source.
fn trust_of_source(source: BeaconRoundTripSource) -> LatencyTrust {
    match source {
        BeaconRoundTripSource::Proven => LatencyTrust::Proven,
        BeaconRoundTripSource::Observed => LatencyTrust::Observed,
        BeaconRoundTripSource::Claimed => LatencyTrust::Claimed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn party_floors_keep_trusted_sources_and_the_oldest_age() {
        let entry = |beacon_id, source, age_ms| BeaconRoundTrip::new(beacon_id, 30.0, source, age_ms);
        let entries = [
            entry(1, BeaconRoundTripSource::Proven, 8_000),
            entry(2, BeaconRoundTripSource::Observed, 4_000),
            entry(3, BeaconRoundTripSource::Claimed, 40_000),
        ];
        let floors = |trust| {
            let party = PartyBeaconFloors::new(&entries, trust, UnixMs(100_000));
            (
                party.floors.iter().map(|floor| floor.beacon_id).collect::<Vec<u32>>(),
                party.oldest_measured_at,
                party.weakest_source,
            )
        };
        assert_eq!(floors(LatencyTrust::Proven), (vec![1], UnixMs(92_000), LatencyTrust::Proven));
        assert_eq!(floors(LatencyTrust::Observed), (vec![1, 2], UnixMs(92_000), LatencyTrust::Observed));
        assert_eq!(floors(LatencyTrust::Claimed), (vec![1, 2, 3], UnixMs(60_000), LatencyTrust::Claimed));
    }
}
