//! Roles that players want: parties are seated in them, the most wanted first, and an impossible party is refused.

use fireteam_client::{Client, Ticket, pb};
use pb::TicketState;

use crate::player_attributes::fixture::{assert_field, enter, list, player, player_who_wants};
use crate::support::party_site::{PartySite, on_each_store, wait_for_rule, wait_for_state};
use crate::support::queue_server::SET_ID;

/// Two teams of three with a tank, a healer and a damage dealer; `role_attribute` is an attribute of `<Teams>`, or nothing.
fn trinity(attributes: &str, role_attribute: &str) -> String {
    format!(
        r#"<Ruleset Name="Trinity" SetId="{SET_ID}">
  <Attributes><Attribute Name="skill" Type="number" Trust="client"/>{attributes}</Attributes>
  <Teams Count="2" Size="3" {role_attribute}>
    <Role Name="tank" PerTeam="1"/><Role Name="healer" PerTeam="1"/><Role Name="damage" PerTeam="1"/>
  </Teams>
  <Queue PassIntervalMs="10"/>
  <Party Consent="assumed"/>
</Ruleset>"#
    )
}

/// Roles of a ticket's players in its match, in their order.
async fn roles_of(ticket: &mut Ticket) -> Vec<String> {
    let found = wait_for_state(ticket, TicketState::Matched).await.found_match.expect("a match");
    found.own_players.into_iter().map(|player| player.team_role).collect()
}

/// Enters parties, each later than the one before.
async fn enter_all(site: &PartySite, client: &Client, parties: &[&[pb::PlayerData]]) -> Vec<Ticket> {
    let mut tickets = Vec::new();
    for players in parties {
        tickets.push(client.enter_queue(enter(players)).await.expect("enter"));
        site.clock.advance_ms(10);
    }
    tickets
}

/// A healer and a tank of one party are seated as such; players with several wishes get the first one that the team can give;
/// who has none takes what is left. The roles are stored with the ticket: a restart between the entries changes nothing.
async fn party_is_seated_in_the_roles_that_its_players_want(mut site: PartySite) {
    let wants = player_who_wants;
    let first = site.backend().await.enter_queue(enter(&[wants("tan", &["tank"]), wants("hea", &["healer"])])).await;
    let first = first.expect("enter").reference();
    site.restart_first().await;
    let backend = site.backend().await;
    let parties: [&[pb::PlayerData]; 3] = [
        &[wants("dan", &["damage", "healer"]), wants("eve", &["damage", "tank"])],
        &[wants("fay", &["damage", "tank", "healer"])],
        &[player("gus", &[])],
    ];
    let mut tickets = enter_all(&site, &backend, &parties).await;
    let mut own = roles_of(&mut tickets[0]).await;
    // Four want damage or have no wish, and there are two places for it: one of them in each team.
    for ticket in &mut tickets[1..] {
        own.extend(roles_of(ticket).await);
    }
    let request = pb::QueueHeartbeatRequest { tickets: vec![first], ..Default::default() };
    let status = backend.heartbeat_tickets(request).await.expect("heartbeat").statuses.remove(0);
    let of_first: Vec<String> =
        status.found_match.expect("a match").own_players.into_iter().map(|player| player.team_role).collect();
    // Without wishes, the first player would heal.
    assert_eq!(of_first, ["tank", "healer"]);
    own.sort();
    assert_eq!(own, ["damage", "damage", "healer", "tank"]);
    site.shut_down().await;
}

/// Players who want the same roles wait, and their status names the rule; when others come, the first tickets match. Without a
/// look at roles, the nearest tickets would fill the match over and over.
async fn status_names_the_roles_until_others_come(site: PartySite) {
    let backend = site.backend().await;
    let names = ["da", "db", "dc", "dd", "de", "df"];
    let dealers: Vec<[pb::PlayerData; 1]> = names.map(|name| [player_who_wants(name, &["damage"])]).into();
    let dealers: Vec<&[pb::PlayerData]> = dealers.iter().map(|party| &party[..]).collect();
    let mut tickets = enter_all(&site, &backend, &dealers).await;
    wait_for_rule(&site, "da", "role").await;
    let wants = player_who_wants;
    let others =
        [[wants("ta", &["tank"])], [wants("tb", &["tank"])], [wants("ha", &["healer"])], [wants("hb", &["healer"])]];
    let others: Vec<&[pb::PlayerData]> = others.iter().map(|party| &party[..]).collect();
    let mut others = enter_all(&site, &backend, &others).await;
    for ticket in &mut others {
        wait_for_state(ticket, TicketState::Matched).await;
    }
    for ticket in &mut tickets[..2] {
        assert_eq!(roles_of(ticket).await, ["damage"]);
    }
    assert_eq!(tickets[2].heartbeat().await.expect("heartbeat").state(), TicketState::Waiting);
    site.shut_down().await;
}

/// Impossible wishes are refused at once, by the field: an unknown role, a role twice, and a party that fits into no team.
async fn impossible_roles_are_refused_when_the_party_enters(site: PartySite) {
    let wants = player_who_wants;
    let backend = site.backend().await;
    let cases = [
        (
            vec![wants("ann", &["tank", "cook"])],
            "players[0].roles[1]",
            "use a role of ruleset `Trinity`: tank, healer, damage",
        ),
        (vec![wants("ann", &["tank", "tank"])], "players[0].roles[1]", "is listed twice"),
        (vec![wants("ann", &[""])], "players[0].roles[0]", "is missing"),
        (vec![wants("ann", &["tank"]), wants("bob", &["tank"])], "players", "want roles that no team has together"),
    ];
    for (players, field, message) in cases {
        let refused = backend.enter_queue(enter(&players)).await.map(|ticket| ticket.id().to_owned());
        assert_field(refused, &format!("session_composition.{field}"), message);
    }
    backend.enter_queue(enter(&[wants("ann", &["tank", "healer"]), wants("bob", &["tank"])])).await.expect("enter");
    site.shut_down().await;
}

