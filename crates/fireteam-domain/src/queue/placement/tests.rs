//! Ranking of game servers.

use super::*;
use crate::queue::tests::fixture::QueueFixture;
use crate::ruleset::teams::HostingSpec;

const MATCH: MatchId = MatchId::from_bytes([1; 16]);

/// Server `n` with round trips to regions, milliseconds.
fn server_session(round_trips: &[(&str, f32)]) -> Session {
    let latency = |(region, round_trip_ms): &(&str, f32)| RegionLatency {
        region: (*region).into(),
        round_trip_ms: *round_trip_ms,
    };
    Session { region_latencies: round_trips.iter().map(latency).collect(), ..Session::default() }
}

/// Party with the round trips of `session`, without a place.
fn end_of(session: &Session) -> EstimateEnd<'_> {
    let endpoint = LatencyEndpoint { locality: None, region_latencies: &session.region_latencies };
    EstimateEnd { locality_and_region_latencies: endpoint, prediction_end: None }
}

fn server_id(n: u8) -> AdvertisementId {
    AdvertisementId::from_bytes([n; 16])
}

fn candidate(n: u8, session: &Session, open_seats: u16, score: f64) -> ServerCandidate<'_> {
    ServerCandidate { id: server_id(n), session, open_seats, prediction_end: None, score, is_heartbeat_overdue: false }
}

