//! Tickets over gRPC: enter, watch, ready check, match assignment, leave, expiry, explain.

use fireteam_client::{Code, pb};
use pb::{TicketEndReason, TicketState};

use crate::support::generated_client;
use crate::support::queue_server::{
    QueuedParty, SET_ID, duel_ruleset, enter_request, operator_client, start_queue_server, wait_until,
};
use crate::support::test_server::TestServer;

const CHECKED: &str = r#"<ReadyCheck TimeoutMs="20000" DeclineCooldownMs="60000"/>"#;

/// S0-20, S1-51, S4-15: two compatible parties are proposed to each other, accept, play and end; each receives every
/// status. No party is queued again, but it may enter again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ready_check_that_all_accept_starts_the_match() {
    let server = start_queue_server(&[&duel_ruleset(CHECKED)]).await;
    let mut ann = QueuedParty::enter(&server, SET_ID, &[("ann", 20.0)]).await;
    assert_eq!(ann.next_status().await.position, Some(0));
    let mut bob = QueuedParty::enter(&server, SET_ID, &[("bob", 22.0)]).await;
    let id = ann.respond_to_match(true).await;
    let found_match = bob.wait_for_state(TicketState::Proposed).await.found_match.expect("a match");
    assert_eq!((&found_match.match_id, found_match.player_count), (&id, 2));
    wait_until("bob receives ann's answer", async || {
        bob.current_status().await.found_match.expect("a match").accepted_count == 1
    })
    .await;
    assert_eq!(bob.accept_match(&id).await, id);
    let (there, here) =
        (ann.wait_for_state(TicketState::Matched).await, bob.wait_for_state(TicketState::Matched).await);
    let (there, here) = (there.found_match.expect("a match"), here.found_match.expect("a match"));
    assert_ne!(there.team, here.team);
    assert_eq!(there.players, here.players);
    assert_eq!(there.players.len(), 2);
    assert!(here.players.iter().any(|player| player.player_key == here.own_players[0].player_key));
    let outcome = ann.ticket.end_match(&id, false).await.expect("end");
    assert_eq!(outcome, pb::MatchEndReason::Played);
    for waiting in [&mut ann, &mut bob] {
        let over = waiting.wait_for_end().await;
        assert_eq!(over.end_reason(), TicketEndReason::Played);
    }
    assert_eq!(queue_statistics(&server).await, []);
    ann.client.enter_queue(enter_request(SET_ID, &[("ann", 20.0)])).await.expect("enter again");
}

/// Statistics of the queues with tickets or matches.
async fn queue_statistics(server: &TestServer) -> Vec<generated_client::QueueStatistics> {
    operator_client(server)
        .await
        .get_statistics(generated_client::GetStatisticsRequest::default())
        .await
        .expect("statistics")
        .into_inner()
        .queues
}

impl QueuedParty {
    /// Accepts a match that it has already received.
    async fn accept_match(&mut self, id: &str) -> String {
        self.ticket.respond_to_ready_check(id, true).await.expect("respond");
        id.to_owned()
    }
}

/// S0-21, B-33, B-35, SEC-13: after a decline, the party that accepted is requeued with its wait; the party that
/// declined is out, with a cooldown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ready_check_decline_requeues_the_other_party() {
    let server = start_queue_server(&[&duel_ruleset(CHECKED)]).await;
    let mut ann = QueuedParty::enter(&server, SET_ID, &[("ann", 20.0)]).await;
    server.clock.advance_ms(5_000);
    let mut bob = QueuedParty::enter(&server, SET_ID, &[("bob", 20.0)]).await;
    ann.respond_to_match(true).await;
    bob.respond_to_match(false).await;
    let requeued = ann.wait_for_state(TicketState::Waiting).await;
    assert_eq!(requeued.waited_ms, 5_000, "its wait counts from entering");
    assert_eq!(bob.wait_for_end().await.end_reason(), TicketEndReason::Declined);
    let refused =
        bob.client.enter_queue(enter_request(SET_ID, &[("bob", 20.0)])).await.expect_err("bob has a cooldown");
    assert_eq!(refused.code(), Some(Code::PermissionDenied), "{refused}");
    server.clock.advance_ms(60_000);
    bob.client.enter_queue(enter_request(SET_ID, &[("bob", 20.0)])).await.expect("the cooldown has ended");
}