/// Trust in the roles of parties holds for those of players: here, only game servers may state them.
async fn untrusted_roles_of_players_are_ignored(site: PartySite) {
    let ann = site.player("ann").await;
    // No team has two tanks, so the wish would be refused if it counted.
    let players = [player_who_wants("ann", &["tank"]), player_who_wants("bob", &["tank"])];
    let mut ticket = ann.enter_queue(enter(&players)).await.expect("enter");
    let ignored = [0, 1].map(|index| format!("session_composition.players[{index}].roles"));
    assert_eq!(ticket.ignored_fields, ignored);
    assert!(ticket.leave().await.expect("leave"));
    let refused = site.backend().await.enter_queue(enter(&players)).await.map(|ticket| ticket.id().to_owned());
    assert_field(refused, "session_composition.players", "want roles that no team has together");
    site.shut_down().await;
}

/// A party whose attribute offers only what no team can use of all its players is refused as well, instead of waiting for ever.
async fn party_that_offers_too_few_roles_is_refused(site: PartySite) {
    let backend = site.backend().await;
    let offering = |roles: &[&str], players: &[pb::PlayerData]| {
        let mut request = enter(players);
        let value = pb::AttributeValue { value: Some(list(roles)) };
        request.session_composition.as_mut().expect("a party").attributes.insert("offers".to_owned(), value);
        request
    };
    let pair = [player("ann", &[]), player("bob", &[])];
    let refused = backend.enter_queue(offering(&["tank"], &pair)).await.map(|ticket| ticket.id().to_owned());
    assert_field(refused, r#"session_composition.attributes["offers"]"#, "that no team has for all players");
    // One wants to be the tank, and the other offers nothing else.
    let mixed = [player_who_wants("ann", &["tank"]), player("bob", &[])];
    let refused = backend.enter_queue(offering(&["tank"], &mixed)).await.map(|ticket| ticket.id().to_owned());
    assert_field(refused, "session_composition.players", "want roles that no team has together");
    backend.enter_queue(offering(&["tank", "damage"], &mixed)).await.expect("enter");
    site.shut_down().await;
}

/// Four players who tank are divided between two teams of twelve, also if the even split of the ratings begins with three of them
/// in one team.
async fn few_tanks_are_divided_between_large_teams(site: PartySite) {
    let backend = site.backend().await;
    let mut tickets = Vec::new();
    for index in 0..24 {
        let (role, skill) = match index {
            0 => ("tank", 100.0),
            1..4 => ("tank", 30.0),
            _ => ("damage", 1.0),
        };
        let one = pb::PlayerData { skill: Some(skill), ..player_who_wants(&format!("p{index}"), &[role]) };
        tickets.push(backend.enter_queue(enter(&[one])).await.expect("enter"));
    }
    let mut tanks = [0; 2];
    for ticket in &mut tickets {
        let found = wait_for_state(ticket, TicketState::Matched).await.found_match.expect("a match");
        tanks[found.team as usize] += usize::from(found.own_players[0].team_role == "tank");
    }
    assert_eq!(tanks, [2, 2]);
    site.shut_down().await;
}

/// Two teams of twelve with two tanks each.
fn large_teams() -> String {
    let teams =
        r#"<Teams Count="2" Size="12"><Role Name="tank" PerTeam="2"/><Role Name="damage" PerTeam="1"/></Teams>"#;
    let trinity = trinity("", "");
    let (before, rest) = trinity.split_once("<Teams").expect("teams");
    let (_, after) = rest.split_once("</Teams>").expect("teams");
    format!("{before}{teams}{after}")
}

on_each_store! {
    party_that_offers_too_few_roles_is_refused,
        trinity(r#"<Attribute Name="offers" Type="string_list"/>"#, r#"RoleAttribute="offers""#),
        party_that_offers_too_few_roles_is_refused_on_sqlite, party_that_offers_too_few_roles_is_refused_on_postgres;
    few_tanks_are_divided_between_large_teams, large_teams(),
        few_tanks_are_divided_between_large_teams_on_sqlite, few_tanks_are_divided_between_large_teams_on_postgres;
    status_names_the_roles_until_others_come, trinity("", ""),
        status_names_the_roles_until_others_come_on_sqlite, status_names_the_roles_until_others_come_on_postgres;
    impossible_roles_are_refused_when_the_party_enters, trinity("", ""),
        impossible_roles_are_refused_when_the_party_enters_on_sqlite,
        impossible_roles_are_refused_when_the_party_enters_on_postgres;
    untrusted_roles_of_players_are_ignored,
        trinity(r#"<Attribute Name="offers" Type="string_list"/>"#, r#"RoleAttribute="offers""#),
        untrusted_roles_of_players_are_ignored_on_sqlite, untrusted_roles_of_players_are_ignored_on_postgres;
}

/// S3-11: each player states the roles to play in, and is seated in one of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn party_is_seated_in_the_roles_that_its_players_want_on_sqlite() {
    party_is_seated_in_the_roles_that_its_players_want(PartySite::on_sqlite(&trinity("", "")).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn party_is_seated_in_the_roles_that_its_players_want_on_postgres() {
    let test = "party_is_seated_in_the_roles_that_its_players_want_on_postgres";
    if let Some(site) = PartySite::on_postgres(test, &trinity("", "")).await {
        party_is_seated_in_the_roles_that_its_players_want(site).await;
    }
}
