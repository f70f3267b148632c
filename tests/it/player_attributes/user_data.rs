//! Attributes and roles of a player in exports, and after an erasure.

use fireteam_client::pb;

use crate::player_attributes::fixture::{advertise, enter, found, list, number, player};
use crate::support::generated_client as wire;
use crate::support::party_site::{PartySite, by_operator, on_each_store};
use crate::support::queue_server::{SET_ID, operator_client, wait_until};

fn lobby() -> String {
    format!(
        r#"<Ruleset Name="Lobby" SetId="{SET_ID}">
  <Attributes>
    <Attribute Name="skill" Type="number" Trust="client"/>
    <Attribute Name="damage" Type="number" PartyAggregation="max" Trust="client"/>
    <Attribute Name="characters" Type="string_list" PartyAggregation="union" MissingMember="skip" Trust="client"/>
  </Attributes>
  <HardFilters><Range Name="damage" Attribute="damage" Max="500" Missing="refuse"/></HardFilters>
  <Teams Count="2" Size="2"><Role Name="tank" PerTeam="1"/></Teams>
  <Queue PassIntervalMs="10"/>
</Ruleset>"#
    )
}

/// Export of a user, read at the last server.
async fn export(site: &PartySite, user: &str) -> wire::ExportUserResponse {
    let request = wire::ExportUserRequest { user_id: user.to_owned(), ..Default::default() };
    let mut operator = operator_client(site.servers.last().expect("a server")).await;
    operator.export_user(by_operator(site, request)).await.expect("an export").into_inner()
}

/// An export has what was said of the user, and not of the party's other players. An erasure removes it, and the session's value
/// is then that of a session with a missing member.
async fn export_and_erasure_know_attributes_of_players(mut site: PartySite) {
    let backend = site.backend().await;
    let ann = pb::PlayerData {
        roles: vec!["tank".to_owned()],
        ..player("ann", &[("characters", list(&["knight", "monk"])), ("damage", number(400.0))])
    };
    let bob = player("bob", &[("damage", number(300.0))]);
    backend.enter_queue(enter(&[ann.clone(), bob.clone()])).await.expect("enter");
    backend.advertise(advertise(&[ann, bob], 2)).await.expect("advertise");
    let sam = [player("sam", &[("damage", number(1.0))])];
    let searcher = site.player_elsewhere("sam").await;
    wait_until("the session is found", async || found(&searcher, &sam).await.0 == 1).await;

    let mut of_ann = wire::ExportUserResponse::default();
    wait_until("the export has both", async || {
        of_ann = export(&site, "ann").await;
        [of_ann.tickets.len(), of_ann.advertisements.len()] == [1, 1]
    })
    .await;
    let expected = ["characters=knight,monk", "damage=400"];
    assert_eq!(of_ann.tickets[0].player_attributes, expected);
    assert_eq!(of_ann.advertisements[0].player_attributes, expected);
    assert_eq!(of_ann.tickets[0].wanted_roles, ["tank"]);
    assert_eq!(of_ann.advertisements[0].wanted_roles, ["tank"]);
    let of_bob = export(&site, "bob").await;
    assert_eq!(of_bob.tickets[0].player_attributes, ["damage=300"]);
    assert!(of_bob.tickets[0].wanted_roles.is_empty());

    let request =
        wire::EraseUserRequest { user_id: "ann".to_owned(), reason: "request 4713".to_owned(), ..Default::default() };
    let mut operator = operator_client(&site.servers[0]).await;
    operator.erase_user(by_operator(&site, request)).await.expect("erased");
    let is_hidden = async |site: &PartySite| found(&site.player_elsewhere("sam").await, &sam).await;
    wait_until("the session lacks a member's value", async || is_hidden(&site).await == (0, vec!["damage".to_owned()]))
        .await;
    assert_eq!(export(&site, "bob").await.advertisements[0].player_attributes, ["damage=300"]);
    drop((backend, searcher));
    site.restart_first().await;
    assert_eq!(found(&site.player("sam").await, &sam).await, (0, vec!["damage".to_owned()]));
    site.shut_down().await;
}

on_each_store! {
    export_and_erasure_know_attributes_of_players, lobby(),
        export_and_erasure_know_attributes_of_players_on_sqlite,
        export_and_erasure_know_attributes_of_players_on_postgres;
}
