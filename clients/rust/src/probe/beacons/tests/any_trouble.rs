//! Properties under any trouble: packets lost, late, repeated, altered or from elsewhere; calls that fail or are answered late or twice;
//! beacons that die; and a clock that steps.

use fireteam_probe::{Hello, Receipt};
use proptest::prelude::*;

use crate::probe::beacons::BeaconsEvent;
use crate::probe::beacons::tests::world::{SECOND_US, TOKEN_LIFE_US, World, trouble};

/// Packets of a measurement to one beacon: six conversations.
const PACKETS_TO_ONE_MAX: usize = 12;
const ASKED_MAX: usize = 24;
const RECEIPTS_MAX: usize = 96;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// SEC-8: in any trouble each measurement ends in time and within its limits, each packet answers the server's list or a beacon's
    /// challenge, no token is used after its time, and after the trouble there is a token again.
    #[test]
    fn beacons_keeps_its_limits_in_any_trouble(
        seed in any::<u64>(),
        share in 0.0..0.9_f64,
        count in 0..40_u32,
        wanted in 0..20_u32,
        events in prop::collection::vec((0..400 * SECOND_US, 0..4_u8, any::<[u8; 64]>()), 0..20),
    ) {
        let mut world = World::new(count);
        world.wanted = wanted;
        world.trouble = Some(trouble(seed, share));
        world.start();
        for (after_us, kind, bytes) in events {
            world.run_for(after_us);
            match kind {
                0 => world.now_us += after_us,
                1 if count > 0 => {
                    let at = usize::from(bytes[0]) % world.beacons.len();
                    world.beacons[at].is_silent ^= true;
                }
                2 => world.start(),
                _ => {
                    let mut packet = bytes.to_vec();
                    packet[..5].copy_from_slice(&[0x46, 0x54, 0x4c, 1, if bytes[0] < 128 { 0x12 } else { 0x14 }]);
                    world.handle(BeaconsEvent::Datagram { from: "192.0.2.1:7777".parse().unwrap(), packet });
                }
            }
            prop_assert!(world.client.poll_timeout().is_some(), "it never waits without a timer");
        }
        check_limits(&world)?;

        world.trouble = None;
        world.beacons.iter_mut().for_each(|beacon| beacon.is_silent = false);
        // The rest after a failure, a busy beacon's pause, and a measurement.
        world.run_for(15 * 60 * SECOND_US);
        prop_assert_eq!(world.client.latency_token().is_empty(), count == 0);
        prop_assert!(world.client.is_first_measurement_over());
        check_limits(&world)?;
    }
}

fn check_limits(world: &World) -> Result<(), TestCaseError> {
    // Measurements: from one list to the next.
    let bounds: Vec<u64> = world.lists.iter().copied().chain([u64::MAX]).collect();
    for bound in bounds.windows(2) {
        let packets: Vec<_> = world.packets.iter().filter(|(at, _)| (bound[0]..bound[1]).contains(at)).collect();
        let mut to: Vec<_> = packets.iter().map(|(_, sent)| sent.to).collect();
        to.sort_unstable();
        let runs: Vec<usize> = to.chunk_by(|one, other| one == other).map(<[_]>::len).collect();
        prop_assert!(runs.len() <= ASKED_MAX && runs.iter().all(|packets| *packets <= PACKETS_TO_ONE_MAX), "{runs:?}");
        if let (Some((first_us, _)), Some((last_us, _))) = (packets.first(), packets.last()) {
            prop_assert!(last_us - first_us <= 10 * SECOND_US);
            let hellos = packets.iter().filter(|(_, sent)| Hello::decode(&sent.packet).is_ok()).count() as u64;
            prop_assert!(hellos.saturating_sub(1) * 25_000 <= last_us - first_us, "{hellos} hellos");
        }
    }
    for (_, report) in &world.reports {
        prop_assert!(report.receipts.len() <= RECEIPTS_MAX);
        for receipt in &report.receipts {
            prop_assert!(Receipt::decode(receipt).is_ok());
        }
    }
    let mut last_report_us = 0;
    for (at_us, token) in &world.tokens {
        let before = world.reports.iter().map(|(sent_us, _)| *sent_us).filter(|sent_us| sent_us <= at_us).max();
        last_report_us = before.unwrap_or(last_report_us);
        prop_assert!(token.is_empty() || at_us - last_report_us < TOKEN_LIFE_US);
    }
    Ok(())
}
