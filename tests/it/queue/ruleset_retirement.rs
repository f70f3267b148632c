//! End of a removed ruleset: the grace period, its end, renames and returns, the operator's call, and missing copies.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fireteam::domain::id::{SetId, UserKey};
use fireteam::domain::session::{Player, Session};
use fireteam::engine::command::Caller;
use fireteam::engine::error::EngineError;
use fireteam::engine::queues::command::EnterQueueCommand;
use fireteam_client::{Client, Code, Error, RetryPolicy, Ticket, pb};
use pb::{MatchEndReason, TicketEndReason, TicketState};
use sqlx::sqlite::SqliteConnection;
use sqlx::{AssertSqlSafe, Connection as _};

use crate::queue::ruleset_removal::{
    OTHER, RATED, RemovalFixture, checked_ruleset, found_match, respond, ruleset_of_set, ticket_status, wait_for_state,
};
use crate::support::database::create_test_database;
use crate::support::faulty_engine::start_engine;
use crate::support::faulty_store::FaultyStore;
use crate::support::generated_client::{
    ListRulesetsRequest, ReloadRulesetsRequest, RetireSetRequest, RetireSetResponse, RulesetState, RulesetStatus,
};
use crate::support::queue_server::{SET_ID, enter_request, wait_until};
use crate::support::ruleset_dir::{OperatorClient, RulesetDirectory};
use crate::support::server_process::ServerProcess;
use crate::support::test_server::{TestClock, advertise_request};

/// Default grace period, seconds.
const GRACE_S: u64 = 600;

/// Reason of a failed call.
fn reason(error: &Error) -> &str {
    error.as_server_error().and_then(|failure| failure.reason.as_deref()).unwrap_or_default()
}

async fn listed(fixture: &RemovalFixture, set: u32) -> Option<RulesetStatus> {
    let mut operator = OperatorClient::connect(&fixture.server).await;
    operator.list_rulesets().await.into_iter().find(|status| status.matchmaking_set_id == set)
}

async fn retire(fixture: &RemovalFixture, set: u32, force: bool) -> Result<RetireSetResponse, tonic::Status> {
    let mut operator = OperatorClient::connect(&fixture.server).await;
    let request = RetireSetRequest { matchmaking_set_id: Some(set), force };
    operator.0.retire_set(request).await.map(tonic::Response::into_inner)
}

/// Advances the clock in steps, with a heartbeat of the ticket in each, so that it does not expire.
async fn advance_with_heartbeats(fixture: &RemovalFixture, ticket: &Ticket, seconds: u64) {
    for _ in 0..seconds / 20 {
        fixture.server.clock.advance_ms(20_000);
        fixture.status(ticket).await;
    }
}

async fn wait_for_end(fixture: &RemovalFixture, ticket: &Ticket, end_reason: TicketEndReason) {
    wait_until("the ticket ends", async || fixture.status(ticket).await.state() == TicketState::Ended).await;
    assert_eq!(fixture.status(ticket).await.end_reason(), end_reason);
}

async fn execute_on_file(folder: &Path, text: &'static str) {
    let url = format!("sqlite:{}", folder.join("fireteam.db").display());
    let mut connection = SqliteConnection::connect(&url).await.expect("open the file");
    sqlx::raw_sql(AssertSqlSafe(text)).execute(&mut connection).await.expect("change the file");
    connection.close().await.expect("close");
}

