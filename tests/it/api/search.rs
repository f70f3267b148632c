//! Searches through the client: fields of a candidate, refusal counts, waiting times, location.

use fireteam::domain::locality::Locality;
use fireteam_client::{Code, pb};

use crate::support::ruleset_dir::RulesetDirectory;
use crate::support::test_server::{TestServer, advertise_request, party_session};

const SEATTLE: &str = "71.20.133.126";
const LOS_ANGELES: &str = "151.220.31.64";

/// Number of rows that a rule refused.
fn refusal_count(
    found: &pb::MatchmakingSearchResponse,
    rule: &str,
    kind: pb::RefusalKind,
    side: pb::RefusalSide,
) -> u32 {
    let row = found.refusals.iter().find(|count| (&*count.rule, count.kind(), count.side()) == (rule, kind, side));
    row.map_or(0, |row| row.count)
}

fn filter_refusal_count(found: &pb::MatchmakingSearchResponse, rule: &str, side: pb::RefusalSide) -> u32 {
    refusal_count(found, rule, pb::RefusalKind::Filter, side)
}

/// S1-18, S1-23, S1-25, S1-26, B-15: a host in Seattle, found from Los Angeles, 968 miles apart. Distance and round
/// trip are computed from grid cells and rounded; there is a term for each soft filter.
#[tokio::test]
async fn search_returns_rounded_distance_latency_and_score_terms() {
    let server = TestServer::start().await;
    let host_client = server.client_from(SEATTLE).await;
    let advertised = host_client.advertise(advertise_request(&[("host", 33.0)], 5)).await.expect("advertise");
    let mut searching = server.client_from(LOS_ANGELES).await.new_search(1, party_session(&[("guest", 0.0)]));
    let found = searching.search().await.expect("search");
    let [candidate] = &*found.candidates else { panic!("one candidate: {found:?}") };
    assert_eq!(candidate.advertisement_id, advertised.id());
    assert_eq!((candidate.open_seats, &*candidate.party_size_composition), (5, [1].as_slice()));
    assert_eq!(candidate.probe, None, "a player's own machine");
    let miles = candidate.distance_miles.expect("both locations are known");
    assert_eq!(miles, (1_500.0 / 1.609_344) as f32, "rounded to 500 km");
    // 16 ms per 1000 km of arc, approximately, beyond the first 20 ms.
    assert_eq!(candidate.round_trip_ms, Some(50.0), "rounded to 25 ms");
    let [by_skill, by_latency] = &*candidate.terms else { panic!("two terms: {candidate:?}") };
    assert_eq!((&*by_skill.name, &*by_latency.name), ("skill", "latency"));
    assert_eq!(by_skill.value, 0.007, "0.4 * 33 / 2000, rounded, because it may come from the server's rating");
    // From the center of a 1-degree cell to the center of a 3-degree cell: (47.5, -122.5) and (34.5, -118.5) are in
    // these cells.
    let middle = |latitude, longitude| Locality::from_degrees(latitude, longitude).unwrap();
    let miles = middle(34.5, -118.5).chord_miles(middle(46.5, -180.0 + 13.5 * 360.0 / 83.0));
    let exact = 0.6 * (20.0 + 16.0 * miles * 1.609_344 / 1_000.0) / 300.0;
    assert_eq!(by_latency.value, (exact * 1_000.0).round() / 1_000.0, "rounded, because it would reveal the location");
    let rounded_sum = ((0.4 * 33.0 / 2_000.0 + exact) * 1_000.0).round() / 1_000.0;
    assert_eq!(candidate.score, rounded_sum, "rounded after the addition");
    assert_eq!((found.evaluated, found.truncated, found.searching_for_ms), (1, false, 0));
    assert!(found.ignored_fields.is_empty() && found.stale_for_ms.is_none());
}

/// SEC-7, S1-27: x-forwarded-for from an untrusted peer is ignored. Without a location there is no distance, and the
/// latency term has its worst value.
#[tokio::test]
async fn forwarded_address_from_an_untrusted_peer_is_ignored() {
    let server = TestServer::start_with_config(|config| config.trusted_proxies = Vec::new()).await;
    server.client_from(SEATTLE).await.advertise(advertise_request(&[("host", 0.0)], 5)).await.expect("advertise");
    let mut searching = server.client_from(LOS_ANGELES).await.new_search(1, party_session(&[("guest", 0.0)]));
    let found = searching.search().await.expect("search");
    let [candidate] = &*found.candidates else { panic!("one candidate: {found:?}") };
    assert_eq!((candidate.distance_miles, candidate.round_trip_ms), (None, None));
    assert_eq!(candidate.score, 0.6);
}

