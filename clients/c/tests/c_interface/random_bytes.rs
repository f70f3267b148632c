//! Random bytes as answers and datagrams: a result code, never a crash, and the loop still ends.

use fireteam_c::matching_exports::*;
use fireteam_c::status::FT_ERROR_PANIC;
use fireteam_c::types::*;
use proptest::prelude::*;

use crate::functions::{
    answer, answer_probe, c, new_host, new_loop, options, poll_call, poll_outcome, poll_transmit, v4,
};
use crate::world::party;

/// Input of the loop.
#[derive(Clone, Debug)]
enum Input {
    Answer(u64, i32, Vec<u8>),
    Datagram(u8, Vec<u8>),
    Timeout(u64),
    ConnectionLost,
    Start,
}

fn inputs() -> impl Strategy<Value = Vec<Input>> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..200);
    let packet = bytes().prop_map(|bytes| [b"FTL\x01".as_slice(), &bytes].concat());
    let input = prop_oneof![
        (0_u64..4, -1..18, bytes()).prop_map(|(id, status, bytes)| Input::Answer(id, status, bytes)),
        (0_u64..4, Just(0), prop::collection::vec(0_u8..16, 0..6))
            .prop_map(|(id, status, bytes)| Input::Answer(id, status, bytes)),
        (any::<u8>(), prop_oneof![bytes(), packet]).prop_map(|(from, bytes)| Input::Datagram(from, bytes)),
        prop_oneof![0..60_000_000_u64, any::<u64>()].prop_map(Input::Timeout),
        Just(Input::ConnectionLost),
        Just(Input::Start),
    ];
    prop::collection::vec(input, 1..60)
}

proptest! {
    #[test]
    fn random_bytes_do_no_harm(inputs in inputs()) {
        let (party, mut now_us) = (party(), 0_u64);
        let matching = new_loop(&options(&party)).unwrap();
        let host = new_host();
        for input in inputs {
            let result = match input {
                Input::Answer(id, status, body) => {
                    c!(ft_matching_handle_answer(matching.0, &answer(id, status, &body), now_us))
                }
                Input::Datagram(from, packet) => {
                    prop_assert!(answer_probe(&host, v4(from, 9), &packet, now_us).is_err(), "no advertisement");
                    c!(ft_matching_handle_datagram(matching.0, &v4(from, 9), packet.as_ptr(), packet.len(), now_us))
                }
                Input::Timeout(after_us) => {
                    now_us = now_us.saturating_add(after_us);
                    c!(ft_matching_handle_timeout(matching.0, now_us))
                }
                Input::ConnectionLost => c!(ft_matching_connection_lost(matching.0, now_us)),
                Input::Start => c!(ft_matching_start(matching.0, now_us)),
            };
            prop_assert_ne!(result, FT_ERROR_PANIC);
            while poll_call(&matching).is_ok() || poll_transmit(&matching).is_ok() || poll_outcome(&matching).is_ok() {}
        }
        prop_assert_eq!(c!(ft_matching_cancel(matching.0, now_us)), 0);
        let mut at_us = 0;
        while c!(ft_matching_poll_timeout(matching.0, &mut at_us)) == 0 && now_us < at_us {
            now_us = at_us;
            prop_assert_eq!(c!(ft_matching_handle_timeout(matching.0, now_us)), 0);
        }
        prop_assert!(c!(ft_matching_state(matching.0)) == FT_STATE_ENDED || now_us == u64::MAX);
    }
}
