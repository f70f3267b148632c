//! Structures of the queue loop, of hosts of matches, and of credentials. All are plain data of the caller.

use std::ffi::c_char;

use crate::types::FT_ID_BYTES;

/// Random bytes for `ft_queueing_new` and `ft_queueing_restore`.
pub const FT_QUEUEING_RANDOM_BYTES: usize = 32;
/// Random bytes for `ft_match_host_new`.
pub const FT_MATCH_HOST_RANDOM_BYTES: usize = 32;
/// Capacity that is enough for each answer of the queue and rating services, and for each message of a watch.
pub const FT_QUEUE_ANSWER_BYTES: usize = 2_097_152;
/// Most bytes of a token of a ticket, an advertisement or a measurement.
pub const FT_TOKEN_BYTES: usize = 1_024;
/// Most bytes of a credential.
pub const FT_CREDENTIAL_BYTES: usize = 4_096;

/// Rank of a team in a match.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FtTeamRank {
    /// Team, from 0.
    pub team: u32,
    /// 1 is the best; equal ranks are a draw. At least 1.
    pub rank: i32,
}

/// A status of the ticket: `ticket_state`, ids, and the fields of its match; the buffer has the protobuf `TicketStatus`. Save the loop then.
pub const FT_QUEUE_OUTCOME_STATUS: u32 = 1;
/// Ask the players whether they accept this match, within `deadline_ms`: the fields of the match; the buffer has the protobuf `MatchStatus`.
/// Answer with `ft_queueing_respond`.
pub const FT_QUEUE_OUTCOME_READY_CHECK: u32 = 2;
/// Connect to the host of the match now: `host` and the fields of the match; the buffer has the protobuf `MatchStatus`. The address is in
/// `ft_queueing_connect_data`, each player's credential in `ft_queueing_credential`. Answer with `ft_queueing_connected` or
/// `ft_queueing_connect_failed`.
pub const FT_QUEUE_OUTCOME_CONNECT: u32 = 3;
/// The loop has ended: `end_reason`. With `FT_QUEUE_END_TICKET` also `ticket_end_reason`. With `FT_QUEUE_END_FAILED` also `status` and `reason`,
/// and the buffer has the message.
pub const FT_QUEUE_OUTCOME_ENDED: u32 = 4;

/// The ticket has ended, for the reason in `ticket_end_reason`.
pub const FT_QUEUE_END_TICKET: u32 = 1;
/// Ended by `ft_queueing_cancel`.
pub const FT_QUEUE_END_CANCELLED: u32 = 2;
/// The server was out of reach until the ticket expired, or does not know it any longer.
pub const FT_QUEUE_END_LOST: u32 = 3;
/// The game could not connect to its match, and the party has left it.
pub const FT_QUEUE_END_COULD_NOT_CONNECT: u32 = 4;
/// A call failed in a way that no repetition changes.
pub const FT_QUEUE_END_FAILED: u32 = 5;

/// Value of `ft_queue_outcome.host`: the match has no host yet.
pub const FT_HOST_NONE: u32 = 0;
/// A game server hosts: `host_id` is its advertisement.
pub const FT_HOST_GAME_SERVER: u32 = 1;
/// A player hosts: `host_id` is the player's key in the match, and `is_own_host` says whether it is one of the own players.
pub const FT_HOST_PLAYER: u32 = 2;
/// The players agree among themselves.
pub const FT_HOST_UNHOSTED: u32 = 3;

/// Request of a queue loop to the game, or news for it. Fields that an outcome does not have are zero, and `deadline_ms` is negative.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FtQueueOutcome {
    /// Milliseconds left to reply to the ready check, or to find a game server; negative if there is no deadline.
    pub deadline_ms: i64,
    /// One of `FT_QUEUE_OUTCOME_*`.
    pub kind: u32,
    /// State of the ticket: a number of the protobuf `TicketState`, such as 1 (waiting) or 5 (matched).
    pub ticket_state: u32,
    /// One of `FT_QUEUE_END_*`.
    pub end_reason: u32,
    /// Reason that the ticket ended: a number of the protobuf `TicketEndReason`, such as 3 (played).
    pub ticket_end_reason: u32,
    /// gRPC status code of the failed call.
    pub status: i32,
    /// Team of the party in the match, from 0.
    pub team: u32,
    /// Players in the match.
    pub player_count: u32,
    /// Players who have accepted the match.
    pub accepted_count: u32,
    /// Own players in the match: credentials have the indices below it.
    pub own_player_count: u32,
    /// One of `FT_HOST_*`.
    pub host: u32,
    /// 1 if an own player hosts the match.
    pub is_own_host: u8,
    /// Ticket id, with a zero byte at its end.
    pub ticket_id: [c_char; FT_ID_BYTES],
    /// Match id, with a zero byte at its end; empty without a match.
    pub match_id: [c_char; FT_ID_BYTES],
    /// Advertisement id or player key of the host, with a zero byte at its end.
    pub host_id: [c_char; FT_ID_BYTES],
    /// Reason of the failed call, such as `QUEUE_COOLDOWN`, with a zero byte at its end.
    pub reason: [c_char; FT_ID_BYTES],
}

