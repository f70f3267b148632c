//! Deadlines count available time: restarts and outages expire no ticket, fail no ready check and penalize no player.

use std::sync::Arc;

use fireteam::clock::Clock as _;
use fireteam::config::{PostgresUrl, RulesetSource, StoreTarget};
use fireteam_client::{RetryPolicy, Ticket, pb};
use pb::{TicketEndReason, TicketState};
use sqlx::{Connection as _, Executor as _};

use crate::support::database::{TestDatabase, create_test_database};
use crate::support::queue_server::{SET_ID, duel_ruleset, enter_request, wait_until};
use crate::support::test_server::{TestClock, TestServer};

/// Ready check of 20 s with a cooldown of a minute.
const CHECKED: &str = r#"<ReadyCheck TimeoutMs="20000" DeclineCooldownMs="60000"/>"#;

/// TTL of the tickets of these tests, milliseconds.
const TICKET_TTL_MS: u64 = 60_000;

fn checked_ruleset() -> String {
    let queue = format!(r#"PassIntervalMs="10" TicketTtlMs="{TICKET_TTL_MS}""#);
    duel_ruleset(CHECKED).replace(r#"PassIntervalMs="10""#, &queue)
}

/// Folder with the ruleset of these tests.
fn ruleset_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("duel.xml"), checked_ruleset()).expect("write");
    folder
}

/// A server on a SQLite file.
async fn start_on_sqlite() -> TestServer {
    let folder = ruleset_folder();
    let mut server = TestServer::start_with_config(|config| {
        config.store = StoreTarget::Sqlite(folder.path().join("store.db"));
        config.rulesets = RulesetSource::Directory(folder.path().to_owned());
    })
    .await;
    server.keep_folder(folder);
    server
}

/// A server on a Postgres database. Servers of one test share a clock, and the keys and rulesets in a folder.
async fn start_on_postgres(database: &TestDatabase, clock: &Arc<TestClock>, folder: &tempfile::TempDir) -> TestServer {
    TestServer::start_on_clock(Arc::clone(clock), |config| {
        config.store = StoreTarget::Postgres(PostgresUrl::parse(&database.url).expect("a URL"));
        config.rulesets = RulesetSource::Directory(folder.path().to_owned());
        config.token_key_file = Some(folder.path().join("token-key"));
        config.match_key_file = Some(folder.path().join("match-key.pem"));
    })
    .await
}

async fn enter(server: &TestServer, user: &str, skill: f64) -> Ticket {
    server.client().await.enter_queue(enter_request(SET_ID, &[(user, skill)])).await.expect("enter")
}

/// Heartbeat of a ticket at any server.
async fn status_of(server: &TestServer, ticket: &Ticket) -> pb::TicketStatus {
    let request = pb::QueueHeartbeatRequest { tickets: vec![ticket.reference()], ..Default::default() };
    server.client().await.heartbeat_tickets(request).await.expect("heartbeat").statuses.remove(0)
}

async fn wait_for_state(server: &TestServer, ticket: &Ticket, state: TicketState) -> pb::TicketStatus {
    let mut last = pb::TicketStatus::default();
    wait_until("the ticket has the state", async || {
        last = status_of(server, ticket).await;
        last.state() == state
    })
    .await;
    last
}

async fn respond(server: &TestServer, ticket: &Ticket, match_id: &str) {
    let pb::TicketReference { ticket_id, ticket_token, .. } = ticket.reference();
    let request = pb::QueueRespondRequest {
        ticket_id,
        ticket_token,
        match_id: match_id.to_owned(),
        accept: true,
        user_ids: Vec::new(),
    };
    server.client().await.respond_to_ready_check(request).await.expect("respond");
}

/// Two tickets in a ready check, and its id.
async fn two_in_a_ready_check(server: &TestServer) -> (Ticket, Ticket, String) {
    let (ann, bob) = (enter(server, "ann", 20.0).await, enter(server, "bob", 20.0).await);
    wait_for_state(server, &bob, TicketState::Proposed).await;
    let match_id = wait_for_state(server, &ann, TicketState::Proposed).await.found_match.expect("a match").match_id;
    (ann, bob, match_id)
}

