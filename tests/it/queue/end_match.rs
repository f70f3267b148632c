//! EndMatch over gRPC: by the game server whose seats the match has taken, or by a player of a match without a server.

use fireteam_client::{Code, pb};
use pb::{TicketEndReason, TicketState};

use crate::support::queue_server::{
    QueuedParty, SET_ID, advertise_host, duel_ruleset, game_server_advertisement, start_queue_server,
};

/// A ready check.
const CHECKED: &str = r#"<ReadyCheck TimeoutMs="20000" DeclineCooldownMs="60000"/>"#;

/// S3-14, D-16, S3-4: an advertised game server is reserved in one statement, both parties receive it, and it is free
/// again after it reports a failure; the players are requeued without a penalty.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn placing_reserves_an_advertised_game_server() {
    let server = start_queue_server(&[&duel_ruleset(
        r#"<ReadyCheck/><Hosting Mode="game_server" AllocationTimeoutMs="30000"/>"#,
    )])
    .await;
    let mut ann = QueuedParty::enter(&server, SET_ID, &[("ann", 20.0)]).await;
    let mut bob = QueuedParty::enter(&server, SET_ID, &[("bob", 20.0)]).await;
    let id = ann.respond_to_match(true).await;
    bob.respond_to_match(true).await;
    ann.wait_for_state(TicketState::Placing).await;
    let host_client = server.client().await;
    let advertisement = advertise_host(&server, game_server_advertisement(b"game:9000")).await;
    for waiting in [&mut ann, &mut bob] {
        let matched = waiting.wait_for_state(TicketState::Matched).await.found_match.expect("a match");
        let place = matched.assignment.and_then(|place| place.host);
        let Some(pb::assignment::Host::GameServer(at)) = place else { panic!("no server: {place:?}") };
        assert_eq!(
            (at.advertisement_id, &*at.connect_data),
            (advertisement.advertisement_id.clone(), &b"game:9000"[..])
        );
    }
    let unrelated = host_client.end_match(pb::QueueEndMatchRequest {
        match_id: id.clone(),
        ticket_token: ann.ticket.reference().ticket_token,
        ..Default::default()
    });
    assert_eq!(
        unrelated.await.expect_err("a player may not end a match on a game server").code(),
        Some(Code::PermissionDenied)
    );
    let failed = pb::QueueEndMatchRequest {
        match_id: id.clone(),
        advertisement_token: advertisement.advertisement_token,
        failed: true,
        ..Default::default()
    };
    let outcome = host_client.end_match(failed).await.expect("end").end_reason();
    assert_eq!(outcome, pb::MatchEndReason::ServerFailed);
    // They wait, or have another match already: a watch may skip the status between two matches.
    for requeued in [&mut ann, &mut bob] {
        loop {
            let status = requeued.next_status().await;
            assert_ne!(status.state(), TicketState::Ended, "{status:?}");
            let has_other_match = status.found_match.as_ref().is_some_and(|found| found.match_id != id);
            if has_other_match || status.state() == TicketState::Waiting {
                break;
            }
        }
    }
}

/// S3-14: a game server's seats are free for the next match when its match has ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn end_match_frees_the_game_servers_seats() {
    let server =
        start_queue_server(&[&duel_ruleset(r#"<Hosting Mode="game_server" AllocationTimeoutMs="30000"/>"#)]).await;
    let host_client = server.client().await;
    let advertisement = advertise_host(&server, game_server_advertisement(b"game:9000")).await;
    let mut games = Vec::new();
    for [one, other] in [["ann", "bob"], ["cid", "dan"]] {
        let first = QueuedParty::enter(&server, SET_ID, &[(one, 20.0)]).await;
        let _second = QueuedParty::enter(&server, SET_ID, &[(other, 20.0)]).await;
        games.push(first);
        if games.len() == 1 {
            games[0].wait_for_state(TicketState::Matched).await;
        }
    }
    games[1].wait_for_state(TicketState::Placing).await;
    let id = games[0].current_status().await.found_match.expect("a match").match_id;
    assert_eq!(games[1].current_status().await.state(), TicketState::Placing, "both seats are reserved");
    let over = pb::QueueEndMatchRequest {
        match_id: id,
        advertisement_token: advertisement.advertisement_token,
        ..Default::default()
    };
    assert_eq!(host_client.end_match(over).await.expect("end").end_reason(), pb::MatchEndReason::Played);
    let place = games[1]
        .wait_for_state(TicketState::Matched)
        .await
        .found_match
        .and_then(|found| found.assignment)
        .and_then(|it| it.host);
    let Some(pb::assignment::Host::GameServer(at)) = place else { panic!("no server: {place:?}") };
    assert_eq!(at.advertisement_id, advertisement.advertisement_id);
}

/// B-35: a ready check cannot be ended as a failed match: neither by a player nor by an unrelated server. A match
/// without a server cannot fail.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn end_match_during_a_ready_check_is_refused() {
    let server = start_queue_server(&[&duel_ruleset(CHECKED)]).await;
    let mut ann = QueuedParty::enter(&server, SET_ID, &[("ann", 20.0)]).await;
    let mut bob = QueuedParty::enter(&server, SET_ID, &[("bob", 20.0)]).await;
    let id = ann.wait_for_state(TicketState::Proposed).await.found_match.expect("a match").match_id;
    for failed in [true, false] {
        let early = ann.ticket.end_match(&id, failed).await.expect_err("the match has not started");
        assert_eq!(early.code(), Some(Code::FailedPrecondition), "{early}");
    }
    let host_client = server.client().await;
    let advertised = host_client.update_advertisement(game_server_advertisement(b"")).await.expect("advertise");
    let unrelated = pb::QueueEndMatchRequest {
        match_id: id.clone(),
        advertisement_token: advertised.advertisement_token,
        failed: true,
        ..Default::default()
    };
    let refused = host_client.end_match(unrelated.clone()).await.expect_err("the match is on no server");
    assert_eq!(refused.code(), Some(Code::PermissionDenied), "{refused}");
    ann.ticket.respond_to_ready_check(&id, true).await.expect("accept");
    bob.ticket.respond_to_ready_check(&id, true).await.expect("accept");
    ann.wait_for_state(TicketState::Matched).await;
    assert_eq!(
        host_client.end_match(unrelated).await.expect_err("still on no server").code(),
        Some(Code::PermissionDenied)
    );
    let no_server = ann.ticket.end_match(&id, true).await.expect_err("a match without a server cannot fail");
    assert_eq!(no_server.code(), Some(Code::InvalidArgument), "{no_server}");
    for _ in 0..2 {
        assert_eq!(ann.ticket.end_match(&id, false).await.expect("end"), pb::MatchEndReason::Played);
    }
    assert_eq!(bob.wait_for_end().await.end_reason(), TicketEndReason::Played);
}
