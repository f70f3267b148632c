//! Parties enter, are proposed a match, agree or not, and are told where to go.

use fireteam_client::{Code, pb};
use pb::{TicketEndReason, TicketState};

use crate::support::generated_client;
use crate::support::queue_server::{
    QueuedParty, SET_ID, duel_ruleset, enter_request, game_server_advertisement, operator_client, start_queue_server,
    wait_until,
};
use crate::support::test_server::TestServer;

const CHECKED: &str = r#"<ReadyCheck TimeoutMs="20000" DeclineCooldownMs="60000"/>"#;

/// S0-20, S1-51, S4-15: two parties that suit wait, are proposed, agree, play, and are done; each hears every step.
/// Nobody queues again by itself, and whoever likes may.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_that_suit_are_proposed_agree_and_play() {
    let house = start_queue_server(&[&duel_ruleset(CHECKED)]).await;
    let mut ann = QueuedParty::enter(&house, SET_ID, &[("ann", 20.0)]).await;
    assert_eq!(ann.next_status().await.position, Some(0));
    let mut bob = QueuedParty::enter(&house, SET_ID, &[("bob", 22.0)]).await;
    let id = ann.respond_to_match(true).await;
    let half = bob.wait_for_state(TicketState::Proposed).await.found_match.expect("a match");
    assert_eq!((&half.match_id, half.player_count), (&id, 2));
    wait_until("ann's answer is told to bob", async || {
        bob.current_status().await.found_match.expect("a match").accepted_count == 1
    })
    .await;
    assert_eq!(bob.answers_known(&id).await, id);
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
        let over = waiting.hears_of_end().await;
        assert_eq!(over.end_reason(), TicketEndReason::Played);
    }
    assert_eq!(queues(&house).await, []);
    ann.client.enter(enter_request(SET_ID, &[("ann", 20.0)])).await.expect("again");
}

/// Sets that anybody waits or plays in.
async fn queues(house: &TestServer) -> Vec<generated_client::QueueStatistics> {
    operator_client(house)
        .await
        .get_statistics(generated_client::GetStatisticsRequest {})
        .await
        .expect("statistics")
        .into_inner()
        .queues
}

impl QueuedParty {
    /// Agrees to a match that it has heard of already.
    async fn answers_known(&mut self, id: &str) -> String {
        self.ticket.respond(id, true).await.expect("respond");
        id.to_owned()
    }

    /// Whatever comes until it is over.
    async fn hears_of_end(&mut self) -> pb::TicketStatus {
        loop {
            let status = self.next_status().await;
            if status.state() == TicketState::Ended {
                return status;
            }
        }
    }
}

/// S0-21, B-33, B-35, SEC-13: whoever agreed goes back with the wait it had; whoever declined is out, and barred for a
/// while.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_declines_is_out_and_the_other_waits_on() {
    let house = start_queue_server(&[&duel_ruleset(CHECKED)]).await;
    let mut ann = QueuedParty::enter(&house, SET_ID, &[("ann", 20.0)]).await;
    house.clock.advance_ms(5_000);
    let mut bob = QueuedParty::enter(&house, SET_ID, &[("bob", 20.0)]).await;
    ann.respond_to_match(true).await;
    bob.respond_to_match(false).await;
    let back = ann.wait_for_state(TicketState::Waiting).await;
    assert_eq!(back.waited_ms, 5_000, "it has waited since it entered");
    assert_eq!(bob.hears_of_end().await.end_reason(), TicketEndReason::Declined);
    let refused = bob.client.enter(enter_request(SET_ID, &[("bob", 20.0)])).await.expect_err("he is barred");
    assert_eq!(refused.code(), Some(Code::PermissionDenied), "{refused}");
    house.clock.advance_ms(60_000);
    bob.client.enter(enter_request(SET_ID, &[("bob", 20.0)])).await.expect("a minute later he is not");
}

