//! Conversion of Reserve and Release requests.

use crate::api::convert::{RequestReader, field_checks, search, session};
use crate::api::pb;
use crate::api::status::Rejection;
use crate::domain::id::{AdvertisementId, ReservationId};
use crate::engine::command::{Caller, ReleaseReservationOrSeatCommand, ReservationIdAndToken, ReserveCommand};

impl RequestReader {
    /// Reads a reservation. If the request lists players, those take the seats; else the players of the session do.
    pub fn reserve_command(&self, caller: &Caller, wire: pb::ReserveRequest) -> Result<ReserveCommand, Rejection> {
        let mut problems = self.new_field_errors();
        let id = field_checks::parse_advertisement_id(&wire.advertisement_id, "advertisement_id", &mut problems);
        if wire.idempotency_key.is_empty() {
            problems.add("idempotency_key", "is missing; choose a key and repeat it when you retry");
        } else {
            field_checks::check_idempotency_key(
                &wire.idempotency_key,
                caller.subject.is_none(),
                "idempotency_key",
                &mut problems,
            );
        }
        let mut composition = wire.session_composition.unwrap_or_default();
        let players_path = if wire.players.is_empty() { "session_composition.players" } else { "players" };
        if !wire.players.is_empty() {
            let searched_players = std::mem::replace(&mut composition.players, wire.players);
            copy_missing_skills_from_search(&mut composition.players, &searched_players);
        }
        let consents = session::take_player_consent_tokens(&mut composition.players, players_path, &mut problems);
        let latency_tokens = session::take_latency_tokens(Some(&mut composition), &mut problems);
        let reserve = ReserveCommand {
            latency_tokens,
            advertisement_id: id.unwrap_or(AdvertisementId::from_bytes([0; 16])),
            set_id: self.own_or_envelope_set_id(wire.matchmaking_set_id, &mut problems),
            consents,
            session: session::session_from_proto(composition, players_path, caller.program_kind, &mut problems),
            idempotency_key: wire.idempotency_key,
            hold_for_ms: wire.hold_for_ms.map(field_checks::saturating_u32_ms),
            search_token: search::required_search_token(wire.search_token, &mut problems),
        };
        problems.into_result(reserve)
    }

    /// Reads a release of a reservation.
    pub fn release_command(&self, wire: pb::ReleaseRequest) -> Result<ReleaseReservationOrSeatCommand, Rejection> {
        let mut problems = self.new_field_errors();
        if !wire.advertisement_id.is_empty() {
            let path = "advertisement_id";
            let id = field_checks::parse_advertisement_id(&wire.advertisement_id, path, &mut problems);
            if !wire.reservation_id.is_empty() || !wire.reservation_token.is_empty() {
                problems.add(path, "is set together with reservation_id or reservation_token; send one of the two");
            }
            let id = id.unwrap_or(AdvertisementId::from_bytes([0; 16]));
            return problems.into_result(ReleaseReservationOrSeatCommand::OwnSeat(id));
        }
        let id = field_checks::parse_reservation_id(&wire.reservation_id, "reservation_id", &mut problems);
        let token = field_checks::size_checked_token(wire.reservation_token, "reservation_token", &mut problems);
        problems.into_result(ReleaseReservationOrSeatCommand::Reservation(ReservationIdAndToken {
            id: id.unwrap_or(ReservationId::from_bytes([0; 16])),
            reservation_token: token,
        }))
    }
}

/// Copies the skill that a player had in the search to a player who has none now. Without this, a client could leave
/// the skill out to pass filters that let missing values through.
fn copy_missing_skills_from_search(reserving: &mut [pb::PlayerData], searched_players: &[pb::PlayerData]) {
    for player in reserving.iter_mut().filter(|player| player.skill.is_none()) {
        player.skill =
            searched_players.iter().find(|known| known.user_id == player.user_id).and_then(|known| known.skill);
    }
}
