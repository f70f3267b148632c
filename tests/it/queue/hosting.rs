//! Liveness of matches: their hosts confirm them, keep them alive, give them up or fall silent.

use fireteam::config::{PostgresUrl, StoreTarget};
use fireteam_client::{Client, MatchHost, pb};
use pb::{HostedMatchState, MatchEndReason, TicketEndReason, TicketState};
use tonic::Code;

use crate::support::database::create_test_database;
use crate::support::queue_server::{
    QueuedParty, SET_ID, duel_ruleset, enter_request, game_server_advertisement, servers_on_each_store,
    start_queue_server, start_queue_server_with_config, wait_until,
};
use crate::support::test_server::TestServer;

/// A game server confirms within five seconds, and is lost after a minute of silence.
const HOSTED: &str = r#"<Hosting Mode="game_server" AllocationTimeoutMs="12000" ConfirmMs="5000" HostLossMs="60000"/>"#;

/// A player hosts.
const PEER: &str = r#"<Hosting Mode="peer" ConfirmMs="5000" HostLossMs="60000"/>"#;

/// Ready check with a cooldown of an hour.
const CHECKED: &str = r#"<ReadyCheck TimeoutMs="20000" DeclineCooldownMs="3600000"/>"#;

/// A game server that does nothing by itself.
struct GameServer {
    client: Client,
    advertised: pb::MatchmakingUpdateAdvertisementResponse,
    host: MatchHost,
}

impl GameServer {
    async fn advertise(server: &TestServer, name: &str) -> Self {
        let request = pb::MatchmakingUpdateAdvertisementRequest {
            idempotency_key: format!("{name}, a game server"),
            ..game_server_advertisement(name.as_bytes())
        };
        Self::advertise_request(server, request).await
    }

    async fn advertise_request(server: &TestServer, request: pb::MatchmakingUpdateAdvertisementRequest) -> Self {
        let client = server.client().await;
        let advertised = client.update_advertisement(request).await.expect("advertise");
        let host = MatchHost::from_advertisement_token(client.clone(), advertised.advertisement_token.clone());
        Self { client, advertised, host }
    }

    fn token(&self) -> Vec<u8> {
        self.advertised.advertisement_token.clone()
    }

    /// Ids of its matches, by a heartbeat of the advertisement.
    async fn hosted_match_ids(&self) -> Vec<String> {
        let heartbeat = pb::MatchmakingUpdateAdvertisementRequest {
            advertisement_id: self.advertised.advertisement_id.clone(),
            advertisement_token: self.token(),
            ..Default::default()
        };
        self.client.update_advertisement(heartbeat).await.expect("heartbeat").hosted_match_ids
    }

    /// Waits until it has a match to confirm, and returns its id.
    async fn wait_for_match(&self) -> String {
        let mut ids = Vec::new();
        wait_until("the game server has a match", async || {
            ids = self.hosted_match_ids().await;
            !ids.is_empty()
        })
        .await;
        ids.remove(0)
    }

    /// Answer to a heartbeat that names one match.
    async fn beat(&self, match_id: &str, gives_up: bool) -> pb::HostedMatch {
        let beat = pb::HostedMatchBeat { match_id: match_id.to_owned(), gives_up };
        let request = pb::QueueHostHeartbeatRequest { advertisement_token: self.token(), matches: vec![beat] };
        self.client.host_heartbeat(request).await.expect("heartbeat").matches.remove(0)
    }

    async fn report_first_team_won(&self, match_id: &str) -> pb::ReportResultResponse {
        let report = pb::ReportResultRequest {
            match_id: match_id.to_owned(),
            team_ranks: vec![pb::TeamRank { team: 0, rank: 1 }, pb::TeamRank { team: 1, rank: 2 }],
            advertisement_token: self.token(),
            ..Default::default()
        };
        self.client.report_result(report).await.expect("report")
    }
}

async fn enter_two(server: &TestServer) -> [QueuedParty; 2] {
    let ann = QueuedParty::enter(server, SET_ID, &[("ann", 20.0)]).await;
    [ann, QueuedParty::enter(server, SET_ID, &[("bob", 20.0)]).await]
}