async fn ready_check_continues_after_a_restart(server: TestServer, down_ms: u64) {
    let (ann, bob, match_id) = two_in_a_ready_check(&server).await;
    let waiting = enter(&server, "eve", 40.0).await;
    respond(&server, &ann, &match_id).await;
    server.clock.advance_ms(15_000);
    let server = server.restart_after(down_ms).await;
    assert_eq!(status_of(&server, &waiting).await.state(), TicketState::Waiting);
    let proposed = status_of(&server, &bob).await;
    assert_eq!(proposed.state(), TicketState::Proposed);
    let found = proposed.found_match.expect("the match");
    assert_eq!((found.match_id, found.deadline_in_ms), (match_id.clone(), Some(5_000)), "what was left of 20 s");
    respond(&server, &bob, &match_id).await;
    wait_for_state(&server, &ann, TicketState::Matched).await;
    wait_for_state(&server, &bob, TicketState::Matched).await;
}

/// Case 4: a ready check that would have ended while the server restarted goes on with the time that was left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ready_check_continues_after_a_restart_on_sqlite() {
    ready_check_continues_after_a_restart(start_on_sqlite().await, 100_000).await;
}

/// Case 4 on Postgres.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ready_check_continues_after_a_restart_on_postgres() {
    let Some(database) = create_test_database("ready_check_continues_after_a_restart_on_postgres").await else {
        return;
    };
    let folder = ruleset_folder();
    let server = start_on_postgres(&database, &Arc::new(TestClock::new()), &folder).await;
    ready_check_continues_after_a_restart(server, 100_000).await;
}

/// Case 4 on Postgres, with a restart that is shorter than the time after which a server is silent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ready_check_continues_after_a_short_restart_on_postgres() {
    let test = "ready_check_continues_after_a_short_restart_on_postgres";
    let Some(database) = create_test_database(test).await else { return };
    let folder = ruleset_folder();
    let server = start_on_postgres(&database, &Arc::new(TestClock::new()), &folder).await;
    ready_check_continues_after_a_restart(server, 3_000).await;
}

async fn waiting_tickets_survive_a_long_restart(server: TestServer) {
    let (ann, silent) = (enter(&server, "ann", 20.0).await, enter(&server, "sid", 40.0).await);
    server.clock.advance_ms(TICKET_TTL_MS / 2);
    let server = server.restart_after(10 * TICKET_TTL_MS).await;
    // What was left of the TTL, less one second.
    server.clock.advance_ms(TICKET_TTL_MS / 2 - 1_000);
    let waited_ms = status_of(&server, &ann).await.waited_ms;
    assert_eq!(waited_ms, 11 * TICKET_TTL_MS - 1_000, "the wait goes on");
    let bob = enter(&server, "bob", 20.0).await;
    wait_for_state(&server, &ann, TicketState::Proposed).await;
    wait_for_state(&server, &bob, TicketState::Proposed).await;
    server.clock.advance_ms(1_000);
    wait_for_expiry(&server, "sid", &silent).await;
}

/// Waits until a ticket has expired, without a heartbeat of it: its player can enter again.
async fn wait_for_expiry(server: &TestServer, user: &str, ticket: &Ticket) {
    let client = server.client().await;
    wait_until("the player can enter again", async || {
        client.enter_queue(enter_request(SET_ID, &[(user, 45.0)])).await.is_ok()
    })
    .await;
    assert_eq!(status_of(server, ticket).await.end_reason(), TicketEndReason::Expired);
}

/// Case 5: a restart that takes longer than the TTL of tickets expires none of them. Each has its whole TTL; a party that
/// stays silent expires then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_tickets_survive_a_long_restart_on_sqlite() {
    waiting_tickets_survive_a_long_restart(start_on_sqlite().await).await;
}

/// Case 5 on Postgres.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_tickets_survive_a_long_restart_on_postgres() {
    let test = "waiting_tickets_survive_a_long_restart_on_postgres";
    let Some(database) = create_test_database(test).await else { return };
    let folder = ruleset_folder();
    let server = start_on_postgres(&database, &Arc::new(TestClock::new()), &folder).await;
    waiting_tickets_survive_a_long_restart(server).await;
}

/// A match that outages have held up for 10 minutes in all is cancelled: its tickets wait again with their time, and the
/// same parties get another match.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn match_held_up_for_ten_minutes_is_cancelled() {
    let server = start_on_sqlite().await;
    let (ann, bob, match_id) = two_in_a_ready_check(&server).await;
    respond(&server, &ann, &match_id).await;
    let server = server.restart_after(300_000).await;
    let found = status_of(&server, &bob).await.found_match.expect("a match");
    assert_eq!((found.match_id, found.accepted_count), (match_id.clone(), 1), "held up for five minutes");
    let server = server.restart_after(300_000).await;
    wait_until("both have another match", async || {
        let mut is_other = true;
        for ticket in [&ann, &bob] {
            let status = status_of(&server, ticket).await;
            assert_eq!(status.waited_ms, 600_000);
            let found = status
                .found_match
                .filter(|found| status.state == i32::from(TicketState::Proposed) && found.accepted_count == 0);
            is_other &= found.is_some_and(|found| found.match_id != match_id);
        }
        is_other
    })
    .await;
}

