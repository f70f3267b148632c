//! Measurement of beacons as a C program drives it: its packets, its token, and the loops that send the token.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::ptr::{null, null_mut};

use fireteam_c::FtBeacons;
use fireteam_c::beacons_exports::*;
use fireteam_c::library_exports::ft_is_probe;
use fireteam_c::matching_exports::{
    ft_matching_other_packet_sent, ft_matching_poll_timeout, ft_matching_set_latency_token, ft_matching_start,
};
use fireteam_c::queueing_exports::{ft_queueing_set_latency_token, ft_queueing_start};
use fireteam_c::status::*;
use fireteam_c::types::*;
use fireteam_client::pb;
use fireteam_probe::{BeaconCookieKey, BeaconKey, BeaconResponder, Hello, Receipt};
use prost::Message;

use crate::functions::{answer, c, new_loop, options, poll_call, v4};
use crate::queue_functions::{enter_request, filled, new_queue};
use crate::world::{World, party};

const GET_BEACONS: &str = "/fireteam.v1.LatencyService/GetBeacons";
const REPORT_TRIPS: &str = "/fireteam.v1.LatencyService/ReportTrips";
const BINDING: [u8; 16] = [6; 16];
const PORT: u16 = 3_478;
/// Address of the client, as beacons see it.
const CLIENT: ([u8; 4], u16) = ([203, 0, 113, 7], 50_000);

fn key(beacon: u8) -> BeaconKey {
    BeaconKey([beacon; 32])
}

/// Round trip to a beacon, microseconds.
fn round_trip_us(beacon: u8) -> u64 {
    5_000 * u64::from(beacon)
}

/// Measurement that is freed at the end of the test.
pub(crate) struct Measurement(pub(crate) *mut FtBeacons);

impl Drop for Measurement {
    fn drop(&mut self) {
        assert_eq!(c!(ft_beacons_free(self.0)), 0);
    }
}

pub(crate) fn new_measurement(place: *const FtPlace) -> Result<Measurement, i32> {
    let mut beacons = null_mut();
    match c!(ft_beacons_new(place, [5; 32].as_ptr(), 32, &mut beacons)) {
        0 => Ok(Measurement(beacons)),
        error => Err(error),
    }
}

impl Measurement {
    pub(crate) fn poll_call(&self) -> Result<(u64, String, Vec<u8>), i32> {
        let mut call = FtCall { id: 0, path: null(), timeout_ms: 0 };
        let request = filled(|buffer, capacity| c!(ft_beacons_poll_call(self.0, &mut call, buffer, capacity)))?;
        assert_eq!(call.timeout_ms, 5_000);
        Ok((call.id, c!(CStr::from_ptr(call.path)).to_str().unwrap().to_owned(), request))
    }

    pub(crate) fn poll_transmit(&self) -> Result<(FtAddress, Vec<u8>), i32> {
        let mut to = v4(0, 0);
        let packet = filled(|buffer, capacity| c!(ft_beacons_poll_transmit(self.0, &mut to, buffer, capacity)))?;
        Ok((to, packet))
    }

    pub(crate) fn poll_token(&self) -> Result<Vec<u8>, i32> {
        filled(|buffer, capacity| c!(ft_beacons_poll_token(self.0, buffer, capacity)))
    }

    fn report(&self) -> Result<Vec<u8>, i32> {
        filled(|buffer, capacity| c!(ft_beacons_report(self.0, buffer, capacity)))
    }

    fn state(&self) -> i32 {
        c!(ft_beacons_state(self.0))
    }

    pub(crate) fn timeout_us(&self) -> Result<u64, i32> {
        let mut at_us = 0;
        match c!(ft_beacons_poll_timeout(self.0, &mut at_us)) {
            0 => Ok(at_us),
            error => Err(error),
        }
    }

    pub(crate) fn datagram(&self, from: FtAddress, packet: &[u8], now_us: u64) -> i32 {
        c!(ft_beacons_handle_datagram(self.0, &from, packet.as_ptr(), packet.len(), now_us))
    }
}

