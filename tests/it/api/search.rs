//! Searches through the client: what a candidate says, who is refused by whom, how waiting counts, where one is.

use fireteam::domain::locality::Locality;
use fireteam_client::{Code, pb};

use crate::support::test_server::{TestServer, advertise_request, party_session};

const SEATTLE: &str = "71.20.133.126";
const LOS_ANGELES: &str = "151.220.31.64";

/// How many rows a rule refused.
fn refusal_count(found: &pb::MatchmakingSearchResponse, rule: &str, kind: pb::RefusalKind, side: pb::RefusalSide) -> u32 {
    let row = found.refusals.iter().find(|it| (&*it.rule, it.kind(), it.side()) == (rule, kind, side));
    row.map_or(0, |row| row.count)
}

fn filter_refusal_count(found: &pb::MatchmakingSearchResponse, rule: &str, side: pb::RefusalSide) -> u32 {
    refusal_count(found, rule, pb::RefusalKind::Filter, side)
}

/// S1-18, S1-23, S1-25, S1-26, B-15: a host in Seattle, found from Los Angeles: 968 miles apart, give or take the
/// grids that places are snapped to, and told in steps; the round trip that the ruleset's line expects, and a term for each
/// soft filter.
#[tokio::test]
async fn search_returns_rounded_distance_latency_and_score_terms() {
    let house = TestServer::start().await;
    let host_client = house.client_from(SEATTLE).await;
    let advertised = host_client.advertise(advertise_request(&[("host", 33.0)], 5)).await.expect("advertise");
    let mut searching = house.client_from(LOS_ANGELES).await.search_session(1, party_session(&[("guest", 0.0)]));
    let found = searching.search().await.expect("search");
    let [candidate] = &*found.candidates else { panic!("one candidate: {found:?}") };
    assert_eq!(candidate.advertisement_id, advertised.id());
    assert_eq!((candidate.open_seats, &*candidate.party_size_composition), (5, [1].as_slice()));
    assert_eq!(candidate.connect_data, b"host:7777");
    let miles = candidate.distance_miles.expect("both places are known");
    assert_eq!(miles, (1_500.0 / 1.609_344) as f32, "to the nearest 500 km");
    // 16 ms per 1000 km of arc on the real globe, or thereabouts, beyond the first 20.
    assert_eq!(candidate.round_trip_ms, Some(50.0), "to the nearest 25 ms");
    let [by_skill, by_latency] = &*candidate.terms else { panic!("two terms: {candidate:?}") };
    assert_eq!((&*by_skill.name, &*by_latency.name), ("skill", "latency"));
    assert!((by_skill.value - 0.4 * 33.0 / 2_000.0).abs() < 1e-12, "not rounded: clients say it themselves");
    // From the middle of a cell of 1 degree to the middle of one of 3: (47.5, -122.5) and (34.5, -118.5) lie in these.
    let middle = |latitude, longitude| Locality::from_degrees(latitude, longitude).unwrap();
    let miles = middle(34.5, -118.5).chord_miles(middle(46.5, -180.0 + 13.5 * 360.0 / 83.0));
    let exact = 0.6 * (20.0 + 16.0 * miles * 1.609_344 / 1_000.0) / 300.0;
    assert_eq!(by_latency.value, (exact * 1_000.0).round() / 1_000.0, "rounded: it would give the place away");
    let whole = ((by_skill.value + exact) * 1_000.0).round() / 1_000.0;
    assert_eq!(candidate.score, whole, "rounded after adding up, not before");
    assert_eq!((found.evaluated, found.truncated, found.searching_for_ms), (1, false, 0));
    assert!(found.ignored_fields.is_empty() && found.stale_for_ms.is_none());
}

/// SEC-7, S1-27: what a stranger writes into x-forwarded-for moves nobody; without a place there is no distance, and
/// the latency term is the worst there is.
#[tokio::test]
async fn forwarded_address_from_an_untrusted_peer_is_ignored() {
    let house = TestServer::start_with_config(|config| config.trusted_proxies = Vec::new()).await;
    house.client_from(SEATTLE).await.advertise(advertise_request(&[("host", 0.0)], 5)).await.expect("advertise");
    let mut searching = house.client_from(LOS_ANGELES).await.search_session(1, party_session(&[("guest", 0.0)]));
    let found = searching.search().await.expect("search");
    let [candidate] = &*found.candidates else { panic!("one candidate: {found:?}") };
    assert_eq!((candidate.distance_miles, candidate.round_trip_ms), (None, None));
    assert_eq!(candidate.score, 0.6);
}

