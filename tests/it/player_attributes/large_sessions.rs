//! Sessions of up to 128 players: filled by searches, listed by their host, and as parties in a search.

use fireteam_client::pb;

use crate::player_attributes::fixture::{advertise, assert_field, enter, found, number, other_backend, party, player};
use crate::support::party_site::{PartySite, on_each_store, reason};
use crate::support::queue_server::{SET_ID, wait_until};

/// A session with many players, whose mean level filters; teams that are larger than a party may be.
fn large_session() -> String {
    format!(
        r#"<Ruleset Name="Large session" SetId="{SET_ID}">
  <Attributes>
    <Attribute Name="skill" Type="number" Trust="client"/>
    <Attribute Name="level" Type="number" PartyAggregation="mean" Trust="client"/>
  </Attributes>
  <HardFilters><Within Name="level" Attribute="level" Limit="10"/></HardFilters>
  <Limits Handles="per_searcher"/>
  <Teams><Team Size="100"/><Team Size="28"/></Teams>
  <Queue/>
</Ruleset>"#
    )
}

/// Players with numbers from `first` on.
fn players(first: usize, count: usize, level: f64) -> Vec<pb::PlayerData> {
    (first..first + count).map(|number_of| player(&format!("p{number_of}"), &[("level", number(level))])).collect()
}

/// 30 parties of four find a session of a game server with 120 seats, one after the other, until it is full. The host lists them
/// party by party; what searchers read of it, also under handles, has all parties.
async fn session_of_120_seats_is_filled_by_searches(mut site: PartySite) {
    let (backend, searcher) = (site.backend().await, other_backend(&site).await);
    let mut request = advertise(&[], 120);
    let session = request.session_composition.as_mut().expect("a session");
    session.party_size_composition = vec![1];
    let mut hosted = backend.advertise(request).await.expect("advertise");
    let mut reservations = Vec::new();
    for first in (0..120).step_by(4) {
        let mut searching = searcher.new_search(SET_ID, party(&players(first, 4, 20.0)));
        let mut handle = String::new();
        wait_until("the session is found", async || {
            let candidates = searching.search().await.expect("search").candidates;
            candidates.into_iter().for_each(|candidate| handle = candidate.advertisement_id);
            !handle.is_empty()
        })
        .await;
        reservations.push(searching.reserve(&handle).await.expect("reserve").id);
    }
    let late = players(200, 1, 20.0);
    wait_until("the session is full", async || {
        found(&searcher, &late).await == (0, vec!["REFUSAL_KIND_FULL".to_owned()])
    })
    .await;

    // With its first player the session has 121: 31 parties.
    let mut listed = advertise(&[players(300, 1, 20.0), players(0, 120, 20.0)].concat(), 7);
    let session = listed.session_composition.as_mut().expect("a session");
    session.party_size_composition = [vec![1], vec![4; 30]].concat();
    listed.confirmed_reservation_ids = reservations.clone();
    hosted.replace_published(listed.clone()).await.expect("confirm");
    listed.joined_reservation_ids = std::mem::take(&mut listed.confirmed_reservation_ids);
    hosted.replace_published(listed).await.expect("list");
    drop((hosted, backend, searcher));
    site.restart_first().await;
    let searcher = other_backend(&site).await;
    for (seats, expected) in [(7, 1), (8, 0)] {
        wait_until("seven seats are open", async || found(&searcher, &players(400, seats, 20.0)).await.0 == expected)
            .await;
    }
    let answer = searcher.new_search(SET_ID, party(&late)).search().await.expect("search");
    assert_eq!(answer.candidates[0].party_size_composition, [vec![1], vec![4; 30]].concat());
    assert_eq!(found(&searcher, &players(400, 1, 31.0)).await, (0, vec!["level".to_owned()]), "far from the mean");
    site.shut_down().await;
}

/// The limits, and their errors: 128 players in a session, as one party or as 128, 64 in a ticket.
async fn limits_of_large_sessions_are_named(site: PartySite) {
    let (backend, searcher) = (site.backend().await, other_backend(&site).await);
    let all = players(0, 128, 20.0);
    for parties in [vec![128], vec![1; 128], Vec::new()] {
        let mut request = advertise(&all, 3);
        request.session_composition.as_mut().expect("a session").party_size_composition = parties.clone();
        let session = backend.advertise(request).await.expect("advertise");
        let mut searching = searcher.new_search(SET_ID, party(&players(200, 3, 20.0)));
        let mut candidates = Vec::new();
        wait_until("the session is found", async || {
            candidates = searching.search().await.expect("search").candidates;
            !candidates.is_empty()
        })
        .await;
        let expected = if parties.is_empty() { vec![128] } else { parties };
        assert_eq!(candidates[0].party_size_composition, expected);
        assert_eq!(candidates[0].open_seats, 3);
        session.delete().await.expect("delete");
        wait_until("the session is gone", async || found(&searcher, &players(200, 3, 20.0)).await.0 == 0).await;
    }
    let one_more = players(0, 129, 20.0);
    let refused = backend.advertise(advertise(&one_more, 3)).await.map(|made| made.id().to_owned());
    assert_field(refused, "session_composition.players", "129 entries; at most 128");
    let refused = backend.enter_queue(enter(&all[..65])).await.expect_err("refused");
    assert_eq!(reason(&refused), "PARTY_TOO_LARGE", "{refused}");
    backend.enter_queue(enter(&all[..64])).await.expect("a party of 64 may enter");
    site.shut_down().await;
}

on_each_store! {
    session_of_120_seats_is_filled_by_searches, large_session(),
        session_of_120_seats_is_filled_by_searches_on_sqlite, session_of_120_seats_is_filled_by_searches_on_postgres;
    limits_of_large_sessions_are_named, large_session(),
        limits_of_large_sessions_are_named_on_sqlite, limits_of_large_sessions_are_named_on_postgres;
}
