//! World of a client that measures beacons: carries out its calls and packets in simulated time, and checks the rules that always hold.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use fireteam_probe::{
    BeaconCookieKey, BeaconKey, BeaconResponder, ChallengeProof, FIXED_PACKET_BYTES, FleetKey, Hello, Receipt,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tonic::Code;

use crate::matching::{CallError, MonotonicTime, Transmit};
use crate::pb;
use crate::probe::Beacons;
use crate::probe::beacons::{BeaconsAnswer, BeaconsCall, BeaconsEvent, BeaconsRequest};

pub(super) const SECOND_US: u64 = 1_000_000;
/// Life of a token, microseconds.
pub(super) const TOKEN_LIFE_US: u64 = 600 * SECOND_US;
/// Time of a call there and back, microseconds.
const CALL_US: u64 = 20_000;
const BINDING: [u8; 16] = [6; 16];

/// A beacon of the world.
pub(super) struct WorldBeacon {
    pub(super) listed: pb::Beacon,
    pub(super) round_trip_us: u64,
    pub(super) is_silent: bool,
    pub(super) responder: BeaconResponder,
}

/// Trouble on the way: the share of packets and calls that go wrong, 0 to 1.
pub(super) struct Trouble {
    pub(super) rng: StdRng,
    pub(super) share: f64,
}

/// The client and all that is around it.
pub(super) struct World {
    pub(super) now_us: u64,
    pub(super) client: Beacons,
    pub(super) beacons: Vec<WorldBeacon>,
    pub(super) wanted: u32,
    /// Answers of the server instead of the usual one, by the name of the call.
    pub(super) failure: Option<CallError>,
    pub(super) trouble: Option<Trouble>,
    pub(super) packets: Vec<(u64, Transmit)>,
    pub(super) lists: Vec<u64>,
    pub(super) reports: Vec<(u64, pb::ReportTripsRequest)>,
    /// Tokens as the client tells them, with the time; empty where one expired.
    pub(super) tokens: Vec<(u64, Vec<u8>)>,
    events: BTreeMap<(u64, u64), BeaconsEvent>,
    event_count: u64,
    /// Challenges that were sent to the client, of which each may be proven once.
    challenged: Vec<[u8; 16]>,
}

pub(super) fn key(id: u32) -> BeaconKey {
    FleetKey([1; 32]).beacon_key(id)
}

pub(super) fn failure(code: Code, reason: pb::ErrorReason) -> CallError {
    CallError { code, reason, retry_after_ms: None, message: String::new() }
}

fn client_address() -> SocketAddr {
    "198.51.100.1:5000".parse().unwrap()
}

impl World {
    /// World with this number of beacons along a meridian from the north pole on. The n-th has id n + 1 and a round trip of 20 + 10 n ms.
    pub(super) fn new(beacons: u32) -> Self {
        let beacons = (0..beacons).map(|n| WorldBeacon {
            listed: pb::Beacon {
                id: n + 1,
                region: format!("region {n}"),
                address: vec![192, 0, 2, u8::try_from(n + 1).unwrap()],
                port: 7_777,
                latitude: 90.0 - 5.0 * f64::from(n),
                longitude: 0.0,
                measure_first: n < 12,
            },
            round_trip_us: 20_000 + 10_000 * u64::from(n),
            is_silent: false,
            responder: BeaconResponder::new(n + 1, key(n + 1), BeaconCookieKey([2; 32]), 50_000),
        });
        Self {
            now_us: SECOND_US,
            client: Beacons::new([5; 32]),
            beacons: beacons.collect(),
            wanted: 12,
            failure: None,
            trouble: None,
            packets: Vec::new(),
            lists: Vec::new(),
            reports: Vec::new(),
            tokens: Vec::new(),
            events: BTreeMap::new(),
            event_count: 0,
            challenged: Vec::new(),
        }
    }

    pub(super) fn start(&mut self) {
        self.handle(BeaconsEvent::Start);
    }

