//! Conversions of operators' calls about one match, ticket or user.

use crate::api::convert::operator::explained_estimate;
use crate::api::convert::queue::{match_end_reason, ticket_state_and_end_reason};
use crate::api::convert::{FieldErrors, RequestReader, field_checks, rating};
use crate::api::pb;
use crate::api::status::Rejection;
use crate::auth::public_user_keys::{KeyPurpose, PublicUserKeySecret};
use crate::domain::id::{MatchId, SetId, SiloId, TicketId, UserKey};
use crate::domain::latency::worst_pair::WorstPair;
use crate::domain::lifecycle::{Assignment, Match, MatchPlayer, MatchStage};
use crate::domain::time::UnixMs;
use crate::engine::queues::operator_command::{
    EntryObstacle, MatchOverview, PlayerEntryQuery, PlayerOverview, PlayerTicket, SetEntryOverview,
};

/// Limit of the reason that an operator gives, bytes.
const REASON_BYTES_MAX: usize = 256;

/// Reads a CancelMatch request: the match, and the reason for the audit log.
pub(crate) fn cancel_match_command(wire: pb::CancelMatchRequest) -> Result<(MatchId, String), Rejection> {
    let mut problems = RequestReader::default().new_field_errors();
    let id = required_match_id(&wire.match_id, &mut problems);
    check_reason(&wire.reason, &mut problems);
    problems.into_result((id, wire.reason))
}

/// Reads a DismissTicket request: the ticket, and the reason for the audit log.
pub(crate) fn dismiss_ticket_command(wire: pb::DismissTicketRequest) -> Result<(TicketId, String), Rejection> {
    let mut problems = RequestReader::default().new_field_errors();
    let id = TicketId::parse(&wire.ticket_id).unwrap_or_else(|| {
        problems
            .add("ticket_id", field_checks::invalid_id_message(&wire.ticket_id, field_checks::TICKET_ID_OBTAINED_FROM));
        TicketId::from_bytes([0; 16])
    });
    check_reason(&wire.reason, &mut problems);
    problems.into_result((id, wire.reason))
}

/// Reads a GetMatch request.
pub(crate) fn get_match_query(wire: &pb::GetMatchRequest) -> Result<MatchId, Rejection> {
    let mut problems = RequestReader::default().new_field_errors();
    let id = required_match_id(&wire.match_id, &mut problems);
    problems.into_result(id)
}

/// Reads a GetPlayer request.
pub(crate) fn get_player_query(
    wire: &pb::GetPlayerRequest,
    keys: &PublicUserKeySecret,
) -> Result<PlayerEntryQuery, Rejection> {
    let mut problems = RequestReader::default().new_field_errors();
    let user = required_user(&wire.user_id, &wire.user_key, keys, &mut problems);
    let query = PlayerEntryQuery { user, set_id: wire.matchmaking_set_id.map(SetId), silo: SiloId(wire.silo_id) };
    problems.into_result(query)
}

/// Reads the user of an operator's call: an account, or a key from another answer.
pub(super) fn required_user(
    user_id: &str,
    user_key: &str,
    keys: &PublicUserKeySecret,
    problems: &mut FieldErrors,
) -> UserKey {
    match (user_id.is_empty(), user_key.is_empty()) {
        (false, true) => {
            field_checks::check_text_len(user_id, "user_id", problems);
            UserKey::from_name(user_id)
        }
        (true, false) => match UserKey::parse(user_key) {
            Some(public_key) => keys.user_of(KeyPurpose::Operator, public_key),
            None => {
                problems
                    .add("user_key", "is not a key of 32 hexadecimal digits; send the key from GetMatch, or user_id");
                UserKey::from_bytes([0; 16])
            }
        },
        (is_absent, _) => {
            problems.add(
                "user_id",
                if is_absent { "is missing; send user_id or user_key" } else { "and user_key are set; send one" },
            );
            UserKey::from_bytes([0; 16])
        }
    }
}

fn required_match_id(text: &str, problems: &mut FieldErrors) -> MatchId {
    MatchId::parse(text).unwrap_or_else(|| {
        problems.add("match_id", field_checks::invalid_id_message(text, field_checks::MATCH_ID_OBTAINED_FROM));
        MatchId::from_bytes([0; 16])
    })
}

pub(super) fn check_reason(reason: &str, problems: &mut FieldErrors) {
    if reason.trim().is_empty() {
        problems.add("reason", "is missing; say why, for the audit log");
    }
    field_checks::check_byte_len(reason.len(), REASON_BYTES_MAX, "reason", problems);
}

/// Name of a user in logs, as text.
pub(crate) fn user_log_name_text(name: [u8; 16]) -> String {
    UserKey::from_bytes(name).to_string()
}