/// A fleet, a server that lists it, and time. Beacon `n` has the address 192.0.2.n.
struct Fleet {
    measurement: Measurement,
    beacons: BTreeMap<u8, BeaconResponder>,
    now_us: u64,
    /// Answers that are on their way: when and from which beacon they arrive.
    arrivals: BTreeMap<(u64, usize), (u8, Vec<u8>)>,
    /// Hellos, and when each was sent.
    hellos: Vec<(u64, u8)>,
    reports: Vec<Vec<Receipt>>,
    sent_count: usize,
}

impl Fleet {
    fn new(beacons: u8) -> Self {
        let responder = |number: u8| {
            let responder = BeaconResponder::new(number.into(), key(number), BeaconCookieKey([9; 32]), 50_000);
            (number, responder)
        };
        Self {
            measurement: new_measurement(null()).unwrap(),
            beacons: (1..=beacons).map(responder).collect(),
            now_us: 1_000_000,
            arrivals: BTreeMap::new(),
            hellos: Vec::new(),
            reports: Vec::new(),
            sent_count: 0,
        }
    }

    fn list(&self) -> Vec<u8> {
        let beacon = |number: &u8| pb::Beacon {
            id: (*number).into(),
            address: vec![192, 0, 2, *number],
            port: PORT.into(),
            ..Default::default()
        };
        let beacons = self.beacons.keys().map(beacon).collect();
        let binding = BINDING.to_vec();
        pb::GetBeaconsResponse { beacons, binding, good_for_ms: 600_000, beacons_wanted: 12 }.encode_to_vec()
    }

    /// Response of the server to a call.
    fn respond(&mut self, path: &str, request: &[u8]) -> Vec<u8> {
        if path == GET_BEACONS {
            return self.list();
        }
        assert_eq!(path, REPORT_TRIPS);
        let receipts = pb::ReportTripsRequest::decode(request).unwrap().receipts;
        self.reports.push(receipts.iter().map(|receipt| Receipt::decode(receipt).unwrap()).collect());
        let latency_token = format!("token {}", self.reports.len()).into_bytes();
        pb::ReportTripsResponse { latency_token, good_for_ms: 600_000, ..Default::default() }.encode_to_vec()
    }

    /// Carries out what the measurement asks for.
    fn drain(&mut self) {
        while let Ok((id, path, request)) = self.measurement.poll_call() {
            let body = self.respond(&path, &request);
            let answer = answer(id, 0, &body);
            assert_eq!(c!(ft_beacons_handle_answer(self.measurement.0, &answer, self.now_us)), 0);
        }
        while let Ok((to, packet)) = self.measurement.poll_transmit() {
            assert_eq!((to.port, to.family, &to.ip[..3], packet.len()), (PORT, FT_IPV4, &[192, 0, 2][..], 64));
            let number = to.ip[3];
            if Hello::decode(&packet).is_ok() {
                self.hellos.push((self.now_us, number));
            }
            let half_us = round_trip_us(number) / 2;
            let beacon = self.beacons.get_mut(&number).unwrap();
            if let Some(answer) = beacon.handle(&packet, CLIENT.into(), self.now_us + half_us, 1_000) {
                self.sent_count += 1;
                self.arrivals.insert((self.now_us + 2 * half_us, self.sent_count), (number, answer.to_vec()));
            }
        }
    }

    /// Goes to the next arrival or timeout.
    fn step(&mut self) {
        let timeout_us = self.measurement.timeout_us().expect("a timer");
        let arrival_us = self.arrivals.keys().next().map_or(u64::MAX, |(at_us, _)| *at_us);
        self.now_us = self.now_us.max(timeout_us.min(arrival_us));
        let result = match self.arrivals.first_entry().filter(|it| it.key().0 <= self.now_us) {
            Some(entry) => {
                let (number, packet) = entry.remove();
                self.measurement.datagram(v4(number, PORT), &packet, self.now_us)
            }
            None => c!(ft_beacons_handle_timeout(self.measurement.0, self.now_us)),
        };
        assert_eq!(result, 0);
        self.drain();
    }

    fn start(&mut self) {
        assert_eq!(c!(ft_beacons_start(self.measurement.0, self.now_us)), 0);
        self.drain();
    }

    fn run_to(&mut self, state: i32) {
        for _ in 0..10_000 {
            if self.measurement.state() == state {
                return;
            }
            self.step();
        }
        panic!("{state} is not reached, but {}", self.measurement.state());
    }
}

