//! Matches of sessions that a player hosts: the teams that the host names are the sides, and each player reports alone.

use fireteam_client::pb;
use pb::{MatchEndReason, ReportState, TicketEndReason, TicketState};

use crate::session_match::fixture::{
    Host, NEWCOMER, WINDOW_MS, hear, own_ticket, ratings, reserve, reserve_pair, rooms_ruleset, team, wait_for_ratings,
    win_of,
};
use crate::support::party_site::{PartySite, on_each_store, wait_for_state};
use crate::support::queue_server::wait_until;

/// Two sides that report alike move the ratings, and the next search uses them. Each player finds the match.
async fn both_sides_report_and_ratings_move(site: PartySite) {
    let host = Host::player(&site, "ann").await;
    let (bob, pair) = (reserve(&site, &host, "bob").await, reserve_pair(&site, &host, "cat", "dan").await);
    host.seat(&["ann", "bob", "cat", "dan"], &[&bob, &pair]).await;
    let started = host.start(&[team(true, &[&bob]), team(false, &[&pair])]).await;
    assert_eq!(started.hosted.state(), pb::HostedMatchState::Playing);
    assert_eq!((started.hosted.advertisement_id.as_str(), started.hosted.reservation_id.as_str()), (host.id(), ""));
    let parties = started.hosted.parties.iter();
    let parties: Vec<_> = parties.map(|party| (party.team, &*party.reservation_id, party.players.len())).collect();
    assert_eq!(parties, [(0, "", 1), (0, &*bob.id, 1), (1, &*pair.id, 2)]);

    let mut tickets = Vec::new();
    for name in ["ann", "bob", "cat", "dan"] {
        let ticket = own_ticket(&site, name, started.id()).await;
        let found = ticket.status.found_match.clone().expect("the match");
        assert_eq!(
            (ticket.status.state(), found.players.len(), found.team),
            (TicketState::Matched, 4, u32::from(["cat", "dan"].contains(&name)))
        );
        let Some(pb::assignment::Host::PeerHost(peer)) = found.assignment.and_then(|it| it.host) else {
            panic!("a player hosts")
        };
        assert_eq!((peer.is_own, &peer.player_key), (name == "ann", &started.hosted.parties[0].players[0].player_key));
        tickets.push(ticket);
    }
    assert_eq!(started.answer.ticket_id, tickets[0].id());
    let [ann, bob, cat, dan] = &mut *tickets else { panic!("four tickets") };
    hear(&site, &mut [ann, bob, cat, dan]).await;
    let answer = ann.report_result(started.id(), &win_of(1)).await.expect("report");
    assert_eq!((answer.rated, answer.state()), (false, ReportState::Waiting));
    assert_eq!(ratings(&site, ["ann", "bob", "cat", "dan"]).await, [NEWCOMER; 4]);
    let answer = dan.report_result(started.id(), &win_of(1)).await.expect("report");
    assert_eq!((answer.rated, answer.state()), (true, ReportState::Settled));
    let moved = [NEWCOMER - 16.0, NEWCOMER - 16.0, NEWCOMER + 16.0, NEWCOMER + 16.0];
    wait_for_ratings(&site, ["ann", "bob", "cat", "dan"], moved).await;
    for ticket in [ann, bob, cat, dan] {
        let ended = wait_for_state(ticket, TicketState::Ended).await;
        assert_eq!(ended.end_reason(), TicketEndReason::Played);
        assert_eq!(ended.found_match.expect("the match").end_reason(), MatchEndReason::Played);
    }
    site.shut_down().await;
}

