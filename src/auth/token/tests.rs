//! Signed tokens: round trips, forgeries, key rotation, derived ids and the golden layout.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::domain::advertisement::AdvertisementKind;
use crate::domain::id::{ConsentId, RulesetHash, SiloId};
use crate::domain::time::UnixMs;

fn signer() -> HmacTokenSigner {
    HmacTokenSigner::new([7; SIGNING_KEY_BYTES], None)
}

fn advertisement_claim() -> impl Strategy<Value = AdvertisementClaim> {
    let subject = proptest::option::of(any::<[u8; 16]>());
    (any::<[u8; 16]>(), any::<u32>(), any::<bool>(), subject, any::<u64>()).prop_map(
        |(id, set, server, subject, since)| AdvertisementClaim {
            advertisement_id: AdvertisementId::from_bytes(id),
            set_id: SetId(set),
            kind: if server { AdvertisementKind::GameServer } else { AdvertisementKind::Session },
            subject: subject.map(UserKey::from_bytes),
            advertised_since: UnixMs(since),
        },
    )
}

fn search_claim() -> impl Strategy<Value = SearchClaim> {
    (any::<(u32, u32)>(), any::<u64>(), any::<[u8; 16]>(), any::<u64>(), any::<u64>()).prop_map(
        |((set, hash), silo, party, since, used)| SearchClaim {
            set_id: SetId(set),
            ruleset_hash: RulesetHash(hash),
            silo: SiloId(silo),
            party_digest: party,
            started_at: UnixMs(since),
            last_issued_at: UnixMs(used),
        },
    )
}

fn probe_record() -> impl Strategy<Value = ProbeRecord> {
    let answered = (0..=65_533_u16, proptest::option::of(0..255_u8), proptest::option::of((1..200_u32, 0..200_u32)));
    let finding = prop_oneof![
        answered.prop_map(|(steps, jitter_ms, packets)| RecordedFinding::Answered {
            round_trip_ms: f64::from(steps) / 8.0,
            jitter_ms,
            packets: packets.and_then(|(sent, answered)| PacketCounts::new(sent, answered.min(sent))),
        }),
        Just(RecordedFinding::Silent),
        Just(RecordedFinding::Incompatible),
    ];
    (any::<[u8; 8]>(), finding, any::<bool>(), any::<u32>()).prop_map(|(id_prefix, finding, is_involved, after)| {
        let reported_after_ms = ProbeRecord::rounded_reported_after_ms(after.into());
        ProbeRecord { id_prefix, finding, is_involved, reported_after_ms }
    })
}

fn measured_search_claim(probes_max: usize) -> impl Strategy<Value = MeasuredSearchClaim> {
    let probes = proptest::collection::vec(probe_record(), 0..=probes_max);
    (search_claim(), any::<bool>(), probes).prop_map(|(search, involved_phase_may_start, probes)| MeasuredSearchClaim {
        search,
        measured: SearchMeasurements { involved_phase_may_start, probes },
    })
}

fn latency_claim() -> impl Strategy<Value = LatencyClaim> {
    let source = prop_oneof![
        Just(BeaconRoundTripSource::Proven),
        Just(BeaconRoundTripSource::Observed),
        Just(BeaconRoundTripSource::Claimed)
    ];
    let entry = (any::<u32>(), 0.0..8_000.0_f64, source, 0..2_000_000_u64)
        .prop_map(|(id, floor_ms, source, age_ms)| BeaconRoundTrip::new(id, floor_ms, source, age_ms));
    let prefix = any::<std::net::IpAddr>().prop_map(fireteam_probe::AddressPrefix::of);
    let entries = proptest::collection::vec(entry, 0..=4);
    (proptest::option::of(any::<[u8; 16]>()), prefix, any::<u64>(), entries).prop_map(
        |(subject, prefix, issued_at, entries)| LatencyClaim {
            subject: subject.map(UserKey::from_bytes),
            prefix,
            issued_at: UnixMs(issued_at),
            entries,
        },
    )
}

fn reservation_claim() -> impl Strategy<Value = ReservationClaim> {
    let subject = proptest::option::of(any::<[u8; 16]>());
    (any::<[u8; 16]>(), any::<[u8; 16]>(), any::<u32>(), subject).prop_map(|(id, advertisement, set, subject)| {
        ReservationClaim {
            reservation_id: ReservationId::from_bytes(id),
            advertisement_id: AdvertisementId::from_bytes(advertisement),
            set_id: SetId(set),
            subject: subject.map(UserKey::from_bytes),
        }
    })
}

