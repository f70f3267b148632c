//! Sessions and advertisements that the tests share.

use fireteam_client::pb;

/// Session of one party: user ids with their skills.
pub(crate) fn party_session(players: &[(&str, f64)]) -> pb::SessionCompositionData {
    let player = |&(name, skill): &(&str, f64)| pb::PlayerData {
        user_id: name.to_owned(),
        skill: Some(skill),
        ..Default::default()
    };
    pb::SessionCompositionData { players: players.iter().map(player).collect(), ..Default::default() }
}

/// Request that advertises such a party in set 1 with `seats` open seats.
pub(crate) fn advertise_request(players: &[(&str, f64)], seats: i32) -> pb::MatchmakingUpdateAdvertisementRequest {
    let session =
        pb::SessionCompositionData { max_allowed_join_reservation_count: Some(seats), ..party_session(players) };
    pb::MatchmakingUpdateAdvertisementRequest {
        matchmaking_set_id: Some(1),
        session_composition: Some(session),
        connect_data: b"host:7777".to_vec(),
        ..Default::default()
    }
}
