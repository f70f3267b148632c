//! Explanations of searches that predict round trips, over the wire: the same refusals, sources and round trips as the search itself.

use std::sync::Arc;

use fireteam::auth::identity::Role;
use fireteam::config::{Config, StoreTarget};
use fireteam_client::{SearchSession, pb};
use prost::Message as _;
use tonic::{Code, Status};

use crate::security::beacon_receipts::{LatencyCaller, configure_beacons};
use crate::security::predicted_searches::{
    ADA, DISTANCE_SET, FAR, LIMITED_SET, NEAR, World, advertise, announce, ids, rulesets, session, test_beacons, token,
};
use crate::security::session_privacy::servers_on_one_postgres;
use crate::support::database::create_test_database;
use crate::support::generated_client as wire;
use crate::support::queue_server::{operator_client, wait_until};
use crate::support::test_server::{TestClock, TestServer};
use crate::support::tokens::TokenIssuer;

fn allow_overrides(config: &mut Config) {
    config.allow_client_locality = true;
    config.allow_search_overrides = true;
}

/// Search of ada.
async fn search_of_ada(server: &TestServer, issuer: &TokenIssuer, set_id: u32, token: &[u8]) -> SearchSession {
    let client = issuer.client_with_token(server, Role::Client, ADA.user).await;
    let client = client.with_metadata("x-forwarded-for", ADA.address).expect("a header");
    client.new_search(set_id, session(ADA, token))
}

/// Explanation of the search of ada, whose calls come from `address`.
async fn explain(
    server: &TestServer,
    issuer: &TokenIssuer,
    set_id: u32,
    token: &[u8],
    address: &str,
) -> Result<wire::ExplainResponse, Status> {
    let composition = session(ADA, token).encode_to_vec();
    let search = wire::ExplainSearch {
        session_composition: Some(wire::SessionCompositionData::decode(&*composition).expect("a session")),
        matchmaking_set_id: Some(set_id),
        caller_address: address.to_owned(),
        ..Default::default()
    };
    let mut request = tonic::Request::new(wire::ExplainRequest { search: Some(search), ..Default::default() });
    let header = issuer.authorization_header(Role::Operator, "ops").parse().expect("a header");
    request.metadata_mut().insert("authorization", header);
    Ok(operator_client(server).await.explain(request).await?.into_inner())
}

/// Checks that an explanation has the round trip of a candidate: the source, and the rounded figures. Returns its terms.
#[track_caller]
fn assert_same_round_trip(
    explained: Option<&wire::ExplainedRoundTrip>,
    candidate: &pb::Candidate,
) -> Option<wire::PredictionTerms> {
    let explained = explained.expect("a round trip");
    assert_eq!(explained.source, candidate.round_trip_source);
    let step = |rounded: fn(f64) -> f64, ms: f64| (rounded(ms / 25.0) * 25.0) as f32;
    assert_eq!(Some(step(f64::round, explained.round_trip_ms)), candidate.round_trip_ms);
    assert_eq!(explained.low_ms.map(|ms| step(f64::floor, ms)), candidate.round_trip_low_ms);
    assert_eq!(explained.high_ms.map(|ms| step(f64::ceil, ms)), candidate.round_trip_high_ms);
    let is_predicted = candidate.round_trip_source() == pb::RoundTripSource::Predicted;
    assert_eq!((explained.prediction.is_some(), explained.low_ms.is_some()), (is_predicted, is_predicted));
    let terms = explained.prediction?;
    assert!((terms.distance_part_ms + terms.beacon_part_ms - explained.round_trip_ms).abs() < 1e-9, "{terms:?}");
    Some(terms)
}

