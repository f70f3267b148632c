//! Simulated searches of sessions: each is the client's own search loop, over simulated time.
//!
//! Real are the loop and the answers of hosts, with their packets, limits and rates. The server is reduced to what an order by round
//! trips needs: it lists the sessions with an open seat, the least known round trip first, and reserves seats.

mod answers;
mod searched_session;
mod searcher;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use fireteam_client::matching::{Event, MonotonicTime, Outcome, Transmit};
use fireteam_client::probe::{ArrivalAndAnswerTime, Verdict};
use fireteam_domain::ruleset::Ruleset;
use rand::Rng as _;
use rand_distr::{Exp1, StandardNormal};

use crate::latency_source::LatencySource;
use crate::rng::{RngPurpose, stream_rng};
use crate::scenario::{Scenario, SearchSettings};
use crate::search_map::SearchMap;
use crate::search_tally::{JoinedSearch, SearchTally};
use searched_session::SearchedSession;
use searcher::{ChosenSession, Searcher};

/// Round trip of a call to the server, microseconds.
const CALL_US: u64 = 50_000;

/// Microseconds per hour.
const HOUR_US: f64 = 3.6e9;

/// World of the searches of one seed.
pub struct SearchWorld<'a> {
    scenario: &'a Scenario,
    settings: &'a SearchSettings,
    ruleset: &'a Ruleset,
    map: &'a SearchMap,
    source: LatencySource,
    seed: u64,
    now_us: u64,
    /// Events by time, then by the order of scheduling.
    events: BTreeMap<(u64, u64), SearchEvent>,
    last_event_serial: u64,
    sessions: Vec<SearchedSession>,
    /// Searches that have begun and not ended, by number.
    searchers: BTreeMap<usize, Searcher>,
    /// Sessions of reserved seats, by reservation id.
    reservations: BTreeMap<String, usize>,
    reservation_count: u128,
    tally: SearchTally,
}

/// Event of simulated searches.
enum SearchEvent {
    /// A search begins.
    Begins(usize),
    /// A search loop hears of something.
    Heard(usize, Box<Event>),
    /// A packet of a search arrives at a session.
    PacketArrives { search: usize, session: usize, packet: Vec<u8>, way_back_us: u64 },
    /// A player leaves a session.
    SeatFreed(usize),
}

impl<'a> SearchWorld<'a> {
    /// World of `seed` in which searches choose by `source`; `None` for a scenario without searches.
    pub fn new(
        scenario: &'a Scenario,
        ruleset: &'a Ruleset,
        map: &'a SearchMap,
        source: LatencySource,
        seed: u64,
    ) -> Option<Self> {
        let settings = scenario.latency.as_ref()?;
        let sessions =
            (0..settings.sessions as usize).map(|number| SearchedSession::new(seed, number, map.place_count));
        let mut world = Self {
            scenario,
            settings,
            ruleset,
            map,
            source,
            seed,
            now_us: 0,
            events: BTreeMap::new(),
            last_event_serial: 0,
            sessions: sessions.collect(),
            searchers: BTreeMap::new(),
            reservations: BTreeMap::new(),
            reservation_count: 0,
            tally: SearchTally::default(),
        };
        for search in 0..settings.searches as usize {
            let share: f64 = stream_rng(seed, RngPurpose::Search, search as u64, 0).random();
            world.schedule((share * scenario.hours * HOUR_US) as u64, SearchEvent::Begins(search));
        }
        Some(world)
    }

    /// Runs all searches to their ends, and returns their tally.
    pub fn run(mut self) -> SearchTally {
        while let Some(((at_us, _), event)) = self.events.pop_first() {
            self.now_us = at_us;
            match event {
                SearchEvent::Begins(search) => {
                    let searcher = Searcher::new(self.scenario, self.ruleset, self.map, self.seed, search, at_us);
                    self.searchers.insert(search, searcher);
                    self.tally.begun += 1;
                    self.hear(search, Event::Start);
                }
                SearchEvent::Heard(search, event) => self.hear(search, *event),
                SearchEvent::PacketArrives { search, session, packet, way_back_us } => {
                    self.answer_packet(search, session, &packet, way_back_us);
                }
                SearchEvent::SeatFreed(session) => self.sessions[session].change_free_seats(1),
            }
        }
        self.tally
    }

    fn schedule(&mut self, at_us: u64, event: SearchEvent) {
        self.last_event_serial += 1;
        self.events.insert((at_us, self.last_event_serial), event);
    }