/// S0-21: whoever goes back has the rating that it waited with, whatever has become of it since, and looks as far as if
/// nothing had been.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_goes_back_is_who_it_was() {
    let widening = r#"<RatingWindow Start="0" Step="1" StepEveryMs="1000" Clock="ticket"/>"#;
    let rules = duel_ruleset(&format!(r#"{CHECKED}<Rating System="elo"/>"#))
        .replace(r#"<RatingWindow Start="2" Max="2"/>"#, widening);
    let house = start_queue_server(&[&rules]).await;
    let mut ann = QueuedParty::enter(&house, SET_ID, &[("ann", 20.0)]).await;
    house.clock.advance_ms(2_000);
    let mut bob = QueuedParty::enter(&house, SET_ID, &[("bob", 20.0)]).await;
    wait_until("proposed", async || bob.current_status().await.state() == TicketState::Proposed).await;
    let mut operator = operator_client(&house).await;
    let better = generated_client::RatingRow { user_id: "ann".to_owned(), rating: Some(1_700.0), ..Default::default() };
    let request = generated_client::ImportRatingsRequest { matchmaking_set_id: Some(SET_ID), ratings: vec![better] };
    operator.import_ratings(request).await.expect("import");
    house.clock.advance_ms(1_000);
    bob.respond_to_match(false).await;
    let back = ann.wait_for_state(TicketState::Waiting).await;
    let ticket = generated_client::ExplainRequest { ticket_id: ann.ticket.id().to_owned(), ..Default::default() };
    let told = operator.explain(ticket).await.expect("explain").into_inner();
    assert_eq!((back.waited_ms, told.rating, told.range), (3_000, 1_500.0, Some(3)));
}

/// B-35: whoever says nothing until the deadline is out as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_answer_is_out_at_the_deadline() {
    let house = start_queue_server(&[&duel_ruleset(CHECKED)]).await;
    let mut ann = QueuedParty::enter(&house, SET_ID, &[("ann", 20.0)]).await;
    let mut bob = QueuedParty::enter(&house, SET_ID, &[("bob", 20.0)]).await;
    ann.respond_to_match(true).await;
    bob.wait_for_state(TicketState::Proposed).await;
    house.clock.advance_ms(20_000);
    ann.wait_for_state(TicketState::Waiting).await;
    assert_eq!(bob.hears_of_end().await.end_reason(), TicketEndReason::NotAcceptedInTime);
}

/// S3-13: leaving is always answered, by exactly one of two things: it is over, or it has a match.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaving_is_answered_by_one_of_two_things() {
    let house = start_queue_server(&[&duel_ruleset(CHECKED)]).await;
    let mut ann = QueuedParty::enter(&house, SET_ID, &[("ann", 20.0)]).await;
    assert!(ann.ticket.leave().await.expect("leave"));
    assert!(ann.ticket.leave().await.expect("leave"), "again is the same");
    assert_eq!(ann.ticket.status.end_reason(), TicketEndReason::Left);
    let mut bob = QueuedParty::enter(&house, SET_ID, &[("bob", 20.0)]).await;
    let mut eve = QueuedParty::enter(&house, SET_ID, &[("eve", 20.0)]).await;
    bob.wait_for_state(TicketState::Proposed).await;
    assert!(!bob.ticket.leave().await.expect("leave"), "too late");
    assert_eq!(bob.ticket.status.state(), TicketState::Proposed);
    eve.respond_to_match(false).await;
    bob.wait_for_state(TicketState::Waiting).await;
}

/// S0-27: who leaves is nowhere any more: a queue in which nobody is left is gone, and who comes to the same place
/// meets nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_leaves_is_nowhere_any_more() {
    let other = duel_ruleset(CHECKED).replace(r#"SetId="11""#, r#"SetId="12""#);
    let house = start_queue_server(&[&duel_ruleset(CHECKED), &other]).await;
    let mut here = QueuedParty::enter(&house, SET_ID, &[("ann", 20.0)]).await;
    let mut there = QueuedParty::enter(&house, 12, &[("ann", 20.0)]).await;
    assert_eq!(queues(&house).await.len(), 2);
    for waiting in [&mut here, &mut there] {
        assert!(waiting.ticket.leave().await.expect("leave"));
    }
    assert_eq!(queues(&house).await, []);
    let mut bob = QueuedParty::enter(&house, SET_ID, &[("bob", 20.0)]).await;
    wait_until("a pass has looked", async || !bob.current_status().await.blocking_rule.is_empty()).await;
    assert_eq!(bob.current_status().await.blocking_rule, "no_candidates");
}