/// Twelve beacons are measured within a second or so, each receipt proves a round trip that is not too short, and the game receives the token once. Before
/// it expires, there is another.
#[test]
fn beacons_are_measured_and_give_a_latency_token() {
    let mut fleet = Fleet::new(12);
    let measurement = |fleet: &Fleet| fleet.measurement.0;
    assert_eq!((fleet.measurement.state(), fleet.measurement.timeout_us()), (FT_BEACONS_IDLE, Err(FT_NONE)));
    assert_eq!((fleet.measurement.poll_token(), fleet.measurement.report()), (Err(FT_NONE), Err(FT_NONE)));
    fleet.start();
    assert_eq!(fleet.measurement.state(), FT_BEACONS_MEASURING);
    fleet.run_to(FT_BEACONS_RESTING);
    assert!(fleet.now_us < 4_000_000, "{}", fleet.now_us);
    let receipts = &fleet.reports[0];
    for number in 1..=12 {
        let of_beacon = receipts.iter().filter(|it| it.claims.beacon_id == u32::from(number));
        let round_trips: Vec<u64> = of_beacon
            .map(|receipt| {
                assert!(receipt.is_signed_by(&key(number)) && receipt.claims.binding == BINDING);
                receipt.claims.round_trip_us.into()
            })
            .collect();
        assert!(4 <= round_trips.len(), "{number}: {round_trips:?}");
        assert!(round_trips.iter().all(|us| round_trip_us(number) <= *us), "{number}: {round_trips:?}");
    }
    // A short buffer loses nothing.
    assert_eq!(c!(ft_beacons_poll_token(measurement(&fleet), null_mut(), 0)), 7);
    assert_eq!(c!(ft_beacons_poll_token(measurement(&fleet), null_mut(), 7)), FT_ERROR_NULL);
    assert_eq!(fleet.measurement.poll_token().unwrap(), b"token 1");
    assert_eq!(fleet.measurement.poll_token(), Err(FT_NONE), "it has not changed");
    let report = pb::ReportTripsResponse::decode(&*fleet.measurement.report().unwrap()).unwrap();
    assert_eq!((report.latency_token.as_slice(), report.good_for_ms), (b"token 1".as_slice(), 600_000));

    let first_us = fleet.now_us;
    fleet.step();
    assert!((400_000_000..600_000_000).contains(&(fleet.now_us - first_us)), "{}", fleet.now_us);
    fleet.run_to(FT_BEACONS_RESTING);
    assert_eq!((fleet.measurement.poll_token().unwrap(), fleet.reports.len()), (b"token 2".to_vec(), 2));
    let debug = format!("{:?}", c!(&*measurement(&fleet)));
    assert!(!debug.contains("token 2") && !debug.contains(&format!("{:?}", b"token 2")), "{debug}");
}

/// After a token has expired without another, the game receives an empty one.
#[test]
fn beacons_token_expires_through_an_outage() {
    let mut fleet = Fleet::new(8);
    fleet.start();
    fleet.run_to(FT_BEACONS_RESTING);
    assert_eq!(fleet.measurement.poll_token().unwrap(), b"token 1");
    let expires_us = fleet.now_us + 600_000_000;
    while fleet.now_us < expires_us {
        fleet.now_us = fleet.measurement.timeout_us().unwrap().max(fleet.now_us);
        assert_eq!(c!(ft_beacons_handle_timeout(fleet.measurement.0, fleet.now_us)), 0);
        while let Ok((id, path, _)) = fleet.measurement.poll_call() {
            assert_eq!(path, GET_BEACONS);
            assert_eq!(c!(ft_beacons_handle_answer(fleet.measurement.0, &answer(id, 14, b""), fleet.now_us)), 0);
        }
        assert!(fleet.now_us == expires_us || fleet.measurement.poll_token() == Err(FT_NONE));
    }
    assert_eq!((fleet.now_us, fleet.measurement.poll_token()), (expires_us, Ok(Vec::new())));
}

