//! Exported functions of the queue loop. They are unsafe for Rust callers: pointers must be as the header says.
#![expect(unsafe_code, reason = "exported names; no unsafe blocks")]
#![expect(clippy::missing_safety_doc, reason = "the header states the rules once for all functions")]

use std::ffi::c_char;

use fireteam_client::queueing::QueueEvent;

use crate::arguments::{
    CALL_TIMEOUT_MS, bounded_bytes, flag, poll_call, poll_outcome, poll_timeout, read_answer, read_random_bytes,
    read_ranks,
};
use crate::queue_call_codec::WATCH_PATH;
use crate::queue_outcome::queue_outcome_parts;
use crate::queue_types::{FT_QUEUEING_RANDOM_BYTES, FT_TOKEN_BYTES, FtQueueOutcome, FtTeamRank};
use crate::queueing::FtQueueing;
use crate::raw::{Caller, run_exported};
use crate::status::FT_NONE;
use crate::types::{FT_ID_BYTES, FtAnswer, FtCall};

/// Makes a queue loop, which waits for `ft_queueing_start`. `request` is a protobuf `QueueEnterRequest` with `matchmaking_set_id` and a
/// `session_composition` with players; leave its `idempotency_key` empty. `random` is 32 bytes that no one can guess, from the random number
/// generator of the system. Free the loop with `ft_queueing_free`.
///
/// The game carries three things for a queue loop: calls, the watch of the ticket, which is a stream, and outcomes. After each function
/// that takes a time, fetch all calls, the watch and all outcomes, until `FT_NONE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_queueing_new(
    request: *const u8,
    request_length: usize,
    random: *const u8,
    random_length: usize,
    queueing: *mut *mut FtQueueing,
) -> i32 {
    give_queueing((random, random_length), queueing, |caller, seed| {
        FtQueueing::new(caller.bytes(request, request_length)?, seed)
    })
}

/// Makes a queue loop from the bytes of `ft_queueing_save`, also in another process: it goes on with the same ticket, or with the same enter
/// if that was not answered. `FT_ERROR_MALFORMED`: the bytes are none of a saved loop of this version. Free the loop with
/// `ft_queueing_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_queueing_restore(
    saved: *const u8,
    saved_length: usize,
    random: *const u8,
    random_length: usize,
    queueing: *mut *mut FtQueueing,
) -> i32 {
    give_queueing((random, random_length), queueing, |caller, seed| {
        FtQueueing::from_saved_bytes(caller.bytes(saved, saved_length)?, seed)
    })
}

/// Makes a loop with a seed from these random bytes, and gives it to the caller.
fn give_queueing(
    (random, random_length): (*const u8, usize),
    queueing: *mut *mut FtQueueing,
    make: impl FnOnce(&Caller, [u8; FT_QUEUEING_RANDOM_BYTES]) -> Result<FtQueueing, i32>,
) -> i32 {
    run_exported(|caller| {
        caller.check_place(queueing)?;
        let seed = read_random_bytes::<FT_QUEUEING_RANDOM_BYTES>(&caller, random, random_length)?;
        caller.give(queueing, make(&caller, seed)?)?;
        Ok(0)
    })
}

/// Frees a loop; null is ignored. It leaves nothing at the server: a waiting ticket expires. Call `ft_queueing_cancel` first, and go on until
/// `FT_QUEUE_OUTCOME_ENDED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_queueing_free(queueing: *mut FtQueueing) -> i32 {
    run_exported(|caller| caller.free(queueing).map(|()| 0))
}

/// Writes the loop as bytes for `ft_queueing_restore`. Save them at each `FT_QUEUE_OUTCOME_STATUS`. Returns their number. More than
/// `capacity`: nothing was written. They contain the ticket's token: keep them as secret as a password.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_queueing_save(queueing: *mut FtQueueing, buffer: *mut u8, capacity: usize) -> i32 {
    run_exported(|caller| {
        let saved = caller.object(queueing)?.saved_bytes()?;
        caller.fill(&saved, buffer, capacity)
    })
}