    /// Runs until this time has passed.
    pub(super) fn run_for(&mut self, duration_us: u64) {
        let end_us = self.now_us + duration_us;
        loop {
            let event_us = self.events.first_key_value().map(|((at_us, _), _)| *at_us);
            let timeout_us = self.client.poll_timeout().map(MonotonicTime::as_micros);
            let Some(next_us) = [event_us, timeout_us].into_iter().flatten().min().filter(|at| *at <= end_us) else {
                break;
            };
            self.now_us = self.now_us.max(next_us);
            match self.events.first_entry().filter(|entry| entry.key().0 <= next_us) {
                Some(entry) => {
                    let event = entry.remove();
                    self.handle(event);
                }
                None => self.handle(BeaconsEvent::Timeout),
            }
        }
        self.now_us = self.now_us.max(end_us);
    }

    /// Gives an event to the client, and carries out what it asks for.
    pub(super) fn handle(&mut self, event: BeaconsEvent) {
        self.client.handle(event, MonotonicTime::from_micros(self.now_us));
        while let Some(call) = self.client.poll_call() {
            self.carry_out(call);
        }
        while let Some(transmit) = self.client.poll_transmit() {
            self.check_packet(&transmit);
            self.packets.push((self.now_us, transmit.clone()));
            self.deliver(&transmit);
        }
        if let Some(token) = self.client.poll_token() {
            assert_eq!(token, self.client.latency_token());
            self.tokens.push((self.now_us, token));
        }
        if let Some(at) = self.client.poll_timeout() {
            assert!(self.now_us < at.as_micros(), "a timeout that is past would be an endless loop");
        }
    }

    pub(super) fn later(&mut self, after_us: u64, event: BeaconsEvent) {
        self.event_count += 1;
        self.events.insert((self.now_us + after_us, self.event_count), event);
    }

    /// Hellos that were sent to a beacon, in their order.
    pub(super) fn hellos(&self, id: u32) -> Vec<u64> {
        let of_beacon = self.packets.iter().filter(|(_, sent)| self.id_at(sent.to) == Some(id));
        of_beacon.filter(|(_, sent)| Hello::decode(&sent.packet).is_ok()).map(|(at_us, _)| *at_us).collect()
    }

    /// Ids of the beacons in the order in which they were first asked.
    pub(super) fn asked(&self) -> Vec<u32> {
        let mut asked = Vec::new();
        for (_, sent) in &self.packets {
            let id = self.id_at(sent.to).unwrap();
            if !asked.contains(&id) {
                asked.push(id);
            }
        }
        asked
    }

    /// Ids of the beacons with receipts in a report, in ascending order.
    pub(super) fn reported(report: &pb::ReportTripsRequest) -> Vec<u32> {
        let ids = report.receipts.iter().map(|receipt| Receipt::decode(receipt).unwrap().claims.beacon_id);
        ids.collect::<std::collections::BTreeSet<u32>>().into_iter().collect()
    }

    fn id_at(&self, to: SocketAddr) -> Option<u32> {
        let listed = self.beacons.iter().map(|beacon| &beacon.listed);
        let endpoint = |listed: &pb::Beacon| {
            let address = <[u8; 4]>::try_from(&*listed.address).ok()?;
            Some(SocketAddr::from((address, u16::try_from(listed.port).ok()?)))
        };
        listed.clone().find(|listed| endpoint(listed) == Some(to)).map(|listed| listed.id)
    }

    /// Packets go to listed beacons alone, and a proof answers a challenge that the beacon has sent.
    fn check_packet(&mut self, transmit: &Transmit) {
        assert!(!self.lists.is_empty(), "no packet before the list");
        assert!(self.id_at(transmit.to).is_some(), "{transmit:?}");
        assert_eq!(transmit.packet.len(), FIXED_PACKET_BYTES);
        if let Ok(proof) = ChallengeProof::decode(&transmit.packet) {
            let at = self.challenged.iter().position(|cookie| *cookie == proof.cookie);
            self.challenged.swap_remove(at.expect("a challenge for each proof"));
            assert_eq!(proof.binding, BINDING);
        } else {
            Hello::decode(&transmit.packet).expect("a hello or a proof");
        }
    }