/// A removed set refuses Enter and new advertisements with the time left; searches, updates and heartbeats go on. The list
/// and the metric show it. The time of removal outlives a restart.
#[tokio::test]
async fn retiring_set_refuses_new_entries_and_keeps_its_time_over_a_restart() {
    let fixture = RemovalFixture::start().await;
    let client = fixture.server.client().await.with_retry_policy(RetryPolicy::NEVER);
    let ann = fixture.enter(SET_ID, "ann", 20.0).await;
    let request = |set: u32, name: &str| pb::MatchmakingUpdateAdvertisementRequest {
        matchmaking_set_id: Some(set),
        ..advertise_request(&[(name, 20.0)], 5)
    };
    let mut advertised = client.advertise(request(SET_ID, "host")).await.expect("advertise");
    fixture.remove_file("checked.xml").await;
    advance_with_heartbeats(&fixture, &ann, 60).await;

    let error = client.enter_queue(enter_request(SET_ID, &[("bob", 20.0)])).await.expect_err("retiring");
    assert_eq!((error.code(), reason(&error)), (Some(Code::FailedPrecondition), "SET_RETIRED"), "{error}");
    let metadata = &error.as_server_error().expect("a status").reason_metadata;
    assert_eq!((&*metadata["matchmaking_set_id"], &*metadata["ends_in_ms"]), ("11", "540000"));
    let error = client.advertise(request(SET_ID, "another")).await.expect_err("retiring");
    assert_eq!(reason(&error), "SET_RETIRED", "{error}");
    advertised.replace_published(request(SET_ID, "host")).await.expect("an update of an existing advertisement");
    let mut search = client.new_search(SET_ID, crate::support::test_server::party_session(&[("guest", 20.0)]));
    assert_eq!(search.search().await.expect("search").candidates.len(), 1);

    let check_listed = async |fixture: &RemovalFixture| {
        let status = listed(fixture, SET_ID).await.expect("the set is listed");
        assert_eq!(
            (status.state(), status.retired, status.ends_in_ms, status.live_tickets, status.live_matches),
            (RulesetState::Current, true, Some(540_000), 1, 0),
        );
        assert_eq!(status.file_name, "checked.xml");
        let metrics = fixture.server.app.metrics.render();
        assert!(metrics.contains("fireteam_rulesets_retired 1"), "{metrics}");
    };
    check_listed(&fixture).await;
    let fixture = fixture.restart().await;
    wait_until("the metric is set", async || fixture.server.app.metrics.render().contains("rulesets_retired 1")).await;
    check_listed(&fixture).await;
    let error = fixture.server.client().await.enter_queue(enter_request(SET_ID, &[("bob", 20.0)])).await;
    assert_eq!(reason(&error.expect_err("retiring")), "SET_RETIRED");
}

/// When the grace period is over, waiting tickets end with their own reason, and their players are free. A running match
/// goes on.
#[tokio::test]
async fn retired_set_ends_waiting_tickets_and_keeps_its_matches() {
    let fixture = RemovalFixture::start().await;
    let playing = fixture.enter(RATED, "bob", 40.0).await;
    fixture.enter(RATED, "cid", 40.0).await;
    let found = found_match(&fixture.wait_for(&playing, TicketState::Matched).await);
    let waiting = fixture.enter(RATED, "ann", 40.0).await;
    fixture.remove_file("rated.xml").await;
    advance_with_heartbeats(&fixture, &waiting, GRACE_S - 20).await;
    assert_eq!(fixture.status(&waiting).await.state(), TicketState::Waiting);
    fixture.server.clock.advance_ms(20_000);
    wait_for_end(&fixture, &waiting, TicketEndReason::RulesetRetired).await;
    fixture.enter(OTHER, "ann", 20.0).await;
    let error = fixture.server.client().await.enter_queue(enter_request(RATED, &[("dan", 1.0)])).await;
    assert_eq!(reason(&error.expect_err("no ruleset")), "UNKNOWN_MATCHMAKING_SET");
    assert!(fixture.server.app.metrics.render().contains("fireteam_rulesets_retired 0"));

    let fixture = fixture.restart().await;
    let status = fixture.wait_for(&playing, TicketState::Matched).await;
    assert_eq!(found_match(&status).match_id, found.match_id);
    assert_eq!(listed(&fixture, RATED).await.expect("listed for its match").live_matches, 1);
    let rank = |team, rank| pb::TeamRank { team, rank };
    let report = pb::ReportResultRequest {
        match_id: found.match_id,
        team_ranks: vec![rank(found.team, 1), rank(1 - found.team, 2)],
        ticket_token: playing.reference().ticket_token,
        ..Default::default()
    };
    assert!(fixture.server.client().await.report_result(report).await.expect("report").rated);
    fixture.enter(OTHER, "bob", 40.0).await;
}

