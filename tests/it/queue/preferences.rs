//! What parties ask for, from the call to the match: roles, regions, an open seat, a host among them, nobody whom they avoid.

use fireteam_client::{Code, pb};
use pb::TicketState;

use crate::support::queue_server::{QueuedParty, SET_ID, duel_ruleset, enter_request, start_queue_server, wait_until};
use crate::support::test_server::{advertise_request, party_session};

/// A ruleset of this queue, with `attributes` and `more` elements.
fn rules(attributes: &str, teams: &str, more: &str) -> String {
    format!(
        r#"<Ruleset Name="Wishes" SetId="{SET_ID}">
  <Attributes><Attribute Name="skill" Type="number" Min="0" Max="50" Trust="client"/>{attributes}</Attributes>
  {teams}
  {more}
</Ruleset>"#
    )
}

/// One player, who names roles.
fn plays(name: &str, roles: &[&str]) -> pb::QueueEnterRequest {
    let mut asked = enter_request(SET_ID, &[(name, 20.0)]);
    let texts = pb::StringList { values: roles.iter().map(|&role| role.to_owned()).collect() };
    let value = pb::AttributeValue { value: Some(pb::attribute_value::Value::StringList(texts)) };
    asked.session_composition.as_mut().expect("a party").attributes.insert("roles".to_owned(), value);
    asked
}

/// One player, with round trips to regions.
fn measured(name: &str, regions: &[(&str, f32)]) -> pb::QueueEnterRequest {
    let mut asked = enter_request(SET_ID, &[(name, 20.0)]);
    let latency = |&(region, ms): &(&str, f32)| pb::RegionLatency { region: region.to_owned(), round_trip_ms: ms };
    asked.session_composition.as_mut().expect("a party").region_latencies = regions.iter().map(latency).collect();
    asked
}

/// It has been looked at, and waits on.
async fn is_left(waiting: &mut QueuedParty) {
    wait_until("a pass has looked", async || !waiting.current_status().await.blocking_rule.is_empty()).await;
    assert_eq!(waiting.current_status().await.state(), TicketState::Waiting);
}

/// Its match, once it has one.
async fn matched(waiting: &mut QueuedParty) -> pb::MatchStatus {
    waiting.wait_for_state(TicketState::Matched).await.found_match.expect("a match")
}