/// Case 1: a game server that dies during play frees its players when it is lost. A result that it reports within an hour
/// is still rated, and changes nothing for players who have entered elsewhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn game_server_that_dies_during_play_frees_its_players() {
    let ruleset = duel_ruleset(&format!(r#"{HOSTED}<Rating System="elo"/>"#));
    for (server, _database) in servers_on_each_store("hosting", &ruleset).await {
        let mut game_server = GameServer::advertise(&server, "one").await;
        let [mut ann, mut bob] = enter_two(&server).await;
        let match_id = game_server.wait_for_match().await;
        assert_eq!(ann.current_status().await.state(), TicketState::Placing, "MATCHED comes after confirmation");
        assert_eq!(game_server.host.heartbeat().await.expect("beat").len(), 1);
        ann.wait_for_state(TicketState::Matched).await;
        bob.wait_for_state(TicketState::Matched).await;
        server.clock.advance_ms(40_000);
        assert_eq!(game_server.host.heartbeat().await.expect("beat")[0].state(), HostedMatchState::Playing);
        server.clock.advance_ms(59_000);
        assert_eq!(bob.current_status().await.state(), TicketState::Matched, "it was heard 59 s ago");
        server.clock.advance_ms(1_001);
        for player in [&mut ann, &mut bob] {
            let ended = player.wait_for_end().await;
            assert_eq!(ended.end_reason(), TicketEndReason::Played);
            assert_eq!(ended.found_match.expect("its match").end_reason(), MatchEndReason::HostLost);
        }
        let ann_again = QueuedParty::enter(&server, SET_ID, &[("ann", 45.0)]).await;
        assert_eq!(game_server.beat(&match_id, false).await.state(), HostedMatchState::Ended);
        server.clock.advance_ms(30_000);
        let reported = game_server.report_first_team_won(&match_id).await;
        assert_eq!((reported.rated, reported.changes.len()), (true, 2));
        let mut ann_again = ann_again;
        assert_eq!(ann_again.current_status().await.state(), TicketState::Waiting, "ann stays where she is");
    }
}

/// Case 1: the result of a lost host is taken for an hour after the match ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn result_of_a_lost_host_is_rated_within_an_hour() {
    let ruleset = duel_ruleset(&format!(r#"{HOSTED}<Rating System="elo"/>"#));
    for (server, _database) in servers_on_each_store("hosting", &ruleset).await {
        let mut game_server = GameServer::advertise(&server, "one").await;
        let [mut ann, _bob] = enter_two(&server).await;
        let match_id = game_server.wait_for_match().await;
        game_server.host.heartbeat().await.expect("beat");
        ann.wait_for_state(TicketState::Matched).await;
        server.clock.advance_ms(60_001);
        let lost = ann.wait_for_end().await.found_match.expect("its match");
        assert_eq!(lost.end_reason(), MatchEndReason::HostLost);
        server.clock.advance_ms(59 * 60_000);
        let reported = game_server.report_first_team_won(&match_id).await;
        assert_eq!((reported.rated, reported.changes.len()), (true, 2));
    }
}

/// A game server that dies before it confirms is not asked again: the next one is, in the time that is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn game_server_that_does_not_confirm_is_replaced() {
    let ruleset = duel_ruleset(&format!("{CHECKED}{HOSTED}"));
    for (server, _database) in servers_on_each_store("hosting", &ruleset).await {
        let dead = GameServer::advertise(&server, "dead").await;
        let [mut ann, mut bob] = enter_two(&server).await;
        ann.respond_to_match(true).await;
        bob.respond_to_match(true).await;
        let match_id = dead.wait_for_match().await;
        let mut next = GameServer::advertise(&server, "next").await;
        server.clock.advance_ms(5_001);
        assert_eq!(next.wait_for_match().await, match_id);
        assert_eq!(dead.beat(&match_id, false).await.state(), HostedMatchState::NotHosted, "its seats went back");
        let confirmed = next.host.heartbeat().await.expect("beat").remove(0);
        assert_eq!((confirmed.match_id.clone(), confirmed.state()), (match_id.clone(), HostedMatchState::Playing));
        for player in [&mut ann, &mut bob] {
            let found = player.wait_for_state(TicketState::Matched).await.found_match.expect("a match");
            assert!(format!("{:?}", found.assignment).contains(&next.advertised.advertisement_id));
        }
        assert!(dead.hosted_match_ids().await.is_empty());
    }
}

/// Without a server that confirms, all players wait again with their time and without a cooldown. A server that gives the
/// match up at once costs no more time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn players_of_a_match_that_no_server_confirms_wait_again() {
    let ruleset = duel_ruleset(&format!("{CHECKED}{HOSTED}"));
    for (server, _database) in servers_on_each_store("hosting", &ruleset).await {
        let (one, other) = (GameServer::advertise(&server, "one").await, GameServer::advertise(&server, "other").await);
        let [mut ann, mut bob] = enter_two(&server).await;
        let match_id = ann.respond_to_match(true).await;
        bob.respond_to_match(true).await;
        let mut asked = Vec::new();
        wait_until("a server is asked", async || {
            asked = [one.hosted_match_ids().await, other.hosted_match_ids().await].concat();
            !asked.is_empty()
        })
        .await;
        let (first, second) = if one.hosted_match_ids().await.is_empty() { (&other, &one) } else { (&one, &other) };
        assert_eq!(first.beat(&match_id, true).await.state(), HostedMatchState::NotHosted);
        assert_eq!(second.wait_for_match().await, match_id, "the next server is asked at once");
        server.clock.advance_ms(5_001);
        wait_until("the second is given up", async || second.hosted_match_ids().await.is_empty()).await;
        server.clock.advance_ms(7_000);
        // They are matched again at once.
        for player in [&mut ann, &mut bob] {
            wait_until("another match", async || {
                let status = player.current_status().await;
                let is_new = status.found_match.as_ref().is_some_and(|found| found.match_id != match_id);
                is_new && status.state() == TicketState::Proposed && status.waited_ms == 12_001
            })
            .await;
        }
    }
}