/// S0-21: a requeued party keeps the rating that it entered with, also if the rating changed, and its range as if it
/// had never been proposed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requeue_keeps_rating_and_range() {
    let widening = r#"<RatingWindow Start="0" Step="1" StepEveryMs="1000" Clock="ticket"/>"#;
    let rules = duel_ruleset(&format!(r#"{CHECKED}<Rating System="elo"/>"#))
        .replace(r#"<RatingWindow Start="2" Max="2"/>"#, widening);
    let server = start_queue_server(&[&rules]).await;
    // The ruleset trusts clients with the skill, so the server's rating counts for a party that states none.
    let without_skill = |name: &str| {
        let mut request = enter_request(SET_ID, &[(name, 0.0)]);
        request.session_composition.as_mut().expect("a party").players[0].skill = None;
        request
    };
    let mut ann = QueuedParty::enter_with_request(&server, without_skill("ann")).await;
    server.clock.advance_ms(2_000);
    let mut bob = QueuedParty::enter_with_request(&server, without_skill("bob")).await;
    wait_until("proposed", async || bob.current_status().await.state() == TicketState::Proposed).await;
    let mut operator = operator_client(&server).await;
    let better = generated_client::RatingRow { user_id: "ann".to_owned(), rating: Some(1_700.0), ..Default::default() };
    let request = generated_client::ImportRatingsRequest { matchmaking_set_id: Some(SET_ID), ratings: vec![better] };
    operator.import_ratings(request).await.expect("import");
    server.clock.advance_ms(1_000);
    bob.respond_to_match(false).await;
    let requeued = ann.wait_for_state(TicketState::Waiting).await;
    let ticket = generated_client::ExplainRequest { ticket_id: ann.ticket.id().to_owned(), ..Default::default() };
    let explained = operator.explain(ticket).await.expect("explain").into_inner();
    assert_eq!((requeued.waited_ms, explained.rating, explained.range), (3_000, 1_500.0, Some(3)));
}

/// B-35: a party that does not answer by the deadline is out as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ready_check_timeout_ends_the_silent_ticket() {
    let server = start_queue_server(&[&duel_ruleset(CHECKED)]).await;
    let mut ann = QueuedParty::enter(&server, SET_ID, &[("ann", 20.0)]).await;
    let mut bob = QueuedParty::enter(&server, SET_ID, &[("bob", 20.0)]).await;
    ann.respond_to_match(true).await;
    bob.wait_for_state(TicketState::Proposed).await;
    server.clock.advance_ms(20_000);
    ann.wait_for_state(TicketState::Waiting).await;
    assert_eq!(bob.wait_for_end().await.end_reason(), TicketEndReason::NotAcceptedInTime);
}

/// S3-13: leave says how the ticket ended, also if it ended earlier for another reason.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leave_returns_how_the_ticket_ended() {
    let server = start_queue_server(&[&duel_ruleset(CHECKED)]).await;
    let mut ann = QueuedParty::enter(&server, SET_ID, &[("ann", 20.0)]).await;
    assert!(ann.ticket.leave().await.expect("leave"));
    assert!(ann.ticket.leave().await.expect("leave"), "leave is idempotent");
    assert_eq!(ann.ticket.status.end_reason(), TicketEndReason::Left);
    let mut bob = QueuedParty::enter(&server, SET_ID, &[("bob", 20.0)]).await;
    let mut eve = QueuedParty::enter(&server, SET_ID, &[("eve", 20.0)]).await;
    eve.respond_to_match(false).await;
    bob.wait_for_state(TicketState::Waiting).await;
    assert!(eve.ticket.leave().await.expect("leave"));
    assert_eq!(eve.ticket.status.end_reason(), TicketEndReason::Declined);
}

