//! Exported functions of hosts of matches. They are unsafe for Rust callers: pointers must be as the header says.
#![expect(unsafe_code, reason = "exported names; no unsafe blocks")]
#![expect(clippy::missing_safety_doc, reason = "the header states the rules once for all functions")]

use std::ffi::c_char;

use fireteam_client::match_hosting::HostingEvent;
use fireteam_client::pb;

use crate::arguments::{
    bounded_bytes, flag, poll_call, poll_outcome, poll_timeout, read_answer, read_random_bytes, read_ranks,
};
use crate::match_host::{FtMatchHost, parse_match_id, parse_report};
use crate::match_host_outcome::match_outcome_parts;
use crate::queue_types::{FT_MATCH_HOST_RANDOM_BYTES, FT_TOKEN_BYTES, FtMatchOutcome, FtTeamRank};
use crate::raw::run_exported;
use crate::status::FT_ERROR_LENGTH;
use crate::types::{FT_ID_BYTES, FtAnswer, FtCall};

/// Makes a host of the matches of an advertisement, which waits for `ft_match_host_start`. `advertisement_token` is its token, of 1 to
/// `FT_TOKEN_BYTES`, as `FT_OUTCOME_ADVERTISED` has it; after a restart of the game server, the saved one. `random` is 32 bytes from the
/// random number generator of the system. Free the host with `ft_match_host_free`.
///
/// The host confirms the matches that the server assigns, keeps them alive by heartbeats, and sends ends and results, through outages of the
/// server. After each function that takes a time, fetch all calls and all outcomes, until `FT_NONE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_match_host_new(
    advertisement_token: *const u8,
    advertisement_token_length: usize,
    random: *const u8,
    random_length: usize,
    host: *mut *mut FtMatchHost,
) -> i32 {
    run_exported(|caller| {
        caller.check_place(host)?;
        let token = bounded_bytes(&caller, advertisement_token, advertisement_token_length, FT_TOKEN_BYTES)?;
        if token.is_empty() {
            return Err(FT_ERROR_LENGTH);
        }
        let seed = read_random_bytes::<FT_MATCH_HOST_RANDOM_BYTES>(&caller, random, random_length)?;
        caller.give(host, FtMatchHost::new(token.to_vec(), seed))?;
        Ok(0)
    })
}

/// Frees a host; null is ignored. It tells the server nothing: matches that are played end with HOST_LOST, unless another host goes on with
/// their advertisement.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_match_host_free(host: *mut FtMatchHost) -> i32 {
    run_exported(|caller| caller.free(host).map(|()| 0))
}

/// Starts the heartbeats. Only the first call counts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_match_host_start(host: *mut FtMatchHost, now_us: u64) -> i32 {
    run_exported(|caller| caller.object(host)?.handle(HostingEvent::Start, now_us))
}

/// Stops the heartbeats. Ends and reports that were sent are still awaited; `FT_MATCH_OUTCOME_ENDED` follows within 10 s.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_match_host_stop(host: *mut FtMatchHost, now_us: u64) -> i32 {
    run_exported(|caller| caller.object(host)?.handle(HostingEvent::Stop, now_us))
}

/// Gives the answer to a call, also a late one. `FT_ERROR_MALFORMED`: the body is no response of the RPC, and the call counts as failed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_match_host_handle_answer(
    host: *mut FtMatchHost,
    answer: *const FtAnswer,
    now_us: u64,
) -> i32 {
    run_exported(|caller| {
        let host = caller.object(host)?;
        host.object.handle_answer(&read_answer(&caller, answer)?, now_us)
    })
}

/// Says that time has passed: at the time of `ft_match_host_poll_timeout`, or at any other.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_match_host_handle_timeout(host: *mut FtMatchHost, now_us: u64) -> i32 {
    run_exported(|caller| caller.object(host)?.handle(HostingEvent::Timeout, now_us))
}

/// A match has taken seats or has changed, as a reservation shows: the next heartbeat is sent now. Without it, the next one finds the match.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_match_host_matches_changed(host: *mut FtMatchHost, now_us: u64) -> i32 {
    run_exported(|caller| caller.object(host)?.handle(HostingEvent::MatchesChanged, now_us))
}

