//! Reservations, connects, and what is released.

use std::time::Duration;

use tonic::Code;

use crate::matching::tests::server::failure;
use crate::matching::tests::world::{World, id, plan};
use crate::matching::{Answer, EndReason, Event, MatchingState, MonotonicTime, Outcome, Request};
use crate::pb;

fn releases(world: &World) -> Vec<pb::MatchmakingReleaseRequest> {
    let releases = world.requests.iter().filter_map(|(_, request)| match request {
        Request::Release(release) => Some(release.clone()),
        _ => None,
    });
    releases.collect()
}

/// Refusals of one session lead to the next candidate, and leave the session out for 10 s.
#[test]
fn reserve_that_is_refused_leads_to_the_next_candidate() {
    for reason in [
        pb::ErrorReason::SeatsTaken,
        pb::ErrorReason::RefusedByRule,
        pb::ErrorReason::Silent,
        pb::ErrorReason::NotMeasured,
        pb::ErrorReason::TooManyReservations,
        pb::ErrorReason::AdvertisementNotFound,
    ] {
        let mut world = World::new(2, None);
        world.server.sessions[0].refuses = Some(reason);
        world.server.sessions[0].probe = None;
        world.start();
        world.run_to(MatchingState::Joined);
        assert_eq!(world.reserved(), [id(0), id(1)], "{reason:?}");
        assert!(releases(&world).is_empty());
    }
    let mut world = World::new(1, None);
    world.server.sessions[0].refuses = Some(pb::ErrorReason::SeatsTaken);
    world.start();
    world.run_for(Duration::from_secs(25));
    let times: Vec<u64> =
        world.requests.iter().filter(|it| matches!(it.1, Request::Reserve(_))).map(|it| it.0).collect();
    assert!(times.len() == 3 && times.windows(2).all(|pair| 10_000_000 <= pair[1] - pair[0]), "{times:?}");
    let keys: Vec<String> = world
        .requests
        .iter()
        .filter_map(|(_, request)| match request {
            Request::Reserve(reserve) => Some(reserve.idempotency_key.clone()),
            _ => None,
        })
        .collect();
    assert!(keys[0] != keys[1] && keys[0].len() == 32);
    assert!(world.searches().iter().any(|(_, search)| search.exclude_advertisement_ids == [id(0)]));
}

/// A candidate that must be measured is probed once, and reserved after the report.
#[test]
fn reserve_of_a_host_that_must_be_measured_probes_it() {
    let mut world = World::new(3, Some(plan(1, 0)));
    world.server.sessions[0].refuses = Some(pb::ErrorReason::SeatsTaken);
    world.server.sessions[1].refuses = Some(pb::ErrorReason::NotMeasured);
    world.start();
    world.run_to(MatchingState::Joined);
    assert_eq!(world.reserved(), [id(0), id(1), id(1)]);
    assert_eq!((world.packets_to(1), world.packets_to(2)), (4, 0));
    assert_eq!(world.reports().len(), 2);
}

/// The game could not connect, or not in time: the seats are released, and the next candidate follows.
#[test]
fn connect_that_fails_releases_the_seats() {
    let mut world = World::new(3, None);
    world.connects.insert(id(0), Some(false));
    world.connects.insert(id(1), None);
    world.start();
    world.run_to(MatchingState::Joined);
    let invited: Vec<String> = world
        .outcomes
        .iter()
        .filter_map(|outcome| match outcome {
            Outcome::Connect(target) => Some(target.reservation_id.clone()),
            _ => None,
        })
        .collect();
    let released: Vec<String> = releases(&world).into_iter().map(|release| release.reservation_id).collect();
    assert_eq!(released, invited[..2]);
    assert!(releases(&world).iter().all(|release| !release.reservation_token.is_empty()));
    assert_eq!(world.server.held.keys().collect::<Vec<_>>(), [&invited[2]]);
    let abandoned = Outcome::AbandonConnect { reservation_id: invited[1].clone() };
    assert_eq!(world.outcomes.iter().filter(|outcome| matches!(outcome, Outcome::AbandonConnect { .. })).count(), 1);
    assert!(world.outcomes.contains(&abandoned), "10 s are over");
    let Some(Outcome::Connect(last)) = world.outcomes.iter().rev().nth(1) else { panic!("a target") };
    assert_eq!((last.connect_data.as_slice(), last.seats, last.round_trip_ms), (id(2).as_bytes(), 1, Some(40.0)));
    assert!(format!("{last:?}").contains("connect_data: hidden"));
}

