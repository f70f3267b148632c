//! Beacon vectors of the players of a ticket, and the vector of their party: of each beacon the longest of the players' floors.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::latency::beacon_vector::MeasuredBeaconFloor;
use crate::latency::published_vector::PublishedVector;
use crate::location_privacy::ROUND_TRIP_ROUNDING_MS;
use crate::ruleset::probing::LatencyTrust;
use crate::time::UnixMs;

/// Player whose vector it is: an index in the session of the ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeatIndex(pub u8);

/// Vectors by seat, each seat at most once. A player without one is not counted. Clones share them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SeatBeaconVectors(Option<Arc<[(SeatIndex, PublishedVector)]>>);

impl SeatBeaconVectors {
    /// Takes vectors of different seats, in any order; of one seat the last counts.
    pub fn new(vectors: impl IntoIterator<Item = (SeatIndex, PublishedVector)>) -> Self {
        let by_seat: BTreeMap<SeatIndex, PublishedVector> = vectors.into_iter().collect();
        Self((!by_seat.is_empty()).then(|| by_seat.into_iter().collect()))
    }

    /// Vectors in the order of seats.
    pub fn vectors(&self) -> &[(SeatIndex, PublishedVector)] {
        self.0.as_deref().unwrap_or_default()
    }

    /// Vector of one seat.
    pub fn of_seat(&self, seat: SeatIndex) -> Option<&PublishedVector> {
        self.vectors().iter().find(|(own, _)| *own == seat).map(|(_, vector)| vector)
    }

    /// The vectors with another one for `seat`.
    #[must_use]
    pub fn with(&self, seat: SeatIndex, vector: PublishedVector) -> Self {
        Self::new(self.vectors().iter().cloned().chain([(seat, vector)]))
    }

    /// Floors of the party at `now`: of each beacon the longest of the players' whose vector counts for rules that trust floors of
    /// `trust`; and the time at which the first of these vectors ends. `None` if none counts.
    pub fn party_beacon_floors(&self, trust: LatencyTrust, now: UnixMs) -> Option<(Vec<MeasuredBeaconFloor>, UnixMs)> {
        let counting = || self.vectors().iter().map(|(_, vector)| vector).filter(|it| it.is_usable_at(now, trust));
        let ends_at = counting().map(PublishedVector::expires_at).min()?;
        let mut steps: BTreeMap<u32, u16> = BTreeMap::new();
        for floor in counting().flat_map(PublishedVector::floors) {
            let longest = steps.entry(floor.beacon_id).or_default();
            *longest = floor.steps.max(*longest);
        }
        let floor =
            |(beacon_id, steps)| MeasuredBeaconFloor { beacon_id, floor_ms: f64::from(steps) * ROUND_TRIP_ROUNDING_MS };
        Some((steps.into_iter().map(floor).collect(), ends_at))
    }

    /// Bytes of the vectors in a store; `None` without any.
    pub fn encode(&self) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        for (SeatIndex(seat), vector) in self.vectors() {
            let vector = vector.encode();
            bytes.extend([*seat, u8::try_from(vector.len()).ok()?]);
            bytes.extend(vector);
        }
        self.0.is_some().then_some(bytes)
    }

    /// Reads the bytes of a store. Vectors that a newer server has written, and damaged ones, are left out: the ticket is then
    /// matched without them.
    pub fn decode(mut bytes: &[u8]) -> Self {
        let mut vectors = Vec::new();
        while let &[seat, len, ref rest @ ..] = bytes {
            let Some((vector, rest)) = rest.split_at_checked(usize::from(len)) else { break };
            vectors.extend(PublishedVector::decode(vector).map(|vector| (SeatIndex(seat), vector)));
            bytes = rest;
        }
        Self::new(vectors)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::latency::published_vector::{LeastPathExcess, PublishedFloor};

    const EXCESS: LeastPathExcess = LeastPathExcess { near_ms: 1.5, light_ms: 2.5 };

    fn any_vector() -> impl Strategy<Value = PublishedVector> {
        let floors = prop::collection::btree_map(0..40_u32, 0..50_u16, 1..=32);
        let trust = prop::sample::select(vec![LatencyTrust::Proven, LatencyTrust::Observed, LatencyTrust::Claimed]);
        (floors, 0..1_000_000_u64, trust).prop_map(|(floors, measured_at, trust)| {
            let floors = floors.into_iter().map(|(beacon_id, steps)| PublishedFloor { beacon_id, steps });
            PublishedVector::new(floors.collect(), UnixMs(measured_at), trust, EXCESS).unwrap()
        })
    }

    fn any_vectors() -> impl Strategy<Value = Vec<(SeatIndex, PublishedVector)>> {
        prop::collection::vec(((0..5_u8).prop_map(SeatIndex), any_vector()), 0..6)
    }

    proptest! {
        #[test]
        fn seat_vectors_round_trip(vectors in any_vectors()) {
            let vectors = SeatBeaconVectors::new(vectors);
            let decoded = vectors.encode().map_or_else(SeatBeaconVectors::default, |bytes| SeatBeaconVectors::decode(&bytes));
            prop_assert_eq!(decoded, vectors);
        }

        #[test]
        fn seat_vectors_decoder_takes_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..250)) {
            SeatBeaconVectors::decode(&bytes);
        }

        /// The party has, of each beacon, the longest floor of the players whose vector counts, until the first of these ends.
        #[test]
        fn party_is_as_far_as_its_farthest_player(vectors in any_vectors(), now in 0..1_600_000_u64) {
            let (vectors, trust, now) = (SeatBeaconVectors::new(vectors), LatencyTrust::Observed, UnixMs(now));
            let party = vectors.party_beacon_floors(trust, now);
            let counting: Vec<&PublishedVector> =
                vectors.vectors().iter().map(|(_, vector)| vector).filter(|it| it.is_usable_at(now, trust)).collect();
            prop_assert_eq!(party.is_some(), !counting.is_empty());
            let Some((floors, ends_at)) = party else { return Ok(()) };
            let mut expected = Vec::new();
            for beacon_id in 0..40 {
                let of_players =
                    counting.iter().flat_map(|vector| vector.floors()).filter(|it| it.beacon_id == beacon_id);
                if let Some(steps) = of_players.map(|floor| floor.steps).max() {
                    expected.push(MeasuredBeaconFloor { beacon_id, floor_ms: 25.0 * f64::from(steps) });
                }
            }
            prop_assert_eq!(floors, expected);
            prop_assert!(counting.iter().any(|vector| !vector.is_usable_at(ends_at, trust)));
            let before = UnixMs(ends_at.0 - 1);
            prop_assert!(counting.iter().all(|vector| vector.is_usable_at(before, trust)));
        }
    }

    #[test]
    fn newer_vector_of_a_seat_replaces_the_older_one() {
        let vector = |steps| {
            let floor = PublishedFloor { beacon_id: 1, steps };
            PublishedVector::new(vec![floor], UnixMs(1), LatencyTrust::Proven, EXCESS).unwrap()
        };
        let vectors = SeatBeaconVectors::new([(SeatIndex(1), vector(1)), (SeatIndex(0), vector(2))])
            .with(SeatIndex(1), vector(3));
        let steps: Vec<u16> = vectors.vectors().iter().map(|(_, vector)| vector.floors()[0].steps).collect();
        assert_eq!((steps, vectors.of_seat(SeatIndex(2))), (vec![2, 3], None));
    }
}
