//! Property of the search loop: in any world it keeps its limits and deadlines, follows the server's order, and cleans up after itself.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fireteam_probe::Verdict;
use proptest::prelude::*;

use crate::matching::tests::chaos::{Chaos, undone};
use crate::matching::tests::world::{World, hosting, id, party};
use crate::matching::{Answer, Event, MatchingOptions, MatchingState, Outcome, Request};
use crate::pb;

/// Longest time in one state that has an end of its own: the longest are those of joining, 30 s and the last connect and call.
const STATE_TIME_MAX_US: u64 = 100_000_000;

/// Inputs of one world.
#[derive(Clone, Debug)]
struct Setting {
    seed: u64,
    trouble: f64,
    hosts: usize,
    plan: Option<pb::LatencyPlan>,
    percent: u32,
    can_host: bool,
    advertises: bool,
    cancel_after_ms: u64,
    gives_up: bool,
}

fn settings() -> impl Strategy<Value = Setting> {
    let plan = proptest::option::weighted(0.9, (0..12_u32, 0..5_u32, 1..4_i32, 0..5_000_u32));
    let plan = plan.prop_map(|plan| {
        plan.map(|(quick, involved, probe_players, quick_timeout_ms)| pb::LatencyPlan {
            quick,
            involved,
            probe_players,
            quick_timeout_ms,
        })
    });
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    (any::<u64>(), prop_oneof![Just(0.0), 0.0..0.5_f64], 1..40_usize, plan, 0..101_u32, flags, 0..150_000_u64).prop_map(
        |(seed, trouble, hosts, plan, percent, (can_host, advertises, gives_up), cancel_after_ms)| Setting {
            seed,
            trouble,
            hosts,
            plan,
            percent,
            can_host,
            advertises,
            cancel_after_ms,
            gives_up,
        },
    )
}

fn world_of(setting: &Setting) -> World {
    let options = MatchingOptions {
        hosting: setting.can_host.then(|| hosting(2)),
        service_configuration_hash: (setting.seed.is_multiple_of(2)).then_some(1),
        give_up_after: setting.gives_up.then_some(Duration::from_secs(45)),
        ..MatchingOptions::new(7, party())
    };
    let mut world = World::with_options(options, setting.hosts, setting.plan);
    world.server.involved_phase_percent = setting.percent;
    world.server.advertises = setting.advertises;
    for number in 0..setting.hosts {
        let bits = setting.seed.rotate_left(number as u32);
        let (host, session) = (&mut world.hosts[number], &mut world.server.sessions[number]);
        host.is_silent = bits.is_multiple_of(5);
        host.round_trip_ms = bits % 400;
        session.is_told_later = bits.is_multiple_of(7);
        session.refuses =
            [None, Some(pb::ErrorReason::SeatsTaken), Some(pb::ErrorReason::NotMeasured)][(bits % 3) as usize];
        host.verdict = [Verdict::Fits, Verdict::Fits, Verdict::Incompatible, Verdict::Full][(bits % 4) as usize];
        if bits.is_multiple_of(11) {
            session.probe = None;
        }
    }
    world.chaos = Some(Chaos::new(setting.seed, setting.trouble));
    world
}

/// Rules that are checked while a world runs.
#[derive(Default)]
struct Observer {
    state: Option<(MatchingState, u64)>,
    visits: usize,
    seen_requests: usize,
    seen_packets: usize,
    seen_received: usize,
    steps_at_one_time: (u64, usize),
    /// Order of the last answer that the loop waited for; `None` if its report was lost.
    order: Option<Vec<String>>,
    position: usize,
    seen_datagrams: usize,
    /// Hosts from which a datagram arrived in this visit of a state.
    heard: BTreeSet<std::net::SocketAddr>,
    /// Packets by host and visit of a state.
    packets: BTreeMap<(std::net::SocketAddr, usize), usize>,
    reserves: BTreeSet<crate::matching::CallId>,
    /// Nonces since the last new search.
    nonces: BTreeSet<[u8; 8]>,
}

