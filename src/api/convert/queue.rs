//! Conversion of Queue service requests, and of tickets and matches to responses.

use crate::api::convert::{FieldErrors, RequestReader, field_checks, hosting, rating, session};
use crate::api::pb;
use crate::api::status::Rejection;
use crate::domain::filter::Refusal;
use crate::domain::id::{MatchId, RulesetHash, SetId, SiloId, TicketId, UserKey};
use crate::domain::latency::round_trip_estimate::RoundTripEstimate;
use crate::domain::lifecycle::{Assignment, MatchEndReason};
use crate::domain::limit;
use crate::domain::location_privacy::{ROUND_TRIP_ROUNDING_MS, round_up_to_step};
use crate::domain::queue::ticket::TicketEndReason;
use crate::engine::command::Caller;
use crate::engine::queues::command::{
    EndMatchCommand, EndMatchProof, EnterQueueAnswer, EnterQueueCommand, LeaveQueueAnswer, LeaveQueueCommand,
    MatchView, OwnTicket, OwnTicketsAndCooldowns, ReadyCheckResponse, TicketAndUserHeartbeatCommand, TicketPhase,
    TicketPlayerView, TicketReference, TicketStatus,
};

impl RequestReader {
    /// Reads a party that enters a queue.
    pub fn enter_command(&self, caller: &Caller, wire: pb::QueueEnterRequest) -> Result<EnterQueueCommand, Rejection> {
        let mut problems = self.new_field_errors();
        let mut composition = wire.session_composition;
        check_player_ids_unique(composition.as_ref(), &mut problems);
        let consents = session::take_consent_tokens(composition.as_mut(), &mut problems);
        let latency_tokens = session::take_latency_tokens(composition.as_mut(), &mut problems);
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
        let enter = EnterQueueCommand {
            latency_tokens,
            set_id: self.required_own_or_envelope_set_id(wire.matchmaking_set_id, &mut problems),
            ruleset_hash: wire.service_configuration_hash.map(RulesetHash),
            session: session::required_session(composition, caller.program_kind, &mut problems),
            consents,
            idempotency_key: wire.idempotency_key,
            blocked_users: sorted_user_keys(
                &wire.blocked_user_ids,
                limit::BLOCKED_USERS_PER_TICKET_MAX,
                "blocked_user_ids",
                &mut problems,
            ),
        };
        problems.into_result(enter)
    }

    /// Reads which players leave.
    pub fn leave_command(&self, wire: pb::QueueLeaveRequest) -> Result<LeaveQueueCommand, Rejection> {
        let mut problems = self.new_field_errors();
        let id = parse_ticket_id(&wire.ticket_id, "ticket_id", &mut problems);
        let token = field_checks::size_checked_token(wire.ticket_token, "ticket_token", &mut problems);
        let leave = LeaveQueueCommand {
            ticket: TicketReference { id, ticket_token: token, resume_token: Vec::new() },
            users: sorted_user_keys(&wire.user_ids, limit::PLAYERS_PER_SESSION_MAX, "user_ids", &mut problems),
        };
        problems.into_result(leave)
    }

    /// Reads the tickets to watch, and the latency token of the caller's own player; empty for none.
    pub fn tickets_to_watch(&self, wire: pb::QueueWatchRequest) -> Result<(Vec<TicketReference>, Vec<u8>), Rejection> {
        let mut problems = self.new_field_errors();
        if wire.tickets.is_empty() {
            problems.add("tickets", "is empty; name at least one ticket");
        }
        let tickets = ticket_references(wire.tickets, &mut problems);
        let token = field_checks::size_checked_token(wire.latency_token, "latency_token", &mut problems);
        problems.into_result((tickets, token))
    }