fn rank(
    hosting: impl FnOnce(&mut HostingSpec),
    region: Option<&str>,
    party: &Session,
    candidates: &[ServerCandidate<'_>],
) -> Result<Vec<u8>, PlacementProblem> {
    let mut ruleset = QueueFixture::one_vs_one().ruleset;
    hosting(&mut ruleset.hosting);
    let parties = [end_of(party)];
    let to_place = MatchToPlace { id: MATCH, region, parties: &parties, unconfirmed_servers: &[server_id(99)] };
    rank_servers(&ruleset, &to_place, candidates).map(|ids| ids.iter().map(|id| id.as_bytes()[0]).collect())
}

/// A match that was agreed for one region is not placed in another, however good the score. A server that states no
/// region comes last.
#[test]
fn placement_keeps_the_region_of_the_match() {
    let (eu, us) = (server_session(&[("eu", 5.0), ("us", 90.0)]), server_session(&[("eu", 90.0), ("us", 5.0)]));
    let unknown = Session::default();
    let party = server_session(&[("eu", 20.0), ("us", 110.0)]);
    let all = [candidate(1, &us, 9, 0.0), candidate(2, &eu, 9, 0.5), candidate(3, &unknown, 9, 0.1)];
    assert_eq!(rank(|_| {}, Some("eu"), &party, &all), Ok(vec![2, 3]));
    assert_eq!(rank(|_| {}, Some("us"), &party, &all), Ok(vec![1, 3]));
    assert_eq!(rank(|_| {}, None, &party, &all), Ok(vec![1, 3, 2]), "by score");
    assert_eq!(rank(|_| {}, Some("eu"), &party, &all[..1]), Err(PlacementProblem::OtherRegion));
    assert_eq!(rank(|_| {}, Some("eu"), &party, &[]), Err(PlacementProblem::NoServer));
    assert_eq!(rank(|_| {}, None, &party, &[candidate(99, &eu, 9, 0.0)]), Err(PlacementProblem::NotConfirmed));
}

/// A server farther than the limit from any party is not taken.
#[test]
fn placement_keeps_the_longest_round_trip() {
    let (near, far) = (server_session(&[("eu", 5.0)]), server_session(&[("eu", 80.0)]));
    let party = server_session(&[("eu", 20.0)]);
    let all = [candidate(1, &far, 9, 0.0), candidate(2, &near, 9, 1.0)];
    let limited = |hosting: &mut HostingSpec| hosting.max_round_trip_ms = Some(50);
    assert_eq!(rank(limited, Some("eu"), &party, &all), Ok(vec![2]));
    assert_eq!(rank(limited, Some("eu"), &party, &all[..1]), Err(PlacementProblem::TooFar));
    let nowhere = Session::default();
    assert_eq!(rank(limited, None, &nowhere, &all), Ok(vec![1, 2]), "an unknown distance is not refused");
}

/// The ruleset chooses among the servers that may host.
#[test]
fn placement_follows_the_choice_of_the_ruleset() {
    let (near, far) = (server_session(&[("eu", 5.0)]), server_session(&[("eu", 80.0)]));
    let party = server_session(&[("eu", 2.0)]);
    let all = [candidate(1, &far, 4, 0.0), candidate(2, &near, 8, 2.0), candidate(3, &far, 6, 1.0)];
    let by = |choice| {
        rank(|hosting: &mut HostingSpec| hosting.game_server_order = choice, Some("eu"), &party, &all).unwrap()
    };
    assert_eq!(by(GameServerOrder::BestScore), [1, 3, 2]);
    assert_eq!(by(GameServerOrder::Closest)[0], 2);
    assert_eq!(by(GameServerOrder::Emptiest), [2, 3, 1]);
    assert_eq!(by(GameServerOrder::Fullest), [1, 3, 2]);
}

/// Matches of equal servers spread over them, and one match tries them in the same order each time.
#[test]
fn placement_spreads_matches_over_equal_servers() {
    let session = Session::default();
    let all: Vec<ServerCandidate<'_>> = (0..10).map(|n| candidate(n, &session, 9, 0.0)).collect();
    let ruleset = QueueFixture::one_vs_one().ruleset;
    let mut first_counts = [0_u32; 10];
    for n in 0..=255 {
        let to_place =
            MatchToPlace { id: MatchId::from_bytes([n; 16]), region: None, parties: &[], unconfirmed_servers: &[] };
        let ranked = rank_servers(&ruleset, &to_place, &all).unwrap();
        assert_eq!(rank_servers(&ruleset, &to_place, &all).unwrap(), ranked);
        first_counts[usize::from(ranked[0].as_bytes()[0])] += 1;
    }
    assert!(first_counts.iter().all(|count| (10..=45).contains(count)), "{first_counts:?}");
}

/// A server that was not heard for long is tried after all others, also if it is the best choice.
#[test]
fn placement_tries_silent_servers_last() {
    let near = server_session(&[("eu", 5.0)]);
    let silent = ServerCandidate { is_heartbeat_overdue: true, ..candidate(1, &near, 9, 0.0) };
    let party = server_session(&[("eu", 20.0)]);
    let all = [silent, candidate(2, &near, 9, 1.0), candidate(3, &near, 9, 2.0)];
    assert_eq!(rank(|_| {}, None, &party, &all), Ok(vec![2, 3, 1]));
}

/// Round trips to the server's own region count where the ruleset predicts round trips, and not the best region that party and server
/// have in common.
#[test]
fn closest_server_is_by_its_own_region_where_round_trips_are_predicted() {
    let (eu, us) = (server_session(&[("eu", 5.0), ("us", 90.0)]), server_session(&[("eu", 70.0), ("us", 8.0)]));
    let party = server_session(&[("eu", 60.0), ("us", 80.0)]);
    let mut ruleset = QueueFixture::one_vs_one().ruleset;
    ruleset.hosting.game_server_order = GameServerOrder::Closest;
    let choose = |ruleset: &Ruleset, party: &Session| {
        let parties = [end_of(party)];
        let to_place = MatchToPlace { id: MATCH, region: None, parties: &parties, unconfirmed_servers: &[] };
        let candidates = [candidate(1, &us, 9, 0.0), candidate(2, &eu, 9, 0.0)];
        rank_servers(ruleset, &to_place, &candidates).map(|ids| ids[0])
    };
    assert_eq!(choose(&ruleset, &party), Ok(server_id(2)), "60 ms by the common region eu, 70 ms to the other");
    let farther = server_session(&[("eu", 95.0), ("us", 85.0)]);
    assert_eq!(choose(&ruleset, &farther), Ok(server_id(1)), "85 ms by us, 90 ms to the other");
    ruleset.probing.latency_estimate_policy = LatencyEstimatePolicy::PredictedV1;
    assert_eq!(choose(&ruleset, &party), Ok(server_id(2)), "60 ms to eu, 80 ms to us");
    let no_eu = server_session(&[("us", 88.0)]);
    assert_eq!(choose(&ruleset, &no_eu), Ok(server_id(1)), "88 ms to us; 90 ms to eu by the common region");
}