/// A player who asks for the first time after the host has reported still finds the match, at each server and after a restart, and
/// reports by the own seat. Who has reported, and who has left, finds nothing.
async fn late_player_finds_the_match_and_reports(mut site: PartySite) {
    let host = Host::player(&site, "ann").await;
    let (bob, cat) = (reserve(&site, &host, "bob").await, reserve(&site, &host, "cat").await);
    host.seat(&["ann", "bob", "cat"], &[&bob, &cat]).await;
    let started = host.start(&[team(true, &[]), team(false, &[&bob, &cat])]).await;
    assert!(own_ticket(&site, "cat", started.id()).await.leave().await.expect("leave"));
    let ann = own_ticket(&site, "ann", started.id()).await;
    let answer = ann.report_result(started.id(), &win_of(1)).await.expect("report");
    assert_eq!(answer.state(), ReportState::Waiting);
    let has_nothing = async |site: &PartySite, name: &str| {
        let client = site.player_elsewhere(name).await;
        wait_until("the other server has the report", async || {
            client.own_tickets_and_cooldowns().await.expect("mine").0.is_empty()
        })
        .await;
    };
    has_nothing(&site, "ann").await;
    has_nothing(&site, "cat").await;
    // Longer than other ended tickets stay in memory, and shorter than the report window.
    site.clock.advance_ms(120_000);
    site.servers.iter().for_each(|server| server.app.engine.purge_ended_from_memory());
    let elsewhere = own_ticket(&site, "bob", started.id()).await;
    assert_eq!(elsewhere.status.state(), TicketState::Ended);
    site.restart_first().await;
    site.servers.iter().for_each(|server| server.app.engine.purge_ended_from_memory());
    assert_eq!(
        site.player("bob").await.own_tickets_and_cooldowns().await.expect("mine").0[0].status.state(),
        TicketState::Ended
    );
    let late = own_ticket(&site, "bob", started.id()).await;
    let answer = late.report_result(started.id(), &win_of(1)).await.expect("report");
    assert_eq!((answer.rated, answer.state()), (true, ReportState::Settled));
    has_nothing(&site, "bob").await;
    site.shut_down().await;
}

/// A lone host's report moves nothing: not while the window runs, nor after it, for any winner that it names and any team that it is in.
async fn lone_host_moves_no_rating_of_players_who_were_not_heard(site: PartySite) {
    for (winner, partner) in [(0, "bob"), (1, "cat")] {
        let host = Host::player(&site, "ann").await;
        let (bob, cat) = (reserve(&site, &host, "bob").await, reserve(&site, &host, "cat").await);
        host.seat(&["ann", "bob", "cat"], &[&bob, &cat]).await;
        let (own, other) = if partner == "bob" { (&bob, &cat) } else { (&cat, &bob) };
        let started = host.start(&[team(true, &[own]), team(false, &[other])]).await;
        let mut ann = own_ticket(&site, "ann", started.id()).await;
        hear(&site, &mut [&mut ann]).await;
        let answer = ann.report_result(started.id(), &win_of(winner)).await.expect("report");
        assert_eq!((answer.rated, answer.state()), (false, ReportState::Waiting));
        site.clock.advance_ms(WINDOW_MS + 1);
        wait_until("the window ends", async || {
            let status = ann.heartbeat().await.expect("heartbeat");
            let reports = status.found_match.as_ref().and_then(|found| found.reports);
            reports.is_some_and(|reports| reports.state() == ReportState::Held)
        })
        .await;
        assert_eq!(ratings(&site, ["ann", "bob", "cat"]).await, [NEWCOMER; 3], "the report says that {winner} won");
    }
    site.shut_down().await;
}

/// A silent player who is named beside one who agrees with the host keeps the rating; the others' move.
async fn unheard_player_of_a_heard_side_keeps_the_rating(site: PartySite) {
    let host = Host::player(&site, "ann").await;
    let (bob, eve) = (reserve(&site, &host, "bob").await, reserve(&site, &host, "eve").await);
    host.seat(&["ann", "bob", "eve"], &[&bob, &eve]).await;
    let started = host.start(&[team(true, &[]), team(false, &[&bob, &eve])]).await;
    let mut ann = own_ticket(&site, "ann", started.id()).await;
    let mut eve = own_ticket(&site, "eve", started.id()).await;
    hear(&site, &mut [&mut ann, &mut eve]).await;
    ann.report_result(started.id(), &win_of(0)).await.expect("report");
    let answer = eve.report_result(started.id(), &win_of(0)).await.expect("report");
    assert!(answer.rated, "{answer:?}");
    wait_for_ratings(&site, ["ann", "bob", "eve"], [NEWCOMER + 16.0, NEWCOMER, NEWCOMER - 16.0]).await;
    site.shut_down().await;
}

