//! Conversion of hosted matches: heartbeats of their hosts, and matches as their hosts see them.

use crate::api::convert::{EntryPoint, field_checks};
use crate::api::pb;
use crate::api::status::Rejection;
use crate::domain::attribute::AttributeValue;
use crate::domain::id::MatchId;
use crate::domain::limit;
use crate::engine::queues::command::{HostHeartbeatAnswer, HostHeartbeatCommand, HostedMatchBeat};
use crate::engine::{HostedMatch, HostedMatchState, HostedParty, HostedPlayer};

impl EntryPoint {
    /// Reads the heartbeat of a host.
    pub fn host_heartbeat_command(
        &self,
        wire: pb::QueueHostHeartbeatRequest,
    ) -> Result<HostHeartbeatCommand, Rejection> {
        let mut problems = self.field_errors();
        let advertisement_token =
            field_checks::checked_token(wire.advertisement_token, "advertisement_token", &mut problems);
        if advertisement_token.is_empty() {
            problems.add("advertisement_token", "is missing; send the token of the advertisement");
        }
        let max = limit::HOSTED_MATCHES_PER_CALL_MAX;
        let fits = field_checks::check_list_len(wire.matches.len(), max, "matches", &mut problems);
        let named = wire.matches.into_iter().enumerate().filter(|_| fits);
        let matches = named.map(|(index, beat)| HostedMatchBeat {
            match_id: MatchId::parse(&beat.match_id).unwrap_or_else(|| {
                let message = field_checks::invalid_id_message(&beat.match_id, field_checks::MATCH_ID_SOURCE);
                problems.add(format!("matches[{index}].match_id"), message);
                MatchId::from_bytes([0; 16])
            }),
            gives_up: beat.gives_up,
        });
        let matches = matches.collect();
        problems.into_result(HostHeartbeatCommand { advertisement_token, matches })
    }
}

/// Converts the answer to the heartbeat of a host.
pub(crate) fn host_heartbeat_response(answer: HostHeartbeatAnswer) -> pb::QueueHostHeartbeatResponse {
    pb::QueueHostHeartbeatResponse {
        matches: answer.matches.iter().map(hosted_match).collect(),
        hosted_match_ids: answer.hosted_match_ids.iter().map(ToString::to_string).collect(),
        next_beat_in_ms: answer.next_beat_in_ms,
    }
}

/// Converts a match as its host sees it.
pub(crate) fn hosted_match(hosted: &HostedMatch) -> pb::HostedMatch {
    let state = match hosted.state {
        HostedMatchState::Confirming(_) => pb::HostedMatchState::Confirming,
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
        reservation_id: details.reservation_id.to_string(),
        region: details.region.as_deref().unwrap_or_default().to_owned(),
        backfill: details.is_backfill,
        confirm_in_ms: hosted.confirm_in_ms,
        parties: details.parties.iter().map(hosted_party).collect(),
        ..named
    }
}

fn hosted_party(party: &HostedParty) -> pb::HostedParty {
    let attribute = |(name, value): &(Box<str>, AttributeValue)| (name.to_string(), attribute_value(value));
    pb::HostedParty {
        team: party.team.into(),
        players: party.players.iter().map(hosted_player).collect(),
        attributes: party.attributes.iter().map(attribute).collect(),
    }
}

fn hosted_player(player: &HostedPlayer) -> pb::HostedPlayer {
    pb::HostedPlayer {
        player_key: player.player_key.to_string(),
        team_role: player.team_role.as_deref().unwrap_or_default().to_owned(),
        left: player.has_left,
        rating: player.rating.map(|rating| rating.rating),
        deviation: player.rating.map(|rating| rating.deviation),
    }
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