/// S1-96: what tickets have lately waited is told to those who wait, and to operators: half of them no longer than
/// this, nine in ten no longer than that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn players_are_told_how_long_others_have_waited() {
    let house = start_queue_server(&[&duel_ruleset(CHECKED)]).await;
    for seconds in 1..=4_u32 {
        let mut all = Vec::new();
        for name in ["ann", "bob"] {
            all.push(QueuedParty::enter(&house, SET_ID, &[(&format!("{name} {seconds}"), 20.0)]).await);
        }
        wait_until("proposed", async || all[1].current_status().await.state() == TicketState::Proposed).await;
        house.clock.advance_ms(u64::from(seconds) * 1_000);
        for waiting in &mut all {
            waiting.respond_to_match(true).await;
        }
        all[0].wait_for_state(TicketState::Matched).await;
    }
    let eve = QueuedParty::enter(&house, SET_ID, &[("eve", 20.0)]).await;
    let told = &eve.ticket.status;
    assert_eq!((told.estimated_wait_p50_ms, told.estimated_wait_p90_ms), (Some(2_000), Some(4_000)));
    let queue = queues(&house).await.remove(0);
    assert_eq!((queue.wait_p50_ms, queue.wait_p90_ms, queue.wait_samples), (Some(2_000), Some(4_000), 8));
}

/// R5: a retried enter is the same ticket; its key for another party is refused.
#[tokio::test]
async fn a_retried_enter_is_the_same_ticket() {
    let house = start_queue_server(&[&duel_ruleset("")]).await;
    let client = house.client().await;
    let keyed = |players: &[(&str, f64)]| pb::QueueEnterRequest {
        idempotency_key: "sixteen letters or more".into(),
        ..enter_request(SET_ID, players)
    };
    let first = client.enter(keyed(&[("ann", 20.0)])).await.expect("enter");
    let again = client.enter(keyed(&[("ann", 20.0)])).await.expect("enter");
    assert_eq!(first.id(), again.id());
    let other = client.enter(keyed(&[("bob", 20.0)])).await.expect_err("another party");
    assert_eq!(other.code(), Some(Code::AlreadyExists), "{other}");
}

/// S3-13, S0-22: a user waits once in a queue; in two queues, a proposal in one pauses the other, and the match ends it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proposal_in_one_queue_pauses_the_other() {
    let other = duel_ruleset(CHECKED).replace(r#"SetId="11""#, r#"SetId="12""#);
    let house = start_queue_server(&[&duel_ruleset(CHECKED), &other]).await;
    let mut ann = QueuedParty::enter(&house, SET_ID, &[("ann", 20.0)]).await;
    let twice = ann.client.enter(enter_request(SET_ID, &[("ann", 20.0)])).await.expect_err("she waits already");
    assert_eq!(twice.code(), Some(Code::AlreadyExists), "{twice}");
    let mut elsewhere = QueuedParty::enter(&house, 12, &[("ann", 20.0)]).await;
    let mut bob = QueuedParty::enter(&house, SET_ID, &[("bob", 20.0)]).await;
    elsewhere.wait_for_state(TicketState::Paused).await;
    let mut eve = QueuedParty::enter(&house, 12, &[("eve", 20.0)]).await;
    assert_eq!(eve.next_status().await.state(), TicketState::Waiting, "ann is not to be had here");
    ann.respond_to_match(true).await;
    bob.respond_to_match(true).await;
    ann.wait_for_state(TicketState::Matched).await;
    assert_eq!(elsewhere.hears_of_end().await.end_reason(), TicketEndReason::MatchedElsewhere);
    let playing = ann.client.enter(enter_request(12, &[("ann", 20.0)])).await.expect_err("she plays");
    assert_eq!(playing.code(), Some(Code::FailedPrecondition), "{playing}");
    assert_eq!(eve.current_status().await.state(), TicketState::Waiting);
}

