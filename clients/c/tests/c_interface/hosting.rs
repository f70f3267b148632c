//! Search loop that hosts: it publishes, and answers probes with the judgement of the game's data.

use fireteam_c::matching_exports::{ft_matching_handle_reservation, ft_matching_session_changed};
use fireteam_c::status::FT_ERROR_VALUE;
use fireteam_c::types::*;
use fireteam_client::pb;
use prost::Message;

use crate::functions::{c, hosting, text};
use crate::script::id;
use crate::world::World;

fn advertisement(open_seats: i32) -> Vec<u8> {
    let session =
        pb::SessionCompositionData { max_allowed_join_reservation_count: Some(open_seats), ..Default::default() };
    pb::MatchmakingUpdateAdvertisementRequest {
        session_composition: Some(session),
        connect_data: b"here".to_vec(),
        joined_reservation_ids: vec!["6".repeat(32)],
        ..Default::default()
    }
    .encode_to_vec()
}

#[test]
fn matching_hosts_until_its_session_is_full() {
    let bytes = advertisement(1);
    let hosting = hosting(&bytes);
    let mut world = World::with_options(0, |options| options.hosting = &hosting);
    world.script.advertises = true;
    world.start();
    world.run_to(FT_STATE_ADVERTISING);
    (0..3).for_each(|_| assert!(world.step()));
    let (advertised, token) = &world.outcomes[0];
    assert_eq!((advertised.kind, text(&advertised.advertisement_id)), (FT_OUTCOME_ADVERTISED, id(99)));
    assert_eq!(token, b"owner");
    let update = pb::MatchmakingUpdateAdvertisementRequest::decode(&*world.requests[1].1).unwrap();
    assert_eq!((update.connect_data, update.probe.unwrap().port), (b"here".to_vec(), 4_000));

    let reservation =
        pb::Reservation { reservation_id: "6".repeat(32), seats: 1, expires_in_ms: 9_000, ..Default::default() };
    let event = pb::ReservationEvent {
        advertisement_id: id(99),
        reservation: Some(reservation),
        state: pb::ReservationState::Held.into(),
    };
    let bytes = event.encode_to_vec();
    let now_us = world.now_us;
    assert_eq!(c!(ft_matching_handle_reservation(world.matching.0, bytes.as_ptr(), bytes.len(), now_us)), 0);
    world.drain();
    assert!(world.kinds().contains(&FT_OUTCOME_PARTY_COMING));
    let full = advertisement(0);
    assert_eq!(c!(ft_matching_session_changed(world.matching.0, full.as_ptr(), full.len(), now_us)), 0);
    world.drain();
    world.run_to(FT_STATE_JOINED);
    assert!(world.kinds().contains(&FT_OUTCOME_SESSION_FULL));
    assert_eq!(world.paths().last(), Some(&"DeleteAdvertisement"));
    let none: [u8; 0] = [];
    assert_eq!(c!(ft_matching_session_changed(world.matching.0, none.as_ptr(), 0, now_us)), FT_ERROR_VALUE);
}
