//! World of a search loop: carries out its calls, packets and outcomes in simulated time, and checks the rules that always hold.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use fireteam_probe::{ArrivalAndAnswerTime, HostCookieKey, HostResponder, ProbeKey, Verdict};

use crate::matching::tests::chaos::Chaos;
use crate::matching::tests::server::{Server, Session};
use crate::matching::{
    Answer, Call, CallError, CallId, Event, HostedSession, Matching, MatchingOptions, MatchingState, MonotonicTime,
    Outcome, Request,
};
use crate::pb;

/// Time of a call there and back, microseconds.
const CALL_US: u64 = 20_000;

/// Host of a session.
pub(super) struct Host {
    pub(super) endpoint: SocketAddr,
    pub(super) round_trip_ms: u64,
    pub(super) is_silent: bool,
    pub(super) verdict: Verdict,
    pub(super) responder: HostResponder,
    pub(super) judged: Vec<Vec<u8>>,
}

/// The loop and all that is around it.
pub(super) struct World {
    pub(super) now_us: u64,
    pub(super) matching: Matching,
    pub(super) server: Server,
    pub(super) hosts: Vec<Host>,
    pub(super) chaos: Option<Chaos>,
    /// Results of connects, by advertisement id; without one the game connects.
    pub(super) connects: BTreeMap<String, Option<bool>>,
    /// Results of the next calls, instead of the server's.
    pub(super) scripted: VecDeque<Result<Answer, CallError>>,
    pub(super) requests: Vec<(u64, Request)>,
    pub(super) call_ids: Vec<CallId>,
    pub(super) packets: Vec<(u64, SocketAddr, Vec<u8>)>,
    pub(super) outcomes: Vec<Outcome>,
    pub(super) states: Vec<MatchingState>,
    /// Answers that the loop has received.
    pub(super) received: Vec<(CallId, Answer)>,
    /// Sources of the datagrams that it has received.
    pub(super) datagrams: Vec<SocketAddr>,
    events: BTreeMap<(u64, u64), Event>,
    event_count: u64,
}

pub(super) fn party() -> pb::SessionCompositionData {
    let player = pb::PlayerData { user_id: "ada".into(), ..Default::default() };
    pb::SessionCompositionData { players: vec![player], ..Default::default() }
}

pub(super) fn hosting(open_seats: i32) -> HostedSession {
    let session = pb::SessionCompositionData { max_allowed_join_reservation_count: Some(open_seats), ..party() };
    HostedSession { session, connect_data: b"here".to_vec(), probe_port: Some(4_000), ..Default::default() }
}

pub(super) fn plan(quick: u32, involved: u32) -> pb::LatencyPlan {
    let probe_players = pb::ProbePlayers::Never.into();
    pb::LatencyPlan { quick, involved, probe_players, quick_timeout_ms: 3_000 }
}

impl World {
    /// World of a party that searches for `hosts` sessions, the best first, with round trips of 20, 30, 40 ms and so on.
    pub(super) fn new(hosts: usize, plan: Option<pb::LatencyPlan>) -> Self {
        Self::with_options(MatchingOptions::new(7, party()), hosts, plan)
    }

    pub(super) fn with_options(options: MatchingOptions, hosts: usize, plan: Option<pb::LatencyPlan>) -> Self {
        let mut world = Self {
            now_us: 1_000_000,
            matching: Matching::new(options, [5; 32]),
            server: Server { plan, next_expansion_in_ms: Some(1_000), current_hash: 1, ..Default::default() },
            hosts: Vec::new(),
            chaos: None,
            connects: BTreeMap::new(),
            scripted: VecDeque::new(),
            requests: Vec::new(),
            call_ids: Vec::new(),
            packets: Vec::new(),
            outcomes: Vec::new(),
            states: Vec::new(),
            received: Vec::new(),
            datagrams: Vec::new(),
            events: BTreeMap::new(),
            event_count: 0,
        };
        (0..hosts).for_each(|number| world.add_host(number));
        world
    }

