//! Conversion of domain types to advertisement and reservation responses; cannot fail.

use crate::api::pb;
use crate::domain::id::RulesetHash;
use crate::domain::matchmaking_action::MatchmakingAction;
use crate::domain::ruleset::Ruleset;
use crate::engine::command::{
    ChooseActionAnswer, ReservationChange, ReservationEvent, ReservationView, ReserveAnswer, UpdateAdvertAnswer,
};

/// Converts the answer to an advertisement update.
pub fn update_response(answer: UpdateAdvertAnswer) -> pb::UpdateAdvertisementResponse {
    pb::UpdateAdvertisementResponse {
        advertisement_id: id_text(answer.id.to_hex()),
        advertisement_token: answer.advertisement_token,
        created: answer.is_new_advert,
        expires_in_ms: answer.expires_in_ms.into(),
        service_configuration_hash: answer.ruleset_hash.0,
        next_expansion_in_ms: answer.next_expansion_in_ms,
        reservations: answer.reservations.into_iter().map(reservation).collect(),
        not_yet_durable: answer.not_yet_durable,
        ignored_fields: answer.ignored_fields.into_iter().map(ignored_field_path).collect(),
        hosted_match_ids: answer.hosted_match_ids.iter().map(ToString::to_string).collect(),
        next_beat_in_ms: answer.next_beat_in_ms,
    }
}

/// Converts the current ruleset; without its text if the client has that version.
pub fn configuration_response(ruleset: &Ruleset, known_hash: Option<RulesetHash>) -> pb::GetConfigurationResponse {
    let not_modified = known_hash == Some(ruleset.hash);
    pb::GetConfigurationResponse {
        matchmaking_set_id: ruleset.set_id.0,
        service_configuration_hash: ruleset.hash.0,
        not_modified,
        ruleset_xml: if not_modified { String::new() } else { ruleset.source_xml.to_string() },
    }
}

/// Converts the answer to a reservation.
pub fn reserve_response(answer: ReserveAnswer) -> pb::ReserveResponse {
    pb::ReserveResponse { reservation: Some(reservation(answer.reservation)), connect_data: answer.connect_data }
}

/// Converts the drawn action.
pub fn choose_action_response(answer: ChooseActionAnswer) -> pb::ChooseActionResponse {
    let action = match answer.action {
        MatchmakingAction::Search => pb::MatchmakingAction::Search,
        MatchmakingAction::Advertise => pb::MatchmakingAction::Advertise,
    };
    pb::ChooseActionResponse { action: action.into(), advertise_percent: answer.advertise_percent }
}

/// Converts a reservation event.
pub fn reservation_event(event: ReservationEvent) -> pb::ReservationEvent {
    let state = match event.change {
        ReservationChange::Held => pb::ReservationState::Held,
        ReservationChange::Confirmed => pb::ReservationState::Confirmed,
        ReservationChange::Released => pb::ReservationState::Released,
        ReservationChange::Expired => pb::ReservationState::Expired,
    };
    pb::ReservationEvent {
        advertisement_id: id_text(event.advertisement_id.to_hex()),
        reservation: Some(reservation(event.reservation)),
        state: state.into(),
    }
}

fn reservation(view: ReservationView) -> pb::Reservation {
    pb::Reservation {
        reservation_id: id_text(view.id.to_hex()),
        reservation_token: view.reservation_token,
        seats: u32::from(view.seats),
        expires_in_ms: view.expires_in_ms.unwrap_or(0).into(),
    }
}

/// Id as text, in one allocation and without formatting, because each response has one.
fn id_text(hex_digits: [u8; 32]) -> String {
    String::from_utf8_lossy(&hex_digits).into_owned()
}

/// Path of an ignored field of an update: the probe endpoint, or a field of the session.
fn ignored_field_path(path: String) -> String {
    if path == "probe" { path } else { format!("session_composition.{path}") }
}