/// The advertisement means nothing after confirmation: it is deleted, and the match goes on as long as its host names it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn match_goes_on_after_its_advertisement_is_deleted() {
    let ruleset = duel_ruleset(&format!(r#"{HOSTED}<Rating System="elo"/>"#));
    for (server, _database) in servers_on_each_store("hosting", &ruleset).await {
        let mut game_server = GameServer::advertise(&server, "one").await;
        let [mut ann, _bob] = enter_two(&server).await;
        let match_id = game_server.wait_for_match().await;
        game_server.host.heartbeat().await.expect("beat");
        ann.wait_for_state(TicketState::Matched).await;
        let delete = pb::MatchmakingDeleteAdvertisementRequest {
            advertisement_id: game_server.advertised.advertisement_id.clone(),
            advertisement_token: game_server.token(),
        };
        game_server.client.delete_advertisement(delete).await.expect("delete");
        for _ in 0..4 {
            server.clock.advance_ms(40_000);
            server.sweep_expired_adverts_and_wait().await;
            let beaten = game_server.host.heartbeat().await.expect("beat").remove(0);
            assert_eq!((beaten.match_id.clone(), beaten.state()), (match_id.clone(), HostedMatchState::Playing));
        }
        assert_eq!(ann.current_status().await.state(), TicketState::Matched);
        // It hosts one match, so the id may be absent.
        let end = pb::QueueEndMatchRequest { advertisement_token: game_server.token(), ..Default::default() };
        assert_eq!(game_server.client.end_match(end).await.expect("end").end_reason(), MatchEndReason::Played);
        assert!(game_server.report_first_team_won(&match_id).await.rated);
    }
}

/// A player who hosts and falls silent has left: abandoned, with the ready check's penalty. The others are free without one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_peer_host_counts_as_having_left() {
    let ruleset = duel_ruleset(&format!("{CHECKED}{PEER}"));
    for (server, _database) in servers_on_each_store("hosting", &ruleset).await {
        let mut request = enter_request(SET_ID, &[("ann", 20.0)]);
        request.session_composition.as_mut().expect("a party").nat_type = Some(1);
        let mut ann = QueuedParty::enter_with_request(&server, request).await;
        let mut bob = QueuedParty::enter(&server, SET_ID, &[("bob", 20.0)]).await;
        ann.respond_to_match(true).await;
        bob.respond_to_match(true).await;
        ann.wait_for_state(TicketState::Matched).await;
        bob.wait_for_state(TicketState::Matched).await;
        // Ann's heartbeat keeps the match alive, and bob's does not.
        server.clock.advance_ms(50_000);
        assert_eq!(ann.current_status().await.state(), TicketState::Matched);
        let (client, ticket) = (ann.client.clone(), ann.ticket.reference());
        drop(ann);
        server.clock.advance_ms(50_000);
        assert_eq!(bob.current_status().await.state(), TicketState::Matched);
        server.clock.advance_ms(10_001);
        let ended = bob.wait_for_end().await;
        assert_eq!(ended.end_reason(), TicketEndReason::Played);
        let lost = ended.found_match.expect("its match");
        assert_eq!(lost.end_reason(), MatchEndReason::HostLost);
        let heartbeat = pb::QueueHeartbeatRequest { tickets: vec![ticket], ..Default::default() };
        let own = client.heartbeat_tickets(heartbeat).await.expect("heartbeat").statuses.remove(0);
        assert_eq!(own.end_reason(), TicketEndReason::Left);
        let refused =
            client.enter_queue(enter_request(SET_ID, &[("ann", 20.0)])).await.expect_err("ann has a cooldown");
        assert_eq!(refused.code(), Some(Code::PermissionDenied), "{refused}");
        bob.client.enter_queue(enter_request(SET_ID, &[("bob", 20.0)])).await.expect("bob is free");
    }
}

