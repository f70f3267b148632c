//! Queues: requests from the wire, and how tickets stand to it.

use crate::api::convert::{Door, Problems, field, session};
use crate::api::pb;
use crate::api::status::Rejection;
use crate::domain::id::{MatchId, RulesetHash, SiloId, TicketId, UserKey};
use crate::domain::life::{Outcome, Place};
use crate::domain::limit;
use crate::domain::queue::ticket::Ending;
use crate::engine::command::Caller;
use crate::engine::queues::command::{
    EndMatch, Enter, EnterAnswer, Heartbeat, LeaveAnswer, Play, Proof, Reference, Respond, SeatView, Standing, Status,
};

impl Door {
    /// Begin to wait.
    pub fn enter(&self, caller: &Caller, wire: pb::QueueEnterRequest) -> Result<Enter, Rejection> {
        let mut problems = self.problems();
        let mut composition = wire.session_composition;
        let consents = session::consents(composition.as_mut(), &mut problems);
        if wire.idempotency_key.is_empty() {
            problems.add("idempotency_key", "is missing: choose one, and keep it when you try again");
        } else {
            field::key(&wire.idempotency_key, caller.subject.is_none(), "idempotency_key", &mut problems);
        }
        let enter = Enter {
            set_id: self.required_set_id(wire.matchmaking_set_id, &mut problems),
            hash: wire.service_configuration_hash.map(RulesetHash),
            session: session::required(composition, caller.origin, &mut problems),
            consents,
            idempotency_key: wire.idempotency_key,
            blocked: users(&wire.blocked_user_ids, limit::BLOCKED_MAX, "blocked_user_ids", &mut problems),
        };
        problems.finish(enter)
    }

    /// No longer wait.
    pub fn leave(&self, wire: pb::QueueLeaveRequest) -> Result<Reference, Rejection> {
        let mut problems = self.problems();
        let id = ticket_id(&wire.ticket_id, "ticket_id", &mut problems);
        let token = field::token(wire.ticket_token, "ticket_token", &mut problems);
        problems.finish(Reference { id, token, heard: Vec::new() })
    }

    /// Hear of tickets.
    pub fn watch(&self, wire: pb::QueueWatchRequest) -> Result<Vec<Reference>, Rejection> {
        let mut problems = self.problems();
        if wire.tickets.is_empty() {
            problems.add("tickets", "is empty: name at least one");
        }
        let tickets = references(wire.tickets, &mut problems);
        problems.finish(tickets)
    }

    /// Keep alive.
    pub fn heartbeat(&self, wire: pb::QueueHeartbeatRequest) -> Result<Heartbeat, Rejection> {
        let mut problems = self.problems();
        let beat = Heartbeat {
            tickets: references(wire.tickets, &mut problems),
            connected: users(&wire.connected_user_ids, limit::PLAYERS_MAX, "connected_user_ids", &mut problems),
            silo: SiloId(wire.silo_id.unwrap_or(0)),
        };
        problems.finish(beat)
    }

    /// Answer a ready check.
    pub fn respond(&self, wire: pb::QueueRespondRequest) -> Result<Respond, Rejection> {
        let mut problems = self.problems();
        let id = ticket_id(&wire.ticket_id, "ticket_id", &mut problems);
        let token = field::token(wire.ticket_token, "ticket_token", &mut problems);
        let respond = Respond {
            ticket: Reference { id, token, heard: Vec::new() },
            match_id: match_id(&wire.match_id, &mut problems),
            accept: wire.accept,
            users: users(&wire.user_ids, limit::PLAYERS_MAX, "user_ids", &mut problems),
        };
        problems.finish(respond)
    }

