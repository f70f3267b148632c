//! Tokens that open, and every way in which one must not.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::domain::advertisement::AdvertisementKind;
use crate::domain::id::{RulesetHash, SiloId};
use crate::domain::time::UnixMs;

fn signer() -> Signer {
    Signer::new([7; KEY_BYTES], None)
}

fn advertisement() -> impl Strategy<Value = AdvertisementClaim> {
    let subject = proptest::option::of(any::<[u8; 16]>());
    (any::<[u8; 16]>(), any::<u32>(), any::<bool>(), subject, any::<u64>()).prop_map(
        |(id, set, server, subject, since)| AdvertisementClaim {
            id: AdvertisementId::from_bytes(id),
            set_id: SetId(set),
            kind: if server { AdvertisementKind::GameServer } else { AdvertisementKind::Session },
            subject: subject.map(UserKey::from_bytes),
            since: UnixMs(since),
        },
    )
}

fn search() -> impl Strategy<Value = SearchClaim> {
    (any::<(u32, u32)>(), any::<u64>(), any::<[u8; 16]>(), any::<u64>(), any::<u64>()).prop_map(
        |((set, hash), silo, party, since, used)| SearchClaim {
            set_id: SetId(set),
            hash: RulesetHash(hash),
            silo: SiloId(silo),
            party,
            since: UnixMs(since),
            used: UnixMs(used),
        },
    )
}

fn reservation() -> impl Strategy<Value = ReservationClaim> {
    let subject = proptest::option::of(any::<[u8; 16]>());
    (any::<[u8; 16]>(), any::<[u8; 16]>(), any::<u32>(), subject).prop_map(|(id, advertisement, set, subject)| {
        ReservationClaim {
            id: ReservationId::from_bytes(id),
            advertisement_id: AdvertisementId::from_bytes(advertisement),
            set_id: SetId(set),
            subject: subject.map(UserKey::from_bytes),
        }
    })
}

fn consent() -> impl Strategy<Value = ConsentClaim> {
    (any::<[u8; 16]>(), any::<[u8; 16]>(), any::<u64>()).prop_map(|(member, leader, until)| ConsentClaim {
        member: UserKey::from_bytes(member),
        leader: UserKey::from_bytes(leader),
        until: UnixMs(until),
    })
}

/// Opens as what it is and as nothing else; no flipped bit, missing or added byte survives.
fn check<C: Claim + PartialEq + std::fmt::Debug>(claim: &C) {
    let signer = signer();
    let token = signer.seal(claim);
    assert_eq!(signer.open::<C>(&token).as_ref(), Some(claim));
    assert!(signer.would_seal_again(&token) && signer.seal(claim) == token, "sealing has one answer");
    let opened = [
        signer.open::<AdvertisementClaim>(&token).is_some(),
        signer.open::<SearchClaim>(&token).is_some(),
        signer.open::<ReservationClaim>(&token).is_some(),
        signer.open::<ConsentClaim>(&token).is_some(),
    ];
    assert_eq!(opened.iter().filter(|it| **it).count(), 1, "one kind of token never opens as another");
    for bit in 0..token.len() * 8 {
        let mut forged = token.clone();
        forged[bit / 8] ^= 1 << (bit % 8);
        assert!(signer.open::<C>(&forged).is_none(), "bit {bit}");
    }
    for length in 0..token.len() {
        assert!(signer.open::<C>(&token[..length]).is_none(), "cut to {length}");
    }
    assert!(signer.open::<C>(&[&token[..], &[0]].concat()).is_none());
    assert!(Signer::new([8; KEY_BYTES], None).open::<C>(&token).is_none(), "a stranger's key");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// S1-47, SEC-5: an advertisement token cannot be made, changed or stretched.
    #[test]
    fn advertisement_tokens_hold(claim in advertisement()) { check(&claim) }

    #[test]
    fn search_tokens_hold(claim in search()) { check(&claim) }

    /// SEC-5: nor can a reservation's.
    #[test]
    fn reservation_tokens_hold(claim in reservation()) { check(&claim) }

    /// SEC-6: nobody is taken along who did not say so.
    #[test]
    fn consent_tokens_hold(claim in consent()) { check(&claim) }

    /// SEC-3: bytes at random open as nothing.
    #[test]
    fn noise_opens_as_nothing(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let signer = signer();
        prop_assert!(signer.open::<AdvertisementClaim>(&bytes).is_none());
        prop_assert!(signer.open::<SearchClaim>(&bytes).is_none());
        prop_assert!(signer.open::<ReservationClaim>(&bytes).is_none());
        prop_assert!(signer.open::<ConsentClaim>(&bytes).is_none());
    }

    /// A digest taken for one kind of thing is of no use for another, even with the kind byte changed and the length right.
    #[test]
    fn a_claims_bytes_do_not_carry_over(claim in consent()) {
        let signer = signer();
        let mut token = signer.seal(&claim);
        token[1] = SearchClaim::KIND;
        let padding = SearchClaim::LENGTH - ConsentClaim::LENGTH;
        token.splice(HEAD_BYTES..HEAD_BYTES, std::iter::repeat_n(0, padding));
        prop_assert!(signer.open::<SearchClaim>(&token).is_none());
    }
}

