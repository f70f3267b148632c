//! Fleet of live beacons: their places and the round trips between them.

use sha2::{Digest, Sha256};

use crate::latency::FIBER_ONE_WAY_KM_PER_MS;
use crate::latency::prediction_unavailable::PredictionUnavailable;
use crate::latency::predictor_constants::PredictorConstants;
use crate::limit::ROUND_TRIP_MS_MAX;
use crate::locality::Locality;
use crate::location_privacy::arc_km;

/// Largest number of beacons in a fleet. The work for a pair of parties grows with it.
pub const FLEET_BEACONS_MAX: usize = 256;

/// Round trip that stands for an unknown one between two beacons, milliseconds: longer than any route through others.
pub const UNKNOWN_BEACON_PAIR_ROUND_TRIP_MS: f64 = 10_000.0;

/// Round trip of light in fiber, milliseconds per kilometer.
pub(crate) const FIBER_ROUND_TRIP_MS_PER_KM: f64 = 2.0 / FIBER_ONE_WAY_KM_PER_MS;

/// Live beacon.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Beacon {
    /// Beacon id. Never reused: a beacon that moves gets a new one.
    pub id: u32,
    /// Place of the beacon.
    pub place: Locality,
}

/// Round trip that one beacon measured to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BeaconPairRoundTrip {
    /// Id of the beacon that measured.
    pub from: u32,
    /// Id of the beacon that answered.
    pub to: u32,
    /// Least round trip, milliseconds, in [0, `limit::ROUND_TRIP_MS_MAX`].
    pub round_trip_ms: f64,
}

/// Live beacons with the round trips between them, and the constants with which it predicts.
#[derive(Clone, Debug, PartialEq)]
pub struct BeaconFleet {
    constants: PredictorConstants,
    /// In the order of ids.
    beacons: Box<[Beacon]>,
    /// One row per beacon, symmetric, 0 on the diagonal.
    round_trips_ms: Box<[f64]>,
    /// Pairs of beacons whose round trip is known.
    known_pair_count: usize,
    fingerprint_without_round_trips: u64,
    fingerprint_with_round_trips: u64,
    /// Largest amount by which a round trip between two beacons is less than light takes, milliseconds; 0 where their places
    /// are right.
    max_light_shortfall_ms: f64,
}

impl BeaconFleet {
    /// Fleet of these beacons. Of several with one id the first counts; of more than [`FLEET_BEACONS_MAX`] those with the
    /// smallest ids. Between two beacons the mean of both directions counts, of several in one direction the least. A
    /// value out of range or of an unknown beacon is ignored.
    pub fn new(beacons: &[Beacon], round_trips: &[BeaconPairRoundTrip], constants: PredictorConstants) -> Self {
        let mut beacons = beacons.to_vec();
        beacons.sort_by_key(|beacon| beacon.id);
        beacons.dedup_by_key(|beacon| beacon.id);
        beacons.truncate(FLEET_BEACONS_MAX);
        let count = beacons.len();
        let index_of = |id: u32| beacons.binary_search_by_key(&id, |beacon| beacon.id).ok();
        let mut directed_ms: Vec<Option<f64>> = vec![None; count * count];
        for BeaconPairRoundTrip { from, to, round_trip_ms } in round_trips {
            let (Some(from), Some(to)) = (index_of(*from), index_of(*to)) else { continue };
            if is_valid_round_trip(*round_trip_ms) {
                let known_ms = &mut directed_ms[from * count + to];
                *known_ms = Some(known_ms.map_or(*round_trip_ms, |known_ms| known_ms.min(*round_trip_ms)));
            }
        }
        let mut round_trips_ms = vec![0.0; count * count];
        let mut known_pair_count = 0;
        for one in 0..count {
            for other in 0..one {
                let both = [directed_ms[one * count + other], directed_ms[other * count + one]];
                let mean_ms = match both {
                    [Some(there), Some(back)] => Some((there + back) / 2.0),
                    [there, back] => there.or(back),
                };
                known_pair_count += usize::from(mean_ms.is_some());
                let round_trip_ms = mean_ms.unwrap_or(UNKNOWN_BEACON_PAIR_ROUND_TRIP_MS);
                round_trips_ms[one * count + other] = round_trip_ms;
                round_trips_ms[other * count + one] = round_trip_ms;
            }
        }
        let mut light_shortfall_ms: f64 = 0.0;
        for (index, beacon) in beacons.iter().enumerate() {
            for (other, round_trip_ms) in beacons.iter().zip(&round_trips_ms[index * count..]) {
                let light_ms = FIBER_ROUND_TRIP_MS_PER_KM * arc_km(beacon.place, other.place);
                light_shortfall_ms = light_shortfall_ms.max(light_ms - round_trip_ms);
            }
        }
        let fingerprint = fingerprint_without_round_trips(&beacons, &constants);
        let revision = fingerprint_with_round_trips(fingerprint, &round_trips_ms);
        let (beacons, round_trips_ms) = (beacons.into(), round_trips_ms.into());
        Self {
            constants,
            beacons,
            round_trips_ms,
            known_pair_count,
            fingerprint_without_round_trips: fingerprint,
            fingerprint_with_round_trips: revision,
            max_light_shortfall_ms: light_shortfall_ms,
        }
    }

