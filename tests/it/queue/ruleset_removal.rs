//! Removed ruleset files: tickets and matches of the set go on, also over a restart, until they end by their own ruleset.

use fireteam::config::StoreTarget;
use fireteam_client::{Client, Ticket, pb};
use pb::{Acceptance, MatchEndReason, TicketEndReason, TicketState};

use crate::support::queue_server::{SET_ID, duel_ruleset, enter_request, game_server_advertisement, wait_until};
use crate::support::ruleset_dir::{OperatorClient, RulesetDirectory};
use crate::support::test_server::TestServer;

/// Set whose matches start at once, with ratings.
pub(crate) const RATED: u32 = 12;
/// Set whose file is never removed.
pub(crate) const OTHER: u32 = 13;

/// A 1v1 ruleset of another set.
pub(crate) fn ruleset_of_set(set: u32, more: &str) -> String {
    duel_ruleset(more).replace(&format!("SetId=\"{SET_ID}\""), &format!("SetId=\"{set}\""))
}

/// Ruleset of `SET_ID` with a ready check and game servers.
pub(crate) fn checked_ruleset() -> String {
    duel_ruleset(
        r#"<ReadyCheck TimeoutMs="20000" DeclineCooldownMs="5000"/>
           <Hosting Mode="game_server" AllocationTimeoutMs="25000"/>"#,
    )
}

/// A server on a SQLite file, whose ruleset files a test removes.
pub(crate) struct RemovalFixture {
    pub(crate) directory: RulesetDirectory,
    pub(crate) server: TestServer,
    pub(crate) database: tempfile::TempDir,
}

