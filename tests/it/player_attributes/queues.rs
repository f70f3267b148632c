//! Attributes of players in queues: filters, restarts, repeated requests, game servers, and the search for one.

use fireteam_client::pb;
use pb::TicketState;

use crate::player_attributes::fixture::{advertise, enter, flag, list, number, player};
use crate::support::party_site::{PartySite, on_each_store, reason, wait_for_rule, wait_for_state};
use crate::support::queue_server::SET_ID;

/// Pairs against pairs, whose mean damage is similar; on game servers that have the characters.
fn pairs_by_damage() -> String {
    format!(
        r#"<Ruleset Name="Damage" SetId="{SET_ID}">
  <Attributes>
    <Attribute Name="skill" Type="number" Trust="client"/>
    <Attribute Name="damage" Type="number" PartyAggregation="mean" Trust="client"/>
    <Attribute Name="characters" Type="string_list" PartyAggregation="union" Trust="client"/>
    <Attribute Name="cheater" Type="bool" PartyAggregation="any" MissingMember="skip"/>
  </Attributes>
  <HardFilters>
    <Within Name="damage" Attribute="damage" Limit="100"/>
    <Overlap Name="characters" Attribute="characters" Missing="refuse"/>
    <Equal Name="cheater" Attribute="cheater"/>
  </HardFilters>
  <Teams Count="2" Size="2"/>
  <Queue PassIntervalMs="10"/>
  <Hosting Mode="game_server" AllocationTimeoutMs="60000" ConfirmMs="60000" Tell="attributes"/>
  <Rating System="elo"/>
</Ruleset>"#
    )
}

fn fighter(name: &str, damage: f64, character: &str) -> pb::PlayerData {
    player(name, &[("damage", number(damage)), ("characters", list(&[character]))])
}

/// Two pairs of similar mean damage match, though no two of their players are similar; a restart between their entries
/// changes nothing. The game server must have a character of a player, and hears what each player said.
async fn pairs_match_by_the_mean_of_their_players(mut site: PartySite) {
    let server = advertise(&[player("dedicated", &[("characters", list(&["knight"]))])], 4);
    let server = pb::MatchmakingUpdateAdvertisementRequest { kind: pb::AdvertisementKind::GameServer.into(), ..server };
    let backend = site.backend().await;
    let pair = [fighter("ann", 10.0, "monk"), fighter("bob", 800.0, "knight")];
    let first = backend.enter_queue(enter(&pair)).await.expect("enter");
    let pair = [fighter("cid", 600.0, "monk"), fighter("dan", 800.0, "monk")];
    let far = backend.enter_queue(enter(&pair)).await.expect("enter");
    wait_for_rule(&site, "cid", "damage").await;
    let [first, far] = [first, far].map(|ticket| ticket.reference());
    drop(backend);
    site.restart_first().await;
    let backend = site.backend().await;
    let mut third = backend
        .enter_queue(enter(&[fighter("eve", 350.0, "monk"), fighter("fay", 500.0, "bard")]))
        .await
        .expect("enter");
    wait_for_state(&mut third, TicketState::Placing).await;
    let answer =
        backend.heartbeat_tickets(pb::QueueHeartbeatRequest { tickets: vec![first, far], ..Default::default() }).await;
    let states: Vec<TicketState> = answer.expect("heartbeat").statuses.iter().map(|status| status.state()).collect();
    assert_eq!(states, [TicketState::Placing, TicketState::Waiting], "the pair of 700 still waits");

    let wrong = advertise(&[player("other", &[("characters", list(&["cook"]))])], 4);
    let wrong = pb::MatchmakingUpdateAdvertisementRequest { kind: server.kind, ..wrong };
    backend.advertise(wrong).await.expect("advertise");
    let host = backend.advertise(server).await.expect("advertise");
    site.servers[0].keep_hosting(site.backend().await, host.token().to_vec());
    let found = wait_for_state(&mut third, TicketState::Matched).await.found_match.expect("a match");
    let beat = pb::QueueHostHeartbeatRequest {
        advertisement_token: host.token().to_vec(),
        matches: vec![pb::HostedMatchBeat { match_id: found.match_id.clone(), ..Default::default() }],
    };
    let hosted = backend.host_heartbeat(beat).await.expect("heartbeat").matches.remove(0);
    let mut damages: Vec<f64> = Vec::new();
    for player in hosted.parties.iter().flat_map(|party| &party.players) {
        let value = player.attributes["damage"].value.clone();
        let Some(pb::attribute_value::Value::NumberValue(damage)) = value else { panic!("a number: {player:?}") };
        damages.push(damage);
    }
    damages.sort_by(f64::total_cmp);
    assert_eq!(damages, [10.0, 350.0, 500.0, 800.0]);
    site.shut_down().await;
}

