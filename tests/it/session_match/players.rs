//! Players of sessions' matches beside queues: they leave without a cooldown, and wait nowhere else meanwhile.

use fireteam_client::{Client, Ticket, pb};
use pb::{TicketEndReason, TicketState};

use crate::session_match::fixture::{
    Host, Started, assert_fields, assert_reason, own_ticket, reserve, reserve_pair, rooms_ruleset, team,
};
use crate::support::party_site::{PartySite, on_each_store, reason, wait_for_state};
use crate::support::queue_server::{SET_ID, enter_request, wait_until};

/// The rooms, with a queue that has a ready check.
fn rooms_with_queue() -> String {
    rooms_ruleset().replace(
        "</Ruleset>",
        r#"<Teams Count="2" Size="1"/><Queue PassIntervalMs="10"/><ReadyCheck TimeoutMs="20000" DeclineCooldownMs="3600000"/></Ruleset>"#,
    )
}

async fn enter(client: &Client, name: &str, silo: u64) -> Ticket {
    let mut request = enter_request(SET_ID, &[(name, 0.0)]);
    request.session_composition.as_mut().expect("a party").silo_id = Some(silo);
    client.enter_queue(request).await.expect("enter")
}

/// End of a match, by the player who hosts it.
fn end_of(started: &Started) -> pb::QueueEndMatchRequest {
    pb::QueueEndMatchRequest {
        match_id: started.id().to_owned(),
        ticket_token: started.answer.ticket_token.clone(),
        ..Default::default()
    }
}

/// A player leaves the match and is free at once, without a cooldown: there was no ready check. The match goes on. A member
/// of a party leaves by its own seat, and the leader does not leave for it.
async fn player_leaves_without_a_cooldown(site: PartySite) {
    let host = Host::player(&site, "ann").await;
    let (bob, pair) = (reserve(&site, &host, "bob").await, reserve_pair(&site, &host, "cat", "dan").await);
    host.seat(&["ann", "bob", "cat", "dan"], &[&bob, &pair]).await;
    let started = host.start(&[team(true, &[&bob]), team(false, &[&pair])]).await;
    let mut cat = own_ticket(&site, "cat", started.id()).await;
    assert!(cat.leave_for_players(vec!["dan".into()]).await.is_err(), "dan has a seat of its own");
    assert!(!cat.leave().await.expect("leave"), "the ticket goes on for dan");
    let dan = own_ticket(&site, "dan", started.id()).await;
    let left: Vec<bool> =
        dan.status.found_match.as_ref().expect("the match").players.iter().map(|player| player.left).collect();
    assert_eq!(left.iter().filter(|left| **left).count(), 1);
    let client = site.player_elsewhere("cat").await;
    wait_until("cat is free", async || client.own_tickets_and_cooldowns().await.expect("mine").0.is_empty()).await;
    assert!(client.own_tickets_and_cooldowns().await.expect("mine").1.is_empty(), "no cooldown");
    enter(&client, "cat", 0).await;
    // Who has left the match has left the session: the host cannot name cat again.
    let mut dan = dan;
    assert!(dan.leave().await.expect("leave"));
    host.client.end_match(end_of(&started)).await.expect("end");
    wait_until("the pair has left the session", async || {
        match host.try_start(&[team(true, &[]), team(false, &[&pair])]).await {
            Err(error) => reason(&error) == "PLAYER_UNAVAILABLE",
            // The seats are released after the match was left: until then the pair can be named.
            Ok(too_early) => {
                host.client.end_match(end_of(&too_early)).await.expect("end");
                false
            }
        }
    })
    .await;
    let started = host.start(&[team(true, &[]), team(false, &[&bob])]).await;
    own_ticket(&site, "bob", started.id()).await;
    // Those who play may not enter.
    let mut request = enter_request(SET_ID, &[("bob", 0.0)]);
    request.idempotency_key = "bob enters, and is refused".into();
    assert_reason(site.player_elsewhere("bob").await.enter_queue(request).await, "ALREADY_IN_MATCH");
    site.shut_down().await;
}

/// A player who waits in this queue and in that of another silo is matched by the session: both tickets end. A player in a match of
/// a queue is left out with the party, and a team without others cannot play.
async fn session_match_ends_waiting_tickets_and_leaves_busy_players_out(site: PartySite) {
    let host = Host::player(&site, "ann").await;
    let (bob, pair) = (reserve(&site, &host, "bob").await, reserve_pair(&site, &host, "cat", "dan").await);
    host.seat(&["ann", "bob", "cat", "dan"], &[&bob, &pair]).await;
    let client = site.player_elsewhere("bob").await;
    let mut waiting = [enter(&client, "bob", 0).await, enter(&client, "bob", 5).await];
    // dan is in a match of the queue.
    let mut dan = enter(&site.player_elsewhere("dan").await, "dan", 7).await;
    let _opponent = enter(&site.player("eve").await, "eve", 7).await;
    wait_for_state(&mut dan, TicketState::Proposed).await;

    let started = host.start(&[team(true, &[]), team(false, &[&bob, &pair])]).await;
    assert_eq!(started.answer.unavailable_reservation_ids, std::slice::from_ref(&pair.id));
    assert_eq!(started.hosted.parties.len(), 2);
    for ticket in &mut waiting {
        let ended = wait_for_state(ticket, TicketState::Ended).await;
        assert_eq!(ended.end_reason(), TicketEndReason::MatchedElsewhere);
    }
    let ticket = own_ticket(&site, "bob", started.id()).await;
    assert_eq!(dan.heartbeat().await.expect("heartbeat").state(), TicketState::Proposed, "dan stays in the match");
    host.client.end_match(end_of(&started)).await.expect("end");
    drop(ticket);
    assert_reason(host.try_start(&[team(true, &[]), team(false, &[&pair])]).await, "PLAYER_UNAVAILABLE");
    site.shut_down().await;
}