/// A server without beacons, and a list that cannot be read, end the measurement without a token.
#[test]
fn beacons_that_the_server_does_not_have_give_no_token() {
    let measurement = new_measurement(null()).unwrap();
    assert_eq!(c!(ft_beacons_start(measurement.0, 0)), 0);
    let (id, path, request) = measurement.poll_call().unwrap();
    assert_eq!((path.as_str(), request.len()), (GET_BEACONS, 0));
    let mut refusal = answer(id, 9, b"");
    refusal.reason = c"NO_BEACONS".as_ptr();
    assert_eq!(c!(ft_beacons_handle_answer(measurement.0, &refusal, 0)), 0);
    assert_eq!((measurement.state(), measurement.poll_token()), (FT_BEACONS_RESTING, Err(FT_NONE)));
    let at_us = measurement.timeout_us().unwrap();
    assert!((600_000_000..=720_000_000).contains(&at_us), "{at_us}");
    assert_eq!(c!(ft_beacons_handle_timeout(measurement.0, at_us)), 0);
    let (id, ..) = measurement.poll_call().unwrap();
    let unreadable = answer(id, 0, b"\xff");
    assert_eq!(c!(ft_beacons_handle_answer(measurement.0, &unreadable, at_us)), FT_ERROR_MALFORMED);
    assert_eq!(measurement.state(), FT_BEACONS_RESTING);
}

/// Packets of both loops of a client are 25 ms apart: one of the search loop delays those to beacons, and the other way round.
#[test]
fn beacons_and_search_share_the_packet_limit() {
    let mut fleet = Fleet::new(2);
    assert_eq!(c!(ft_beacons_other_packet_sent(fleet.measurement.0, fleet.now_us)), 0);
    fleet.start();
    assert_eq!(fleet.hellos.len(), 0);
    assert_eq!(fleet.measurement.timeout_us(), Ok(fleet.now_us + 25_000));

    let first_packet_us = |is_delayed: bool| {
        let mut world = World::new(2);
        world.start();
        while world.state() != FT_STATE_QUICK {
            if is_delayed {
                assert_eq!(c!(ft_matching_other_packet_sent(world.matching.0, world.now_us)), 0);
            }
            let mut at_us = 0;
            assert_eq!(c!(ft_matching_poll_timeout(world.matching.0, &mut at_us)), 0);
            assert!(world.step());
        }
        world.packets.first().copied()
    };
    assert!(first_packet_us(false).is_some());
    assert_eq!(first_packet_us(true), None, "the phase starts without one");
}

/// Loops send the token: the search with its party, and the queue with the ticket.
#[test]
fn loops_send_the_latency_token() {
    let party = party();
    let matching = new_loop(&options(&party)).unwrap();
    assert_eq!(c!(ft_matching_set_latency_token(matching.0, b"token".as_ptr(), 5, 0)), 0);
    assert_eq!(c!(ft_matching_start(matching.0, 0)), 0);
    let (_, path, request) = poll_call(&matching).unwrap();
    assert_eq!(path, "/fireteam.v1.MatchmakingService/Search");
    let search = pb::MatchmakingSearchRequest::decode(&*request).unwrap();
    assert_eq!(search.session_composition.unwrap().latency_token, b"token");
    let endless = [7_u8; 1_025];
    let set_endless = |length| c!(ft_matching_set_latency_token(matching.0, endless.as_ptr(), length, 0));
    assert_eq!((set_endless(1_025), set_endless(1_024)), (FT_ERROR_LENGTH, 0));

    let queue = new_queue(&enter_request()).unwrap();
    assert_eq!(c!(ft_queueing_set_latency_token(queue.0, b"token".as_ptr(), 5, 0)), 0);
    assert_eq!(c!(ft_queueing_start(queue.0, 0)), 0);
    let enter = pb::QueueEnterRequest::decode(&*queue.poll_call().unwrap().2).unwrap();
    assert_eq!(enter.session_composition.unwrap().latency_token, b"token");
}

