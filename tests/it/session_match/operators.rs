//! Operators and sessions' matches: a cancelled one ends for all, an erased player leaves it, an export lists it.

use fireteam_client::pb;
use pb::{MatchEndReason, TicketState};

use crate::session_match::fixture::{Host, hear, own_ticket, reserve, rooms_ruleset, team, wait_for_ratings, win_of};
use crate::support::generated_client as wire;
use crate::support::party_site::{PartySite, by_operator, on_each_store, wait_for_state};
use crate::support::queue_server::{operator_client, wait_until};

/// A cancelled match ends for all its players, who are free at once, and moves no rating.
async fn cancelled_session_match_ends_for_all(site: PartySite) {
    let host = Host::player(&site, "ann").await;
    let bob = reserve(&site, &host, "bob").await;
    host.seat(&["ann", "bob"], &[&bob]).await;
    let started = host.start(&[team(true, &[]), team(false, &[&bob])]).await;
    let mut ticket = own_ticket(&site, "bob", started.id()).await;
    let mut operator = operator_client(&site.servers[0]).await;
    let request = wire::CancelMatchRequest { match_id: started.id().to_owned(), reason: "the room crashed".to_owned() };
    operator.cancel_match(by_operator(&site, request)).await.expect("cancel");
    let ended = wait_for_state(&mut ticket, TicketState::Ended).await;
    assert_eq!(ended.found_match.expect("the match").end_reason(), MatchEndReason::Cancelled);
    let again = host.start(&[team(true, &[]), team(false, &[&bob])]).await;
    assert_ne!(again.id(), started.id());
    own_ticket(&site, "bob", again.id()).await;
    wait_for_ratings(&site, ["ann", "bob"], [1_500.0; 2]).await;
    site.shut_down().await;
}

/// An export lists the match. An erased player leaves it and the session's roster; the match goes on, and the others' reports settle
/// it.
async fn erased_player_leaves_a_session_match(mut site: PartySite) {
    let host = Host::player(&site, "ann").await;
    let (bob, cat) = (reserve(&site, &host, "bob").await, reserve(&site, &host, "cat").await);
    host.seat(&["ann", "bob", "cat"], &[&bob, &cat]).await;
    let started = host.start(&[team(true, &[&bob]), team(false, &[&cat])]).await;
    let mut tickets = [own_ticket(&site, "ann", started.id()).await, own_ticket(&site, "cat", started.id()).await];
    let [ann, cat_ticket] = &mut tickets;
    let mut operator = operator_client(site.servers.last().expect("a server")).await;
    let request = wire::ExportUserRequest { user_id: "bob".to_owned(), ..Default::default() };
    let exported = operator.export_user(by_operator(&site, request)).await.expect("export").into_inner();
    assert!(format!("{exported:?}").contains(started.id()), "{exported:?}");

    let request = wire::EraseUserRequest { user_id: "bob".into(), reason: "request 4711".into(), ..Default::default() };
    operator.erase_user(by_operator(&site, request)).await.expect("erased");
    wait_until("bob has left", async || {
        let status = ann.heartbeat().await.expect("heartbeat");
        let players = &status.found_match.as_ref().expect("the match").players;
        players.iter().filter(|player| player.left).count() == 1
    })
    .await;
    hear(&site, &mut [ann, cat_ticket]).await;
    ann.report_result(started.id(), &win_of(0)).await.expect("report");
    assert!(cat_ticket.report_result(started.id(), &win_of(0)).await.expect("report").rated);
    wait_for_ratings(&site, ["ann", "cat"], [1_516.0, 1_484.0]).await;
    site.restart_first().await;
    let request = wire::ExportUserRequest { user_id: "bob".to_owned(), ..Default::default() };
    let mut operator = operator_client(&site.servers[0]).await;
    let exported = operator.export_user(by_operator(&site, request)).await.expect("export").into_inner();
    assert!(!format!("{exported:?}").contains(started.id()), "{exported:?}");
    site.shut_down().await;
}

on_each_store! {
    cancelled_session_match_ends_for_all, rooms_ruleset(),
        session_match_that_is_cancelled_ends_for_all_on_sqlite, session_match_that_is_cancelled_ends_for_all_on_postgres;
    erased_player_leaves_a_session_match, rooms_ruleset(),
        session_match_goes_on_without_an_erased_player_on_sqlite, session_match_goes_on_without_an_erased_player_on_postgres;
}
