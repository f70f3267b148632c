//! Misuse gives an error code: null and misaligned pointers, lengths, values and the wrong order.

use std::ptr::{null, null_mut};

use fireteam_c::library_exports::ft_interface_version;
use fireteam_c::matching_exports::*;
use fireteam_c::responder_exports::*;
use fireteam_c::status::*;
use fireteam_c::types::*;
use fireteam_client::pb;
use prost::Message;

use crate::functions::{answer, c, hosting, new_host, new_loop, options, poll_call, v4};
use crate::world::{World, party};

#[test]
fn version_is_that_of_the_header() {
    assert_eq!(ft_interface_version(), FT_INTERFACE_VERSION);
}

#[test]
fn misuse_null_and_misaligned_pointers_are_refused() {
    let (party, mut made) = (party(), null_mut());
    let options = options(&party);
    let random = [5_u8; 32];
    assert_eq!(c!(ft_matching_new(null(), random.as_ptr(), 32, &mut made)), FT_ERROR_NULL);
    assert_eq!(c!(ft_matching_new(&options, null(), 32, &mut made)), FT_ERROR_NULL);
    assert_eq!(c!(ft_matching_new(&options, random.as_ptr(), 32, null_mut())), FT_ERROR_NULL);
    let odd = std::ptr::from_ref(&options).wrapping_byte_add(1);
    assert_eq!(c!(ft_matching_new(odd, random.as_ptr(), 32, &mut made)), FT_ERROR_ALIGNMENT);
    assert!(made.is_null());
    assert_eq!(c!(ft_matching_free(null_mut())), 0);
    assert_eq!(c!(ft_responder_free(null_mut())), 0);

    let matching = new_loop(&options).unwrap();
    let odd = matching.0.wrapping_byte_add(1);
    for (pointer, error) in [(null_mut(), FT_ERROR_NULL), (odd, FT_ERROR_ALIGNMENT)] {
        let (mut at_us, from) = (0, v4(1, 1));
        assert_eq!(c!(ft_matching_start(pointer, 0)), error);
        assert_eq!(c!(ft_matching_cancel(pointer, 0)), error);
        assert_eq!(c!(ft_matching_state(pointer)), error);
        assert_eq!(c!(ft_matching_handle_timeout(pointer, 0)), error);
        assert_eq!(c!(ft_matching_poll_timeout(pointer, &mut at_us)), error);
        assert_eq!(c!(ft_matching_handle_datagram(pointer, &from, null(), 0, 0)), error);
        assert_eq!(c!(ft_matching_handle_answer(pointer, &answer(0, 0, b""), 0)), error);
        assert_eq!(c!(ft_matching_connected(pointer, c"id".as_ptr(), 0)), error);
    }
    assert_eq!(c!(ft_matching_connected(matching.0, null(), 0)), FT_ERROR_NULL);
    assert_eq!(c!(ft_matching_handle_answer(matching.0, null(), 0)), FT_ERROR_NULL);
    assert_eq!(c!(ft_matching_poll_timeout(matching.0, null_mut())), FT_ERROR_NULL);
    assert_eq!(c!(ft_matching_become_host(matching.0, null(), 0)), FT_ERROR_NULL);
    assert_eq!(c!(ft_matching_handle_datagram(matching.0, null(), random.as_ptr(), 32, 0)), FT_ERROR_NULL);
    assert_eq!(c!(ft_matching_poll_call(matching.0, null_mut(), null_mut(), 0)), FT_ERROR_NULL);
    assert_eq!(c!(ft_responder_set_full(null_mut(), 1)), FT_ERROR_NULL);
}

