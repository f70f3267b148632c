//! Updates and deletions of advertisements from the wire.

use std::fmt::Display;

use crate::api::convert::{Door, Problems, field, session};
use crate::api::pb;
use crate::api::status::Rejection;
use crate::domain::advertisement::{AllowedRange, Kind};
use crate::domain::id::{AdvertisementId, ReservationId, RulesetHash};
use crate::domain::limit;
use crate::engine::command::{Caller, Delete, Update};

impl Door {
    /// Publish, replace or keep alive.
    pub fn update(&self, caller: &Caller, wire: pb::UpdateAdvertisementRequest) -> Result<Update, Rejection> {
        let mut problems = self.problems();
        let creates = wire.advertisement_id.is_empty();
        heartbeats_change_nothing(&wire, creates, &mut problems);
        let set_id = match creates {
            true => Some(self.required_set_id(wire.matchmaking_set_id, &mut problems)),
            false => self.set_id(wire.matchmaking_set_id, &mut problems),
        };
        let key = wire.idempotency_key;
        if !key.is_empty() {
            field::key(&key, caller.subject.is_none(), "idempotency_key", &mut problems);
        }
        field::size(wire.connect_data.len(), limit::CONNECT_DATA_BYTES_MAX, "connect_data", &mut problems);
        let mut composition = wire.session_composition;
        let update = Update {
            target: target(&wire.advertisement_id, wire.advertisement_token, &mut problems),
            consents: session::consents(composition.as_mut(), &mut problems),
            session: composition.map(|wire| session::required(Some(wire), caller.origin, &mut problems)),
            set_id,
            hash: wire.service_configuration_hash.map(RulesetHash),
            time_to_live_ms: wire.time_to_live_ms,
            connect_data: wire.connect_data,
            allowed: allowed(wire.allowed_ranges, &mut problems),
            kind: kind(wire.kind, &mut problems),
            confirmed: reservations(&wire.confirmed_reservation_ids, "confirmed_reservation_ids", &mut problems),
            settled: reservations(&wire.joined_reservation_ids, "settled_reservation_ids", &mut problems),
            idempotency_key: (!key.is_empty()).then_some(key),
            nonce: self.nonce,
        };
        problems.finish(update)
    }

    /// Withdraw.
    pub fn delete(&self, wire: pb::DeleteAdvertisementRequest) -> Result<Delete, Rejection> {
        let mut problems = self.problems();
        let id = field::advertisement_id(&wire.advertisement_id, "advertisement_id", &mut problems);
        let token = field::token(wire.advertisement_token, "advertisement_token", &mut problems);
        let id = id.unwrap_or(AdvertisementId::from_bytes([0; 16]));
        problems.finish(Delete { id, token })
    }
}

fn heartbeats_change_nothing(wire: &pb::UpdateAdvertisementRequest, creates: bool, problems: &mut Problems) {
    if wire.session_composition.is_some() {
        return;
    }
    if creates {
        problems.add("session_composition", "is missing: a new advertisement says who waits");
        return;
    }
    let what = "cannot change in a heartbeat: send session_composition too, and replace the whole";
    if !wire.connect_data.is_empty() {
        problems.add("connect_data", what);
    }
    if !wire.allowed_ranges.is_empty() {
        problems.add("allowed", what);
    }
}

fn target(id: &str, token: Vec<u8>, problems: &mut Problems) -> Option<(AdvertisementId, Vec<u8>)> {
    let token = field::token(token, "advertisement_token", problems);
    if id.is_empty() {
        if !token.is_empty() {
            problems
                .add("advertisement_id", "is missing, though there is an advertisement_token: send both or neither");
        }
        return None;
    }
    Some((field::advertisement_id(id, "advertisement_id", problems)?, token))
}

fn allowed(wire: Vec<pb::AllowedRange>, problems: &mut Problems) -> Vec<AllowedRange> {
    if !field::count(wire.len(), limit::ALLOWED_RANGES_MAX, "allowed", problems) {
        return Vec::new();
    }
    let ranges = wire.into_iter().enumerate().map(|(index, range)| {
        let path = format_args!("allowed[{index}]");
        field::name(&range.attribute, format_args!("{path}.attribute"), problems);
        let min = range.min.map(|min| field::number(min, format_args!("{path}.min"), problems));
        let max = range.max.map(|max| field::number(max, format_args!("{path}.max"), problems));
        match (min, max) {
            (None, None) => problems.add(path, "has neither min nor max: give one or both"),
            (Some(min), Some(max)) if max < min => problems.add(path, format!("has min {min} above max {max}")),
            _ => {}
        }
        AllowedRange { attribute: range.attribute.into(), min, max }
    });
    ranges.collect()
}

fn kind(wire: i32, problems: &mut Problems) -> Option<Kind> {
    match pb::AdvertisementKind::try_from(wire) {
        Ok(pb::AdvertisementKind::Unspecified) => None,
        Ok(pb::AdvertisementKind::Session) => Some(Kind::Session),
        Ok(pb::AdvertisementKind::GameServer) => Some(Kind::Server),
        Err(_) => {
            problems.add("kind", format!("is {wire}, which is no AdvertisementKind"));
            None
        }
    }
}

fn reservations(wire: &[String], path: impl Display + Copy, problems: &mut Problems) -> Vec<ReservationId> {
    if !field::count(wire.len(), limit::SETTLED_MAX, path, problems) {
        return Vec::new();
    }
    let ids = wire.iter().enumerate();
    ids.filter_map(|(index, id)| field::reservation_id(id, format_args!("{path}[{index}]"), problems)).collect()
}
