//! Conversion of a session composition. Checks each list, text and number against its limit.

use std::collections::BTreeMap;
use std::fmt::Display;

use crate::api::convert::{FieldErrors, field_checks, wishes};
use crate::api::pb;
use crate::domain::attribute::{AttributeValue, ShortString, ValueOrigin};
use crate::domain::id::{SiloId, UserKey};
use crate::domain::limit;
use crate::domain::locality::Locality;
use crate::domain::session::{PartySizes, Player, PlayerDetails, RegionLatency, Session};
use crate::engine::LatencyTokens;
use crate::engine::command::PartyConsents;

/// Name of the field in each request that has a session composition.
pub(super) const SESSION_COMPOSITION_FIELD: &str = "session_composition";

/// Reads a required session composition.
pub(crate) fn required_session(
    wire: Option<pb::SessionCompositionData>,
    origin: ValueOrigin,
    problems: &mut FieldErrors,
) -> Session {
    let Some(wire) = wire else {
        problems.add(SESSION_COMPOSITION_FIELD, "is missing; describe the party or session");
        return Session::default();
    };
    let players_path = format_args!("{SESSION_COMPOSITION_FIELD}.players");
    session_from_proto(wire, players_path, origin, problems)
}

/// Reads the composition of a session to advertise, whose host may state the teams of its players.
pub(super) fn advertised_session(
    wire: pb::SessionCompositionData,
    origin: ValueOrigin,
    problems: &mut FieldErrors,
) -> Session {
    let teams: Vec<Option<u32>> = wire.players.iter().map(|player| player.team).collect();
    let mut session = required_session(Some(wire), origin, problems);
    for (player, team) in session.players.iter_mut().zip(teams) {
        // The ruleset says which of these teams there are.
        player.team = team.map(|team| u16::try_from(team).unwrap_or(u16::MAX));
    }
    session
}

/// Takes the consent tokens out of a composition's players.
pub(super) fn take_consent_tokens(
    wire: Option<&mut pb::SessionCompositionData>,
    problems: &mut FieldErrors,
) -> PartyConsents {
    let players = wire.map_or(&mut [][..], |wire| &mut wire.players);
    take_player_consent_tokens(players, "session_composition.players", problems)
}

/// Takes the latency tokens out of a composition and its players.
pub(super) fn take_latency_tokens(
    wire: Option<&mut pb::SessionCompositionData>,
    problems: &mut FieldErrors,
) -> LatencyTokens {
    let Some(wire) = wire else { return LatencyTokens::default() };
    let own = std::mem::take(&mut wire.latency_token);
    let own = field_checks::size_checked_token(own, "session_composition.latency_token", problems);
    let mut players = Vec::new();
    for (index, player) in wire.players.iter_mut().enumerate().take(limit::PLAYERS_PER_SESSION_MAX) {
        if !player.latency_token.is_empty() {
            let path = format_args!("session_composition.players[{index}].latency_token");
            players.resize(index, Vec::new());
            players.push(field_checks::size_checked_token(std::mem::take(&mut player.latency_token), path, problems));
        }
    }
    LatencyTokens::new(own, players)
}

/// Takes the consent tokens out of the players at `players_path`.
pub(super) fn take_player_consent_tokens(
    players: &mut [pb::PlayerData],
    players_path: &'static str,
    problems: &mut FieldErrors,
) -> PartyConsents {
    let mut tokens = Vec::new();
    // A list of too many players is rejected when the players are read.
    for (index, player) in players.iter_mut().enumerate().take(limit::PLAYERS_PER_SESSION_MAX) {
        if !player.consent_token.is_empty() {
            let path = format_args!("{players_path}[{index}].consent_token");
            tokens.resize(index, Vec::new());
            tokens.push(field_checks::size_checked_token(std::mem::take(&mut player.consent_token), path, problems));
        }
    }
    PartyConsents { players_field_path: players_path, consent_tokens: tokens }
}

