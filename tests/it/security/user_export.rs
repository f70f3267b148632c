//! Export of a user's advertisements and reservations, and their erasure. Of players with identities, on SQLite, and through two
//! servers on one Postgres.

use fireteam_client::pb;
use pb::ConsentUse;

use crate::support::generated_client as wire;
use crate::support::party_site::{PartySite, by_operator, on_each_store, pairs_ruleset};
use crate::support::queue_server::{SET_ID, operator_client, wait_until};
use crate::support::test_server::{advertise_request, party_session};

/// Export of a user, read at the last server.
async fn export(site: &PartySite, user: &str) -> wire::ExportUserResponse {
    let request = wire::ExportUserRequest { user_id: user.to_owned(), ..Default::default() };
    let mut operator = operator_client(site.servers.last().expect("a server")).await;
    operator.export_user(by_operator(site, request)).await.expect("an export").into_inner()
}

/// Erases a user at the first server.
async fn erase(site: &PartySite, user: &str) {
    let request =
        wire::EraseUserRequest { user_id: user.to_owned(), reason: "request 4713".to_owned(), ..Default::default() };
    let mut operator = operator_client(&site.servers[0]).await;
    operator.erase_user(by_operator(site, request)).await.expect("erased");
}

/// Waits until the last server exports this number of advertisements and reservations.
async fn wait_for_export(site: &PartySite, user: &str, counts: [usize; 2]) -> wire::ExportUserResponse {
    let mut last = wire::ExportUserResponse::default();
    wait_until("the export has the advertisements and reservations", async || {
        last = export(site, user).await;
        [last.advertisements.len(), last.reservations.len()] == counts
    })
    .await;
    last
}

fn session(users: &[&str], connect_data: &str) -> pb::MatchmakingUpdateAdvertisementRequest {
    let players: Vec<(&str, f64)> = users.iter().map(|user| (*user, 20.0)).collect();
    pb::MatchmakingUpdateAdvertisementRequest {
        matchmaking_set_id: Some(SET_ID),
        connect_data: connect_data.as_bytes().to_vec(),
        time_to_live_ms: Some(600_000),
        ..advertise_request(&players, 4)
    }
}

/// Seats and marks of the only reservation of an export.
fn only_reservation(export: &wire::ExportUserResponse) -> (u32, i32, [bool; 2]) {
    let [held] = &export.reservations[..] else { panic!("one reservation: {export:?}") };
    (held.seats, held.state, [held.has_seat, held.made_by_user])
}

/// An export has the sessions that list the user, the reservations for the user, and those that the user's client made for
/// others. An erasure leaves nothing of them, also after a restart, and others keep theirs.
async fn export_has_advertisements_and_reservations(mut site: PartySite) {
    let ana = site.player("ana").await;
    let own = ana.advertise(session(&["ana"], "ana.example:7777")).await.expect("advertise");
    let hal = site.player("hal").await;
    let mut hosted = hal.advertise(session(&["hal"], "hal.example:7777")).await.expect("advertise");
    let mut party = party_session(&[("ana", 20.0), ("ben", 20.0)]);
    party.players[1].consent_token = site.consent("ben", "ana", false, ConsentUse::Search).await;
    let mut searching = ana.new_search(SET_ID, party);
    searching.search().await.expect("search");
    let held = searching.reserve(hosted.id()).await.expect("reserve").id;

    let of_ana = wait_for_export(&site, "ana", [1, 1]).await;
    let [advertised] = &of_ana.advertisements[..] else { panic!("one session: {of_ana:?}") };
    assert_eq!((&*advertised.advertisement_id, advertised.player_count), (own.id(), 1));
    assert_eq!((advertised.matchmaking_set_id, advertised.kind()), (SET_ID, wire::AdvertisementKind::Session));
    assert_eq!(advertised.connect_data, b"ana.example:7777");
    assert!(advertised.advertised_since_unix_ms < advertised.expires_at_unix_ms, "{advertised:?}");
    let is_held = i32::from(wire::ReservationState::Held);
    assert_eq!(only_reservation(&of_ana), (2, is_held, [true, true]));
    assert_eq!(of_ana.reservations[0].reservation_id, held);
    assert_eq!(of_ana.reservations[0].advertisement_id, hosted.id());
    assert!(of_ana.reservations[0].expires_at_unix_ms.is_some());
    assert_eq!(only_reservation(&wait_for_export(&site, "ben", [0, 1]).await), (2, is_held, [true, false]));
    let of_eve = export(&site, "eve").await;
    assert!(of_eve.advertisements.is_empty() && of_eve.reservations.is_empty(), "{of_eve:?}");

    // Without a seat of her own, the reservation still leads to ana, who made it.
    ana.release_own_seat(hosted.id()).await.expect("released");
    wait_until("ana has no seat", async || {
        let of_ana = export(&site, "ana").await;
        only_reservation(&of_ana) == (1, is_held, [false, true])
    })
    .await;
    let mut update = session(&["hal", "ben"], "hal.example:7777");
    let players = update.session_composition.iter_mut().flat_map(|session| &mut session.players);
    for player in players.filter(|player| player.user_id == "ben") {
        player.consent_token = site.consent("ben", "hal", false, ConsentUse::Search).await;
    }
    update.confirmed_reservation_ids = vec![held];
    hosted.replace_published(update).await.expect("update");
    let of_ben = wait_for_export(&site, "ben", [1, 1]).await;
    let listing = &of_ben.advertisements[0];
    assert_eq!((&*listing.advertisement_id, listing.player_count), (hosted.id(), 2));
    assert_eq!(listing.connect_data, b"", "it is hal's");
    let is_confirmed = i32::from(wire::ReservationState::Confirmed);
    assert_eq!(only_reservation(&of_ben), (1, is_confirmed, [true, false]));
    assert_eq!(of_ben.reservations[0].expires_at_unix_ms, None);

    erase(&site, "ana").await;
    wait_for_export(&site, "ana", [0, 0]).await;
    drop((ana, hal, own, hosted, searching));
    site.restart_first().await;
    wait_for_export(&site, "ana", [0, 0]).await;
    assert_eq!(only_reservation(&wait_for_export(&site, "ben", [1, 1]).await), (1, is_confirmed, [true, false]));
    site.shut_down().await;
}

on_each_store! {
    export_has_advertisements_and_reservations, pairs_ruleset(""),
        export_has_advertisements_and_reservations_on_sqlite, export_has_advertisements_and_reservations_on_postgres;
}