    fn deliver(&mut self, transmit: &Transmit) {
        let (id, now_us) = (self.id_at(transmit.to).unwrap(), self.now_us);
        let beacon = self.beacons.iter_mut().find(|beacon| beacon.listed.id == id).unwrap();
        if beacon.is_silent {
            return;
        }
        let round_trip_us = beacon.round_trip_us;
        let arrives_us = now_us + round_trip_us / 2;
        let unix_s = u32::try_from(arrives_us / SECOND_US).unwrap();
        let Some(answer) = beacon.responder.handle(&transmit.packet, client_address(), arrives_us, unix_s) else {
            return;
        };
        self.send_answer(transmit.to, answer.to_vec(), round_trip_us);
    }

    /// Sends an answer to the client, which trouble may lose, delay, repeat, alter, or send from elsewhere.
    fn send_answer(&mut self, from: SocketAddr, packet: Vec<u8>, after_us: u64) {
        let mut arrivals = vec![(from, packet, after_us)];
        if let Some(trouble) = self.trouble.as_mut().filter(|trouble| trouble.share > 0.0)
            && trouble.rng.random_bool(trouble.share)
        {
            let (from, packet, after_us) = arrivals[0].clone();
            let late_us = after_us + trouble.rng.random_range(1_000..3 * SECOND_US);
            let mut altered = packet.clone();
            let at = trouble.rng.random_range(0..altered.len());
            altered[at] ^= 1 << trouble.rng.random_range(0..8);
            arrivals = match trouble.rng.random_range(0..5) {
                0 => Vec::new(),
                1 => vec![(from, packet, late_us)],
                2 => vec![(from, packet.clone(), after_us), (from, packet, late_us)],
                3 => vec![(from, altered, after_us), (from, packet, late_us)],
                _ => vec![("192.0.2.250:7777".parse().unwrap(), packet, after_us)],
            };
        }
        for (from, packet, after_us) in arrivals {
            if packet[4] == 0x12 {
                // A repeated challenge has the same cookie, and counts once.
                let cookie = packet[32..48].try_into().unwrap();
                if !self.challenged.contains(&cookie) {
                    self.challenged.push(cookie);
                }
            }
            self.later(after_us, BeaconsEvent::Datagram { from, packet });
        }
    }

    fn carry_out(&mut self, call: BeaconsCall) {
        let result = match (&call.request, self.failure.clone()) {
            (BeaconsRequest::GetBeacons(_), failure) => {
                self.lists.push(self.now_us);
                match failure {
                    Some(error) => Err(error),
                    None => Ok(BeaconsAnswer::GetBeacons(self.list())),
                }
            }
            (BeaconsRequest::ReportTrips(report), failure) => {
                self.reports.push((self.now_us, report.clone()));
                match failure {
                    Some(error) => Err(error),
                    None => Ok(BeaconsAnswer::ReportTrips(pb::ReportTripsResponse {
                        latency_token: format!("token {}", self.reports.len()).into_bytes(),
                        good_for_ms: u32::try_from(TOKEN_LIFE_US / 1_000).unwrap(),
                        ..Default::default()
                    })),
                }
            }
        };
        let answer = BeaconsEvent::Answer { id: call.id, result };
        let Some(trouble) = self.trouble.as_mut().filter(|trouble| trouble.share > 0.0) else {
            return self.later(CALL_US, answer);
        };
        let late_us = trouble.rng.random_range(CALL_US..20 * SECOND_US);
        let kind = if trouble.rng.random_bool(trouble.share) { trouble.rng.random_range(0..4) } else { 4 };
        match kind {
            0 => {}
            1 => {
                self.later(CALL_US, answer.clone());
                self.later(late_us, answer);
            }
            2 => self.later(late_us, answer),
            3 => {
                let error = failure(Code::Unavailable, pb::ErrorReason::Unspecified);
                self.later(CALL_US, BeaconsEvent::Answer { id: call.id, result: Err(error) });
            }
            _ => self.later(CALL_US, answer),
        }
    }

    fn list(&self) -> pb::GetBeaconsResponse {
        pb::GetBeaconsResponse {
            beacons: self.beacons.iter().map(|beacon| beacon.listed.clone()).collect(),
            binding: BINDING.to_vec(),
            good_for_ms: 600_000,
            beacons_wanted: self.wanted,
        }
    }
}

/// Source of random numbers for trouble.
pub(super) fn trouble(seed: u64, share: f64) -> Trouble {
    Trouble { rng: StdRng::seed_from_u64(seed), share }
}