impl Observer {
    fn observe(&mut self, world: &World) -> Result<(), TestCaseError> {
        let state = world.state();
        use MatchingState::{Involved, Quick, Searching};
        let was_waiting = self.state.is_some_and(|(state, _)| matches!(state, Searching | Quick | Involved));
        match self.state {
            Some((known, since_us)) if known == state => {
                use MatchingState::{Advertising, Ended, Idle, Joined};
                let has_no_end = matches!(state, Advertising | Ended | Idle | Joined);
                let spent_us = world.now_us - since_us;
                prop_assert!(has_no_end || spent_us <= STATE_TIME_MAX_US, "{state:?} for {spent_us} us");
            }
            _ => {
                self.state = Some((state, world.now_us));
                self.visits += 1;
                self.heard.clear();
            }
        }
        let (at_us, steps) = self.steps_at_one_time;
        self.steps_at_one_time = if at_us == world.now_us { (at_us, steps + 1) } else { (world.now_us, 0) };
        prop_assert!(self.steps_at_one_time.1 < 500, "time stands still in {state:?}");
        self.heard.extend(&world.datagrams[self.seen_datagrams..]);
        self.seen_datagrams = world.datagrams.len();
        self.observe_received(world, was_waiting);
        self.observe_requests(world)?;
        self.observe_packets(world)
    }

    /// Takes the order of an answer, if it is the first to its call.
    fn observe_received(&mut self, world: &World, was_waiting: bool) {
        for at in self.seen_received..world.received.len() {
            let (call, answer) = &world.received[at];
            let is_first = world.received[..at].iter().all(|(earlier, _)| earlier != call);
            let candidates = match answer {
                Answer::Search(found) => &found.candidates,
                Answer::ReportLatency(report) => &report.candidates,
                _ => continue,
            };
            // The latest call of these kinds is the one that the loop waits for.
            let is_latest = world
                .requests
                .iter()
                .zip(&world.call_ids)
                .rev()
                .find(|((_, request), _)| matches!(request, Request::Search(_) | Request::ReportLatency(_)));
            if was_waiting && is_first && is_latest.is_some_and(|(_, latest)| latest == call) {
                self.order = Some(candidates.iter().map(|candidate| candidate.advertisement_id.clone()).collect());
                self.position = 0;
            }
        }
        self.seen_received = world.received.len();
    }

    fn observe_requests(&mut self, world: &World) -> Result<(), TestCaseError> {
        for at in self.seen_requests..world.requests.len() {
            let (_, request) = &world.requests[at];
            match request {
                Request::Search(search) if search.search_token.is_empty() => self.nonces.clear(),
                // Until it is answered there is no order of the server.
                Request::ReportLatency(_) => self.order = None,
                Request::Reserve(reserve) if self.reserves.insert(world.call_ids[at]) => {
                    if let Some(order) = &self.order {
                        let rest = &order[self.position..];
                        let place = rest.iter().position(|id| *id == reserve.advertisement_id);
                        prop_assert!(place.is_some(), "not the next of {rest:?}: {}", reserve.advertisement_id);
                        self.position += place.unwrap_or(0) + 1;
                    }
                }
                _ => {}
            }
        }
        self.seen_requests = world.requests.len();
        Ok(())
    }

    fn observe_packets(&mut self, world: &World) -> Result<(), TestCaseError> {
        for (_, to, packet) in &world.packets[self.seen_packets..] {
            if !world.hosts.iter().any(|host| host.endpoint == *to) {
                continue;
            }
            let sent = self.packets.entry((*to, self.visits)).or_default();
            *sent += 1;
            prop_assert!(*sent <= 10, "{sent} packets in one phase");
            prop_assert!(*sent <= 3 || self.heard.contains(to), "{sent} packets to a silent host");
            self.nonces.insert(packet[8..16].try_into().unwrap());
            prop_assert!(self.nonces.len() <= 64, "{} hosts in one search", self.nonces.len());
        }
        self.seen_packets = world.packets.len();
        Ok(())
    }
}

