//! Conversion of UpdateAdvertisement and DeleteAdvertisement requests.

use std::fmt::Display;
use std::net::IpAddr;

use crate::api::convert::{FieldErrors, RequestReader, field_checks, session};
use crate::api::pb;
use crate::api::status::Rejection;
use crate::domain::advertisement::{AdvertisementKind, AllowedRange, ProbeEndpoint};
use crate::domain::id::{AdvertisementId, ReservationId, RulesetHash};
use crate::domain::limit;
use crate::engine::command::{Caller, DeleteAdvertCommand, PublishOrHeartbeatAdvertCommand};

impl RequestReader {
    /// Reads an update: creates or replaces an advertisement, or sends a heartbeat.
    pub fn update_command(
        &self,
        caller: &Caller,
        wire: pb::UpdateAdvertisementRequest,
    ) -> Result<PublishOrHeartbeatAdvertCommand, Rejection> {
        let mut problems = self.new_field_errors();
        let creates = wire.advertisement_id.is_empty();
        reject_changes_in_heartbeat(&wire, creates, &mut problems);
        let set_id = if creates {
            Some(self.required_own_or_envelope_set_id(wire.matchmaking_set_id, &mut problems))
        } else {
            self.own_or_envelope_set_id(wire.matchmaking_set_id, &mut problems)
        };
        let key = wire.idempotency_key;
        if !key.is_empty() {
            field_checks::check_idempotency_key(&key, caller.subject.is_none(), "idempotency_key", &mut problems);
        }
        field_checks::check_byte_len(
            wire.connect_data.len(),
            limit::CONNECT_DATA_BYTES_MAX,
            "connect_data",
            &mut problems,
        );
        let mut composition = wire.session_composition;
        let update = PublishOrHeartbeatAdvertCommand {
            existing_advert: existing_advertisement(&wire.advertisement_id, wire.advertisement_token, &mut problems),
            consents: session::take_consent_tokens(composition.as_mut(), &mut problems),
            latency_tokens: session::take_latency_tokens(composition.as_mut(), &mut problems),
            session: composition.map(|wire| session::advertised_session(wire, caller.program_kind, &mut problems)),
            set_id,
            ruleset_hash: wire.service_configuration_hash.map(RulesetHash),
            ttl_ms: wire.time_to_live_ms.map(field_checks::saturating_u32_ms),
            connect_data: wire.connect_data,
            allowed_ranges: allowed_ranges(wire.allowed_ranges, &mut problems),
            probe: wire.probe.and_then(|probe| probe_endpoint(caller, probe, &mut problems)),
            kind: advertisement_kind(wire.kind, &mut problems),
            confirmed_reservations: reservation_ids(
                &wire.confirmed_reservation_ids,
                "confirmed_reservation_ids",
                &mut problems,
            ),
            joined_reservations: reservation_ids(&wire.joined_reservation_ids, "joined_reservation_ids", &mut problems),
            idempotency_key: (!key.is_empty()).then_some(key),
            envelope_nonce: self.envelope_nonce,
        };
        problems.into_result(update)
    }

    /// Reads the deletion of an advertisement.
    pub fn delete_command(&self, wire: pb::DeleteAdvertisementRequest) -> Result<DeleteAdvertCommand, Rejection> {
        let mut problems = self.new_field_errors();
        let id = field_checks::parse_advertisement_id(&wire.advertisement_id, "advertisement_id", &mut problems);
        let token = field_checks::size_checked_token(wire.advertisement_token, "advertisement_token", &mut problems);
        let id = id.unwrap_or(AdvertisementId::from_bytes([0; 16]));
        problems.into_result(DeleteAdvertCommand { id, advertisement_token: token })
    }
}

fn reject_changes_in_heartbeat(wire: &pb::UpdateAdvertisementRequest, creates: bool, problems: &mut FieldErrors) {
    if wire.session_composition.is_some() {
        return;
    }
    if creates {
        problems.add("session_composition", "is missing; a new advertisement requires it");
        return;
    }
    let message = "cannot change in a heartbeat; send session_composition too, to replace the advertisement";
    if !wire.connect_data.is_empty() {
        problems.add("connect_data", message);
    }
    if !wire.allowed_ranges.is_empty() {
        problems.add("allowed_ranges", message);
    }
    if wire.probe.is_some() {
        problems.add("probe", message);
    }
}

