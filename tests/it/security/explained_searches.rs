//! Explanations of searches that predict round trips, over the wire: the same refusals, sources and round trips as the search itself.

use std::sync::Arc;

use fireteam::auth::identity::Role;
use fireteam::config::{Config, StoreTarget};
use fireteam_client::{SearchSession, pb};
use prost::Message as _;
use tonic::{Code, Status};

use crate::security::beacon_receipts::{LatencyCaller, configure_beacons};
use crate::security::predicted_searches::{
    ADA, AVOIDING_SET, DISTANCE_SET, FAR, LIMITED_SET, MEASURED_SET, NEAR, Party, World, advertise, announce, ids,
    rulesets, session, test_beacons, token,
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

/// Search of a session, whose calls come from the address of ada.
async fn search_of(
    server: &TestServer,
    issuer: &TokenIssuer,
    set_id: u32,
    session: pb::SessionCompositionData,
) -> SearchSession {
    let client = issuer.client_with_token(server, Role::Client, ADA.user).await;
    let client = client.with_metadata("x-forwarded-for", ADA.address).expect("a header");
    client.new_search(set_id, session)
}

/// Search of ada.
async fn search_of_ada(server: &TestServer, issuer: &TokenIssuer, set_id: u32, token: &[u8]) -> SearchSession {
    search_of(server, issuer, set_id, session(ADA, token)).await
}

/// The search of a session, to be explained.
fn search_to_explain(set_id: u32, session: &pb::SessionCompositionData) -> wire::ExplainSearch {
    wire::ExplainSearch {
        session_composition: Some(wire::SessionCompositionData::decode(&*session.encode_to_vec()).expect("a session")),
        matchmaking_set_id: Some(set_id),
        caller_address: ADA.address.to_owned(),
        ..Default::default()
    }
}

/// Explanation by an operator.
async fn explain_search(
    server: &TestServer,
    issuer: &TokenIssuer,
    search: wire::ExplainSearch,
    max_nearest: Option<u32>,
) -> Result<wire::ExplainResponse, Status> {
    let request = wire::ExplainRequest { search: Some(search), max_nearest, ..Default::default() };
    Ok(operator_client(server).await.explain(issuer.operator_request("ops", request)).await?.into_inner())
}

/// Explanation of the search of ada, whose calls come from `address`.
async fn explain(
    server: &TestServer,
    issuer: &TokenIssuer,
    set_id: u32,
    token: &[u8],
    address: &str,
) -> Result<wire::ExplainResponse, Status> {
    let search = search_to_explain(set_id, &session(ADA, token));
    explain_search(server, issuer, wire::ExplainSearch { caller_address: address.to_owned(), ..search }, None).await
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
    assert_eq!((untrusted.compatible, untrusted.compatible_advertisements.len(), by_distance.len()), (2, 2, 2));
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

    let wrong = explain(&world.server, &world.issuer, LIMITED_SET, &ada, "203.0.113.7:50051").await.unwrap_err();
    assert_eq!(wrong.code(), Code::InvalidArgument);
    assert!(wrong.message().contains("search.caller_address"), "{}", wrong.message());
}

/// A set that does not predict explains by distance, also for a party that has a latency token: the answer has neither interval nor terms.
#[tokio::test]
async fn explained_search_of_a_set_by_distance_has_no_prediction() {
    let mut world = World::start_with(allow_overrides).await;
    let [ada, near, far] = [world.token(ADA).await, world.token(NEAR).await, world.token(FAR).await];
    let near = world.advertise(DISTANCE_SET, NEAR, &near).await;
    let far = world.advertise(DISTANCE_SET, FAR, &far).await;
    let explained =
        explain(&world.server, &world.issuer, DISTANCE_SET, &ada, ADA.address).await.expect("an explanation");
    let found = search_of_ada(&world.server, &world.issuer, DISTANCE_SET, &ada).await.search().await.expect("a search");
    assert_eq!((explained.candidates, explained.compatible, explained.ignored_fields.len()), (2, 2, 0));
    assert_eq!(ids(&found.candidates), [near.id(), far.id()]);
    assert_eq!(explained.compatible_advertisements.len(), 2);
    for (compatible, candidate) in explained.compatible_advertisements.iter().zip(&found.candidates) {
        assert_eq!(compatible.advertisement_id, candidate.advertisement_id);
        assert_eq!(candidate.round_trip_source(), pb::RoundTripSource::Distance);
        assert_eq!(assert_same_round_trip(compatible.round_trip.as_ref(), candidate), None);
    }
}

/// S1-28: where only measured round trips pass a limit, an explanation refuses each session that the search refuses, by the same rule and
/// without a measured value. It names the estimate that did not count, also one within the limit.
#[tokio::test]
async fn explained_search_with_measured_source_refuses_estimates() {
    let mut world = World::start_with(allow_overrides).await;
    let [ada, near, far] = [world.token(ADA).await, world.token(NEAR).await, world.token(FAR).await];
    let near = world.advertise(MEASURED_SET, NEAR, &near).await;
    let far = world.advertise(MEASURED_SET, FAR, &far).await;
    let found = search_of_ada(&world.server, &world.issuer, MEASURED_SET, &ada).await.search().await.expect("a search");
    let [refusal] = &found.refusals[..] else { panic!("{found:?}") };
    assert_eq!((found.candidates.len(), refusal.count), (0, 2));
    let explained =
        explain(&world.server, &world.issuer, MEASURED_SET, &ada, ADA.address).await.expect("an explanation");
    assert_eq!((explained.candidates, explained.compatible), (2, 0));
    assert_eq!((&*explained.blocking_rule, &*refusal.rule), ("latency", "latency"));
    let mut missed: Vec<&str> = explained.near_misses.iter().map(|miss| &*miss.advertisement_id).collect();
    missed.sort_unstable();
    let mut published = [near.id(), far.id()];
    published.sort_unstable();
    assert_eq!(missed, published);
    for miss in &explained.near_misses {
        let round_trip = miss.round_trip.expect("an estimate");
        assert_eq!((&*miss.rule, miss.measured), ("latency", None));
        assert_eq!(round_trip.source(), wire::RoundTripSource::Distance);
        assert!(round_trip.round_trip_ms < 100.0 && round_trip.prediction.is_none(), "{miss:?}");
    }
}

/// An explanation lists at most `max_nearest` near misses and as many compatible advertisements, the first of the search's candidates,
/// and counts all.
#[tokio::test]
async fn explained_search_lists_max_nearest_of_each_kind() {
    let mut world = World::start_with(allow_overrides).await;
    let nearer = Party { user: "nearer", address: "203.0.116.7", delay_ms: 300.0, ..NEAR };
    let farther = Party { user: "farther", address: "203.0.117.7", delay_ms: 25.0, ..FAR };
    let ada = world.token(ADA).await;
    let mut adverts = Vec::new();
    for party in [NEAR, nearer, FAR, farther] {
        let token = world.token(party).await;
        adverts.push(world.advertise(LIMITED_SET, party, &token).await);
    }
    let found = search_of_ada(&world.server, &world.issuer, LIMITED_SET, &ada).await.search().await.expect("a search");
    assert_eq!(ids(&found.candidates), [adverts[2].id(), adverts[3].id()]);
    let search = search_to_explain(LIMITED_SET, &session(ADA, &ada));
    for most in [0, 1, 2, 50] {
        let explained = explain_search(&world.server, &world.issuer, search.clone(), Some(most)).await;
        let explained = explained.expect("an explanation");
        assert_eq!((explained.candidates, explained.compatible), (4, 2));
        let listed = most.min(2) as usize;
        let compatible: Vec<&str> =
            explained.compatible_advertisements.iter().map(|advert| &*advert.advertisement_id).collect();
        assert_eq!(compatible, ids(&found.candidates)[..listed]);
        // The one that exceeds the limit least is the first.
        let misses: Vec<&str> = explained.near_misses.iter().map(|miss| &*miss.advertisement_id).collect();
        assert_eq!(misses, [adverts[0].id(), adverts[1].id()][..listed]);
        assert!(explained.near_misses.iter().all(|miss| miss.round_trip.is_some()), "{explained:?}");
        assert!(explained.compatible_advertisements.iter().all(|advert| advert.round_trip.is_some()), "{explained:?}");
    }
    let refused = explain_search(&world.server, &world.issuer, search, Some(51)).await.expect_err("too many");
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("max_nearest"), "{}", refused.message());
}

