//! Quick and involved probes, reports, and their limits.

use std::time::Duration;

use fireteam_probe::{EchoRequest, Involved, ProbeKey, Verdict};
use tonic::Code;

use crate::matching::tests::server::failure;
use crate::matching::tests::world::{World, hosting, id, party, plan};
use crate::matching::{Event, MatchingOptions, MatchingState};
use crate::pb;

/// Outcomes that a report names, by host.
fn outcomes(report: &pb::MatchmakingReportLatencyRequest) -> Vec<pb::ProbeOutcome> {
    report.measurements.iter().map(pb::LatencyMeasurement::outcome).collect()
}

/// Involved packets in the order of sending: the host, and the data of the game.
fn involved_packets(world: &World) -> Vec<(usize, Vec<u8>)> {
    let packets = world.packets.iter().filter_map(|(_, to, packet)| {
        let host = world.hosts.iter().position(|host| host.endpoint == *to)?;
        let key = ProbeKey::new(&[host as u8 + 1; 16])?;
        Some((host, Involved::decode(packet, &key).ok()?.game_data.to_vec()))
    });
    packets.collect()
}

/// The best n are probed, all candidates are reported, and the new order counts.
#[test]
fn quick_probe_measures_the_best_and_joins_by_the_new_order() {
    let mut world = World::new(4, Some(plan(3, 0)));
    world.hosts[0].round_trip_ms = 200;
    world.hosts[1].is_silent = true;
    world.start();
    world.run_to(MatchingState::Joined);
    let reports = world.reports();
    assert_eq!((reports.len(), reports[0].phase()), (1, pb::LatencyPhase::Quick));
    use pb::ProbeOutcome::{Answered, NotProbed, Silent};
    assert_eq!(outcomes(&reports[0]), [Answered, Silent, Answered, NotProbed]);
    let first = &reports[0].measurements[0];
    let statistics = first.statistics.unwrap();
    assert_eq!((first.advertisement_id.clone(), first.round_trip_ms), (id(0), Some(200.0)));
    assert_eq!((statistics.sent, statistics.answered, statistics.floor_ms), (4, 4, Some(200.0)));
    assert_eq!((statistics.p50_ms, statistics.jitter_ms), (Some(200.0), Some(0.0)));
    assert!(statistics.age_ms.is_some());
    let silent = reports[0].measurements[1].clone();
    assert_eq!((silent.round_trip_ms, silent.statistics.unwrap().sent), (None, 3));
    assert_eq!(reports[0].search_token, b"token 1");
    assert_eq!(world.reserved(), [id(2)], "40 ms, before 200 ms");
    assert_eq!((0..4).map(|host| world.packets_to(host)).collect::<Vec<_>>(), [4, 3, 4, 0]);
    use MatchingState::{Joined, Joining, Quick, Searching};
    assert_eq!(world.states, [Searching, Quick, Joining, Joined]);
}

/// Eight hosts at once, 50 ms between the packets of a host, 40 packets a second.
#[test]
fn quick_probe_keeps_its_rates() {
    let mut world = World::new(20, Some(plan(20, 0)));
    world.hosts.iter_mut().for_each(|host| host.round_trip_ms = 150);
    world.start();
    world.run_to(MatchingState::Joined);
    let times = |host: usize| -> Vec<u64> {
        let to = world.hosts[host].endpoint;
        world.packets.iter().filter(|packet| packet.1 == to).map(|packet| packet.0).collect()
    };
    for host in 0..20 {
        assert!(times(host).windows(2).all(|pair| 50_000 <= pair[1] - pair[0]));
    }
    assert!(world.packets.windows(40).all(|window| 975_000 <= window[39].0 - window[0].0));
    // The ninth host waits for one of the first eight: for four answers of 150 ms.
    let first_done = (0..8).map(|host| times(host)[3] + 150_000).min().unwrap();
    assert!(first_done <= times(8)[0]);
    assert!(times(7)[0] < first_done, "eight at once");
}

