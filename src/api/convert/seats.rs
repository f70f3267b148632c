//! Reservations and releases from the wire.

use crate::api::convert::{Door, field, search, session};
use crate::api::pb;
use crate::api::status::Rejection;
use crate::domain::id::{AdvertisementId, ReservationId};
use crate::engine::command::{Caller, Release, Reserve};

impl Door {
    /// Take seats. The request's own players, where given, are those who will sit.
    pub fn reserve(&self, caller: &Caller, wire: pb::ReserveRequest) -> Result<Reserve, Rejection> {
        let mut problems = self.problems();
        let id = field::advertisement_id(&wire.advertisement_id, "advertisement_id", &mut problems);
        if wire.idempotency_key.is_empty() {
            problems.add("idempotency_key", "is missing: choose one, and keep it when you try again");
        } else {
            field::key(&wire.idempotency_key, caller.subject.is_none(), "idempotency_key", &mut problems);
        }
        let mut composition = wire.session_composition.unwrap_or_default();
        let players_path = match wire.players.is_empty() {
            true => "session_composition.players",
            false => "players",
        };
        if !wire.players.is_empty() {
            let searched = std::mem::replace(&mut composition.players, wire.players);
            keep_skills(&mut composition.players, &searched);
        }
        let consents = session::consents_of(&mut composition.players, players_path, &mut problems);
        let reserve = Reserve {
            advertisement_id: id.unwrap_or(AdvertisementId::from_bytes([0; 16])),
            set_id: self.set_id(wire.matchmaking_set_id, &mut problems),
            consents,
            session: session::session(composition, players_path, caller.origin, &mut problems),
            idempotency_key: wire.idempotency_key,
            hold_for_ms: wire.hold_for_ms,
            search_token: search::required_search_token(wire.search_token, &mut problems),
        };
        problems.finish(reserve)
    }

    /// Give seats back.
    pub fn release(&self, wire: pb::ReleaseRequest) -> Result<Release, Rejection> {
        let mut problems = self.problems();
        let id = field::reservation_id(&wire.reservation_id, "reservation_id", &mut problems);
        let token = field::token(wire.reservation_token, "reservation_token", &mut problems);
        problems.finish(Release { id: id.unwrap_or(ReservationId::from_bytes([0; 16])), token })
    }
}

/// Who is named twice, once with a skill and once without, is as good as when the party searched: a skill that was left
/// out would pass every filter that lets the unknown through.
fn keep_skills(sitting: &mut [pb::PlayerData], searched: &[pb::PlayerData]) {
    for player in sitting.iter_mut().filter(|player| player.skill.is_none()) {
        player.skill = searched.iter().find(|known| known.user_id == player.user_id).and_then(|known| known.skill);
    }
}
