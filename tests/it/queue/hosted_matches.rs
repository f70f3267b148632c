//! Data of hosted matches: game servers learn of their matches by stream and by heartbeat, with what the ruleset lets them have.

use std::time::Duration;

use fireteam::config::{CallRateOrOpenStreamsMax, DEFAULT_RATE_LIMITS, RateLimitRule, RateLimitSetting};
use fireteam_client::{HostEvent, HostEvents, MatchHost, RetryPolicy, pb};
use pb::{HostedMatchState, TicketState};
use tonic::Code;

use crate::support::queue_server::{
    QueuedParty, SET_ID, duel_ruleset, enter_request, game_server_advertisement, servers_on_each_store,
    start_queue_server, start_queue_server_with_config, wait_until,
};
use crate::support::server_process::TEST_TIMEOUT;
use crate::support::test_server::TestServer;

/// A second set.
const OTHER_SET: u32 = 12;

fn hosted(tell: &str) -> String {
    let more = format!(
        r#"<Hosting Mode="game_server" AllocationTimeoutMs="60000" ConfirmMs="5000" {tell}/><Rating System="elo"/>"#
    );
    duel_ruleset(&more)
        .replace("</Attributes>", r#"<Attribute Name="mode" Type="string" Trust="client"/></Attributes>"#)
}

/// Enters a player with an attribute.
async fn enter_with_mode(server: &TestServer, name: &str) -> QueuedParty {
    let mut request = enter_request(SET_ID, &[(name, 20.0)]);
    let value = pb::attribute_value::Value::StringValue("blitz".to_owned());
    let session = request.session_composition.as_mut().expect("a party");
    session.attributes.insert("mode".to_owned(), pb::AttributeValue { value: Some(value) });
    QueuedParty::enter_with_request(server, request).await
}

/// Next event of a match.
pub(crate) async fn next_match(events: &mut HostEvents) -> pb::HostedMatch {
    loop {
        let event = tokio::time::timeout(TEST_TIMEOUT, events.next_host_event()).await.expect("an event in time");
        if let HostEvent::Match(hosted) = event.expect("the stream is open") {
            return *hosted;
        }
    }
}

/// Case 8: a game server hears of its match on its stream: set, hash, teams, player keys, parties, attributes and ratings as
/// far as the ruleset says; and of a player who leaves, and of the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn game_server_hears_of_its_match_and_its_changes() {
    for (tell, told) in [("", false), (r#"Tell="attributes ratings""#, true)] {
        let server = start_queue_server(&[&hosted(tell)]).await;
        let host_client = server.client().await;
        let (connection, mut events) = host_client.open_stream().await.expect("a stream");
        let advertisement = connection.advertise(game_server_advertisement(b"game")).await.expect("advertise");
        assert_eq!(advertisement.next_match_confirming_beat_in_ms, Some(2_500), "half of ConfirmMs");
        let mut ann = enter_with_mode(&server, "ann").await;
        let mut bob = enter_with_mode(&server, "bob").await;
        let asked = next_match(&mut events).await;
        assert_eq!(asked.state(), HostedMatchState::Confirming);
        assert_eq!((asked.matchmaking_set_id, &*asked.advertisement_id), (SET_ID, advertisement.id()));
        assert_eq!((asked.confirm_in_ms, asked.backfill, asked.parties.len()), (Some(5_000), false, 2));
        let mut host = MatchHost::new(host_client.clone(), &advertisement);
        host.heartbeat().await.expect("beat");
        let playing = next_match(&mut events).await;
        assert_eq!((playing.state(), playing.confirm_in_ms), (HostedMatchState::Playing, None));
        for (waiting, party) in [&mut ann, &mut bob].into_iter().zip(&playing.parties) {
            let found = waiting.wait_for_state(TicketState::Matched).await.found_match.expect("a match");
            assert_eq!(found.match_id, playing.match_id);
            assert_eq!(found.service_configuration_hash, playing.service_configuration_hash);
            let own =
                playing.parties.iter().find(|party| party.players[0].player_key == found.own_players[0].player_key);
            assert_eq!(own.expect("its party").team, found.team);
            assert_eq!(party.attributes.contains_key("mode"), told, "{tell}");
            assert_eq!(party.players[0].rating.is_some(), told, "{tell}");
        }
        assert!(ann.ticket.leave().await.expect("leave"));
        let changed = next_match(&mut events).await;
        assert_eq!(changed.parties.iter().flat_map(|party| &party.players).filter(|player| player.left).count(), 1);
        let end = pb::QueueEndMatchRequest {
            advertisement_token: advertisement.token().to_vec(),
            match_id: playing.match_id.clone(),
            ..Default::default()
        };
        host_client.end_match(end).await.expect("end");
        let ended = next_match(&mut events).await;
        assert_eq!((&ended.match_id, ended.state()), (&playing.match_id, HostedMatchState::Ended));
        assert!(host.hosted_match_ids().next().is_some(), "until its next heartbeat");
    }
}

/// A game server that reconnects hears its matches again with its first update, also after fireteam has restarted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn game_server_hears_its_matches_again_after_a_reconnect() {
    for (server, _database) in servers_on_each_store("hosted_matches", &hosted("")).await {
        hears_again(server).await;
    }
}