/// S3-14, D-16, S3-4: a game server that advertised itself is reserved in one statement, told to both, and freed for others when
/// it gives the match up; the players go back unpunished.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_match_is_placed_on_a_server_that_advertised_itself() {
    let house = start_queue_server(&[&duel_ruleset(
        r#"<ReadyCheck/><Hosting Mode="game_server" AllocationTimeoutMs="30000"/>"#,
    )])
    .await;
    let mut ann = QueuedParty::enter(&house, SET_ID, &[("ann", 20.0)]).await;
    let mut bob = QueuedParty::enter(&house, SET_ID, &[("bob", 20.0)]).await;
    let id = ann.respond_to_match(true).await;
    bob.respond_to_match(true).await;
    ann.wait_for_state(TicketState::Placing).await;
    let server = house.client().await;
    let advertisement = server.update_advertisement(game_server_advertisement(b"game:9000")).await.expect("advertise");
    for waiting in [&mut ann, &mut bob] {
        let matched = waiting.wait_for_state(TicketState::Matched).await.found_match.expect("a match");
        let place = matched.assignment.and_then(|place| place.host);
        let Some(pb::assignment::Host::GameServer(at)) = place else { panic!("no server: {place:?}") };
        assert_eq!(
            (at.advertisement_id, &*at.connect_data),
            (advertisement.advertisement_id.clone(), &b"game:9000"[..])
        );
    }
    let stranger = server.end_match(pb::QueueEndMatchRequest {
        match_id: id.clone(),
        ticket_token: ann.ticket.reference().ticket_token,
        ..Default::default()
    });
    assert_eq!(stranger.await.expect_err("not hers to say").code(), Some(Code::PermissionDenied));
    let gave_up = pb::QueueEndMatchRequest {
        match_id: id,
        advertisement_token: advertisement.advertisement_token,
        failed: true,
        ..Default::default()
    };
    let outcome = server.end_match(gave_up).await.expect("end").end_reason();
    assert_eq!(outcome, pb::MatchEndReason::ServerFailed);
    for waiting in [&mut ann, &mut bob] {
        waiting.wait_for_state(TicketState::Waiting).await;
    }
}

/// S3-14: seats are free for the next match as soon as the one that had them is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_is_free_again_after_the_game() {
    let house =
        start_queue_server(&[&duel_ruleset(r#"<Hosting Mode="game_server" AllocationTimeoutMs="30000"/>"#)]).await;
    let server = house.client().await;
    let advertisement = server.update_advertisement(game_server_advertisement(b"game:9000")).await.expect("advertise");
    let mut games = Vec::new();
    for [one, other] in [["ann", "bob"], ["cid", "dan"]] {
        let first = QueuedParty::enter(&house, SET_ID, &[(one, 20.0)]).await;
        let _second = QueuedParty::enter(&house, SET_ID, &[(other, 20.0)]).await;
        games.push(first);
        if games.len() == 1 {
            games[0].wait_for_state(TicketState::Matched).await;
        }
    }
    games[1].wait_for_state(TicketState::Placing).await;
    let id = games[0].current_status().await.found_match.expect("a match").match_id;
    assert_eq!(games[1].current_status().await.state(), TicketState::Placing, "both seats are taken");
    let over = pb::QueueEndMatchRequest {
        match_id: id,
        advertisement_token: advertisement.advertisement_token,
        ..Default::default()
    };
    assert_eq!(server.end_match(over).await.expect("end").end_reason(), pb::MatchEndReason::Played);
    let place = games[1]
        .wait_for_state(TicketState::Matched)
        .await
        .found_match
        .and_then(|play| play.assignment)
        .and_then(|it| it.host);
    let Some(pb::assignment::Host::GameServer(at)) = place else { panic!("no server: {place:?}") };
    assert_eq!(at.advertisement_id, advertisement.advertisement_id);
}

/// B-35: nobody gets out of a ready check by calling the match a failure: neither a player, nor a server that has nothing to do
/// with it. Who runs nothing cannot fail.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_match_that_has_not_begun_cannot_be_ended() {
    let house = start_queue_server(&[&duel_ruleset(CHECKED)]).await;
    let mut ann = QueuedParty::enter(&house, SET_ID, &[("ann", 20.0)]).await;
    let mut bob = QueuedParty::enter(&house, SET_ID, &[("bob", 20.0)]).await;
    let id = ann.wait_for_state(TicketState::Proposed).await.found_match.expect("a match").match_id;
    for failed in [true, false] {
        let early = ann.ticket.end_match(&id, failed).await.expect_err("it has not begun");
        assert_eq!(early.code(), Some(Code::FailedPrecondition), "{early}");
    }
    let server = house.client().await;
    let advertised = server.update_advertisement(game_server_advertisement(b"")).await.expect("advertise");
    let stranger = pb::QueueEndMatchRequest {
        match_id: id.clone(),
        advertisement_token: advertised.advertisement_token,
        failed: true,
        ..Default::default()
    };
    let refused = server.end_match(stranger.clone()).await.expect_err("it is not played there");
    assert_eq!(refused.code(), Some(Code::PermissionDenied), "{refused}");
    ann.ticket.respond(&id, true).await.expect("agree");
    bob.ticket.respond(&id, true).await.expect("agree");
    ann.wait_for_state(TicketState::Matched).await;
    assert_eq!(server.end_match(stranger).await.expect_err("nor now").code(), Some(Code::PermissionDenied));
    let nobodys = ann.ticket.end_match(&id, true).await.expect_err("no server could fail");
    assert_eq!(nobodys.code(), Some(Code::InvalidArgument), "{nobodys}");
    for _ in 0..2 {
        assert_eq!(ann.ticket.end_match(&id, false).await.expect("end"), pb::MatchEndReason::Played);
    }
    assert_eq!(bob.hears_of_end().await.end_reason(), TicketEndReason::Played);
}

/// A ticket that nobody keeps alive lapses; one that is watched does not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ticket_that_nobody_keeps_alive_lapses() {
    let house = start_queue_server(&[&duel_ruleset("")]).await;
    let client = house.client().await;
    let mut left_alone = client.enter(enter_request(SET_ID, &[("ann", 20.0)])).await.expect("enter");
    let mut watched = QueuedParty::enter(&house, SET_ID, &[("bob", 40.0)]).await;
    watched.next_status().await;
    let mut operator = operator_client(&house).await;
    let mut waiting = async || {
        let queues = operator
            .get_statistics(generated_client::GetStatisticsRequest {})
            .await
            .expect("statistics")
            .into_inner()
            .queues;
        queues.iter().map(|queue| queue.waiting_tickets).sum::<u32>()
    };
    assert_eq!(waiting().await, 2);
    house.clock.advance_ms(31_000);
    watched.current_status().await;
    house.clock.advance_ms(31_000);
    wait_until("only one waits", async || waiting().await == 1).await;
    assert_eq!(left_alone.heartbeat().await.expect("beat").end_reason(), TicketEndReason::Expired);
    assert_eq!(watched.current_status().await.state(), TicketState::Waiting);
}

