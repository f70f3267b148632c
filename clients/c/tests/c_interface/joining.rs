//! Search loop: search, probes, reports, reservation and join, as a C program drives it.

use fireteam_c::matching_exports::ft_matching_connection_lost;
use fireteam_c::types::*;
use fireteam_client::pb;
use prost::Message;

use crate::functions::{c, text};
use crate::script::id;
use crate::world::World;

/// The host with the shortest round trip is joined: the last of three.
#[test]
fn matching_joins_the_host_with_the_shortest_round_trip() {
    let mut world = World::new(3);
    world.start();
    world.run_to(FT_STATE_JOINED);
    assert_eq!(world.paths(), ["Search", "ReportLatency", "ReportLatency", "Reserve"]);
    assert_eq!(world.kinds(), [FT_OUTCOME_CONNECT, FT_OUTCOME_JOINED]);
    let (connect, data) = &world.outcomes[0];
    assert_eq!((text(&connect.advertisement_id), connect.seats, connect.again), (id(3), 1, 0));
    assert_eq!(text(&connect.reservation_id), "5".repeat(32));
    assert_eq!(*data, format!("to {}", id(3)).into_bytes());
    assert!((70.0..75.0).contains(&connect.round_trip_ms), "{}", connect.round_trip_ms);
    let quick = pb::MatchmakingReportLatencyRequest::decode(&*world.requests[1].1).unwrap();
    assert_eq!((quick.measurements.len(), quick.phase()), (3, pb::LatencyPhase::Quick));
    assert!(!world.step(), "a joined session waits for events alone");
}

/// A lost connection leads to another connect, and cancel leaves the session.
#[test]
fn matching_connects_again_and_leaves() {
    let mut world = World::new(1);
    world.start();
    world.run_to(FT_STATE_JOINED);
    assert_eq!(c!(ft_matching_connection_lost(world.matching.0, world.now_us)), 0);
    world.drain();
    world.run_to(FT_STATE_JOINED);
    assert_eq!(world.outcomes[2].0.again, 1);
    world.cancel();
    world.run_to(FT_STATE_ENDED);
    assert_eq!(world.outcomes.last().unwrap().0.end_reason, FT_END_CANCELLED);
    let released = pb::MatchmakingReleaseRequest::decode(&*world.requests.last().unwrap().1).unwrap();
    assert_eq!(released.reservation_token, b"secret");
}

/// A call that fails for the moment is repeated, and one that cannot succeed ends the loop with its reason.
#[test]
fn matching_repeats_or_ends_by_the_failure() {
    let mut world = World::new(1);
    world.failures = vec![(14, Vec::new())];
    world.start();
    world.run_to(FT_STATE_JOINED);
    assert_eq!(world.paths()[..2], ["Search", "Search"]);

    let mut world = World::new(1);
    // google.rpc.Status with an ErrorInfo.
    let mut info = vec![10, 23];
    info.extend(b"UNKNOWN_MATCHMAKING_SET");
    let mut any = vec![10, 40];
    any.extend(b"type.googleapis.com/google.rpc.ErrorInfo");
    any.extend([18, info.len() as u8]);
    any.extend(&info);
    let mut details = vec![8, 5, 26, any.len() as u8];
    details.extend(&any);
    world.failures = vec![(5, details)];
    world.start();
    world.run_to(FT_STATE_ENDED);
    let ended = &world.outcomes.last().unwrap().0;
    assert_eq!((ended.kind, ended.end_reason, ended.status), (FT_OUTCOME_ENDED, FT_END_FAILED, 5));
    assert_eq!(text(&ended.reason), "UNKNOWN_MATCHMAKING_SET");
}
