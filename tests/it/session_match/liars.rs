//! Hosts that lie about their sessions, and callers that are not the host.

use fireteam_client::pb;

use crate::session_match::fixture::{
    Host, Started, assert_fields, assert_reason, has_no_match, reserve, reserve_pair, rooms_ruleset, session_of, team,
};
use crate::support::party_site::{PartySite, on_each_store};

/// Each lie is refused with its field or reason, and starts nothing.
async fn lies_of_hosts_are_refused(site: PartySite) {
    let (host, other) = (Host::player(&site, "ann").await, Host::player(&site, "zoe").await);
    let (bob, held) = (reserve(&site, &host, "bob").await, reserve(&site, &host, "cat").await);
    let elsewhere = reserve(&site, &other, "dan").await;
    host.update(&[&bob], &[]).await;
    other.update(&[&elsewhere], &[]).await;

    // Reservations that only hold seats, of another session, twice, or of no session.
    let refused = host.try_start(&[team(true, &[]), team(false, &[&held])]).await;
    assert_fields(refused, &["teams[1].reservation_ids[0]"]);
    let refused = host.try_start(&[team(true, &[&bob]), team(false, &[&elsewhere])]).await;
    assert_fields(refused, &["teams[1].reservation_ids[0]"]);
    let refused = host.try_start(&[team(true, &[&bob, &bob]), team(false, &[&bob])]).await;
    assert_fields(refused, &["teams[0].reservation_ids[1]", "teams[1].reservation_ids[0]"]);
    let mut invalid = team(true, &[&bob]);
    invalid.reservation_ids.push("bob".into());
    assert_fields(host.try_start(&[invalid]).await, &["teams[0].reservation_ids[1]"]);

    // A team without the host's party, in two teams, or by a game server.
    assert_fields(host.try_start(&[team(false, &[&bob])]).await, &["teams"]);
    assert_fields(host.try_start(&[team(true, &[]), team(true, &[&bob])]).await, &["teams[1].host_party"]);
    assert_fields(host.try_start(&[]).await, &["teams"]);
    let server = Host::game_server(&site).await;
    assert_fields(server.try_start(&[team(true, &[])]).await, &["teams[0].host_party"]);
    // A stranger, or the player of a reservation that only holds seats, as a friend of the host.
    for name in ["eve", "cat"] {
        let mut request = host.start_request(&[team(true, &[&bob])], "");
        request.host_party.push(pb::PlayerData { user_id: name.into(), ..Default::default() });
        assert_fields(host.client.start_match(request).await, &["host_party[0].consent_token"]);
    }
    let mut request = host.start_request(&[team(true, &[&bob])], "");
    request.host_party.push(pb::PlayerData { user_id: "ann".into(), ..Default::default() });
    assert_fields(host.client.start_match(request).await, &["host_party[0].user_id"]);
    let refused = host.try_start(&[team(true, &[]), team(false, &[])]).await;
    assert_reason(refused, "PLAYER_UNAVAILABLE");

    // A stranger with the host's token, a host with the token of another session, and a forged one.
    let request = host.start_request(&[team(true, &[&bob])], "");
    assert_reason(site.player("eve").await.start_match(request.clone()).await, "NOT_OWNER");
    let swapped = pb::MatchmakingStartMatchRequest { advertisement_token: other.token(), ..request.clone() };
    assert_reason(host.client.start_match(swapped).await, "NOT_OWNER");
    let forged = pb::MatchmakingStartMatchRequest { advertisement_token: vec![1; 80], ..request.clone() };
    assert_reason(host.client.start_match(forged).await, "NOT_OWNER");
    for name in ["ann", "bob", "cat", "dan"] {
        assert!(has_no_match(&site.player_elsewhere(name).await).await, "{name} is in no match");
    }
    site.shut_down().await;
}

/// The list of players brings no one in: neither someone who only held a seat, nor someone who has left. Strangers cannot even
/// be listed.
async fn list_of_players_brings_no_one_in(site: PartySite) {
    let host = Host::player(&site, "ann").await;
    let (bob, cat) = (reserve(&site, &host, "bob").await, reserve(&site, &host, "cat").await);
    host.wait_for_reservations(&[&bob, &cat]).await;
    host.seat(&["ann", "bob", "cat"], &[&bob]).await;
    site.player_elsewhere("bob").await.release_own_seat(host.id()).await.expect("bob leaves");
    let mut stranger = session_of(&["ann", "bob", "cat", "eve"]);
    stranger.advertisement_id = host.id().to_owned();
    stranger.advertisement_token = host.token();
    assert_fields(host.client.update_advertisement(stranger).await, &["session_composition.players[3].consent_token"]);
    let started = host.start(&[team(true, &[])]).await;
    let players: usize = started.hosted.parties.iter().map(|party| party.players.len()).sum();
    assert_eq!(players, 1, "only the host: {started:?}");
    for name in ["bob", "cat"] {
        assert!(has_no_match(&site.player_elsewhere(name).await).await, "{name} is in no match");
    }
    site.shut_down().await;
}

/// The same key returns the same match, at each server and after a restart; with other teams it is refused. Later matches do not
/// change the answer.
async fn retry_returns_the_same_match(mut site: PartySite) {
    let mut host = Host::player(&site, "ann").await;
    let (bob, pair) = (reserve(&site, &host, "bob").await, reserve_pair(&site, &host, "cat", "dan").await);
    host.seat(&["ann", "bob", "cat", "dan"], &[&bob, &pair]).await;
    let teams = [team(true, &[&bob]), team(false, &[&pair])];
    let request = host.start_request(&teams, "match one");
    let first = Started::new(host.client.start_match(request.clone()).await.expect("start"));
    let again = Started::new(site.player_elsewhere("ann").await.start_match(request.clone()).await.expect("again"));
    assert_eq!((&again.hosted, &again.answer.ticket_id), (&first.hosted, &first.answer.ticket_id));
    for teams in [vec![team(true, &[&bob])], vec![team(true, &[&pair]), team(false, &[&bob])]] {
        let other = host.start_request(&teams, "match one");
        assert_reason(host.client.start_match(other).await, "IDEMPOTENCY_KEY_REUSED");
    }
    assert_reason(host.try_start(&teams).await, "ALREADY_IN_MATCH");
    site.restart_first().await;
    host.client = site.player("ann").await;
    // Also after the advertisement is gone.
    let delete = pb::MatchmakingDeleteAdvertisementRequest {
        advertisement_id: host.id().to_owned(),
        advertisement_token: host.token(),
    };
    host.client.delete_advertisement(delete).await.expect("delete");
    let again = Started::new(host.client.start_match(request).await.expect("again"));
    assert_eq!((again.id(), again.hosted.parties.len()), (first.id(), 3));
    let refused = host.try_start(&teams).await;
    assert_reason(refused, "ADVERTISEMENT_NOT_FOUND");
    site.shut_down().await;
}

on_each_store! {
    lies_of_hosts_are_refused, rooms_ruleset(),
        session_match_refuses_lies_of_hosts_on_sqlite, session_match_refuses_lies_of_hosts_on_postgres;
    list_of_players_brings_no_one_in, rooms_ruleset(),
        session_match_has_no_player_who_is_only_listed_on_sqlite, session_match_has_no_player_who_is_only_listed_on_postgres;
    retry_returns_the_same_match, rooms_ruleset(),
        session_match_start_is_idempotent_on_sqlite, session_match_start_is_idempotent_on_postgres;
}