/// The same set in another file is a rename. A file that comes back ends the retirement.
#[tokio::test]
async fn renamed_or_returned_ruleset_file_retires_nothing() {
    let fixture = RemovalFixture::start().await;
    let ann = fixture.enter(SET_ID, "ann", 20.0).await;
    fixture.directory.write_file("renamed.xml", &checked_ruleset());
    fixture.remove_file("checked.xml").await;
    let status = listed(&fixture, SET_ID).await.expect("listed");
    assert_eq!((status.retired, &*status.file_name), (false, "renamed.xml"));
    fixture.remove_file("renamed.xml").await;
    assert!(listed(&fixture, SET_ID).await.expect("listed").retired);
    fixture.directory.write_file("back.xml", &checked_ruleset());
    fixture.reload().await;
    let status = listed(&fixture, SET_ID).await.expect("listed");
    assert_eq!((status.retired, status.ends_in_ms, status.live_tickets), (false, None, 1));
    let bob = fixture.enter(SET_ID, "bob", 20.0).await;
    fixture.wait_for(&bob, TicketState::Proposed).await;
    fixture.wait_for(&ann, TicketState::Proposed).await;
    // A second removal starts a new period.
    fixture.server.clock.advance_ms(7_000);
    fixture.remove_file("back.xml").await;
    assert_eq!(listed(&fixture, SET_ID).await.expect("listed").ends_in_ms, Some(GRACE_S * 1_000));
}

/// RetireSet is refused while the file exists or tickets wait; with force it ends them. Matches go on.
#[tokio::test]
async fn retire_set_ends_waiting_tickets_only_with_force() {
    let fixture = RemovalFixture::start().await;
    let waiting = fixture.enter(SET_ID, "ann", 5.0).await;
    let bob = fixture.enter(SET_ID, "bob", 40.0).await;
    let cid = fixture.enter(SET_ID, "cid", 40.0).await;
    let check = found_match(&fixture.wait_for(&bob, TicketState::Proposed).await).match_id;
    let active = retire(&fixture, SET_ID, true).await.expect_err("the file exists");
    assert!(active.code() == Code::FailedPrecondition && active.message().contains("is active"), "{active}");
    assert_eq!(retire(&fixture, 99, true).await.expect_err("no such set").code(), Code::NotFound);
    fixture.remove_file("checked.xml").await;
    let refused = retire(&fixture, SET_ID, false).await.expect_err("a ticket waits");
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("1 waiting tickets, 1 matches"), "{refused}");
    assert_eq!(fixture.status(&waiting).await.state(), TicketState::Waiting);

    let retired = retire(&fixture, SET_ID, true).await.expect("force");
    assert_eq!((retired.ended_tickets, retired.live_matches), (1, 1));
    assert_eq!(fixture.status(&waiting).await.end_reason(), TicketEndReason::RulesetRetired);
    fixture.enter(OTHER, "ann", 5.0).await;
    // The ready check goes on by the kept copy. A ticket that would wait again ends.
    let fixture = fixture.restart().await;
    fixture.respond(&bob, &check, false).await;
    assert_eq!(fixture.status(&bob).await.end_reason(), TicketEndReason::Declined);
    wait_for_end(&fixture, &cid, TicketEndReason::RulesetRetired).await;
}

