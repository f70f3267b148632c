//! Player who searches: the client's loop, and what is counted of it.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use fireteam_client::matching::{Event, Matching, MatchingOptions, MatchingState, MonotonicTime, Transmit};
use fireteam_client::pb;
use fireteam_domain::ruleset::Ruleset;
use rand::Rng as _;

use crate::latency_source::LatencySource;
use crate::rng::{RngPurpose, SimRng, stream_rng};
use crate::scenario::Scenario;
use crate::search_map::SearchMap;

/// Player who searches for a session.
pub(super) struct Searcher {
    pub(super) matching: Matching,
    pub(super) city: usize,
    pub(super) begun_at: MonotonicTime,
    /// Loss and delay of the packets.
    pub(super) packet_rng: SimRng,
    /// Measured round trips by session, milliseconds; `None` for a session that is out.
    pub(super) measured_ms: BTreeMap<usize, Option<f64>>,
    /// Session with reserved seats.
    pub(super) chosen: Option<ChosenSession>,
    pub(super) quick_packets: u32,
    pub(super) involved_packets: u32,
    /// Time spent in probe phases, with their reports, microseconds.
    pub(super) probing_us: u64,
    /// Time of the last event, microseconds.
    heard_us: u64,
    /// Time of the scheduled timeout, microseconds, so that only one is scheduled.
    planned_timeout_us: Option<u64>,
}

/// Session with reserved seats, and the sessions that were possible at that time.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChosenSession {
    pub(super) session: usize,
    /// Source of the round trip by which it was chosen.
    pub(super) source: LatencySource,
    /// True round trip to it, milliseconds.
    pub(super) round_trip_ms: f64,
    /// Least true round trip to a session with an open seat, milliseconds.
    pub(super) least_ms: f64,
    /// True round trip to the first session with an open seat in the order of the estimates, milliseconds.
    pub(super) first_ms: f64,
}

impl Searcher {
    /// The search of this number, by one player of a random city.
    pub(super) fn new(
        scenario: &Scenario,
        ruleset: &Ruleset,
        map: &SearchMap,
        seed: u64,
        search: usize,
        now_us: u64,
    ) -> Self {
        let mut rng = stream_rng(seed, RngPurpose::Search, search as u64, 1);
        let player = pb::PlayerData { user_id: format!("player {search}"), ..Default::default() };
        let party = pb::SessionCompositionData { players: vec![player], ..Default::default() };
        let patience = Duration::from_secs_f64(scenario.activity.patience_minutes * 60.0);
        let options =
            MatchingOptions { give_up_after: Some(patience), ..MatchingOptions::new(ruleset.set_id.0, party) };
        Self {
            city: city_at(&map.city_weights, rng.random()),
            matching: Matching::new(options, rng.random()),
            begun_at: MonotonicTime::from_micros(now_us),
            packet_rng: stream_rng(seed, RngPurpose::SearchPacket, search as u64, 0),
            measured_ms: BTreeMap::new(),
            chosen: None,
            quick_packets: 0,
            involved_packets: 0,
            probing_us: 0,
            heard_us: now_us,
            planned_timeout_us: None,
        }
    }

    /// Gives the loop an event.
    pub(super) fn hear(&mut self, event: Event, now_us: u64) {
        if matches!(self.matching.state(), MatchingState::Quick | MatchingState::Involved) {
            self.probing_us += now_us - self.heard_us;
        }
        self.heard_us = now_us;
        self.matching.handle(event, MonotonicTime::from_micros(now_us));
    }

    /// Packet to send, counted by the phase.
    pub(super) fn poll_packet(&mut self) -> Option<Transmit> {
        let packet = self.matching.poll_transmit()?;
        match self.matching.state() {
            MatchingState::Involved => self.involved_packets += 1,
            _ => self.quick_packets += 1,
        }
        Some(packet)
    }

    /// Time at which the loop needs a timeout, microseconds, unless one is scheduled that comes before it.
    pub(super) fn next_timeout_us(&mut self, now_us: u64) -> Option<u64> {
        let at_us = self.matching.poll_timeout()?.as_micros().max(now_us);
        if self.planned_timeout_us.is_some_and(|planned_us| now_us < planned_us && planned_us <= at_us) {
            return None;
        }
        self.planned_timeout_us = Some(at_us);
        Some(at_us)
    }
}

/// Address of a search, each in a network of its own.
pub(super) fn address(search: usize) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::from_bits(0x6400_0001 + ((search as u32) << 8)), 5_000))
}

/// City at this share of all players, by their weights.
fn city_at(weights: &[f64], share: f64) -> usize {
    let mut rest = share * weights.iter().sum::<f64>();
    for (city, weight) in weights.iter().enumerate() {
        rest -= weight;
        if rest < 0.0 {
            return city;
        }
    }
    weights.iter().rposition(|weight| *weight > 0.0).unwrap_or(0)
}
