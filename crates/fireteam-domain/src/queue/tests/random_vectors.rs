//! Random beacon vectors of tickets, drawn apart from everything else.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::id::TicketId;
use crate::latency::beacon_fleet::{Beacon, BeaconFleet, BeaconPairRoundTrip};
use crate::latency::beacon_vector::{CompletedVector, MeasuredBeaconFloor};
use crate::latency::predictor_constants::PREDICTOR_V1;
use crate::locality::Locality;
use crate::location_privacy::arc_km;
use crate::queue::rng::SplitMix64;
use crate::queue::seat_vectors::SeatBeaconVectors;
use crate::queue::tests::fixture::{one_in, pick_random, random_below};
use crate::queue::ticket::Ticket;
use crate::queue::ticket_vector::TicketBeaconVector;
use crate::time::UnixMs;

/// Number of beacons in a fleet.
const BEACONS: u32 = 14;

/// Vectors of some of the tickets in the random fixture of `seed`. No ticket of two of three fixtures has any. Some have expired,
/// others expire soon.
pub(in crate::queue) fn random_vectors(
    seed: u64,
    tickets: &[Arc<Ticket>],
    now: UnixMs,
) -> BTreeMap<TicketId, Arc<TicketBeaconVector>> {
    let mut rng = SplitMix64(seed ^ 0xbeac_0000);
    if !seed.is_multiple_of(3) {
        return BTreeMap::new();
    }
    let fleet = Arc::new(random_fleet(&mut rng));
    let mut vectors = BTreeMap::new();
    for ticket in tickets {
        let expires_in = pick_random(&mut rng, &[0, 300, 20_000, 400_000, 400_000]);
        let place = ticket.session.locality.filter(|_| !one_in(&mut rng, 4));
        let Some(place) = place else { continue };
        let completed = random_vector(&mut rng, &fleet, place);
        let vector = TicketBeaconVector {
            fleet: Arc::clone(&fleet),
            source: SeatBeaconVectors::default(),
            completed,
            expires_at: now.plus_ms(expires_in),
        };
        vectors.insert(ticket.id, Arc::new(vector));
    }
    vectors
}

fn random_place(rng: &mut SplitMix64) -> Locality {
    Locality::from_degrees(random_below(rng, 120) as f64 - 60.0, random_below(rng, 300) as f64 - 150.0).unwrap()
}

/// Round trip by the distance, with a random detour.
fn random_round_trip_ms(rng: &mut SplitMix64, km: f64, detour_ms: u64) -> f64 {
    km * 0.01 + random_below(rng, detour_ms) as f64
}

fn random_fleet(rng: &mut SplitMix64) -> BeaconFleet {
    let beacons: Vec<Beacon> = (0..BEACONS).map(|id| Beacon { id, place: random_place(rng) }).collect();
    let mut round_trips = Vec::new();
    for one in &beacons {
        for other in &beacons[..one.id as usize] {
            let round_trip_ms = random_round_trip_ms(rng, arc_km(one.place, other.place), 80);
            round_trips.push(BeaconPairRoundTrip { from: one.id, to: other.id, round_trip_ms });
        }
    }
    BeaconFleet::new(&beacons, &round_trips, PREDICTOR_V1)
}

fn random_vector(rng: &mut SplitMix64, fleet: &BeaconFleet, place: Locality) -> CompletedVector {
    let floor = |beacon: &Beacon| {
        let floor_ms = random_round_trip_ms(rng, arc_km(place, beacon.place), 40);
        MeasuredBeaconFloor { beacon_id: beacon.id, floor_ms: (floor_ms / 25.0).round() * 25.0 }
    };
    let floors: Vec<MeasuredBeaconFloor> = fleet.beacons().iter().take(10).map(floor).collect();
    CompletedVector::new(fleet, Some(place), &floors).unwrap()
}