/// Converts the state of a match.
pub(crate) fn match_response(overview: &MatchOverview, keys: &PublicUserKeySecret) -> pb::GetMatchResponse {
    let MatchOverview { found_match: found, placement_problem: blocking_rule, result, read_at: now } = overview;
    let (ends_at, host_lost_at) = match &found.stage {
        MatchStage::ReadyCheck { deadline }
        | MatchStage::Placing { deadline }
        | MatchStage::Confirming { deadline, .. } => (Some(*deadline), None),
        MatchStage::Playing { times_out_at, host_lost_at, .. } => (Some(*times_out_at), *host_lost_at),
        MatchStage::Ended { .. } => (None, None),
    };
    let host = found.stage.assignment_since_confirming();
    let player = |player: &MatchPlayer| pb::MatchPlayerDetails {
        user_key: keys.public_key(KeyPurpose::Operator, player.user).to_string(),
        acceptance: match player.accepted {
            None => pb::Acceptance::Unspecified,
            Some(true) => pb::Acceptance::Accepted,
            Some(false) => pb::Acceptance::Declined,
        }
        .into(),
        left_at_unix_ms: player.left_at.map(|at| at.0),
        is_host: matches!(host, Some(Assignment::PeerHost { host }) if *host == player.client),
    };
    let tickets = found.tickets.iter().map(|ticket| pb::MatchTicketDetails {
        ticket_id: ticket.ticket_id.to_string(),
        team: ticket.team.into(),
        entered_at_unix_ms: ticket.entered_at.0,
        players: ticket.players.iter().map(player).collect(),
    });
    pb::GetMatchResponse {
        match_id: found.id.to_string(),
        matchmaking_set_id: found.set_id.0,
        silo_id: found.silo.0,
        service_configuration_hash: found.ruleset_hash.0,
        stage: match_stage(&found.stage).into(),
        end_reason: match_end_reason(found.stage.end_reason()).into(),
        ends_in_ms: ends_at.map(|at| at.ms_since(*now)),
        host_lost_in_ms: host_lost_at.map(|at| at.ms_since(*now)),
        proposed_at_unix_ms: found.proposed_at.0,
        started_at_unix_ms: found.stage.started_at().map(|at| at.0),
        region: found.region.as_deref().unwrap_or_default().to_owned(),
        blocking_rule: blocking_rule.as_deref().unwrap_or_default().to_owned(),
        host_advertisement_id: match host {
            Some(Assignment::GameServer { advertisement, .. }) => advertisement.to_string(),
            Some(Assignment::PeerHost { .. } | Assignment::Unhosted) | None => String::new(),
        },
        tickets: tickets.collect(),
        version: found.version,
        worst_pair: found.worst_pair.map(|pair| worst_pair(found, pair)),
        quality: found.quality,
        result: result.as_ref().map(|result| rating::finished_match(result, keys)),
    }
}

/// Converts a stage.
pub(super) fn match_stage(stage: &MatchStage) -> pb::MatchStage {
    match stage {
        MatchStage::ReadyCheck { .. } => pb::MatchStage::ReadyCheck,
        MatchStage::Placing { .. } => pb::MatchStage::Placing,
        MatchStage::Confirming { .. } => pb::MatchStage::Confirming,
        MatchStage::Playing { .. } => pb::MatchStage::Playing,
        MatchStage::Ended { .. } => pb::MatchStage::Ended,
    }
}

fn worst_pair(found: &Match, pair: WorstPair) -> pb::WorstPair {
    let ticket_id = |index: u16| found.tickets.get(usize::from(index)).map(|ticket| ticket.ticket_id.to_string());
    pb::WorstPair {
        ticket_ids: pair.party_indices.into_iter().filter_map(ticket_id).collect(),
        round_trip: pair.estimate.map(explained_estimate),
    }
}

/// Converts the state of a user.
pub(crate) fn player_response(overview: &PlayerOverview, keys: &PublicUserKeySecret) -> pb::GetPlayerResponse {
    let now = overview.read_at;
    let current_match = overview.current_match.as_ref().map(|current| match_response(current, keys));
    let penalties = overview.penalties.iter().map(|(set_id, penalty)| pb::PlayerPenalty {
        matchmaking_set_id: set_id.0,
        level: penalty.level,
        cooldown_ms: penalty.active_cooldown_end(now).map(|until| until.ms_since(now)),
        resets_in_ms: penalty.resets_at.ms_since(now),
    });
    let silo = &overview.silo;
    pb::GetPlayerResponse {
        user_key: keys.public_key(KeyPurpose::Operator, overview.user).to_string(),
        tickets: overview.tickets.iter().map(|ticket| player_ticket(ticket, now)).collect(),
        sets: overview.sets.iter().map(|set| set_details(set, current_match.as_ref(), overview)).collect(),
        current_match,
        penalties: penalties.collect(),
        silo: Some(pb::SiloDetails {
            is_open: silo.is_open,
            open_silos: silo.open_silos,
            max_silos: silo.limits.map(|limits| limits.max_silos),
            opened_by_caller: silo.opened_by_account,
            max_silos_per_user: silo.limits.map(|limits| limits.max_silos_per_user),
        }),
        log_key: user_log_name_text(overview.log_name),
        leaderboard_user_key: keys.public_key(KeyPurpose::Leaderboard, overview.user).to_string(),
        credential_user_key: keys.public_key(KeyPurpose::Credential, overview.user).to_string(),
    }
}

