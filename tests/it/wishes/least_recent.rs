//! Entries that players have played least recently, chosen for matches of queues and of searched sessions. On SQLite, and through two
//! servers on one Postgres.

use fireteam_client::{Ticket, pb};
use pb::TicketState;

use crate::session_match::fixture::{Host, Started, reserve_party, session_of, team};
use crate::support::generated_client as wire;
use crate::support::party_site::{PartySite, by_operator, on_each_store, wait_for_state};
use crate::support::queue_server::{SET_ID, operator_client, wait_until};
use crate::wishes::choices::{map, with_maps};
use crate::wishes::fixture::{entering, wishing_party};

const MAPS: [&str; 3] = ["atlas", "bay", "cove"];

/// Time for which a play counts.
const RECENT_MS: u64 = 20 * 60 * 1000;

fn duels() -> String {
    format!(
        r#"<Ruleset Name="Maps" SetId="{SET_ID}">
  <Attributes><Attribute Name="maps" Type="string_list" Trust="client"/></Attributes>
  <HardFilters><Overlap Attribute="maps" Choose="least_recently_played" RecentMs="{RECENT_MS}"/></HardFilters>
  <Teams Count="2" Size="1"/>
  <Queue PassIntervalMs="10"/>
  <Hosting Mode="none"/>
</Ruleset>"#
    )
}

fn rooms(choice: &str) -> String {
    format!(
        r#"<Ruleset Name="Rooms" SetId="{SET_ID}">
  <Attributes><Attribute Name="maps" Type="string_list" Trust="client"/></Attributes>
  <HardFilters><Overlap Attribute="maps" Choose="{choice}"/></HardFilters>
  <Teams Count="2" Size="1"/>
</Ruleset>"#
    )
}

async fn enter(site: &PartySite, user: &str, maps: &[&str], is_elsewhere: bool) -> Ticket {
    let mut request = entering(user, 0.0, &[]);
    request.session_composition = request.session_composition.map(|party| with_maps(party, maps));
    let client = if is_elsewhere { site.player_elsewhere(user).await } else { site.player(user).await };
    client.enter_queue(request).await.expect("enter")
}

/// Two players enter, each at another server, and play a match of a minute. Returns its map.
async fn duel(site: &PartySite, one: &str, other: &str, maps: &[&str]) -> String {
    let mut first = enter(site, one, maps, false).await;
    let mut second = enter(site, other, maps, true).await;
    let mut played = Vec::new();
    for ticket in [&mut first, &mut second] {
        let found = wait_for_state(ticket, TicketState::Matched).await.found_match.expect("a match");
        played.push((map(&found.chosen).to_owned(), found.match_id));
    }
    assert_eq!(played[0], played[1]);
    let (map, id) = played.remove(0);
    site.clock.advance_ms(60_000);
    first.end_match(&id, false).await.expect("end");
    map
}

/// A map that neither has played comes first, then the one played longest ago by either, and of equals the first by name: also after a
/// restart, against others, without an erased player, and when all is long ago.
async fn least_recently_played_map_is_chosen(mut site: PartySite) {
    for expected in ["atlas", "bay", "cove", "atlas"] {
        assert_eq!(duel(&site, "ann", "bob", &MAPS).await, expected);
    }
    site.restart_first().await;
    assert_eq!(duel(&site, "ann", "bob", &MAPS).await, "bay", "after a restart");
    assert_eq!(duel(&site, "ann", "cyd", &["atlas", "bay"]).await, "atlas", "bay was just played by ann");
    assert_eq!(duel(&site, "dan", "eve", &MAPS).await, "atlas", "neither has played");
    assert_eq!(duel(&site, "bob", "dan", &MAPS).await, "cove", "bob has played cove before bay, and dan atlas last");

    let request = wire::ExportUserRequest { user_id: "eve".to_owned(), ..Default::default() };
    let exported = operator_client(&site.servers[0]).await.export_user(by_operator(&site, request)).await;
    let matches = exported.expect("an export").into_inner().matches;
    let chosen: Vec<_> = matches.iter().flat_map(|exported| &exported.chosen).map(|it| &*it.value).collect();
    assert_eq!(chosen, ["atlas"]);

    let request = wire::EraseUserRequest { user_id: "eve".into(), reason: "request 4711".into(), ..Default::default() };
    operator_client(&site.servers[0]).await.erase_user(by_operator(&site, request)).await.expect("erased");
    let without_plays = async || duel(&site, "eve", "fay", &MAPS).await == "atlas";
    assert!(without_plays().await, "nothing is left of what eve played");
    site.clock.advance_ms(RECENT_MS);
    assert_eq!(duel(&site, "ann", "bob", &MAPS).await, "atlas", "all is long ago");
    site.shut_down().await;
}