/// LAT-1: the search of a party of two, and its explanation, judge by the farthest member: a session within the limit of the leader is not
/// within that of the party, unless the member has no token.
#[tokio::test]
async fn explained_search_of_a_party_of_two_has_the_round_trip_of_the_farthest_member() {
    let mut world = World::start_with(allow_overrides).await;
    let mia = Party { user: "mia", address: "203.0.116.7", delay_ms: 150.0, ..ADA };
    let [ada, mias, far] = [world.token(ADA).await, world.token(mia).await, world.token(FAR).await];
    let far = world.advertise(LIMITED_SET, FAR, &far).await;
    let two = |token: &[u8]| {
        let mut party = session(ADA, &ada);
        let member = pb::PlayerData { user_id: mia.user.into(), latency_token: token.to_vec(), ..Default::default() };
        party.players.push(member);
        party.party_size_composition = vec![2];
        party
    };
    let explained = async |session: &pb::SessionCompositionData| {
        let search = search_to_explain(LIMITED_SET, session);
        explain_search(&world.server, &world.issuer, search, None).await.expect("an explanation")
    };
    let alone = explained(&two(&[])).await;
    let [compatible] = &alone.compatible_advertisements[..] else { panic!("{alone:?}") };
    let found = search_of(&world.server, &world.issuer, LIMITED_SET, two(&[])).await.search().await.expect("a search");
    assert_eq!(ids(&found.candidates), [far.id()]);
    assert!(assert_same_round_trip(compatible.round_trip.as_ref(), &found.candidates[0]).is_some());

    let mut search = search_of(&world.server, &world.issuer, LIMITED_SET, two(&mias)).await;
    let found = search.search().await.expect("a search");
    assert_eq!((ids(&found.candidates).len(), &*found.refusals[0].rule), (0, "latency"));
    let together = explained(&two(&mias)).await;
    assert_eq!((together.compatible, &*together.blocking_rule, together.ignored_fields.len()), (0, "latency", 0));
    let [miss] = &together.near_misses[..] else { panic!("{together:?}") };
    assert_eq!(miss.measured, miss.round_trip.map(|round_trip| round_trip.round_trip_ms));
    let limits = [("reach".to_owned(), 1_000.0)].into();
    search.request_mut().search_config_overrides =
        Some(pb::MatchmakingSearchConfigOverrides { limits, ..Default::default() });
    let wider = search.search().await.expect("a search").candidates;
    assert_eq!(ids(&wider), [far.id()]);
    assert!(assert_same_round_trip(miss.round_trip.as_ref(), &wider[0]).is_some());
    let of_leader = compatible.round_trip.expect("a round trip").round_trip_ms;
    assert!(of_leader + 100.0 < miss.measured.expect("a round trip"), "{of_leader} ms alone, {miss:?}");
}

