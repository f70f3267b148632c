//! Leaving in each stage, alone or with the party; and parties that are silent before their match is played.

use std::sync::Arc;

use fireteam::config::{RulesetSource, StoreTarget};
use fireteam_client::pb;
use pb::{MatchEndReason, TicketEndReason, TicketState};
use tonic::Code;

use crate::security::match_credential::operator_page;
use crate::security::session_privacy::servers_on_one_postgres;
use crate::support::database::create_test_database;
use crate::support::queue_server::{QueuedParty, SET_ID, duel_ruleset, enter_request, start_queue_server, wait_until};
use crate::support::ruleset_dir::RulesetDirectory;
use crate::support::server_process::TEST_TIMEOUT;
use crate::support::test_server::{TestClock, TestServer};

/// Ready check with a cooldown of a minute.
const CHECKED: &str = r#"<ReadyCheck TimeoutMs="20000" DeclineCooldownMs="60000"/>"#;

/// Players wait up to ten minutes for a game server.
const HOSTED: &str = r#"<Hosting Mode="game_server" AllocationTimeoutMs="600000"/>"#;

/// Ann and bob, who have accepted a match that waits for a game server.
async fn two_players_in_placing(server: &TestServer) -> (QueuedParty, QueuedParty) {
    let mut ann = QueuedParty::enter(server, SET_ID, &[("ann", 20.0)]).await;
    let mut bob = QueuedParty::enter(server, SET_ID, &[("bob", 20.0)]).await;
    ann.respond_to_match(true).await;
    bob.respond_to_match(true).await;
    ann.wait_for_state(TicketState::Placing).await;
    bob.wait_for_state(TicketState::Placing).await;
    (ann, bob)
}

/// S0-21: while a game server is sought, a player can leave, with the penalty of a failed ready check; the others wait
/// again with their time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leave_while_placing_ends_the_ticket_and_requeues_the_others() {
    let server = start_queue_server(&[&duel_ruleset(&format!("{CHECKED}{HOSTED}"))]).await;
    let (mut ann, mut bob) = two_players_in_placing(&server).await;
    server.clock.advance_ms(5_000);
    assert!(ann.ticket.leave().await.expect("leave"));
    assert_eq!(ann.ticket.status.end_reason(), TicketEndReason::Left);
    assert_eq!(bob.wait_for_state(TicketState::Waiting).await.waited_ms, 5_000);
    let refused =
        ann.client.enter_queue(enter_request(SET_ID, &[("ann", 20.0)])).await.expect_err("ann has a cooldown");
    assert_eq!(refused.code(), Some(Code::PermissionDenied), "{refused}");
    assert!(ann.ticket.leave().await.expect("leave"), "leave is idempotent");
}

/// After half of the wait for a game server, leaving has no penalty.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leave_late_while_placing_has_no_penalty() {
    let hosted = HOSTED.replace("600000", "50000");
    let server = start_queue_server(&[&duel_ruleset(&format!("{CHECKED}{hosted}"))]).await;
    let (mut ann, mut bob) = two_players_in_placing(&server).await;
    server.clock.advance_ms(25_000);
    assert!(ann.ticket.leave().await.expect("leave"));
    bob.wait_for_state(TicketState::Waiting).await;
    ann.client.enter_queue(enter_request(SET_ID, &[("ann", 20.0)])).await.expect("no cooldown");
}

/// S3-13: in a ready check, leaving is a decline: the ticket has ended when the call returns.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leave_in_a_ready_check_ends_the_ticket_with_its_penalty() {
    let server = start_queue_server(&[&duel_ruleset(CHECKED)]).await;
    let mut ann = QueuedParty::enter(&server, SET_ID, &[("ann", 20.0)]).await;
    let mut bob = QueuedParty::enter(&server, SET_ID, &[("bob", 20.0)]).await;
    ann.respond_to_match(true).await;
    bob.wait_for_state(TicketState::Proposed).await;
    assert!(ann.ticket.leave().await.expect("leave"));
    assert_eq!(ann.ticket.status.end_reason(), TicketEndReason::Left);
    assert_eq!(ann.ticket.status.found_match.as_ref().expect("its match").end_reason(), MatchEndReason::Declined);
    bob.wait_for_state(TicketState::Waiting).await;
    let refused =
        ann.client.enter_queue(enter_request(SET_ID, &[("ann", 20.0)])).await.expect_err("ann has a cooldown");
    assert_eq!(refused.code(), Some(Code::PermissionDenied), "{refused}");
}

