//! Backfill of sessions whose players have attributes of their own.

use fireteam_client::{Client, Ticket, pb};
use pb::TicketState;

use crate::player_attributes::fixture::{advertise, enter, number, player, player_who_wants};
use crate::support::party_site::{PartySite, on_each_store, wait_for_state};
use crate::support::queue_server::{SET_ID, wait_until};

/// Two teams of two, whose parties are of similar level; the level of a party is the sum of its players'.
fn by_level() -> String {
    format!(
        r#"<Ruleset Name="Level" SetId="{SET_ID}">
  <Attributes>
    <Attribute Name="level" Type="number" PartyAggregation="sum" Trust="client"/>
    <Attribute Name="skill" Type="number" Trust="client"/>
    <Attribute Name="rank" Type="number" Trust="client"/>
  </Attributes>
  <HardFilters>
    <Within Name="level" Attribute="level" Limit="10" Missing="refuse"/>
    <Within Name="rank" Attribute="rank" Limit="1" Missing="refuse"/>
  </HardFilters>
  <Teams Count="2" Size="2"/>
  <Queue PassIntervalMs="10" Backfill="true"/>
  <Party Consent="assumed"/>
</Ruleset>"#
    )
}

fn of_level(name: &str, level: f64) -> pb::PlayerData {
    player(name, &[("level", number(level))])
}

/// The party says that its rank is this one.
fn with_rank(session: &mut Option<pb::SessionCompositionData>, rank: f64) {
    let value = pb::AttributeValue { value: Some(number(rank)) };
    session.as_mut().expect("a party").attributes.insert("rank".to_owned(), value);
}

/// Enters a player of this level and rank.
async fn enter_of_level(client: &Client, name: &str, level: f64, rank: f64) -> Ticket {
    let mut request = enter(&[of_level(name, level)]);
    with_rank(&mut request.session_composition, rank);
    client.enter_queue(request).await.expect("enter")
}

/// Guests who join in one pass are let in each by the values of the own party, as the pass did: together their levels are twice
/// as high, and they have no rank in common.
async fn guests_are_let_in_by_the_values_of_their_own_party(site: PartySite) {
    let backend = site.backend().await;
    // Both wait until the session is there, and are too few for a match.
    let mut guests =
        [enter_of_level(&backend, "ann", 95.0, 1.0).await, enter_of_level(&backend, "bob", 105.0, 2.0).await];
    let mut request = advertise(&[of_level("hal", 50.0), of_level("hob", 50.0)], 2);
    with_rank(&mut request.session_composition, 1.5);
    let host = site.host().await;
    let session = host.advertise(request).await.expect("advertise");
    site.servers[0].keep_hosting(host.clone(), session.token().to_vec());
    for guest in &mut guests {
        wait_for_state(guest, TicketState::Matched).await;
    }
    site.shut_down().await;
}

/// Two teams of three with a tank, a healer and a damage dealer, which sessions with open seats are filled to.
fn trinity() -> String {
    format!(
        r#"<Ruleset Name="Trinity" SetId="{SET_ID}">
  <Attributes><Attribute Name="skill" Type="number" Trust="client"/></Attributes>
  <Teams Count="2" Size="3">
    <Role Name="tank" PerTeam="1"/><Role Name="healer" PerTeam="1"/><Role Name="damage" PerTeam="1"/>
  </Teams>
  <Queue PassIntervalMs="10" Backfill="true"/>
  <Party Consent="assumed"/>
</Ruleset>"#
    )
}

/// A session of these players, each with a team and the roles that the host states, which has open seats.
fn session_of(players: &[(&str, u32, &[&str])], seats: i32) -> pb::MatchmakingUpdateAdvertisementRequest {
    let seated = |(name, team, roles): &(&str, u32, &[&str])| pb::PlayerData {
        team: Some(*team),
        ..player_who_wants(name, roles)
    };
    advertise(&players.iter().map(seated).collect::<Vec<_>>(), seats)
}

/// Team and role of a ticket's only player in its match.
async fn seat_of(ticket: &mut Ticket) -> (u32, String) {
    let mut found = wait_for_state(ticket, TicketState::Matched).await.found_match.expect("a match");
    (found.team, found.own_players.remove(0).team_role)
}

/// Waits until a pass has refused a ticket by the rule of roles, if it runs at the ticket's server.
async fn wait_for_refusal_by_roles(site: &PartySite, ticket: &mut Ticket) {
    if site.servers.len() > 1 {
        return;
    }
    wait_until("a pass refuses the ticket", async || {
        ticket.heartbeat().await.expect("heartbeat").blocking_rule == "role"
    })
    .await;
}