/// S0-27: a ticket that left is in no queue: an empty queue is not listed, and the next party finds no candidates.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leave_removes_the_ticket_from_the_queue() {
    let other = duel_ruleset(CHECKED).replace(r#"SetId="11""#, r#"SetId="12""#);
    let server = start_queue_server(&[&duel_ruleset(CHECKED), &other]).await;
    let mut here = QueuedParty::enter(&server, SET_ID, &[("ann", 20.0)]).await;
    let mut there = QueuedParty::enter(&server, 12, &[("ann", 20.0)]).await;
    assert_eq!(queue_statistics(&server).await.len(), 2);
    for waiting in [&mut here, &mut there] {
        assert!(waiting.ticket.leave().await.expect("leave"));
    }
    assert_eq!(queue_statistics(&server).await, []);
    let mut bob = QueuedParty::enter(&server, SET_ID, &[("bob", 20.0)]).await;
    wait_until("a pass has run", async || !bob.current_status().await.blocking_rule.is_empty()).await;
    assert_eq!(bob.current_status().await.blocking_rule, "no_candidates");
}

/// S1-96: parties and operators receive the median and the 90th percentile of recent waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wait_estimates_follow_recent_waits() {
    let server = start_queue_server(&[&duel_ruleset(CHECKED)]).await;
    for seconds in 1..=4_u32 {
        let mut all = Vec::new();
        for name in ["ann", "bob"] {
            all.push(QueuedParty::enter(&server, SET_ID, &[(&format!("{name} {seconds}"), 20.0)]).await);
        }
        wait_until("proposed", async || all[1].current_status().await.state() == TicketState::Proposed).await;
        server.clock.advance_ms(u64::from(seconds) * 1_000);
        for waiting in &mut all {
            waiting.respond_to_match(true).await;
        }
        all[0].wait_for_state(TicketState::Matched).await;
    }
    let eve = QueuedParty::enter(&server, SET_ID, &[("eve", 20.0)]).await;
    let explained = &eve.ticket.status;
    assert_eq!((explained.estimated_wait_p50_ms, explained.estimated_wait_p90_ms), (Some(2_000), Some(4_000)));
    let queue = queue_statistics(&server).await.remove(0);
    assert_eq!((queue.wait_p50_ms, queue.wait_p90_ms, queue.wait_samples), (Some(2_000), Some(4_000), 8));
}

/// R5: a repeated enter returns the same ticket; the same key for another party is refused.
#[tokio::test]
async fn enter_repeated_with_its_key_returns_the_same_ticket() {
    let server = start_queue_server(&[&duel_ruleset("")]).await;
    let client = server.client().await;
    let keyed = |players: &[(&str, f64)]| pb::QueueEnterRequest {
        idempotency_key: "sixteen letters or more".into(),
        ..enter_request(SET_ID, players)
    };
    let first = client.enter_queue(keyed(&[("ann", 20.0)])).await.expect("enter");
    let again = client.enter_queue(keyed(&[("ann", 20.0)])).await.expect("enter");
    assert_eq!(first.id(), again.id());
    let other = client.enter_queue(keyed(&[("bob", 20.0)])).await.expect_err("the key of another party");
    assert_eq!(other.code(), Some(Code::AlreadyExists), "{other}");
}

/// S3-13, S0-22: a user waits once in a queue; of two queues, a proposal in one pauses the other, and the match ends
/// it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proposal_in_one_queue_pauses_the_other_ticket() {
    let other = duel_ruleset(CHECKED).replace(r#"SetId="11""#, r#"SetId="12""#);
    let server = start_queue_server(&[&duel_ruleset(CHECKED), &other]).await;
    let mut ann = QueuedParty::enter(&server, SET_ID, &[("ann", 20.0)]).await;
    let second =
        ann.client.enter_queue(enter_request(SET_ID, &[("ann", 20.0)])).await.expect_err("ann is already queued");
    assert_eq!(second.code(), Some(Code::AlreadyExists), "{second}");
    let mut other_ticket = QueuedParty::enter(&server, 12, &[("ann", 20.0)]).await;
    let mut bob = QueuedParty::enter(&server, SET_ID, &[("bob", 20.0)]).await;
    other_ticket.wait_for_state(TicketState::Paused).await;
    let mut eve = QueuedParty::enter(&server, 12, &[("eve", 20.0)]).await;
    assert_eq!(eve.next_status().await.state(), TicketState::Waiting, "ann is paused in this queue");
    ann.respond_to_match(true).await;
    bob.respond_to_match(true).await;
    ann.wait_for_state(TicketState::Matched).await;
    assert_eq!(other_ticket.wait_for_end().await.end_reason(), TicketEndReason::MatchedElsewhere);
    let in_match = ann.client.enter_queue(enter_request(12, &[("ann", 20.0)])).await.expect_err("ann is in a match");
    assert_eq!(in_match.code(), Some(Code::FailedPrecondition), "{in_match}");
    assert_eq!(eve.current_status().await.state(), TicketState::Waiting);
}