/// Seats that expire sooner than the game may take to connect set its time.
#[test]
fn connect_ends_when_the_seats_expire() {
    let mut world = World::new(1, None);
    world.connects.insert(id(0), None);
    world.start();
    world.run_to(MatchingState::Joining);
    let Some((_, request)) = world.requests.last().cloned() else { panic!("a reservation") };
    let Ok(Answer::Reserve(mut reserved)) = world.server.answer(&request) else { panic!("seats") };
    reserved.reservation.as_mut().unwrap().expires_in_ms = 3_000;
    let call = *world.call_ids.last().unwrap();
    world.handle(Event::Answer { id: call, result: Ok(Answer::Reserve(reserved)) });
    let since_us = world.now_us;
    world.run_to(MatchingState::Waiting);
    assert_eq!(world.now_us - since_us, 3_000_000);
}

/// A session that has just refused the party is not reserved again because an answer names it.
#[test]
fn reserve_leaves_out_what_has_just_refused() {
    let mut world = World::new(3, Some(plan(1, 0)));
    world.server.sessions[0].refuses = Some(pb::ErrorReason::SeatsTaken);
    world.server.sessions[1].refuses = Some(pb::ErrorReason::NotMeasured);
    world.start();
    world.run_to(MatchingState::Joining);
    world.run_to(MatchingState::Quick);
    let candidates = [0, 2].map(|number| pb::Candidate { advertisement_id: id(number), ..Default::default() });
    let report = pb::MatchmakingReportLatencyResponse { candidates: candidates.into(), ..Default::default() };
    world.scripted.push_back(Ok(Answer::ReportLatency(Box::new(report))));
    world.run_to(MatchingState::Joined);
    assert_eq!(world.reserved(), [id(0), id(1), id(2)]);
}

/// Debug output has no connect data and no token.
#[test]
fn debug_output_of_a_search_loop_has_no_secret() {
    let mut world = World::new(1, Some(plan(8, 0)));
    world.start();
    world.run_to(MatchingState::Joined);
    let text = format!("{:?} {:?} {:?} {:?}", world.matching, world.requests, world.outcomes, world.received);
    for secret in [id(0).into_bytes(), b"token 1".to_vec(), vec![1; 16]] {
        assert!(!text.contains(&format!("{secret:?}")), "{text}");
    }
}

/// A connect that ends after its time changes nothing: its seats are released.
#[test]
fn connect_after_its_time_does_not_count() {
    let mut world = World::new(1, None);
    world.connects.insert(id(0), None);
    world.start();
    world.run_to(MatchingState::Joining);
    world.run_to(MatchingState::Waiting);
    let Some(Outcome::AbandonConnect { reservation_id }) = world.outcomes.last().cloned() else { panic!("abandoned") };
    world.handle(Event::Connected { reservation_id });
    assert_eq!(world.state(), MatchingState::Waiting);
}