/// A consent that its player has revoked after the reservation keeps the seat, as everywhere. The player leaves by the own seat,
/// and is in no match then, although the party's leader plays.
async fn player_who_takes_the_consent_back_leaves_by_the_own_seat(site: PartySite) {
    let host = Host::player(&site, "ann").await;
    let pair = reserve_pair(&site, &host, "cat", "dan").await;
    host.seat(&["ann", "cat", "dan"], &[&pair]).await;
    site.player_elsewhere("dan").await.release_own_seat(host.id()).await.expect("leave");
    let started = host.start(&[team(true, &[]), team(false, &[&pair])]).await;
    let players: Vec<usize> = started.hosted.parties.iter().map(|party| party.players.len()).collect();
    assert_eq!(players, [1, 1]);
    own_ticket(&site, "cat", started.id()).await;
    let dan = site.player_elsewhere("dan").await;
    assert!(dan.own_tickets_and_cooldowns().await.expect("mine").0.is_empty());

    // The peer host leaves: the match is over, and the others may report.
    let mut ann = own_ticket(&site, "ann", started.id()).await;
    assert!(ann.leave().await.expect("leave"));
    let client = site.player_elsewhere("cat").await;
    wait_until("the match has ended for cat", async || {
        let own = client.own_tickets_and_cooldowns().await.expect("mine").0;
        assert_eq!(own.len(), 1, "the ticket stays in the list while its report is awaited");
        own[0].status.state() == TicketState::Ended
    })
    .await;
    site.shut_down().await;
}

/// A friend of the host, who reserved no seat, plays with a consent for each match. A revoked consent is refused, as is one that
/// another match has taken; the retry of the same start is not.
async fn friend_of_the_host_consents_to_each_match(site: PartySite) {
    let host = Host::player(&site, "ann").await;
    let bob = reserve(&site, &host, "bob").await;
    host.update(&[&bob], &[]).await;
    let teams = [team(true, &[]), team(false, &[&bob])];
    let with_fay = |token: &[u8], key: &str| {
        let fay = pb::PlayerData { user_id: "fay".into(), consent_token: token.to_vec(), ..Default::default() };
        pb::MatchmakingStartMatchRequest { host_party: vec![fay], ..host.start_request(&teams, key) }
    };
    let revoked = site.consent("fay", "ann", false, pb::ConsentUse::Search).await;
    site.player_elsewhere("fay").await.revoke_party_consent(&revoked).await.expect("revoke");
    assert_fields(host.client.start_match(with_fay(&revoked, "")).await, &["host_party[0].consent_token"]);
    let for_queues = site.consent("fay", "ann", false, pb::ConsentUse::Queue).await;
    assert_fields(host.client.start_match(with_fay(&for_queues, "")).await, &["host_party[0].consent_token"]);

    let token = site.consent("fay", "ann", true, pb::ConsentUse::Search).await;
    let request = with_fay(&token, "the first match");
    let started = Started::new(host.client.start_match(request.clone()).await.expect("start"));
    assert_eq!(started.hosted.parties[0].players.len(), 2);
    let mut fay = own_ticket(&site, "fay", started.id()).await;
    assert_eq!(Started::new(host.client.start_match(request).await.expect("retry")).id(), started.id());
    let mut ann = own_ticket(&site, "ann", started.id()).await;
    assert!(
        ann.leave_for_players(vec!["fay".into()]).await.is_err(),
        "fay answers alone, although the consent says may_answer"
    );
    fay.leave().await.expect("leave");
    ann.end_match(started.id(), false).await.expect("end");
    assert_fields(host.client.start_match(with_fay(&token, "")).await, &["host_party[0].consent_token"]);
    site.shut_down().await;
}

on_each_store! {
    friend_of_the_host_consents_to_each_match, rooms_ruleset(),
        session_match_has_friends_of_the_host_by_consent_on_sqlite, session_match_has_friends_of_the_host_by_consent_on_postgres;
    player_leaves_without_a_cooldown, rooms_with_queue(),
        session_match_is_left_without_a_cooldown_on_sqlite, session_match_is_left_without_a_cooldown_on_postgres;
    session_match_ends_waiting_tickets_and_leaves_busy_players_out, rooms_with_queue(),
        session_match_and_queues_share_players_on_sqlite, session_match_and_queues_share_players_on_postgres;
    player_who_takes_the_consent_back_leaves_by_the_own_seat, rooms_ruleset(),
        session_match_has_no_player_who_left_the_session_on_sqlite, session_match_has_no_player_who_left_the_session_on_postgres;
}