    fn add_host(&mut self, number: usize) {
        let endpoint: SocketAddr = format!("192.0.2.{}:4000", number + 1).parse().unwrap();
        let (id, key) = (id(number), [number as u8 + 1; 16]);
        let mut responder = HostResponder::new(HostCookieKey([9; 32]));
        responder
            .set_advertisement(crate::matching::round::id_bytes_from_hex(&id).unwrap(), ProbeKey::new(&key).unwrap());
        let round_trip_ms = 20 + 10 * number as u64;
        let address = vec![192, 0, 2, number as u8 + 1];
        let probe = pb::ProbeEndpoint { address, port: 4_000, probe_key: key.to_vec(), hosted: true };
        self.server.sessions.push(Session {
            id,
            probe: Some(probe),
            is_told_later: false,
            estimate_ms: Some(round_trip_ms as f32),
            refuses: None,
        });
        let (is_silent, verdict, judged) = (false, Verdict::Fits, Vec::new());
        self.hosts.push(Host { endpoint, round_trip_ms, is_silent, verdict, responder, judged });
    }

    pub(super) fn start(&mut self) {
        self.handle(Event::Start);
    }

    pub(super) fn state(&self) -> MatchingState {
        self.matching.state()
    }

    /// Gives the loop an event now, and carries out all that it asks for.
    pub(super) fn handle(&mut self, event: Event) {
        if let Event::Answer { id, result: Ok(answer) } = &event {
            self.received.push((*id, answer.clone()));
        }
        if let Event::Datagram { from, .. } = &event {
            self.datagrams.push(*from);
        }
        self.matching.handle(event, MonotonicTime::from_micros(self.now_us));
        if self.states.last() != Some(&self.matching.state()) {
            self.states.push(self.matching.state());
        }
        while let Some(call) = self.matching.poll_call() {
            self.carry_out(call);
        }
        while let Some(transmit) = self.matching.poll_transmit() {
            self.packets.push((self.now_us, transmit.to, transmit.packet.clone()));
            self.deliver(transmit.to, &transmit.packet);
        }
        while let Some(outcome) = self.matching.poll_outcome() {
            self.play(&outcome);
            self.outcomes.push(outcome);
        }
        use MatchingState::{Ended, Idle, Joined};
        let waits_for_events = matches!(self.state(), Idle | Joined | Ended);
        assert!(waits_for_events || self.matching.poll_timeout().is_some(), "{:?} waits without a timer", self.state());
    }

    /// Event after `after_us`.
    pub(super) fn later(&mut self, after_us: u64, event: Event) {
        self.event_count += 1;
        self.events.insert((self.now_us + after_us, self.event_count), event);
    }

    fn carry_out(&mut self, call: Call) {
        self.requests.push((self.now_us, call.request.clone()));
        self.call_ids.push(call.id);
        if let Some(mut chaos) = self.chaos.take() {
            chaos.carry_out(self, call);
            self.chaos = Some(chaos);
            return;
        }
        let result = self.scripted.pop_front().unwrap_or_else(|| self.server.answer(&call.request));
        self.later(CALL_US, Event::Answer { id: call.id, result });
    }

    /// Answers of hosts to a packet.
    fn deliver(&mut self, to: SocketAddr, packet: &[u8]) {
        let now_us = self.now_us;
        let Some(host) = self.hosts.iter_mut().find(|host| host.endpoint == to && !host.is_silent) else { return };
        let client: SocketAddr = "198.51.100.1:5000".parse().unwrap();
        let (verdict, judged) = (host.verdict, &mut host.judged);
        let judge = |data: &[u8], _: &mut Vec<u8>| {
            judged.push(data.to_vec());
            verdict
        };
        let Some(reply) =
            host.responder.handle(packet, client, ArrivalAndAnswerTime { arrived_us: now_us, now_us }, judge)
        else {
            return;
        };
        let after_us = host.round_trip_ms * 1_000;
        match self.chaos.take() {
            Some(mut chaos) => {
                chaos.answer(self, to, reply, after_us);
                self.chaos = Some(chaos);
            }
            None => self.later(after_us, Event::Datagram { from: to, packet: reply }),
        }
    }

