//! Conversion of hosted matches: heartbeats of their hosts, and matches as their hosts see them.

use crate::api::convert::{RequestReader, field_checks, session};
use crate::api::pb;
use crate::api::status::Rejection;
use crate::domain::attribute::{AttributeValue, ShortString};
use crate::domain::chosen_value::ChosenValue;
use crate::domain::id::MatchId;
use crate::domain::limit;
use crate::engine::command::Caller;
use crate::engine::queues::command::{HostHeartbeatAnswer, HostHeartbeatCommand, HostedMatchBeat};
use crate::engine::queues::start_match_command::{StartMatchAnswer, StartMatchCommand, StartMatchTeam};
use crate::engine::{HostedMatch, HostedMatchState, HostedParty, HostedPlayer};

impl RequestReader {
    /// Reads the heartbeat of a host.
    pub fn host_heartbeat_command(
        &self,
        wire: pb::QueueHostHeartbeatRequest,
    ) -> Result<HostHeartbeatCommand, Rejection> {
        let mut problems = self.new_field_errors();
        let advertisement_token =
            field_checks::size_checked_token(wire.advertisement_token, "advertisement_token", &mut problems);
        if advertisement_token.is_empty() {
            problems.add("advertisement_token", "is missing; send the token of the advertisement");
        }
        let max = limit::HOSTED_MATCHES_PER_CALL_MAX;
        let fits = field_checks::check_list_len(wire.matches.len(), max, "matches", &mut problems);
        let named = wire.matches.into_iter().enumerate().filter(|_| fits);
        let matches = named.map(|(index, beat)| HostedMatchBeat {
            match_id: MatchId::parse(&beat.match_id).unwrap_or_else(|| {
                let message = field_checks::invalid_id_message(&beat.match_id, field_checks::MATCH_ID_OBTAINED_FROM);
                problems.add(format!("matches[{index}].match_id"), message);
                MatchId::from_bytes([0; 16])
            }),
            is_given_up: beat.gives_up,
        });
        let matches = matches.collect();
        problems.into_result(HostHeartbeatCommand { advertisement_token, matches })
    }

    /// Reads the start of a session's match.
    pub fn start_match_command(
        &self,
        caller: &Caller,
        mut wire: pb::StartMatchRequest,
    ) -> Result<StartMatchCommand, Rejection> {
        let mut problems = self.new_field_errors();
        let advertisement_id =
            field_checks::parse_advertisement_id(&wire.advertisement_id, "advertisement_id", &mut problems);
        let advertisement_token =
            field_checks::size_checked_token(wire.advertisement_token, "advertisement_token", &mut problems);
        if wire.idempotency_key.is_empty() {
            problems.add("idempotency_key", "is missing; choose a key and repeat it when you retry");
        } else {
            let is_anonymous = caller.subject.is_none();
            field_checks::check_idempotency_key(&wire.idempotency_key, is_anonymous, "idempotency_key", &mut problems);
        }
        let consents = session::take_player_consent_tokens(&mut wire.host_party, "host_party", &mut problems);
        let host_party = session::players(&wire.host_party, "host_party", &mut problems);
        let max = limit::PARTIES_PER_SESSION_MATCH_MAX;
        if wire.teams.is_empty() {
            problems.add("teams", "is missing; name at least one team");
        }
        let reservation_count: usize = wire.teams.iter().map(|team| team.reservation_ids.len()).sum();
        let fits = field_checks::check_list_len(wire.teams.len(), max, "teams", &mut problems)
            && field_checks::check_list_len(reservation_count, max, "teams", &mut problems);
        let mut teams = Vec::new();
        for (team, wire_team) in wire.teams.into_iter().enumerate().filter(|_| fits) {
            let ids = wire_team.reservation_ids.iter().enumerate();
            let ids = ids.filter_map(|(index, id)| {
                let path = format_args!("teams[{team}].reservation_ids[{index}]");
                field_checks::parse_reservation_id(id, path, &mut problems)
            });
            teams.push(StartMatchTeam { has_host_party: wire_team.host_party, reservations: ids.collect() });
        }
        problems.into_result(StartMatchCommand {
            advertisement_id,
            advertisement_token,
            idempotency_key: wire.idempotency_key,
            others_in_host_party: host_party,
            consents,
            teams,
        })
    }
}

