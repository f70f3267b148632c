//! Calls of the exported functions with Rust values; the only file with unsafe blocks.

use std::ffi::CStr;

use fireteam_c::matching_exports::{
    ft_matching_free, ft_matching_new, ft_matching_poll_call, ft_matching_poll_outcome, ft_matching_poll_transmit,
};
use fireteam_c::responder_exports::{
    ft_responder_endpoint, ft_responder_free, ft_responder_handle_datagram, ft_responder_new,
};
use fireteam_c::types::{FT_IPV4, FtAddress, FtAnswer, FtCall, FtHosting, FtMatchingOptions, FtOutcome};
use fireteam_c::{FtMatching, FtResponder};
use fireteam_client::pb;
use prost::Message;

/// Calls an exported function.
macro_rules! c {
    ($call:expr) => {{
        // SAFETY: the pointers are those of live Rust values, of objects that were not freed, null or misaligned.
        unsafe { $call }
    }};
}
pub(crate) use c;

/// Search loop that is freed at the end of the test.
pub(crate) struct Loop(pub(crate) *mut FtMatching);

impl Drop for Loop {
    fn drop(&mut self) {
        assert_eq!(c!(ft_matching_free(self.0)), 0);
    }
}

/// Responder that is freed at the end of the test.
pub(crate) struct Host(pub(crate) *mut FtResponder);

impl Drop for Host {
    fn drop(&mut self) {
        assert_eq!(c!(ft_responder_free(self.0)), 0);
    }
}

/// Options of a party that only searches.
pub(crate) fn options(party: &[u8]) -> FtMatchingOptions {
    FtMatchingOptions {
        party: party.as_ptr(),
        party_length: party.len(),
        game_data: b"build 7".as_ptr(),
        game_data_length: 7,
        hosting: std::ptr::null(),
        set_id: 7,
        configuration_hash: 0,
        connect_timeout_ms: 0,
        redraw_after_ms: 0,
        give_up_after_ms: 0,
        has_configuration_hash: 0,
        compares_game_data: 1,
    }
}

/// Session to host from the bytes of an advertisement.
pub(crate) fn hosting(advertisement: &[u8]) -> FtHosting {
    FtHosting {
        advertisement: advertisement.as_ptr(),
        advertisement_length: advertisement.len(),
        probe_address: FtAddress { ip: [0; 16], port: 0, family: 0 },
        probe_port: 4_000,
        keep_when_full: 0,
    }
}

pub(crate) fn new_loop(options: &FtMatchingOptions) -> Result<Loop, i32> {
    let mut matching = std::ptr::null_mut();
    match c!(ft_matching_new(options, [5; 32].as_ptr(), 32, &mut matching)) {
        0 => Ok(Loop(matching)),
        error => Err(error),
    }
}

pub(crate) fn new_host() -> Host {
    let mut responder = std::ptr::null_mut();
    assert_eq!(c!(ft_responder_new([3; 64].as_ptr(), 64, &mut responder)), 0);
    Host(responder)
}

pub(crate) fn v4(last: u8, port: u16) -> FtAddress {
    let mut ip = [0; 16];
    ip[..4].copy_from_slice(&[192, 0, 2, last]);
    FtAddress { ip, port, family: FT_IPV4 }
}

pub(crate) fn answer(call_id: u64, status: i32, body: &[u8]) -> FtAnswer {
    let reason = std::ptr::null();
    FtAnswer { call_id, retry_after_ms: -1, reason, body: body.as_ptr(), body_length: body.len(), status }
}

/// Call of the loop: its id, path and request.
pub(crate) fn poll_call(matching: &Loop) -> Result<(u64, String, Vec<u8>), i32> {
    let mut call = FtCall { id: 0, path: std::ptr::null(), timeout_ms: 0 };
    let mut buffer = vec![0; 65_536];
    let length = c!(ft_matching_poll_call(matching.0, &mut call, buffer.as_mut_ptr(), buffer.len()));
    buffer.truncate(usize::try_from(length).map_err(|_| length)?);
    assert_eq!(call.timeout_ms, 5_000);
    Ok((call.id, c!(CStr::from_ptr(call.path)).to_str().unwrap().to_owned(), buffer))
}

/// Datagram of the loop, and its destination.
pub(crate) fn poll_transmit(matching: &Loop) -> Result<(FtAddress, Vec<u8>), i32> {
    let (mut to, mut buffer) = (v4(0, 0), vec![0; 1_200]);
    let length = c!(ft_matching_poll_transmit(matching.0, &mut to, buffer.as_mut_ptr(), buffer.len()));
    buffer.truncate(usize::try_from(length).map_err(|_| length)?);
    Ok((to, buffer))
}

/// Outcome of the loop, and its data.
pub(crate) fn poll_outcome(matching: &Loop) -> Result<(FtOutcome, Vec<u8>), i32> {
    let mut outcome = std::mem::MaybeUninit::uninit();
    let mut buffer = vec![0; 4_096];
    let length = c!(ft_matching_poll_outcome(matching.0, outcome.as_mut_ptr(), buffer.as_mut_ptr(), buffer.len()));
    buffer.truncate(usize::try_from(length).map_err(|_| length)?);
    Ok((c!(outcome.assume_init()), buffer))
}

/// Answer of a host to a packet.
pub(crate) fn answer_probe(host: &Host, from: FtAddress, packet: &[u8], now_us: u64) -> Result<Vec<u8>, i32> {
    let mut buffer = vec![0; packet.len()];
    let length = c!(ft_responder_handle_datagram(
        host.0,
        &from,
        packet.as_ptr(),
        packet.len(),
        now_us,
        now_us,
        buffer.as_mut_ptr(),
        buffer.len()
    ));
    buffer.truncate(usize::try_from(length).map_err(|_| length)?);
    Ok(buffer)
}

/// Endpoint of a host, as it is published.
pub(crate) fn endpoint(host: &Host, port: u16) -> pb::ProbeEndpoint {
    let mut buffer = vec![0; 256];
    let length = c!(ft_responder_endpoint(host.0, port, buffer.as_mut_ptr(), buffer.len()));
    let endpoint = pb::ProbeEndpoint::decode(&buffer[..usize::try_from(length).unwrap()]).unwrap();
    pb::ProbeEndpoint { hosted: true, ..endpoint }
}

/// Text in a structure.
pub(crate) fn text(bytes: &[std::ffi::c_char]) -> String {
    bytes.iter().take_while(|byte| **byte != 0).map(|byte| char::from(*byte as u8)).collect()
}
