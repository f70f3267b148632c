//! Preferences of parties, from enter to match: roles, regions, backfill, peer hosting, avoided players, offers,
//! penalties.

use fireteam_client::{Code, pb};
use pb::TicketState;

use crate::support::queue_server::{
    QueuedParty, SET_ID, advertise_host, duel_ruleset, enter_request, start_queue_server, wait_until,
};
use crate::support::test_server::{advertise_request, party_session};

/// A ruleset of this queue with additional attributes and elements.
fn rules(attributes: &str, teams: &str, more: &str) -> String {
    format!(
        r#"<Ruleset Name="Wishes" SetId="{SET_ID}">
  <Attributes><Attribute Name="skill" Type="number" Min="0" Max="50" Trust="client"/>{attributes}</Attributes>
  {teams}
  {more}
</Ruleset>"#
    )
}

/// One player with roles.
fn request_with_roles(name: &str, roles: &[&str]) -> pb::QueueEnterRequest {
    let mut request = enter_request(SET_ID, &[(name, 20.0)]);
    let texts = pb::StringList { values: roles.iter().map(|&role| role.to_owned()).collect() };
    let value = pb::AttributeValue { value: Some(pb::attribute_value::Value::StringList(texts)) };
    request.session_composition.as_mut().expect("a party").attributes.insert("roles".to_owned(), value);
    request
}

/// One player with round trips to regions.
fn request_with_latencies(name: &str, regions: &[(&str, f32)]) -> pb::QueueEnterRequest {
    let mut request = enter_request(SET_ID, &[(name, 20.0)]);
    let latency = |&(region, ms): &(&str, f32)| pb::RegionLatency { region: region.to_owned(), round_trip_ms: ms };
    request.session_composition.as_mut().expect("a party").region_latencies = regions.iter().map(latency).collect();
    request
}

/// Waits until a pass has run and left the ticket unmatched.
async fn assert_unmatched(waiting: &mut QueuedParty) {
    wait_until("a pass has run", async || !waiting.current_status().await.blocking_rule.is_empty()).await;
    assert_eq!(waiting.current_status().await.state(), TicketState::Waiting);
}

/// The ticket's match, when it has one.
async fn wait_for_match(waiting: &mut QueuedParty) -> pb::MatchStatus {
    waiting.wait_for_state(TicketState::Matched).await.found_match.expect("a match")
}