/// Compares the search of ada with its explanation, at one server.
async fn compare_search_with_explanation(
    server: &TestServer,
    issuer: &TokenIssuer,
    token: &[u8],
    near: &str,
    far: &str,
) {
    wait_until("the server knows both sessions and the beacons", async || {
        let found = search_of_ada(server, issuer, LIMITED_SET, token).await.search().await.expect("a search");
        ids(&found.candidates) == [far] && found.refusals.len() == 1
    })
    .await;
    let found = search_of_ada(server, issuer, LIMITED_SET, token).await.search().await.expect("a search");
    let explained = explain(server, issuer, LIMITED_SET, token, ADA.address).await.expect("an explanation");
    assert_eq!((explained.candidates, explained.compatible, explained.ignored_fields.len()), (2, 1, 0));

    let [compatible] = &explained.compatible_advertisements[..] else { panic!("{explained:?}") };
    assert_eq!(compatible.advertisement_id, far);
    assert_eq!((compatible.score * 1_000.0).round() / 1_000.0, found.candidates[0].score);
    let to_far = assert_same_round_trip(compatible.round_trip.as_ref(), &found.candidates[0]).expect("terms");

    let [miss] = &explained.near_misses[..] else { panic!("{explained:?}") };
    assert_eq!((&*miss.advertisement_id, &*miss.rule), (near, &*found.refusals[0].rule));
    assert_eq!(explained.blocking_rule, "", "one is compatible");
    assert_eq!((miss.measured, miss.limit), (miss.round_trip.map(|it| it.round_trip_ms), Some(100.0)));
    assert_eq!(miss.round_trip.expect("a round trip").source(), wire::RoundTripSource::Predicted);
    let mut wider = search_of_ada(server, issuer, LIMITED_SET, token).await;
    let limits = [("reach".to_owned(), 1_000.0)].into();
    wider.request_mut().search_config_overrides =
        Some(pb::MatchmakingSearchConfigOverrides { limits, ..Default::default() });
    let wider = wider.search().await.expect("a search").candidates;
    let candidate = wider.iter().find(|candidate| candidate.advertisement_id == near).expect("within the wider limit");
    let to_near = assert_same_round_trip(miss.round_trip.as_ref(), candidate).expect("terms");
    // The nearer one is behind a slow network, which only round trips to beacons show.
    assert!(to_near.distance_km < to_far.distance_km && to_near.near_distance_ms < to_far.near_distance_ms);
    assert!(to_far.beacon_part_ms + 50.0 < to_near.beacon_part_ms, "{to_near:?} {to_far:?}");
    assert!(to_far.near_access_ms + 50.0 < to_near.near_access_ms, "{to_near:?} {to_far:?}");
    assert!(0.0 < to_near.far_share && to_near.far_share < to_far.far_share && to_far.far_share < 1.0);

    // The search of the same party without a token that counts.
    let untrusted = explain(server, issuer, LIMITED_SET, token, "").await.expect("an explanation");
    assert_eq!(untrusted.ignored_fields, ["search.session_composition.latency_token"]);
    let by_distance =
        search_of_ada(server, issuer, LIMITED_SET, &[]).await.search().await.expect("a search").candidates;
    assert_eq!((untrusted.compatible, by_distance.len()), (2, 2));
    for (compatible, candidate) in untrusted.compatible_advertisements.iter().zip(&by_distance) {
        assert_eq!(compatible.advertisement_id, candidate.advertisement_id);
        assert_eq!(assert_same_round_trip(compatible.round_trip.as_ref(), candidate), None);
    }
}

/// LAT-1: a search that predicts and its explanation name the same refusing rule and the same round trips, on SQLite.
#[tokio::test]
async fn explained_search_has_the_predictions_of_the_search() {
    let data = tempfile::tempdir().unwrap();
    let mut world = World::start_with(|config| {
        allow_overrides(config);
        config.store = StoreTarget::Sqlite(data.path().join("fireteam.db"));
    })
    .await;
    let [ada, near, far] = [world.token(ADA).await, world.token(NEAR).await, world.token(FAR).await];
    let near = world.advertise(LIMITED_SET, NEAR, &near).await;
    let far = world.advertise(LIMITED_SET, FAR, &far).await;
    compare_search_with_explanation(&world.server, &world.issuer, &ada, near.id(), far.id()).await;

    let distance =
        explain(&world.server, &world.issuer, DISTANCE_SET, &ada, ADA.address).await.expect("an explanation");
    assert_eq!((distance.candidates, distance.ignored_fields.len()), (0, 0));
    let wrong = explain(&world.server, &world.issuer, LIMITED_SET, &ada, "203.0.113.7:50051").await.unwrap_err();
    assert_eq!(wrong.code(), Code::InvalidArgument);
    assert!(wrong.message().contains("search.caller_address"), "{}", wrong.message());
}

/// LAT-1, R9: the same on Postgres, at the server that has the advertisements and at another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explained_search_has_the_predictions_of_the_search_at_each_server() {
    let Some(database) = create_test_database("explained_searches").await else { return };
    let (folder, clock) = (rulesets(), Arc::new(TestClock::new()));
    let issuer = TokenIssuer::new(&*clock);
    let (one, two) = servers_on_one_postgres(&database.url, &clock, |config| {
        configure_beacons(config, &folder, &issuer);
        allow_overrides(config);
    })
    .await;
    let fleet = LatencyCaller::new(&one, &issuer, Role::GameServer, "fleet", "198.51.100.1").await;
    let mut beacons = test_beacons();
    announce(&fleet, &beacons).await;
    let mut tokens = Vec::new();
    for party in [ADA, NEAR, FAR] {
        tokens.push(token(&one, &issuer, &mut beacons, party).await);
    }
    let near = advertise(&one, &issuer, LIMITED_SET, NEAR, session(NEAR, &tokens[1])).await;
    let far = advertise(&one, &issuer, LIMITED_SET, FAR, session(FAR, &tokens[2])).await;
    for server in [&one, &two] {
        compare_search_with_explanation(server, &issuer, &tokens[0], near.id(), far.id()).await;
    }
}