/// SEC-7: of several hops the right-most that no trusted proxy wrote is the caller; what stands left of it is hearsay.
#[tokio::test]
async fn forwarded_address_is_the_rightmost_untrusted_hop() {
    let house = TestServer::start().await;
    house.client_from(SEATTLE).await.advertise(advertise_request(&[("host", 0.0)], 5)).await.expect("advertise");
    let forged = format!("{SEATTLE}, {LOS_ANGELES}, 127.0.0.9");
    let mut searching = house.client_from(&forged).await.search_session(1, party_session(&[("guest", 0.0)]));
    let miles = searching.search().await.expect("search").candidates[0].distance_miles.expect("known");
    assert!(900.0 < miles, "{miles}");
}

/// S1-17, S1-40, S1-50, S1-36: one session for every reason to refuse, each counted under its rule and its side.
#[tokio::test]
async fn search_counts_refusals_by_rule_and_side() {
    use pb::{RefusalKind as Kind, RefusalSide as Side};
    let house = TestServer::start().await;
    let client = house.client().await;
    let mut ids = Vec::new();
    let mut publish =
        async |name: &str, skill: f64, change: &dyn Fn(&mut pb::MatchmakingUpdateAdvertisementRequest)| {
            let mut request = advertise_request(&[(name, skill)], 2);
            change(&mut request);
            ids.push(client.advertise(request).await.expect("advertise").id().to_owned());
        };
    publish("fits", 10.0, &|_| {}).await;
    publish("excluded", 0.0, &|_| {}).await;
    publish("two", 0.0, &|_| {}).await;
    publish("full", 0.0, &|it| session_mut(it).max_allowed_join_reservation_count = Some(1)).await;
    publish("strict nat", 0.0, &|it| session_mut(it).nat_type = Some(3)).await;
    publish("too good", 151.0, &|_| {}).await;
    publish("has begun", 0.0, &|it| session_mut(it).game_in_progress = Some(true)).await;
    publish("choosy", 0.0, &|it| {
        let range = pb::AllowedRange { attribute: "skill".into(), min: Some(1.0), max: None };
        it.allowed_ranges = vec![range];
    })
    .await;
    let mut seeker = party_session(&[("one", 0.0), ("two", 0.0)]);
    seeker.nat_type = Some(2);
    let mut searching = client.search_session(1, seeker);
    searching.exclude(&ids[1]);
    let found = searching.search().await.expect("search");
    let shown: Vec<&str> = found.candidates.iter().map(|it| &*it.advertisement_id).collect();
    assert_eq!(shown, [&*ids[0]]);
    assert_eq!(refusal_count(&found, "", Kind::Own, Side::Unspecified), 1, "S1-50: user `two` is on both sides");
    assert_eq!(refusal_count(&found, "", Kind::Excluded, Side::Unspecified), 1);
    assert_eq!(refusal_count(&found, "", Kind::Full, Side::Unspecified), 1);
    assert_eq!(filter_refusal_count(&found, "nat", Side::Searcher), 1);
    assert_eq!(filter_refusal_count(&found, "skill", Side::Searcher), 1);
    assert_eq!(filter_refusal_count(&found, "allowed", Side::Advertiser), 1);
    let counted: u32 = found.refusals.iter().map(|it| it.count).sum();
    assert_eq!(found.evaluated, counted + 1, "every row looked at is shown or counted: {:?}", found.refusals);
}

fn session_mut(request: &mut pb::MatchmakingUpdateAdvertisementRequest) -> &mut pb::SessionCompositionData {
    request.session_composition.as_mut().expect("a session")
}

/// S1-32, S1-36: a gap of 250 points needs both to have waited 10 s: the searcher's limit and the session's are each
/// asked at the time that side has waited, and the answer says whose it was and when to come back.
#[tokio::test]
async fn skill_limits_apply_at_the_waiting_time_of_each_side() {
    let house = TestServer::start().await;
    let client = house.client().await;
    let mut early = client.search_session(1, party_session(&[("early", 250.0)]));
    early.search().await.expect("search");
    house.clock.advance_ms(10_000);
    client.advertise(advertise_request(&[("host", 0.0)], 5)).await.expect("advertise");

    let found = early.search().await.expect("search");
    assert!(found.candidates.is_empty());
    assert_eq!(filter_refusal_count(&found, "skill", pb::RefusalSide::Advertiser), 1, "it has just come: {:?}", found.refusals);
    assert_eq!((found.searching_for_ms, found.next_expansion_in_ms), (10_000, Some(5_000)), "latency is next");

    house.clock.advance_ms(10_000);
    let mut late = client.search_session(1, party_session(&[("late", 250.0)]));
    let found = late.search().await.expect("search");
    assert_eq!(filter_refusal_count(&found, "skill", pb::RefusalSide::Searcher), 1, "{:?}", found.refusals);
    assert_eq!((found.searching_for_ms, found.next_expansion_in_ms), (0, Some(10_000)), "equal steps are no growth");
    assert_eq!(early.search().await.expect("search").candidates.len(), 1);

    house.clock.advance_ms(9_999);
    assert!(late.search().await.expect("search").candidates.is_empty());
    house.clock.advance_ms(1);
    assert_eq!(late.search().await.expect("search").candidates.len(), 1, "at 10 s sharp the second step applies");
    // All limits are at their last step after 50 s.
    house.clock.advance_ms(40_000);
    assert_eq!(late.search().await.expect("search").next_expansion_in_ms, None);
}