/// During an outage of the store that is longer than every deadline, an acceptance is refused. After `outage_end` it is
/// accepted, and no ticket has expired.
async fn refused_writes_extend_every_deadline(
    server: TestServer,
    (ann, bob, match_id): (Ticket, Ticket, String),
    waiting: Ticket,
    outage_end: impl Future<Output = ()>,
) {
    let pb::TicketReference { ticket_id, ticket_token, .. } = ann.reference();
    let request = pb::QueueRespondRequest {
        ticket_id,
        ticket_token,
        match_id: match_id.clone(),
        accept: true,
        ..Default::default()
    };
    let client = server.client().await.with_retry_policy(RetryPolicy::NEVER);
    let refused = client.respond_to_ready_check(request).await.expect_err("the store refuses writes");
    assert_eq!(refused.code(), Some(tonic::Code::Unavailable), "{refused}");
    server.clock.advance_ms(2 * TICKET_TTL_MS);
    outage_end.await;
    for ticket in [&ann, &bob] {
        assert_eq!(status_of(&server, ticket).await.state(), TicketState::Proposed);
        respond(&server, ticket, &match_id).await;
    }
    wait_for_state(&server, &ann, TicketState::Matched).await;
    wait_for_state(&server, &bob, TicketState::Matched).await;
    assert_eq!(status_of(&server, &waiting).await.state(), TicketState::Waiting);
}

/// Cases 4 and 5: another session locks the tables.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_writes_extend_every_deadline_on_postgres() {
    let Some(database) = create_test_database("refused_writes_extend_every_deadline_on_postgres").await else { return };
    let folder = ruleset_folder();
    let server = start_on_postgres(&database, &Arc::new(TestClock::new()), &folder).await;
    let (proposed, waiting) = (two_in_a_ready_check(&server).await, enter(&server, "eve", 40.0).await);
    let mut connection = database.connect().await;
    let mut outage = connection.begin().await.expect("begin");
    outage.execute("lock table ticket, match in exclusive mode").await.expect("lock");
    let outage_end = async { outage.rollback().await.expect("rollback") };
    refused_writes_extend_every_deadline(server, proposed, waiting, outage_end).await;
}

/// Cases 4 and 5: another process holds the file's write lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_writes_extend_every_deadline_on_sqlite() {
    let folder = ruleset_folder();
    let file = folder.path().join("store.db");
    let server = TestServer::start_with_config(|config| {
        config.store = StoreTarget::Sqlite(file.clone());
        config.rulesets = RulesetSource::Directory(folder.path().to_owned());
    })
    .await;
    let (proposed, waiting) = (two_in_a_ready_check(&server).await, enter(&server, "eve", 40.0).await);
    let url = format!("sqlite:{}", file.display());
    let mut outage = sqlx::sqlite::SqliteConnection::connect(&url).await.expect("connect");
    outage.execute("begin immediate").await.expect("lock");
    let outage_end = async {
        outage.execute("rollback").await.expect("rollback");
    };
    refused_writes_extend_every_deadline(server, proposed, waiting, outage_end).await;
}

/// Waits until a server that is alive has reported its sign of life.
async fn wait_for_reports(database: &TestDatabase, clock: &TestClock) {
    wait_for_all_reports(database, clock, 1).await;
}

/// Waits until `servers` servers have reported their signs of life.
async fn wait_for_all_reports(database: &TestDatabase, clock: &TestClock, servers: i64) {
    let mut connection = database.connect().await;
    let now = i64::try_from(clock.now().0).expect("a time");
    wait_until("a server has reported", async || {
        let query = sqlx::query_scalar("select count(*) from server_alive where alive_ms >= $1").bind(now);
        let count: i64 = query.fetch_one(&mut connection).await.expect("read");
        servers <= count
    })
    .await;
}

/// One of two servers dies: what a server that stops tells the other is taken back. Returns when the other has read that.
async fn kill(server: TestServer, database: &TestDatabase, clock: &TestClock) {
    server.app.shutdown().await;
    let taken_back = "update server_alive set is_stopped = false";
    database.connect().await.execute(taken_back).await.expect("written");
    // The second report comes after what the first one read was applied.
    for _ in 0..2 {
        clock.advance_ms(1);
        wait_for_reports(database, clock).await;
    }
}