/// SEC-7: of several hops, the rightmost one that is not a trusted proxy is the caller. Hops to its left are ignored.
#[tokio::test]
async fn forwarded_address_is_the_rightmost_untrusted_hop() {
    let server = TestServer::start().await;
    server.client_from(SEATTLE).await.advertise(advertise_request(&[("host", 0.0)], 5)).await.expect("advertise");
    let forged = format!("{SEATTLE}, {LOS_ANGELES}, 127.0.0.9");
    let mut searching = server.client_from(&forged).await.new_search(1, party_session(&[("guest", 0.0)]));
    let miles = searching.search().await.expect("search").candidates[0].distance_miles.expect("known");
    assert!(miles > 900.0, "{miles}");
}

/// S1-17, S1-40, S1-50, S1-36: one session per reason of refusal, each counted under its rule and side.
#[tokio::test]
async fn search_counts_refusals_by_rule_and_side() {
    use pb::{RefusalKind as Kind, RefusalSide as Side};
    let server = TestServer::start().await;
    let client = server.client().await;
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
    publish("full", 0.0, &|request| session_mut(request).max_allowed_join_reservation_count = Some(1)).await;
    publish("strict nat", 0.0, &|request| session_mut(request).nat_type = Some(3)).await;
    publish("too good", 151.0, &|_| {}).await;
    publish("in progress", 0.0, &|request| session_mut(request).game_in_progress = Some(true)).await;
    publish("allowed range", 0.0, &|request| {
        let range = pb::AllowedRange { attribute: "skill".into(), min: Some(1.0), max: None };
        request.allowed_ranges = vec![range];
    })
    .await;
    let mut searcher = party_session(&[("one", 0.0), ("two", 0.0)]);
    searcher.nat_type = Some(2);
    let mut searching = client.new_search(1, searcher);
    searching.exclude(&ids[1]);
    let found = searching.search().await.expect("search");
    let shown: Vec<&str> = found.candidates.iter().map(|candidate| &*candidate.advertisement_id).collect();
    assert_eq!(shown, [&*ids[0]]);
    assert_eq!(refusal_count(&found, "", Kind::Own, Side::Unspecified), 1, "S1-50: user `two` is on both sides");
    assert_eq!(refusal_count(&found, "", Kind::Excluded, Side::Unspecified), 1);
    assert_eq!(refusal_count(&found, "", Kind::Full, Side::Unspecified), 1);
    assert_eq!(filter_refusal_count(&found, "nat", Side::Searcher), 1);
    assert_eq!(filter_refusal_count(&found, "skill", Side::Searcher), 1);
    assert_eq!(filter_refusal_count(&found, "allowed_range", Side::Advertiser), 1);
    let counted: u32 = found.refusals.iter().map(|refusal| refusal.count).sum();
    assert_eq!(
        found.evaluated,
        counted + 1,
        "every evaluated row is a candidate or a counted refusal: {:?}",
        found.refusals
    );
}

fn session_mut(request: &mut pb::MatchmakingUpdateAdvertisementRequest) -> &mut pb::SessionCompositionData {
    request.session_composition.as_mut().expect("a session composition")
}

/// S1-32, S1-36: a difference of 250 points needs both sides to have waited 10 s. Each side's limit applies at that
/// side's waiting time, and the answer names the side and the time of the next expansion.
#[tokio::test]
async fn skill_limits_apply_at_the_waiting_time_of_each_side() {
    let server = TestServer::start().await;
    let client = server.client().await;
    let mut early = client.new_search(1, party_session(&[("early", 250.0)]));
    early.search().await.expect("search");
    server.clock.advance_ms(10_000);
    client.advertise(advertise_request(&[("host", 0.0)], 5)).await.expect("advertise");

    let found = early.search().await.expect("search");
    assert!(found.candidates.is_empty());
    assert_eq!(
        filter_refusal_count(&found, "skill", pb::RefusalSide::Advertiser),
        1,
        "the host has not waited: {:?}",
        found.refusals
    );
    assert_eq!((found.searching_for_ms, found.next_expansion_in_ms), (10_000, Some(5_000)), "latency is next");

    server.clock.advance_ms(10_000);
    let mut late = client.new_search(1, party_session(&[("late", 250.0)]));
    let found = late.search().await.expect("search");
    assert_eq!(filter_refusal_count(&found, "skill", pb::RefusalSide::Searcher), 1, "{:?}", found.refusals);
    assert_eq!(
        (found.searching_for_ms, found.next_expansion_in_ms),
        (0, Some(10_000)),
        "an equal step is not an expansion"
    );
    assert_eq!(early.search().await.expect("search").candidates.len(), 1);

    server.clock.advance_ms(9_999);
    assert!(late.search().await.expect("search").candidates.is_empty());
    server.clock.advance_ms(1);
    assert_eq!(late.search().await.expect("search").candidates.len(), 1, "the second step starts at exactly 10 s");
    // All limits are at their last step after 50 s.
    server.clock.advance_ms(40_000);
    assert_eq!(late.search().await.expect("search").next_expansion_in_ms, None);
}