/// A peer host without a watch confirms with its next heartbeat, which it is asked for in time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn peer_host_without_a_watch_confirms_by_heartbeat() {
    let server = start_queue_server(&[&duel_ruleset(PEER)]).await;
    let client = server.client().await;
    let ann = client.enter_queue(enter_request(SET_ID, &[("ann", 20.0)])).await.expect("enter");
    let bob = client.enter_queue(enter_request(SET_ID, &[("bob", 20.0)])).await.expect("enter");
    let request = pb::QueueHeartbeatRequest { tickets: vec![ann.reference(), bob.reference()], ..Default::default() };
    wait_until("the match is confirmed", async || {
        let answer = client.heartbeat_tickets(request.clone()).await.expect("heartbeat");
        let states: Vec<TicketState> = answer.statuses.iter().map(pb::TicketStatus::state).collect();
        assert!(states.contains(&TicketState::Matched) || answer.expires_in_ms <= 5_000, "{answer:?}");
        states == [TicketState::Matched; 2]
    })
    .await;
}

/// A named peer host that is not heard does not hold the others: they wait again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn peer_host_that_does_not_confirm_ends_the_match() {
    let server = start_queue_server(&[&duel_ruleset(PEER)]).await;
    let client = server.client().await;
    let mut request = enter_request(SET_ID, &[("ann", 20.0)]);
    request.session_composition.as_mut().expect("a party").nat_type = Some(1);
    let _silent = client.enter_queue(request).await.expect("enter");
    let mut bob = QueuedParty::enter(&server, SET_ID, &[("bob", 20.0)]).await;
    let first = bob.wait_for_state(TicketState::Placing).await.found_match.expect("a match").match_id;
    server.clock.advance_ms(5_001);
    // Bob waits again, and is matched with ann again until her ticket expires.
    wait_until("another match", async || {
        let status = bob.current_status().await;
        status.found_match.is_some_and(|found| found.match_id != first)
    })
    .await;
    server.clock.advance_ms(55_000);
    wait_until("ann's ticket has expired", async || bob.current_status().await.state() == TicketState::Waiting).await;
    assert_eq!(bob.current_status().await.waited_ms, 60_001);
}

/// A host that moves to another server of the same database keeps its match there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn game_server_keeps_its_match_at_another_server() {
    let Some(database) = create_test_database("hosting at two servers").await else { return };
    let ruleset = duel_ruleset(HOSTED);
    let store = StoreTarget::Postgres(PostgresUrl::parse(&database.url).expect("a URL"));
    let first = start_queue_server_with_config(&[&ruleset], |config| config.store = store.clone()).await;
    let keys = first.folder.path().to_owned();
    let second = start_queue_server_with_config(&[&ruleset], |config| {
        config.store = store;
        config.token_key_file = Some(keys.join("token-key"));
        config.match_key_file = Some(keys.join("match-key.pem"));
    })
    .await;
    let mut game_server = GameServer::advertise(&first, "one").await;
    let [mut ann, mut bob] = enter_two(&first).await;
    let match_id = game_server.wait_for_match().await;
    game_server.client = second.client().await;
    game_server.host = MatchHost::from_advertisement_token(game_server.client.clone(), game_server.token());
    wait_until("confirmed at the other server", async || !game_server.host.heartbeat().await.expect("beat").is_empty())
        .await;
    ann.wait_for_state(TicketState::Matched).await;
    bob.wait_for_state(TicketState::Matched).await;
    for _ in 0..3 {
        first.clock.advance_ms(40_000);
        second.clock.advance_ms(40_000);
        let beaten = game_server.host.heartbeat().await.expect("beat").remove(0);
        assert_eq!((&beaten.match_id, beaten.state()), (&match_id, HostedMatchState::Playing));
    }
    assert_eq!(ann.current_status().await.state(), TicketState::Matched);
}

/// While a server of an earlier version runs a queue, which cannot read matches that wait for confirmation, matches start at
/// once. A lease that such a server has taken over counts as its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_do_not_confirm_while_an_older_server_runs_queues() {
    for takeover in ["null, 1", "41, 2"] {
        let Some(database) = create_test_database("older server").await else { return };
        let store = StoreTarget::Postgres(PostgresUrl::parse(&database.url).expect("a URL"));
        let server = start_queue_server_with_config(&[&duel_ruleset(HOSTED)], |config| config.store = store).await;
        let lease = format!(
            "insert into queue_lease (set_id, silo_id, replica, expires_at, format_replica, store_format)
             values (99, 0, 42, now() + interval '1 hour', {takeover})"
        );
        let mut connection = database.connect().await;
        sqlx::query(sqlx::AssertSqlSafe(lease)).execute(&mut connection).await.expect("an older server's lease");
        let server = server.restart().await;
        let game_server = GameServer::advertise(&server, "one").await;
        let [mut ann, _bob] = enter_two(&server).await;
        ann.wait_for_state(TicketState::Matched).await;
        let match_id = game_server.wait_for_match().await;
        assert_eq!(game_server.beat(&match_id, false).await.state(), HostedMatchState::Playing);
    }
}