/// A ticket without heartbeats expires; a watched one does not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ticket_without_heartbeats_expires() {
    let server = start_queue_server(&[&duel_ruleset("")]).await;
    let client = server.client().await;
    let mut unwatched = client.enter_queue(enter_request(SET_ID, &[("ann", 20.0)])).await.expect("enter");
    let mut watched = QueuedParty::enter(&server, SET_ID, &[("bob", 40.0)]).await;
    watched.next_status().await;
    let mut operator = operator_client(&server).await;
    let mut waiting = async || {
        let queues = operator
            .get_statistics(generated_client::GetStatisticsRequest::default())
            .await
            .expect("statistics")
            .into_inner()
            .queues;
        queues.iter().map(|queue| queue.waiting_tickets).sum::<u32>()
    };
    assert_eq!(waiting().await, 2);
    server.clock.advance_ms(31_000);
    watched.current_status().await;
    server.clock.advance_ms(31_000);
    wait_until("only one ticket waits", async || waiting().await == 1).await;
    assert_eq!(unwatched.heartbeat().await.expect("heartbeat").end_reason(), TicketEndReason::Expired);
    assert_eq!(watched.current_status().await.state(), TicketState::Waiting);
}

/// A ticket whose heartbeats come once per half of `expires_in_ms` does not expire, also if some come a little later. A second
/// ticket, without heartbeats, shows that the time of the first enter has run out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heartbeat_each_half_of_the_ttl_keeps_the_ticket() {
    let server = start_queue_server(&[&duel_ruleset("")]).await;
    let client = server.client().await;
    let ticket = client.enter_queue(enter_request(SET_ID, &[("ann", 20.0)])).await.expect("enter");
    let _silent = client.enter_queue(enter_request(SET_ID, &[("bob", 40.0)])).await.expect("enter");
    let mut operator = operator_client(&server).await;
    let mut expires_in_ms = ticket.ttl_ms;
    for (number, percent) in [49, 52, 48, 50, 52, 49, 51].into_iter().enumerate() {
        server.clock.advance_ms(expires_in_ms * percent / 100);
        if number == 1 {
            wait_until("the silent ticket expires", async || {
                let statistics = operator
                    .get_statistics(generated_client::GetStatisticsRequest::default())
                    .await
                    .expect("statistics");
                statistics.into_inner().queues.iter().map(|queue| queue.waiting_tickets).sum::<u32>() <= 1
            })
            .await;
        }
        let request = pb::QueueHeartbeatRequest { tickets: vec![ticket.reference()], ..Default::default() };
        let response = client.heartbeat_tickets(request).await.expect("heartbeat");
        assert_eq!(response.statuses[0].state(), TicketState::Waiting);
        expires_in_ms = response.expires_in_ms;
    }
}

/// A watch stream that was cut resumes at once, and does not repeat statuses.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watch_resumes_after_the_last_status() {
    let server = start_queue_server(&[&duel_ruleset(CHECKED)]).await;
    let mut ann = QueuedParty::enter(&server, SET_ID, &[("ann", 20.0)]).await;
    let first_status = ann.next_status().await;
    let resumed = pb::TicketReference { resume_token: first_status.resume_token, ..ann.ticket.reference() };
    let mut again = ann.client.watch_tickets([resumed]);
    let _bob = QueuedParty::enter(&server, SET_ID, &[("bob", 20.0)]).await;
    let next = again.next().await.expect("a stream").expect("a status");
    assert_eq!(next.state(), TicketState::Proposed, "the waiting status is not repeated");
}