/// State of `ft_queueing_state`: before the start.
pub const FT_QUEUEING_IDLE: i32 = 0;
/// Enters the queue.
pub const FT_QUEUEING_ENTERING: i32 = 1;
/// Waits, is in a ready check, or a game server is being found.
pub const FT_QUEUEING_WATCHING: i32 = 2;
/// The game connects to the match.
pub const FT_QUEUEING_CONNECTING: i32 = 3;
/// In the match.
pub const FT_QUEUEING_PLAYING: i32 = 4;
/// Leaves the ticket.
pub const FT_QUEUEING_ENDING: i32 = 5;
/// Has ended.
pub const FT_QUEUEING_ENDED: i32 = 6;

/// A match that is new or has changed: `match_id`, `match_state`; the buffer has the protobuf `HostedMatch` with its parties.
pub const FT_MATCH_OUTCOME_MATCH: u32 = 1;
/// A match has ended by `ft_match_host_end_match`: `match_id`, `match_end_reason`.
pub const FT_MATCH_OUTCOME_MATCH_ENDED: u32 = 2;
/// The result of a match is stored: `match_id`, `is_rated`; the buffer has the protobuf `ReportResultResponse`.
pub const FT_MATCH_OUTCOME_REPORTED: u32 = 3;
/// The end or the report of a match failed in a way that no repetition changes: `match_id`, `status`, `reason`; the buffer has the message.
pub const FT_MATCH_OUTCOME_REFUSED: u32 = 4;
/// The host has ended: `end_reason`. With `FT_MATCH_HOST_END_FAILED` also `status` and `reason`, and the buffer has the message.
pub const FT_MATCH_OUTCOME_ENDED: u32 = 5;

/// The server lists `FT_HOSTED_MATCHES_MAX` matches of the advertisement, as many as it lists at once. It lists more by turns, so a
/// new one may be confirmed too late, and get another game server: publish another advertisement. Told once until the list is shorter.
pub const FT_MATCH_OUTCOME_LIST_FULL: u32 = 6;

/// Most matches of one advertisement that the server lists.
pub const FT_HOSTED_MATCHES_MAX: u32 = 256;

/// Ended by `ft_match_host_stop`.
pub const FT_MATCH_HOST_END_STOPPED: u32 = 1;
/// A heartbeat failed in a way that no repetition changes.
pub const FT_MATCH_HOST_END_FAILED: u32 = 2;

/// Value of `ft_match_outcome.match_state`: the host has confirmed the match, and its players still wait.
pub const FT_MATCH_CONFIRMING: u32 = 1;
/// The match is played: admit its players.
pub const FT_MATCH_PLAYING: u32 = 2;
/// The match has ended. Its result may still be reported.
pub const FT_MATCH_ENDED: u32 = 3;
/// The match is not, or no longer, hosted by this advertisement.
pub const FT_MATCH_NOT_HOSTED: u32 = 4;

/// News for the host of matches. Fields that an outcome does not have are zero.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FtMatchOutcome {
    /// One of `FT_MATCH_OUTCOME_*`.
    pub kind: u32,
    /// One of `FT_MATCH_CONFIRMING` to `FT_MATCH_NOT_HOSTED`.
    pub match_state: u32,
    /// Reason that the match ended: a number of the protobuf `MatchEndReason`, such as 1 (played).
    pub match_end_reason: u32,
    /// One of `FT_MATCH_HOST_END_*`.
    pub end_reason: u32,
    /// gRPC status code of the failed call.
    pub status: i32,
    /// 1 if the result has changed ratings.
    pub is_rated: u8,
    /// Match id, with a zero byte at its end.
    pub match_id: [c_char; FT_ID_BYTES],
    /// Reason of the failed call, such as `ALREADY_REPORTED`, with a zero byte at its end.
    pub reason: [c_char; FT_ID_BYTES],
}

/// State of `ft_match_host_state`: before the start.
pub const FT_MATCH_HOST_IDLE: i32 = 0;
/// Sends heartbeats.
pub const FT_MATCH_HOST_HOSTING: i32 = 1;
/// Waits for ends and reports underway.
pub const FT_MATCH_HOST_ENDING: i32 = 2;
/// Has ended.
pub const FT_MATCH_HOST_ENDED: i32 = 3;

/// Player whom a credential admits.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FtAdmittedPlayer {
    /// Expiry of the credential, seconds since the Unix epoch. An admitted player stays admitted after it.
    pub expires_at_s: u64,
    /// Team in the match, from 0.
    pub team: u32,
    /// Match id, with a zero byte at its end.
    pub match_id: [c_char; FT_ID_BYTES],
    /// The player's key in the match, with a zero byte at its end.
    pub player_key: [c_char; FT_ID_BYTES],
    /// The player's user key, with a zero byte at its end; empty if the credential does not name it.
    pub user_key: [c_char; FT_ID_BYTES],
}
