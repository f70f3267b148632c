//! Comparison of one advertisement in memory with its stored row and with the indexes.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::domain::id::{ReservationId, SetId};
use crate::domain::index::IndexEntry;
use crate::domain::ruleset::Ruleset;
use crate::domain::time::UnixMs;
use crate::engine::adverts::advert_set::{AdvertRecord, AdvertSet};
use crate::engine::command::InconsistencyKind;
use crate::store::{Reservation, ReservationState, StoredAdvertisement};

/// State of one advertisement id in memory.
#[derive(Clone, Debug)]
pub(crate) struct MemoryAdvertState {
    /// Record, if any.
    pub(crate) record: Option<AdvertRecord>,
    /// Every index matches the record, and no index has an entry without a record.
    pub(crate) is_index_correct: bool,
}

/// State of one advertisement id in the store.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum StoredAdvertState {
    /// Decoded row.
    Present(StoredAdvertisement),
    /// Row that cannot be decoded.
    Unreadable,
}

/// Kinds of inconsistency between memory and the store.
///
/// An expired advertisement may exist on one side only. Unwritten records are not compared with the store. Versions and
/// heartbeat owners are compared only if replicas share the store.
pub(crate) fn inconsistency_kinds(
    memory: &MemoryAdvertState,
    stored: Option<&StoredAdvertState>,
    is_shared_store: bool,
    now: UnixMs,
) -> Vec<InconsistencyKind> {
    use InconsistencyKind as Kind;
    let mut kinds = Vec::new();
    match (&memory.record, stored) {
        (Some(record), _) if record.is_unwritten => {}
        (_, Some(StoredAdvertState::Unreadable)) => kinds.push(Kind::Unreadable),
        (None, None) => {}
        (None, Some(StoredAdvertState::Present(stored))) if stored.expires_at <= now => {}
        (None, Some(StoredAdvertState::Present(_))) => kinds.push(Kind::MissingInMemory),
        (Some(record), None) if record.expires_at <= now => {}
        (Some(_), None) => kinds.push(Kind::MissingInStore),
        (Some(record), Some(StoredAdvertState::Present(stored))) => {
            let is_too_early = record.is_heartbeat_owner && stored.expires_at < record.expires_at;
            let comparisons = [
                (Kind::Version, is_shared_store && record.version != stored.version),
                (Kind::Content, record.advertisement != stored.advertisement),
                (
                    Kind::Reservations,
                    unended_reservations(&record.reservations) != unended_reservations(&stored.reservations),
                ),
                (Kind::Expiry, is_too_early || record.stored_expires_at != stored.expires_at),
                (Kind::HeartbeatOwner, is_shared_store && record.is_heartbeat_owner != stored.is_heartbeat_owner),
            ];
            kinds.extend(comparisons.into_iter().filter(|(_, differs)| *differs).map(|(kind, _)| kind));
        }
    }
    if !memory.is_index_correct {
        kinds.push(Kind::Index);
    }
    kinds
}

/// Reservations that hold seats. Ended ones are purged at different times in memory and store.
fn unended_reservations(reservations: &[Reservation]) -> BTreeMap<ReservationId, &Reservation> {
    let unended = reservations.iter().filter(|reservation| reservation.state != ReservationState::Ended);
    unended.map(|reservation| (reservation.id, reservation)).collect()
}

/// Whether an advertisement is unchanged between two reads of memory. Heartbeats that need no write do not count.
pub(crate) fn is_unchanged(before: &MemoryAdvertState, after: &MemoryAdvertState) -> bool {
    before.is_index_correct == after.is_index_correct
        && match (&before.record, &after.record) {
            (Some(before), Some(after)) => {
                (before.version, before.is_heartbeat_owner, before.is_unwritten)
                    == (after.version, after.is_heartbeat_owner, after.is_unwritten)
                    && before.stored_expires_at == after.stored_expires_at
                    && before.advertisement == after.advertisement
                    && before.reservations == after.reservations
            }
            (before, after) => before.is_none() && after.is_none(),
        }
}