/// S1-40, S1-49: searches do not cross silos, do not find game servers, and do not find games in progress if the rules
/// exclude them.
#[tokio::test]
async fn search_separates_silos_and_advertisement_kinds() {
    let server = TestServer::start().await;
    let client = server.client().await;
    let in_silo = |name: &str, silo: u64| {
        let mut request = advertise_request(&[(name, 0.0)], 5);
        session_mut(&mut request).silo_id = Some(silo);
        request
    };
    let seven = client.advertise(in_silo("seven", 7)).await.expect("advertise").id().to_owned();
    let none = client.advertise(advertise_request(&[("none", 0.0)], 5)).await.expect("advertise").id().to_owned();
    let game_server = pb::MatchmakingUpdateAdvertisementRequest {
        kind: pb::AdvertisementKind::GameServer.into(),
        ..advertise_request(&[("server", 0.0)], 12)
    };
    let game_server = client.advertise(game_server).await.expect("advertise").id().to_owned();
    let mut begun = advertise_request(&[("begun", 0.0)], 5);
    session_mut(&mut begun).game_in_progress = Some(true);
    client.advertise(begun).await.expect("advertise");
    for (silo, shown) in
        [(Some(7), vec![seven.clone()]), (None, vec![none.clone()]), (Some(0), vec![none]), (Some(8), vec![])]
    {
        let searcher = pb::SessionCompositionData { silo_id: silo, ..party_session(&[("guest", 0.0)]) };
        let found = client.new_search(1, searcher).search().await.expect("search");
        let ids: Vec<String> = found.candidates.into_iter().map(|candidate| candidate.advertisement_id).collect();
        assert_eq!(ids, shown, "silo {silo:?}");
    }
    // Reserve checks silo and kind again, so a known id does not help.
    let mut searching = client.new_search(1, party_session(&[("guest", 0.0)]));
    searching.search().await.expect("search");
    for id in [&seven, &game_server] {
        let error = searching.reserve(id).await.expect_err("another population");
        assert_eq!(error.as_server_error().expect("a status").reason_metadata["rule"], "silo", "{error}");
    }
}

/// S1-27, S1-36: an allowed range includes both ends and refuses sessions without a value. One bound may be open.
#[tokio::test]
async fn allowed_range_includes_its_ends() {
    // Without ratings: a party that states no skill has none.
    let shipped = include_str!("../../../rulesets/destiny_control_6v6.xml");
    let start = shipped.find("<Rating ").expect("a rating system");
    let end = start + shipped[start..].find("/>").expect("its end") + 2;
    let directory = RulesetDirectory::with_files(&[("control.xml", &[&shipped[..start], &shipped[end..]].concat())]);
    let server = directory.start_server().await;
    let client = server.client().await;
    let range = |min, max| pb::AllowedRange { attribute: "skill".into(), min, max };
    let request = |allowed| pb::MatchmakingUpdateAdvertisementRequest {
        allowed_ranges: allowed,
        ..advertise_request(&[("host", 50.0)], 5)
    };
    let mut advertised = client.advertise(request(vec![range(Some(-0.0), Some(100.0))])).await.expect("advertise");
    for (skill, shown) in [(0.0, true), (-0.0, true), (100.0, true), (-0.5, false), (100.5, false)] {
        let found = client.new_search(1, party_session(&[("guest", skill)])).search().await.expect("search");
        assert_eq!(!found.candidates.is_empty(), shown, "skill {skill}");
        assert_eq!(filter_refusal_count(&found, "allowed_range", pb::RefusalSide::Advertiser), u32::from(!shown));
    }
    let mut without_skill = party_session(&[("guest", 0.0)]);
    without_skill.players[0].skill = None;
    assert!(client.new_search(1, without_skill).search().await.expect("search").candidates.is_empty());
    advertised.replace_published(request(vec![range(None, Some(10.0))])).await.expect("update");
    let found = client.new_search(1, party_session(&[("guest", -90.0)])).search().await.expect("search");
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