impl RemovalFixture {
    /// Starts a server with the files `checked.xml`, `rated.xml` and `other.xml`.
    pub(crate) async fn start() -> Self {
        let directory = RulesetDirectory::with_files(&[
            ("checked.xml", &checked_ruleset()),
            ("rated.xml", &ruleset_of_set(RATED, r#"<Rating System="elo"/>"#)),
            ("other.xml", &ruleset_of_set(OTHER, "")),
        ]);
        let database = tempfile::tempdir().expect("a folder");
        let path = database.path().join("fireteam.db");
        let server = directory.start_server_with_config(|config| config.store = StoreTarget::Sqlite(path)).await;
        Self { directory, server, database }
    }

    /// Restarts the server on the same store.
    pub(crate) async fn restart(self) -> Self {
        Self { server: self.server.restart().await, ..self }
    }

    /// Removes a file and reloads.
    pub(crate) async fn remove_file(&self, name: &str) {
        self.directory.remove_file(name);
        self.reload().await;
    }

    /// Reloads the rulesets.
    pub(crate) async fn reload(&self) {
        let problems = OperatorClient::connect(&self.server).await.reload_rulesets().await.problems;
        assert!(problems.is_empty(), "{problems:?}");
    }

    /// Enters one player.
    pub(crate) async fn enter(&self, set: u32, name: &str, skill: f64) -> Ticket {
        self.server.client().await.enter_queue(enter_request(set, &[(name, skill)])).await.expect("enter")
    }

    /// Current status of a ticket, from a new connection.
    pub(crate) async fn status(&self, ticket: &Ticket) -> pb::TicketStatus {
        ticket_status(&self.server.client().await, ticket).await
    }

    /// Waits until the ticket is in `state`.
    pub(crate) async fn wait_for(&self, ticket: &Ticket, state: TicketState) -> pb::TicketStatus {
        wait_for_state(&self.server.client().await, ticket, state).await
    }

    /// Answers the ready check of a ticket.
    pub(crate) async fn respond(&self, ticket: &Ticket, match_id: &str, accept: bool) {
        respond(&self.server.client().await, ticket, match_id, accept).await;
    }
}

/// Current status of a ticket, requested by a heartbeat.
pub(crate) async fn ticket_status(client: &Client, ticket: &Ticket) -> pb::TicketStatus {
    let request = pb::QueueHeartbeatRequest { tickets: vec![ticket.reference()], ..Default::default() };
    client.heartbeat_tickets(request).await.expect("heartbeat").statuses.remove(0)
}

/// Polls until the ticket is in `state`.
pub(crate) async fn wait_for_state(client: &Client, ticket: &Ticket, state: TicketState) -> pb::TicketStatus {
    let mut last = pb::TicketStatus::default();
    wait_until(&format!("the ticket is {state:?}"), async || {
        last = ticket_status(client, ticket).await;
        assert!(
            last.state() == state || last.state() != TicketState::Ended,
            "the ticket ended instead of {state:?}: {last:?}"
        );
        last.state() == state
    })
    .await;
    last
}

/// Answers a ready check.
pub(crate) async fn respond(client: &Client, ticket: &Ticket, match_id: &str, accept: bool) {
    let reference = ticket.reference();
    let request = pb::QueueRespondRequest {
        ticket_id: reference.ticket_id,
        ticket_token: reference.ticket_token,
        match_id: match_id.to_owned(),
        accept,
        user_ids: Vec::new(),
    };
    client.respond_to_ready_check(request).await.expect("respond");
}

/// Match of a status.
pub(crate) fn found_match(status: &pb::TicketStatus) -> pb::MatchStatus {
    status.found_match.clone().expect("a match")
}

/// The waiting ticket of a removed set is not dismissed: a pass under the removed ruleset matches it.
#[tokio::test]
async fn removed_ruleset_still_matches_waiting_tickets() {
    let fixture = RemovalFixture::start().await;
    let ann = fixture.enter(SET_ID, "ann", 20.0).await;
    let bob = fixture.enter(SET_ID, "bob", 20.0).await;
    let first = found_match(&fixture.wait_for(&ann, TicketState::Proposed).await).match_id;
    let cid = fixture.enter(SET_ID, "cid", 20.0).await;
    fixture.remove_file("checked.xml").await;
    // Bob's decline sends Ann back to the queue, where Cid waits.
    fixture.respond(&bob, &first, false).await;
    wait_until("Ann and Cid are matched", async || {
        let status = fixture.status(&cid).await;
        assert_ne!(status.state(), TicketState::Ended, "{status:?}");
        status.state() == TicketState::Proposed
    })
    .await;
    let [ann_match, cid_match] =
        [found_match(&fixture.status(&ann).await).match_id, found_match(&fixture.status(&cid).await).match_id];
    assert_eq!(ann_match, cid_match);
    assert_ne!(ann_match, first);
}

/// A ready check that began before the removal and a restart ends by its own ruleset: all accept, and the match is placed on
/// a game server.
#[tokio::test]
async fn removed_ruleset_ready_check_is_placed_and_played_after_a_restart() {
    let fixture = RemovalFixture::start().await;
    let ann = fixture.enter(SET_ID, "ann", 20.0).await;
    let bob = fixture.enter(SET_ID, "bob", 20.0).await;
    let match_id = found_match(&fixture.wait_for(&ann, TicketState::Proposed).await).match_id;
    let game_server =
        fixture.server.client().await.advertise(game_server_advertisement(b"game:9000")).await.expect("advertise");
    fixture.respond(&ann, &match_id, true).await;
    fixture.remove_file("checked.xml").await;
    let fixture = fixture.restart().await;
    let status = fixture.wait_for(&ann, TicketState::Proposed).await;
    assert_eq!(found_match(&status).own_players[0].acceptance(), Acceptance::Accepted);
    fixture.respond(&bob, &match_id, true).await;
    fixture.server.keep_hosting(fixture.server.client().await, game_server.token().to_vec());
    let status = fixture.wait_for(&bob, TicketState::Matched).await;
    assert!(format!("{status:?}").contains(game_server.id()), "{status:?}");
    drop(game_server);
}

/// A ready check without an answer ends at its deadline after the removal and a restart; a player who did not reply is
/// free for another set.
#[tokio::test]
async fn removed_ruleset_ready_check_ends_at_its_deadline_after_a_restart() {
    let fixture = RemovalFixture::start().await;
    let ann = fixture.enter(SET_ID, "ann", 20.0).await;
    fixture.enter(SET_ID, "bob", 20.0).await;
    fixture.wait_for(&ann, TicketState::Proposed).await;
    fixture.remove_file("checked.xml").await;
    let fixture = fixture.restart().await;
    fixture.server.clock.advance_ms(20_001);
    wait_until("the ready check ends", async || {
        fixture.status(&ann).await.end_reason() == TicketEndReason::NotAcceptedInTime
    })
    .await;
    fixture.enter(OTHER, "ann", 20.0).await;
}

/// A match that looks for a game server when its ruleset is removed gives up at its allocation timeout.
#[tokio::test]
async fn removed_ruleset_placing_match_ends_at_its_timeout_after_a_restart() {
    let fixture = RemovalFixture::start().await;
    let ann = fixture.enter(SET_ID, "ann", 20.0).await;
    let bob = fixture.enter(SET_ID, "bob", 20.0).await;
    let match_id = found_match(&fixture.wait_for(&ann, TicketState::Proposed).await).match_id;
    fixture.respond(&ann, &match_id, true).await;
    fixture.respond(&bob, &match_id, true).await;
    fixture.wait_for(&ann, TicketState::Placing).await;
    fixture.remove_file("checked.xml").await;
    let fixture = fixture.restart().await;
    fixture.server.clock.advance_ms(25_001);
    // Both wait again under the removed ruleset, which proposes their next match.
    wait_until("the match is given up", async || {
        let status = fixture.status(&ann).await;
        assert_ne!(status.state(), TicketState::Ended, "{status:?}");
        status.found_match.is_some_and(|found| found.match_id != match_id)
    })
    .await;
}

/// A running match of a removed ruleset is reported after a restart, is rated by its own rating system, and frees its players.
#[tokio::test]
async fn removed_ruleset_running_match_is_reported_and_rated_after_a_restart() {
    let fixture = RemovalFixture::start().await;
    let ann = fixture.enter(RATED, "ann", 20.0).await;
    fixture.enter(RATED, "bob", 20.0).await;
    let found = found_match(&fixture.wait_for(&ann, TicketState::Matched).await);
    fixture.remove_file("rated.xml").await;
    let fixture = fixture.restart().await;
    let client = fixture.server.client().await;
    let rank = |team, rank| pb::TeamRank { team, rank };
    let report = pb::ReportResultRequest {
        match_id: found.match_id,
        team_ranks: vec![rank(found.team, 1), rank(1 - found.team, 2)],
        ticket_token: ann.reference().ticket_token,
        ..Default::default()
    };
    let response = client.report_result(report).await.expect("report");
    assert!(response.rated && response.changes.len() == 1, "{response:?}");
    let status = fixture.status(&ann).await;
    assert_eq!(
        (status.end_reason(), found_match(&status).end_reason()),
        (TicketEndReason::Played, MatchEndReason::Played)
    );
    fixture.enter(OTHER, "ann", 20.0).await;
}
