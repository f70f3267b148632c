//! World of a search loop behind the C interface: a scripted server, hosts that answer probes, and time.

use std::collections::BTreeMap;

use fireteam_c::matching_exports::*;
use fireteam_c::responder_exports::{ft_responder_advertise, ft_responder_set_game_data};
use fireteam_c::status::FT_NONE;
use fireteam_c::types::*;
use fireteam_client::pb;
use prost::Message;

use crate::functions::{
    Host, Loop, answer, answer_probe, c, endpoint, new_host, new_loop, options, poll_call, poll_outcome, poll_transmit,
    text, v4,
};
use crate::script::{Script, id};

/// Time of a call there and back, microseconds.
const CALL_US: u64 = 20_000;
/// Address of the client.
const CLIENT: u8 = 250;

enum Event {
    Answer(u64, i32, Vec<u8>),
    Datagram(u8, Vec<u8>),
    Connected(String),
}

/// The loop and all that is around it. Host `n` has the address 192.0.2.n, and a round trip of 10 ms × (10 - n).
pub(crate) struct World {
    pub(crate) matching: Loop,
    pub(crate) now_us: u64,
    pub(crate) requests: Vec<(String, Vec<u8>)>,
    pub(crate) outcomes: Vec<(FtOutcome, Vec<u8>)>,
    pub(crate) script: Script,
    /// Failures of the next calls: status code, details.
    pub(crate) failures: Vec<(i32, Vec<u8>)>,
    pub(crate) hosts: BTreeMap<u8, Host>,
    /// Times at which packets were sent.
    pub(crate) packets: Vec<u64>,
    events: BTreeMap<(u64, usize), Event>,
    event_count: usize,
}

pub(crate) fn party() -> Vec<u8> {
    let player = pb::PlayerData { user_id: "ada".into(), ..Default::default() };
    pb::SessionCompositionData { players: vec![player], ..Default::default() }.encode_to_vec()
}

impl World {
    /// World of a party that searches among this number of hosts.
    pub(crate) fn new(hosts: u8) -> Self {
        Self::with_options(hosts, |_| {})
    }

    pub(crate) fn with_options(hosts: u8, change: impl FnOnce(&mut FtMatchingOptions)) -> Self {
        let party = party();
        let mut options = options(&party);
        change(&mut options);
        let hosts = (1..=hosts).map(|number| {
            let host = new_host();
            let id = std::ffi::CString::new(id(number)).unwrap();
            assert_eq!(c!(ft_responder_advertise(host.0, id.as_ptr())), 0);
            assert_eq!(c!(ft_responder_set_game_data(host.0, b"build 7".as_ptr(), 7)), 0);
            (number, host)
        });
        let hosts: BTreeMap<u8, Host> = hosts.collect();
        let mut script = Script::default();
        for (number, host) in &hosts {
            script
                .hosts
                .insert(*number, pb::ProbeEndpoint { address: vec![192, 0, 2, *number], ..endpoint(host, 4_000) });
        }
        Self {
            matching: new_loop(&options).unwrap(),
            now_us: 1_000_000,
            requests: Vec::new(),
            outcomes: Vec::new(),
            script,
            failures: Vec::new(),
            hosts,
            packets: Vec::new(),
            events: BTreeMap::new(),
            event_count: 0,
        }
    }

    pub(crate) fn state(&self) -> i32 {
        c!(ft_matching_state(self.matching.0))
    }

    pub(crate) fn kinds(&self) -> Vec<u32> {
        self.outcomes.iter().map(|(outcome, _)| outcome.kind).collect()
    }

    /// Paths of the calls without the service.
    pub(crate) fn paths(&self) -> Vec<&str> {
        let service = "/fireteam.v1.MatchmakingService/";
        self.requests.iter().map(|(path, _)| path.strip_prefix(service).expect("the service")).collect()
    }

    fn later(&mut self, after_us: u64, event: Event) {
        self.event_count += 1;
        self.events.insert((self.now_us + after_us, self.event_count), event);
    }

    /// Carries out what the loop asks for.
    pub(crate) fn drain(&mut self) {
        while let Ok((call, path, request)) = poll_call(&self.matching) {
            let (status, body) = if self.failures.is_empty() {
                (0, self.script.respond(&path, &request))
            } else {
                self.failures.remove(0)
            };
            self.requests.push((path, request));
            self.later(CALL_US, Event::Answer(call, status, body));
        }
        while let Ok((to, packet)) = poll_transmit(&self.matching) {
            assert_eq!((to.port, to.family, &to.ip[..3]), (4_000, FT_IPV4, &[192, 0, 2][..]));
            let number = to.ip[3];
            self.packets.push(self.now_us);
            if let Ok(reply) = answer_probe(&self.hosts[&number], v4(CLIENT, 5_000), &packet, self.now_us) {
                self.later(u64::from(10 - number) * 10_000, Event::Datagram(number, reply));
            }
        }
        while let Ok((outcome, data)) = poll_outcome(&self.matching) {
            if outcome.kind == FT_OUTCOME_CONNECT {
                self.later(50_000, Event::Connected(text(&outcome.reservation_id)));
            }
            self.outcomes.push((outcome, data));
        }
    }

    /// Goes to the next event or timeout. Returns whether there was one.
    pub(crate) fn step(&mut self) -> bool {
        let mut at_us = 0;
        let timeout = c!(ft_matching_poll_timeout(self.matching.0, &mut at_us));
        let timeout_us = (timeout == 0).then_some(at_us);
        let event_us = self.events.keys().next().map(|(at_us, _)| *at_us);
        let Some(at_us) = [timeout_us, event_us].into_iter().flatten().min() else {
            assert_eq!(timeout, FT_NONE);
            return false;
        };
        self.now_us = self.now_us.max(at_us);
        let (matching, now_us) = (self.matching.0, self.now_us);
        let result = match self.events.first_entry().filter(|it| it.key().0 <= now_us).map(|it| it.remove()) {
            None => c!(ft_matching_handle_timeout(matching, now_us)),
            Some(Event::Answer(call, status, body)) => {
                c!(ft_matching_handle_answer(matching, &answer(call, status, &body), now_us))
            }
            Some(Event::Datagram(from, packet)) => {
                c!(ft_matching_handle_datagram(matching, &v4(from, 4_000), packet.as_ptr(), packet.len(), now_us))
            }
            Some(Event::Connected(reservation)) => {
                let reservation = std::ffi::CString::new(reservation).unwrap();
                c!(ft_matching_connected(matching, reservation.as_ptr(), now_us))
            }
        };
        assert_eq!(result, 0);
        self.drain();
        true
    }

    pub(crate) fn start(&mut self) {
        assert_eq!(c!(ft_matching_start(self.matching.0, self.now_us)), 0);
        self.drain();
    }

    pub(crate) fn cancel(&mut self) {
        assert_eq!(c!(ft_matching_cancel(self.matching.0, self.now_us)), 0);
        self.drain();
    }

    /// Runs until a state is reached.
    pub(crate) fn run_to(&mut self, state: i32) {
        for _ in 0..100_000 {
            if self.state() == state {
                return;
            }
            assert!(self.step(), "{state} is not reached, but {}", self.state());
        }
        panic!("{state} is not reached, but {}", self.state());
    }
}
