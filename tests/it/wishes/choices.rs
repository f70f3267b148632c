//! Entries of string lists that are chosen for those who play together: in searches, in matches, and for the host. On SQLite, and
//! through two servers on one Postgres.

use fireteam_client::pb;
use pb::TicketState;

use crate::queue::hosted_matches::next_match;
use crate::support::party_site::{PartySite, on_each_store, wait_for_rule, wait_for_state};
use crate::support::queue_server::{SET_ID, wait_until};
use crate::wishes::fixture::{advertised, entering, wishing_party};

fn choosing(choice: &str, backfill: bool) -> String {
    format!(
        r#"<Ruleset Name="Maps" SetId="{SET_ID}">
  <Attributes><Attribute Name="maps" Type="string_list" Trust="client"/></Attributes>
  <HardFilters><Overlap Attribute="maps" Choose="{choice}"/></HardFilters>
  <Teams Count="3" Size="1"/>
  <Queue PassIntervalMs="10" Backfill="{backfill}"/>
  <ReadyCheck TimeoutMs="60000"/>
</Ruleset>"#
    )
}

pub(crate) fn with_maps(mut party: pb::SessionCompositionData, maps: &[&str]) -> pb::SessionCompositionData {
    let values = maps.iter().map(|&map| map.to_owned()).collect();
    let value = pb::attribute_value::Value::StringList(pb::StringList { values });
    party.attributes.insert("maps".into(), pb::AttributeValue { value: Some(value) });
    party.players.iter_mut().for_each(|player| player.skill = None);
    party
}

pub(crate) fn map(chosen: &[pb::ChosenValue]) -> &str {
    let [chosen] = chosen else { panic!("one choice: {chosen:?}") };
    assert_eq!(chosen.attribute, "maps");
    &chosen.value
}

/// Three of whom each two share a map do not match. With a fourth, three do, on the map that they share; each of them receives it, and
/// again after a restart.
async fn match_is_told_the_map_that_all_have(mut site: PartySite) {
    for (user, maps) in [("ana", ["atlas", "bay"]), ("ben", ["bay", "cove"]), ("cyd", ["atlas", "cove"])] {
        let mut request = entering(user, 0.0, &[]);
        request.session_composition = request.session_composition.map(|party| with_maps(party, &maps));
        site.player_elsewhere(user).await.enter_queue(request).await.expect("enter");
    }
    wait_for_rule(&site, "cyd", "maps").await;
    let mut request = entering("dan", 0.0, &[]);
    request.session_composition = request.session_composition.map(|party| with_maps(party, &["cove", "bay"]));
    let mut dan = site.player_elsewhere("dan").await.enter_queue(request).await.expect("enter");
    let status = wait_for_state(&mut dan, TicketState::Proposed).await;
    let found = status.found_match.expect("a match");
    let told = map(&found.chosen).to_owned();
    assert!(["bay", "cove"].contains(&&*told), "{found:?}");
    site.restart_first().await;
    let (own, _) = site.player("dan").await.own_tickets_and_cooldowns().await.expect("mine");
    let again = own[0].status.found_match.as_ref().expect("a match");
    assert_eq!((&again.match_id, map(&again.chosen)), (&found.match_id, &*told), "after a restart");
    site.shut_down().await;
}

/// A search tells the map that the party and the session would play, the same at each server and in each search. The list of a
/// guest counts with that of the session that it fills, and the host receives the choice too.
async fn search_and_backfill_tell_the_common_map(site: PartySite) {
    let host = site.player("hal").await;
    let (connection, mut events) = host.open_stream().await.expect("a stream");
    let mut request = advertised("hal", 0.0, &[]);
    request.session_composition =
        request.session_composition.map(|session| with_maps(session, &["atlas", "bay", "cove", "dune"]));
    let id = connection.advertise(request).await.expect("advertise").id().to_owned();
    let mut told = Vec::new();
    for client in [site.player("ana").await, site.player_elsewhere("ana").await] {
        wait_until("the session is known", async || {
            let party = with_maps(wishing_party("ana", 0.0, &[]), &["bay", "cove", "eden"]);
            let found = client.new_search(SET_ID, party).search().await.expect("search");
            let candidate = found.candidates.iter().find(|candidate| candidate.advertisement_id == id);
            told.extend(candidate.map(|candidate| map(&candidate.chosen).to_owned()));
            candidate.is_some()
        })
        .await;
    }
    assert!(["bay", "cove"].contains(&&*told[0]) && told[0] == told[1], "{told:?}");
    let mut request = entering("ana", 0.0, &[]);
    request.session_composition = request.session_composition.map(|party| with_maps(party, &["bay", "cove", "eden"]));
    let mut ana = site.player_elsewhere("ana").await.enter_queue(request).await.expect("enter");
    let status = wait_for_state(&mut ana, TicketState::Proposed).await;
    let found = status.found_match.expect("a match");
    assert_eq!(map(&found.chosen), told[0], "the draw of a session is the same through both doors");
    ana.respond_to_ready_check(&found.match_id, true).await.expect("accept");
    let asked = next_match(&mut events).await;
    assert_eq!((map(&asked.chosen), asked.backfill), (&*told[0], true));
    site.shut_down().await;
}

/// Of two guests who fill one session in turn, the second plays the map of the first, or waits without it: they play together, and
/// the host does not know their lists.
async fn later_guest_plays_the_map_of_the_first(site: PartySite) {
    let host = site.player("hal").await;
    let (connection, mut events) = host.open_stream().await.expect("a stream");
    let mut request = advertised("hal", 0.0, &[]);
    request.session_composition =
        request.session_composition.map(|session| with_maps(session, &["atlas", "bay", "cove"]));
    connection.advertise(request).await.expect("advertise");
    let enter = async |user: &str, maps: &[&str]| {
        let mut request = entering(user, 0.0, &[]);
        request.session_composition = request.session_composition.map(|party| with_maps(party, maps));
        site.player_elsewhere(user).await.enter_queue(request).await.expect("enter")
    };
    let mut ana = enter("ana", &["bay", "cove"]).await;
    let found = wait_for_state(&mut ana, TicketState::Proposed).await.found_match.expect("a match");
    assert_eq!(map(&found.chosen), "bay");
    ana.respond_to_ready_check(&found.match_id, true).await.expect("accept");
    assert_eq!(map(&next_match(&mut events).await.chosen), "bay");
    let mut ben = enter("ben", &["cove", "dune"]).await;
    wait_for_rule(&site, "ben", "maps").await;
    let mut cyd = enter("cyd", &["atlas", "bay"]).await;
    let found = wait_for_state(&mut cyd, TicketState::Proposed).await.found_match.expect("a match");
    assert_eq!(map(&found.chosen), "bay", "not the first that cyd and the host have");
    assert_eq!(ben.heartbeat().await.expect("heartbeat").state(), TicketState::Waiting);
    site.shut_down().await;
}

on_each_store! {
    later_guest_plays_the_map_of_the_first, choosing("first_common", true),
        later_guest_plays_the_map_of_the_first_on_sqlite, later_guest_plays_the_map_of_the_first_on_postgres;
    match_is_told_the_map_that_all_have, choosing("first_common", false),
        match_is_told_the_map_that_all_have_on_sqlite, match_is_told_the_map_that_all_have_on_postgres;
    search_and_backfill_tell_the_common_map, choosing("drawn", true),
        search_and_backfill_tell_the_common_map_on_sqlite, search_and_backfill_tell_the_common_map_on_postgres;
}
