//! Published beacon vectors: the floors of a party as others are matched by them, with their age and source, and their bytes in
//! a store.

use crate::ruleset::probing::LatencyTrust;
use crate::time::UnixMs;

/// Time after its oldest measurement at which a published vector is absent, milliseconds.
pub const PUBLISHED_VECTOR_LIFETIME_MS: u64 = 600_000;

/// Maximum number of floors of a published vector.
pub const PUBLISHED_FLOORS_MAX: usize = 32;

/// Floor of a party to one beacon, as if measured from the center of its cell, in steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishedFloor {
    /// Beacon id.
    pub beacon_id: u32,
    /// Number of steps of [`ROUND_TRIP_ROUNDING_MS`](crate::location_privacy::ROUND_TRIP_ROUNDING_MS).
    pub steps: u16,
}

/// Floors of a party as others are matched by them.
#[derive(Clone, Debug, PartialEq)]
pub struct PublishedVector {
    /// By beacon id, each beacon once; at most [`PUBLISHED_FLOORS_MAX`].
    floors: Box<[PublishedFloor]>,
    /// Time of the oldest measurement.
    oldest_measured_at: UnixMs,
    /// The weakest source of a floor.
    weakest_source: LatencyTrust,
    /// Lower bounds of its floors over straight paths.
    excess: LeastPathExcess,
}

/// Lower bounds of the floors of a vector, which let searches skip parties that are too far. Each is the least excess over a
/// straight path, rounded down; finite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LeastPathExcess {
    /// Over the line that predictions use for near parties, milliseconds.
    pub near_ms: f32,
    /// Over what light takes in fiber, milliseconds.
    pub light_ms: f32,
}

/// First byte of the encoding.
const FORMAT: u8 = 1;
const HEADER_BYTES: usize = 18;
const FLOOR_BYTES: usize = 6;

impl PublishedVector {
    /// Takes floors in the order of beacon ids, each beacon once. `None` if there are none, too many, or in another order.
    pub fn new(
        floors: Vec<PublishedFloor>,
        measured_at: UnixMs,
        source: LatencyTrust,
        excess: LeastPathExcess,
    ) -> Option<Self> {
        let is_valid = (1..=PUBLISHED_FLOORS_MAX).contains(&floors.len())
            && excess.near_ms.is_finite()
            && excess.light_ms.is_finite()
            && floors.is_sorted_by(|one, other| one.beacon_id < other.beacon_id);
        is_valid.then(|| Self {
            floors: floors.into(),
            oldest_measured_at: measured_at,
            weakest_source: source,
            excess,
        })
    }

    /// Floors by beacon id.
    pub fn floors(&self) -> &[PublishedFloor] {
        &self.floors
    }

    /// Lower bounds of its floors.
    pub fn least_path_excess(&self) -> LeastPathExcess {
        self.excess
    }

    /// Whether it counts at `now`, for rules that trust floors of `trust`: it expires ten minutes after its oldest measurement.
    pub fn is_usable_at(&self, now: UnixMs, trust: LatencyTrust) -> bool {
        now.ms_since(self.oldest_measured_at) < PUBLISHED_VECTOR_LIFETIME_MS && self.is_trusted(trust)
    }

    /// Whether its floors are trusted by rules that trust those of `trust`.
    pub fn is_trusted(&self, trust: LatencyTrust) -> bool {
        self.weakest_source <= trust
    }

    /// Time from which it no longer counts.
    pub fn expires_at(&self) -> UnixMs {
        self.oldest_measured_at.plus_ms(PUBLISHED_VECTOR_LIFETIME_MS)
    }