/// The host of a session starts matches: each on the map that its players have played least recently, as host and guest hear, also
/// after a restart. A search tells which would be next for the searcher and the session.
async fn session_matches_play_what_was_played_least_recently(mut site: PartySite) {
    let host = host_with_maps(&site, &MAPS).await;
    for expected in ["atlas", "bay"] {
        let started = play_with_ann(&site, &host).await;
        assert_eq!(map(&started.hosted.chosen), expected);
        site.clock.advance_ms(60_000);
    }
    assert_eq!(told_to_searcher(&site, &host, "ann").await, "cove", "neither has played it");
    site.restart_first().await;
    let host = Host { client: site.player("hal").await, advertised: host.advertised };
    assert_eq!(told_to_searcher(&site, &host, "bea").await, "cove", "the host has not played it");
    let started = play_with_ann(&site, &host).await;
    assert_eq!(map(&started.hosted.chosen), "cove");
    assert_eq!(told_to_searcher(&site, &host, "ann").await, "atlas", "it was played longest ago");
    site.shut_down().await;
}

/// A match of a session is on the first of the maps that the session publishes.
async fn session_match_is_told_the_first_common_map(site: PartySite) {
    let host = host_with_maps(&site, &["bay", "cove"]).await;
    let started = play_with_ann(&site, &host).await;
    assert_eq!(map(&started.hosted.chosen), "bay");
    site.shut_down().await;
}

async fn host_with_maps(site: &PartySite, maps: &[&str]) -> Host {
    let mut request = session_of(&["hal"]);
    request.time_to_live_ms = Some(600_000);
    request.session_composition = request.session_composition.map(|session| with_maps(session, maps));
    Host::advertise(site.player("hal").await, request).await
}

/// Ann reserves a seat, and the host plays a match against her. Her ticket has the same map as the host.
async fn play_with_ann(site: &PartySite, host: &Host) -> Started {
    let seat = reserve_party(site, host, with_maps(wishing_party("ann", 0.0, &[]), &MAPS), "ann").await;
    host.wait_for_reservations(&[&seat]).await;
    host.update(&[&seat], &[]).await;
    let started = host.start(&[team(true, &[]), team(false, &[&seat])]).await;
    let ann = crate::session_match::fixture::own_ticket(site, "ann", started.id()).await;
    let found = ann.status.found_match.expect("a match");
    assert_eq!(map(&found.chosen), map(&started.hosted.chosen));
    let end = pb::QueueEndMatchRequest {
        match_id: started.id().to_owned(),
        ticket_token: started.answer.ticket_token.clone(),
        ..Default::default()
    };
    host.client.end_match(end).await.expect("end");
    host.update(&[], &[&seat]).await;
    started
}

/// Map that a search at the last server tells for the session.
async fn told_to_searcher(site: &PartySite, host: &Host, user: &str) -> String {
    let client = site.player_elsewhere(user).await;
    let mut told = None;
    wait_until("the session is found", async || {
        let party = with_maps(wishing_party(user, 0.0, &[]), &MAPS);
        let found = client.new_search(SET_ID, party).search().await.expect("search").candidates;
        let candidate = found.iter().find(|candidate| candidate.advertisement_id == host.id());
        told = candidate.map(|candidate| map(&candidate.chosen).to_owned());
        told.is_some()
    })
    .await;
    told.expect("a map")
}

on_each_store! {
    least_recently_played_map_is_chosen, duels(),
        least_recently_played_map_is_chosen_on_sqlite, least_recently_played_map_is_chosen_on_postgres;
    session_matches_play_what_was_played_least_recently, rooms("least_recently_played"),
        session_matches_play_what_was_played_least_recently_on_sqlite,
        session_matches_play_what_was_played_least_recently_on_postgres;
    session_match_is_told_the_first_common_map, rooms("first_common"),
        session_match_is_told_the_first_common_map_on_sqlite, session_match_is_told_the_first_common_map_on_postgres;
}
