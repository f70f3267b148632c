//! Matches of sessions that a game server hosts: it alone ends and reports each, once; several, one after another.

use fireteam_client::{MatchHost, pb};
use pb::{HostedMatchState, MatchEndReason, TicketEndReason, TicketState};

use crate::rating::results_and_leaderboards::rating;
use crate::session_match::fixture::{
    Host, NEWCOMER, Started, assert_reason, has_no_match, own_ticket, ranks_of, ratings, reserve, reserve_pair,
    rooms_ruleset, session_of, team, wait_for_ratings, win_of,
};
use crate::support::party_site::{PartySite, on_each_store, wait_for_state};
use crate::support::queue_server::{SET_ID, enter_request, start_queue_server, wait_until};
use crate::support::test_server::party_session;

async fn report(
    host: &Host,
    started: &Started,
    winner: u32,
) -> Result<pb::ReportResultResponse, fireteam_client::Error> {
    let report = pb::ReportResultRequest {
        match_id: started.id().to_owned(),
        team_ranks: ranks_of(winner),
        advertisement_token: host.token(),
        ..Default::default()
    };
    host.client.report_result(report).await
}

/// A game server reports each match once, and a retry changes nothing. Its players have credentials for it, and may not report.
/// The next match of the session has the roster of then: who has left is not in it, and who joined meanwhile is.
async fn game_server_reports_each_match_of_a_session_once(mut site: PartySite) {
    let mut host = Host::game_server(&site).await;
    let (bob, pair) = (reserve(&site, &host, "bob").await, reserve_pair(&site, &host, "cat", "dan").await);
    host.update(&[&bob, &pair], &[]).await;
    let first = host.start(&[team(false, &[&bob]), team(false, &[&pair])]).await;
    assert_eq!((first.answer.ticket_id.as_str(), first.answer.ticket_token.len()), ("", 0));
    let ticket = own_ticket(&site, "bob", first.id()).await;
    let found = ticket.status.found_match.clone().expect("the match");
    let Some(pb::assignment::Host::GameServer(server)) = found.assignment.and_then(|it| it.host) else {
        panic!("a game server hosts")
    };
    assert_eq!((server.advertisement_id.as_str(), &server.connect_data[..]), (host.id(), &b"127.0.0.1:7777"[..]));
    assert!(!found.own_players[0].credential.is_empty());
    assert_reason(ticket.report_result(first.id(), &win_of(0)).await, "NOT_OWNER");
    assert_reason(ticket.end_match(first.id(), false).await, "NOT_OWNER");

    // It keeps the match alive and reports it, also after a restart, and after it has ended the reservations.
    host.update(&[], &[&bob, &pair]).await;
    site.restart_first().await;
    host.client = site.backend().await;
    let mut beats = MatchHost::from_advertisement_token(host.client.clone(), host.token());
    assert_eq!(beats.heartbeat().await.expect("beat")[0].state(), HostedMatchState::Playing);
    let reported = report(&host, &first, 1).await.expect("report");
    assert_eq!((reported.rated, reported.changes.len()), (true, 3));
    assert!(report(&host, &first, 1).await.expect("the same report").rated);
    assert_reason(report(&host, &first, 0).await, "ALREADY_REPORTED");
    let moved = [NEWCOMER - 16.0, NEWCOMER + 16.0, NEWCOMER + 16.0];
    wait_for_ratings(&site, ["bob", "cat", "dan"], moved).await;

    // dan leaves the session, and eve comes.
    site.player_elsewhere("dan").await.release_own_seat(host.id()).await.expect("leave");
    let eve = reserve(&site, &host, "eve").await;
    host.update(&[&eve], &[]).await;
    let second = host.start(&[team(false, &[&pair]), team(false, &[&bob, &eve])]).await;
    assert_ne!(second.id(), first.id());
    let sizes: Vec<_> = second.hosted.parties.iter().map(|party| (party.team, party.players.len())).collect();
    assert_eq!(sizes, [(0, 1), (1, 1), (1, 1)]);
    own_ticket(&site, "eve", second.id()).await;
    assert!(has_no_match(&site.player_elsewhere("dan").await).await);
    let reported = report(&host, &second, 1).await.expect("report");
    assert_eq!((reported.rated, reported.changes.len()), (true, 3));
    assert_eq!(ratings(&site, ["dan"]).await, [NEWCOMER + 16.0], "dan was not in the second match");
    site.shut_down().await;
}