/// A file that is marked as retired ends its set as soon as no ticket waits.
#[tokio::test]
async fn retired_file_ends_its_set_when_no_ticket_waits() {
    let fixture = RemovalFixture::start().await;
    let ann = fixture.enter(SET_ID, "ann", 5.0).await;
    fixture.directory.write_file("checked.xml", &format!("<Ruleset SetId=\"{SET_ID}\" Retired=\"true\"/>"));
    fixture.reload().await;
    let status = listed(&fixture, SET_ID).await.expect("in force for its ticket");
    assert!(status.retired && status.live_tickets == 1, "{status:?}");
    assert_eq!(fixture.status(&ann).await.state(), TicketState::Waiting);
    let leave = pb::QueueLeaveRequest {
        ticket_id: ann.reference().ticket_id,
        ticket_token: ann.reference().ticket_token,
        ..Default::default()
    };
    fixture.server.client().await.leave_queue(leave).await.expect("leave");
    wait_until("the set is retired", async || {
        listed(&fixture, SET_ID).await.is_none_or(|status| status.state() == RulesetState::Retired)
    })
    .await;
}

/// A match whose ruleset has neither a file nor a readable copy is cancelled, and its players are free.
#[tokio::test]
async fn match_without_a_readable_ruleset_copy_is_cancelled() {
    for damage in ["update ruleset_copy set source_xml = 'damaged'", "delete from ruleset_copy"] {
        let fixture = RemovalFixture::start().await;
        let ann = fixture.enter(RATED, "ann", 20.0).await;
        let bob = fixture.enter(RATED, "bob", 20.0).await;
        let match_id = found_match(&fixture.wait_for(&ann, TicketState::Matched).await).match_id;
        let check = fixture.enter(SET_ID, "cid", 20.0).await;
        fixture.enter(SET_ID, "dan", 20.0).await;
        fixture.wait_for(&check, TicketState::Proposed).await;
        for name in ["rated.xml", "checked.xml"] {
            fixture.directory.remove_file(name);
        }
        // The server writes copies only when rulesets change.
        execute_on_file(fixture.database.path(), damage).await;
        let fixture = fixture.restart().await;
        for ticket in [&ann, &bob, &check] {
            wait_until("the match ends", async || fixture.status(ticket).await.state() == TicketState::Ended).await;
        }
        let end =
            pb::QueueEndMatchRequest { match_id, ticket_token: ann.reference().ticket_token, ..Default::default() };
        let ended = fixture.server.client().await.end_match(end).await.expect("the end reason");
        assert_eq!(ended.end_reason(), MatchEndReason::Cancelled, "{damage}");
        for name in ["ann", "bob", "cid", "dan"] {
            wait_until("the player is free", async || {
                let client = fixture.server.client().await;
                client.enter_queue(enter_request(OTHER, &[(name, 1.0)])).await.is_ok()
            })
            .await;
        }
    }
}

/// Two servers on one database, each with its own ruleset directory.
struct TwoServers {
    folder: tempfile::TempDir,
    here: ServerProcess,
    there: ServerProcess,
}

