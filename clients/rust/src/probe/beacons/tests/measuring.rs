//! One measurement: which beacons are asked, how often, and what is reported.

use fireteam_probe::{BeaconCookieKey, BeaconResponder, Receipt};
use tonic::Code;

use crate::pb;
use crate::probe::Beacons;
use crate::probe::beacons::tests::world::{SECOND_US, World, failure, key};

/// Packets of one measurement of twelve beacons: four conversations each.
const PACKETS_OF_TWELVE: usize = 12 * 4 * 2;

/// LAT-6: the beacons that the server calls near are measured, four conversations each, and all receipts are the beacons' own.
#[test]
fn beacons_measures_the_near_ones_and_reports_their_receipts() {
    let mut world = World::new(24);
    world.start();
    world.run_for(10 * SECOND_US);
    let near: Vec<u32> = (1..=12).collect();
    let mut asked = world.asked();
    asked.sort_unstable();
    assert_eq!((asked, world.packets.len(), world.lists.len()), (near.clone(), PACKETS_OF_TWELVE, 1));
    let [(_, report)] = &*world.reports else { panic!("{} reports", world.reports.len()) };
    assert_eq!((World::reported(report), report.receipts.len(), report.claims.len()), (near, 48, 0));
    for packet in &report.receipts {
        let receipt = Receipt::decode(packet).unwrap();
        assert!(receipt.is_signed_by(&key(receipt.claims.beacon_id)));
        assert_eq!(receipt.claims.round_trip_us, 20_000 + 10_000 * (receipt.claims.beacon_id - 1));
    }
    assert_eq!(world.client.latency_token(), b"token 1");
    assert!(world.client.is_first_measurement_over() && world.client.report_response().is_some());
}

/// At most 40 packets a second in all: a proof that could not wait delays the next hello.
#[test]
fn beacons_sends_forty_packets_a_second() {
    let mut world = World::new(24);
    world.start();
    world.run_for(10 * SECOND_US);
    let (first_us, last_us) = (world.packets[0].0, world.packets[PACKETS_OF_TWELVE - 1].0);
    let seconds = (last_us - first_us) as f64 / SECOND_US as f64;
    // Proofs of the beacons that are measured at once may come together at the end.
    let least = (PACKETS_OF_TWELVE - 1 - 8) as f64 / 40.0;
    assert!(least <= seconds, "{seconds} s");
    for id in world.asked() {
        assert!(world.hellos(id).is_sorted_by(|one, next| one + 50_000 <= *next));
    }
}

/// The packets of another loop of the client count in the limit.
#[test]
fn beacons_waits_for_the_packets_of_another_loop() {
    let mut world = World::new(8);
    world.start();
    for _ in 0..80 {
        world.client.record_packet_of_other_loop(crate::matching::MonotonicTime::from_micros(world.now_us));
    }
    world.run_for(10 * SECOND_US);
    assert_eq!(world.packets[0].0, 3 * SECOND_US, "two seconds after the 80 packets");
}

/// A client that knows its place orders all beacons by their distance from it, without the server's choice.
#[test]
fn beacons_measures_the_nearest_to_the_own_place() {
    let mut world = World::new(24);
    // The last beacon is at 25 degrees south.
    world.client = Beacons::new([5; 32]).with_place(-30.0, 1.0);
    world.start();
    world.run_for(10 * SECOND_US);
    assert_eq!(world.asked(), (13..=24).rev().collect::<Vec<u32>>());
    let mut world = World::new(24);
    world.client = Beacons::new([5; 32]).with_place(f64::NAN, 1.0);
    world.start();
    world.run_for(10 * SECOND_US);
    assert!(world.asked().iter().all(|id| *id <= 12), "no place: the server's choice");
}