    /// Gives a loop an event, and carries out all that it asks for.
    fn hear(&mut self, search: usize, event: Event) {
        let now_us = self.now_us;
        let Some(searcher) = self.searchers.get_mut(&search) else { return };
        searcher.hear(event, now_us);
        while let Some(call) = self.searchers.get_mut(&search).and_then(|searcher| searcher.matching.poll_call()) {
            let result = self.answer(search, &call.request);
            let answer = Event::Answer { id: call.id, result };
            self.schedule(now_us + CALL_US, SearchEvent::Heard(search, Box::new(answer)));
        }
        while let Some(packet) = self.searchers.get_mut(&search).and_then(Searcher::poll_packet) {
            self.send(search, packet);
        }
        while let Some(outcome) = self.searchers.get_mut(&search).and_then(|searcher| searcher.matching.poll_outcome())
        {
            self.carry_out(search, outcome);
        }
        let timeout = self.searchers.get_mut(&search).and_then(|searcher| searcher.next_timeout_us(now_us));
        if let Some(at_us) = timeout {
            self.schedule(at_us, SearchEvent::Heard(search, Box::new(Event::Timeout)));
        }
    }

    /// Sends a probe, unless it is lost.
    fn send(&mut self, search: usize, Transmit { to, packet }: Transmit) {
        let Some(session) = self.sessions.iter().position(|session| session.endpoint == to) else { return };
        let Some(searcher) = self.searchers.get_mut(&search) else { return };
        let (chance, delay): (f64, f64) = (searcher.packet_rng.random(), searcher.packet_rng.sample(Exp1));
        if chance < self.settings.loss {
            return;
        }
        let round_trip_ms = self.map.route(searcher.city, self.sessions[session].place).round_trip_ms;
        let way_us = (round_trip_ms * 500.0) as u64;
        let there_us = way_us + (delay * self.settings.jitter_ms * 1_000.0) as u64;
        let arrival = SearchEvent::PacketArrives { search, session, packet, way_back_us: way_us };
        self.schedule(self.now_us + there_us, arrival);
    }

    /// Answer of a host to a probe.
    fn answer_packet(&mut self, search: usize, session: usize, packet: &[u8], way_back_us: u64) {
        let arrival = ArrivalAndAnswerTime { arrived_us: self.now_us, now_us: self.now_us };
        let host = &mut self.sessions[session];
        let from: SocketAddr = searcher::address(search);
        let Some(packet) = host.responder.handle(packet, from, arrival, |_, _| Verdict::Fits) else { return };
        let datagram = Event::Datagram { from: host.endpoint, packet };
        self.schedule(self.now_us + way_back_us, SearchEvent::Heard(search, Box::new(datagram)));
    }

    /// The game does as the loop says.
    fn carry_out(&mut self, search: usize, outcome: Outcome) {
        match outcome {
            Outcome::Connect(target) => {
                let Some(chosen) = self.searchers.get(&search).and_then(|searcher| searcher.chosen) else { return };
                let connected = Event::Connected { reservation_id: target.reservation_id };
                let after_us = (chosen.round_trip_ms * 1_000.0) as u64;
                self.schedule(self.now_us + after_us, SearchEvent::Heard(search, Box::new(connected)));
            }
            Outcome::Joined { .. } => self.join(search),
            Outcome::Ended(_) => {
                self.searchers.remove(&search);
                self.tally.gave_up += 1;
            }
            _ => {}
        }
    }

    /// Counts a joined search. The player plays one match, and leaves.
    fn join(&mut self, search: usize) {
        let Some(searcher) = self.searchers.remove(&search) else { return };
        let Some(chosen) = searcher.chosen else { return };
        let deviation: f64 = stream_rng(self.seed, RngPurpose::MatchPlay, search as u64, 2).sample(StandardNormal);
        let minutes = self.scenario.activity.match_minutes * (1.0 + 0.2 * deviation).clamp(0.3, 2.0);
        self.schedule(self.now_us + (minutes * 6e7) as u64, SearchEvent::SeatFreed(chosen.session));
        let ChosenSession { round_trip_ms, least_ms, first_ms, source, .. } = chosen;
        self.tally.joined.push(JoinedSearch {
            source,
            round_trip_ms,
            regret_ms: round_trip_ms - least_ms,
            gain_ms: first_ms - round_trip_ms,
            quick_packets: searcher.quick_packets,
            involved_packets: searcher.involved_packets,
            probing_ms: searcher.probing_us as f64 / 1_000.0,
            seeking_ms: MonotonicTime::from_micros(self.now_us).since(searcher.begun_at).as_secs_f64() * 1_000.0,
        });
    }
}