    /// Reads heartbeats and connected users.
    pub fn heartbeat_command(
        &self,
        wire: pb::QueueHeartbeatRequest,
    ) -> Result<TicketAndUserHeartbeatCommand, Rejection> {
        let mut problems = self.new_field_errors();
        let heartbeat = TicketAndUserHeartbeatCommand {
            tickets: ticket_references(wire.tickets, &mut problems),
            connected_users: sorted_user_keys(
                &wire.connected_user_ids,
                limit::PLAYERS_PER_SESSION_MAX,
                "connected_user_ids",
                &mut problems,
            ),
            connected_sets: sets_of_connected_users(wire.connected_matchmaking_set_ids, &mut problems),
            silo: SiloId(wire.silo_id.unwrap_or(0)),
            latency_token: field_checks::size_checked_token(wire.latency_token, "latency_token", &mut problems),
        };
        problems.into_result(heartbeat)
    }

    /// Reads a response to a ready check.
    pub fn respond_command(&self, wire: pb::QueueRespondRequest) -> Result<ReadyCheckResponse, Rejection> {
        let mut problems = self.new_field_errors();
        let id = parse_ticket_id(&wire.ticket_id, "ticket_id", &mut problems);
        let token = field_checks::size_checked_token(wire.ticket_token, "ticket_token", &mut problems);
        let response = ReadyCheckResponse {
            ticket: TicketReference { id, ticket_token: token, resume_token: Vec::new() },
            match_id: parse_match_id(&wire.match_id, &mut problems),
            accept: wire.accept,
            users: sorted_user_keys(&wire.user_ids, limit::PLAYERS_PER_SESSION_MAX, "user_ids", &mut problems),
        };
        problems.into_result(response)
    }

    /// Reads the end of a match, with the host's proof.
    pub fn end_match_command(&self, wire: pb::QueueEndMatchRequest) -> Result<EndMatchCommand, Rejection> {
        let mut problems = self.new_field_errors();
        let is_only_match = wire.match_id.is_empty() && !wire.advertisement_token.is_empty();
        let match_id = (!is_only_match).then(|| parse_match_id(&wire.match_id, &mut problems));
        let advertisement_token =
            field_checks::size_checked_token(wire.advertisement_token, "advertisement_token", &mut problems);
        let ticket_token = field_checks::size_checked_token(wire.ticket_token, "ticket_token", &mut problems);
        let proof = match (advertisement_token.is_empty(), ticket_token.is_empty()) {
            (false, true) => EndMatchProof::GameServer(advertisement_token),
            (true, false) => EndMatchProof::Ticket(ticket_token),
            (both_missing, _) => {
                let message = if both_missing {
                    "is missing, and so is ticket_token"
                } else {
                    "is set together with ticket_token"
                };
                problems.add("advertisement_token", format!("{message}; send one of the two"));
                EndMatchProof::GameServer(Vec::new())
            }
        };
        problems.into_result(EndMatchCommand { match_id, proof, has_game_server_failed: wire.failed })
    }
}

fn parse_ticket_id(text: &str, path: &str, problems: &mut FieldErrors) -> TicketId {
    TicketId::parse(text).unwrap_or_else(|| {
        problems.add(path, field_checks::invalid_id_message(text, field_checks::TICKET_ID_OBTAINED_FROM));
        TicketId::from_bytes([0; 16])
    })
}

fn parse_match_id(text: &str, problems: &mut FieldErrors) -> MatchId {
    MatchId::parse(text).unwrap_or_else(|| {
        problems.add("match_id", field_checks::invalid_id_message(text, field_checks::MATCH_ID_OBTAINED_FROM));
        MatchId::from_bytes([0; 16])
    })
}