/// The number of beacons follows the server's wish, from 8 to 16.
#[test]
fn beacons_measures_the_wanted_number_within_limits() {
    for (wanted, expected) in [(0, 8), (8, 8), (13, 13), (16, 16), (1_000, 16)] {
        let mut world = World::new(40);
        world.wanted = wanted;
        world.start();
        world.run_for(10 * SECOND_US);
        assert_eq!(world.asked().len(), expected, "{wanted} wanted");
    }
}

/// A beacon that is dead gets three packets, and the next nearest takes its place.
#[test]
fn beacons_leaves_out_a_dead_beacon() {
    let mut world = World::new(24);
    world.client = Beacons::new([5; 32]).with_place(90.0, 0.0);
    world.beacons[3].is_silent = true;
    world.start();
    world.run_for(15 * SECOND_US);
    assert_eq!(world.hellos(4).len(), 3);
    let reported: Vec<u32> = (1..=13).filter(|id| *id != 4).collect();
    assert_eq!(World::reported(&world.reports[0].1), reported);
}

/// Of a fleet that is dead 24 beacons are asked, three packets each. The report without receipts is made in time: the server may know the
/// round trip of the connection.
#[test]
fn beacons_gives_up_on_a_dead_fleet() {
    let mut world = World::new(40);
    world.beacons.iter_mut().for_each(|beacon| beacon.is_silent = true);
    world.start();
    world.run_for(11 * SECOND_US);
    assert_eq!(world.packets.len(), 24 * 3);
    assert_eq!((world.reports.len(), world.reports[0].1.receipts.len()), (1, 0));
    assert!(world.client.is_first_measurement_over());
}

/// A busy beacon is left alone for as long as it asks, also in later measurements. The next nearest takes its place.
#[test]
fn beacons_leaves_a_busy_beacon_alone() {
    let mut world = World::new(24);
    world.client = Beacons::new([5; 32]).with_place(90.0, 0.0);
    // Busy from its first packet on: it asks for 30 s. The next measurement comes later than that.
    world.beacons[0].responder = BeaconResponder::new(1, key(1), BeaconCookieKey([2; 32]), 1);
    world.start();
    world.run_for(60 * SECOND_US);
    assert_eq!((world.hellos(1).len(), World::reported(&world.reports[0].1)), (1, (2..=13).collect()));
    world.run_for(600 * SECOND_US);
    assert_eq!((world.reports.len(), world.hellos(1).len()), (2, 2), "asked once in the second measurement");
}

/// Entries that cannot be used are left out: ports, addresses, and a second beacon of one id. Without a binding no packet is sent.
#[test]
fn beacons_leaves_out_unusable_entries() {
    let mut world = World::new(6);
    world.beacons[0].listed.port = 0;
    world.beacons[1].listed.port = 65_536;
    world.beacons[2].listed.address = vec![1, 2, 3];
    world.beacons[3].listed.address = vec![0, 0, 0, 0];
    world.beacons[4].listed.address = vec![224, 0, 0, 1];
    world.start();
    world.run_for(10 * SECOND_US);
    assert_eq!(World::reported(&world.reports[0].1), [6]);
}

/// A server without beacons, without the service, or with another failure ends the first measurement without a packet.
#[test]
fn beacons_settles_without_a_server_that_has_beacons() {
    let no_beacons = failure(Code::FailedPrecondition, pb::ErrorReason::NoBeacons);
    for error in [no_beacons, failure(Code::Unimplemented, pb::ErrorReason::Unspecified)] {
        let mut world = World::new(6);
        world.failure = Some(error);
        world.start();
        world.run_for(60 * SECOND_US);
        assert!(world.client.is_first_measurement_over() && world.client.latency_token().is_empty());
        assert_eq!((world.lists.len(), world.packets.len()), (1, 0));
        world.failure = None;
        world.run_for(721 * SECOND_US);
        assert_eq!((world.lists.len(), world.reports.len()), (2, 1), "asked again after ten to twelve minutes");
    }
    let mut world = World::new(0);
    world.start();
    world.run_for(60 * SECOND_US);
    assert!(world.client.is_first_measurement_over() && world.reports.is_empty());
}