/// S2-7: with a gate, no ticket is matched while fewer than a share of the connected players wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gate_waits_for_a_share_of_connected_players() {
    let gated = duel_ruleset("")
        .replace("<Queue PassIntervalMs=\"10\">", "<Queue PassIntervalMs=\"10\"><Gate MinWaitingPercent=\"50\"/>");
    let server = start_queue_server(&[&gated]).await;
    let client = server.client().await;
    let connected = ["ann", "bob", "eve", "joe", "kim", "lee"].map(str::to_owned).to_vec();
    let request = pb::QueueHeartbeatRequest {
        connected_user_ids: connected,
        connected_matchmaking_set_ids: vec![SET_ID],
        ..Default::default()
    };
    client.heartbeat_tickets(request).await.expect("heartbeat");
    let mut ann = QueuedParty::enter(&server, SET_ID, &[("ann", 20.0)]).await;
    let mut bob = QueuedParty::enter(&server, SET_ID, &[("bob", 20.0)]).await;
    let ticket = generated_client::ExplainRequest { ticket_id: ann.ticket.id().to_owned(), ..Default::default() };
    let explained = operator_client(&server).await.explain(ticket).await.expect("explain").into_inner();
    assert_eq!(explained.gate_reason(), generated_client::GateReason::TooFewWaiting);
    let mut eve = QueuedParty::enter(&server, SET_ID, &[("eve", 40.0)]).await;
    for waiting in [&mut ann, &mut bob] {
        waiting.wait_for_state(TicketState::Matched).await;
    }
    assert_eq!(eve.current_status().await.state(), TicketState::Waiting);
}

/// B-7: a party larger than a team is refused, and so is a request without a party.
#[tokio::test]
async fn enter_with_a_party_larger_than_a_team_is_refused() {
    let server = start_queue_server(&[&duel_ruleset("")]).await;
    let client = server.client().await;
    let two = client
        .enter_queue(enter_request(SET_ID, &[("ann", 20.0), ("bob", 20.0)]))
        .await
        .expect_err("the party is too large");
    assert_eq!(two.code(), Some(Code::FailedPrecondition), "{two}");
    let unnamed = pb::SessionCompositionData { party_size_composition: vec![1], ..Default::default() };
    let unnamed = pb::QueueEnterRequest { session_composition: Some(unnamed), ..enter_request(SET_ID, &[]) };
    assert_eq!(
        client.enter_queue(unnamed).await.expect_err("a session without players").code(),
        Some(Code::InvalidArgument)
    );
    let no_queue =
        duel_ruleset("").replace("<Queue PassIntervalMs=\"10\"><RatingWindow Start=\"2\" Max=\"2\"/></Queue>", "");
    let server_without_queue = start_queue_server(&[&no_queue]).await;
    let refused = server_without_queue
        .client()
        .await
        .enter_queue(enter_request(SET_ID, &[("ann", 20.0)]))
        .await
        .expect_err("no queue");
    assert_eq!(refused.code(), Some(Code::FailedPrecondition), "{refused}");
}

/// SEC-5: a ticket token is valid for its own ticket only; for another it gives the same error as for an unknown
/// ticket.
#[tokio::test]
async fn ticket_token_of_another_party_is_refused() {
    let server = start_queue_server(&[&duel_ruleset("")]).await;
    let ann = server.client().await.enter_queue(enter_request(SET_ID, &[("ann", 20.0)])).await.expect("enter");
    let bob = server.client().await.enter_queue(enter_request(SET_ID, &[("bob", 40.0)])).await.expect("enter");
    let client = server.client().await;
    let leave_request = |id: &str| pb::QueueLeaveRequest {
        ticket_id: id.into(),
        ticket_token: bob.reference().ticket_token,
        ..Default::default()
    };
    let other_ticket_error = client.leave_queue(leave_request(ann.id())).await.expect_err("ann's ticket").to_string();
    let no_server =
        client.leave_queue(leave_request(&"0".repeat(32))).await.expect_err("an unknown ticket").to_string();
    assert_eq!(other_ticket_error, no_server);
    let reference = pb::TicketReference { ticket_token: bob.reference().ticket_token, ..ann.reference() };
    let watched = client.watch_tickets([reference.clone()]).next().await.expect_err("ann's ticket");
    assert_eq!(watched.code(), Some(Code::PermissionDenied));
    assert_eq!(watched.as_server_error().and_then(|error| error.reason.as_deref()), Some("NOT_OWNER"));
    let heartbeat = pb::QueueHeartbeatRequest { tickets: vec![reference], ..Default::default() };
    assert_eq!(
        client.heartbeat_tickets(heartbeat).await.expect_err("ann's ticket").code(),
        Some(Code::PermissionDenied)
    );
}