fn ticket_references(wire: Vec<pb::TicketReference>, problems: &mut FieldErrors) -> Vec<TicketReference> {
    if !field_checks::check_list_len(wire.len(), limit::TICKETS_PER_CALL_MAX, "tickets", problems) {
        return Vec::new();
    }
    let reference = |(index, wire): (usize, pb::TicketReference)| TicketReference {
        id: parse_ticket_id(&wire.ticket_id, &format!("tickets[{index}].ticket_id"), problems),
        ticket_token: field_checks::size_checked_token(
            wire.ticket_token,
            format_args!("tickets[{index}].ticket_token"),
            problems,
        ),
        resume_token: field_checks::size_checked_token(
            wire.resume_token,
            format_args!("tickets[{index}].resume_token"),
            problems,
        ),
    };
    wire.into_iter().enumerate().map(reference).collect()
}

/// Reads the sets of connected users, sorted and without duplicates.
fn sets_of_connected_users(wire: Vec<u32>, problems: &mut FieldErrors) -> Vec<SetId> {
    let path = "connected_matchmaking_set_ids";
    if !field_checks::check_list_len(wire.len(), limit::CONNECTED_MATCHMAKING_SETS_PER_HEARTBEAT_MAX, path, problems) {
        return Vec::new();
    }
    let mut sets: Vec<SetId> = wire.into_iter().map(SetId).collect();
    sets.sort_unstable();
    sets.dedup();
    sets
}

/// Reads user keys, sorted and without duplicates.
fn sorted_user_keys(wire: &[String], max: usize, path: &str, problems: &mut FieldErrors) -> Vec<UserKey> {
    let mut users = field_checks::checked_user_keys_from_ids(wire, max, path, problems);
    users.sort_unstable();
    users.dedup();
    users
}

/// Converts the answer to entering a queue.
pub fn enter_response(answer: EnterQueueAnswer) -> pb::QueueEnterResponse {
    let prefixed = |path: String| format!("{}.{path}", session::SESSION_COMPOSITION_FIELD);
    pb::QueueEnterResponse {
        status: Some(ticket_status(answer.status)),
        ticket_token: answer.ticket_token,
        expires_in_ms: answer.expires_in_ms.into(),
        ignored_fields: answer.ignored_fields.into_iter().map(prefixed).collect(),
    }
}

/// Blocking rule as the ticket's players receive it: not that another player has blocked one of them. Without those who are
/// avoided, the compatible tickets do not fill the teams.
fn disclosed_blocking_rule(status: &TicketStatus) -> &str {
    match status.blocking_rule.as_deref() {
        Some(rule) if status.hides_avoidance && rule == Refusal::AvoidedPlayer.as_str() => {
            Refusal::TeamsNotFilled.as_str()
        }
        rule => rule.unwrap_or_default(),
    }
}

/// Converts a player's own tickets and cooldowns.
pub fn own_tickets_and_cooldowns_response(own: OwnTicketsAndCooldowns) -> pb::QueueMineResponse {
    let ticket = |ticket: OwnTicket| pb::OwnTicket {
        status: Some(ticket_status(ticket.status)),
        ticket_token: ticket.ticket_token,
        entered_by_another: ticket.is_seat_token,
    };
    let cooldown = |(set_id, ends_in_ms): (SetId, u32)| pb::QueueCooldown {
        matchmaking_set_id: set_id.0,
        ends_in_ms: ends_in_ms.into(),
    };
    pb::QueueMineResponse {
        tickets: own.tickets.into_iter().map(ticket).collect(),
        cooldowns: own.cooldowns.into_iter().map(cooldown).collect(),
    }
}

/// Converts the answer to leaving: the ticket has ended, or was matched before.
pub fn leave_response(answer: LeaveQueueAnswer) -> pb::QueueLeaveResponse {
    use pb::queue_leave_response::Result as Wire;
    let result = match answer {
        LeaveQueueAnswer::Ended(status) => Wire::Ended(ticket_status(status)),
        LeaveQueueAnswer::StillMatched(status) => Wire::Matched(ticket_status(status)),
    };
    pb::QueueLeaveResponse { result: Some(result) }
}