    /// The game does as the loop says.
    fn play(&mut self, outcome: &Outcome) {
        if let Some(mut chaos) = self.chaos.take() {
            chaos.play(self, outcome);
            self.chaos = Some(chaos);
            return;
        }
        if let Outcome::Connect(target) = outcome {
            let reservation_id = target.reservation_id.clone();
            match self.connects.get(&target.advertisement_id).copied().unwrap_or(Some(true)) {
                Some(true) => self.later(50_000, Event::Connected { reservation_id }),
                Some(false) => self.later(50_000, Event::ConnectFailed { reservation_id }),
                None => {}
            }
        }
    }

    /// Goes to the next event or timeout, until `until_us` at the latest. Returns whether there was one.
    pub(super) fn step(&mut self, until_us: u64) -> bool {
        let timeout_us = self.matching.poll_timeout().map(MonotonicTime::as_micros);
        let event_us = self.events.keys().next().map(|(at_us, _)| *at_us);
        let Some(at_us) = [timeout_us, event_us].into_iter().flatten().min().filter(|at_us| *at_us <= until_us) else {
            self.now_us = self.now_us.max(until_us);
            return false;
        };
        self.now_us = self.now_us.max(at_us);
        match self.events.first_entry() {
            Some(entry) if entry.key().0 <= self.now_us => {
                let event = entry.remove();
                self.handle(event);
            }
            _ => self.handle(Event::Timeout),
        }
        true
    }

    /// Runs for this time.
    pub(super) fn run_for(&mut self, time: Duration) {
        let until_us = self.now_us + time.as_micros() as u64;
        let mut steps = 0;
        while self.step(until_us) {
            steps += 1;
            assert!(steps < 500_000, "endless loop in {:?}", self.state());
        }
    }

    /// Runs until a state is reached, for at most 120 s.
    pub(super) fn run_to(&mut self, state: MatchingState) {
        let until_us = self.now_us + 120_000_000;
        let mut steps = 0;
        while self.state() != state {
            steps += 1;
            assert!(self.step(until_us) && steps < 500_000, "{state:?} is not reached, but {:?}", self.states);
        }
    }

    /// Sessions that were reserved, in order, as numbers of [`id`].
    pub(super) fn reserved(&self) -> Vec<String> {
        let ids = self.requests.iter().filter_map(|(_, request)| match request {
            Request::Reserve(reserve) => Some(reserve.advertisement_id.clone()),
            _ => None,
        });
        ids.collect()
    }

    pub(super) fn reports(&self) -> Vec<pb::MatchmakingReportLatencyRequest> {
        let reports = self.requests.iter().filter_map(|(_, request)| match request {
            Request::ReportLatency(report) => Some((**report).clone()),
            _ => None,
        });
        reports.collect()
    }

    pub(super) fn searches(&self) -> Vec<(u64, pb::MatchmakingSearchRequest)> {
        let searches = self.requests.iter().filter_map(|(at_us, request)| match request {
            Request::Search(search) => Some((*at_us, (**search).clone())),
            _ => None,
        });
        searches.collect()
    }

    pub(super) fn updates(&self) -> Vec<pb::MatchmakingUpdateAdvertisementRequest> {
        let updates = self.requests.iter().filter_map(|(_, request)| match request {
            Request::UpdateAdvertisement(update) => Some((**update).clone()),
            _ => None,
        });
        updates.collect()
    }

    /// Number of packets to a host.
    pub(super) fn packets_to(&self, host: usize) -> usize {
        self.packets.iter().filter(|(_, to, _)| *to == self.hosts[host].endpoint).count()
    }
}

/// Advertisement id of a host.
pub(super) fn id(number: usize) -> String {
    // Ids that differ in their first half, which packets carry.
    format!("{:016x}{:016x}", number + 1, 0)
}
