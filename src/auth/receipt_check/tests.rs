//! Receipts: the verdict of each check, and forgeries in number.

use std::net::IpAddr;

use super::*;
use fireteam_probe::ReceiptClaims;
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng};

const NOW: UnixMs = UnixMs(1_800_000_000_000);
const BEACON: u32 = 7;
const TRUE_ROUND_TRIP_US: u32 = 42_000;

fn keys() -> BeaconFleetKeys {
    BeaconFleetKeys::new([1; 32], Some([2; 32]))
}

fn user() -> UserKey {
    UserKey::from_name("ada")
}

fn prefix(text: &str) -> AddressPrefix {
    AddressPrefix::of(text.parse::<IpAddr>().unwrap())
}

fn claims() -> ReceiptClaims {
    ReceiptClaims {
        sequence: 1,
        beacon_id: BEACON,
        key_id: keys().current_beacon_key(BEACON).key_id(),
        issued_unix_s: u32::try_from(NOW.0 / 1_000).unwrap(),
        round_trip_us: TRUE_ROUND_TRIP_US,
        prefix: prefix("192.0.2.9"),
        binding: keys().receipt_binding_of_user_and_day(Some(user()), NOW),
    }
}

fn verdict_at(packet: &[u8], subject: Option<UserKey>, now: UnixMs) -> (ReceiptVerdict, Option<MeasuredBeacon>) {
    let own = prefix("192.0.2.9");
    let context = ReceiptContext {
        keys: &keys(),
        subject,
        now,
        is_live: &|id| id == BEACON || id == 8,
        is_callers_prefix: &|prefix| prefix == own,
    };
    check_receipt(packet, &context)
}

fn verdict(change: impl FnOnce(&mut ReceiptClaims)) -> ReceiptVerdict {
    let mut claims = claims();
    change(&mut claims);
    verdict_at(&claims.sign(&keys().current_beacon_key(claims.beacon_id)), Some(user()), NOW).0
}

/// LAT-5: each check has its verdict, at its border.
#[test]
fn receipt_verdict_names_the_first_failed_check() {
    use ReceiptVerdict as Verdict;
    let seconds = |claims: &ReceiptClaims| claims.issued_unix_s;
    assert_eq!(verdict(|_| {}), Verdict::Proven);
    let signed = claims().sign(&keys().current_beacon_key(BEACON));
    let measured = Some(MeasuredBeacon { beacon_id: BEACON, round_trip_us: TRUE_ROUND_TRIP_US });
    assert_eq!(verdict_at(&signed, Some(user()), NOW), (Verdict::Proven, measured));
    assert_eq!(verdict_at(&signed[..63], Some(user()), NOW).0, Verdict::Malformed);
    assert_eq!(verdict(|it| it.beacon_id = 9), Verdict::UnknownBeacon);
    assert_eq!(verdict(|it| it.key_id = [9; 4]), Verdict::UnknownKey);
    // The key of another live beacon, under the key id of this one.
    let foreign_key = claims().sign(&keys().current_beacon_key(8));
    assert_eq!(verdict_at(&foreign_key, Some(user()), NOW).0, Verdict::BadMac);
    assert_eq!(verdict_at(&signed, Some(UserKey::from_name("bob")), NOW).0, Verdict::ForeignBinding);
    assert_eq!(verdict_at(&signed, None, NOW).0, Verdict::ForeignBinding);
    assert_eq!(verdict(|it| it.binding = keys().receipt_binding_of_user_and_day(None, NOW)), Verdict::ForeignBinding);
    let day = |days: u64| UnixMs(NOW.0 - days * DAY_MS);
    assert_eq!(
        verdict(|it| it.binding = keys().receipt_binding_of_user_and_day(Some(user()), day(1))),
        Verdict::Proven
    );
    assert_eq!(
        verdict(|it| it.binding = keys().receipt_binding_of_user_and_day(Some(user()), day(2))),
        Verdict::ForeignBinding
    );
    assert_eq!(verdict(|it| it.issued_unix_s = seconds(it) - 600), Verdict::Proven);
    assert_eq!(verdict(|it| it.issued_unix_s = seconds(it) - 601), Verdict::Stale);
    assert_eq!(verdict(|it| it.issued_unix_s = seconds(it) + 5), Verdict::Proven);
    assert_eq!(verdict(|it| it.issued_unix_s = seconds(it) + 6), Verdict::Future);
    assert_eq!(verdict(|it| it.round_trip_us = 0), Verdict::OutOfRange);
    assert_eq!(verdict(|it| it.round_trip_us = RECEIPT_ROUND_TRIP_US_MAX + 1), Verdict::OutOfRange);
    assert_eq!(verdict(|it| it.prefix = prefix("192.0.3.9")), Verdict::ForeignPrefix);
    assert_eq!(verdict(|it| it.prefix = prefix("2001:db8::1")), Verdict::ForeignPrefix);
    // Two failures: the first in the order is the verdict.
    assert_eq!(verdict(|it| (it.issued_unix_s, it.round_trip_us) = (0, 0)), Verdict::Stale);
    // A rotated fleet key: receipts of the key before still count, of the one before that not.
    let of_key = |key: [u8; 32]| {
        let keys = BeaconFleetKeys::new(key, None);
        let beacon_key = keys.current_beacon_key(BEACON);
        let claims = ReceiptClaims {
            key_id: beacon_key.key_id(),
            binding: keys.receipt_binding_of_user_and_day(Some(user()), NOW),
            ..claims()
        };
        verdict_at(&claims.sign(&beacon_key), Some(user()), NOW).0
    };
    assert_eq!(
        [of_key([1; 32]), of_key([2; 32]), of_key([3; 32])],
        [Verdict::Proven, Verdict::Proven, Verdict::UnknownKey]
    );
}