/// S3-11: every team gets one of each role, from those who play it; whoever says nothing plays what is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_team_gets_its_roles() {
    let teams = r#"<Teams Count="2" Size="2" RoleAttribute="roles">
    <Role Name="tank" PerTeam="1"/><Role Name="healer" PerTeam="1"/></Teams>"#;
    let roles = r#"<Attribute Name="roles" Type="string_list" Trust="client"/>"#;
    let house = start_queue_server(&[&rules(roles, teams, r#"<Queue PassIntervalMs="10"/>"#)]).await;
    let mut all = Vec::new();
    for (name, wants) in [("ann", &["tank"][..]), ("bob", &["tank", "healer"]), ("eve", &["tank"])] {
        all.push(QueuedParty::enter_with_request(&house, plays(name, wants)).await);
    }
    let mut third = QueuedParty::enter_with_request(&house, plays("joe", &["tank"])).await;
    // Three who only play tanks and one who plays both are no two teams.
    is_left(&mut all[0]).await;
    assert!(third.ticket.leave().await.expect("leave"));
    all.push(QueuedParty::enter_with_request(&house, enter_request(SET_ID, &[("kim", 20.0)])).await);
    let mut seen = Vec::new();
    for (waiting, name) in all.iter_mut().zip(["ann", "bob", "eve", "kim"]) {
        let play = matched(waiting).await;
        seen.push((play.team, play.own_players[0].team_role.clone(), name));
    }
    seen.sort();
    let roles: Vec<_> = seen.iter().map(|(team, role, _)| (*team, role.as_str())).collect();
    assert_eq!(roles, [(0, "healer"), (0, "tank"), (1, "healer"), (1, "tank")], "{seen:?}");
    assert!(seen.iter().all(|(_, role, name)| role == "tank" || ["bob", "kim"].contains(name)), "{seen:?}");
}

/// S3-8: with `stage`, those meet who have a region in common that is near enough to everybody, and are told which.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn players_meet_in_a_region_near_all() {
    let reach = r#"<ExpansionConfigs><ExpansionConfig Name="reach" Type="latency">
      <Expansion ExpansionDurationMs="10000" Value="60"/><Expansion ExpansionDurationMs="-1" Value="200"/>
    </ExpansionConfig></ExpansionConfigs>
    <Queue PassIntervalMs="10"><Regions Mode="filter" Expansion="reach"/></Queue>"#;
    let house = start_queue_server(&[&rules("", r#"<Teams Count="2" Size="1"/>"#, reach)]).await;
    let mut ann = QueuedParty::enter_with_request(&house, measured("ann", &[("eu", 20.0), ("us", 120.0)])).await;
    let mut bob = QueuedParty::enter_with_request(&house, measured("bob", &[("eu", 110.0), ("us", 30.0)])).await;
    is_left(&mut ann).await; // no region is near both
    let mut eve = QueuedParty::enter_with_request(&house, measured("eve", &[("eu", 40.0)])).await;
    assert_eq!(matched(&mut ann).await.region, "eu");
    assert_eq!(matched(&mut eve).await.region, "eu");
    let mut joe = QueuedParty::enter_with_request(&house, measured("joe", &[("eu", 50.0), ("us", 190.0)])).await;
    is_left(&mut joe).await;
    house.clock.advance_ms(10_000);
    assert_eq!(matched(&mut bob).await.region, "eu", "further away after a while: 110 and 50 are less than 30 and 190");
    matched(&mut joe).await;
}

/// S3-8: with `separate`, whoever names another region is never met, and whoever names none meets nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn regions_apart_never_meet() {
    let region = r#"<Attribute Name="region" Type="string" Trust="client"/>"#;
    let queue = r#"<Queue PassIntervalMs="10"><Regions Mode="partition" Attribute="region"/></Queue>"#;
    let house = start_queue_server(&[&rules(region, r#"<Teams Count="2" Size="1"/>"#, queue)]).await;
    let named = |name: &str, region: &str| {
        let mut asked = enter_request(SET_ID, &[(name, 20.0)]);
        let value = pb::AttributeValue { value: Some(pb::attribute_value::Value::StringValue(region.to_owned())) };
        asked.session_composition.as_mut().expect("a party").attributes.insert("region".to_owned(), value);
        asked
    };
    let mut nowhere = QueuedParty::enter(&house, SET_ID, &[("joe", 20.0)]).await;
    let mut ann = QueuedParty::enter_with_request(&house, named("ann", "eu")).await;
    let mut bob = QueuedParty::enter_with_request(&house, named("bob", "us")).await;
    let mut eve = QueuedParty::enter_with_request(&house, named("eve", "us")).await;
    for waiting in [&mut bob, &mut eve] {
        matched(waiting).await;
    }
    for waiting in [&mut ann, &mut nowhere] {
        is_left(waiting).await;
    }
}

/// S3-8: with `quality`, a match is worth less the further its best common region is from everybody; one that is too
/// far is made good by likeness alone if at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_far_region_takes_from_quality() {
    let queue = r#"<Queue PassIntervalMs="10"><Regions Mode="quality" Weight="0.5" SpanMs="200"/>
      <Quality><AverageSimilarity RatingSpan="50" RequiredPercent="80"/></Quality></Queue>"#;
    let house = start_queue_server(&[&rules("", r#"<Teams Count="2" Size="1"/>"#, queue)]).await;
    let mut ann = QueuedParty::enter_with_request(&house, measured("ann", &[("eu", 20.0), ("us", 180.0)])).await;
    let mut bob = QueuedParty::enter_with_request(&house, measured("bob", &[("eu", 160.0), ("us", 40.0)])).await;
    // As alike as can be, and 90 ms from eu on average: 1 less 0.5 · 90 / 200 is 0.775.
    wait_until("a pass has looked", async || ann.current_status().await.blocking_rule == "quality").await;
    let mut eve = QueuedParty::enter_with_request(&house, measured("eve", &[("eu", 60.0)])).await;
    let (here, there) = (matched(&mut ann).await, matched(&mut eve).await);
    assert_eq!((&*here.region, here.quality), ("eu", 0.9), "40 ms on average");
    assert_eq!(there.match_id, here.match_id);
    let mut joe = QueuedParty::enter_with_request(&house, measured("joe", &[("us", 20.0), ("eu", 100.0)])).await;
    assert_eq!((&*matched(&mut joe).await.region, &*matched(&mut bob).await.region), ("us", "us"));
}

/// S3-1, S4-16: who has waited for as long as the ruleset says is offered another queue, and waits on until it goes
/// there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_long_is_offered_something_else() {
    let patient = duel_ruleset("").replace("<RatingWindow", "<Offer AfterMs=\"60000\" SetId=\"12\"/><RatingWindow");
    let unranked = duel_ruleset("").replace(r#"SetId="11""#, r#"SetId="12""#);
    let house = start_queue_server(&[&patient, &unranked]).await;
    let mut ann = QueuedParty::enter(&house, SET_ID, &[("ann", 20.0)]).await;
    house.clock.advance_ms(30_000);
    assert_eq!(ann.current_status().await.offered_matchmaking_set_id, None);
    house.clock.advance_ms(29_999);
    assert_eq!(ann.current_status().await.offered_matchmaking_set_id, None);
    house.clock.advance_ms(1);
    let offered = ann.current_status().await;
    assert_eq!((offered.state(), offered.offered_matchmaking_set_id), (TicketState::Waiting, Some(12)));
    let mut bob = QueuedParty::enter(&house, 12, &[("bob", 20.0)]).await;
    let mut taken_up = QueuedParty::enter(&house, 12, &[("ann", 20.0)]).await;
    assert_eq!(matched(&mut taken_up).await.match_id, matched(&mut bob).await.match_id);
}

/// SEC-13: whoever lets a ready check fail is barred for longer each time, until it has been good for long enough.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn penalties_grow_and_are_forgotten() {
    let ladder = r#"<ReadyCheck TimeoutMs="20000" ResetAfterMs="600000"><Penalty CooldownMs="1000"/><Penalty CooldownMs="60000"/></ReadyCheck>"#;
    let house = start_queue_server(&[&duel_ruleset(ladder)]).await;
    for (barred_ms, then_ms) in [(1_000, 0), (60_000, 0), (60_000, 600_000), (1_000, 0)] {
        let mut ann = QueuedParty::enter(&house, SET_ID, &[("ann", 20.0)]).await;
        let mut bob = QueuedParty::enter(&house, SET_ID, &[("bob", 20.0)]).await;
        bob.respond_to_match(false).await;
        ann.wait_for_state(TicketState::Waiting).await;
        assert!(ann.ticket.leave().await.expect("leave"));
        house.clock.advance_ms(barred_ms - 1);
        let refused = bob.client.enter(enter_request(SET_ID, &[("bob", 20.0)])).await.expect_err("he is barred");
        assert_eq!(refused.code(), Some(Code::PermissionDenied), "{refused}");
        house.clock.advance_ms(1 + then_ms);
    }
}

/// S0-22's other half: whoever was blocked is not met, nor whom one has just played, for as long as the ruleset says.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whom_players_avoid_they_do_not_meet() {
    let queue = r#"<Queue PassIntervalMs="10"><Avoid Whom="blocked" How="never"/>
      <Avoid Whom="recent_opponents" How="never" RecentMs="600000"/></Queue>"#;
    let house = start_queue_server(&[&rules("", r#"<Teams Count="2" Size="1"/>"#, queue)]).await;
    let hates =
        pb::QueueEnterRequest { blocked_user_ids: vec!["bob".to_owned()], ..enter_request(SET_ID, &[("ann", 20.0)]) };
    let mut ann = QueuedParty::enter_with_request(&house, hates).await;
    let mut bob = QueuedParty::enter(&house, SET_ID, &[("bob", 20.0)]).await;
    is_left(&mut bob).await; // she has blocked him
    let mut eve = QueuedParty::enter(&house, SET_ID, &[("eve", 20.0)]).await;
    let first = matched(&mut eve).await.match_id;
    eve.ticket.end_match(&first, false).await.expect("end");
    // Whoever of the two has played eve does not play her again; whoever has not does.
    let ann_played = ann.current_status().await.state() == TicketState::Ended;
    let mut eve = QueuedParty::enter(&house, SET_ID, &[("eve", 20.0)]).await;
    let (fresh, played) = if ann_played { (&mut bob, "ann") } else { (&mut ann, "bob") };
    let second = matched(&mut eve).await.match_id;
    assert_eq!(matched(fresh).await.match_id, second);
    eve.ticket.end_match(&second, false).await.expect("end");
    let mut eve = QueuedParty::enter(&house, SET_ID, &[("eve", 20.0)]).await;
    let mut again = QueuedParty::enter(&house, SET_ID, &[(played, 20.0)]).await;
    is_left(&mut again).await; // they have just met
    for waiting in [&mut eve, &mut again] {
        assert!(waiting.ticket.leave().await.expect("leave"));
    }
    house.clock.advance_ms(600_000);
    let mut eve = QueuedParty::enter(&house, SET_ID, &[("eve", 20.0)]).await;
    let mut again = QueuedParty::enter(&house, SET_ID, &[(played, 20.0)]).await;
    assert_eq!(matched(&mut eve).await.match_id, matched(&mut again).await.match_id);
}

/// A match that players host: both are told the same host, who alone says that it is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_the_players_hosts() {
    let house = start_queue_server(&[&duel_ruleset(r#"<Hosting Mode="peer"/>"#)]).await;
    let mut ann = QueuedParty::enter(&house, SET_ID, &[("ann", 20.0)]).await;
    let mut open = enter_request(SET_ID, &[("bob", 20.0)]);
    open.session_composition.as_mut().expect("a party").nat_type = Some(1);
    let mut bob = QueuedParty::enter_with_request(&house, open).await;
    let (there, here) = (matched(&mut ann).await, matched(&mut bob).await);
    let host = |play: &pb::MatchStatus| match play.assignment.clone().and_then(|place| place.host) {
        Some(pb::assignment::Host::PeerHost(peer)) => peer.player_key,
        other => panic!("nobody hosts: {other:?}"),
    };
    assert_eq!(host(&there), host(&here));
    assert_eq!(host(&here), here.own_players[0].player_key, "his network lets everybody in");
    let guest = ann.ticket.end_match(&there.match_id, false).await.expect_err("she does not host");
    assert_eq!(guest.code(), Some(Code::PermissionDenied));
    let outcome = bob.ticket.end_match(&here.match_id, false).await.expect("he does");
    assert_eq!(outcome, pb::MatchEndReason::Played);
}

/// S1-96: a session with an open seat that was advertised is filled from the queue before a new match is made, and its host
/// hears who comes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_seat_is_filled_from_the_queue() {
    let queue = r#"<Queue PassIntervalMs="10" Backfill="true"/>"#;
    let house = start_queue_server(&[&rules("", r#"<Teams Count="2" Size="2"/>"#, queue)]).await;
    let hosting = house.client().await;
    let request = pb::MatchmakingUpdateAdvertisementRequest {
        matchmaking_set_id: Some(SET_ID),
        ..advertise_request(&[("hal", 20.0), ("hob", 20.0), ("hum", 20.0)], 1)
    };
    let advertised = hosting.update_advertisement(request).await.expect("advertise");
    let mut ann = QueuedParty::enter(&house, SET_ID, &[("ann", 20.0)]).await;
    let play = matched(&mut ann).await;
    let Some(pb::assignment::Host::GameServer(at)) = play.assignment.and_then(|place| place.host) else {
        panic!("nowhere")
    };
    assert_eq!(at.advertisement_id, advertised.advertisement_id);
    assert_eq!(&*at.connect_data, b"host:7777");
    let mut bob = QueuedParty::enter(&house, SET_ID, &[("bob", 20.0)]).await;
    is_left(&mut bob).await; // the seat is taken
    let searcher = pb::MatchmakingSearchRequest {
        matchmaking_set_id: Some(SET_ID),
        session_composition: Some(party_session(&[("guest", 20.0)])),
        ..Default::default()
    };
    let found = hosting.search(searcher).await.expect("search");
    assert!(found.candidates.is_empty(), "who searches sees that it is full: {found:?}");
}
