//! Tickets that wait again after a match that was not played: their status says why.

use std::sync::Arc;

use fireteam_client::{Client, Ticket, pb};
use pb::{MatchEndReason, TicketState};

use crate::store::replicas::Replicas;
use crate::support::database::create_test_database;
use crate::support::generated_client::CancelMatchRequest;
use crate::support::queue_server::{
    QueuedParty, SET_ID, duel_ruleset, enter_request, game_server_advertisement, operator_client,
    servers_on_each_store, start_queue_server, wait_until,
};
use crate::support::test_server::TestServer;

const CHECKED: &str = r#"<ReadyCheck TimeoutMs="20000" DeclineCooldownMs="0"/>"#;

async fn enter_two(server: &TestServer) -> [QueuedParty; 2] {
    let ann = QueuedParty::enter(server, SET_ID, &[("ann", 20.0)]).await;
    [ann, QueuedParty::enter(server, SET_ID, &[("bob", 20.0)]).await]
}

/// A duel whose passes are far enough apart that returned tickets are seen to wait, although they match again.
fn slow_duel(more: &str) -> String {
    duel_ruleset(more).replace(r#"PassIntervalMs="10""#, r#"PassIntervalMs="2000""#)
}

/// Waits until the stream says that the ticket waits again, and why.
async fn reason_of_return(party: &mut QueuedParty) -> MatchEndReason {
    loop {
        let status = party.next_status().await;
        if status.state() == TicketState::Waiting && status.return_reason() != MatchEndReason::Unspecified {
            return status.return_reason();
        }
    }
}

/// Status of a ticket at any server.
async fn status_at(client: &Client, ticket: &Ticket) -> pb::TicketStatus {
    let request = pb::QueueHeartbeatRequest { tickets: vec![ticket.reference()], ..Default::default() };
    client.heartbeat_tickets(request).await.expect("heartbeat").statuses.remove(0)
}

/// S0-21: the player whose opponent declined receives that reason, also after a restart. The next proposal has no such reason, and a
/// new reason replaces the old one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn returned_ticket_says_that_a_player_declined_also_after_a_restart() {
    for (server, _database) in servers_on_each_store("returned_ticket_declined", &duel_ruleset(CHECKED)).await {
        let [mut ann, mut bob] = enter_two(&server).await;
        assert_eq!(ann.current_status().await.return_reason(), MatchEndReason::Unspecified);
        ann.respond_to_match(true).await;
        bob.respond_to_match(false).await;
        assert_eq!(reason_of_return(&mut ann).await, MatchEndReason::Declined);
        assert_eq!(bob.wait_for_end().await.return_reason(), MatchEndReason::Unspecified);
        let (ticket, server) = (ann.ticket, server.restart().await);
        let client = server.client().await;
        let again = status_at(&client, &ticket).await;
        assert_eq!((again.state(), again.return_reason()), (TicketState::Waiting, MatchEndReason::Declined));
        let mut eve = QueuedParty::enter(&server, SET_ID, &[("eve", 20.0)]).await;
        eve.respond_to_match(true).await;
        let proposed = status_at(&client, &ticket).await;
        assert_eq!((proposed.state(), proposed.return_reason()), (TicketState::Proposed, MatchEndReason::Unspecified));
        // Both are heard, and ann does not answer.
        server.clock.advance_ms(20_001);
        assert_eq!(reason_of_return(&mut eve).await, MatchEndReason::NotAcceptedInTime);
    }
}

/// Each end of a match without play has its reason: no server in time, a server that gives the match up, an operator.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn returned_ticket_says_what_became_of_its_host() {
    let hosted = r#"<Hosting Mode="game_server" AllocationTimeoutMs="60000"/>"#;
    let server = start_queue_server(&[&slow_duel(hosted)]).await;
    let [mut ann, mut bob] = enter_two(&server).await;
    ann.wait_for_state(TicketState::Placing).await;
    server.clock.advance_ms(60_001);
    for player in [&mut ann, &mut bob] {
        assert_eq!(reason_of_return(player).await, MatchEndReason::NoServer);
    }
    let placing = ann.wait_for_state(TicketState::Placing).await.found_match.expect("another match");
    let cancel = CancelMatchRequest { match_id: placing.match_id, reason: "a test".into() };
    operator_client(&server).await.cancel_match(cancel).await.expect("cancel");
    for player in [&mut ann, &mut bob] {
        assert_eq!(reason_of_return(player).await, MatchEndReason::Cancelled);
    }
    let host = server.client().await;
    let advertised = host.update_advertisement(game_server_advertisement(b"one")).await.expect("advertise");
    server.keep_hosting(host.clone(), advertised.advertisement_token.clone());
    let played = ann.wait_for_state(TicketState::Matched).await.found_match.expect("a match");
    let failed = pb::QueueEndMatchRequest {
        match_id: played.match_id,
        advertisement_token: advertised.advertisement_token,
        failed: true,
        ..Default::default()
    };
    host.end_match(failed).await.expect("end");
    for player in [&mut ann, &mut bob] {
        assert_eq!(reason_of_return(player).await, MatchEndReason::ServerFailed);
    }
}

/// A player who was named as host and is not heard returns the others, who receive that reason.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn returned_ticket_says_that_its_host_was_lost() {
    let peer = r#"<Hosting Mode="peer" ConfirmMs="5000" HostLossMs="60000"/>"#;
    let server = start_queue_server(&[&slow_duel(peer)]).await;
    // Ann has an open NAT, so she hosts. Without a watch she is not heard.
    let mut silent = enter_request(SET_ID, &[("ann", 20.0)]);
    silent.session_composition.as_mut().expect("a party").nat_type = Some(1);
    server.client().await.enter_queue(silent).await.expect("enter");
    let mut bob = QueuedParty::enter(&server, SET_ID, &[("bob", 20.0)]).await;
    bob.wait_for_state(TicketState::Placing).await;
    server.clock.advance_ms(5_001);
    assert_eq!(reason_of_return(&mut bob).await, MatchEndReason::HostLost);
}

/// Two servers: the one that did not see the decline says the same, by stream and by heartbeat.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn returned_ticket_has_its_reason_on_every_server() {
    let Some(database) = create_test_database("returned_ticket_has_its_reason_on_every_server").await else { return };
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("duel.xml"), duel_ruleset(CHECKED)).expect("rules");
    let rules = folder.path().display().to_string();
    let replicas = Arc::new(Replicas::start(&database, 2, &["--rulesets", &rules]));
    let [here, there] = &replicas.servers[..] else { unreachable!() };
    let enter =
        async |client, name| QueuedParty::enter_with_client(client, enter_request(SET_ID, &[(name, 20.0)])).await;
    let mut ann = enter(here.client().await, "ann").await;
    let mut bob = enter(there.client().await, "bob").await;
    ann.respond_to_match(true).await;
    bob.respond_to_match(false).await;
    assert_eq!(reason_of_return(&mut ann).await, MatchEndReason::Declined);
    let client = there.client().await;
    wait_until("the other server knows", async || {
        let status = status_at(&client, &ann.ticket).await;
        (status.state(), status.return_reason()) == (TicketState::Waiting, MatchEndReason::Declined)
    })
    .await;
}