    /// Bytes of the vector in a store.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + self.floors.len() * FLOOR_BYTES);
        bytes.push(FORMAT);
        bytes.push(match self.weakest_source {
            LatencyTrust::Proven => 1,
            LatencyTrust::Observed => 2,
            LatencyTrust::Claimed => 3,
        });
        bytes.extend(self.oldest_measured_at.0.to_be_bytes());
        bytes.extend(self.excess.near_ms.to_be_bytes());
        bytes.extend(self.excess.light_ms.to_be_bytes());
        for floor in &self.floors {
            bytes.extend(floor.beacon_id.to_be_bytes());
            bytes.extend(floor.steps.to_be_bytes());
        }
        bytes
    }

    /// Reads the bytes of a store. `None` for those of a newer server, and for damaged ones: then there is no vector.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (header, floors) = bytes.split_first_chunk::<HEADER_BYTES>()?;
        let (&[FORMAT, source], times) = header.split_first_chunk::<2>()? else { return None };
        let (measured_at, excess) = times.split_first_chunk::<8>()?;
        let (near_ms, light_ms) = excess.split_first_chunk::<4>()?;
        let excess = LeastPathExcess {
            near_ms: f32::from_be_bytes(*near_ms),
            light_ms: f32::from_be_bytes(light_ms.try_into().ok()?),
        };
        let source = match source {
            1 => LatencyTrust::Proven,
            2 => LatencyTrust::Observed,
            3 => LatencyTrust::Claimed,
            _ => return None,
        };
        let (floors, []) = floors.as_chunks::<FLOOR_BYTES>() else { return None };
        let floor = |&[a, b, c, d, high, low]: &[u8; FLOOR_BYTES]| PublishedFloor {
            beacon_id: u32::from_be_bytes([a, b, c, d]),
            steps: u16::from_be_bytes([high, low]),
        };
        let measured_at = UnixMs(u64::from_be_bytes(*measured_at));
        Self::new(floors.iter().map(floor).collect(), measured_at, source, excess)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const EXCESS: LeastPathExcess = LeastPathExcess { near_ms: -3.5, light_ms: 4.25 };

    fn any_vector() -> impl Strategy<Value = PublishedVector> {
        let floors = prop::collection::btree_map(any::<u32>(), any::<u16>(), 1..=PUBLISHED_FLOORS_MAX);
        let trust = prop::sample::select(vec![LatencyTrust::Proven, LatencyTrust::Observed, LatencyTrust::Claimed]);
        (floors, any::<u64>(), trust).prop_map(|(floors, measured_at, trust)| {
            let floors = floors.into_iter().map(|(beacon_id, steps)| PublishedFloor { beacon_id, steps });
            PublishedVector::new(floors.collect(), UnixMs(measured_at), trust, EXCESS).unwrap()
        })
    }

    proptest! {
        #[test]
        fn published_vector_round_trips(vector in any_vector()) {
            let bytes = vector.encode();
            prop_assert_eq!(PublishedVector::decode(&bytes[..bytes.len() - 1]), None);
            prop_assert_eq!(PublishedVector::decode(&bytes), Some(vector));
        }

        #[test]
        fn published_vector_decoder_takes_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..250)) {
            if let Some(vector) = PublishedVector::decode(&bytes) {
                prop_assert_eq!(vector.encode(), bytes);
            }
        }
    }

    #[test]
    fn published_vector_expires_ten_minutes_after_its_oldest_measurement() {
        let floors = vec![PublishedFloor { beacon_id: 1, steps: 3 }];
        let vector = PublishedVector::new(floors, UnixMs(1_000), LatencyTrust::Observed, EXCESS).unwrap();
        let counts = |now_ms, trust| vector.is_usable_at(UnixMs(now_ms), trust);
        assert!(counts(600_999, LatencyTrust::Observed) && !counts(601_000, LatencyTrust::Observed));
        assert!(counts(1_000, LatencyTrust::Claimed) && !counts(1_000, LatencyTrust::Proven));
    }

    #[test]
    fn published_vector_without_order_or_floors_does_not_exist() {
        let floor = |beacon_id| PublishedFloor { beacon_id, steps: 1 };
        let vector =
            |floors: Vec<PublishedFloor>| PublishedVector::new(floors, UnixMs(1), LatencyTrust::Proven, EXCESS);
        assert!(vector(vec![floor(1), floor(2)]).is_some());
        assert_eq!(
            [vector(vec![]), vector(vec![floor(2), floor(1)]), vector(vec![floor(1), floor(1)])],
            [None, None, None]
        );
        assert_eq!(vector((0..33).map(floor).collect()), None);
    }
}