/// Sets the latency token of the client, of at most `FT_TOKEN_BYTES`; empty for none. One before the start enters the queue with the ticket.
/// A later one is sent while the ticket waits. It is from `ft_beacons_poll_token`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_queueing_set_latency_token(
    queueing: *mut FtQueueing,
    token: *const u8,
    token_length: usize,
    now_us: u64,
) -> i32 {
    run_exported(|caller| {
        let token = bounded_bytes(&caller, token, token_length, FT_TOKEN_BYTES)?.to_vec();
        caller.object(queueing)?.handle(QueueEvent::LatencyToken(token.into()), now_us)
    })
}

/// Starts the loop: enters the queue, or watches the ticket of a restored loop. Only the first call counts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_queueing_start(queueing: *mut FtQueueing, now_us: u64) -> i32 {
    run_exported(|caller| caller.object(queueing)?.handle(QueueEvent::Start, now_us))
}

/// Leaves the queue or the match, and ends the loop. Legal in every state. `FT_QUEUE_OUTCOME_ENDED` follows within 10 s.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_queueing_cancel(queueing: *mut FtQueueing, now_us: u64) -> i32 {
    run_exported(|caller| caller.object(queueing)?.handle(QueueEvent::Cancel, now_us))
}

/// Gives the answer to a call, also a late one. `FT_ERROR_MALFORMED`: the body is no response of the RPC, and the call counts as failed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_queueing_handle_answer(
    queueing: *mut FtQueueing,
    answer: *const FtAnswer,
    now_us: u64,
) -> i32 {
    run_exported(|caller| {
        let queueing = caller.object(queueing)?;
        queueing.object.handle_answer(&read_answer(&caller, answer)?, now_us)
    })
}

/// Gives a message of the watch with this number, as it arrives: a protobuf `QueueWatchResponse`. Messages of earlier watches are ignored.
/// `FT_ERROR_MALFORMED`: the bytes are none, and the watch counts as ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_queueing_handle_watch_message(
    queueing: *mut FtQueueing,
    watch_id: u64,
    message: *const u8,
    message_length: usize,
    now_us: u64,
) -> i32 {
    run_exported(|caller| {
        let queueing = caller.object(queueing)?;
        queueing.handle_watch_message(watch_id, caller.bytes(message, message_length)?, now_us)
    })
}

/// Says that the watch whose number is `call_id` has ended, with status 0 if the server ended it, or could not be opened. The loop opens
/// another after a pause, for as long as the ticket lives. The end of an earlier watch is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_queueing_handle_watch_end(
    queueing: *mut FtQueueing,
    end: *const FtAnswer,
    now_us: u64,
) -> i32 {
    run_exported(|caller| {
        let queueing = caller.object(queueing)?;
        queueing.handle_watch_end(&read_answer(&caller, end)?, now_us)
    })
}

/// Says that time has passed: at the time of `ft_queueing_poll_timeout`, or at any other.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_queueing_handle_timeout(queueing: *mut FtQueueing, now_us: u64) -> i32 {
    run_exported(|caller| caller.object(queueing)?.handle(QueueEvent::Timeout, now_us))
}

/// Reply of the players to the ready check of this match: 1 accepts, 0 declines. Ignored if it is over.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_queueing_respond(
    queueing: *mut FtQueueing,
    match_id: *const c_char,
    accept: u8,
    now_us: u64,
) -> i32 {
    run_exported(|caller| {
        let accept = flag(accept)?;
        let match_id = caller.text(match_id, FT_ID_BYTES)?;
        caller.object(queueing)?.respond(match_id, accept, now_us)
    })
}

/// The game has connected, after `FT_QUEUE_OUTCOME_CONNECT`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_queueing_connected(queueing: *mut FtQueueing, now_us: u64) -> i32 {
    run_exported(|caller| caller.object(queueing)?.handle(QueueEvent::Connected, now_us))
}

/// The game could not connect, after `FT_QUEUE_OUTCOME_CONNECT`. The loop asks again a second later; after five failures it leaves the match.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_queueing_connect_failed(queueing: *mut FtQueueing, now_us: u64) -> i32 {
    run_exported(|caller| caller.object(queueing)?.handle(QueueEvent::ConnectFailed, now_us))
}

