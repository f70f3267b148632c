//! Arguments that several exported functions have: flags, random numbers, answers and buffers.

use std::borrow::Cow;

use fireteam_client::matching::CallId;
use fireteam_client::pb;

use crate::answer::AnswerParts;
use crate::loop_object::{LoopMachine, LoopObject};
use crate::queue_types::FtTeamRank;
use crate::raw::Caller;
use crate::status::{FT_ERROR_LENGTH, FT_ERROR_VALUE, FT_NONE};
use crate::types::{FT_ID_BYTES, FtAnswer, FtCall};

/// Deadline of each call.
pub(crate) const CALL_TIMEOUT_MS: u32 = 5_000;
/// Most teams of a match.
const TEAMS_MAX: usize = 128;

/// Boolean of the interface.
pub(crate) fn flag(value: u8) -> Result<bool, i32> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(FT_ERROR_VALUE),
    }
}

/// Random bytes of the caller. Zeros alone are a buffer that was not filled.
pub(crate) fn read_random_bytes<const N: usize>(
    caller: &Caller,
    start: *const u8,
    length: usize,
) -> Result<[u8; N], i32> {
    let bytes: [u8; N] = caller.bytes(start, length)?.try_into().map_err(|_| FT_ERROR_LENGTH)?;
    if bytes == [0; N] { Err(FT_ERROR_VALUE) } else { Ok(bytes) }
}

/// Bytes of the caller, of at most `length_max`.
pub(crate) fn bounded_bytes(caller: &Caller, start: *const u8, length: usize, length_max: usize) -> Result<&[u8], i32> {
    if length_max < length { Err(FT_ERROR_LENGTH) } else { caller.bytes(start, length) }
}

/// Answer to a call.
pub(crate) fn read_answer<'caller>(
    caller: &'caller Caller,
    answer: *const FtAnswer,
) -> Result<AnswerParts<'caller>, i32> {
    let answer = caller.read(answer)?;
    let reason = if answer.reason.is_null() { None } else { Some(caller.text(answer.reason, FT_ID_BYTES)?) };
    Ok(AnswerParts {
        id: CallId(answer.call_id),
        status: answer.status,
        body: caller.bytes(answer.body, answer.body_length)?,
        reason,
        retry_after_ms: u64::try_from(answer.retry_after_ms).ok(),
    })
}

/// Ranks of the teams of a match, at least one.
pub(crate) fn read_ranks(caller: &Caller, ranks: *const FtTeamRank, count: usize) -> Result<Vec<pb::TeamRank>, i32> {
    if !(1..=TEAMS_MAX).contains(&count) {
        return Err(FT_ERROR_LENGTH);
    }
    let to_rank = |it: &FtTeamRank| pb::TeamRank { team: it.team, rank: it.rank };
    let ranks: Vec<_> = caller.items(ranks, count)?.iter().map(to_rank).collect();
    if ranks.iter().all(|it| 1 <= it.rank) { Ok(ranks) } else { Err(FT_ERROR_VALUE) }
}

/// Fetches a call: its request into the buffer, the rest into `call`.
pub(crate) fn poll_call<Machine: LoopMachine>(
    caller: &Caller,
    object: &mut LoopObject<Machine>,
    call: *mut FtCall,
    buffer: *mut u8,
    capacity: usize,
) -> Result<i32, i32> {
    caller.check_place(call)?;
    let pending = object.next_call()?.ok_or(FT_NONE)?;
    let length = caller.fill(&pending.body, buffer, capacity)?;
    if pending.body.len() <= capacity {
        let (id, path) = (pending.id.0, pending.path.as_ptr());
        caller.write(call, FtCall { id, path, timeout_ms: CALL_TIMEOUT_MS })?;
        object.call_is_done();
    }
    Ok(length)
}

/// Fetches an outcome: its fields into `outcome`, its data into the buffer.
pub(crate) fn poll_outcome<Machine: LoopMachine, Parts>(
    caller: &Caller,
    object: &mut LoopObject<Machine>,
    parts_of: impl FnOnce(&Machine::Outcome) -> (Parts, Cow<'_, [u8]>),
    outcome: *mut Parts,
    buffer: *mut u8,
    capacity: usize,
) -> Result<i32, i32> {
    caller.check_place(outcome)?;
    let (parts, data) = parts_of(object.next_outcome()?.ok_or(FT_NONE)?);
    let length = caller.fill(&data, buffer, capacity)?;
    if data.len() <= capacity {
        drop(data);
        caller.write(outcome, parts)?;
        object.outcome_is_done();
    }
    Ok(length)
}

/// Writes the time of the next timeout.
pub(crate) fn poll_timeout<Machine: LoopMachine>(
    caller: &Caller,
    object: &mut LoopObject<Machine>,
    at_us: *mut u64,
) -> Result<i32, i32> {
    caller.check_place(at_us)?;
    caller.write(at_us, object.timeout_us()?.ok_or(FT_NONE)?)?;
    Ok(0)
}