impl TwoServers {
    fn start(url: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["here", "there"] {
            std::fs::create_dir(folder.path().join(name)).expect("a folder");
            let write =
                |file: &str, text: String| std::fs::write(folder.path().join(name).join(file), text).expect("a file");
            write("checked.xml", checked_ruleset());
            write("rated.xml", ruleset_of_set(RATED, r#"<Rating System="elo"/>"#));
            write("other.xml", ruleset_of_set(OTHER, ""));
        }
        let (here, there) = (Self::start_server(&folder, url, "here"), Self::start_server(&folder, url, "there"));
        Self { here, there, folder }
    }

    fn start_server(folder: &tempfile::TempDir, url: &str, rulesets: &str) -> ServerProcess {
        let arguments = ["--store", url, "--rulesets", rulesets, "--token-key-file", "token-key"];
        let arguments = [&arguments[..], &["--match-key-file", "match-key.pem", "--ruleset-removal-grace-s", "15"]];
        ServerProcess::start(folder.path(), &arguments.concat())
    }

    /// Kills both servers, removes a file of both, and starts them again.
    fn restart_without(self, url: &str, file: &str) -> Self {
        let Self { folder, here, there } = self;
        here.kill();
        there.kill();
        for name in ["here", "there"] {
            std::fs::remove_file(folder.path().join(name).join(file)).expect("remove");
        }
        let (here, there) = (Self::start_server(&folder, url, "here"), Self::start_server(&folder, url, "there"));
        Self { folder, here, there }
    }

    async fn reload(server: &ServerProcess) {
        let mut operator = server.operator_client().await;
        let response = operator.reload_rulesets(ReloadRulesetsRequest {}).await.expect("reload").into_inner();
        assert!(response.problems.is_empty(), "{response:?}");
    }

    async fn is_retired(server: &ServerProcess) -> bool {
        let mut operator = server.operator_client().await;
        let listed = operator.list_rulesets(ListRulesetsRequest {}).await.expect("list").into_inner().rulesets;
        listed.iter().any(|status| status.matchmaking_set_id == SET_ID && status.retired)
    }
}

async fn enter(client: &Client, name: &str) -> Ticket {
    client.enter_queue(enter_request(SET_ID, &[(name, 20.0)])).await.expect("enter")
}

/// A deploy misses the file on one of two servers: nothing is dismissed, on any server that runs the queue, and the other
/// server serves the set as before. A match goes on through the server without the file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removed_ruleset_on_one_of_two_servers_dismisses_nothing() {
    let test = "removed_ruleset_on_one_of_two_servers_dismisses_nothing";
    let Some(database) = create_test_database(test).await else { return };
    let servers = TwoServers::start(&database.url);
    let (here, there) = (servers.here.client().await, servers.there.client().await);
    // The queue runs on either server; each in turn loses its file.
    for (round, (server, name)) in [(&servers.here, "here"), (&servers.there, "there")].into_iter().enumerate() {
        let ann = enter(&here, &format!("ann {round}")).await;
        let file = servers.folder.path().join(name).join("checked.xml");
        std::fs::remove_file(&file).expect("remove");
        TwoServers::reload(server).await;
        assert!(TwoServers::is_retired(server).await);
        for client in [&here, &there] {
            assert_eq!(wait_for_state(client, &ann, TicketState::Waiting).await.state(), TicketState::Waiting);
        }
        // The other server accepts tickets, and the match is answered through both.
        let other = if name == "here" { &there } else { &here };
        let bob = enter(other, &format!("bob {round}")).await;
        let found = found_match(&wait_for_state(&here, &ann, TicketState::Proposed).await);
        respond(&here, &ann, &found.match_id, true).await;
        respond(&there, &bob, &found.match_id, false).await;
        assert_eq!(ticket_status(&there, &bob).await.end_reason(), TicketEndReason::Declined);
        wait_for_state(&here, &ann, TicketState::Waiting).await;
        let leave = pb::QueueLeaveRequest {
            ticket_id: ann.reference().ticket_id,
            ticket_token: ann.reference().ticket_token,
            ..Default::default()
        };
        here.leave_queue(leave).await.expect("leave");
        std::fs::write(&file, checked_ruleset()).expect("the file returns");
        TwoServers::reload(server).await;
        assert!(!TwoServers::is_retired(server).await);
    }
}

/// A ruleset that only one of two servers has makes a match; the other server loads the copy, and answers for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn match_under_a_ruleset_of_another_server_is_answered_with_its_copy() {
    let test = "match_under_a_ruleset_of_another_server_is_answered_with_its_copy";
    let Some(database) = create_test_database(test).await else { return };
    let servers = TwoServers::start(&database.url);
    let (here, there) = (servers.here.client().await, servers.there.client().await);
    let newer = checked_ruleset().replace("TimeoutMs=\"20000\"", "TimeoutMs=\"30000\"");
    std::fs::write(servers.folder.path().join("there/checked.xml"), newer).expect("a file");
    std::fs::remove_file(servers.folder.path().join("here/checked.xml")).expect("remove");
    TwoServers::reload(&servers.there).await;
    TwoServers::reload(&servers.here).await;
    let [ann, bob] = [enter(&there, "ann").await, enter(&there, "bob").await];
    let found = found_match(&wait_for_state(&here, &ann, TicketState::Proposed).await);
    respond(&here, &ann, &found.match_id, true).await;
    respond(&here, &bob, &found.match_id, true).await;
    wait_for_state(&here, &bob, TicketState::Placing).await;
}