/// A stream that was cut goes on at once where it was, and says nothing that was heard before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_goes_on_where_it_was() {
    let house = start_queue_server(&[&duel_ruleset(CHECKED)]).await;
    let mut ann = QueuedParty::enter(&house, SET_ID, &[("ann", 20.0)]).await;
    let heard = ann.next_status().await;
    let resumed = pb::TicketReference { resume_token: heard.resume_token, ..ann.ticket.reference() };
    let mut again = ann.client.watch([resumed]);
    let _bob = QueuedParty::enter(&house, SET_ID, &[("bob", 20.0)]).await;
    let next = again.next().await.expect("a stream").expect("news");
    assert_eq!(next.state(), TicketState::Proposed, "that she waits she had heard");
}

/// S2-7: with a gate, nobody is matched while fewer than the share of those who are connected wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gate_waits_for_a_share_of_those_who_are_connected() {
    let gated = duel_ruleset("")
        .replace("<Queue PassIntervalMs=\"10\">", "<Queue PassIntervalMs=\"10\"><Gate MinWaitingPercent=\"50\"/>");
    let house = start_queue_server(&[&gated]).await;
    let client = house.client().await;
    let connected = ["ann", "bob", "eve", "joe", "kim", "lee"].map(str::to_owned).to_vec();
    let said = pb::QueueHeartbeatRequest { connected_user_ids: connected, ..Default::default() };
    client.heartbeat(said).await.expect("heartbeat");
    let mut ann = QueuedParty::enter(&house, SET_ID, &[("ann", 20.0)]).await;
    let mut bob = QueuedParty::enter(&house, SET_ID, &[("bob", 20.0)]).await;
    let ticket = generated_client::ExplainRequest { ticket_id: ann.ticket.id().to_owned(), ..Default::default() };
    let explained = operator_client(&house).await.explain(ticket).await.expect("explain").into_inner();
    assert_eq!(explained.gate_reason(), generated_client::GateReason::TooFewWaiting);
    let mut eve = QueuedParty::enter(&house, SET_ID, &[("eve", 40.0)]).await;
    for waiting in [&mut ann, &mut bob] {
        waiting.wait_for_state(TicketState::Matched).await;
    }
    assert_eq!(eve.current_status().await.state(), TicketState::Waiting);
}