/// Whether `set` has an index for each cached ruleset of the set, and each index matches `record`.
pub(crate) fn indexes_match_record(
    set: &AdvertSet,
    record: &AdvertRecord,
    set_id: SetId,
    cached_rulesets: &[Arc<Ruleset>],
) -> bool {
    let id = record.advertisement.id;
    let mut rulesets = cached_rulesets.iter().filter(|ruleset| ruleset.set_id == set_id);
    rulesets.all(|ruleset| set.index_of_ruleset(ruleset.hash).is_some())
        && set.indexes().iter().all(|index| {
            // Values that depend on the standing of players follow it with a delay, and are not compared.
            let expected = set.build_index_entry(record, index.ruleset());
            let is_same = |actual: &IndexEntry| is_same_except_standings(actual, &expected, index.ruleset());
            index.get(id).is_some_and(is_same) && index.is_entry_consistent(id)
        })
}

fn is_same_except_standings(actual: &IndexEntry, expected: &IndexEntry, ruleset: &Ruleset) -> bool {
    (actual.expires_at, actual.open_seats) == (expected.expires_at, expected.open_seats)
        && actual.attribute_values.equals_without_standings(&expected.attribute_values, ruleset)
        && actual.advertisement == expected.advertisement
}

#[cfg(test)]
mod tests {
    use thin_vec::thin_vec;

    use super::*;
    use crate::clock::SystemClock;
    use crate::domain::advertisement::{Advertisement, AdvertisementKind};
    use crate::domain::id::{AdvertisementId, RulesetHash};
    use crate::domain::session::Session;
    use crate::engine::adverts::advert_set::build_index;
    use crate::engine::party_values::PartyValueReader;
    use crate::rules::bundled;
    use crate::store::AdvertVersion;

    const NOW: UnixMs = UnixMs(1_000);

    fn test_reservation(state: ReservationState, until: u64) -> Reservation {
        Reservation {
            id: ReservationId::from_bytes([2; 16]),
            advertisement_id: AdvertisementId::from_bytes([1; 16]),
            seats: 2,
            users: Vec::new(),
            request_digest: [0; 16],
            state,
            has_joined: false,
            expires_or_purge_at: UnixMs(until),
            owner: None,
        }
    }

    fn test_record() -> AdvertRecord {
        let advertisement = Arc::new(Advertisement {
            id: AdvertisementId::from_bytes([1; 16]),
            set_id: SetId(1),
            kind: AdvertisementKind::Session,
            publisher: None,
            advertised_since: UnixMs(10),
            ruleset_hash: RulesetHash(3),
            session: Session { offered_seats: 4, ..Session::default() },
            ttl_ms: None,
            allowed_ranges: Box::default(),
            connect_data: b"here".as_slice().into(),
            probe: None,
        });
        AdvertRecord {
            advertisement,
            expires_at: UnixMs(1_500),
            stored_expires_at: UnixMs(2_000),
            ttl_ms: 500,
            reservations: thin_vec![test_reservation(ReservationState::Held, 1_200)],
            version: AdvertVersion(7),
            is_heartbeat_owner: true,
            is_unwritten: false,
        }
    }

    fn test_stored_advert() -> StoredAdvertisement {
        let AdvertRecord { advertisement, stored_expires_at: expires, reservations, version, .. } = test_record();
        StoredAdvertisement {
            advertisement,
            expires_at: expires,
            reservations: reservations.into(),
            version,
            is_heartbeat_owner: true,
        }
    }

    fn check_kinds(record: Option<AdvertRecord>, stored: Option<StoredAdvertisement>, expected: &[InconsistencyKind]) {
        let memory = MemoryAdvertState { record, is_index_correct: true };
        let stored = stored.map(StoredAdvertState::Present);
        assert_eq!(inconsistency_kinds(&memory, stored.as_ref(), true, NOW), expected, "{memory:?} {stored:?}");
    }