async fn hears_again(server: TestServer) {
    let client = server.client().await;
    let mut advertisement = client.advertise(game_server_advertisement(b"game")).await.expect("advertise");
    let mut host = MatchHost::new(client, &advertisement);
    let mut ann = QueuedParty::enter(&server, SET_ID, &[("ann", 20.0)]).await;
    let bob = QueuedParty::enter(&server, SET_ID, &[("bob", 20.0)]).await;
    wait_until("a match is confirmed", async || !host.heartbeat().await.expect("beat").is_empty()).await;
    let found = ann.wait_for_state(TicketState::Matched).await.found_match.expect("a match");
    drop((ann, bob));
    let server = server.restart().await;
    let client = server.client().await;
    for _ in 0..2 {
        let (connection, mut events) = client.open_stream().await.expect("a stream");
        advertisement.use_stream(connection);
        advertisement.heartbeat().await.expect("heartbeat");
        assert_eq!(advertisement.hosted_match_ids, std::slice::from_ref(&found.match_id));
        let again = next_match(&mut events).await;
        assert_eq!((&again.match_id, again.state()), (&found.match_id, HostedMatchState::Playing));
        assert_eq!(again.parties.len(), 2);
    }
}

/// One process hosts matches of several sets. Without a match id, the advertisement must host exactly one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_process_hosts_matches_of_several_sets() {
    let other = hosted("").replace(&format!("SetId=\"{SET_ID}\""), &format!("SetId=\"{OTHER_SET}\""));
    let server = start_queue_server(&[&hosted(""), &other]).await;
    let client = server.client().await;
    let seats = |set: u32, seats: i32| {
        let mut request = game_server_advertisement(b"game");
        request.matchmaking_set_id = Some(set);
        request.session_composition.as_mut().expect("a session").max_allowed_join_reservation_count = Some(seats);
        request
    };
    let first = client.advertise(seats(SET_ID, 4)).await.expect("advertise");
    let second = client.advertise(seats(OTHER_SET, 2)).await.expect("advertise");
    let (mut first_host, mut second_host) =
        (MatchHost::new(client.clone(), &first), MatchHost::new(client.clone(), &second));
    let mut players = Vec::new();
    for (set, name) in
        [(SET_ID, "ann"), (SET_ID, "bob"), (SET_ID, "cid"), (SET_ID, "dan"), (OTHER_SET, "eve"), (OTHER_SET, "fay")]
    {
        players.push(QueuedParty::enter(&server, set, &[(name, 20.0)]).await);
    }
    wait_until("all matches are confirmed", async || {
        let first_count = first_host.heartbeat().await.expect("beat").len();
        first_count + second_host.heartbeat().await.expect("beat").len() == 3
    })
    .await;
    let mut matches = Vec::new();
    for player in &mut players {
        matches.push(player.wait_for_state(TicketState::Matched).await.found_match.expect("a match").match_id);
    }
    let end = |token: &[u8]| pb::QueueEndMatchRequest { advertisement_token: token.to_vec(), ..Default::default() };
    let refused = client.end_match(end(first.token())).await.expect_err("it hosts two matches");
    assert_eq!(refused.code(), Some(Code::FailedPrecondition), "{refused}");
    assert!(format!("{refused:?}").contains("MATCH_ID_REQUIRED"), "{refused:?}");
    assert!(matches[..4].iter().all(|id| format!("{refused:?}").contains(id)), "{refused:?}");
    client.end_match(end(second.token())).await.expect("it hosts one match");
    assert_eq!(players[4].wait_for_end().await.found_match.expect("its match").match_id, matches[4]);
    // A match of the other advertisement is not its own.
    let beat = pb::HostedMatchBeat { match_id: matches[0].clone(), gives_up: false };
    let request = pb::QueueHostHeartbeatRequest { advertisement_token: second.token().to_vec(), matches: vec![beat] };
    let answer = client.host_heartbeat(request).await.expect("heartbeat");
    assert_eq!(answer.matches[0].state(), HostedMatchState::NotHosted);
    assert!(Duration::from_millis(answer.next_beat_in_ms) >= Duration::from_secs(1));
}