fn player_ticket(ticket: &PlayerTicket, now: UnixMs) -> pb::PlayerTicketDetails {
    let (state, _) = ticket_state_and_end_reason(ticket.status.phase);
    let expires_in_ms = Some(ticket.expires_at.ms_since(now)).filter(|_| state != pb::TicketState::Matched);
    pb::PlayerTicketDetails {
        ticket_id: ticket.status.id.to_string(),
        matchmaking_set_id: ticket.status.set_id.0,
        silo_id: ticket.silo.0,
        state: state.into(),
        waited_ms: ticket.status.waited_ms,
        expires_in_ms,
        match_id: ticket.match_id.map_or_else(String::new, |id| id.to_string()),
        blocking_rule: ticket.status.blocking_rule.as_deref().unwrap_or_default().to_owned(),
    }
}

fn set_details(
    set: &SetEntryOverview,
    current_match: Option<&pb::GetMatchResponse>,
    overview: &PlayerOverview,
) -> pb::SetDetails {
    pb::SetDetails {
        matchmaking_set_id: set.set_id.0,
        name: set.name.to_string(),
        has_queue: set.has_queue,
        retires_in_ms: set.retires_at.map(|at| at.ms_since(overview.read_at)),
        obstacles: set
            .obstacles
            .iter()
            .map(|obstacle| entry_obstacle(obstacle, set, current_match, overview.read_at))
            .collect(),
    }
}

fn entry_obstacle(
    obstacle: &EntryObstacle,
    set: &SetEntryOverview,
    current_match: Option<&pb::GetMatchResponse>,
    now: UnixMs,
) -> pb::EntryObstacle {
    use pb::ErrorReason;
    let (reason, message) = match obstacle {
        EntryObstacle::UnknownSet => {
            (ErrorReason::UnknownMatchmakingSet, format!("no ruleset with SetId {} is loaded", set.set_id))
        }
        EntryObstacle::NoQueue => (ErrorReason::NoQueue, format!("ruleset `{}` has no <Queue>", set.name)),
        EntryObstacle::SetRetired => {
            (ErrorReason::SetRetired, "the set is being retired; return its ruleset file to keep it".to_owned())
        }
        EntryObstacle::InMatch(id) => {
            let stage = current_match.map_or("not ended", |current| stage_name(current.stage()));
            let text = format!("in match {id} ({stage}); the player can leave it, or CancelMatch ends it");
            (ErrorReason::AlreadyInMatch, text)
        }
        EntryObstacle::Queued(id) => {
            (ErrorReason::AlreadyQueued, format!("has ticket {id}; the player can leave, or DismissTicket ends it"))
        }
        EntryObstacle::Cooldown(until) => {
            (ErrorReason::QueueCooldown, format!("failed a ready check; free in {} ms", until.ms_since(now)))
        }
        EntryObstacle::TooManySilos => {
            (ErrorReason::TooManySilos, "the silo is not open, and no more may be opened; see --max-silos".to_owned())
        }
        EntryObstacle::SiloNotServed => (
            ErrorReason::InvalidRequest,
            "the silo is not served by this server; use the server of its region".to_owned(),
        ),
    };
    pb::EntryObstacle {
        reason: reason.into(),
        message,
        match_id: if let EntryObstacle::InMatch(id) = obstacle { id.to_string() } else { String::new() },
        ticket_id: if let EntryObstacle::Queued(id) = obstacle { id.to_string() } else { String::new() },
        ends_in_ms: if let EntryObstacle::Cooldown(until) = obstacle { Some(until.ms_since(now)) } else { None },
    }
}

fn stage_name(stage: pb::MatchStage) -> &'static str {
    match stage {
        pb::MatchStage::Unspecified => "unknown",
        pb::MatchStage::ReadyCheck => "in its ready check",
        pb::MatchStage::Placing => "waiting for a host",
        pb::MatchStage::Confirming => "waiting for its host's confirmation",
        pb::MatchStage::Playing => "being played",
        pb::MatchStage::Ended => "ended",
    }
}
