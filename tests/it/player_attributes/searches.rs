//! Attributes of players in searches and advertisements: the party's value is made of those who are there now.

use std::collections::BTreeMap;

use fireteam_client::{Client, pb};

use crate::player_attributes::fixture::{
    advertise, assert_field, flag, found, list, number, other_backend, party, player,
};
use crate::support::party_site::{PartySite, on_each_store};
use crate::support::queue_server::{SET_ID, wait_until};

/// A set that filters by attributes of players.
fn own_attributes() -> String {
    format!(
        r#"<Ruleset Name="Own" SetId="{SET_ID}">
  <Attributes>
    <Attribute Name="damage" Type="number" PartyAggregation="mean" Trust="client"/>
    <Attribute Name="level" Type="number" PartyAggregation="max" MissingMember="skip" Trust="client"/>
    <Attribute Name="muted" Type="bool" PartyAggregation="any" MissingMember="skip" Trust="client"/>
    <Attribute Name="maps" Type="string_list" PartyAggregation="intersection" Trust="client"/>
    <Attribute Name="characters" Type="string_list" PartyAggregation="union" Trust="client"/>
    <Attribute Name="veteran" Type="bool" PartyAggregation="all"/>
    <Attribute Name="mode" Type="string" Trust="client"/>
    <Attribute Name="nat_type" Type="number" Trust="client"/>
  </Attributes>
  <HardFilters>
    <Within Name="damage" Attribute="damage" Limit="100" Missing="refuse"/>
    <Within Name="level" Attribute="level" Limit="5"/>
    <Equal Name="muted" Attribute="muted"/>
    <Overlap Name="maps" Attribute="maps"/>
    <Equal Name="veteran" Attribute="veteran"/>
  </HardFilters>
  <Party Consent="assumed"/>
</Ruleset>"#
    )
}