/// Checks a probe endpoint. It must be at the caller's own address: an endpoint that names another machine would make searchers
/// send there.
fn probe_endpoint(caller: &Caller, wire: pb::ProbeEndpoint, problems: &mut FieldErrors) -> Option<ProbeEndpoint> {
    let port = u16::try_from(wire.port).unwrap_or(0);
    if port == 0 {
        problems.add("probe.port", format!("is {}; must be from 1 to 65535", wire.port));
    }
    if !limit::PROBE_KEY_BYTES_RANGE.contains(&wire.probe_key.len()) {
        let (min, max) = (limit::PROBE_KEY_BYTES_RANGE.start(), limit::PROBE_KEY_BYTES_RANGE.end());
        problems.add("probe.probe_key", format!("has {} bytes; must have {min} to {max}", wire.probe_key.len()));
    }
    let own = caller.ip_address.map(|address| address.to_canonical());
    let address = match (<[u8; 4]>::try_from(&*wire.address), <[u8; 16]>::try_from(&*wire.address)) {
        (Ok(bytes), _) => Some(IpAddr::from(bytes)),
        (_, Ok(bytes)) => Some(IpAddr::from(bytes).to_canonical()),
        _ if wire.address.is_empty() => own,
        _ => {
            problems.add("probe.address", format!("has {} bytes; must have 4, 16 or none", wire.address.len()));
            None
        }
    };
    if address.is_none() || address != own {
        problems.add("probe.address", "is not the caller's own address; leave it out");
        return None;
    }
    let octets = |address: IpAddr| match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    };
    address.map(|address| ProbeEndpoint { address: octets(address), port, key: wire.probe_key.into() })
}

fn existing_advertisement(id: &str, token: Vec<u8>, problems: &mut FieldErrors) -> Option<(AdvertisementId, Vec<u8>)> {
    let token = field_checks::size_checked_token(token, "advertisement_token", problems);
    if id.is_empty() {
        if !token.is_empty() {
            problems.add("advertisement_id", "is missing, but advertisement_token is set; send both or neither");
        }
        return None;
    }
    Some((field_checks::parse_advertisement_id(id, "advertisement_id", problems)?, token))
}

fn allowed_ranges(wire: Vec<pb::AllowedRange>, problems: &mut FieldErrors) -> Vec<AllowedRange> {
    if !field_checks::check_list_len(
        wire.len(),
        limit::ALLOWED_RANGES_PER_ADVERTISEMENT_MAX,
        "allowed_ranges",
        problems,
    ) {
        return Vec::new();
    }
    let ranges = wire.into_iter().enumerate().map(|(index, range)| {
        let path = format_args!("allowed_ranges[{index}]");
        field_checks::check_required_text(&range.attribute, format_args!("{path}.attribute"), problems);
        let min = range.min.map(|min| field_checks::checked_number(min, format_args!("{path}.min"), problems));
        let max = range.max.map(|max| field_checks::checked_number(max, format_args!("{path}.max"), problems));
        match (min, max) {
            (None, None) => problems.add(path, "has neither min nor max; set at least one"),
            (Some(min), Some(max)) if max < min => {
                problems.add(path, format!("has min {min} above max {max}; swap them"))
            }
            _ => {}
        }
        AllowedRange { attribute: range.attribute.into(), min, max }
    });
    ranges.collect()
}

fn advertisement_kind(wire: i32, problems: &mut FieldErrors) -> Option<AdvertisementKind> {
    match pb::AdvertisementKind::try_from(wire) {
        Ok(pb::AdvertisementKind::Unspecified) => None,
        Ok(pb::AdvertisementKind::Session) => Some(AdvertisementKind::Session),
        Ok(pb::AdvertisementKind::GameServer) => Some(AdvertisementKind::GameServer),
        Err(_) => {
            problems.add("kind", format!("is {wire}, an unknown AdvertisementKind; leave it out for a session"));
            None
        }
    }
}

fn reservation_ids(wire: &[String], path: impl Display + Copy, problems: &mut FieldErrors) -> Vec<ReservationId> {
    if !field_checks::check_list_len(wire.len(), limit::RESERVATION_IDS_PER_UPDATE_MAX, path, problems) {
        return Vec::new();
    }
    let ids = wire.iter().enumerate();
    ids.filter_map(|(index, id)| field_checks::parse_reservation_id(id, format_args!("{path}[{index}]"), problems))
        .collect()
}