/// Reads a session composition; `players_path` is the field path of its players.
pub(super) fn session_from_proto(
    mut wire: pb::SessionCompositionData,
    players_path: impl Display + Copy,
    origin: ValueOrigin,
    problems: &mut FieldErrors,
) -> Session {
    let player_count = wire.players.len();
    let mut players = players(&wire.players, players_path, problems);
    for (index, (player, wire)) in players.iter_mut().zip(&mut wire.players).enumerate() {
        player.details = player_details(wire, format_args!("{players_path}[{index}]"), problems);
    }
    let party_sizes = party_sizes(&wire.party_size_composition, player_count, players_path, problems);
    let non_negative = |value: Option<i32>, name: &str, problems: &mut FieldErrors| {
        value.map(|value| {
            field_checks::check_and_clamp_integer(
                value,
                0,
                i32::MAX,
                format_args!("{SESSION_COMPOSITION_FIELD}.{name}"),
                problems,
            )
        })
    };
    let seats_path = format_args!("{SESSION_COMPOSITION_FIELD}.max_allowed_join_reservation_count");
    let seats = wire.max_allowed_join_reservation_count.unwrap_or(0);
    let seats = field_checks::check_and_clamp_integer(seats, 0, i32::from(limit::OPEN_SEATS_MAX), seats_path, problems);
    Session {
        silo: SiloId(wire.silo_id.unwrap_or(0)),
        party_sizes,
        players,
        nat_type: non_negative(wire.nat_type, "nat_type", problems),
        game_in_progress: wire.game_in_progress,
        big_party_count: non_negative(wire.big_party_count, "big_party_count", problems),
        offered_seats: u16::try_from(seats).unwrap_or(0),
        locality: wire.locality_info.and_then(|wire| locality(wire, problems)),
        attributes: attributes(wire.attributes, format_args!("{SESSION_COMPOSITION_FIELD}.attributes"), problems),
        region_latencies: region_latencies(wire.region_latencies, problems),
        details: wishes::session_details_from_wishes(
            wire.wishes,
            format_args!("{SESSION_COMPOSITION_FIELD}.wishes"),
            problems,
        ),
        value_origin: origin,
    }
}

fn party_sizes(
    wire: &[i32],
    player_count: usize,
    players_path: impl Display + Copy,
    problems: &mut FieldErrors,
) -> PartySizes {
    let path = format_args!("{SESSION_COMPOSITION_FIELD}.party_size_composition");
    if wire.is_empty() {
        if player_count == 0 {
            problems.add(path, "is missing, and so are players; send party sizes, players or both");
        }
        return [u8::try_from(player_count.clamp(1, limit::PLAYERS_PER_SESSION_MAX)).unwrap_or(1)].into();
    }
    if !field_checks::check_list_len(wire.len(), limit::PARTIES_PER_SESSION_MAX, path, problems) {
        return PartySizes::default();
    }
    let max = limit::PLAYERS_PER_SESSION_MAX as i32;
    for (index, &size) in wire.iter().enumerate() {
        field_checks::check_and_clamp_integer(size, 1, max, format_args!("{path}[{index}]"), problems);
    }
    let sum: i64 = wire.iter().map(|&size| i64::from(size)).sum();
    if sum > i64::from(max) {
        problems.add(path, format!("adds up to {sum} players; at most {max} are allowed"));
    } else if player_count != 0 && sum != player_count as i64 {
        problems.add(path, format!("adds up to {sum}, but {players_path} has {player_count}; they must agree"));
    }
    wire.iter().map(|&size| u8::try_from(size).unwrap_or(0)).collect()
}

pub(super) fn players(wire: &[pb::PlayerData], path: impl Display + Copy, problems: &mut FieldErrors) -> Vec<Player> {
    if !field_checks::check_list_len(wire.len(), limit::PLAYERS_PER_SESSION_MAX, path, problems) {
        return Vec::new();
    }
    let mut players = Vec::with_capacity(wire.len());
    for (index, player) in wire.iter().enumerate() {
        let user_path = format_args!("{path}[{index}].user_id");
        field_checks::check_required_text(&player.user_id, user_path, problems);
        field_checks::check_text_len(&player.player_id, format_args!("{path}[{index}].player_id"), problems);
        // Linear search: the limit above keeps the list short.
        let same_user = |other: &pb::PlayerData| other.user_id == player.user_id;
        if !player.user_id.is_empty()
            && let Some(first) = wire[..index].iter().rposition(same_user)
        {
            problems.add(user_path, format!("is also the user of {path}[{first}]; list each user once"));
        }
        let skill = player
            .skill
            .map(|skill| field_checks::checked_number(skill, format_args!("{path}[{index}].skill"), problems));
        let user = UserKey::from_name(&player.user_id);
        let player = if player.player_id.is_empty() { user } else { UserKey::from_name(&player.player_id) };
        players.push(Player { client_key: player, stated_skill: skill, ..Player::from_user(user) });
    }
    players
}

/// Takes the attributes and wanted roles of a player; `None` if there are none.
fn player_details(
    wire: &mut pb::PlayerData,
    path: impl Display + Copy,
    problems: &mut FieldErrors,
) -> Option<Box<PlayerDetails>> {
    if wire.attributes.is_empty() && wire.roles.is_empty() {
        return None;
    }
    let own = std::mem::take(&mut wire.attributes);
    let attributes = attributes(own, format_args!("{path}.attributes"), problems);
    let mut wanted_roles: Vec<Box<str>> = Vec::new();
    let roles_path = format_args!("{path}.roles");
    if field_checks::check_list_len(wire.roles.len(), limit::WANTED_ROLES_PER_PLAYER_MAX, roles_path, problems) {
        for (index, role) in wire.roles.drain(..).enumerate() {
            let role_path = format_args!("{roles_path}[{index}]");
            field_checks::check_required_text(&role, role_path, problems);
            if wanted_roles.iter().any(|known| **known == *role) {
                problems.add(role_path, "is listed twice; list each role once");
            }
            wanted_roles.push(role.into());
        }
    }
    Some(Box::new(PlayerDetails { attributes, wanted_roles }))
}