#[test]
fn misuse_values_and_lengths_are_refused() {
    let party = party();
    let good = options(&party);
    let mut made = null_mut();
    assert_eq!(c!(ft_matching_new(&good, [5; 32].as_ptr(), 31, &mut made)), FT_ERROR_LENGTH);
    assert_eq!(c!(ft_matching_new(&good, [0; 32].as_ptr(), 32, &mut made)), FT_ERROR_VALUE);
    assert_eq!(c!(ft_responder_new([5; 64].as_ptr(), 32, &mut null_mut())), FT_ERROR_LENGTH);
    let code = |options: FtMatchingOptions| new_loop(&options).err();
    assert_eq!(code(FtMatchingOptions { party: b"\xff".as_ptr(), party_length: 1, ..good }), Some(FT_ERROR_MALFORMED));
    assert_eq!(code(FtMatchingOptions { party: null(), ..good }), Some(FT_ERROR_NULL));
    assert_eq!(code(FtMatchingOptions { party_length: usize::MAX, ..good }), Some(FT_ERROR_LENGTH));
    assert_eq!(code(FtMatchingOptions { game_data_length: 1_135, ..good }), Some(FT_ERROR_LENGTH));
    assert_eq!(code(FtMatchingOptions { compares_game_data: 2, ..good }), Some(FT_ERROR_VALUE));
    let empty = hosting(b"");
    assert_eq!(code(FtMatchingOptions { hosting: &empty, ..good }), Some(FT_ERROR_VALUE), "no session");
    let of_server = pb::MatchmakingUpdateAdvertisementRequest {
        session_composition: Some(pb::SessionCompositionData::default()),
        kind: pb::AdvertisementKind::GameServer.into(),
        ..Default::default()
    };
    let of_server = of_server.encode_to_vec();
    let game_server = hosting(&of_server);
    let refused = code(FtMatchingOptions { hosting: &game_server, ..good });
    assert_eq!(refused, Some(FT_ERROR_GAME_SERVER), "it does not search");
    let advertising = new_loop(&good).unwrap();
    assert_eq!(c!(ft_matching_become_host(advertising.0, &game_server, 0)), 0);
    assert_eq!(poll_call(&advertising).unwrap().1, "/fireteam.v1.MatchmakingService/UpdateAdvertisement");

    let matching = new_loop(&good).unwrap();
    let other = FtAddress { family: 5, ..v4(1, 1) };
    assert_eq!(c!(ft_matching_handle_datagram(matching.0, &other, b"FTL".as_ptr(), 3, 0)), FT_ERROR_VALUE);
    assert_eq!(c!(ft_matching_handle_datagram(matching.0, &v4(1, 1), b"hello".as_ptr(), 5, 0)), FT_NONE);
    let endless = [b'a' as std::ffi::c_char; 100];
    assert_eq!(c!(ft_matching_connected(matching.0, endless.as_ptr(), 0)), FT_ERROR_LENGTH);
    assert_eq!(c!(ft_matching_connected(matching.0, c"\xff".as_ptr(), 0)), FT_ERROR_VALUE);
    let host = new_host();
    assert_eq!(c!(ft_responder_advertise(host.0, c"12".as_ptr())), FT_ERROR_VALUE);
    assert_eq!(c!(ft_responder_set_full(host.0, 2)), FT_ERROR_VALUE);
    assert_eq!(c!(ft_responder_endpoint(host.0, 0, null_mut(), 0)), FT_ERROR_VALUE);
    assert!(c!(ft_responder_endpoint(host.0, 1, null_mut(), 0)) > 0, "the needed capacity");
    let (packet, from) = ([1; 64], v4(1, 1));
    let small = c!(ft_responder_handle_datagram(host.0, &from, packet.as_ptr(), 64, 0, 0, null_mut(), 63));
    assert_eq!(small, FT_ERROR_BUFFER);
}

/// A buffer that is too small loses nothing, and gets the needed length.
#[test]
fn misuse_short_buffers_lose_nothing() {
    let mut world = World::new(1);
    assert_eq!(c!(ft_matching_start(world.matching.0, world.now_us)), 0);
    let mut call = FtCall { id: 77, path: null(), timeout_ms: 0 };
    let mut byte = 0_u8;
    let needed = c!(ft_matching_poll_call(world.matching.0, &mut call, &mut byte, 1));
    assert!(needed > 1 && call.id == 77 && call.path.is_null());
    assert_eq!(c!(ft_matching_poll_call(world.matching.0, &mut call, null_mut(), 0)), needed);
    assert_eq!(c!(ft_matching_poll_call(world.matching.0, &mut call, null_mut(), 9_999)), FT_ERROR_NULL);
    world.drain();
    assert_eq!(world.requests[0].1.len(), usize::try_from(needed).unwrap());
    world.run_to(FT_STATE_JOINED);
}

/// Answers and connects that no one asked for, an early cancel, and a second start.
#[test]
fn misuse_wrong_order_is_refused_or_ignored() {
    let party = party();
    let matching = new_loop(&options(&party)).unwrap();
    assert_eq!(c!(ft_matching_handle_answer(matching.0, &answer(0, 0, b""), 0)), FT_ERROR_UNKNOWN_CALL);
    assert_eq!(c!(ft_matching_connected(matching.0, c"id".as_ptr(), 0)), 0);
    assert_eq!(c!(ft_matching_host_moved(matching.0, 0)), 0);
    assert_eq!(c!(ft_matching_connection_lost(matching.0, 0)), 0);
    assert_eq!(c!(ft_matching_state(matching.0)), FT_STATE_IDLE);
    assert_eq!(c!(ft_matching_start(matching.0, 1_000_000)), 0);
    assert_eq!(c!(ft_matching_start(matching.0, 0)), 0, "time does not go back");
    let (id, ..) = poll_call(&matching).unwrap();
    assert_eq!(poll_call(&matching).unwrap_err(), FT_NONE);
    assert_eq!(c!(ft_matching_handle_answer(matching.0, &answer(id, 17, b""), 0)), FT_ERROR_VALUE);
    assert_eq!(c!(ft_matching_handle_answer(matching.0, &answer(id, -1, b""), 0)), FT_ERROR_VALUE);
    assert_eq!(c!(ft_matching_handle_answer(matching.0, &answer(id, 0, b"\xff"), 0)), FT_ERROR_MALFORMED);
    assert_eq!(c!(ft_matching_cancel(matching.0, 0)), 0);
    assert_eq!(c!(ft_matching_cancel(matching.0, 0)), 0);
    assert_eq!(c!(ft_matching_state(matching.0)), FT_STATE_ENDED);
}