fn consent_claim() -> impl Strategy<Value = ConsentClaim> {
    let ids = (any::<[u8; 16]>(), any::<[u8; 16]>(), any::<[u8; 16]>());
    (ids, any::<u32>(), any::<[bool; 2]>(), any::<u64>()).prop_map(|(ids, set, [is_queue, may_answer], until)| {
        let purpose = if is_queue { ConsentPurpose::Queue } else { ConsentPurpose::Search };
        let (id, member, leader) = ids;
        ConsentClaim {
            id: ConsentId::from_bytes(id),
            member: UserKey::from_bytes(member),
            leader: UserKey::from_bytes(leader),
            set_id: SetId(set),
            purpose,
            may_answer,
            expires_at: UnixMs(until),
        }
    })
}

fn seat_claim() -> impl Strategy<Value = TicketSeatClaim> {
    (any::<[u8; 16]>(), any::<u32>(), any::<[u8; 16]>()).prop_map(|(ticket, set, user)| TicketSeatClaim {
        ticket_id: TicketId::from_bytes(ticket),
        set_id: SetId(set),
        user: UserKey::from_bytes(user),
    })
}

fn offer_claim() -> impl Strategy<Value = AllocationOfferClaim> {
    let subject = proptest::option::of(any::<[u8; 16]>());
    (any::<[u8; 16]>(), any::<u32>(), any::<[u8; 16]>(), subject).prop_map(|(id, number, advertisement, subject)| {
        AllocationOfferClaim {
            match_id: MatchId::from_bytes(id),
            number,
            advertisement_id: AdvertisementId::from_bytes(advertisement),
            subject: subject.map(UserKey::from_bytes),
        }
    })
}

/// Checks that a token verifies as its own kind only, and that any flipped bit, missing or added byte invalidates it.
fn assert_token_is_unforgeable<C: Claim + PartialEq + std::fmt::Debug>(claim: &C) {
    let signer = signer();
    let token = signer.sign(claim);
    assert_eq!(signer.verify::<C>(&token).as_ref(), Some(claim));
    assert!(signer.is_signed_with_current_key(&token) && signer.sign(claim) == token, "signing is deterministic");
    let verified = [
        signer.verify::<AdvertisementClaim>(&token).is_some(),
        signer.verify::<SearchClaim>(&token).is_some(),
        signer.verify::<MeasuredSearchClaim>(&token).is_some(),
        signer.verify::<LatencyClaim>(&token).is_some(),
        signer.verify::<ReservationClaim>(&token).is_some(),
        signer.verify::<ConsentClaim>(&token).is_some(),
        signer.verify::<TicketSeatClaim>(&token).is_some(),
        signer.verify::<AllocationOfferClaim>(&token).is_some(),
    ];
    assert_eq!(
        verified.iter().filter(|is_verified| **is_verified).count(),
        1,
        "a token of one kind never verifies as another"
    );
    for bit in 0..token.len() * 8 {
        let mut forged = token.clone();
        forged[bit / 8] ^= 1 << (bit % 8);
        assert!(signer.verify::<C>(&forged).is_none(), "bit {bit}");
    }
    for length in 0..token.len() {
        assert!(signer.verify::<C>(&token[..length]).is_none(), "cut to {length}");
    }
    assert!(signer.verify::<C>(&[&token[..], &[0]].concat()).is_none());
    assert!(HmacTokenSigner::new([8; SIGNING_KEY_BYTES], None).verify::<C>(&token).is_none(), "another key");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// S1-47, SEC-5: an advertisement token cannot be forged, changed or extended.
    #[test]
    fn token_of_an_advertisement_is_unforgeable(claim in advertisement_claim()) { assert_token_is_unforgeable(&claim) }

    #[test]
    fn token_of_a_search_is_unforgeable(claim in search_claim()) { assert_token_is_unforgeable(&claim) }

    /// Measurements of a search cannot be forged, changed or extended; also with one record less or more.
    #[test]
    fn token_of_a_measured_search_is_unforgeable(claim in measured_search_claim(3)) {
        assert_token_is_unforgeable(&claim);
    }

    /// LAT-5: round trips to beacons cannot be forged, changed or extended.
    #[test]
    fn token_of_latencies_is_unforgeable(claim in latency_claim()) { assert_token_is_unforgeable(&claim) }

    /// A token carries 64 results within its largest size, and each as it was recorded.
    #[test]
    fn token_of_a_measured_search_keeps_its_records(claim in measured_search_claim(64)) {
        let token = signer().sign(&claim);
        prop_assert!(token.len() <= TOKEN_BYTES_MAX);
        prop_assert_eq!(signer().verify::<MeasuredSearchClaim>(&token), Some(claim));
    }

    /// Recorded figures are never less than the reported ones: a host at exactly a limit stays on one side of it.
    #[test]
    fn recorded_probes_round_up(ms in 0.0..60_000.0_f64, jitter in 0.0..400.0_f64) {
        let RecordedFinding::Answered { round_trip_ms, jitter_ms, .. } = RecordedFinding::new_answered(ms, Some(jitter), None)
        else { unreachable!() };
        let (ms, jitter) = (ms.min(65_533.0 / 8.0), jitter.min(254.0));
        prop_assert!(ms <= round_trip_ms && round_trip_ms < ms + 0.125);
        let recorded = f64::from(jitter_ms.unwrap());
        prop_assert!(jitter <= recorded && recorded < jitter + 1.0);
    }

    /// SEC-5: a reservation token cannot be forged, changed or extended.
    #[test]
    fn token_of_a_reservation_is_unforgeable(claim in reservation_claim()) { assert_token_is_unforgeable(&claim) }

    /// SEC-6: a consent token cannot be forged, so no player joins a party without consent.
    #[test]
    fn token_of_a_consent_is_unforgeable(claim in consent_claim()) { assert_token_is_unforgeable(&claim) }

    /// SEC-6: the token of a seat cannot be forged, so no one acts for another player.
    #[test]
    fn token_of_a_seat_is_unforgeable(claim in seat_claim()) { assert_token_is_unforgeable(&claim) }

    /// An offer token cannot be forged, so no match is placed by a caller to whom it was not offered.
    #[test]
    fn token_of_an_offer_is_unforgeable(claim in offer_claim()) { assert_token_is_unforgeable(&claim) }

    /// SEC-3: random bytes never verify.
    #[test]
    fn token_of_random_bytes_is_rejected(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let signer = signer();
        prop_assert!(signer.verify::<AdvertisementClaim>(&bytes).is_none());
        prop_assert!(signer.verify::<SearchClaim>(&bytes).is_none());
        prop_assert!(signer.verify::<MeasuredSearchClaim>(&bytes).is_none());
        prop_assert!(signer.verify::<ReservationClaim>(&bytes).is_none());
        prop_assert!(signer.verify::<ConsentClaim>(&bytes).is_none());
        prop_assert!(signer.verify::<TicketSeatClaim>(&bytes).is_none());
    }

    /// A digest of one kind is invalid for another, even with the kind byte changed and the right length.
    #[test]
    fn token_of_one_kind_is_rejected_as_another(claim in seat_claim()) {
        let signer = signer();
        let mut token = signer.sign(&claim);
        token[1] = SearchClaim::KIND_BYTE;
        let padding = SearchClaim::ENCODED_BYTES_MAX - TicketSeatClaim::ENCODED_BYTES_MAX;
        token.splice(HEADER_BYTES..HEADER_BYTES, std::iter::repeat_n(0, padding));
        prop_assert!(signer.verify::<SearchClaim>(&token).is_none());
    }
}