#[test]
fn the_previous_key_is_accepted_and_the_one_before_is_not() {
    let claim = ReservationClaim {
        id: ReservationId::from_bytes([1; 16]),
        advertisement_id: AdvertisementId::from_bytes([2; 16]),
        set_id: SetId(3),
        subject: None,
    };
    let [oldest, older, newest] = [[1; KEY_BYTES], [2; KEY_BYTES], [3; KEY_BYTES]];
    let rotated = Signer::new(newest, Some(older));
    assert_eq!(rotated.open(&Signer::new(older, Some(oldest)).seal(&claim)), Some(claim));
    assert_eq!(rotated.open(&rotated.seal(&claim)), Some(claim));
    assert_eq!(rotated.open::<ReservationClaim>(&Signer::new(oldest, None).seal(&claim)), None);
    assert_eq!(Signer::new(older, None).open::<ReservationClaim>(&rotated.seal(&claim)), None);
    assert!(rotated.would_seal_again(&rotated.seal(&claim)));
    assert!(!rotated.would_seal_again(&Signer::new(older, Some(oldest)).seal(&claim)), "it is due for the new key");
}

/// R5: the same caller and key are the same thing on every replica; anything else is another thing.
#[test]
fn derived_ids_depend_on_all_they_are_derived_from() {
    let (one, other) = (Some(UserKey::from_name("one")), Some(UserKey::from_name("other")));
    let signer = signer();
    assert_eq!(signer.advertisement_id(one, SetId(1), "k"), signer.clone().advertisement_id(one, SetId(1), "k"));
    let ids: BTreeSet<[u8; 16]> = [
        signer.advertisement_id(one, SetId(1), "k"),
        signer.advertisement_id(other, SetId(1), "k"),
        signer.advertisement_id(None, SetId(1), "k"),
        signer.advertisement_id(Some(UserKey::from_bytes([0; 16])), SetId(1), "k"),
        signer.advertisement_id(one, SetId(2), "k"),
        signer.advertisement_id(one, SetId(1), "k2"),
        Signer::new([9; KEY_BYTES], None).advertisement_id(one, SetId(1), "k"),
    ]
    .iter()
    .map(|id| *id.as_bytes())
    .chain([*signer.reservation_id(one, AdvertisementId::from_bytes([1; 16]), "k").as_bytes()])
    .chain([*signer.reservation_id(one, AdvertisementId::from_bytes([2; 16]), "k").as_bytes()])
    .chain([*signer.reservation_id(None, AdvertisementId::from_bytes([1; 16]), "k").as_bytes()])
    .chain([*signer.reservation_id(one, AdvertisementId::from_bytes([1; 16]), "").as_bytes()])
    .collect();
    assert_eq!(ids.len(), 11);
}

#[test]
fn a_party_is_its_caller_its_users_and_its_sizes() {
    let [a, b] = [UserKey::from_name("a"), UserKey::from_name("b")];
    let digests: BTreeSet<[u8; 16]> = [
        Signer::party_digest(None, &[a, b], &[2]),
        Signer::party_digest(Some(a), &[a, b], &[2]),
        Signer::party_digest(None, &[a], &[2]),
        Signer::party_digest(None, &[a, b], &[1, 1]),
        Signer::party_digest(None, &[], &[2]),
    ]
    .into();
    assert_eq!(digests.len(), 5);
    assert_eq!(Signer::party_digest(None, &[a, b], &[2]), Signer::party_digest(None, &[a, b], &[2]));
}

/// SEC-9: a key must not reach a log by way of `{:?}`.
#[test]
fn a_signer_does_not_show_its_keys() {
    let shown = format!("{:?}", Signer::new([0xab; KEY_BYTES], Some([0xcd; KEY_BYTES])));
    assert_eq!(shown, "Signer { keys: 2, .. }");
}

/// HMAC-SHA256 by hand for one fixed token, as Python's hmac module computed it: replicas of two versions must agree.
#[test]
fn the_layout_does_not_change_unnoticed() {
    let claim = ReservationClaim {
        id: ReservationId::from_bytes([0x11; 16]),
        advertisement_id: AdvertisementId::from_bytes([0x22; 16]),
        set_id: SetId(0x0a0b_0c0d),
        subject: Some(UserKey::from_bytes([0x33; 16])),
    };
    let hex: String = signer().seal(&claim).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(
        hex,
        concat!(
            "0104fdd716d511111111111111111111111111111111222222222222222222222222222222220a0b0c0d013333",
            "333333333333333333333333333376f8189aa4a412a42f8bc4956e9fba17"
        )
    );
}
