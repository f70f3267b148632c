//! Exported functions of the search loop. They are unsafe for Rust callers: pointers must be as the header says.
#![expect(unsafe_code, reason = "exported names; no unsafe blocks")]
#![expect(clippy::missing_safety_doc, reason = "the header states the rules once for all functions")]

use std::ffi::c_char;
use std::time::Duration;

use fireteam_client::matching::{Event, HostedSession, MatchingOptions};
use fireteam_client::probe::is_probe;

use crate::arguments::{bounded_bytes, flag, poll_call, poll_outcome, poll_timeout, read_answer, read_random_bytes};
use crate::matching::{
    FtMatching, parse_hosted_session, parse_party, parse_reservation_event, parse_session_change,
    refuse_game_server_host,
};
use crate::outcome::outcome_parts;
use crate::queue_types::FT_TOKEN_BYTES;
use crate::raw::{Caller, run_exported};
use crate::status::FT_NONE;
use crate::types::{
    FT_ID_BYTES, FT_MATCHING_RANDOM_BYTES, FtAddress, FtAnswer, FtCall, FtHosting, FtMatchingOptions, FtOutcome,
};

/// Most bytes of a game's data in an involved probe.
const GAME_DATA_BYTES_MAX: usize = 1_134;

/// Makes a search loop, which waits for `ft_matching_start`. `random` is 32 bytes that no one can guess, from the random number generator
/// of the system: keys and nonces are made from them. Free the loop with `ft_matching_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_matching_new(
    options: *const FtMatchingOptions,
    random: *const u8,
    random_length: usize,
    matching: *mut *mut FtMatching,
) -> i32 {
    run_exported(|caller| {
        caller.check_place(matching)?;
        let options = caller.read(options)?;
        let seed = read_random_bytes::<FT_MATCHING_RANDOM_BYTES>(&caller, random, random_length)?;
        let compares_game_data = flag(options.compares_game_data)?;
        caller.give(matching, FtMatching::new(read_options(&caller, &options)?, seed, compares_game_data))?;
        Ok(0)
    })
}

/// Frees a loop; null is ignored. It releases nothing at the server: seats and advertisements expire. Call `ft_matching_cancel` first, and
/// go on until `FT_OUTCOME_ENDED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_matching_free(matching: *mut FtMatching) -> i32 {
    run_exported(|caller| caller.free(matching).map(|()| 0))
}

/// Sets the latency token of the client, of at most `FT_TOKEN_BYTES`; empty for none. It is sent with searches, reports, reservations and the
/// own session, which is published again. It is from `ft_beacons_poll_token`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_matching_set_latency_token(
    matching: *mut FtMatching,
    token: *const u8,
    token_length: usize,
    now_us: u64,
) -> i32 {
    run_exported(|caller| {
        let token = bounded_bytes(&caller, token, token_length, FT_TOKEN_BYTES)?.to_vec();
        caller.object(matching)?.handle(Event::LatencyToken(token.into()), now_us)
    })
}

/// The client's measurement of beacons has sent a packet: both together send at most 40 a second.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_matching_other_packet_sent(matching: *mut FtMatching, now_us: u64) -> i32 {
    run_exported(|caller| caller.object(matching)?.record_other_packet(now_us))
}

/// Starts the loop. Only the first call counts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_matching_start(matching: *mut FtMatching, now_us: u64) -> i32 {
    run_exported(|caller| caller.object(matching)?.handle(Event::Start, now_us))
}

/// Ends the loop, or leaves the session. Legal in every state. `FT_OUTCOME_ENDED` follows when all is released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_matching_cancel(matching: *mut FtMatching, now_us: u64) -> i32 {
    run_exported(|caller| caller.object(matching)?.handle(Event::Cancel, now_us))
}

/// Gives the answer to a call, also a late one. `FT_ERROR_MALFORMED`: the body is no response of the RPC, and the call counts as failed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_matching_handle_answer(
    matching: *mut FtMatching,
    answer: *const FtAnswer,
    now_us: u64,
) -> i32 {
    run_exported(|caller| {
        let matching = caller.object(matching)?;
        matching.object.handle_answer(&read_answer(&caller, answer)?, now_us)
    })
}

/// Gives a datagram. Take `now_us` when it arrives: round trips are measured with it. `FT_NONE`: it is no probe, but the game's own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_matching_handle_datagram(
    matching: *mut FtMatching,
    from: *const FtAddress,
    packet: *const u8,
    packet_length: usize,
    now_us: u64,
) -> i32 {
    run_exported(|caller| {
        let matching = caller.object(matching)?;
        let from = caller.read(from)?.source()?;
        let packet = caller.bytes(packet, packet_length)?;
        if !is_probe(packet) {
            return Err(FT_NONE);
        }
        matching.handle(Event::Datagram { from, packet: packet.to_vec() }, now_us)
    })
}

/// Says that time has passed: at the time of `ft_matching_poll_timeout`, or at any other.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_matching_handle_timeout(matching: *mut FtMatching, now_us: u64) -> i32 {
    run_exported(|caller| caller.object(matching)?.handle(Event::Timeout, now_us))
}

/// The game has connected, after `FT_OUTCOME_CONNECT` with this reservation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_matching_connected(
    matching: *mut FtMatching,
    reservation_id: *const c_char,
    now_us: u64,
) -> i32 {
    run_exported(|caller| {
        let reservation_id = caller.text(reservation_id, FT_ID_BYTES)?.to_owned();
        caller.object(matching)?.handle(Event::Connected { reservation_id }, now_us)
    })
}