fn locality(wire: pb::LocalityData, problems: &mut FieldErrors) -> Option<Locality> {
    let path = format_args!("{SESSION_COMPOSITION_FIELD}.locality_info");
    let (x, y, z) = match (wire.locality_x, wire.locality_y, wire.locality_z) {
        (Some(x), Some(y), Some(z)) if wire.latitude_degrees.is_none() && wire.longitude_degrees.is_none() => (x, y, z),
        (None, None, None) => return locality_from_degrees(&wire, problems),
        _ => {
            problems.add(
                path,
                "is incomplete or ambiguous; give locality_x, _y and _z, or latitude_degrees and longitude_degrees",
            );
            return None;
        }
    };
    let locality = Locality::from_xyz_miles(x, y, z);
    if locality.is_none() {
        problems.add(path, "is not on the sphere of radius 4000 miles, give or take 5");
    }
    locality
}

fn locality_from_degrees(wire: &pb::LocalityData, problems: &mut FieldErrors) -> Option<Locality> {
    let path = format_args!("{SESSION_COMPOSITION_FIELD}.locality_info");
    let (Some(latitude), Some(longitude)) = (wire.latitude_degrees, wire.longitude_degrees) else {
        problems.add(path, "is incomplete; give locality_x, _y and _z, or latitude_degrees and longitude_degrees");
        return None;
    };
    let locality = Locality::from_degrees(latitude, longitude);
    if locality.is_none() {
        problems
            .add(path, "is out of range; give latitude_degrees from -90 to 90 and longitude_degrees from -180 to 180");
    }
    locality
}

fn attributes(
    wire: BTreeMap<String, pb::AttributeValue>,
    path: impl Display + Copy,
    problems: &mut FieldErrors,
) -> Vec<(ShortString, AttributeValue)> {
    if !field_checks::check_list_len(wire.len(), limit::ATTRIBUTES_MAX, path, problems) {
        return Vec::new();
    }
    // A `BTreeMap` iterates by name, the order that `Session` requires.
    let attributes = wire.into_iter().filter_map(|(name, value)| {
        let path = format_args!("{path}[{name:?}]");
        field_checks::check_required_text(&name, path, problems);
        let value = attribute_value(value.value, path, problems)?;
        Some((name.into(), value))
    });
    attributes.collect()
}

fn attribute_value(
    wire: Option<pb::attribute_value::Value>,
    path: impl Display + Copy,
    problems: &mut FieldErrors,
) -> Option<AttributeValue> {
    use pb::attribute_value::Value as Wire;
    match wire {
        None => {
            problems.add(path, "has no value; set one of the value fields");
            None
        }
        Some(Wire::NumberValue(number)) => Some(AttributeValue::Number(field_checks::checked_number(
            number,
            format_args!("{path}.number_value"),
            problems,
        ))),
        Some(Wire::StringValue(text)) => {
            field_checks::check_text_len(&text, format_args!("{path}.string_value"), problems);
            Some(AttributeValue::String(text.into()))
        }
        Some(Wire::BoolValue(flag)) => Some(AttributeValue::Bool(flag)),
        Some(Wire::StringList(list)) => {
            let path = format_args!("{path}.string_list.values");
            if field_checks::check_list_len(list.values.len(), limit::STRING_LIST_ENTRIES_MAX, path, problems) {
                for (index, text) in list.values.iter().enumerate() {
                    field_checks::check_text_len(text, format_args!("{path}[{index}]"), problems);
                }
            }
            Some(AttributeValue::from_string_list(list.values.into_iter().map(String::into_boxed_str).collect()))
        }
    }
}

fn region_latencies(wire: Vec<pb::RegionLatency>, problems: &mut FieldErrors) -> Box<[RegionLatency]> {
    let path = format_args!("{SESSION_COMPOSITION_FIELD}.region_latencies");
    if !field_checks::check_list_len(wire.len(), limit::REGIONS_PER_SESSION_MAX, path, problems) {
        return Box::default();
    }
    let mut regions = Vec::with_capacity(wire.len());
    for (index, region) in wire.into_iter().enumerate() {
        field_checks::check_required_text(&region.region, format_args!("{path}[{index}].region"), problems);
        let ms = field_checks::checked_round_trip_ms(
            region.round_trip_ms,
            format_args!("{path}[{index}].round_trip_ms"),
            problems,
        );
        if regions.iter().any(|known: &RegionLatency| *known.region == *region.region) {
            problems.add(format_args!("{path}[{index}].region"), "is listed twice; list each region once");
        }
        regions.push(RegionLatency { region: region.region.into(), round_trip_ms: ms });
    }
    regions.sort_by(|left, right| left.region.cmp(&right.region));
    regions.into()
}