/// 40 packets a second in all, and 50 ms between two to one host.
fn check_rates(world: &World) -> Result<(), TestCaseError> {
    let probes = world.packets.iter().filter(|(_, to, _)| world.hosts.iter().any(|host| host.endpoint == *to));
    let probes: Vec<_> = probes.collect();
    for window in probes.windows(41) {
        prop_assert!(1_000_000 <= window[40].0 - window[0].0, "more than 40 packets in a second");
    }
    for host in &world.hosts {
        // Another nonce is another run, which may start at once.
        let packets: Vec<_> = probes.iter().filter(|packet| packet.1 == host.endpoint).collect();
        for pair in packets.windows(2).filter(|pair| pair[0].2[8..16] == pair[1].2[8..16]) {
            prop_assert!(50_000 <= pair[1].0 - pair[0].0, "less than 50 ms between two packets to one host");
        }
    }
    Ok(())
}

/// All that the loop received is released and deleted, at the latest after the end.
fn check_cleanup(world: &World) -> Result<(), TestCaseError> {
    let (released, deleted) = undone(world);
    for (_, answer) in &world.received {
        match answer {
            Answer::Reserve(answer) => {
                let id = &answer.reservation.as_ref().unwrap().reservation_id;
                prop_assert!(released.contains(id), "{id} is not released");
            }
            Answer::UpdateAdvertisement(answer) => {
                let id = &answer.advertisement_id;
                prop_assert!(deleted.contains(id), "{id} is not deleted");
            }
            _ => {}
        }
    }
    Ok(())
}

fn play(setting: &Setting) -> Result<World, TestCaseError> {
    let mut world = world_of(setting);
    let mut observer = Observer::default();
    let mut chaos = Chaos::new(!setting.seed, setting.trouble);
    let cancel_us = world.now_us + setting.cancel_after_ms * 1_000;
    let mut next_us = world.now_us;
    world.start();
    while world.now_us < cancel_us && world.state() != MatchingState::Ended {
        if next_us <= world.now_us {
            chaos.happen(&mut world);
            next_us = world.now_us + chaos.pause_us();
        }
        world.step(cancel_us.min(next_us));
        observer.observe(&world)?;
        if let Some(Outcome::Joined { reservation_id, .. }) = world.outcomes.last()
            && world.states.ends_with(&[MatchingState::Joining, MatchingState::Joined])
        {
            prop_assert!(!undone(&world).0.contains(reservation_id), "the own seats are released");
        }
    }
    world.handle(Event::Cancel);
    world.run_for(Duration::from_secs(10));
    prop_assert_eq!(world.state(), MatchingState::Ended);
    let ended = world.outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Ended(_))).count();
    prop_assert_eq!(ended, 1);
    // Late answers, and the attempts of the last calls.
    world.run_for(Duration::from_secs(60));
    prop_assert_eq!(world.matching.poll_timeout(), None);
    check_rates(&world)?;
    check_cleanup(&world)?;
    Ok(world)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn loop_keeps_its_rules_in_any_world(setting in settings()) {
        play(&setting)?;
    }

    /// With the same seed and the same world the loop does the same.
    #[test]
    fn loop_is_deterministic(mut setting in settings()) {
        setting.cancel_after_ms = setting.cancel_after_ms.min(20_000);
        let (one, other) = (play(&setting)?, play(&setting)?);
        prop_assert_eq!(one.requests, other.requests);
        prop_assert_eq!(one.packets, other.packets);
        prop_assert_eq!(one.outcomes, other.outcomes);
    }
}

/// Without trouble a party finds the session that is best by the measured round trip.
#[test]
fn loop_without_trouble_joins_the_best_session() {
    let mut world =
        World::new(8, Some(pb::LatencyPlan { quick: 8, involved: 3, quick_timeout_ms: 3_000, probe_players: 1 }));
    world.hosts.iter_mut().enumerate().for_each(|(number, host)| host.round_trip_ms = 100 - 10 * number as u64);
    world.start();
    world.run_to(MatchingState::Joined);
    assert_eq!(world.reserved(), [id(7)]);
}