/// The game could not connect, after `FT_OUTCOME_CONNECT` with this reservation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_matching_connect_failed(
    matching: *mut FtMatching,
    reservation_id: *const c_char,
    now_us: u64,
) -> i32 {
    run_exported(|caller| {
        let reservation_id = caller.text(reservation_id, FT_ID_BYTES)?.to_owned();
        caller.object(matching)?.handle(Event::ConnectFailed { reservation_id }, now_us)
    })
}

/// The joined session lost its connection. The loop asks the game to connect again, and searches if that fails.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_matching_connection_lost(matching: *mut FtMatching, now_us: u64) -> i32 {
    run_exported(|caller| caller.object(matching)?.handle(Event::ConnectionLost, now_us))
}

/// This client hosts a session from now on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_matching_become_host(
    matching: *mut FtMatching,
    hosting: *const FtHosting,
    now_us: u64,
) -> i32 {
    run_exported(|caller| {
        let matching = caller.object(matching)?;
        matching.handle(Event::BecomeHost(Box::new(read_hosting(&caller, hosting)?)), now_us)
    })
}

/// Another client hosts the session from now on, and this client stays in it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_matching_host_moved(matching: *mut FtMatching, now_us: u64) -> i32 {
    run_exported(|caller| caller.object(matching)?.handle(Event::HostMoved, now_us))
}

/// The hosted session has other players or seats. `update` is a protobuf `MatchmakingUpdateAdvertisementRequest`, of which
/// `session_composition` (required) and `joined_reservation_ids` are read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_matching_session_changed(
    matching: *mut FtMatching,
    update: *const u8,
    update_length: usize,
    now_us: u64,
) -> i32 {
    run_exported(|caller| {
        let event = parse_session_change(caller.bytes(update, update_length)?)?;
        caller.object(matching)?.handle(event, now_us)
    })
}

/// A reservation of the hosted session changed: a protobuf `ReservationEvent` from a stream. Without a stream, heartbeats find it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_matching_handle_reservation(
    matching: *mut FtMatching,
    event: *const u8,
    event_length: usize,
    now_us: u64,
) -> i32 {
    run_exported(|caller| {
        let event = parse_reservation_event(caller.bytes(event, event_length)?)?;
        caller.object(matching)?.handle(event, now_us)
    })
}

/// Fetches a call: its request into the buffer, the rest into `call`. Returns the bytes of the request. More than `capacity`: nothing was
/// written, call again with a larger buffer. `FT_NONE`: no call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_matching_poll_call(
    matching: *mut FtMatching,
    call: *mut FtCall,
    buffer: *mut u8,
    capacity: usize,
) -> i32 {
    run_exported(|caller| {
        let matching = caller.object(matching)?;
        poll_call(&caller, &mut matching.object, call, buffer, capacity)
    })
}

/// Fetches a datagram to send: into the buffer, its destination into `to`. Returns its bytes. More than `capacity`: nothing was written,
/// call again with a larger buffer. `FT_NONE`: no datagram.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_matching_poll_transmit(
    matching: *mut FtMatching,
    to: *mut FtAddress,
    buffer: *mut u8,
    capacity: usize,
) -> i32 {
    run_exported(|caller| caller.object(matching)?.poll_transmit(&caller, to, (buffer, capacity)))
}

/// Time at which `ft_matching_handle_timeout` is due, unless another event comes first, into `at_us`. `FT_NONE`: the loop waits for events
/// alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_matching_poll_timeout(matching: *mut FtMatching, at_us: *mut u64) -> i32 {
    run_exported(|caller| poll_timeout(&caller, &mut caller.object(matching)?.object, at_us))
}

/// Fetches an outcome: its fields into `outcome`, its data into the buffer. Returns the bytes of the data, which may be 0. More than
/// `capacity`: nothing was written, call again with a larger buffer. `FT_NONE`: no outcome.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_matching_poll_outcome(
    matching: *mut FtMatching,
    outcome: *mut FtOutcome,
    buffer: *mut u8,
    capacity: usize,
) -> i32 {
    run_exported(|caller| {
        let matching = caller.object(matching)?;
        poll_outcome(&caller, &mut matching.object, outcome_parts, outcome, buffer, capacity)
    })
}

/// State: one of `FT_STATE_*`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_matching_state(matching: *mut FtMatching) -> i32 {
    run_exported(|caller| caller.object(matching)?.state())
}

fn read_options(caller: &Caller, options: &FtMatchingOptions) -> Result<MatchingOptions, i32> {
    let party = parse_party(caller.bytes(options.party, options.party_length)?)?;
    let game_data = bounded_bytes(caller, options.game_data, options.game_data_length, GAME_DATA_BYTES_MAX)?;
    let hosting = if options.hosting.is_null() {
        None
    } else {
        Some(refuse_game_server_host(read_hosting(caller, options.hosting)?)?)
    };
    let has_hash = flag(options.has_configuration_hash)?;
    let defaults = MatchingOptions::new(options.set_id, party);
    let millis = |millis: u32| (millis != 0).then(|| Duration::from_millis(millis.into()));
    Ok(MatchingOptions {
        service_configuration_hash: has_hash.then_some(options.configuration_hash),
        game_data: game_data.to_vec(),
        hosting,
        connect_timeout: millis(options.connect_timeout_ms).unwrap_or(defaults.connect_timeout),
        redraw_after: millis(options.redraw_after_ms).unwrap_or(defaults.redraw_after),
        give_up_after: millis(options.give_up_after_ms),
        ..defaults
    })
}

fn read_hosting(caller: &Caller, from: *const FtHosting) -> Result<HostedSession, i32> {
    let from = caller.read(from)?;
    let advertisement = caller.bytes(from.advertisement, from.advertisement_length)?;
    parse_hosted_session(advertisement, from.probe_address.ip()?, from.probe_port, flag(from.keep_when_full)?)
}