    /// Constants with which this fleet predicts.
    pub fn constants(&self) -> &PredictorConstants {
        &self.constants
    }

    /// Beacons in the order of their ids.
    pub fn beacons(&self) -> &[Beacon] {
        &self.beacons
    }

    /// Position of a beacon in [`BeaconFleet::beacons`], if it is live.
    pub fn index_of(&self, beacon_id: u32) -> Option<usize> {
        self.beacons.binary_search_by_key(&beacon_id, |beacon| beacon.id).ok()
    }

    /// Round trips of the beacon at `index` to all beacons, milliseconds, in the order of [`BeaconFleet::beacons`].
    pub(crate) fn round_trips_from_beacon_ms(&self, index: usize) -> &[f64] {
        let count = self.beacons.len();
        &self.round_trips_ms[index * count..(index + 1) * count]
    }

    /// Number that differs for fleets of other beacons, other places or another line over the distance. New round trips
    /// between the same beacons do not change it: vectors that were completed before them remain good.
    pub(crate) fn fingerprint_without_round_trips(&self) -> u64 {
        self.fingerprint_without_round_trips
    }

    /// Number that differs for fleets by which vectors are completed to other values: also for other round trips.
    pub(crate) fn fingerprint_with_round_trips(&self) -> u64 {
        self.fingerprint_with_round_trips
    }

    /// Largest amount by which a round trip between two beacons is less than light takes, milliseconds.
    pub(crate) fn max_light_shortfall_ms(&self) -> f64 {
        self.max_light_shortfall_ms
    }

    /// Checks that predictions of this fleet are better than distance alone.
    ///
    /// # Errors
    ///
    /// Too few beacons, or too few known round trips between them.
    pub fn check_can_predict(&self) -> Result<(), PredictionUnavailable> {
        let count = self.beacons.len();
        if count < self.constants.beacons_min {
            return Err(PredictionUnavailable::TooFewBeacons);
        }
        let pair_count = count * count.saturating_sub(1) / 2;
        if self.known_pair_count * 100 < pair_count * self.constants.known_pairs_percent_min {
            return Err(PredictionUnavailable::TooFewBeaconRoundTrips);
        }
        Ok(())
    }

    /// Ids of at most `count` beacons that a party at `place` measures first: the nearest, ties by id. Floors to far beacons
    /// make predictions worse.
    pub fn nearest_ids(&self, place: Locality, count: usize) -> Vec<u32> {
        let mut by_distance: Vec<(f64, u32)> =
            self.beacons.iter().map(|beacon| (arc_km(place, beacon.place), beacon.id)).collect();
        by_distance.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        by_distance.into_iter().take(count).map(|(_, id)| id).collect()
    }
}

/// Whether a round trip is a finite number in [0, `limit::ROUND_TRIP_MS_MAX`].
pub(crate) fn is_valid_round_trip(round_trip_ms: f64) -> bool {
    (0.0..=f64::from(ROUND_TRIP_MS_MAX)).contains(&round_trip_ms)
}

/// First 8 bytes of SHA-256 over ids, places and the line over the distance.
fn fingerprint_without_round_trips(beacons: &[Beacon], constants: &PredictorConstants) -> u64 {
    let mut hash = Sha256::new();
    for Beacon { id, place } in beacons {
        hash.update(id.to_be_bytes());
        [place.x, place.y, place.z].iter().for_each(|axis| hash.update(axis.to_bits().to_be_bytes()));
    }
    constants.line.iter().for_each(|constant| hash.update(constant.to_bits().to_be_bytes()));
    first_64_bits(hash)
}

/// First 8 bytes of SHA-256 over a fingerprint and the round trips.
fn fingerprint_with_round_trips(fingerprint: u64, round_trips_ms: &[f64]) -> u64 {
    let mut hash = Sha256::new();
    hash.update(fingerprint.to_be_bytes());
    round_trips_ms.iter().for_each(|ms| hash.update(ms.to_bits().to_be_bytes()));
    first_64_bits(hash)
}

fn first_64_bits(hash: Sha256) -> u64 {
    let digest: [u8; 32] = hash.finalize().into();
    digest[..8].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}