/// While the store cannot take the copy of a new ruleset, its queue accepts no ticket; afterwards it does.
#[tokio::test]
async fn enter_is_refused_until_the_copy_of_the_ruleset_is_durable() {
    let (clock, store) = (Arc::new(TestClock::new()), Arc::new(FaultyStore::default()));
    let directory = RulesetDirectory::with_files(&[("duel.xml", &checked_ruleset())]);
    let engine = start_engine(&store, fireteam::rules::load_directory(directory.path()).expect("valid"), &clock).await;
    let reloader = engine.ruleset_reloader(Some(directory.path().to_owned()));
    let enter = async |number: u8| {
        let user = UserKey::from_bytes([number; 16]);
        let player = Player { stated_skill: Some(20.0), ..Player::from_user(user) };
        let session = Session { party_sizes: [1].into(), players: vec![player], ..Session::default() };
        let command = EnterQueueCommand {
            set_id: SetId(SET_ID),
            session,
            idempotency_key: format!("a key of the ticket {number}"),
            ..EnterQueueCommand::default()
        };
        engine.queues().enter_queue(&Caller::default(), command).await
    };
    enter(1).await.expect("enter");
    store.ruleset_copies_unavailable.store(true, Ordering::SeqCst);
    directory.write_file("duel.xml", &checked_ruleset().replace("20000", "30000"));
    assert_eq!(reloader.reload("folder").await.changes.len(), 1, "advertisements use the new ruleset at once");
    assert!(matches!(enter(2).await, Err(EngineError::StoreUnavailable { .. })));
    store.ruleset_copies_unavailable.store(false, Ordering::SeqCst);
    wait_until("the copy is written", async || enter(2).await.is_ok()).await;
}

/// Both servers are killed and start without the file of a running match: any of them takes its result, and rates it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removed_ruleset_match_is_reported_after_two_servers_restart_without_its_file() {
    let test = "removed_ruleset_match_is_reported_after_two_servers_restart_without_its_file";
    let Some(database) = create_test_database(test).await else { return };
    let servers = TwoServers::start(&database.url);
    let here = servers.here.client().await;
    let ann = here.enter_queue(enter_request(RATED, &[("ann", 20.0)])).await.expect("enter");
    here.enter_queue(enter_request(RATED, &[("bob", 20.0)])).await.expect("enter");
    let found = found_match(&wait_for_state(&here, &ann, TicketState::Matched).await);
    let servers = servers.restart_without(&database.url, "rated.xml");
    let there = servers.there.client().await;
    wait_for_state(&there, &ann, TicketState::Matched).await;
    let rank = |team, rank| pb::TeamRank { team, rank };
    let report = pb::ReportResultRequest {
        match_id: found.match_id,
        team_ranks: vec![rank(found.team, 1), rank(1 - found.team, 2)],
        ticket_token: ann.reference().ticket_token,
        ..Default::default()
    };
    assert!(there.report_result(report).await.expect("report").rated);
    let here = servers.here.client().await;
    wait_until("the match has ended at the other server", async || {
        ticket_status(&here, &ann).await.end_reason() == TicketEndReason::Played
    })
    .await;
    there.enter_queue(enter_request(OTHER, &[("ann", 20.0)])).await.expect("free");
}