/// Converts the answer to the heartbeat of a host.
pub(crate) fn host_heartbeat_response(answer: HostHeartbeatAnswer) -> pb::QueueHostHeartbeatResponse {
    pb::QueueHostHeartbeatResponse {
        matches: answer.matches.iter().map(hosted_match_response).collect(),
        hosted_match_ids: answer.hosted_match_ids.iter().map(ToString::to_string).collect(),
        next_beat_in_ms: answer.next_beat_in_ms,
    }
}

/// Converts the answer to the start of a session's match.
pub(crate) fn start_match_response(answer: &StartMatchAnswer) -> pb::StartMatchResponse {
    let (ticket_id, ticket_token) =
        answer.own_ticket.clone().map_or_else(Default::default, |(id, token)| (id.to_string(), token));
    pb::StartMatchResponse {
        r#match: Some(hosted_match_response(&answer.hosted)),
        unavailable_reservation_ids: answer.unavailable.iter().map(ToString::to_string).collect(),
        ticket_id,
        ticket_token,
        next_beat_in_ms: answer.next_beat_in_ms,
    }
}

/// Converts a match as its host sees it.
pub(crate) fn hosted_match_response(hosted: &HostedMatch) -> pb::HostedMatch {
    let state = match hosted.state {
        HostedMatchState::AwaitingHostConfirmation(_) => pb::HostedMatchState::Confirming,
        HostedMatchState::Playing => pb::HostedMatchState::Playing,
        HostedMatchState::Ended => pb::HostedMatchState::Ended,
        HostedMatchState::NotHosted => pb::HostedMatchState::NotHosted,
    };
    let named = pb::HostedMatch { match_id: hosted.id.to_string(), state: state.into(), ..pb::HostedMatch::default() };
    let Some(details) = &hosted.details else { return named };
    pb::HostedMatch {
        matchmaking_set_id: details.set_id.0,
        service_configuration_hash: details.ruleset_hash.0,
        advertisement_id: details.advertisement_id.to_string(),
        reservation_id: details.reservation_id.map_or_else(String::new, |id| id.to_string()),
        region: details.region.as_deref().unwrap_or_default().to_owned(),
        backfill: details.is_backfill,
        confirm_in_ms: hosted.confirm_in_ms,
        parties: details.parties.iter().map(hosted_party).collect(),
        chosen: chosen_values(&details.chosen_values),
        bots_by_team: details.bots_by_team.iter().map(|count| (*count).into()).collect(),
        ..named
    }
}

/// Converts chosen entries of string lists.
pub(crate) fn chosen_values(chosen: &[ChosenValue]) -> Vec<pb::ChosenValue> {
    let convert = |ChosenValue { attribute, value }: &ChosenValue| pb::ChosenValue {
        attribute: attribute.to_string(),
        value: value.to_string(),
    };
    chosen.iter().map(convert).collect()
}

fn hosted_party(party: &HostedParty) -> pb::HostedParty {
    pb::HostedParty {
        team: party.team.into(),
        players: party.players.iter().map(hosted_player).collect(),
        attributes: party.attributes.iter().map(attribute).collect(),
        reservation_id: party.reservation_id.map_or_else(String::new, |id| id.to_string()),
    }
}

fn hosted_player(player: &HostedPlayer) -> pb::HostedPlayer {
    pb::HostedPlayer {
        player_key: player.player_key.to_string(),
        team_role: player.team_role.as_deref().unwrap_or_default().to_owned(),
        left: player.has_left,
        rating: player.rating.map(|rating| rating.rating),
        deviation: player.rating.map(|rating| rating.deviation),
        attributes: player.attributes.iter().map(attribute).collect(),
    }
}

fn attribute((name, value): &(ShortString, AttributeValue)) -> (String, pb::AttributeValue) {
    (name.to_string(), attribute_value(value))
}

fn attribute_value(value: &AttributeValue) -> pb::AttributeValue {
    use pb::attribute_value::Value as Wire;
    let value = match value {
        AttributeValue::Number(number) => Wire::NumberValue(*number),
        AttributeValue::String(text) => Wire::StringValue(text.to_string()),
        AttributeValue::Bool(flag) => Wire::BoolValue(*flag),
        AttributeValue::StringList(list) => {
            Wire::StringList(pb::StringList { values: list.iter().map(ToString::to_string).collect() })
        }
    };
    pb::AttributeValue { value: Some(value) }
}