/// Attribute that a player states.
type Stated = (&'static str, pb::attribute_value::Value);

/// A player of this mean damage, without other attributes.
fn fighter(name: &str, damage: f64) -> pb::PlayerData {
    player(name, &[("damage", number(damage))])
}

/// Waits until a searcher at the last server has this answer; searches see an update there a moment later.
async fn wait_for_found(client: &Client, players: &[pb::PlayerData], expected: (usize, &[&str])) {
    wait_until("the search has the expected answer", async || {
        let (candidates, rules) = found(client, players).await;
        candidates == expected.0 && rules == expected.1
    })
    .await;
}

/// A session's value is the aggregate of the players that its host lists now: one who leaves or joins changes it, at every
/// server, and after a restart. The searching party's is that of its own players.
async fn value_of_a_session_follows_its_players(mut site: PartySite) {
    let (host, searcher) = (site.player("hal").await, site.player_elsewhere("sam").await);
    let both = [fighter("hal", 100.0), fighter("ann", 300.0)];
    let mut session = host.advertise(advertise(&both, 4)).await.expect("advertise");
    wait_for_found(&searcher, &[fighter("sam", 290.0)], (1, &[])).await;
    let pair = [fighter("sam", 200.0), fighter("eve", 500.0)];
    wait_for_found(&searcher, &pair, (0, &["damage"])).await;

    session.replace_published(advertise(&both[..1], 5)).await.expect("ann leaves");
    wait_for_found(&searcher, &[fighter("sam", 290.0)], (0, &["damage"])).await;
    let guest = [fighter("hal", 100.0), fighter("gus", 400.0)];
    session.replace_published(advertise(&guest, 4)).await.expect("gus joins");
    wait_for_found(&searcher, &pair, (1, &[])).await;

    // A player without the attribute makes the session's value missing, which this filter refuses.
    let unknown = [fighter("hal", 100.0), player("gus", &[])];
    session.replace_published(advertise(&unknown, 4)).await.expect("update");
    wait_for_found(&searcher, &pair, (0, &["damage"])).await;
    session.replace_published(advertise(&guest, 4)).await.expect("update");
    wait_for_found(&searcher, &pair, (1, &[])).await;

    drop((session, host, searcher));
    site.restart_first().await;
    let searcher = site.player("sam").await;
    wait_for_found(&searcher, &pair, (1, &[])).await;
    wait_for_found(&searcher, &[fighter("sam", 100.0)], (0, &["damage"])).await;
    site.shut_down().await;
}

/// Each function, with and without a missing member, against the definition.
async fn each_aggregate_decides_who_is_found(site: PartySite) {
    let (host, searcher) = (site.player("hal").await, site.player("sam").await);
    let ten = || ("damage", number(10.0));
    let of_host = [
        player("hal", &[ten(), ("level", number(3.0)), ("muted", flag(false)), ("maps", list(&["a", "b"]))]),
        player("ann", &[ten(), ("muted", flag(true)), ("maps", list(&["b", "c"]))]),
    ];
    let request = advertise(&of_host, 4);
    host.advertise(request).await.expect("advertise");
    // Sessions that differ in an attribute that must be equal are in other partitions, which no refusal counts.
    let cases: [(&[Stated], &[Stated], &[&str]); 8] = [
        (&[], &[], &[]),
        // The largest level counts, of those who have one.
        (&[("level", number(8.0))], &[], &[]),
        (&[("level", number(9.0))], &[], &["level"]),
        (&[("level", number(9.0))], &[("level", number(1.0))], &["level"]),
        // One of the host's players is muted, so the session is.
        (&[("muted", flag(false))], &[("muted", flag(true))], &[]),
        (&[("muted", flag(false))], &[], &["partition"]),
        // Only the map that both of the host's players have counts; and of the searchers' only what both have.
        (&[("maps", list(&["b", "c"]))], &[("maps", list(&["a", "b"]))], &[]),
        (&[("maps", list(&["b", "c"]))], &[("maps", list(&["a", "c"]))], &["maps"]),
    ];
    for (first, second, refusing) in cases {
        let with = |name: &str, more: &[Stated]| player(name, &[&[ten()], more].concat());
        let (candidates, rules) = found(&searcher, &[with("sam", first), with("eve", second)]).await;
        let counted: Vec<&str> = refusing.iter().copied().filter(|rule| *rule != "partition").collect();
        assert_eq!(rules, counted, "{first:?} {second:?}");
        assert_eq!(candidates, usize::from(refusing.is_empty()));
    }
    site.shut_down().await;
}

/// SEC-6: a value that only game servers may set is ignored from a player's client, is listed, and has no effect; from a game
/// server it counts.
async fn untrusted_attribute_of_a_player_is_ignored(site: PartySite) {
    let (backend, other) = (site.backend().await, other_backend(&site).await);
    let veteran =
        |name: &str, is_veteran: bool| player(name, &[("damage", number(10.0)), ("veteran", flag(is_veteran))]);
    let request = advertise(&[veteran("hal", true), veteran("ann", true)], 4);
    assert!(backend.advertise(request).await.expect("advertise").id().len() == 32);
    wait_for_found(&other, &[veteran("eve", true)], (1, &[])).await;
    assert_eq!(found(&other, &[veteran("eve", false)]).await.0, 0, "another partition");
    let liar = site.player_elsewhere("sam").await;
    let answer = liar.new_search(SET_ID, party(&[veteran("sam", false)])).search().await.expect("search");
    assert_eq!(answer.ignored_fields, [r#"session_composition.players[0].attributes["veteran"]"#]);
    assert_eq!(answer.candidates.len(), 1, "as if nothing was stated: {answer:?}");
    site.shut_down().await;
}

/// Invalid attributes of players are refused by the path of their field, in every call.
async fn invalid_attributes_of_players_name_their_field(site: PartySite) {
    let client = site.player("sam").await;
    let long: Vec<String> = (0..20).map(|number| format!("hero {number}")).collect();
    let other: Vec<String> = (20..40).map(|number| format!("hero {number}")).collect();
    let as_list = |texts: &[String]| list(&texts.iter().map(String::as_str).collect::<Vec<_>>());
    let cases = [
        (
            vec![player("sam", &[("rank", number(1.0))])],
            r#"players[0].attributes["rank"]"#,
            "use one of: damage, level",
        ),
        (vec![player("sam", &[("damage", flag(true))])], r#"players[0].attributes["damage"]"#, "has type bool"),
        (vec![player("sam", &[("mode", flag(true))])], r#"players[0].attributes["mode"]"#, "of the party"),
        (
            vec![player("sam", &[("nat_type", number(1.0))])],
            r#"players[0].attributes["nat_type"]"#,
            "own request field",
        ),
        (
            vec![player("sam", &[("characters", as_list(&long))]), player("eve", &[("characters", as_list(&other))])],
            "players",
            "have 40 different strings in `characters`; at most 32",
        ),
        (
            vec![pb::PlayerData { roles: vec!["tank".to_owned()], ..player("sam", &[]) }],
            "players[0].roles[0]",
            "has no <Role>",
        ),
        (
            vec![pb::PlayerData { roles: vec!["x".to_owned(); 17], ..player("sam", &[]) }],
            "players[0].roles",
            "17 entries; at most 16",
        ),
    ];
    for (players, field, message) in cases {
        let field = format!("session_composition.{field}");
        assert_field(client.new_search(SET_ID, party(&players)).search().await, &field, message);
        assert_field(client.advertise(advertise(&players, 4)).await.map(|made| made.id().to_owned()), &field, message);
    }
    let mut of_party = party(&[player("sam", &[])]);
    of_party.attributes =
        BTreeMap::from([("damage".to_owned(), pb::AttributeValue { value: Some(number(1.0)) })]).into_iter().collect();
    let refused = client.new_search(SET_ID, of_party).search().await;
    assert_field(refused, r#"session_composition.attributes["damage"]"#, "set it in players[].attributes");
    site.shut_down().await;
}

on_each_store! {
    value_of_a_session_follows_its_players, own_attributes(),
        value_of_a_session_follows_its_players_on_sqlite, value_of_a_session_follows_its_players_on_postgres;
    each_aggregate_decides_who_is_found, own_attributes(),
        each_aggregate_decides_who_is_found_on_sqlite, each_aggregate_decides_who_is_found_on_postgres;
    untrusted_attribute_of_a_player_is_ignored, own_attributes(),
        untrusted_attribute_of_a_player_is_ignored_on_sqlite, untrusted_attribute_of_a_player_is_ignored_on_postgres;
    invalid_attributes_of_players_name_their_field, own_attributes(),
        invalid_attributes_of_players_name_their_field_on_sqlite,
        invalid_attributes_of_players_name_their_field_on_postgres;
}
