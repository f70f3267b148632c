//! Outcomes of the queue loop as a structure and bytes.

use std::borrow::Cow;

use fireteam_client::pb;
use fireteam_client::queueing::{QueueEnd, QueueOutcome};
use prost::Message;

use crate::identifier::{NO_ID, id_text, reason_text};
use crate::queue_types::{
    FT_HOST_GAME_SERVER, FT_HOST_NONE, FT_HOST_PLAYER, FT_HOST_UNHOSTED, FT_QUEUE_END_CANCELLED,
    FT_QUEUE_END_COULD_NOT_CONNECT, FT_QUEUE_END_FAILED, FT_QUEUE_END_LOST, FT_QUEUE_END_TICKET,
    FT_QUEUE_OUTCOME_CONNECT, FT_QUEUE_OUTCOME_ENDED, FT_QUEUE_OUTCOME_READY_CHECK, FT_QUEUE_OUTCOME_STATUS,
    FtQueueOutcome,
};

/// Structure and bytes of an outcome.
pub(crate) fn queue_outcome_parts(outcome: &QueueOutcome) -> (FtQueueOutcome, Cow<'_, [u8]>) {
    let mut parts = empty();
    let data = match outcome {
        QueueOutcome::Status(status) => {
            parts.kind = FT_QUEUE_OUTCOME_STATUS;
            parts.ticket_state = enum_number(status.state);
            parts.ticket_end_reason = enum_number(status.end_reason);
            parts.ticket_id = id_text(&status.ticket_id);
            if let Some(found) = &status.found_match {
                set_match(&mut parts, found);
            }
            status.encode_to_vec().into()
        }
        QueueOutcome::ReadyCheck(found) => {
            parts.kind = FT_QUEUE_OUTCOME_READY_CHECK;
            set_match(&mut parts, found);
            found.encode_to_vec().into()
        }
        QueueOutcome::Connect(found) => {
            parts.kind = FT_QUEUE_OUTCOME_CONNECT;
            set_match(&mut parts, found);
            found.encode_to_vec().into()
        }
        QueueOutcome::Ended(end) => {
            parts.kind = FT_QUEUE_OUTCOME_ENDED;
            set_end(&mut parts, end).into()
        }
    };
    (parts, data)
}

fn set_match(parts: &mut FtQueueOutcome, found: &pb::MatchStatus) {
    parts.match_id = id_text(&found.match_id);
    parts.team = found.team;
    parts.player_count = found.player_count;
    parts.accepted_count = found.accepted_count;
    parts.own_player_count = u32::try_from(found.own_players.len()).unwrap_or(u32::MAX);
    parts.deadline_ms = found.deadline_in_ms.map_or(-1, |ms| i64::try_from(ms).unwrap_or(i64::MAX));
    match found.assignment.as_ref().and_then(|assignment| assignment.host.as_ref()) {
        None => parts.host = FT_HOST_NONE,
        Some(pb::assignment::Host::GameServer(server)) => {
            parts.host = FT_HOST_GAME_SERVER;
            parts.host_id = id_text(&server.advertisement_id);
        }
        Some(pb::assignment::Host::PeerHost(peer)) => {
            parts.host = FT_HOST_PLAYER;
            parts.host_id = id_text(&peer.player_key);
            parts.is_own_host = peer.is_own.into();
        }
        Some(pb::assignment::Host::Unhosted(_)) => parts.host = FT_HOST_UNHOSTED,
    }
}

/// Sets the reason of the end. Returns the message of a failure.
fn set_end<'end>(parts: &mut FtQueueOutcome, end: &'end QueueEnd) -> &'end [u8] {
    match end {
        QueueEnd::Ticket(reason) => {
            parts.end_reason = FT_QUEUE_END_TICKET;
            parts.ticket_end_reason = enum_number((*reason).into());
        }
        QueueEnd::Cancelled => parts.end_reason = FT_QUEUE_END_CANCELLED,
        QueueEnd::Lost => parts.end_reason = FT_QUEUE_END_LOST,
        QueueEnd::CouldNotConnect => parts.end_reason = FT_QUEUE_END_COULD_NOT_CONNECT,
        QueueEnd::Failed(error) => {
            parts.end_reason = FT_QUEUE_END_FAILED;
            parts.status = error.code.into();
            parts.reason = reason_text(error);
            return error.message.as_bytes();
        }
    }
    &[]
}

/// Number of an enum; those of newer servers as they are.
fn enum_number(value: i32) -> u32 {
    u32::try_from(value).unwrap_or(0)
}

fn empty() -> FtQueueOutcome {
    FtQueueOutcome {
        deadline_ms: -1,
        kind: 0,
        ticket_state: 0,
        end_reason: 0,
        ticket_end_reason: 0,
        status: 0,
        team: 0,
        player_count: 0,
        accepted_count: 0,
        own_player_count: 0,
        host: FT_HOST_NONE,
        is_own_host: 0,
        ticket_id: NO_ID,
        match_id: NO_ID,
        host_id: NO_ID,
        reason: NO_ID,
    }
}