    /// A match is over.
    pub fn end_match(&self, wire: pb::QueueEndMatchRequest) -> Result<EndMatch, Rejection> {
        let mut problems = self.problems();
        let match_id = match_id(&wire.match_id, &mut problems);
        let server = field::token(wire.advertisement_token, "advertisement_token", &mut problems);
        let ticket = field::token(wire.ticket_token, "ticket_token", &mut problems);
        let proof = match (server.is_empty(), ticket.is_empty()) {
            (false, true) => Proof::Server(server),
            (true, false) => Proof::Ticket(ticket),
            (both_missing, _) => {
                let what = if both_missing { "is missing, and so is ticket_token" } else { "is not the only proof" };
                problems.add("advertisement_token", format!("{what}: show one of the two"));
                Proof::Server(Vec::new())
            }
        };
        problems.finish(EndMatch { match_id, proof, failed: wire.failed })
    }
}

fn ticket_id(text: &str, path: &str, problems: &mut Problems) -> TicketId {
    TicketId::parse(text).unwrap_or_else(|| {
        problems.add(path, field::bad_id(text));
        TicketId::from_bytes([0; 16])
    })
}

fn match_id(text: &str, problems: &mut Problems) -> MatchId {
    MatchId::parse(text).unwrap_or_else(|| {
        problems.add("match_id", field::bad_id(text));
        MatchId::from_bytes([0; 16])
    })
}

fn references(wire: Vec<pb::TicketReference>, problems: &mut Problems) -> Vec<Reference> {
    if !field::count(wire.len(), limit::WATCHED_MAX, "tickets", problems) {
        return Vec::new();
    }
    let reference = |(index, wire): (usize, pb::TicketReference)| Reference {
        id: ticket_id(&wire.ticket_id, &format!("tickets[{index}].ticket_id"), problems),
        token: field::token(wire.ticket_token, format_args!("tickets[{index}].ticket_token"), problems),
        heard: field::token(wire.resume_token, format_args!("tickets[{index}].resume_token"), problems),
    };
    wire.into_iter().enumerate().map(reference).collect()
}

/// Accounts, sorted, each once.
fn users(wire: &[String], most: usize, path: &str, problems: &mut Problems) -> Vec<UserKey> {
    if !field::count(wire.len(), most, path, problems) {
        return Vec::new();
    }
    for (index, user) in wire.iter().enumerate() {
        field::name(user, format_args!("{path}[{index}]"), problems);
    }
    let mut users: Vec<UserKey> = wire.iter().map(|user| UserKey::of(user)).collect();
    users.sort_unstable();
    users.dedup();
    users
}

/// It waits.
pub fn enter_response(answer: EnterAnswer) -> pb::QueueEnterResponse {
    let prefixed = |path: String| format!("{}.{path}", session::PATH);
    pb::QueueEnterResponse {
        status: Some(status(answer.status)),
        ticket_token: answer.token,
        expires_in_ms: answer.expires_in_ms,
        ignored_fields: answer.ignored.into_iter().map(prefixed).collect(),
    }
}

/// One of two things.
pub fn leave_response(answer: LeaveAnswer) -> pb::QueueLeaveResponse {
    use pb::queue_leave_response::Result as Wire;
    let result = match answer {
        LeaveAnswer::Left(it) => Wire::Ended(status(it)),
        LeaveAnswer::Matched(it) => Wire::Matched(status(it)),
    };
    pb::QueueLeaveResponse { result: Some(result) }
}

/// How a ticket stands.
pub fn status(status: Status) -> pb::TicketStatus {
    let (state, ending) = match status.standing {
        Standing::Waiting => (pb::TicketState::Waiting, None),
        Standing::Paused => (pb::TicketState::Paused, None),
        Standing::Proposed => (pb::TicketState::Proposed, None),
        Standing::Placing => (pb::TicketState::Placing, None),
        Standing::Matched => (pb::TicketState::Matched, None),
        Standing::Ended(how) => (pb::TicketState::Ended, Some(how)),
    };
    pb::TicketStatus {
        ticket_id: status.id.to_string(),
        state: state.into(),
        matchmaking_set_id: status.set_id.0,
        waited_ms: status.waited_ms,
        position: status.position,
        estimated_wait_p50_ms: status.estimate_ms.map(|(p50, _)| p50),
        estimated_wait_p90_ms: status.estimate_ms.map(|(_, p90)| p90),
        found_match: status.play.map(play),
        end_reason: ending.map_or(pb::TicketEndReason::Unspecified, ending_of).into(),
        offered_matchmaking_set_id: status.offered.map(|set_id| set_id.0),
        blocking_rule: status.waiting_for.map_or_else(String::new, |rule| rule.to_string()),
        resume_token: status.heard,
    }
}