/// Gives a match up. Another game server is sought if play has not begun.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_match_host_give_up(host: *mut FtMatchHost, match_id: *const c_char, now_us: u64) -> i32 {
    run_exported(|caller| {
        let match_id = parse_match_id(caller.text(match_id, FT_ID_BYTES)?)?;
        caller.object(host)?.handle(HostingEvent::GiveUp { match_id }, now_us)
    })
}

/// The match is over: 0 played, 1 it could not be hosted and was not played. A report ends a match, too. `FT_MATCH_OUTCOME_MATCH_ENDED` or
/// `FT_MATCH_OUTCOME_REFUSED` follows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_match_host_end_match(
    host: *mut FtMatchHost,
    match_id: *const c_char,
    failed: u8,
    now_us: u64,
) -> i32 {
    run_exported(|caller| {
        let failed = flag(failed)?;
        let match_id = parse_match_id(caller.text(match_id, FT_ID_BYTES)?)?;
        caller.object(host)?.handle(HostingEvent::EndMatch { match_id, failed }, now_us)
    })
}

/// The match was played: ranks of all its teams, 1 to 128 of them. It ends the match. `FT_MATCH_OUTCOME_REPORTED` or
/// `FT_MATCH_OUTCOME_REFUSED` follows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_match_host_report(
    host: *mut FtMatchHost,
    match_id: *const c_char,
    ranks: *const FtTeamRank,
    rank_count: usize,
    now_us: u64,
) -> i32 {
    run_exported(|caller| {
        let match_id = parse_match_id(caller.text(match_id, FT_ID_BYTES)?)?;
        let team_ranks = read_ranks(&caller, ranks, rank_count)?;
        let report = pb::ReportResultRequest { match_id, team_ranks, ..Default::default() };
        caller.object(host)?.handle(HostingEvent::Report(Box::new(report)), now_us)
    })
}

/// The same with a protobuf `ReportResultRequest`, which also ranks players and names those who left: `match_id` and ranks are required; the
/// token is added.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_match_host_report_result(
    host: *mut FtMatchHost,
    report: *const u8,
    report_length: usize,
    now_us: u64,
) -> i32 {
    run_exported(|caller| {
        let event = parse_report(caller.bytes(report, report_length)?)?;
        caller.object(host)?.handle(event, now_us)
    })
}

/// Fetches a call: its request into the buffer, the rest into `call`. Returns the bytes of the request. More than `capacity`: nothing was
/// written, call again with a larger buffer. `FT_NONE`: no call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_match_host_poll_call(
    host: *mut FtMatchHost,
    call: *mut FtCall,
    buffer: *mut u8,
    capacity: usize,
) -> i32 {
    run_exported(|caller| {
        let host = caller.object(host)?;
        poll_call(&caller, &mut host.object, call, buffer, capacity)
    })
}

/// Time at which `ft_match_host_handle_timeout` is due, unless another event comes first, into `at_us`. `FT_NONE`: the host waits for events
/// alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_match_host_poll_timeout(host: *mut FtMatchHost, at_us: *mut u64) -> i32 {
    run_exported(|caller| poll_timeout(&caller, &mut caller.object(host)?.object, at_us))
}

/// Fetches an outcome: its fields into `outcome`, its data into the buffer. Returns the bytes of the data, which may be 0. More than
/// `capacity`: nothing was written, call again with a larger buffer. `FT_NONE`: no outcome.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_match_host_poll_outcome(
    host: *mut FtMatchHost,
    outcome: *mut FtMatchOutcome,
    buffer: *mut u8,
    capacity: usize,
) -> i32 {
    run_exported(|caller| {
        let host = caller.object(host)?;
        poll_outcome(&caller, &mut host.object, match_outcome_parts, outcome, buffer, capacity)
    })
}

/// State: one of `FT_MATCH_HOST_*`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_match_host_state(host: *mut FtMatchHost) -> i32 {
    run_exported(|caller| caller.object(host)?.state())
}