/// R1: who leaves during play is free at once, also for the same queue; the match goes on for the others, and its result
/// counts as abandoned for who left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leave_during_play_frees_the_player_for_another_match() {
    let server = start_queue_server(&[&duel_ruleset(r#"<Rating System="elo"/>"#)]).await;
    let mut ann = QueuedParty::enter(&server, SET_ID, &[("ann", 20.0)]).await;
    let mut bob = QueuedParty::enter(&server, SET_ID, &[("bob", 20.0)]).await;
    let first = bob.wait_for_state(TicketState::Matched).await.found_match.expect("a match");
    ann.wait_for_state(TicketState::Matched).await;
    let refused = ann.client.enter_queue(enter_request(SET_ID, &[("ann", 20.0)])).await.expect_err("ann is in a match");
    assert_eq!(refused.code(), Some(Code::FailedPrecondition), "{refused}");
    assert!(ann.ticket.leave().await.expect("leave"));
    assert_eq!(ann.ticket.status.end_reason(), TicketEndReason::Left);
    let seen = bob.wait_for_state(TicketState::Matched).await.found_match.expect("the match goes on");
    assert_eq!(seen.players.iter().filter(|player| player.left).count(), 1);

    let mut ann = QueuedParty::enter(&server, SET_ID, &[("ann", 20.0)]).await;
    let mut eve = QueuedParty::enter(&server, SET_ID, &[("eve", 20.0)]).await;
    let second = ann.wait_for_state(TicketState::Matched).await.found_match.expect("a second match");
    eve.wait_for_state(TicketState::Matched).await;
    assert_ne!(first.match_id, second.match_id);

    let report = pb::ReportResultRequest {
        match_id: first.match_id.clone(),
        team_ranks: vec![pb::TeamRank { team: 0, rank: 1 }, pb::TeamRank { team: 1, rank: 2 }],
        ticket_token: bob.ticket.reference().ticket_token,
        ..Default::default()
    };
    bob.client.report_result(report).await.expect("report");
    assert_eq!(bob.wait_for_end().await.end_reason(), TicketEndReason::Played);
    assert_eq!(ann.current_status().await.state(), TicketState::Matched, "the second match goes on");
    let refused = ann.client.enter_queue(enter_request(SET_ID, &[("ann", 20.0)])).await.expect_err("ann is in a match");
    assert_eq!(refused.code(), Some(Code::FailedPrecondition), "{refused}");
}

/// One player of a party can leave alone during play. When the last one has left, the match ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leave_of_one_player_keeps_the_party_in_its_match() {
    let pairs = duel_ruleset("").replace(r#"Size="1""#, r#"Size="2""#);
    let server = start_queue_server(&[&pairs]).await;
    let mut pair = QueuedParty::enter(&server, SET_ID, &[("ann", 20.0), ("amy", 20.0)]).await;
    let mut other = QueuedParty::enter(&server, SET_ID, &[("bob", 20.0), ("ben", 20.0)]).await;
    pair.wait_for_state(TicketState::Matched).await;
    other.wait_for_state(TicketState::Matched).await;
    let stranger = pair.ticket.leave_for_players(vec!["bob".into()]).await.expect_err("bob is not of the party");
    assert_eq!(stranger.code(), Some(Code::InvalidArgument), "{stranger}");
    assert!(stranger.to_string().contains("user_ids"), "{stranger}");
    assert!(!pair.ticket.leave_for_players(vec!["ann".into()]).await.expect("leave"), "amy still plays");
    assert_eq!(pair.ticket.status.state(), TicketState::Matched);
    let mut alone = QueuedParty::enter(&server, SET_ID, &[("ann", 20.0)]).await;
    assert_eq!(alone.current_status().await.state(), TicketState::Waiting);
    let refused = pair.client.enter_queue(enter_request(SET_ID, &[("amy", 20.0)])).await.expect_err("amy plays");
    assert_eq!(refused.code(), Some(Code::FailedPrecondition), "{refused}");
    assert!(pair.ticket.leave_for_players(vec!["amy".into()]).await.expect("leave"), "no player of the party is left");
    assert!(other.ticket.leave().await.expect("leave"));
    let ended = other.ticket.status.found_match.as_ref().expect("its match").end_reason();
    assert_eq!(ended, MatchEndReason::Abandoned);
    pair.client.enter_queue(enter_request(SET_ID, &[("amy", 20.0)])).await.expect("amy is free");
}

/// A party that is silent for longer than its TTL while a game server is sought is not put into the match.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_party_is_taken_out_while_placing() {
    let short_ttl = duel_ruleset(&format!("{CHECKED}{HOSTED}"))
        .replace(r#"PassIntervalMs="10""#, r#"PassIntervalMs="10" TicketTtlMs="60000""#);
    let server = start_queue_server(&[&short_ttl]).await;
    let mut ann = QueuedParty::enter(&server, SET_ID, &[("ann", 20.0)]).await;
    // Without a watch, which would keep the ticket alive.
    let mut bob = server.client().await.enter_queue(enter_request(SET_ID, &[("bob", 20.0)])).await.expect("enter");
    let match_id = ann.respond_to_match(true).await;
    bob.respond_to_ready_check(&match_id, true).await.expect("respond");
    ann.wait_for_state(TicketState::Placing).await;
    server.clock.advance_ms(40_000);
    assert_eq!(ann.current_status().await.state(), TicketState::Placing, "its heartbeat keeps ann's ticket alive");
    server.clock.advance_ms(30_000);
    assert_eq!(ann.wait_for_state(TicketState::Waiting).await.waited_ms, 70_000);
    assert_eq!(bob.watch().next().await.expect("open").expect("a status").end_reason(), TicketEndReason::Expired);
    server.client().await.enter_queue(enter_request(SET_ID, &[("bob", 20.0)])).await.expect("no cooldown");
}

/// A party that is silent for longer than its TTL in a long ready check is taken out before the check ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_party_is_taken_out_of_a_ready_check() {
    let long_check = duel_ruleset(&CHECKED.replace("20000", "300000"))
        .replace(r#"PassIntervalMs="10""#, r#"PassIntervalMs="10" TicketTtlMs="60000""#);
    let server = start_queue_server(&[&long_check]).await;
    let mut ann = QueuedParty::enter(&server, SET_ID, &[("ann", 20.0)]).await;
    // Without a watch, which would keep the ticket alive.
    let bob = server.client().await.enter_queue(enter_request(SET_ID, &[("bob", 20.0)])).await.expect("enter");
    ann.respond_to_match(true).await;
    server.clock.advance_ms(40_000);
    ann.current_status().await;
    server.clock.advance_ms(30_000);
    ann.wait_for_state(TicketState::Waiting).await;
    assert_eq!(bob.watch().next().await.expect("open").expect("a status").end_reason(), TicketEndReason::Expired);
}

/// A player who left a match and waits again is still in the queue after a restart, and the match goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leave_during_play_survives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("duel.xml"), duel_ruleset("")).unwrap();
    let path = folder.path().to_owned();
    let server = TestServer::start_with_config(move |config| {
        config.store = StoreTarget::Sqlite(path.join("store.db"));
        config.rulesets = RulesetSource::Directory(path);
    })
    .await;
    let mut ann = QueuedParty::enter(&server, SET_ID, &[("ann", 20.0)]).await;
    let mut bob = QueuedParty::enter(&server, SET_ID, &[("bob", 20.0)]).await;
    ann.wait_for_state(TicketState::Matched).await;
    bob.wait_for_state(TicketState::Matched).await;
    assert!(ann.ticket.leave().await.expect("leave"));
    let again = QueuedParty::enter(&server, SET_ID, &[("ann", 20.0)]).await;
    let (waiting, playing) = (again.ticket.reference(), bob.ticket.reference());
    drop((ann, bob, again));
    let server = server.restart().await;
    let client = server.client().await;
    let heartbeat = pb::QueueHeartbeatRequest { tickets: vec![waiting, playing], ..Default::default() };
    let statuses = client.heartbeat_tickets(heartbeat).await.expect("heartbeat").statuses;
    let states: Vec<TicketState> = statuses.iter().map(pb::TicketStatus::state).collect();
    assert_eq!(states, [TicketState::Waiting, TicketState::Matched]);
    let refused = client.enter_queue(enter_request(SET_ID, &[("bob", 20.0)])).await.expect_err("bob is in a match");
    assert_eq!(refused.code(), Some(Code::FailedPrecondition), "{refused}");
}

/// Ticket that has left, so long ago that it is purged, and two servers on one Postgres.
struct PurgedTicket {
    clock: Arc<TestClock>,
    here: TestServer,
    there: TestServer,
    ticket: fireteam_client::Ticket,
    _rules: RulesetDirectory,
}

impl PurgedTicket {
    async fn on(database_url: &str) -> Self {
        let rules = RulesetDirectory::with_files(&[("duel.xml", &duel_ruleset(""))]);
        let clock = Arc::new(TestClock::new());
        let (here, there) = servers_on_one_postgres(database_url, &clock, |config| {
            config.rulesets = RulesetSource::Directory(rules.path().to_owned());
            config.token_key_file = Some(rules.path().join("token-key"));
        })
        .await;
        let mut ticket = here.client().await.enter_queue(enter_request(SET_ID, &[("ann", 20.0)])).await.expect("enter");
        assert!(ticket.leave().await.expect("leave"));
        clock.advance_ms(2 * 60 * 60 * 1_000);
        Self { clock, here, there, ticket, _rules: rules }
    }
}

/// A watch of a ticket that was purged ends, at each of two servers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watch_of_a_purged_ticket_ends() {
    let Some(database) = create_test_database("watch_of_a_purged_ticket_ends").await else { return };
    let site = PurgedTicket::on(&database.url).await;
    let mut connection = database.connect().await;
    wait_until("the ticket is purged", async || {
        let count: i64 =
            sqlx::query_scalar("select count(*) from ticket").fetch_one(&mut connection).await.expect("rows");
        count == 0
    })
    .await;
    for client in [site.here.client().await, site.there.client().await] {
        let mut stream = client.watch_tickets([site.ticket.reference()]);
        let watched = async {
            // A server may still have it in memory.
            while let Some(status) = stream.next().await.expect("the stream is open") {
                assert_eq!(status.state(), TicketState::Ended);
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, watched).await.expect("it ends");
    }
}

/// Tickets that a server has read from the store, because its feed has not brought them.
async fn tickets_read(server: &TestServer) -> u64 {
    let (_, metrics) = operator_page(server, "/metrics").await;
    let count = r#"fireteam_store_duration_seconds_count{operation="read_ticket"} "#;
    metrics.lines().find_map(|line| line.strip_prefix(count)).map_or(0, |count| count.parse().expect("a number"))
}

/// SEC-8: a client that goes on to send heartbeats of a purged ticket does not make the server read the store each time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heartbeats_of_a_purged_ticket_read_the_store_once() {
    let Some(database) = create_test_database("heartbeats_of_a_purged_ticket").await else { return };
    let site = PurgedTicket::on(&database.url).await;
    let late = site.there.client().await;
    let beat = async || {
        let request = pb::QueueHeartbeatRequest { tickets: vec![site.ticket.reference()], ..Default::default() };
        late.heartbeat_tickets(request).await.expect("a heartbeat").statuses.remove(0)
    };
    wait_until("the ticket is purged, in memory too", async || {
        beat().await;
        tickets_read(&site.there).await > 0
    })
    .await;
    let (reads, told) = (tickets_read(&site.there).await, beat().await);
    for _ in 0..3 {
        assert_eq!(beat().await, told);
    }
    assert_eq!(tickets_read(&site.there).await, reads);
    site.clock.advance_ms(10_000);
    beat().await;
    assert_eq!(tickets_read(&site.there).await, reads + 1);
}
