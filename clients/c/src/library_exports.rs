//! Exported functions of the library as a whole.
#![expect(unsafe_code, reason = "exported names; no unsafe blocks")]

use std::ffi::c_char;

use fireteam_client::probe::is_probe;

use crate::raw::run_exported;
use crate::status::{FT_INTERFACE_VERSION, result_text};

/// Version of the interface that the library implements. Compare it with `FT_INTERFACE_VERSION` of the header.
#[unsafe(no_mangle)]
pub extern "C" fn ft_interface_version() -> u32 {
    FT_INTERFACE_VERSION
}

/// Tells packets of latency probes and beacons from the game's own on one socket: 1 for a probe, to be given to loops and responders; 0 for any
/// other datagram.
#[expect(clippy::missing_safety_doc, reason = "the header states the rules once for all functions")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_is_probe(packet: *const u8, packet_length: usize) -> i32 {
    run_exported(|caller| Ok(is_probe(caller.bytes(packet, packet_length)?).into()))
}

/// Text of a result code, for logs: what is wrong and what to do, in static memory, with a zero byte at its end. Never null.
#[unsafe(no_mangle)]
pub extern "C" fn ft_result_text(result: i32) -> *const c_char {
    result_text(result).as_ptr()
}