    /// R9: each kind of inconsistency is named, and consistent states report none.
    #[test]
    fn consistency_check_names_each_kind_of_inconsistency() {
        use InconsistencyKind as Kind;
        check_kinds(Some(test_record()), Some(test_stored_advert()), &[]);
        check_kinds(None, None, &[]);
        check_kinds(None, Some(test_stored_advert()), &[Kind::MissingInMemory]);
        check_kinds(Some(test_record()), None, &[Kind::MissingInStore]);
        let stored_with = |change: fn(&mut StoredAdvertisement)| {
            let mut stored = test_stored_advert();
            change(&mut stored);
            Some(stored)
        };
        check_kinds(Some(test_record()), stored_with(|stored| stored.version = AdvertVersion(8)), &[Kind::Version]);
        check_kinds(
            Some(test_record()),
            stored_with(|stored| Arc::make_mut(&mut stored.advertisement).connect_data = Box::default()),
            &[Kind::Content],
        );
        check_kinds(Some(test_record()), stored_with(|stored| stored.reservations.clear()), &[Kind::Reservations]);
        check_kinds(
            Some(test_record()),
            stored_with(|stored| stored.reservations[0].state = ReservationState::Confirmed),
            &[Kind::Reservations],
        );
        check_kinds(
            Some(test_record()),
            stored_with(|stored| stored.reservations[0].state = ReservationState::Ended),
            &[Kind::Reservations],
        );
        check_kinds(Some(test_record()), stored_with(|stored| stored.expires_at = UnixMs(2_001)), &[Kind::Expiry]);
        check_kinds(
            Some(test_record()),
            stored_with(|stored| stored.is_heartbeat_owner = false),
            &[Kind::HeartbeatOwner],
        );
        let with_ended = stored_with(|stored| {
            stored.reservations.push(Reservation {
                id: ReservationId::from_bytes([9; 16]),
                ..test_reservation(ReservationState::Ended, 9_000)
            })
        });
        check_kinds(Some(test_record()), with_ended, &[]);

        let stored_until_1400 = |expires_at| {
            Some(AdvertRecord { stored_expires_at: UnixMs(1_400), expires_at: UnixMs(expires_at), ..test_record() })
        };
        check_kinds(stored_until_1400(1_400), stored_with(|stored| stored.expires_at = UnixMs(1_400)), &[]);
        check_kinds(stored_until_1400(1_401), stored_with(|stored| stored.expires_at = UnixMs(1_400)), &[Kind::Expiry]);

        let unwritten = Some(AdvertRecord { is_unwritten: true, ..test_record() });
        check_kinds(unwritten.clone(), None, &[]);
        check_kinds(unwritten, stored_with(|stored| stored.version = AdvertVersion(8)), &[]);
        check_kinds(None, stored_with(|stored| stored.expires_at = NOW), &[]);
        check_kinds(Some(AdvertRecord { expires_at: NOW, ..test_record() }), None, &[]);

        let orphan = MemoryAdvertState { record: None, is_index_correct: false };
        assert_eq!(inconsistency_kinds(&orphan, None, true, NOW), [Kind::Index]);
        let present = MemoryAdvertState { record: Some(test_record()), is_index_correct: true };
        assert_eq!(inconsistency_kinds(&present, Some(&StoredAdvertState::Unreadable), true, NOW), [Kind::Unreadable]);
        let unshared =
            stored_with(|stored| (stored.version, stored.is_heartbeat_owner) = (AdvertVersion::default(), false));
        assert_eq!(inconsistency_kinds(&present, unshared.map(StoredAdvertState::Present).as_ref(), false, NOW), []);
    }

    /// R9: an index that differs from memory, or is missing, is detected.
    #[test]
    fn consistency_check_detects_a_wrong_or_missing_index() {
        let ruleset = Arc::clone(&bundled::load_bundled().unwrap()[0].1);
        let party_values = PartyValueReader::new(Arc::default(), Arc::new(SystemClock::start()));
        let (set_id, cached_rulesets) = (ruleset.set_id, [Arc::clone(&ruleset)]);
        let mut set = AdvertSet::new(Arc::default(), party_values.clone());
        set.upsert(test_record());
        assert!(!indexes_match_record(&set, &test_record(), set_id, &cached_rulesets), "the ruleset has no index");
        assert!(indexes_match_record(&set, &test_record(), set_id, &[]), "a purged ruleset needs no index");
        let records: Vec<AdvertRecord> = set.records().cloned().collect();
        set.finish_index_build(build_index(&ruleset, &records, &party_values));
        assert!(indexes_match_record(&set, &test_record(), set_id, &cached_rulesets));

        let changes: [fn(&mut AdvertRecord); 4] = [
            |stored| stored.reservations.clear(),
            |stored| stored.expires_at = UnixMs(1_501),
            |stored| Arc::make_mut(&mut stored.advertisement).connect_data = Box::default(),
            |stored| Arc::make_mut(&mut stored.advertisement).id = AdvertisementId::from_bytes([8; 16]),
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let mut other = test_record();
            change(&mut other);
            assert!(!indexes_match_record(&set, &other, set_id, &cached_rulesets), "change {number}");
        }
    }
}