/// Converts a ticket's status.
pub fn ticket_status(status: TicketStatus) -> pb::TicketStatus {
    let (state, end_reason) = ticket_state_and_end_reason(status.phase);
    let blocking_rule = disclosed_blocking_rule(&status).to_owned();
    pb::TicketStatus {
        ticket_id: status.id.to_string(),
        state: state.into(),
        matchmaking_set_id: status.set_id.0,
        waited_ms: status.waited_ms,
        position: status.position,
        estimated_wait_p50_ms: status.wait_median_and_p90_ms.map(|(p50, _)| p50),
        estimated_wait_p90_ms: status.wait_median_and_p90_ms.map(|(_, p90)| p90),
        found_match: status.match_view.map(match_status),
        end_reason: end_reason.map_or(pb::TicketEndReason::Unspecified, ticket_end_reason).into(),
        offered_matchmaking_set_id: status.offered_set.map(|set_id| set_id.0),
        blocking_rule,
        resume_token: status.resume_token,
        return_reason: match_end_reason(status.return_reason).into(),
    }
}

/// Converts the phase of a ticket to its state and, if it has ended, the reason.
pub(crate) fn ticket_state_and_end_reason(phase: TicketPhase) -> (pb::TicketState, Option<TicketEndReason>) {
    match phase {
        TicketPhase::Waiting => (pb::TicketState::Waiting, None),
        TicketPhase::Paused => (pb::TicketState::Paused, None),
        TicketPhase::Proposed => (pb::TicketState::Proposed, None),
        TicketPhase::Placing => (pb::TicketState::Placing, None),
        TicketPhase::Matched => (pb::TicketState::Matched, None),
        TicketPhase::Ended(reason) => (pb::TicketState::Ended, Some(reason)),
    }
}

/// Converts the reason why a ticket ended.
pub(crate) fn ticket_end_reason(reason: TicketEndReason) -> pb::TicketEndReason {
    match reason {
        TicketEndReason::Left => pb::TicketEndReason::Left,
        TicketEndReason::Expired => pb::TicketEndReason::Expired,
        TicketEndReason::Played => pb::TicketEndReason::Played,
        TicketEndReason::MatchedElsewhere => pb::TicketEndReason::MatchedElsewhere,
        TicketEndReason::Declined => pb::TicketEndReason::Declined,
        TicketEndReason::NotAcceptedInTime => pb::TicketEndReason::NotAcceptedInTime,
        TicketEndReason::EndedByServer => pb::TicketEndReason::Cancelled,
        TicketEndReason::RulesetRetired => pb::TicketEndReason::RulesetRetired,
    }
}

/// Checks that each player_id names one player: it is there once, and is not the user_id of another player.
fn check_player_ids_unique(composition: Option<&pb::SessionCompositionData>, problems: &mut FieldErrors) {
    let players = composition.map_or(&[][..], |composition| &composition.players);
    for (index, player) in players.iter().enumerate().take(limit::PLAYERS_PER_SESSION_MAX) {
        let path = || format!("session_composition.players[{index}].player_id");
        let mut others = players.iter().enumerate().filter(|(other, _)| *other != index);
        if player.player_id.is_empty() {
            continue;
        }
        if let Some((other, _)) = others.clone().find(|(_, found)| found.user_id == player.player_id) {
            problems.add(path(), format!("is the user_id of players[{other}]; use an id of the player's own client"));
        } else if let Some((other, _)) =
            others.find(|(other, found)| *other < index && found.player_id == player.player_id)
        {
            problems.add(path(), format!("is also the player_id of players[{other}]; use one player_id per player"));
        }
    }
}

/// Longest round trip to expect, as players may see it: rounded up, for location privacy.
fn disclosed_bound_ms(estimate: RoundTripEstimate) -> u32 {
    round_up_to_step(estimate.high_ms(), ROUND_TRIP_ROUNDING_MS) as u32
}