/// A heartbeat without the token of an advertisement, or with one that the server did not issue, is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn host_heartbeat_requires_the_token_of_an_advertisement() {
    let server = start_queue_server(&[&hosted("")]).await;
    let client = server.client().await;
    let beat = |id: &str| pb::HostedMatchBeat { match_id: id.to_owned(), gives_up: false };
    let id = "0".repeat(32);
    for (token, matches, code) in [
        (vec![], vec![], Code::InvalidArgument),
        (vec![1; 40], vec![beat(&id)], Code::PermissionDenied),
        (vec![1; 40], vec![beat("x")], Code::InvalidArgument),
        (vec![1; 40], vec![beat(&id); 257], Code::InvalidArgument),
    ] {
        let request = pb::QueueHostHeartbeatRequest { advertisement_token: token, matches };
        let refused = client.host_heartbeat(request).await.expect_err("refused");
        assert_eq!(refused.code(), Some(code), "{refused}");
    }
}

/// Heartbeats that are not earlier than asked for are charged to no rate limit, neither that of heartbeats nor that of all
/// calls; earlier ones are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn host_heartbeats_that_were_asked_for_are_not_charged() {
    let server = start_queue_server_with_config(&[&hosted("")], |config| {
        let rule = |limit: &str, burst| {
            let known = DEFAULT_RATE_LIMITS.iter().find(|rule| rule.role == "anonymous" && rule.limit == limit);
            let allowance = CallRateOrOpenStreamsMax::Calls { per_second: 0.01, burst, per_5_min: burst };
            RateLimitRule { allowance, ..*known.expect("a default rate limit") }
        };
        config.rate_limits = RateLimitSetting::Overrides(vec![rule("heartbeat", 2), rule("call", 6)]);
    })
    .await;
    let client = server.client().await.with_retry_policy(RetryPolicy::NEVER);
    let mut advertisement = client.advertise(game_server_advertisement(b"game")).await.expect("advertise");
    let mut host = MatchHost::new(client, &advertisement);
    for _ in 0..6 {
        server.clock.advance_ms(advertisement.next_match_confirming_beat_in_ms.expect("an open game server"));
        advertisement.heartbeat().await.expect("asked for");
        server.clock.advance_ms(2_500);
        host.heartbeat().await.expect("asked for");
    }
    advertisement.heartbeat().await.expect("the first of two");
    host.heartbeat().await.expect("the second");
    for refused in [advertisement.heartbeat().await.map(|_| ()), host.heartbeat().await.map(|_| ())] {
        assert_eq!(refused.expect_err("too early").code(), Some(Code::ResourceExhausted));
    }
}
