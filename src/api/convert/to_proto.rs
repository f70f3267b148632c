//! Domain to wire, never failing.

use crate::api::pb;
use crate::domain::id::RulesetHash;
use crate::domain::matchmaking_action::MatchmakingAction;
use crate::domain::ruleset::Ruleset;
use crate::engine::command::{
    ChooseActionAnswer, ReservationChange, ReservationEvent, ReservationView, ReserveAnswer, UpdateAdvertAnswer,
};

/// What an update did.
pub fn update_response(answer: UpdateAdvertAnswer) -> pb::UpdateAdvertisementResponse {
    pb::UpdateAdvertisementResponse {
        advertisement_id: id_text(answer.id.digits()),
        advertisement_token: answer.advertisement_token,
        created: answer.created,
        expires_in_ms: answer.expires_in_ms,
        service_configuration_hash: answer.ruleset_hash.0,
        next_expansion_in_ms: answer.next_expansion_in_ms,
        reservations: answer.reservations.into_iter().map(reservation).collect(),
        not_yet_durable: answer.not_yet_durable,
        ignored_fields: answer.ignored_fields.into_iter().map(|path| format!("session_composition.{path}")).collect(),
    }
}

/// The current ruleset, without its text when the client has it already.
pub fn configuration_response(ruleset: &Ruleset, known: Option<RulesetHash>) -> pb::GetConfigurationResponse {
    let not_modified = known == Some(ruleset.hash);
    pb::GetConfigurationResponse {
        matchmaking_set_id: ruleset.set_id.0,
        service_configuration_hash: ruleset.hash.0,
        not_modified,
        ruleset_xml: if not_modified { String::new() } else { ruleset.source_xml.to_string() },
    }
}

/// Seats taken.
pub fn reserve_response(answer: ReserveAnswer) -> pb::ReserveResponse {
    pb::ReserveResponse { reservation: Some(reservation(answer.reservation)), connect_data: answer.connect_data }
}

/// A drawn role.
pub fn choose_action_response(answer: ChooseActionAnswer) -> pb::ChooseActionResponse {
    let role = match answer.action {
        MatchmakingAction::Search => pb::MatchmakingAction::Search,
        MatchmakingAction::Advertise => pb::MatchmakingAction::Advertise,
    };
    pb::ChooseActionResponse { action: role.into(), advertise_percent: answer.advertise_percent }
}

/// News of seats.
pub fn reservation_event(event: ReservationEvent) -> pb::ReservationEvent {
    let state = match event.change {
        ReservationChange::Held => pb::ReservationState::Held,
        ReservationChange::Confirmed => pb::ReservationState::Confirmed,
        ReservationChange::Released => pb::ReservationState::Released,
        ReservationChange::Expired => pb::ReservationState::Expired,
    };
    pb::ReservationEvent {
        advertisement_id: id_text(event.advertisement_id.digits()),
        reservation: Some(reservation(event.reservation)),
        state: state.into(),
    }
}

fn reservation(answer: ReservationView) -> pb::Reservation {
    pb::Reservation {
        reservation_id: id_text(answer.id.digits()),
        reservation_token: answer.reservation_token,
        seats: u32::from(answer.seats),
        expires_in_ms: answer.expires_in_ms.unwrap_or(0),
    }
}

/// An id as text. Of one allocation and without formatting: every answer has one.
fn id_text(digits: [u8; 32]) -> String {
    String::from_utf8_lossy(&digits).into_owned()
}