fn ending_of(how: Ending) -> pb::TicketEndReason {
    match how {
        Ending::Left => pb::TicketEndReason::Left,
        Ending::Lapsed => pb::TicketEndReason::Expired,
        Ending::Played => pb::TicketEndReason::Played,
        Ending::PlayedElsewhere => pb::TicketEndReason::MatchedElsewhere,
        Ending::Declined => pb::TicketEndReason::Declined,
        Ending::Absent => pb::TicketEndReason::NotAcceptedInTime,
        Ending::Dismissed => pb::TicketEndReason::Cancelled,
    }
}

fn play(view: Play) -> pb::MatchStatus {
    let play = &view.play;
    let seats = || play.members.iter().flat_map(|member| &member.players);
    pb::MatchStatus {
        match_id: play.id.to_string(),
        player_count: u32::try_from(seats().count()).unwrap_or(u32::MAX),
        accepted_count: u32::try_from(seats().filter(|seat| seat.answer == Some(true)).count()).unwrap_or(u32::MAX),
        deadline_in_ms: view.deadline_in_ms,
        team: view.team.into(),
        region: play.region.as_deref().unwrap_or_default().to_owned(),
        quality: (play.quality * 1_000.0).round() / 1_000.0,
        assignment: play.stage.place().map(|place| place_of(place, &view)),
        end_reason: outcome(play.stage.outcome()).into(),
        service_configuration_hash: play.hash.0,
        players: view
            .everybody
            .iter()
            .map(|(key, team)| pb::MatchPlayer { player_key: key.to_string(), team: (*team).into() })
            .collect(),
        own_players: view.seats.into_iter().map(seat).collect(),
    }
}

fn seat(seat: SeatView) -> pb::TicketPlayer {
    let answer = match seat.answer {
        None => pb::Acceptance::Unspecified,
        Some(true) => pb::Acceptance::Accepted,
        Some(false) => pb::Acceptance::Declined,
    };
    pb::TicketPlayer {
        player_key: seat.player_key.to_string(),
        team_role: seat.role.map_or_else(String::new, Into::into),
        acceptance: answer.into(),
        credential: seat.credential,
    }
}

fn place_of(place: &Place, view: &Play) -> pb::Assignment {
    use pb::assignment::Host as Wire;
    let place = match place {
        Place::Server { advertisement, connect_data, .. } => Wire::GameServer(pb::GameServerAssignment {
            advertisement_id: advertisement.to_string(),
            connect_data: connect_data.clone(),
        }),
        Place::Peer { .. } => Wire::PeerHost(pb::PeerHostAssignment {
            player_key: view.host.map_or_else(String::new, |key| key.to_string()),
            is_own: view.host.is_some_and(|key| view.seats.iter().any(|seat| seat.player_key == key)),
        }),
        Place::Nowhere => Wire::Unhosted(pb::UnhostedAssignment {}),
    };
    pb::Assignment { host: Some(place) }
}

/// How a match ended.
pub fn outcome(outcome: Option<Outcome>) -> pb::MatchEndReason {
    match outcome {
        None => pb::MatchEndReason::Unspecified,
        Some(Outcome::Played) => pb::MatchEndReason::Played,
        Some(Outcome::Lapsed) => pb::MatchEndReason::TimedOut,
        Some(Outcome::Declined) => pb::MatchEndReason::Declined,
        Some(Outcome::Unanswered) => pb::MatchEndReason::NotAcceptedInTime,
        Some(Outcome::NoServer) => pb::MatchEndReason::NoServer,
        Some(Outcome::ServerFailed) => pb::MatchEndReason::ServerFailed,
        Some(Outcome::Cancelled) => pb::MatchEndReason::Cancelled,
    }
}
