//! Round trips predicted from beacons: limits, scores and the time of the next pass follow them, and the end of a vector.

use std::sync::Arc;

use crate::expansion::Expansion;
use crate::filter::{Refusal, RefusingSide, estimate_round_trip_between};
use crate::latency::beacon_fleet::{Beacon, BeaconFleet, BeaconPairRoundTrip};
use crate::latency::beacon_vector::{CompletedVector, MeasuredBeaconFloor};
use crate::latency::prediction::{PairPrecision, predict};
use crate::latency::predictor_constants::PREDICTOR_V1;
use crate::latency::round_trip_by_regions_or_distance;
use crate::latency::round_trip_estimate::EstimateSource;
use crate::locality::Locality;
use crate::measure::Measure;
use crate::queue::pass_state::PassState;
use crate::queue::seat_vectors::SeatBeaconVectors;
use crate::queue::tests::fixture::{NOW, QueueFixture, random_queue_fixture};
use crate::queue::ticket_vector::TicketBeaconVector;
use crate::ruleset::{HardFilter, HardMissingPolicy, HardRule};

/// Fleet in which the even beacons are 20 ms from each other, and so are the odd ones; 200 ms are between the two.
pub(super) fn two_networks() -> Arc<BeaconFleet> {
    let place = |id: u32| Locality::from_degrees(f64::from(id % 7) * 2.0, f64::from(id) * 3.0).unwrap();
    let beacons: Vec<Beacon> = (0..16).map(|id| Beacon { id, place: place(id) }).collect();
    let pairs = (0..16_u32).flat_map(|from| (0..from).map(move |to| (from, to)));
    let round_trips: Vec<BeaconPairRoundTrip> = pairs
        .map(|(from, to)| {
            let round_trip_ms = if from % 2 == to % 2 { 20.0 } else { 200.0 };
            BeaconPairRoundTrip { from, to, round_trip_ms }
        })
        .collect();
    Arc::new(BeaconFleet::new(&beacons, &round_trips, PREDICTOR_V1))
}

/// Vector of a party at the equator that is 25 ms from the beacons of one network.
pub(super) fn vector(fleet: &Arc<BeaconFleet>, network: u32, longitude: f64) -> Arc<TicketBeaconVector> {
    let floors: Vec<MeasuredBeaconFloor> =
        (0..8).map(|number| MeasuredBeaconFloor { beacon_id: 2 * number + network, floor_ms: 25.0 }).collect();
    let completed = CompletedVector::new(fleet, Locality::from_degrees(0.0, longitude), &floors).unwrap();
    Arc::new(TicketBeaconVector {
        fleet: Arc::clone(fleet),
        source: SeatBeaconVectors::default(),
        completed,
        expires_at: NOW.plus_ms(5_000),
    })
}

/// 1v1 queue with a limit of 100 ms, and three tickets 40 degrees apart: the first and the last are of one network.
pub(super) fn limited_fixture() -> QueueFixture {
    let mut fixture = QueueFixture::one_vs_one();
    fixture.ruleset.expansions = [Expansion::constant("latency", Measure::Latency, 100.0).unwrap()].into();
    let rule = HardRule::Within { measure: Measure::Latency, expansion: 0, reciprocal_percent: 100.0 };
    fixture.ruleset.hard_filters =
        [HardFilter { name: "near".into(), missing: HardMissingPolicy::Refuse, rule }].into();
    let fleet = two_networks();
    for (number, network) in [0, 1, 0].into_iter().enumerate() {
        let longitude = 40.0 * number as f64;
        let id = fixture.add_ticket(&[1.0], 1_000);
        Arc::make_mut(&mut fixture.tickets[number]).session.locality = Locality::from_degrees(0.0, longitude);
        fixture.vectors.insert(id, vector(&fleet, network, longitude));
    }
    fixture
}

/// A limit compares the predicted round trip, where distance would pair others.
#[test]
fn limits_of_a_queue_follow_predictions() {
    let mut fixture = limited_fixture();
    assert_eq!(fixture.matched_ticket_numbers(), [[0, 2]]);
    // By distance only neighbors are near enough.
    fixture.vectors.clear();
    assert_eq!(fixture.matched_ticket_numbers(), [[0, 1]]);
}

/// A vector that has ended counts for no pair, and the pass says when that changes something.
#[test]
fn ended_vector_leaves_a_ticket_to_distance() {
    let mut fixture = limited_fixture();
    // Without the last ticket no two are of one network.
    fixture.tickets.pop();
    fixture.leaderboard_positions.pop();
    let report = fixture.run_pass().report;
    assert_eq!((report.proposed_ticket_count, report.next_change_at), (0, Some(NOW.plus_ms(5_000))));
    let refusal = Refusal::HardFilter { filter_index: 0, side: RefusingSide::Searcher };
    assert_eq!(report.unmatched[0].refusal, refusal);
    fixture.now = NOW.plus_ms(4_999);
    assert_eq!(fixture.run_pass().report.proposed_ticket_count, 0);
    fixture.now = NOW.plus_ms(5_000);
    assert_eq!(fixture.run_pass().report.proposed_ticket_count, 2);
}

/// The ladder of a pair in random queues: predicted with two vectors, else by a common region, else by distance; and the same
/// from both sides, to the bit.
#[test]
fn estimates_of_pairs_follow_the_ladder() {
    let mut counts = [0; 4];
    for seed in (0..300).step_by(3) {
        let fixture = random_queue_fixture(seed, 24);
        fixture.with_input(&fixture.prepared_tickets(), |input| {
            let pass_state = PassState::new(input);
            for one in &pass_state.tickets {
                for other in &pass_state.tickets {
                    let views = [one, other].map(|ticket| ticket.waiting_session.session);
                    let estimate = estimate_round_trip_between(input.ruleset, &views[0], &views[1]);
                    assert_eq!(
                        estimate,
                        estimate_round_trip_between(input.ruleset, &views[1], &views[0]),
                        "seed {seed}"
                    );
                    let vectors = [one, other].map(|ticket| {
                        let vector = fixture.vectors.get(&ticket.prepared.ticket.id)?;
                        (fixture.now < vector.expires_at).then_some(vector)
                    });
                    let (expected_ms, source) = if let [Some(one), Some(other)] = vectors {
                        let queue = PairPrecision::Queue;
                        let predicted = predict(&one.fleet, &one.completed, &other.completed, queue).unwrap();
                        assert_eq!(estimate.unwrap().interval_ms, [predicted.low_ms, predicted.high_ms]);
                        (Some(predicted.round_trip_ms), EstimateSource::Predicted)
                    } else {
                        let ends = views.map(|view| view.as_estimate_end().locality_and_region_latencies);
                        let names = |index: usize| views[index].region_latencies.iter().map(|latency| &latency.region);
                        let has_region = names(0).any(|one| names(1).any(|other| one == other));
                        let by_place =
                            round_trip_by_regions_or_distance(&input.ruleset.latency_model, ends[0], ends[1]);
                        (by_place, if has_region { EstimateSource::Region } else { EstimateSource::Distance })
                    };
                    assert_eq!(estimate.map(|estimate| estimate.round_trip_ms), expected_ms, "seed {seed}");
                    counts[estimate.map_or(3, |estimate| estimate.source as usize)] += 1;
                    assert_eq!(estimate.map(|estimate| estimate.source), expected_ms.map(|_| source), "seed {seed}");
                }
            }
        });
    }
    assert!(counts.iter().all(|count| 1_000 < *count), "{counts:?}");
}