/// Cancel is legal in every state. It releases seats, also those of a reservation whose answer is still awaited, and ends the loop.
#[test]
fn cancel_releases_the_seats_in_every_state() {
    use MatchingState::{Ended, Idle, Involved, Joined, Joining, Quick, Searching, Waiting};
    for state in [Idle, Searching, Quick, Involved, Joining, Joined, Waiting] {
        let mut world = World::new(2, Some(plan(8, 2)));
        world.connects.insert(id(0), (state != Waiting).then_some(true));
        world.connects.insert(id(1), (state != Waiting).then_some(true));
        if state != Idle {
            world.start();
            world.run_to(state);
        }
        world.handle(Event::Cancel);
        world.run_for(Duration::from_secs(20));
        assert_eq!((world.state(), world.server.held.len()), (Ended, 0), "{state:?}");
        assert_eq!(world.outcomes.last(), Some(&Outcome::Ended(EndReason::Cancelled)));
    }
    let mut world = World::new(1, None);
    world.start();
    world.run_to(Joining);
    world.run_for(Duration::from_millis(30));
    assert!(matches!(world.outcomes.last(), Some(Outcome::Connect(_))));
    world.handle(Event::Cancel);
    assert!(matches!(world.outcomes.last(), Some(Outcome::AbandonConnect { .. })));
    world.run_to(Ended);
    assert!(world.server.held.is_empty());
}

/// An answer that comes after the end still leads to a release.
#[test]
fn reservation_that_is_answered_after_the_end_is_released() {
    let mut world = World::new(1, None);
    world.start();
    world.run_to(MatchingState::Joining);
    let Some((_, request)) = world.requests.last().cloned() else { panic!("a reservation") };
    let result = world.server.answer(&request);
    // The answer does not arrive, and nothing else does.
    let mut machine = std::mem::replace(&mut world.matching, World::new(0, None).matching);
    let at = |seconds: u64| MonotonicTime::from_micros(world.now_us + seconds * 1_000_000);
    machine.handle(Event::Cancel, at(1));
    machine.handle(Event::Timeout, at(12));
    assert_eq!(machine.state(), MatchingState::Ended);
    while machine.poll_call().is_some() {}
    machine.handle(Event::Answer { id: crate::matching::CallId(1), result }, at(60));
    let Some(Request::Release(release)) = machine.poll_call().map(|call| call.request) else { panic!("a release") };
    assert!(world.server.held.contains_key(&release.reservation_id));
}

/// A reservation that fails without an answer may have been made: the player's own seat is released.
#[test]
fn reservation_with_an_unknown_outcome_is_released() {
    let mut world = World::new(1, None);
    world.scripted.extend([Ok(crate::matching::Answer::Search(Box::new(pb::MatchmakingSearchResponse {
        candidates: vec![pb::Candidate { advertisement_id: id(0), ..Default::default() }],
        search_token: b"token".to_vec(),
        ..Default::default()
    })))]);
    world.scripted.extend((0..4).map(|_| Err(failure(Code::Unavailable, pb::ErrorReason::Unspecified))));
    world.start();
    world.run_to(MatchingState::Waiting);
    assert_eq!(world.reserved().len(), 4, "repeated with one key");
    let released = releases(&world);
    assert_eq!((released.len(), released[0].advertisement_id.clone()), (1, id(0)));
}

/// The connection was lost: the party connects again with its reservation. If that fails it leaves the session and searches.
#[test]
fn lost_connection_is_restored_with_the_same_seats() {
    let mut world = World::new(2, None);
    world.start();
    world.run_to(MatchingState::Joined);
    world.handle(Event::ConnectionLost);
    let Some(Outcome::Connect(target)) = world.outcomes.last().cloned() else { panic!("a target") };
    assert!(target.is_reconnect && target.advertisement_id == id(0));
    world.run_to(MatchingState::Joined);
    assert_eq!(world.reserved().len(), 1);

    world.connects.insert(id(0), Some(false));
    world.handle(Event::ConnectionLost);
    world.run_to(MatchingState::Waiting);
    world.run_to(MatchingState::Joined);
    assert_eq!(releases(&world)[0].reservation_id, target.reservation_id);
    assert_eq!(world.reserved(), [id(0), id(1)], "the lost session is left out");
}

/// An order is followed for 30 s at most; candidates of a list that is older are searched again.
#[test]
fn order_that_is_too_old_is_not_followed() {
    let mut world = World::new(8, None);
    world.connects = (0..8).map(|number| (id(number), None)).collect();
    world.start();
    world.run_to(MatchingState::Waiting);
    assert_eq!(world.reserved().len(), 3, "10 s each");
}