/// S1-40, S1-49: silos never meet; game servers are for queues; what has begun is not joined where the rules say so.
#[tokio::test]
async fn search_separates_silos_and_advertisement_kinds() {
    let house = TestServer::start().await;
    let client = house.client().await;
    let in_silo = |name: &str, silo: u64| {
        let mut request = advertise_request(&[(name, 0.0)], 5);
        session_mut(&mut request).silo_id = Some(silo);
        request
    };
    let seven = client.advertise(in_silo("seven", 7)).await.expect("advertise").id().to_owned();
    let none = client.advertise(advertise_request(&[("none", 0.0)], 5)).await.expect("advertise").id().to_owned();
    let server = pb::MatchmakingUpdateAdvertisementRequest {
        kind: pb::AdvertisementKind::GameServer.into(),
        ..advertise_request(&[("server", 0.0)], 12)
    };
    let server = client.advertise(server).await.expect("advertise").id().to_owned();
    let mut begun = advertise_request(&[("begun", 0.0)], 5);
    session_mut(&mut begun).game_in_progress = Some(true);
    client.advertise(begun).await.expect("advertise");
    for (silo, shown) in
        [(Some(7), vec![seven.clone()]), (None, vec![none.clone()]), (Some(0), vec![none]), (Some(8), vec![])]
    {
        let seeker = pb::SessionCompositionData { silo_id: silo, ..party_session(&[("guest", 0.0)]) };
        let found = client.search_session(1, seeker).search().await.expect("search");
        let ids: Vec<String> = found.candidates.into_iter().map(|it| it.advertisement_id).collect();
        assert_eq!(ids, shown, "silo {silo:?}");
    }
    // Knowing an id helps no more than finding it: seats are judged by silo and kind again.
    let mut searching = client.search_session(1, party_session(&[("guest", 0.0)]));
    searching.search().await.expect("search");
    for id in [&seven, &server] {
        let error = searching.reserve(id).await.expect_err("of another population");
        assert_eq!(error.server_error().expect("a status").metadata["rule"], "silo", "{error}");
    }
}

/// S1-27, S1-36: an allowed range admits both its ends, and refuses who does not say; one bound may be left open.
#[tokio::test]
async fn allowed_range_includes_its_ends() {
    let house = TestServer::start().await;
    let client = house.client().await;
    let range = |min, max| pb::AllowedRange { attribute: "skill".into(), min, max };
    let request =
        |allowed| pb::MatchmakingUpdateAdvertisementRequest { allowed_ranges: allowed, ..advertise_request(&[("host", 50.0)], 5) };
    let mut advertised = client.advertise(request(vec![range(Some(-0.0), Some(100.0))])).await.expect("advertise");
    for (skill, shown) in [(0.0, true), (-0.0, true), (100.0, true), (-0.5, false), (100.5, false)] {
        let found = client.search_session(1, party_session(&[("guest", skill)])).search().await.expect("search");
        assert_eq!(!found.candidates.is_empty(), shown, "skill {skill}");
        assert_eq!(filter_refusal_count(&found, "allowed", pb::RefusalSide::Advertiser), u32::from(!shown));
    }
    let mut silent = party_session(&[("guest", 0.0)]);
    silent.players[0].skill = None;
    assert!(client.search_session(1, silent).search().await.expect("search").candidates.is_empty());
    advertised.update(request(vec![range(None, Some(10.0))])).await.expect("update");
    let found = client.search_session(1, party_session(&[("guest", -90.0)])).search().await.expect("search");
    assert_eq!(found.candidates.len(), 1);
    let wrong = [
        (range(None, None), "allowed_ranges[0]"),
        (range(Some(2.0), Some(1.0)), "allowed_ranges[0]"),
        (range(Some(f64::NAN), None), "allowed_ranges[0].min"),
        (pb::AllowedRange { attribute: "skil".into(), ..range(Some(1.0), None) }, "allowed_ranges[0]"),
        (pb::AllowedRange { attribute: "game_in_progress".into(), ..range(Some(1.0), None) }, "allowed_ranges[0]"),
    ];
    for (range, path) in wrong {
        let error = client.advertise(request(vec![range])).await.expect_err(path);
        assert_eq!((error.code(), &*error.fields()[0].field), (Some(Code::InvalidArgument), path));
    }
}
