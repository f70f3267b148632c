//! Exported functions of the responder. They are unsafe for Rust callers: pointers must be as the header says.
#![expect(unsafe_code, reason = "exported names; no unsafe blocks")]
#![expect(clippy::missing_safety_doc, reason = "the header states the rules once for all functions")]

use std::ffi::c_char;

use fireteam_client::probe::ArrivalAndAnswerTime;

use crate::arguments::{flag, read_random_bytes};
use crate::raw::run_exported;
use crate::responder::FtResponder;
use crate::status::{FT_ERROR_BUFFER, FT_ERROR_VALUE, FT_NONE};
use crate::types::{FT_ID_BYTES, FT_RESPONDER_RANDOM_BYTES, FtAddress};

/// Makes a responder for one advertisement, silent until `ft_responder_advertise`. `random` is 64 bytes that no one can guess. Free it with
/// `ft_responder_free`. A client that hosts in a search loop needs none: the loop answers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_responder_new(
    random: *const u8,
    random_length: usize,
    responder: *mut *mut FtResponder,
) -> i32 {
    run_exported(|caller| {
        caller.check_place(responder)?;
        let random = read_random_bytes::<FT_RESPONDER_RANDOM_BYTES>(&caller, random, random_length)?;
        let ([cookie_key, key], []) = random.as_chunks::<32>() else { return Err(FT_ERROR_VALUE) };
        caller.give(responder, FtResponder::new(*cookie_key, *key))?;
        Ok(0)
    })
}

/// Frees a responder; null is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_responder_free(responder: *mut FtResponder) -> i32 {
    run_exported(|caller| caller.free(responder).map(|()| 0))
}

/// Writes the protobuf `ProbeEndpoint` to publish with the advertisement, for a UDP port of the address that the server sees. Returns its
/// bytes. More than `capacity`: nothing was written. It contains a key: send it to the server only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_responder_endpoint(
    responder: *mut FtResponder,
    port: u16,
    buffer: *mut u8,
    capacity: usize,
) -> i32 {
    run_exported(|caller| {
        if port == 0 {
            return Err(FT_ERROR_VALUE);
        }
        let endpoint = caller.object(responder)?.run(|it| Ok(it.probe_endpoint_bytes(port)))?;
        caller.fill(&endpoint, buffer, capacity)
    })
}

/// Answers the probes of this advertisement from now on: 32 hexadecimal digits, with a zero byte at their end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_responder_advertise(responder: *mut FtResponder, advertisement_id: *const c_char) -> i32 {
    run_exported(|caller| {
        let id = caller.text(advertisement_id, FT_ID_BYTES)?;
        caller.object(responder)?.run(|it| it.advertise(id))
    })
}

/// Becomes silent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_responder_withdraw(responder: *mut FtResponder) -> i32 {
    run_exported(|caller| {
        caller.object(responder)?.run(|it| {
            it.withdraw();
            Ok(0)
        })
    })
}

/// Says in answers whether the session has no open seat: 1 full, 0 not full.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_responder_set_full(responder: *mut FtResponder, full: u8) -> i32 {
    run_exported(|caller| {
        let full = flag(full)?;
        caller.object(responder)?.run(|it| {
            it.set_full(full);
            Ok(0)
        })
    })
}

/// Answers involved probes with other data, such as another build, as incompatible. Without it, all data fits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_responder_set_game_data(
    responder: *mut FtResponder,
    game_data: *const u8,
    game_data_length: usize,
) -> i32 {
    run_exported(|caller| {
        let game_data = caller.bytes(game_data, game_data_length)?.to_vec();
        caller.object(responder)?.run(|it| {
            it.set_game_data(game_data);
            Ok(0)
        })
    })
}

/// Writes the answer to a datagram, to be sent to its source. Returns its bytes; `FT_NONE` if it is not answered: it is no probe of this
/// advertisement, or a limit is reached. An answer is never longer than the datagram; `FT_ERROR_BUFFER` if `capacity` is less than that.
/// `arrived_us` is the time of arrival, `now_us` the time now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_responder_handle_datagram(
    responder: *mut FtResponder,
    from: *const FtAddress,
    packet: *const u8,
    packet_length: usize,
    arrived_us: u64,
    now_us: u64,
    buffer: *mut u8,
    capacity: usize,
) -> i32 {
    run_exported(|caller| {
        let responder = caller.object(responder)?;
        let from = caller.read(from)?.source()?;
        let packet = caller.bytes(packet, packet_length)?.to_vec();
        if capacity < packet.len() {
            return Err(FT_ERROR_BUFFER);
        }
        let answer =
            responder.run(|it| it.handle(&packet, from, ArrivalAndAnswerTime { arrived_us, now_us }).ok_or(FT_NONE))?;
        caller.fill(&answer, buffer, capacity)
    })
}