/// The phase ends by the ruleset's time, with what is known until then.
#[test]
fn quick_probe_ends_with_its_time() {
    let mut world = World::new(12, Some(pb::LatencyPlan { quick_timeout_ms: 600, ..plan(12, 0) }));
    world.hosts.iter_mut().for_each(|host| host.round_trip_ms = 300);
    world.start();
    world.run_to(MatchingState::Quick);
    let started_us = world.now_us;
    world.run_to(MatchingState::Joining);
    assert_eq!(world.now_us - started_us, 620_000);
    let found = outcomes(&world.reports()[0]);
    assert!(found.contains(&pb::ProbeOutcome::Answered) && found.contains(&pb::ProbeOutcome::NotProbed), "{found:?}");
    assert!(!found.contains(&pb::ProbeOutcome::Silent), "three packets are not late yet");
}

/// Candidates without an endpoint, or with one that is not valid, are not probed and stay.
#[test]
fn quick_probe_leaves_hosts_without_an_endpoint_in() {
    let mut world = World::new(5, Some(plan(8, 0)));
    let probe = |world: &mut World, number: usize| world.server.sessions[number].probe.as_mut().unwrap().clone();
    world.server.sessions[0].probe = None;
    world.server.sessions[1].probe = Some(pb::ProbeEndpoint { port: 0, ..probe(&mut world, 1) });
    world.server.sessions[2].probe = Some(pb::ProbeEndpoint { address: vec![1, 2, 3], ..probe(&mut world, 2) });
    world.server.sessions[3].probe = Some(pb::ProbeEndpoint { probe_key: vec![1; 15], ..probe(&mut world, 3) });
    world.start();
    world.run_to(MatchingState::Joined);
    use pb::ProbeOutcome::{Answered, NotProbed};
    assert_eq!(outcomes(&world.reports()[0]), [NotProbed, NotProbed, NotProbed, NotProbed, Answered]);
    assert_eq!(world.packets.len(), world.packets_to(4));

    let mut world = World::new(2, Some(plan(8, 3)));
    world.server.sessions.iter_mut().for_each(|session| session.probe = None);
    world.start();
    world.run_to(MatchingState::Joined);
    assert!(world.reports().is_empty(), "nothing to measure, now or later");
}

/// Hosts that were measured within a minute are not probed again in the same search, and at most 64 are probed in it.
#[test]
fn quick_probe_is_limited_in_a_search() {
    let mut world = World::new(80, Some(plan(10, 0)));
    world.server.sessions.iter_mut().for_each(|session| session.refuses = Some(pb::ErrorReason::SeatsTaken));
    world.start();
    world.run_for(Duration::from_secs(29));
    let probed = (0..80).filter(|host| world.packets_to(*host) > 0).count();
    assert!(world.searches().len() > 3);
    assert!((20..=64).contains(&probed), "{probed}");
    assert!((0..80).all(|host| world.packets_to(host) <= 4), "each once");
    let mut world = World::new(80, Some(plan(50, 0)));
    world.server.sessions.iter_mut().for_each(|session| session.refuses = Some(pb::ErrorReason::SeatsTaken));
    world.start();
    world.run_for(Duration::from_secs(29));
    assert!((0..80).filter(|host| world.packets_to(*host) > 0).count() <= 64);
}

/// Enough answered: the best m of the new order are probed with data of the game, two at once, with a cookie of the quick phase. Their
/// report decides.
#[test]
fn involved_probe_follows_when_enough_answered() {
    let options = MatchingOptions { game_data: b"build 7".to_vec(), ..MatchingOptions::new(7, party()) };
    let mut world = World::with_options(options, 5, Some(plan(5, 3)));
    world.server.involved_phase_percent = 80;
    world.hosts[4].is_silent = true;
    world.hosts[0].verdict = Verdict::Incompatible;
    world.hosts[1].verdict = Verdict::Full;
    world.start();
    world.run_to(MatchingState::Joined);
    let involved = |host: usize| {
        let packets = involved_packets(&world);
        packets.iter().filter(|(to, data)| *to == host && data == b"build 7").count()
    };
    assert_eq!((0..5).map(involved).collect::<Vec<_>>(), [1, 1, 4, 0, 0]);
    let report = &world.reports()[1];
    assert_eq!((report.phase(), report.search_token.as_slice()), (pb::LatencyPhase::Involved, b"token 2".as_slice()));
    use pb::ProbeOutcome::{Answered, Full, Incompatible};
    assert_eq!(outcomes(report), [Incompatible, Full, Answered, Answered], "the last one by its quick probe");
    assert_eq!(world.reserved(), [id(2)]);
    use MatchingState::{Involved as InvolvedPhase, Joined, Joining, Quick, Searching};
    assert_eq!(world.states, [Searching, Quick, InvolvedPhase, Joining, Joined]);
}