#[test]
fn token_of_the_previous_key_verifies_and_an_older_one_does_not() {
    let claim = ReservationClaim {
        reservation_id: ReservationId::from_bytes([1; 16]),
        advertisement_id: AdvertisementId::from_bytes([2; 16]),
        set_id: SetId(3),
        subject: None,
    };
    let [oldest, older, newest] = [[1; SIGNING_KEY_BYTES], [2; SIGNING_KEY_BYTES], [3; SIGNING_KEY_BYTES]];
    let rotated = HmacTokenSigner::new(newest, Some(older));
    assert_eq!(rotated.verify(&HmacTokenSigner::new(older, Some(oldest)).sign(&claim)), Some(claim));
    assert_eq!(rotated.verify(&rotated.sign(&claim)), Some(claim));
    assert_eq!(rotated.verify::<ReservationClaim>(&HmacTokenSigner::new(oldest, None).sign(&claim)), None);
    assert_eq!(HmacTokenSigner::new(older, None).verify::<ReservationClaim>(&rotated.sign(&claim)), None);
    assert!(rotated.is_signed_with_current_key(&rotated.sign(&claim)));
    assert!(
        !rotated.is_signed_with_current_key(&HmacTokenSigner::new(older, Some(oldest)).sign(&claim)),
        "it should be signed again with the current key"
    );
}