/// A session of a player whom the searcher has blocked does not exist for the search. Its explanation names it, refused as avoided, with
/// the predicted round trip.
#[tokio::test]
async fn explained_search_names_a_blocked_host_as_avoided() {
    let mut world = World::start_with(allow_overrides).await;
    let [ada, near, far] = [world.token(ADA).await, world.token(NEAR).await, world.token(FAR).await];
    let near = world.advertise(AVOIDING_SET, NEAR, &near).await;
    let far = world.advertise(AVOIDING_SET, FAR, &far).await;
    let blocking = world.issuer.client_with_token(&world.server, Role::Client, ADA.user).await;
    let block = pb::MatchmakingUpdateBlockListRequest { add_user_ids: vec![FAR.user.into()], ..Default::default() };
    let before =
        search_of_ada(&world.server, &world.issuer, AVOIDING_SET, &ada).await.search().await.expect("a search");
    assert_eq!(ids(&before.candidates), [far.id(), near.id()]);
    blocking.update_block_list(block).await.expect("blocked");

    let found = search_of_ada(&world.server, &world.issuer, AVOIDING_SET, &ada).await.search().await.expect("a search");
    assert_eq!((ids(&found.candidates), found.refusals.len()), (vec![near.id()], 0));
    let explained =
        explain(&world.server, &world.issuer, AVOIDING_SET, &ada, ADA.address).await.expect("an explanation");
    assert_eq!((explained.candidates, explained.compatible), (2, 1));
    let [compatible] = &explained.compatible_advertisements[..] else { panic!("{explained:?}") };
    assert_eq!(compatible.advertisement_id, near.id());
    assert!(assert_same_round_trip(compatible.round_trip.as_ref(), &found.candidates[0]).is_some());
    let [miss] = &explained.near_misses[..] else { panic!("{explained:?}") };
    assert_eq!((&*miss.advertisement_id, &*miss.rule, miss.failed_rules), (far.id(), "avoid", 1));
    assert!(assert_same_round_trip(miss.round_trip.as_ref(), &before.candidates[0]).is_some());
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
