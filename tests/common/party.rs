//! Sessions to advertise and to search with, as every test makes them.

use fireteam_client::pb;

/// A session of one party: its users, with their skills.
pub(crate) fn party(players: &[(&str, f64)]) -> pb::SessionCompositionData {
    let player = |&(name, skill): &(&str, f64)| pb::PlayerData {
        user_id: name.to_owned(),
        skill: Some(skill),
        ..Default::default()
    };
    pb::SessionCompositionData { players: players.iter().map(player).collect(), ..Default::default() }
}

/// An advertisement of such a party in set 1 with `seats` to give.
pub(crate) fn host(players: &[(&str, f64)], seats: i32) -> pb::MatchmakingUpdateAdvertisementRequest {
    let session = pb::SessionCompositionData { max_allowed_join_reservation_count: Some(seats), ..party(players) };
    pb::MatchmakingUpdateAdvertisementRequest {
        matchmaking_set_id: Some(1),
        session_composition: Some(session),
        connect_data: b"host:7777".to_vec(),
        ..Default::default()
    }
}
