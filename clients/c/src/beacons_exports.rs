//! Exported functions of the measurement of beacons. They are unsafe for Rust callers: pointers must be as the header says.
#![expect(unsafe_code, reason = "exported names; no unsafe blocks")]
#![expect(clippy::missing_safety_doc, reason = "the header states the rules once for all functions")]

use fireteam_client::probe::beacons::BeaconsEvent;
use fireteam_client::probe::is_probe;

use crate::arguments::{poll_call, poll_timeout, read_answer, read_random_bytes};
use crate::beacons::FtBeacons;
use crate::raw::run_exported;
use crate::status::FT_NONE;
use crate::types::{FT_BEACONS_RANDOM_BYTES, FtAddress, FtAnswer, FtCall, FtPlace};

/// Makes a measurement of beacons, which waits for `ft_beacons_start`. `place` is the client's place, if the game knows it: beacons are then
/// ordered by their distance from it. It is sent to no one. Null: the server's choice is measured first. `random` is 32 bytes that no one can
/// guess, from the random number generator of the system. Free the measurement with `ft_beacons_free`.
///
/// Its latency token proves the round trips of the client to the server. Start it before a loop, wait until its state is
/// `FT_BEACONS_RESTING`, at most 4 s, and give each token to `ft_matching_set_latency_token` or `ft_queueing_set_latency_token`. It measures
/// again before the token expires, for as long as it is driven: stop when the loop needs no token any longer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_beacons_new(
    place: *const FtPlace,
    random: *const u8,
    random_length: usize,
    beacons: *mut *mut FtBeacons,
) -> i32 {
    run_exported(|caller| {
        caller.check_place(beacons)?;
        let place = if place.is_null() { None } else { Some(caller.read(place)?) };
        let seed = read_random_bytes::<FT_BEACONS_RANDOM_BYTES>(&caller, random, random_length)?;
        caller.give(beacons, FtBeacons::new(place, seed)?)?;
        Ok(0)
    })
}

/// Frees a measurement; null is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_beacons_free(beacons: *mut FtBeacons) -> i32 {
    run_exported(|caller| caller.free(beacons).map(|()| 0))
}

/// Starts the measurement. Only the first call counts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_beacons_start(beacons: *mut FtBeacons, now_us: u64) -> i32 {
    run_exported(|caller| caller.object(beacons)?.handle(BeaconsEvent::Start, now_us))
}

/// Gives the answer to a call, also a late one. `FT_ERROR_MALFORMED`: the body is no response of the RPC, and the call counts as failed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_beacons_handle_answer(
    beacons: *mut FtBeacons,
    answer: *const FtAnswer,
    now_us: u64,
) -> i32 {
    run_exported(|caller| {
        let beacons = caller.object(beacons)?;
        beacons.object.handle_answer(&read_answer(&caller, answer)?, now_us)
    })
}

/// Gives a datagram. Read the socket at once while the state is `FT_BEACONS_MEASURING`: a beacon measures until the proof arrives, which
/// answers this datagram. `FT_NONE`: it is no probe, but the game's own. Packets for another loop on the same socket are ignored: give each
/// probe to all loops that use the socket.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_beacons_handle_datagram(
    beacons: *mut FtBeacons,
    from: *const FtAddress,
    packet: *const u8,
    packet_length: usize,
    now_us: u64,
) -> i32 {
    run_exported(|caller| {
        let beacons = caller.object(beacons)?;
        let from = caller.read(from)?.source()?;
        let packet = caller.bytes(packet, packet_length)?;
        if !is_probe(packet) {
            return Err(FT_NONE);
        }
        beacons.handle(BeaconsEvent::Datagram { from, packet: packet.to_vec() }, now_us)
    })
}

/// Says that time has passed: at the time of `ft_beacons_poll_timeout`, or at any other.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_beacons_handle_timeout(beacons: *mut FtBeacons, now_us: u64) -> i32 {
    run_exported(|caller| caller.object(beacons)?.handle(BeaconsEvent::Timeout, now_us))
}

/// The client's search loop has sent a packet: both loops together send at most 40 a second.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_beacons_other_packet_sent(beacons: *mut FtBeacons, now_us: u64) -> i32 {
    run_exported(|caller| caller.object(beacons)?.record_other_packet(now_us))
}

/// Fetches a call: its request into the buffer, the rest into `call`. Returns the bytes of the request, which may be 0. More than `capacity`:
/// nothing was written, call again with a larger buffer. `FT_NONE`: no call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_beacons_poll_call(
    beacons: *mut FtBeacons,
    call: *mut FtCall,
    buffer: *mut u8,
    capacity: usize,
) -> i32 {
    run_exported(|caller| {
        let beacons = caller.object(beacons)?;
        poll_call(&caller, &mut beacons.object, call, buffer, capacity)
    })
}

/// Fetches a datagram to send at once: into the buffer, its destination into `to`. Returns its bytes. More than `capacity`: nothing was
/// written, call again with a larger buffer. `FT_NONE`: no datagram.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_beacons_poll_transmit(
    beacons: *mut FtBeacons,
    to: *mut FtAddress,
    buffer: *mut u8,
    capacity: usize,
) -> i32 {
    run_exported(|caller| caller.object(beacons)?.poll_transmit(&caller, to, (buffer, capacity)))
}

/// Time at which `ft_beacons_handle_timeout` is due, unless another event comes first, into `at_us`. `FT_NONE`: the measurement waits for
/// events alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_beacons_poll_timeout(beacons: *mut FtBeacons, at_us: *mut u64) -> i32 {
    run_exported(|caller| poll_timeout(&caller, &mut caller.object(beacons)?.object, at_us))
}

/// Fetches the latency token to send from now on, of at most `FT_TOKEN_BYTES`. Returns its bytes; 0: the last one has expired, and none is to
/// be sent. More than `capacity`: nothing was written, call again with a larger buffer. `FT_NONE`: it has not changed. Keep it secret.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_beacons_poll_token(beacons: *mut FtBeacons, buffer: *mut u8, capacity: usize) -> i32 {
    run_exported(|caller| {
        let beacons = caller.object(beacons)?;
        let token = beacons.object.next_outcome()?.ok_or(FT_NONE)?;
        let length = caller.fill(token, buffer, capacity)?;
        if token.len() <= capacity {
            beacons.object.outcome_is_done();
        }
        Ok(length)
    })
}

/// Writes the server's answer to the last report: a protobuf `ReportTripsResponse` with its verdicts and the round trips to regions. Returns
/// its bytes. More than `capacity`: nothing was written. `FT_NONE`: nothing was reported yet. It contains the latency token.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_beacons_report(beacons: *mut FtBeacons, buffer: *mut u8, capacity: usize) -> i32 {
    run_exported(|caller| {
        let report = caller.object(beacons)?.report()?.ok_or(FT_NONE)?;
        caller.fill(&report, buffer, capacity)
    })
}

/// State: one of `FT_BEACONS_*`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_beacons_state(beacons: *mut FtBeacons) -> i32 {
    run_exported(|caller| caller.object(beacons)?.state())
}