/// Colluding sides are more than half of the sides, and still cannot rate one that was not heard, or a roster of which half was
/// not heard.
async fn majority_cannot_rate_sides_that_were_not_heard(site: PartySite) {
    let host = Host::player(&site, "ann").await;
    let (bob, eve) = (reserve(&site, &host, "bob").await, reserve_pair(&site, &host, "eve", "fay").await);
    let gus = reserve_pair(&site, &host, "gus", "hal").await;
    host.seat(&["ann", "bob", "eve", "fay", "gus", "hal"], &[&bob, &eve, &gus]).await;
    // Three sides, of which the third is silent.
    let started = host.start(&[team(true, &[]), team(false, &[&eve]), team(false, &[&bob])]).await;
    let ranks = [(0, 1), (1, 2), (2, 3)];
    let mut tickets = [own_ticket(&site, "ann", started.id()).await, own_ticket(&site, "eve", started.id()).await];
    for ticket in &mut tickets {
        hear(&site, &mut [ticket]).await;
        let answer = ticket.report_result(started.id(), &ranks).await.expect("report");
        assert_eq!((answer.rated, answer.state()), (false, ReportState::Waiting));
    }
    assert_eq!(ratings(&site, ["ann", "bob", "eve", "fay"]).await, [NEWCOMER; 4]);

    // In the next match each side reports, and three of the six players are heard. A fourth makes it a result.
    let second = host.start(&[team(true, &[&gus]), team(false, &[&bob, &eve])]).await;
    let mut tickets = Vec::new();
    for name in ["ann", "eve", "bob"] {
        tickets.push(own_ticket(&site, name, second.id()).await);
    }
    for (ticket, rated) in tickets.iter_mut().zip([false, false, true]) {
        hear(&site, &mut [ticket]).await;
        let answer = ticket.report_result(second.id(), &win_of(0)).await.expect("report");
        assert_eq!(answer.rated, rated, "{answer:?}");
    }
    let names = ["ann", "gus", "hal", "bob", "eve", "fay"];
    let [won, lost] = [NEWCOMER + 16.0, NEWCOMER - 16.0];
    wait_for_ratings(&site, names, [won, NEWCOMER, NEWCOMER, lost, lost, lost]).await;
    site.shut_down().await;
}

on_each_store! {
    both_sides_report_and_ratings_move, rooms_ruleset(),
        session_match_of_a_peer_is_rated_by_both_sides_on_sqlite, session_match_of_a_peer_is_rated_by_both_sides_on_postgres;
    late_player_finds_the_match_and_reports, rooms_ruleset(),
        late_player_finds_the_match_and_reports_on_sqlite, late_player_finds_the_match_and_reports_on_postgres;
    lone_host_moves_no_rating_of_players_who_were_not_heard, rooms_ruleset(),
        session_match_is_not_rated_by_a_lone_host_on_sqlite, session_match_is_not_rated_by_a_lone_host_on_postgres;
    unheard_player_of_a_heard_side_keeps_the_rating, rooms_ruleset(),
        session_match_does_not_rate_an_unheard_player_on_sqlite, session_match_does_not_rate_an_unheard_player_on_postgres;
    majority_cannot_rate_sides_that_were_not_heard, rooms_ruleset(),
        session_match_is_not_rated_by_a_majority_alone_on_sqlite, session_match_is_not_rated_by_a_majority_alone_on_postgres;
}