/// The same key with another attribute of a player, or without it, is another request; the same request has its ticket.
async fn repeated_enter_compares_the_attributes_of_players(site: PartySite) {
    let backend = site.backend().await;
    let request = |damage: &[f64]| {
        let attributes: Vec<_> = damage.iter().map(|damage| ("damage", number(*damage))).collect();
        pb::QueueEnterRequest {
            idempotency_key: "the same key of this backend".to_owned(),
            ..enter(&[player("ann", &attributes), player("bob", &[])])
        }
    };
    let first = backend.enter_queue(request(&[10.0])).await.expect("enter");
    assert_eq!(backend.enter_queue(request(&[10.0])).await.expect("enter").id(), first.id());
    for other in [request(&[11.0]), request(&[])] {
        let refused = backend.enter_queue(other).await.expect_err("refused");
        assert_eq!(reason(&refused), "IDEMPOTENCY_KEY_REUSED", "{refused}");
    }
    site.shut_down().await;
}

/// SEC-6: a player's client cannot say that it does not cheat; the attribute is listed as ignored and the party has no value. A
/// member who leaves ends the ticket for the party, as without attributes.
async fn untrusted_attribute_of_a_waiting_player_is_ignored(site: PartySite) {
    let of_client = [player("ann", &[("characters", list(&["monk"])), ("cheater", flag(false))])];
    let mut lie = site.player("ann").await.enter_queue(enter(&of_client)).await.expect("enter");
    assert_eq!(lie.ignored_fields, [r#"session_composition.players[0].attributes["cheater"]"#]);
    assert!(lie.leave().await.expect("leave"));
    let backend = site.backend().await;
    let cheaters = [player("eve", &[("characters", list(&["monk"])), ("cheater", flag(true))]), player("fay", &[])];
    let mut cheaters_alone = backend.enter_queue(enter(&cheaters)).await.expect("enter");
    assert!(cheaters_alone.ignored_fields.is_empty());
    assert!(cheaters_alone.leave_for_players(vec!["fay".to_owned()]).await.expect("leave"), "the ticket ends");
    let mut again = backend.enter_queue(enter(&cheaters[..1])).await.expect("eve alone has other values");
    assert_eq!(again.heartbeat().await.expect("heartbeat").state(), TicketState::Waiting);
    site.shut_down().await;
}

on_each_store! {
    repeated_enter_compares_the_attributes_of_players, pairs_by_damage(),
        repeated_enter_compares_the_attributes_of_players_on_sqlite,
        repeated_enter_compares_the_attributes_of_players_on_postgres;
    untrusted_attribute_of_a_waiting_player_is_ignored, pairs_by_damage(),
        untrusted_attribute_of_a_waiting_player_is_ignored_on_sqlite,
        untrusted_attribute_of_a_waiting_player_is_ignored_on_postgres;
}

/// S3-11: players state mean damage and characters; filters use them, and the game server receives them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pairs_match_by_the_mean_of_their_players_on_sqlite() {
    pairs_match_by_the_mean_of_their_players(PartySite::on_sqlite(&pairs_by_damage()).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pairs_match_by_the_mean_of_their_players_on_postgres() {
    let test = "pairs_match_by_the_mean_of_their_players_on_postgres";
    if let Some(site) = PartySite::on_postgres(test, &pairs_by_damage()).await {
        pairs_match_by_the_mean_of_their_players(site).await;
    }
}