/// Enters a player who wants these roles.
async fn enter_who_wants(client: &Client, name: &str, roles: &[&str]) -> Ticket {
    client.enter_queue(enter(&[player_who_wants(name, roles)])).await.expect("enter")
}

/// Guests are seated in roles that are open, those that they want most first; who wants only a role that is taken waits. The host
/// states the roles of its players; a restart changes nothing.
async fn guests_are_seated_in_the_roles_that_are_open(mut site: PartySite) {
    let host = site.host().await;
    // In team 0 a damage dealer is missing, in team 1 a tank and one of the two others.
    let seated: [(&str, u32, &[&str]); 3] =
        [("ha", 0, &["tank"]), ("hb", 0, &["healer"]), ("hc", 1, &["healer", "damage"])];
    let token = host.advertise(session_of(&seated, 3)).await.expect("advertise").token().to_vec();
    drop(host);
    site.restart_first().await;
    site.servers[0].keep_hosting(site.host().await, token);
    let backend = site.backend().await;
    let mut healer = enter_who_wants(&backend, "gh", &["healer", "tank"]).await;
    // Team 0 has a healer. In team 1 the host's player can deal damage instead.
    assert_eq!(seat_of(&mut healer).await, (1, "healer".to_owned()));
    let mut second = enter_who_wants(&backend, "g2", &["healer"]).await;
    wait_for_refusal_by_roles(&site, &mut second).await;
    let mut dealer = enter_who_wants(&backend, "gt", &["damage", "tank"]).await;
    // Team 0 needs what this guest wants more.
    assert_eq!(seat_of(&mut dealer).await, (0, "damage".to_owned()));
    let mut last = enter_who_wants(&backend, "gl", &[]).await;
    assert_eq!(seat_of(&mut last).await, (1, "tank".to_owned()));
    assert_eq!(second.heartbeat().await.expect("heartbeat").state(), TicketState::Waiting);
    site.shut_down().await;
}

/// The roles of players in a match that a queue made are known without their host: one leaves, and the next guest plays the
/// role of the one who left, though the guest would rather play another.
async fn guest_takes_the_role_of_the_player_who_left(mut site: PartySite) {
    let backend = site.backend().await;
    let names = ["ta", "tb", "ha", "hb", "da", "db"];
    let roles = ["tank", "tank", "healer", "healer", "damage", "damage"];
    let mut tickets = Vec::new();
    for (name, role) in names.iter().zip(roles) {
        tickets.push(enter_who_wants(&backend, name, &[role]).await);
    }
    let mut teams = Vec::new();
    for ticket in &mut tickets {
        teams.push(seat_of(ticket).await.0);
    }
    assert!(tickets[0].leave().await.expect("the tank leaves"));
    let stated: Vec<(&str, u32, &[&str])> =
        names.iter().zip(&teams).skip(1).map(|(name, team)| (*name, *team, &[][..])).collect();
    let host = site.host().await;
    let token = host.advertise(session_of(&stated, 1)).await.expect("advertise").token().to_vec();
    drop((tickets, backend, host));
    site.restart_first().await;
    site.servers[0].keep_hosting(site.host().await, token);
    let backend = site.backend().await;
    let mut dealer = enter_who_wants(&backend, "gd", &["damage", "healer"]).await;
    wait_for_refusal_by_roles(&site, &mut dealer).await;
    let mut guest = enter_who_wants(&backend, "gg", &["damage", "healer", "tank"]).await;
    assert_eq!(seat_of(&mut guest).await, (teams[0], "tank".to_owned()));
    assert_eq!(dealer.heartbeat().await.expect("heartbeat").state(), TicketState::Waiting, "it was asked first");
    site.shut_down().await;
}

on_each_store! {
    guests_are_seated_in_the_roles_that_are_open, trinity(),
        guests_are_seated_in_the_roles_that_are_open_on_sqlite, guests_are_seated_in_the_roles_that_are_open_on_postgres;
    guest_takes_the_role_of_the_player_who_left, trinity(),
        guest_takes_the_role_of_the_player_who_left_on_sqlite, guest_takes_the_role_of_the_player_who_left_on_postgres;
    guests_are_let_in_by_the_values_of_their_own_party, by_level(),
        guests_are_let_in_by_the_values_of_their_own_party_on_sqlite,
        guests_are_let_in_by_the_values_of_their_own_party_on_postgres;
}
