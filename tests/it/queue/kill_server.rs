//! Server killed with tickets in every state: waits, ready checks, matches and results are kept over the restart.

use std::path::Path;
use std::time::Duration;

use fireteam_client::{Client, Ticket, pb};
use pb::{MatchEndReason, TicketState};
use tokio::time::Instant;

use crate::support::database::create_test_database;
use crate::support::queue_server::{SET_ID, duel_ruleset, enter_request, wait_until};
use crate::support::server_process::ServerProcess;

/// A queue beside `SET_ID` with ratings and without ready check.
const RATED: u32 = 12;

/// Kills.
const ROUNDS: u32 = 3;

/// A server on a SQLite file with these rulesets.
fn start(folder: &Path) -> ServerProcess {
    let checked = duel_ruleset(r#"<ReadyCheck TimeoutMs="600000"/>"#);
    let rated = duel_ruleset(r#"<Rating System="elo"/>"#)
        .replace(&format!("SetId=\"{SET_ID}\""), &format!("SetId=\"{RATED}\""));
    let rules = folder.join("rules");
    std::fs::create_dir_all(&rules).expect("a folder");
    std::fs::write(rules.join("checked.xml"), checked).expect("rules");
    std::fs::write(rules.join("rated.xml"), rated).expect("rules");
    ServerProcess::start(folder, &["--rulesets", "rules"])
}

/// Status of a ticket, from any server: its wait and its match.
struct TicketProgress {
    waited_ms: u64,
    match_id: String,
    team: u32,
    players: u32,
    accepted: u32,
}

/// Polls until the ticket has this state.
async fn wait_for_state(client: &Client, ticket: &Ticket, state: TicketState) -> TicketProgress {
    let mut last = pb::TicketStatus::default();
    wait_until("the ticket has the state", async || {
        let request = pb::QueueHeartbeatRequest { tickets: vec![ticket.reference()], ..Default::default() };
        last = client.heartbeat_tickets(request).await.expect("heartbeat").statuses.remove(0);
        last.state() == state
    })
    .await;
    let found = last.found_match.unwrap_or_default();
    let pb::MatchStatus { match_id, team, player_count: players, accepted_count: accepted, .. } = found;
    TicketProgress { waited_ms: last.waited_ms, match_id, team, players, accepted }
}

async fn respond(client: &Client, ticket: &Ticket, match_id: &str) {
    let reference = ticket.reference();
    let request = pb::QueueRespondRequest {
        ticket_id: reference.ticket_id,
        ticket_token: reference.ticket_token,
        match_id: match_id.to_owned(),
        accept: true,
        user_ids: Vec::new(),
    };
    client.respond_to_ready_check(request).await.expect("respond");
}

/// Reports that the team of `winner` has won.
async fn report(client: &Client, winner: &Ticket, ended_match: &TicketProgress) {
    let rank = |team, rank| pb::TeamRank { team, rank };
    let request = pb::ReportResultRequest {
        match_id: ended_match.match_id.clone(),
        team_ranks: vec![rank(ended_match.team, 1), rank(1 - ended_match.team, 2)],
        ticket_token: winner.reference().ticket_token,
        ..Default::default()
    };
    client.report_result(request).await.expect("report");
}

async fn ratings(client: &Client, users: &[&str]) -> Vec<f64> {
    let all = client.get_ratings(RATED, users).await.expect("ratings");
    all.iter().map(|it| it.rating.expect("a rating").rating).collect()
}

/// S3-6, S3-7, B-31, R2: every acknowledged change is in the file. A waiting ticket keeps its wait and matches a ticket
/// from after the restart; a ready check keeps its answers; a match continues; ratings are those after the last result.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_server_keeps_tickets_matches_and_ratings() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut server = start(folder.path());
    for round in 0..ROUNDS {
        let client = server.client().await;
        let enter = async |client: &Client, set: u32, name: &str, skill: f64| {
            client.enter_queue(enter_request(set, &[(&format!("{name} {round}"), skill)])).await.expect("enter")
        };
        let waiting = enter(&client, SET_ID, "ann", 10.0).await;
        let entered_at = Instant::now();
        let [accepting, silent] =
            [enter(&client, SET_ID, "bob", 30.0).await, enter(&client, SET_ID, "cid", 30.0).await];
        let check = wait_for_state(&client, &accepting, TicketState::Proposed).await.match_id;
        respond(&client, &accepting, &check).await;
        let [playing, opponent] = [enter(&client, RATED, "dan", 20.0).await, enter(&client, RATED, "eve", 20.0).await];
        let found = wait_for_state(&client, &playing, TicketState::Matched).await.match_id;
        let [finished, _] = [enter(&client, RATED, "fay", 20.0).await, enter(&client, RATED, "gus", 20.0).await];
        let ended_match = wait_for_state(&client, &finished, TicketState::Matched).await;
        report(&client, &finished, &ended_match).await;
        server.kill();

        server = start(folder.path());
        let client = server.client().await;
        let waited_ms = entered_at.elapsed().as_millis();
        let after = wait_for_state(&client, &waiting, TicketState::Waiting).await;
        assert!(waited_ms <= u128::from(after.waited_ms) + 1, "{waited_ms} {}", after.waited_ms);
        let late = enter(&client, SET_ID, "hal", 11.0).await;
        let match_id = wait_for_state(&client, &waiting, TicketState::Proposed).await.match_id;
        assert_eq!(wait_for_state(&client, &late, TicketState::Proposed).await.match_id, match_id);
        let ready_check = wait_for_state(&client, &silent, TicketState::Proposed).await;
        assert_eq!((&*ready_check.match_id, ready_check.accepted, ready_check.players), (&*check, 1, 2));
        respond(&client, &silent, &check).await;
        wait_for_state(&client, &accepting, TicketState::Matched).await;
        assert_eq!(wait_for_state(&client, &opponent, TicketState::Matched).await.match_id, found);
        let end = pb::QueueEndMatchRequest {
            match_id: found,
            ticket_token: playing.reference().ticket_token,
            ..Default::default()
        };
        assert_eq!(client.end_match(end).await.expect("end").end_reason(), MatchEndReason::Played);
        assert_eq!(wait_for_state(&client, &finished, TicketState::Ended).await.match_id, ended_match.match_id);
        let [fay, gus] = ["fay", "gus"].map(|name| format!("{name} {round}"));
        assert_eq!(ratings(&client, &[&fay, &gus]).await, [1_508.0, 1_492.0]);
    }
}

/// Cases 4 and 5, R2: a server that is killed right after its first tickets entered, before it reported that it is alive a
/// second time. It is away for longer than every deadline: no ticket expires, the ready check continues, and no player has
/// a cooldown.
async fn kill_server_right_after_its_start_costs_no_player(folder: &Path, arguments: &[&str]) {
    let ruleset = duel_ruleset(r#"<ReadyCheck TimeoutMs="5000" DeclineCooldownMs="600000"/>"#)
        .replace("<Queue ", r#"<Queue TicketTtlMs="5000" "#);
    std::fs::create_dir(folder.join("rules")).expect("a folder");
    std::fs::write(folder.join("rules/duel.xml"), ruleset).expect("rules");
    let arguments = [&["--rulesets", "rules"], arguments].concat();
    let server = ServerProcess::start(folder, &arguments);
    let client = server.client().await;
    let mut tickets = Vec::new();
    for (user, skill) in [("ann", 20.0), ("bob", 20.0), ("eve", 40.0)] {
        tickets.push(client.enter_queue(enter_request(SET_ID, &[(user, skill)])).await.expect("enter"));
    }
    let match_id = wait_for_state(&client, &tickets[0], TicketState::Proposed).await.match_id;
    server.kill();
    tokio::time::sleep(Duration::from_secs(6)).await;

    let server = ServerProcess::start(folder, &arguments);
    let client = server.client().await;
    wait_for_state(&client, &tickets[2], TicketState::Waiting).await;
    for ticket in &tickets[..2] {
        assert_eq!(wait_for_state(&client, ticket, TicketState::Proposed).await.match_id, match_id);
        respond(&client, ticket, &match_id).await;
    }
    for ticket in &tickets[..2] {
        wait_for_state(&client, ticket, TicketState::Matched).await;
    }
}

/// On a SQLite file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_server_right_after_its_start_costs_no_player_on_sqlite() {
    let folder = tempfile::tempdir().expect("a folder");
    kill_server_right_after_its_start_costs_no_player(folder.path(), &[]).await;
}

/// On a Postgres database.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_server_right_after_its_start_costs_no_player_on_postgres() {
    let test = "kill_server_right_after_its_start_costs_no_player_on_postgres";
    let Some(database) = create_test_database(test).await else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let keys = ["--token-key-file", "token-key", "--match-key-file", "match-key.pem"];
    let arguments = [&["--store", database.url.as_str()], &keys[..]].concat();
    kill_server_right_after_its_start_costs_no_player(folder.path(), &arguments).await;
}
