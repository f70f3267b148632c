//! Attributes that a match has at a game server: only those that the ruleset trusts the callers of its tickets with.

use std::collections::BTreeMap;

use fireteam::auth::identity::Role;
use fireteam_client::pb;
use pb::TicketState;

use crate::player_attributes::fixture::{advertise, enter, player};
use crate::support::allocator::{TestAllocator, any_match};
use crate::support::party_site::{PartySite, on_each_store, wait_for_state};
use crate::support::queue_server::SET_ID;

/// A 1v1 queue for game servers of the players' tier, which a game's backend knows. Players choose the mode.
fn tiers(hosting: &str) -> String {
    format!(
        r#"<Ruleset Name="Tiers" SetId="{SET_ID}">
  <Attributes>
    <Attribute Name="tier" Type="string"/>
    <Attribute Name="mode" Type="string" Trust="client"/>
    <Attribute Name="vip" Type="bool" PartyAggregation="any"/>
    <Attribute Name="mount" Type="bool" PartyAggregation="any" Trust="client"/>
  </Attributes>
  <HardFilters><Equal Name="tier" Attribute="tier"/><Equal Name="vip" Attribute="vip"/></HardFilters>
  <Teams Count="2" Size="1"/>
  <Queue PassIntervalMs="10"/>
  <Hosting Mode="game_server" AllocationTimeoutMs="60000" ConfirmMs="60000" {hosting}/>
  <Party Consent="assumed"/>
</Ruleset>"#
    )
}

fn text(value: &str) -> pb::AttributeValue {
    pb::AttributeValue { value: Some(pb::attribute_value::Value::StringValue(value.to_owned())) }
}

fn flag() -> pb::attribute_value::Value {
    pb::attribute_value::Value::BoolValue(true)
}

/// A party that says of itself that its tier is `gold`, and its player a VIP.
fn gold(name: &str) -> pb::QueueEnterRequest {
    let mut request = enter(&[player(name, &[("vip", flag()), ("mount", flag())])]);
    let session = request.session_composition.as_mut().expect("a party");
    let stated = BTreeMap::from([("tier".to_owned(), text("gold")), ("mode".to_owned(), text("duel"))]);
    session.attributes = stated.into_iter().collect();
    request
}

/// A game server of this tier.
fn game_server(tier: &str) -> pb::MatchmakingUpdateAdvertisementRequest {
    let mut request = advertise(&[player("dedicated", &[("vip", pb::attribute_value::Value::BoolValue(false))])], 2);
    request.kind = pb::AdvertisementKind::GameServer.into();
    request.session_composition.as_mut().expect("a session").attributes.insert("tier".to_owned(), text(tier));
    request
}

/// Names of attributes, sorted.
fn names<'a>(attributes: impl IntoIterator<Item = &'a String>) -> Vec<&'a str> {
    let mut names: Vec<&str> = attributes.into_iter().map(String::as_str).collect();
    names.sort_unstable();
    names
}

/// SEC-6: players who all state the tier of better game servers are placed as players who state none, and the host does not hear
/// of it. The same from their game's backend counts.
async fn game_server_is_not_chosen_by_what_untrusted_players_state(site: PartySite) {
    let backend = site.backend().await;
    let host = backend.advertise(game_server("silver")).await.expect("advertise");
    site.servers[0].keep_hosting(site.backend().await, host.token().to_vec());
    let mut liar = site.player("ann").await.enter_queue(gold("ann")).await.expect("enter");
    let ignored = [r#"attributes["tier"]"#, r#"players[0].attributes["vip"]"#];
    assert_eq!(liar.ignored_fields, ignored.map(|path| format!("session_composition.{path}")));
    let _other = site.player("bob").await.enter_queue(gold("bob")).await.expect("enter");
    let found = wait_for_state(&mut liar, TicketState::Matched).await.found_match.expect("a match");
    let beat = pb::QueueHostHeartbeatRequest {
        advertisement_token: host.token().to_vec(),
        matches: vec![pb::HostedMatchBeat { match_id: found.match_id, ..Default::default() }],
    };
    let hosted = backend.host_heartbeat(beat).await.expect("heartbeat").matches.remove(0);
    for party in &hosted.parties {
        assert_eq!(names(party.attributes.keys()), ["mode"], "{party:?}");
        assert_eq!(names(party.players[0].attributes.keys()), ["mount"], "{party:?}");
    }

    let mut golden = backend.enter_queue(gold("eve")).await.expect("enter");
    assert!(golden.ignored_fields.is_empty());
    let _other = backend.enter_queue(gold("fay")).await.expect("enter");
    wait_for_state(&mut golden, TicketState::Placing).await;
    let mut better = game_server("gold");
    better.session_composition.as_mut().expect("a session").players.clear();
    better.session_composition.as_mut().expect("a session").party_size_composition = vec![1];
    let host = backend.advertise(better).await.expect("advertise");
    site.servers[0].keep_hosting(site.backend().await, host.token().to_vec());
    let found = wait_for_state(&mut golden, TicketState::Matched).await.found_match.expect("a match");
    let beat = pb::QueueHostHeartbeatRequest {
        advertisement_token: host.token().to_vec(),
        matches: vec![pb::HostedMatchBeat { match_id: found.match_id, ..Default::default() }],
    };
    let hosted = backend.host_heartbeat(beat).await.expect("heartbeat").matches.remove(0);
    assert_eq!(names(hosted.parties[0].attributes.keys()), ["mode", "tier"]);
    assert_eq!(names(hosted.parties[0].players[0].attributes.keys()), ["mount", "vip"]);
    site.shut_down().await;
}

/// SEC-6: an allocator hears of no attribute that the ruleset does not trust the players with.
async fn allocator_does_not_hear_what_untrusted_players_state(site: PartySite) {
    let address = site.servers[0].app.server.address;
    let header = site.issuer.authorization_header(Role::GameServer, "allocator");
    let mut allocator = TestAllocator::try_connect(address, Some(&header), any_match(4)).await.expect("registered");
    let _tickets = [
        site.player("ann").await.enter_queue(gold("ann")).await.expect("enter"),
        site.player("bob").await.enter_queue(gold("bob")).await.expect("enter"),
    ];
    assert_eq!(names(allocator.next_offer().await.attributes.keys()), ["mode"]);
    let backend = site.backend().await;
    let _trusted = [
        backend.enter_queue(gold("eve")).await.expect("enter"),
        backend.enter_queue(gold("fay")).await.expect("enter"),
    ];
    assert_eq!(names(allocator.next_offer().await.attributes.keys()), ["mode", "tier"]);
    site.shut_down().await;
}

on_each_store! {
    game_server_is_not_chosen_by_what_untrusted_players_state, tiers(r#"Tell="attributes""#),
        game_server_is_not_chosen_by_what_untrusted_players_state_on_sqlite,
        game_server_is_not_chosen_by_what_untrusted_players_state_on_postgres;
    allocator_does_not_hear_what_untrusted_players_state, tiers(r#"Allocate="always" OfferMs="5000""#),
        allocator_does_not_hear_what_untrusted_players_state_on_sqlite,
        allocator_does_not_hear_what_untrusted_players_state_on_postgres;
}