fn match_status(view: MatchView) -> pb::MatchStatus {
    let found_match = &view.found_match;
    let players = || found_match.tickets.iter().flat_map(|ticket| &ticket.players);
    pb::MatchStatus {
        match_id: found_match.id.to_string(),
        player_count: u32::try_from(players().count()).unwrap_or(u32::MAX),
        accepted_count: u32::try_from(players().filter(|player| player.accepted == Some(true)).count())
            .unwrap_or(u32::MAX),
        deadline_in_ms: view.deadline_in_ms.map(u64::from),
        team: view.team.into(),
        region: found_match.region.as_deref().unwrap_or_default().to_owned(),
        quality: (found_match.quality * 100.0).round() / 100.0,
        assignment: found_match.stage.assignment_in_play().map(|assignment| match_assignment(assignment, &view)),
        end_reason: match_end_reason(found_match.stage.end_reason()).into(),
        service_configuration_hash: found_match.ruleset_hash.0,
        chosen: hosting::chosen_values(&found_match.chosen_values),
        bots_by_team: found_match.bots_by_team.iter().map(|count| (*count).into()).collect(),
        worst_round_trip_ms: found_match.worst_pair.and_then(|pair| pair.estimate).map(disclosed_bound_ms),
        players: view
            .players
            .iter()
            .map(|player| pb::MatchPlayer {
                player_key: player.player_key.to_string(),
                team: player.team.into(),
                left: player.has_left,
            })
            .collect(),
        own_players: view.own_players.into_iter().map(ticket_player).collect(),
        reports: view.report_state.map(|state| {
            let (state, window_left_ms) = rating::report_state_and_time_left(state);
            pb::MatchReports { state: state.into(), window_left_ms }
        }),
    }
}

fn ticket_player(player: TicketPlayerView) -> pb::TicketPlayer {
    let acceptance = match player.accepted {
        None => pb::Acceptance::Unspecified,
        Some(true) => pb::Acceptance::Accepted,
        Some(false) => pb::Acceptance::Declined,
    };
    pb::TicketPlayer {
        player_key: player.player_key.to_string(),
        team_role: player.team_role.map_or_else(String::new, Into::into),
        acceptance: acceptance.into(),
        credential: player.credential,
    }
}

fn match_assignment(assignment: &Assignment, view: &MatchView) -> pb::Assignment {
    use pb::assignment::Host as Wire;
    let host = match assignment {
        Assignment::GameServer { advertisement, connect_data, .. } => Wire::GameServer(pb::GameServerAssignment {
            advertisement_id: advertisement.to_string(),
            connect_data: connect_data.clone(),
        }),
        Assignment::PeerHost { .. } => Wire::PeerHost(pb::PeerHostAssignment {
            player_key: view.host_player_key.map_or_else(String::new, |key| key.to_string()),
            is_own: view.is_own_host,
        }),
        Assignment::Unhosted => Wire::Unhosted(pb::UnhostedAssignment {}),
    };
    pb::Assignment { host: Some(host) }
}

/// Converts the reason why a match ended; `None` while it has not.
pub fn match_end_reason(reason: Option<MatchEndReason>) -> pb::MatchEndReason {
    match reason {
        None => pb::MatchEndReason::Unspecified,
        Some(MatchEndReason::Played) => pb::MatchEndReason::Played,
        Some(MatchEndReason::TimedOut) => pb::MatchEndReason::TimedOut,
        Some(MatchEndReason::Declined) => pb::MatchEndReason::Declined,
        Some(MatchEndReason::NotAcceptedInTime) => pb::MatchEndReason::NotAcceptedInTime,
        Some(MatchEndReason::NoServer) => pb::MatchEndReason::NoServer,
        Some(MatchEndReason::ServerFailed) => pb::MatchEndReason::ServerFailed,
        Some(MatchEndReason::Cancelled) => pb::MatchEndReason::Cancelled,
        Some(MatchEndReason::HostLost) => pb::MatchEndReason::HostLost,
        Some(MatchEndReason::Abandoned) => pb::MatchEndReason::Abandoned,
    }
}