/// Two hosts at once are probed with data.
#[test]
fn involved_probe_is_of_two_hosts_at_once() {
    let mut world = World::new(4, Some(plan(4, 4)));
    world.hosts.iter_mut().for_each(|host| host.round_trip_ms = 150);
    world.start();
    world.run_to(MatchingState::Joined);
    let order: Vec<usize> = involved_packets(&world).into_iter().map(|(host, _)| host).collect();
    let (first, second) = order.split_at(8);
    assert!(first.iter().all(|host| *host < 2) && first[..2] == [0, 1], "{order:?}");
    assert!(second.iter().all(|host| 2 <= *host) && second.len() == 8, "{order:?}");
}

/// The endpoints of players' machines come with the report of the quick phase. They are asked for a cookie first.
#[test]
fn involved_probe_reaches_players_machines() {
    let probe_players = pb::ProbePlayers::Involved.into();
    let mut world = World::new(2, Some(pb::LatencyPlan { probe_players, ..plan(8, 2) }));
    world.server.sessions.iter_mut().for_each(|session| session.is_told_later = true);
    world.start();
    world.run_to(MatchingState::Involved);
    assert_eq!(world.packets.len(), 1, "none before the involved phase");
    assert_eq!(outcomes(&world.reports()[0]), [pb::ProbeOutcome::NotProbed; 2]);
    world.run_to(MatchingState::Joined);
    let key = ProbeKey::new(&[1; 16]).unwrap();
    assert!(EchoRequest::decode(&world.packets[0].2, &key).is_ok());
    assert_eq!(outcomes(&world.reports()[1]), [pb::ProbeOutcome::Answered; 2]);
    assert_eq!(world.hosts[0].judged.len(), 4);
}

/// Too few answered: the next n are probed once. If that is not enough either, the loop waits for the next round, once in a search:
/// silent hosts count in all of it, so that the share may never be reached.
#[test]
fn quick_probe_of_the_next_candidates_follows_once() {
    let mut world = World::new(12, Some(plan(4, 2)));
    world.server.involved_phase_percent = 70;
    (0..4).for_each(|host| world.hosts[host].is_silent = true);
    world.hosts[4].is_silent = true;
    world.start();
    world.run_to(MatchingState::Waiting);
    let reports = world.reports();
    assert_eq!(reports.len(), 2);
    assert!((0..8).all(|host| world.packets_to(host) > 0) && (8..12).all(|host| world.packets_to(host) == 0));
    assert!(world.reserved().is_empty());

    for (percent, expected) in [(33, MatchingState::Involved), (50, MatchingState::Waiting)] {
        let mut world = World::new(6, Some(plan(4, 2)));
        world.server.involved_phase_percent = percent;
        (0..4).for_each(|host| world.hosts[host].is_silent = true);
        world.start();
        world.run_to(expected);
        assert_eq!(world.reports().len(), 2);
        world.run_to(MatchingState::Joined);
        assert_eq!(world.reserved(), [id(4)]);
    }
}

/// Silent hosts are not reserved and not probed again in this search.
#[test]
fn quick_probe_drops_silent_hosts() {
    let mut world = World::new(2, Some(plan(8, 0)));
    world.hosts.iter_mut().for_each(|host| host.is_silent = true);
    world.start();
    world.run_for(Duration::from_secs(20));
    assert!(world.reserved().is_empty() && world.searches().len() > 5);
    assert_eq!((world.packets_to(0), world.packets_to(1)), (3, 3));
}