/// R5: the same caller and idempotency key give the same id on every replica; any other input gives another id.
#[test]
fn derived_ids_depend_on_every_input() {
    let (one, other) = (Some(UserKey::from_name("one")), Some(UserKey::from_name("other")));
    let signer = signer();
    assert_eq!(signer.derive_advertisement_id(one, "k"), signer.clone().derive_advertisement_id(one, "k"));
    let ids: BTreeSet<[u8; 16]> = [
        signer.derive_advertisement_id(one, "k"),
        signer.derive_advertisement_id(other, "k"),
        signer.derive_advertisement_id(None, "k"),
        signer.derive_advertisement_id(Some(UserKey::from_bytes([0; 16])), "k"),
        signer.legacy_advertisement_id(one, SetId(1), "k"),
        signer.legacy_advertisement_id(one, SetId(2), "k"),
        signer.derive_advertisement_id(one, "k2"),
        HmacTokenSigner::new([9; SIGNING_KEY_BYTES], None).derive_advertisement_id(one, "k"),
    ]
    .iter()
    .map(|id| *id.as_bytes())
    .chain([*signer.derive_reservation_id(one, AdvertisementId::from_bytes([1; 16]), "k").as_bytes()])
    .chain([*signer.derive_reservation_id(one, AdvertisementId::from_bytes([2; 16]), "k").as_bytes()])
    .chain([*signer.derive_reservation_id(None, AdvertisementId::from_bytes([1; 16]), "k").as_bytes()])
    .chain([*signer.derive_reservation_id(one, AdvertisementId::from_bytes([1; 16]), "").as_bytes()])
    .collect();
    assert_eq!(ids.len(), 12);
}

#[test]
fn party_digest_depends_on_caller_users_and_sizes() {
    let [a, b] = [UserKey::from_name("a"), UserKey::from_name("b")];
    let digests: BTreeSet<[u8; 16]> = [
        HmacTokenSigner::searching_party_digest(None, &[a, b], &[2]),
        HmacTokenSigner::searching_party_digest(Some(a), &[a, b], &[2]),
        HmacTokenSigner::searching_party_digest(None, &[a], &[2]),
        HmacTokenSigner::searching_party_digest(None, &[a, b], &[1, 1]),
        HmacTokenSigner::searching_party_digest(None, &[], &[2]),
    ]
    .into();
    assert_eq!(digests.len(), 5);
    assert_eq!(
        HmacTokenSigner::searching_party_digest(None, &[a, b], &[2]),
        HmacTokenSigner::searching_party_digest(None, &[a, b], &[2])
    );
}

/// SEC-9: a key must not reach a log through `{:?}`.
#[test]
fn token_signer_debug_hides_its_keys() {
    let debug = format!("{:?}", HmacTokenSigner::new([0xab; SIGNING_KEY_BYTES], Some([0xcd; SIGNING_KEY_BYTES])));
    assert_eq!(debug, "HmacTokenSigner { keys: 2, .. }");
}

/// Golden bytes of one token, computed with Python's hmac module: replicas of different versions must agree.
#[test]
fn token_layout_matches_the_golden_bytes() {
    let claim = ReservationClaim {
        reservation_id: ReservationId::from_bytes([0x11; 16]),
        advertisement_id: AdvertisementId::from_bytes([0x22; 16]),
        set_id: SetId(0x0a0b_0c0d),
        subject: Some(UserKey::from_bytes([0x33; 16])),
    };
    let hex: String = signer().sign(&claim).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(
        hex,
        concat!(
            "0104fdd716d511111111111111111111111111111111222222222222222222222222222222220a0b0c0d013333",
            "333333333333333333333333333376f8189aa4a412a42f8bc4956e9fba17"
        )
    );
}

/// SEC-12: two searchers cannot correlate one advertisement.
#[test]
fn handle_opens_for_its_party_in_its_window_and_the_next() {
    let id = AdvertisementId::from_bytes(*b"an advertisement");
    let opens = |signer: &HmacTokenSigner, party: u8, handle, now| {
        signer.advertisement_ids_of_handle([party; 16], handle, now).any(|opened| opened == id)
    };
    let signer = HmacTokenSigner::new([1; 32], None);
    let at = |windows: u64| UnixMs(windows * ADVERTISEMENT_HANDLE_WINDOW_MS);
    let handle = signer.advertisement_handle_cipher([1; 16], at(5)).seal(id);
    assert_ne!(handle, id);
    assert_eq!(signer.advertisement_handle_cipher([1; 16], UnixMs(at(6).0 - 1)).seal(id), handle, "the same window");
    assert_ne!(signer.advertisement_handle_cipher([1; 16], at(6)).seal(id), handle, "another window");
    assert_ne!(signer.advertisement_handle_cipher([2; 16], at(5)).seal(id), handle, "another party");
    assert!(opens(&signer, 1, handle, at(5)) && opens(&signer, 1, handle, UnixMs(at(7).0 - 1)));
    assert!(!opens(&signer, 1, handle, at(7)) && !opens(&signer, 2, handle, at(5)));
    let rotated = HmacTokenSigner::new([2; 32], Some([1; 32]));
    assert!(opens(&rotated, 1, handle, at(5)));
    assert!(!opens(&HmacTokenSigner::new([2; 32], None), 1, handle, at(5)));
}