/// A silent game server is lost, and its players are free at once. A match that it gives up was not played. None of their players
/// waits in a queue afterwards.
async fn players_are_free_after_their_game_server_is_lost_or_gives_up(site: PartySite) {
    let host = Host::game_server(&site).await;
    let (bob, cat) = (reserve(&site, &host, "bob").await, reserve(&site, &host, "cat").await);
    host.update(&[&bob, &cat], &[]).await;
    let teams = [team(false, &[&bob]), team(false, &[&cat])];
    let lost = host.start(&teams).await;
    let mut ticket = own_ticket(&site, "bob", lost.id()).await;
    // The default of HostLossMs is 90 s. A heartbeat of the advertisement says nothing about the match.
    site.clock.advance_ms(60_000);
    host.update(&[], &[]).await;
    site.clock.advance_ms(30_001);
    let ended = wait_for_state(&mut ticket, TicketState::Ended).await;
    assert_eq!(ended.end_reason(), TicketEndReason::Played);
    assert_eq!(ended.found_match.expect("the match").end_reason(), MatchEndReason::HostLost);

    host.update(&[], &[]).await;
    let failed = host.start(&teams).await;
    let mut tickets = [own_ticket(&site, "bob", failed.id()).await, own_ticket(&site, "cat", failed.id()).await];
    let end = pb::QueueEndMatchRequest {
        match_id: failed.id().to_owned(),
        advertisement_token: host.token(),
        failed: true,
        ..Default::default()
    };
    assert_eq!(host.client.end_match(end).await.expect("end").end_reason(), MatchEndReason::ServerFailed);
    for ticket in &mut tickets {
        assert_eq!(wait_for_state(ticket, TicketState::Ended).await.end_reason(), TicketEndReason::Cancelled);
    }
    for name in ["bob", "cat"] {
        let client = site.player_elsewhere(name).await;
        wait_until("no ticket is left", async || client.own_tickets_and_cooldowns().await.expect("mine").0.is_empty())
            .await;
    }
    assert_reason(report(&host, &failed, 0).await, "NOT_OWNER");
    site.shut_down().await;
}

/// A caller without an identity cannot be told from a game server: its matches are as one's, and no seat is a player's own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_match_of_a_host_without_identity_is_reported_by_its_token() {
    let server = start_queue_server(&[&rooms_ruleset()]).await;
    let client = server.client().await;
    let request = session_of(&["ann"]);
    let host = Host::advertise(client.clone(), request).await;
    let mut guests = Vec::new();
    for name in ["bob", "cat"] {
        let mut searching = client.new_search(SET_ID, party_session(&[(name, 0.0)]));
        searching.search().await.expect("search");
        guests.push(searching.reserve(host.id()).await.expect("reserve"));
    }
    host.update(&[&guests[0], &guests[1]], &[]).await;
    let started = host.start(&[team(false, &[&guests[0]]), team(false, &[&guests[1]])]).await;
    let mut enter = enter_request(SET_ID, &[("bob", 0.0)]);
    enter.idempotency_key = "a key of more than sixteen characters".into();
    assert!(client.enter_queue(enter).await.is_err(), "the set has no queue");
    let reported = report(&host, &started, 0).await.expect("report");
    assert_eq!((reported.rated, reported.changes.len()), (true, 2));
    let read = async |name| rating(&client, name).await;
    assert_eq!([read("ann").await, read("bob").await, read("cat").await], [NEWCOMER, NEWCOMER + 16.0, NEWCOMER - 16.0]);
}

on_each_store! {
    game_server_reports_each_match_of_a_session_once, rooms_ruleset(),
        session_match_of_a_game_server_is_reported_once_on_sqlite, session_match_of_a_game_server_is_reported_once_on_postgres;
    players_are_free_after_their_game_server_is_lost_or_gives_up, rooms_ruleset(),
        session_match_ends_with_its_game_server_on_sqlite, session_match_ends_with_its_game_server_on_postgres;
}