/// A report that fails twice is dropped, and the round goes on in the client's own order, without the involved phase.
#[test]
fn report_that_fails_twice_is_dropped() {
    let mut world = World::new(4, Some(plan(3, 2)));
    world.hosts[0].round_trip_ms = 90;
    world.hosts[1].is_silent = true;
    world.start();
    world.run_to(MatchingState::Quick);
    world.scripted = (0..2).map(|_| Err(failure(Code::Unavailable, pb::ErrorReason::StoreUnavailable))).collect();
    world.server.sessions.iter_mut().take(3).for_each(|session| session.refuses = Some(pb::ErrorReason::SeatsTaken));
    world.run_to(MatchingState::Joined);
    assert_eq!(world.reports().len(), 2);
    assert_eq!(world.reserved(), [id(2), id(0), id(3)], "by round trip; then who was not probed");

    let mut world = World::new(2, Some(plan(3, 0)));
    world.start();
    world.run_to(MatchingState::Quick);
    world.scripted.push_back(Err(failure(Code::FailedPrecondition, pb::ErrorReason::StaleConfiguration)));
    world.run_to(MatchingState::Choosing);
    world.run_to(MatchingState::Joined);
    assert_eq!(world.searches()[1].1.search_token, b"", "the search begins again");
}

/// Silence counts in the whole search, also where the report of it was lost. That a host was full does not.
#[test]
fn quick_probe_remembers_silence_without_a_report() {
    let mut world = World::new(2, Some(plan(8, 0)));
    world.hosts[0].is_silent = true;
    world.hosts[1].responder.set_full(true);
    world.start();
    world.run_to(MatchingState::Quick);
    world.scripted = (0..2).map(|_| Err(failure(Code::Unavailable, pb::ErrorReason::StoreUnavailable))).collect();
    world.run_to(MatchingState::Waiting);
    world.run_for(Duration::from_secs(11));
    world.server.sessions[1].probe = None;
    world.run_to(MatchingState::Joined);
    assert_eq!((world.packets_to(0), world.reserved()), (3, vec![id(1)]));
    let last = world.reports().pop().unwrap();
    assert!(!outcomes(&last).contains(&pb::ProbeOutcome::Silent), "it is no candidate any longer");

    let mut world = World::new(2, Some(plan(1, 0)));
    world.hosts[0].responder.set_full(true);
    world.server.sessions[1].refuses = Some(pb::ErrorReason::SeatsTaken);
    world.start();
    world.run_for(Duration::from_secs(11));
    world.server.sessions.swap(0, 1);
    world.run_for(Duration::from_secs(4));
    let last = world.reports().pop().unwrap();
    let of_full = last.measurements.iter().find(|measurement| measurement.advertisement_id == id(0));
    assert!(of_full.is_none_or(|measurement| measurement.outcome() == pb::ProbeOutcome::NotProbed), "{last:?}");
}

/// A host that says that it is full leaves the round, and is left out for 10 s.
#[test]
fn quick_probe_of_a_full_host_leaves_it_out() {
    let mut world = World::new(1, Some(plan(8, 0)));
    world.hosts[0].responder.set_full(true);
    world.start();
    world.run_to(MatchingState::Waiting);
    assert_eq!(outcomes(&world.reports()[0]), [pb::ProbeOutcome::Full]);
    assert_eq!(world.packets_to(0), 1);
    world.hosts[0].responder.set_full(false);
    let since_us = world.now_us;
    world.run_to(MatchingState::Joined);
    assert!((9_000_000..13_000_000).contains(&(world.now_us - since_us)));
}

/// Datagrams that are no answers of a probed host change nothing, in any state.
#[test]
fn datagrams_that_are_no_answers_are_ignored() {
    let options = MatchingOptions { hosting: Some(hosting(3)), ..MatchingOptions::new(7, party()) };
    let mut world = World::with_options(options, 1, Some(plan(8, 0)));
    world.hosts[0].is_silent = true;
    let from = world.hosts[0].endpoint;
    for packet in [b"a packet of the game".to_vec(), Vec::new(), vec![0; 64], b"FTL\x01\x02\x00\x00\x00".to_vec()] {
        world.later(3_000, Event::Datagram { from, packet: packet.clone() });
        world.later(60_000, Event::Datagram { from, packet });
    }
    world.start();
    world.run_for(Duration::from_secs(3));
    assert_eq!(outcomes(&world.reports()[0]), [pb::ProbeOutcome::Silent]);
}