/// S3-11: each team gets one player per role; a player without roles takes a remaining one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn roles_are_assigned_in_each_team() {
    let teams = r#"<Teams Count="2" Size="2" RoleAttribute="roles">
    <Role Name="tank" PerTeam="1"/><Role Name="healer" PerTeam="1"/></Teams>"#;
    let roles = r#"<Attribute Name="roles" Type="string_list" Trust="client"/>"#;
    let server = start_queue_server(&[&rules(roles, teams, r#"<Queue PassIntervalMs="10"/>"#)]).await;
    let mut all = Vec::new();
    for (name, wants) in [("ann", &["tank"][..]), ("bob", &["tank", "healer"]), ("eve", &["tank"])] {
        all.push(QueuedParty::enter_with_request(&server, request_with_roles(name, wants)).await);
    }
    let mut third = QueuedParty::enter_with_request(&server, request_with_roles("joe", &["tank"])).await;
    // Three who play only tank and one who plays both make no two teams.
    assert_unmatched(&mut all[0]).await;
    assert!(third.ticket.leave().await.expect("leave"));
    all.push(QueuedParty::enter_with_request(&server, enter_request(SET_ID, &[("kim", 20.0)])).await);
    let mut assigned = Vec::new();
    for (waiting, name) in all.iter_mut().zip(["ann", "bob", "eve", "kim"]) {
        let found = wait_for_match(waiting).await;
        assigned.push((found.team, found.own_players[0].team_role.clone(), name));
    }
    assigned.sort();
    let roles: Vec<_> = assigned.iter().map(|(team, role, _)| (*team, role.as_str())).collect();
    assert_eq!(roles, [(0, "healer"), (0, "tank"), (1, "healer"), (1, "tank")], "{assigned:?}");
    assert!(assigned.iter().all(|(_, role, name)| role == "tank" || ["bob", "kim"].contains(name)), "{assigned:?}");
}

/// S3-8: with mode `filter`, players match if a common region is near enough to all; the match names it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn regions_filter_matches_in_a_region_near_all() {
    let reach = r#"<ExpansionConfigs><ExpansionConfig Name="reach" Type="latency">
      <Expansion ExpansionDurationMs="10000" Value="60"/><Expansion ExpansionDurationMs="-1" Value="200"/>
    </ExpansionConfig></ExpansionConfigs>
    <Queue PassIntervalMs="10"><Regions Mode="filter" Expansion="reach"/></Queue>"#;
    let server = start_queue_server(&[&rules("", r#"<Teams Count="2" Size="1"/>"#, reach)]).await;
    let mut ann =
        QueuedParty::enter_with_request(&server, request_with_latencies("ann", &[("eu", 20.0), ("us", 120.0)])).await;
    let mut bob =
        QueuedParty::enter_with_request(&server, request_with_latencies("bob", &[("eu", 110.0), ("us", 30.0)])).await;
    assert_unmatched(&mut ann).await; // No region is near both.
    let mut eve = QueuedParty::enter_with_request(&server, request_with_latencies("eve", &[("eu", 40.0)])).await;
    assert_eq!(wait_for_match(&mut ann).await.region, "eu");
    assert_eq!(wait_for_match(&mut eve).await.region, "eu");
    let mut joe =
        QueuedParty::enter_with_request(&server, request_with_latencies("joe", &[("eu", 50.0), ("us", 190.0)])).await;
    assert_unmatched(&mut joe).await;
    server.clock.advance_ms(10_000);
    assert_eq!(
        wait_for_match(&mut bob).await.region,
        "eu",
        "the limit has widened: 110 and 50 are less than 30 and 190"
    );
    wait_for_match(&mut joe).await;
}

/// S3-8: with mode `partition`, players of different regions never match, and a player without a region has no
/// candidates.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn regions_partition_never_matches_across_regions() {
    let region = r#"<Attribute Name="region" Type="string" Trust="client"/>"#;
    let queue = r#"<Queue PassIntervalMs="10"><Regions Mode="partition" Attribute="region"/></Queue>"#;
    let server = start_queue_server(&[&rules(region, r#"<Teams Count="2" Size="1"/>"#, queue)]).await;
    let named = |name: &str, region: &str| {
        let mut request = enter_request(SET_ID, &[(name, 20.0)]);
        let value = pb::AttributeValue { value: Some(pb::attribute_value::Value::StringValue(region.to_owned())) };
        request.session_composition.as_mut().expect("a party").attributes.insert("region".to_owned(), value);
        request
    };
    let mut without_region = QueuedParty::enter(&server, SET_ID, &[("joe", 20.0)]).await;
    let mut ann = QueuedParty::enter_with_request(&server, named("ann", "eu")).await;
    let mut bob = QueuedParty::enter_with_request(&server, named("bob", "us")).await;
    let mut eve = QueuedParty::enter_with_request(&server, named("eve", "us")).await;
    for waiting in [&mut bob, &mut eve] {
        wait_for_match(waiting).await;
    }
    for waiting in [&mut ann, &mut without_region] {
        assert_unmatched(waiting).await;
    }
}

/// S3-8: with mode `quality`, quality falls with the mean distance of the best common region; a far region needs more
/// similar ratings.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn regions_quality_falls_with_distance() {
    let queue = r#"<Queue PassIntervalMs="10"><Regions Mode="quality" Weight="0.5" SpanMs="200"/>
      <Quality><AverageSimilarity RatingSpan="50" RequiredPercent="80"/></Quality></Queue>"#;
    let server = start_queue_server(&[&rules("", r#"<Teams Count="2" Size="1"/>"#, queue)]).await;
    let mut ann =
        QueuedParty::enter_with_request(&server, request_with_latencies("ann", &[("eu", 20.0), ("us", 180.0)])).await;
    let mut bob =
        QueuedParty::enter_with_request(&server, request_with_latencies("bob", &[("eu", 160.0), ("us", 40.0)])).await;
    // Equal ratings, and 25 and 150 ms from eu after rounding: 1 less 0.5 · 87.5 / 200 is 0.781.
    wait_until("a pass has run", async || ann.current_status().await.blocking_rule == "quality").await;
    let mut eve = QueuedParty::enter_with_request(&server, request_with_latencies("eve", &[("eu", 60.0)])).await;
    let (here, there) = (wait_for_match(&mut ann).await, wait_for_match(&mut eve).await);
    assert_eq!((&*here.region, here.quality), ("eu", 0.91), "25 and 50 ms after rounding: 1 less 0.5 · 37.5 / 200");
    assert_eq!(there.match_id, here.match_id);
    let mut joe =
        QueuedParty::enter_with_request(&server, request_with_latencies("joe", &[("us", 20.0), ("eu", 100.0)])).await;
    assert_eq!((&*wait_for_match(&mut joe).await.region, &*wait_for_match(&mut bob).await.region), ("us", "us"));
}

/// S3-1, S4-16: after the offer's time, a waiting ticket is offered another queue, and still waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn offer_names_another_queue_after_its_time() {
    let patient = duel_ruleset("").replace("<RatingWindow", "<Offer AfterMs=\"60000\" SetId=\"12\"/><RatingWindow");
    let unranked = duel_ruleset("").replace(r#"SetId="11""#, r#"SetId="12""#);
    let server = start_queue_server(&[&patient, &unranked]).await;
    let mut ann = QueuedParty::enter(&server, SET_ID, &[("ann", 20.0)]).await;
    server.clock.advance_ms(30_000);
    assert_eq!(ann.current_status().await.offered_matchmaking_set_id, None);
    server.clock.advance_ms(29_999);
    assert_eq!(ann.current_status().await.offered_matchmaking_set_id, None);
    server.clock.advance_ms(1);
    let offered = ann.current_status().await;
    assert_eq!((offered.state(), offered.offered_matchmaking_set_id), (TicketState::Waiting, Some(12)));
    let mut bob = QueuedParty::enter(&server, 12, &[("bob", 20.0)]).await;
    let mut accepted_offer = QueuedParty::enter(&server, 12, &[("ann", 20.0)]).await;
    assert_eq!(wait_for_match(&mut accepted_offer).await.match_id, wait_for_match(&mut bob).await.match_id);
}

/// S4-16: a client chooses the sizes of teams that it accepts, of those that the game allows: each size is a set, and the party
/// enters those that it accepts. The first match that is found takes the player out of the other queue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn team_size_is_chosen_by_the_queues_that_a_party_enters() {
    let pairs = duel_ruleset("").replace(r#"SetId="11""#, r#"SetId="12""#).replace(r#"Size="1""#, r#"Size="2""#);
    let server = start_queue_server(&[&duel_ruleset(""), &pairs]).await;
    let mut ann_of_duels = QueuedParty::enter(&server, SET_ID, &[("ann", 20.0)]).await;
    let mut ann_of_pairs = QueuedParty::enter(&server, 12, &[("ann", 20.0)]).await;
    let mut pairs_only = Vec::new();
    for name in ["bob", "cid"] {
        pairs_only.push(QueuedParty::enter(&server, 12, &[(name, 20.0)]).await);
    }
    let mut duels_only = QueuedParty::enter(&server, SET_ID, &[("dan", 20.0)]).await;
    let duel = wait_for_match(&mut duels_only).await;
    assert_eq!((wait_for_match(&mut ann_of_duels).await.match_id, duel.player_count), (duel.match_id, 2));
    assert_eq!(ann_of_pairs.wait_for_end().await.end_reason(), pb::TicketEndReason::MatchedElsewhere);
    for name in ["eve", "fay"] {
        pairs_only.push(QueuedParty::enter(&server, 12, &[(name, 20.0)]).await);
    }
    for waiting in &mut pairs_only {
        assert_eq!(wait_for_match(waiting).await.player_count, 4);
    }
}

/// SEC-13: each failed ready check has a longer cooldown, until the schedule resets.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn penalty_cooldowns_grow_and_reset() {
    let schedule = r#"<ReadyCheck TimeoutMs="20000" ResetAfterMs="600000"><Penalty CooldownMs="1000"/><Penalty CooldownMs="60000"/></ReadyCheck>"#;
    let server = start_queue_server(&[&duel_ruleset(schedule)]).await;
    for (cooldown_ms, idle_ms) in [(1_000, 0), (60_000, 0), (60_000, 600_000), (1_000, 0)] {
        let mut ann = QueuedParty::enter(&server, SET_ID, &[("ann", 20.0)]).await;
        let mut bob = QueuedParty::enter(&server, SET_ID, &[("bob", 20.0)]).await;
        bob.respond_to_match(false).await;
        ann.wait_for_state(TicketState::Waiting).await;
        assert!(ann.ticket.leave().await.expect("leave"));
        server.clock.advance_ms(cooldown_ms - 1);
        let refused =
            bob.client.enter_queue(enter_request(SET_ID, &[("bob", 20.0)])).await.expect_err("bob has a cooldown");
        assert_eq!(refused.code(), Some(Code::PermissionDenied), "{refused}");
        server.clock.advance_ms(1 + idle_ms);
    }
}

/// S0-22, second half: blocked users never match, nor do recent opponents for as long as the ruleset says.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn avoid_keeps_blocked_and_recent_players_apart() {
    let queue = r#"<Queue PassIntervalMs="10"><Avoid Whom="blocked" How="never"/>
      <Avoid Whom="recent_opponents" How="never" RecentMs="600000"/></Queue>"#;
    let server = start_queue_server(&[&rules("", r#"<Teams Count="2" Size="1"/>"#, queue)]).await;
    let blocking =
        pb::QueueEnterRequest { blocked_user_ids: vec!["bob".to_owned()], ..enter_request(SET_ID, &[("ann", 20.0)]) };
    let mut ann = QueuedParty::enter_with_request(&server, blocking).await;
    let mut bob = QueuedParty::enter(&server, SET_ID, &[("bob", 20.0)]).await;
    assert_unmatched(&mut bob).await; // Ann has blocked him.
    let mut eve = QueuedParty::enter(&server, SET_ID, &[("eve", 20.0)]).await;
    let first = wait_for_match(&mut eve).await.match_id;
    eve.ticket.end_match(&first, false).await.expect("end");
    // The one of the two who has played eve does not play her again; the other does.
    let ann_played = ann.current_status().await.state() == TicketState::Ended;
    let mut eve = QueuedParty::enter(&server, SET_ID, &[("eve", 20.0)]).await;
    let (other_opponent, played) = if ann_played { (&mut bob, "ann") } else { (&mut ann, "bob") };
    let second = wait_for_match(&mut eve).await.match_id;
    assert_eq!(wait_for_match(other_opponent).await.match_id, second);
    eve.ticket.end_match(&second, false).await.expect("end");
    let mut eve = QueuedParty::enter(&server, SET_ID, &[("eve", 20.0)]).await;
    let mut again = QueuedParty::enter(&server, SET_ID, &[(played, 20.0)]).await;
    assert_unmatched(&mut again).await; // They are recent opponents.
    for waiting in [&mut eve, &mut again] {
        assert!(waiting.ticket.leave().await.expect("leave"));
    }
    server.clock.advance_ms(600_000);
    let mut eve = QueuedParty::enter(&server, SET_ID, &[("eve", 20.0)]).await;
    let mut again = QueuedParty::enter(&server, SET_ID, &[(played, 20.0)]).await;
    assert_eq!(wait_for_match(&mut eve).await.match_id, wait_for_match(&mut again).await.match_id);
}

/// With mode `peer`, both parties receive the same host, and only the host ends the match.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosting_by_a_peer_names_one_host() {
    let server = start_queue_server(&[&duel_ruleset(r#"<Hosting Mode="peer"/>"#)]).await;
    let mut ann = QueuedParty::enter(&server, SET_ID, &[("ann", 20.0)]).await;
    let mut open = enter_request(SET_ID, &[("bob", 20.0)]);
    open.session_composition.as_mut().expect("a party").nat_type = Some(1);
    let mut bob = QueuedParty::enter_with_request(&server, open).await;
    // At once: bob's watch confirms that he hosts.
    let (there, here) = tokio::join!(wait_for_match(&mut ann), wait_for_match(&mut bob));
    let host = |found: &pb::MatchStatus| match found.assignment.clone().and_then(|place| place.host) {
        Some(pb::assignment::Host::PeerHost(peer)) => peer.player_key,
        other => panic!("no peer host: {other:?}"),
    };
    assert_eq!(host(&there), host(&here));
    assert_eq!(host(&here), here.own_players[0].player_key, "bob has an open NAT");
    let guest = ann.ticket.end_match(&there.match_id, false).await.expect_err("ann is not the host");
    assert_eq!(guest.code(), Some(Code::PermissionDenied));
    let outcome = bob.ticket.end_match(&here.match_id, false).await.expect("bob is the host");
    assert_eq!(outcome, pb::MatchEndReason::Played);
}

/// A party that waits fills a session that is advertised later, and a seat that is freed later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backfill_takes_a_seat_that_opens_later() {
    let queue = r#"<Queue PassIntervalMs="10" Backfill="true"/>"#;
    let server = start_queue_server(&[&rules("", r#"<Teams Count="2" Size="2"/>"#, queue)]).await;
    let mut ann = QueuedParty::enter(&server, SET_ID, &[("ann", 20.0)]).await;
    assert_unmatched(&mut ann).await;
    let request = pb::MatchmakingUpdateAdvertisementRequest {
        matchmaking_set_id: Some(SET_ID),
        ..advertise_request(&[("hal", 20.0), ("hob", 20.0), ("hum", 20.0)], 1)
    };
    let advertised = advertise_host(&server, request.clone()).await;
    let found = wait_for_match(&mut ann).await;
    let mut bob = QueuedParty::enter(&server, SET_ID, &[("bob", 20.0)]).await;
    assert_unmatched(&mut bob).await;
    // The guest leaves the session.
    assert!(ann.ticket.leave().await.expect("leave"));
    let again = pb::MatchmakingUpdateAdvertisementRequest {
        advertisement_id: advertised.advertisement_id.clone(),
        advertisement_token: advertised.advertisement_token.clone(),
        ..request
    };
    server.client().await.update_advertisement(again).await.expect("update");
    assert_ne!(wait_for_match(&mut bob).await.match_id, found.match_id);
}

/// S1-96: an advertised session with an open seat is filled from the queue before a new match is made.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backfill_fills_an_open_seat() {
    let queue = r#"<Queue PassIntervalMs="10" Backfill="true"/>"#;
    let server = start_queue_server(&[&rules("", r#"<Teams Count="2" Size="2"/>"#, queue)]).await;
    let hosting = server.client().await;
    let request = pb::MatchmakingUpdateAdvertisementRequest {
        matchmaking_set_id: Some(SET_ID),
        ..advertise_request(&[("hal", 20.0), ("hob", 20.0), ("hum", 20.0)], 1)
    };
    let advertised = advertise_host(&server, request).await;
    let mut ann = QueuedParty::enter(&server, SET_ID, &[("ann", 20.0)]).await;
    let found = wait_for_match(&mut ann).await;
    let Some(pb::assignment::Host::GameServer(at)) = found.assignment.and_then(|place| place.host) else {
        panic!("no game server")
    };
    assert_eq!(at.advertisement_id, advertised.advertisement_id);
    assert_eq!(&*at.connect_data, b"host:7777");
    let mut bob = QueuedParty::enter(&server, SET_ID, &[("bob", 20.0)]).await;
    assert_unmatched(&mut bob).await; // The seat is reserved.
    let searcher = pb::MatchmakingSearchRequest {
        matchmaking_set_id: Some(SET_ID),
        session_composition: Some(party_session(&[("guest", 20.0)])),
        ..Default::default()
    };
    let found = hosting.search(searcher).await.expect("search");
    assert!(found.candidates.is_empty(), "a search omits the full session: {found:?}");
}
