//! Token over time: measured again before it expires, kept through failures, and never used after its time.

use tonic::Code;

use crate::pb;
use crate::probe::beacons::tests::world::{SECOND_US, TOKEN_LIFE_US, World, failure};

const HOUR_US: u64 = 3_600 * SECOND_US;

/// Over hours there is a fresh token at each moment, and the client measures about once in eight minutes.
#[test]
fn beacons_renews_the_token_before_it_expires() {
    let mut world = World::new(24);
    world.start();
    world.run_for(4 * HOUR_US);
    assert!((26..=35).contains(&world.reports.len()), "{} reports", world.reports.len());
    assert!(world.tokens.iter().all(|(_, token)| !token.is_empty()));
    for pair in world.reports.windows(2) {
        let pause_us = pair[1].0 - pair[0].0;
        assert!((7 * TOKEN_LIFE_US / 10..TOKEN_LIFE_US).contains(&pause_us), "{pause_us}");
    }
}

/// While the server fails, the token stays until it expires, and the client asks once in a while. Afterwards it has a token again.
#[test]
fn beacons_keeps_the_token_through_an_outage_until_it_expires() {
    let mut world = World::new(12);
    world.start();
    world.run_for(60 * SECOND_US);
    let reported_us = world.reports[0].0;
    world.failure = Some(failure(Code::Unavailable, pb::ErrorReason::Unspecified));
    world.run_for(HOUR_US);
    let [(_, first), (expired_us, expired)] = &*world.tokens else { panic!("{:?}", world.tokens) };
    assert_eq!((&first[..], &expired[..]), (&b"token 1"[..], &b""[..]));
    assert_eq!(*expired_us, reported_us + TOKEN_LIFE_US);
    // Four attempts of a call each minute, and no packet.
    assert!(world.lists.len() <= 4 * 60, "{}", world.lists.len());
    world.failure = None;
    let packets = world.packets.len();
    world.run_for(120 * SECOND_US);
    assert!(!world.client.latency_token().is_empty());
    assert!(packets < world.packets.len());
}

/// A process that slept for an hour has no old token, and measures at once.
#[test]
fn beacons_measures_at_once_after_the_clock_stepped() {
    let mut world = World::new(12);
    world.start();
    world.run_for(60 * SECOND_US);
    world.now_us += HOUR_US;
    world.run_for(0);
    assert!(world.client.latency_token().is_empty());
    assert_eq!(world.lists.len(), 2);
    world.run_for(10 * SECOND_US);
    assert_eq!(world.client.latency_token(), b"token 2");
}
