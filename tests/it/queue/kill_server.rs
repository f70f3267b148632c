//! A server killed while its queues are full of life: who waits, who is being asked, who plays and what came of it are
//! all there when it comes back, and it goes on where it was.

use std::path::Path;

use fireteam_client::{Client, Ticket, pb};
use pb::{MatchEndReason, TicketState};
use tokio::time::Instant;

use crate::support::queue_server::{SET_ID, duel_ruleset, enter_request, wait_until};
use crate::support::server_process::ServerProcess;

/// A queue beside `SET`, whose matches are rated and begin at once.
const RATED: u32 = 12;

/// Rounds, each of which ends with a kill.
const ROUNDS: u32 = 3;

/// A server on its SQLite file, by these rules.
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

/// What a ticket's party is told once it stands so, by whichever server there is: how long it has waited, and of its
/// match.
struct Told {
    waited_ms: u64,
    match_id: String,
    team: u32,
    players: u32,
    accepted: u32,
}

/// Asks until the ticket stands so.
async fn is(client: &Client, ticket: &Ticket, state: TicketState) -> Told {
    let mut last = pb::TicketStatus::default();
    wait_until("it stands so", async || {
        let beat = pb::QueueHeartbeatRequest { tickets: vec![ticket.reference()], ..Default::default() };
        last = client.heartbeat(beat).await.expect("heartbeat").statuses.remove(0);
        last.state() == state
    })
    .await;
    let play = last.found_match.unwrap_or_default();
    let pb::MatchStatus { match_id, team, player_count: players, accepted_count: accepted, .. } = play;
    Told { waited_ms: last.waited_ms, match_id, team, players, accepted }
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
    client.respond(request).await.expect("respond");
}

/// The team of `winner` has won.
async fn report(client: &Client, winner: &Ticket, over: &Told) {
    let rank = |team, rank| pb::TeamRank { team, rank };
    let request = pb::ReportResultRequest {
        match_id: over.match_id.clone(),
        team_ranks: vec![rank(over.team, 1), rank(1 - over.team, 2)],
        ticket_token: winner.reference().ticket_token,
        ..Default::default()
    };
    client.report_result(request).await.expect("report");
}

async fn ratings(client: &Client, users: &[&str]) -> Vec<f64> {
    let all = client.get_ratings(RATED, users).await.expect("ratings");
    all.iter().map(|it| it.rating.expect("a rating").rating).collect()
}

/// S3-6, S3-7, B-31, R2: every acknowledged change is in the file, not what there was some seconds before. A party that
/// waits keeps its wait and is matched with who comes after the restart; a ready check goes on with the answers that it
/// has; a match is played on; ratings are what the last result made of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_goes_on_where_its_queues_were() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut server = start(folder.path());
    for round in 0..ROUNDS {
        let client = server.client().await;
        let enter = async |client: &Client, set: u32, name: &str, skill: f64| {
            client.enter(enter_request(set, &[(&format!("{name} {round}"), skill)])).await.expect("enter")
        };
        let waits = enter(&client, SET_ID, "ann", 10.0).await;
        let begun = Instant::now();
        let [agrees, silent] = [enter(&client, SET_ID, "bob", 30.0).await, enter(&client, SET_ID, "cid", 30.0).await];
        let check = is(&client, &agrees, TicketState::Proposed).await.match_id;
        respond(&client, &agrees, &check).await;
        let [plays, with] = [enter(&client, RATED, "dan", 20.0).await, enter(&client, RATED, "eve", 20.0).await];
        let play = is(&client, &plays, TicketState::Matched).await.match_id;
        let [done, _] = [enter(&client, RATED, "fay", 20.0).await, enter(&client, RATED, "gus", 20.0).await];
        let over = is(&client, &done, TicketState::Matched).await;
        report(&client, &done, &over).await;
        server.kill();

        server = start(folder.path());
        let client = server.client().await;
        let since = begun.elapsed().as_millis();
        let after = is(&client, &waits, TicketState::Waiting).await;
        assert!(since <= u128::from(after.waited_ms) + 1, "{since} {}", after.waited_ms);
        let late = enter(&client, SET_ID, "hal", 11.0).await;
        let met = is(&client, &waits, TicketState::Proposed).await.match_id;
        assert_eq!(is(&client, &late, TicketState::Proposed).await.match_id, met);
        let half = is(&client, &silent, TicketState::Proposed).await;
        assert_eq!((&*half.match_id, half.accepted, half.players), (&*check, 1, 2));
        respond(&client, &silent, &check).await;
        is(&client, &agrees, TicketState::Matched).await;
        assert_eq!(is(&client, &with, TicketState::Matched).await.match_id, play);
        let end = pb::QueueEndMatchRequest {
            match_id: play,
            ticket_token: plays.reference().ticket_token,
            ..Default::default()
        };
        assert_eq!(client.end_match(end).await.expect("end").end_reason(), MatchEndReason::Played);
        assert_eq!(is(&client, &done, TicketState::Ended).await.match_id, over.match_id);
        let [fay, gus] = ["fay", "gus"].map(|name| format!("{name} {round}"));
        assert_eq!(ratings(&client, &[&fay, &gus]).await, [1_508.0, 1_492.0]);
    }
}