/// One of two servers dies. The other one gives its players the whole time of the ready check again, once. Then the ready check
/// fails, and no one has a cooldown for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_server_grants_its_players_the_whole_deadline_again() {
    let test = "dead_server_grants_its_players_the_whole_deadline_again";
    let Some(database) = create_test_database(test).await else { return };
    let (clock, folder) = (Arc::new(TestClock::new()), ruleset_folder());
    let here = start_on_postgres(&database, &clock, &folder).await;
    for is_answered in [true, false] {
        let there = start_on_postgres(&database, &clock, &folder).await;
        let (ann, bob, match_id) = two_in_a_ready_check(&there).await;
        respond(&there, &ann, &match_id).await;
        kill(there, &database, &clock).await;
        // Silent for longer than the limit.
        clock.advance_ms(6_000);
        wait_for_reports(&database, &clock).await;
        clock.advance_ms(20_000);
        wait_for_reports(&database, &clock).await;
        let proposed = status_of(&here, &bob).await;
        assert_eq!(proposed.state(), TicketState::Proposed, "past the deadline that was set");
        if is_answered {
            respond(&here, &bob, &match_id).await;
            let found = wait_for_state(&here, &ann, TicketState::Matched).await.found_match.expect("a match");
            let end = pb::QueueEndMatchRequest {
                match_id: found.match_id,
                ticket_token: ann.reference().ticket_token,
                ..Default::default()
            };
            here.client().await.end_match(end).await.expect("end");
        } else {
            clock.advance_ms(14_000);
            wait_for_state(&here, &ann, TicketState::Waiting).await;
            assert_eq!(status_of(&here, &bob).await.end_reason(), TicketEndReason::NotAcceptedInTime);
            enter(&here, "bob", 45.0).await;
        }
    }
}

/// One of two servers dies a second before a ready check ends. Until it is known to be silent, its players are not punished;
/// then they have the whole time again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_that_dies_just_before_a_deadline_punishes_no_player() {
    let test = "server_that_dies_just_before_a_deadline_punishes_no_player";
    let Some(database) = create_test_database(test).await else { return };
    let (clock, folder) = (Arc::new(TestClock::new()), ruleset_folder());
    let here = start_on_postgres(&database, &clock, &folder).await;
    let there = start_on_postgres(&database, &clock, &folder).await;
    let (ann, bob, match_id) = two_in_a_ready_check(&there).await;
    respond(&here, &ann, &match_id).await;
    for _ in 0..5 {
        clock.advance_ms(3_800);
        wait_for_all_reports(&database, &clock, 2).await;
    }
    kill(there, &database, &clock).await;
    for _ in 0..2 {
        clock.advance_ms(2_000);
        // This server has looked at the deadlines since.
        wait_for_all_reports(&database, &clock, 1).await;
        assert_eq!(status_of(&here, &bob).await.state(), TicketState::Proposed, "past the deadline that was set");
    }
    clock.advance_ms(2_000);
    wait_for_all_reports(&database, &clock, 1).await;
    clock.advance_ms(1_000);
    wait_for_all_reports(&database, &clock, 1).await;
    respond(&here, &bob, &match_id).await;
    wait_for_state(&here, &ann, TicketState::Matched).await;
    wait_for_state(&here, &bob, TicketState::Matched).await;
}

/// A server that stops delays no deadline of the others, and extends none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_that_stops_delays_no_deadline() {
    let Some(database) = create_test_database("server_that_stops_delays_no_deadline").await else { return };
    let (clock, folder) = (Arc::new(TestClock::new()), ruleset_folder());
    let here = start_on_postgres(&database, &clock, &folder).await;
    let there = start_on_postgres(&database, &clock, &folder).await;
    let (ann, bob, match_id) = two_in_a_ready_check(&there).await;
    respond(&here, &ann, &match_id).await;
    for _ in 0..4 {
        clock.advance_ms(4_000);
        wait_for_all_reports(&database, &clock, 2).await;
    }
    there.app.shutdown().await;
    // Its last report is too recent for a server that is silent.
    clock.advance_ms(4_000);
    wait_for_state(&here, &ann, TicketState::Waiting).await;
    assert_eq!(status_of(&here, &bob).await.end_reason(), TicketEndReason::NotAcceptedInTime);
}