/// SEC-9: keys must not reach a log through `{:?}`.
#[test]
fn fleet_keys_debug_hides_the_keys() {
    assert_eq!(format!("{:?}", BeaconFleetKeys::new([0xab; 32], Some([0xcd; 32]))), "BeaconFleetKeys { keys: 2, .. }");
}

/// LAT-5, SEC-8: of a million forged, replayed, foreign, stale or altered receipts, none counts below the true round trip. The
/// environment variable `SCALE` is the share of the million.
#[test]
fn no_forged_receipt_counts_below_the_true_round_trip() {
    let scale = scale();
    let keys = keys();
    let beacon_key = keys.current_beacon_key(BEACON);
    let genuine: Vec<[u8; FIXED_PACKET_BYTES]> = (0..64)
        .map(|index| ReceiptClaims {
            sequence: index,
            round_trip_us: TRUE_ROUND_TRIP_US + u32::from(index),
            ..claims()
        })
        .map(|claims| claims.sign(&beacon_key))
        .collect();
    let mut rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut below = |limit: u64| rng.next_u64() % limit;
    let mut counted = 0;
    let receipts = (1_000_000.0 * scale) as u32;
    for round in 0..receipts {
        let mut packet = genuine[below(64) as usize];
        let (mut subject, mut now) = (Some(user()), NOW);
        let nearer_us = 1 + below(u64::from(TRUE_ROUND_TRIP_US) - 1) as u32;
        match round % 6 {
            // Bits flipped anywhere.
            0 => {
                for _ in 0..=below(3) {
                    packet[below(FIXED_PACKET_BYTES as u64) as usize] ^= 1 << below(8);
                }
            }
            // A smaller figure, with the code of the genuine one.
            1 => packet[20..24].copy_from_slice(&nearer_us.to_be_bytes()),
            // A smaller figure, signed with a key of the attacker's own, or of a beacon that it owns.
            2 => {
                let claims = ReceiptClaims { round_trip_us: nearer_us, ..claims() };
                let own = BeaconKey(std::array::from_fn(|_| below(256) as u8));
                packet = claims.sign(&if below(2) == 0 { own } else { keys.current_beacon_key(8) });
            }
            // Of another user, who is nearer.
            3 => {
                let binding =
                    keys.receipt_binding_of_user_and_day(Some(UserKey::from_name(&below(1_000).to_string())), NOW);
                packet = ReceiptClaims { round_trip_us: 1, binding, ..claims() }.sign(&beacon_key);
            }
            // Of an earlier time, when the user was nearer.
            4 => {
                let issued_unix_s = claims().issued_unix_s - 601 - below(1_000_000) as u32;
                packet = ReceiptClaims { round_trip_us: 1, issued_unix_s, ..claims() }.sign(&beacon_key);
            }
            // Replayed: by the same user it says the same again; by another, or later, nothing.
            _ => match below(3) {
                0 => subject = Some(UserKey::from_name(&below(1_000).to_string())),
                1 => now = NOW.plus_ms(701_000 + below(DAY_MS)),
                _ => {}
            },
        }
        if let (ReceiptVerdict::Proven, Some(measured)) = verdict_at(&packet, subject, now) {
            counted += 1;
            assert!(TRUE_ROUND_TRIP_US <= measured.round_trip_us, "round {round}: {measured:?}");
        }
    }
    println!("LAT-5 of {receipts} receipts {counted} count, and 0 of them below the true round trip, goal 0");
    assert!(0 < counted, "replays by the same user count");
}

/// Share of the million: 1 in the long form.
#[expect(clippy::disallowed_methods, reason = "tests have no configuration file")]
fn scale() -> f64 {
    std::env::var("SCALE").ok().and_then(|scale| scale.parse().ok()).unwrap_or(0.05)
}

proptest! {
    /// SEC-3: any bytes get a verdict, and none of them counts.
    #[test]
    fn random_bytes_never_count_as_a_receipt(bytes in proptest::collection::vec(any::<u8>(), 0..130)) {
        prop_assert_ne!(verdict_at(&bytes, Some(user()), NOW).0, ReceiptVerdict::Proven);
    }
}