/// The match was played: ranks of its teams, 1 to 128 of them. Only where players report, not of matches on a game server, and only once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_queueing_report(
    queueing: *mut FtQueueing,
    ranks: *const FtTeamRank,
    rank_count: usize,
    now_us: u64,
) -> i32 {
    run_exported(|caller| {
        let ranks = read_ranks(&caller, ranks, rank_count)?;
        caller.object(queueing)?.handle(QueueEvent::Report(ranks), now_us)
    })
}

/// Fetches a call: its request into the buffer, the rest into `call`. Returns the bytes of the request. More than `capacity`: nothing was
/// written, call again with a larger buffer. `FT_NONE`: no call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_queueing_poll_call(
    queueing: *mut FtQueueing,
    call: *mut FtCall,
    buffer: *mut u8,
    capacity: usize,
) -> i32 {
    run_exported(|caller| {
        let queueing = caller.object(queueing)?;
        poll_call(&caller, &mut queueing.object, call, buffer, capacity)
    })
}

/// Fetches the watch to open now, which is a server stream: its request into the buffer, its number and path into `watch`; `timeout_ms` is
/// the deadline for opening it, the stream has none. Close an earlier watch. Returns the bytes of the request. More than `capacity`: nothing
/// was written. `FT_NONE`: the open one goes on, or none is needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_queueing_poll_watch(
    queueing: *mut FtQueueing,
    watch: *mut FtCall,
    buffer: *mut u8,
    capacity: usize,
) -> i32 {
    run_exported(|caller| {
        let queueing = caller.object(queueing)?;
        caller.check_place(watch)?;
        let pending = queueing.next_watch()?.ok_or(FT_NONE)?;
        let length = caller.fill(&pending.body, buffer, capacity)?;
        if pending.body.len() <= capacity {
            caller.write(watch, FtCall { id: pending.id, path: WATCH_PATH.as_ptr(), timeout_ms: CALL_TIMEOUT_MS })?;
            queueing.watch_is_done();
        }
        Ok(length)
    })
}

/// Time at which `ft_queueing_handle_timeout` is due, unless another event comes first, into `at_us`. `FT_NONE`: the loop waits for events
/// alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_queueing_poll_timeout(queueing: *mut FtQueueing, at_us: *mut u64) -> i32 {
    run_exported(|caller| poll_timeout(&caller, &mut caller.object(queueing)?.object, at_us))
}

/// Fetches an outcome: its fields into `outcome`, its data into the buffer. Returns the bytes of the data, which may be 0. More than
/// `capacity`: nothing was written, call again with a larger buffer. `FT_NONE`: no outcome.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_queueing_poll_outcome(
    queueing: *mut FtQueueing,
    outcome: *mut FtQueueOutcome,
    buffer: *mut u8,
    capacity: usize,
) -> i32 {
    run_exported(|caller| {
        let queueing = caller.object(queueing)?;
        poll_outcome(&caller, &mut queueing.object, queue_outcome_parts, outcome, buffer, capacity)
    })
}

/// Writes the connect data of the match's game server, by the latest status. Returns its bytes. More than `capacity`: nothing was written.
/// `FT_NONE`: no game server hosts a match of the ticket now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_queueing_connect_data(queueing: *mut FtQueueing, buffer: *mut u8, capacity: usize) -> i32 {
    run_exported(|caller| {
        let connect_data = caller.object(queueing)?.connect_data()?.ok_or(FT_NONE)?;
        caller.fill(&connect_data, buffer, capacity)
    })
}

/// Writes the credential of an own player for the match's host, by the latest status: at most `FT_CREDENTIAL_BYTES` of text, without a zero
/// byte at its end. `player` is an index below `own_player_count`, in the order in which the players were entered. Returns its bytes. More
/// than `capacity`: nothing was written. `FT_NONE`: there is none now. Send it to the host alone: it admits the player.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_queueing_credential(
    queueing: *mut FtQueueing,
    player: u32,
    buffer: *mut u8,
    capacity: usize,
) -> i32 {
    run_exported(|caller| {
        let credential = caller.object(queueing)?.credential(player)?.ok_or(FT_NONE)?;
        caller.fill(credential.as_bytes(), buffer, capacity)
    })
}

/// State: one of `FT_QUEUEING_*`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_queueing_state(queueing: *mut FtQueueing) -> i32 {
    run_exported(|caller| caller.object(queueing)?.state())
}