/// B-7: a party larger than a team is refused, and so is what names nobody or several parties.
#[tokio::test]
async fn a_party_that_no_team_has_room_for_is_refused() {
    let house = start_queue_server(&[&duel_ruleset("")]).await;
    let client = house.client().await;
    let two = client.enter(enter_request(SET_ID, &[("ann", 20.0), ("bob", 20.0)])).await.expect_err("too many");
    assert_eq!(two.code(), Some(Code::FailedPrecondition), "{two}");
    let unnamed = pb::SessionCompositionData { party_size_composition: vec![1], ..Default::default() };
    let unnamed = pb::QueueEnterRequest { session_composition: Some(unnamed), ..enter_request(SET_ID, &[]) };
    assert_eq!(client.enter(unnamed).await.expect_err("who?").code(), Some(Code::InvalidArgument));
    let no_queue =
        duel_ruleset("").replace("<Queue PassIntervalMs=\"10\"><RatingWindow Start=\"2\" Max=\"2\"/></Queue>", "");
    let bare = self::start_queue_server(&[&no_queue]).await;
    let refused = bare.client().await.enter(enter_request(SET_ID, &[("ann", 20.0)])).await.expect_err("no queue");
    assert_eq!(refused.code(), Some(Code::FailedPrecondition), "{refused}");
}

/// Operators are told why two do not meet, and what would have to give.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operators_are_told_why_two_do_not_meet() {
    let house = start_queue_server(&[&duel_ruleset("")]).await;
    let ann = QueuedParty::enter(&house, SET_ID, &[("ann", 20.0)]).await;
    let bob = QueuedParty::enter(&house, SET_ID, &[("bob", 25.0)]).await;
    let mut operator = operator_client(&house).await;
    let ticket = generated_client::ExplainRequest { ticket_id: ann.ticket.id().to_owned(), ..Default::default() };
    let explained = operator.explain(ticket).await.expect("explain").into_inner();
    assert_eq!((explained.candidates, explained.matches_now), (1, false));
    let refused: Vec<_> = explained.refusals.iter().map(|it| (it.rule.as_str(), it.count)).collect();
    assert_eq!(refused, [("window", 1)]);
    assert_eq!(explained.near_misses[0].ticket_id, bob.ticket.id());
    let remedy = explained.smallest_relaxation.expect("wider windows would do");
    assert_eq!((remedy.kind(), remedy.required), (generated_client::RelaxationKind::Window, 3.0), "{}", remedy.message);
    let queues = operator
        .get_statistics(generated_client::GetStatisticsRequest {})
        .await
        .expect("statistics")
        .into_inner()
        .queues;
    assert_eq!((queues.len(), queues[0].waiting_tickets, queues[0].waiting_players), (1, 2, 2));
    let nobody = generated_client::ExplainRequest { ticket_id: "0".repeat(32), ..Default::default() };
    assert_eq!(operator.explain(nobody).await.expect_err("nobody").code(), Code::NotFound);
}

/// SEC-5: nobody leaves, watches, answers or keeps alive another's ticket, and what is not theirs is not there.
#[tokio::test]
async fn a_ticket_is_its_partys_alone() {
    let house = start_queue_server(&[&duel_ruleset("")]).await;
    let ann = house.client().await.enter(enter_request(SET_ID, &[("ann", 20.0)])).await.expect("enter");
    let bob = house.client().await.enter(enter_request(SET_ID, &[("bob", 40.0)])).await.expect("enter");
    let client = house.client().await;
    let mixed = |id: &str| pb::QueueLeaveRequest { ticket_id: id.into(), ticket_token: bob.reference().ticket_token };
    let theirs = client.leave(mixed(ann.id())).await.expect_err("hers").to_string();
    let nobodys = client.leave(mixed(&"0".repeat(32))).await.expect_err("nobody's").to_string();
    assert_eq!(theirs, nobodys);
    let reference = pb::TicketReference { ticket_token: bob.reference().ticket_token, ..ann.reference() };
    let watched = client.watch([reference.clone()]).next().await.expect_err("hers");
    assert_eq!(watched.code(), Some(Code::PermissionDenied));
    assert_eq!(watched.server_error().and_then(|error| error.reason.as_deref()), Some("NOT_OWNER"));
    let beat = pb::QueueHeartbeatRequest { tickets: vec![reference], ..Default::default() };
    assert_eq!(client.heartbeat(beat).await.expect_err("hers").code(), Some(Code::PermissionDenied));
}
