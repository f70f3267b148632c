//! Random bytes as answers, datagrams and messages: a result code, never a crash, and the loop still ends.

use fireteam_c::beacons_exports::{
    ft_beacons_handle_answer, ft_beacons_handle_timeout, ft_beacons_other_packet_sent, ft_beacons_start,
};
use fireteam_c::match_host_exports::{
    ft_match_host_handle_timeout, ft_match_host_start, ft_match_host_state, ft_match_host_stop,
};
use fireteam_c::matching_exports::*;
use fireteam_c::queue_types::{FT_MATCH_HOST_ENDED, FT_QUEUEING_ENDED};
use fireteam_c::queueing_exports::{
    ft_queueing_cancel, ft_queueing_connect_failed, ft_queueing_connected, ft_queueing_handle_timeout,
    ft_queueing_start,
};
use fireteam_c::status::FT_ERROR_PANIC;
use fireteam_c::types::*;
use proptest::prelude::*;

use crate::beacons::new_measurement;
use crate::functions::{
    answer, answer_probe, c, new_host, new_loop, options, poll_call, poll_outcome, poll_transmit, v4,
};
use crate::queue_functions::{enter_request, new_matches, new_queue, restored_queue};
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

proptest! {
    /// Answers and datagrams of any bytes, at any time: the measurement has a timer until it rests, and sends nothing but packets to beacons.
    #[test]
    fn random_bytes_do_no_harm_to_a_measurement(inputs in inputs()) {
        let (measurement, mut now_us) = (new_measurement(std::ptr::null()).unwrap(), 0_u64);
        prop_assert_eq!(c!(ft_beacons_start(measurement.0, now_us)), 0);
        for input in inputs {
            let result = match input {
                Input::Answer(id, status, body) => {
                    c!(ft_beacons_handle_answer(measurement.0, &answer(id, status, &body), now_us))
                }
                Input::Datagram(from, packet) => measurement.datagram(v4(from, 9), &packet, now_us),
                Input::Timeout(after_us) => {
                    now_us = now_us.saturating_add(after_us);
                    c!(ft_beacons_handle_timeout(measurement.0, now_us))
                }
                Input::ConnectionLost => c!(ft_beacons_other_packet_sent(measurement.0, now_us)),
                Input::Start => c!(ft_beacons_start(measurement.0, now_us)),
            };
            prop_assert_ne!(result, FT_ERROR_PANIC);
            while measurement.poll_call().is_ok() || measurement.poll_token().is_ok() {}
            while let Ok((_, packet)) = measurement.poll_transmit() {
                prop_assert_eq!(packet.len(), 64);
            }
            prop_assert!(measurement.timeout_us().is_ok());
        }
    }
}

/// Input of a queue loop or of a host of matches.
#[derive(Clone, Debug)]
enum QueueInput {
    Answer(u64, i32, Vec<u8>),
    WatchMessage(u64, Vec<u8>),
    WatchEnd(u64, i32),
    Respond,
    Connected,
    ConnectFailed,
    Timeout(u64),
}

fn queue_inputs() -> impl Strategy<Value = Vec<QueueInput>> {
    let bytes = || prop_oneof![prop::collection::vec(any::<u8>(), 0..100), prop::collection::vec(0_u8..16, 0..8)];
    // A status or a heartbeat with a field more.
    let message = bytes().prop_map(|more| [&[0x0a, 7, 0x0a, 3, b'o', b'n', b'e', 0x10, 5], more.as_slice()].concat());
    let any_message = || prop_oneof![bytes(), message.clone()].boxed();
    let input = prop_oneof![
        4 => (0_u64..6, -1..18, any_message()).prop_map(|(id, status, bytes)| QueueInput::Answer(id, status, bytes)),
        4 => (0_u64..6, any_message()).prop_map(|(id, bytes)| QueueInput::WatchMessage(id, bytes)),
        1 => (0_u64..6, -1..18).prop_map(|(id, status)| QueueInput::WatchEnd(id, status)),
        1 => Just(QueueInput::Respond),
        1 => Just(QueueInput::Connected),
        1 => Just(QueueInput::ConnectFailed),
        1 => prop_oneof![0..60_000_000_u64, any::<u64>()].prop_map(QueueInput::Timeout),
    ];
    prop::collection::vec(input, 1..60)
}

proptest! {
    #[test]
    fn random_bytes_do_no_harm_to_a_queue_loop(inputs in queue_inputs(), saved in prop::collection::vec(any::<u8>(), 0..60)) {
        let mut now_us = 0_u64;
        let queue = new_queue(&enter_request()).unwrap();
        let matches = new_matches(b"token").unwrap();
        prop_assert!(restored_queue(&saved).is_err());
        let _ = restored_queue(&[b"FTQ\x01", saved.as_slice()].concat());
        c!(ft_queueing_start(queue.0, 0));
        c!(ft_match_host_start(matches.0, 0));
        for input in inputs {
            let results = match input {
                QueueInput::Answer(id, status, body) => {
                    [queue.answer(id, status, &body, now_us), matches.answer(id, status, &body, now_us)]
                }
                QueueInput::WatchMessage(id, message) => [queue.watch_message(id, &message, now_us), 0],
                QueueInput::WatchEnd(id, status) => [queue.watch_end(id, status, now_us), 0],
                QueueInput::Respond => [queue.respond("one", 1, now_us), 0],
                QueueInput::Connected => [c!(ft_queueing_connected(queue.0, now_us)), 0],
                QueueInput::ConnectFailed => [c!(ft_queueing_connect_failed(queue.0, now_us)), 0],
                QueueInput::Timeout(after_us) => {
                    now_us = now_us.saturating_add(after_us);
                    [c!(ft_queueing_handle_timeout(queue.0, now_us)), c!(ft_match_host_handle_timeout(matches.0, now_us))]
                }
            };
            prop_assert!(!results.contains(&FT_ERROR_PANIC));
            while queue.poll_call().is_ok() || queue.poll_watch().is_ok() || queue.poll_outcome().is_ok() {}
            while matches.poll_call().is_ok() || matches.poll_outcome().is_ok() {}
        }
        prop_assert_eq!((c!(ft_queueing_cancel(queue.0, now_us)), c!(ft_match_host_stop(matches.0, now_us))), (0, 0));
        let at_us = now_us.saturating_add(10_000_000);
        prop_assert_eq!(c!(ft_queueing_handle_timeout(queue.0, at_us)), 0);
        prop_assert_eq!(c!(ft_match_host_handle_timeout(matches.0, at_us)), 0);
        prop_assert_eq!(queue.state(), FT_QUEUEING_ENDED);
        prop_assert_eq!(c!(ft_match_host_state(matches.0)), FT_MATCH_HOST_ENDED);
    }
}