/// A game that knows its place measures the nearest beacons first.
#[test]
fn beacons_near_the_own_place_are_measured_first() {
    let mut fleet = Fleet::new(30);
    let place = FtPlace { latitude: 0.0, longitude: 20.0 };
    fleet.measurement = new_measurement(&place).unwrap();
    assert_eq!(c!(ft_beacons_start(fleet.measurement.0, fleet.now_us)), 0);
    let (id, ..) = fleet.measurement.poll_call().unwrap();
    let mut list = pb::GetBeaconsResponse::decode(&*fleet.list()).unwrap();
    list.beacons.iter_mut().for_each(|beacon| beacon.longitude = f64::from(beacon.id));
    let list = list.encode_to_vec();
    let answered = answer(id, 0, &list);
    assert_eq!(c!(ft_beacons_handle_answer(fleet.measurement.0, &answered, fleet.now_us)), 0);
    fleet.drain();
    fleet.run_to(FT_BEACONS_RESTING);
    let mut measured: Vec<u8> = fleet.hellos.iter().map(|(_, number)| *number).collect();
    measured.sort_unstable();
    measured.dedup();
    // The sixth on either side is as near.
    let (first, last) = (measured[0], measured[11]);
    assert!(measured.len() == 12 && last - first == 11 && (14..=15).contains(&first), "{measured:?}");
}

#[test]
fn beacons_misuse_is_refused() {
    let (random, mut made) = ([5_u8; 32], null_mut());
    assert_eq!(c!(ft_beacons_new(null(), null(), 32, &mut made)), FT_ERROR_NULL);
    assert_eq!(c!(ft_beacons_new(null(), random.as_ptr(), 31, &mut made)), FT_ERROR_LENGTH);
    assert_eq!(c!(ft_beacons_new(null(), [0; 32].as_ptr(), 32, &mut made)), FT_ERROR_VALUE);
    assert_eq!(c!(ft_beacons_new(null(), random.as_ptr(), 32, null_mut())), FT_ERROR_NULL);
    assert!(made.is_null());
    for (latitude, longitude) in [(91.0, 0.0), (0.0, -180.5), (f64::NAN, 0.0), (0.0, f64::INFINITY)] {
        let place = FtPlace { latitude, longitude };
        assert_eq!(new_measurement(&place).err(), Some(FT_ERROR_VALUE), "{place:?}");
    }
    assert_eq!(c!(ft_beacons_free(null_mut())), 0);
    let measurement = new_measurement(&FtPlace { latitude: -90.0, longitude: 180.0 }).unwrap();
    let odd = measurement.0.wrapping_byte_add(1);
    for (pointer, error) in [(null_mut(), FT_ERROR_NULL), (odd, FT_ERROR_ALIGNMENT)] {
        let mut at_us = 0;
        assert_eq!(c!(ft_beacons_start(pointer, 0)), error);
        assert_eq!(c!(ft_beacons_state(pointer)), error);
        assert_eq!(c!(ft_beacons_handle_timeout(pointer, 0)), error);
        assert_eq!(c!(ft_beacons_other_packet_sent(pointer, 0)), error);
        assert_eq!(c!(ft_beacons_poll_timeout(pointer, &mut at_us)), error);
        assert_eq!(c!(ft_beacons_poll_token(pointer, null_mut(), 0)), error);
        assert_eq!(c!(ft_beacons_report(pointer, null_mut(), 0)), error);
        assert_eq!(c!(ft_beacons_handle_datagram(pointer, &v4(1, 1), random.as_ptr(), 32, 0)), error);
        assert_eq!(c!(ft_beacons_handle_answer(pointer, &answer(0, 0, b""), 0)), error);
    }
    assert_eq!(c!(ft_beacons_handle_answer(measurement.0, &answer(9, 0, b""), 0)), FT_ERROR_UNKNOWN_CALL);
    assert_eq!(c!(ft_beacons_poll_transmit(measurement.0, null_mut(), null_mut(), 0)), FT_ERROR_NULL);
    assert_eq!(measurement.datagram(v4(1, 1), b"of the game", 0), FT_NONE);
    assert_eq!(measurement.datagram(FtAddress { family: 7, ..v4(1, 1) }, b"", 0), FT_ERROR_VALUE);
    let hello = Hello { sequence: 1, nonce: [5; 8] }.encode();
    assert_eq!(measurement.datagram(v4(1, 1), &hello, 0), 0, "a probe of another loop");
    assert_eq!(measurement.state(), FT_BEACONS_IDLE, "misuse changes nothing");
    let is_probe = |packet: &[u8]| c!(ft_is_probe(packet.as_ptr(), packet.len()));
    assert_eq!((is_probe(&hello), is_probe(b"of the game"), is_probe(b"")), (1, 0, 0));
    assert_eq!(c!(ft_is_probe(null(), 1)), FT_ERROR_NULL);
}
