//! What two pictures of one advertisement differ in: memory's and the store's, memory's and its indices'.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::domain::id::{ReservationId, SetId};
use crate::domain::index::IndexEntry;
use crate::domain::ruleset::Ruleset;
use crate::domain::time::UnixMs;
use crate::engine::adverts::advert_set::{AdvertRecord, AdvertSet, index_entry};
use crate::engine::command::InconsistencyKind;
use crate::store::{Reservation, ReservationState, StoredAdvertisement};

/// What memory has under one name.
#[derive(Clone, Debug)]
pub(super) struct MemoryState {
    /// The record; none where there is none.
    pub(super) record: Option<AdvertRecord>,
    /// Every index shows what the record says, and none shows what is not there.
    pub(super) is_index_correct: bool,
}

/// What the store has under one name.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum StoredState {
    /// An advertisement.
    Present(StoredAdvertisement),
    /// A row that makes no sense.
    Unreadable,
}

/// In what the two differ. What nobody can see any more, because its time is over, may be on one side alone; what the store
/// has yet to be told of is not compared with it. Versions and holders count where servers share the store.
pub(super) fn inconsistency_kinds(
    held: &MemoryState,
    stored: Option<&StoredState>,
    shared: bool,
    now: UnixMs,
) -> Vec<InconsistencyKind> {
    use InconsistencyKind as Kind;
    let mut kinds = Vec::new();
    match (&held.record, stored) {
        (Some(record), _) if record.is_unwritten => {}
        (_, Some(StoredState::Unreadable)) => kinds.push(Kind::Unreadable),
        (None, None) => {}
        (None, Some(StoredState::Present(stored))) if stored.expires_at <= now => {}
        (None, Some(StoredState::Present(_))) => kinds.push(Kind::MissingInMemory),
        (Some(record), None) if record.expires_at <= now => {}
        (Some(_), None) => kinds.push(Kind::MissingInStore),
        (Some(record), Some(StoredState::Present(stored))) => {
            let short = record.is_heartbeat_owner && stored.expires_at < record.expires_at;
            let found = [
                (Kind::Version, shared && record.version != stored.version),
                (Kind::Content, record.advertisement != stored.advertisement),
                (
                    Kind::Reservations,
                    unended_reservations(&record.reservations) != unended_reservations(&stored.reservations),
                ),
                (Kind::Expiry, short || record.stored_expires_at != stored.expires_at),
                (Kind::HeartbeatOwner, shared && record.is_heartbeat_owner != stored.is_heartbeat_owner),
            ];
            kinds.extend(found.into_iter().filter(|(_, differs)| *differs).map(|(kind, _)| kind));
        }
    }
    if !held.is_index_correct {
        kinds.push(Kind::Index);
    }
    kinds
}

/// Reservations that take seats. Each side forgets ended ones in its own time.
fn unended_reservations(all: &[Reservation]) -> BTreeMap<ReservationId, &Reservation> {
    let live = all.iter().filter(|reservation| reservation.state != ReservationState::Ended);
    live.map(|reservation| (reservation.id, reservation)).collect()
}

/// Whether nothing has happened to an advertisement between two looks at memory. Heartbeats that the store need not hear of
/// are nothing.
pub(super) fn is_unchanged(before: &MemoryState, after: &MemoryState) -> bool {
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

/// Whether every ruleset of `living` that rules the set has an index, and each index of `shelf` shows `record` as it is.
pub(super) fn are_indexes_correct(
    shelf: &AdvertSet,
    record: &AdvertRecord,
    set_id: SetId,
    living: &[Arc<Ruleset>],
) -> bool {
    let id = record.advertisement.id;
    let mut rulesets = living.iter().filter(|ruleset| ruleset.set_id == set_id);
    rulesets.all(|ruleset| shelf.index_of_ruleset(ruleset.hash).is_some())
        && shelf.indexes().iter().all(|view| {
            let shown = view.get(id).is_some_and(|shown| is_same_entry(shown, &index_entry(record, view.ruleset())));
            shown && view.is_consistent(id)
        })
}

fn is_same_entry(shown: &IndexEntry, right: &IndexEntry) -> bool {
    (shown.expires_at, shown.open_seats) == (right.expires_at, right.open_seats)
        && shown.attribute_values == right.attribute_values
        && shown.advertisement == right.advertisement
        && shown.encoded_response == right.encoded_response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::advertisement::{Advertisement, AdvertisementKind};
    use crate::domain::id::{AdvertisementId, RulesetHash};
    use crate::domain::session::Session;
    use crate::engine::adverts::advert_set::build_index;
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
            deadline: UnixMs(until),
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
            session: Session { join_seats: 4, ..Session::default() },
            allowed_ranges: Vec::new(),
            connect_data: b"here".to_vec(),
        });
        AdvertRecord {
            advertisement,
            expires_at: UnixMs(1_500),
            stored_expires_at: UnixMs(2_000),
            ttl_ms: 500,
            encoded_advert: Arc::from([]),
            reservations: vec![test_reservation(ReservationState::Held, 1_200)],
            version: AdvertVersion(7),
            is_heartbeat_owner: true,
            is_unwritten: false,
        }
    }

    fn test_stored_advert() -> StoredAdvertisement {
        let AdvertRecord { advertisement, stored_expires_at: expires, reservations, version, .. } = test_record();
        StoredAdvertisement { advertisement, expires_at: expires, reservations, version, is_heartbeat_owner: true }
    }

    fn check_kinds(record: Option<AdvertRecord>, stored: Option<StoredAdvertisement>, expected: &[InconsistencyKind]) {
        let held = MemoryState { record, is_index_correct: true };
        let stored = stored.map(StoredState::Present);
        assert_eq!(inconsistency_kinds(&held, stored.as_ref(), true, NOW), expected, "{held:?} {stored:?}");
    }

    /// R9: each way in which memory and store can differ has a name, and what is none has none.
    #[test]
    fn consistency_check_names_each_kind_of_inconsistency() {
        use InconsistencyKind as Kind;
        check_kinds(Some(test_record()), Some(test_stored_advert()), &[]);
        check_kinds(None, None, &[]);
        check_kinds(None, Some(test_stored_advert()), &[InconsistencyKind::MissingInMemory]);
        check_kinds(Some(test_record()), None, &[InconsistencyKind::MissingInStore]);
        let told = |change: fn(&mut StoredAdvertisement)| {
            let mut stored = test_stored_advert();
            change(&mut stored);
            Some(stored)
        };
        check_kinds(Some(test_record()), told(|it| it.version = AdvertVersion(8)), &[InconsistencyKind::Version]);
        check_kinds(
            Some(test_record()),
            told(|it| Arc::make_mut(&mut it.advertisement).connect_data.clear()),
            &[InconsistencyKind::Content],
        );
        check_kinds(Some(test_record()), told(|it| it.reservations.clear()), &[InconsistencyKind::Reservations]);
        check_kinds(
            Some(test_record()),
            told(|it| it.reservations[0].state = ReservationState::Confirmed),
            &[InconsistencyKind::Reservations],
        );
        check_kinds(
            Some(test_record()),
            told(|it| it.reservations[0].state = ReservationState::Ended),
            &[InconsistencyKind::Reservations],
        );
        check_kinds(Some(test_record()), told(|it| it.expires_at = UnixMs(2_001)), &[InconsistencyKind::Expiry]);
        check_kinds(
            Some(test_record()),
            told(|it| it.is_heartbeat_owner = false),
            &[InconsistencyKind::HeartbeatOwner],
        );
        let ended = told(|it| {
            it.reservations.push(Reservation {
                id: ReservationId::from_bytes([9; 16]),
                ..test_reservation(ReservationState::Ended, 9_000)
            })
        });
        check_kinds(Some(test_record()), ended, &[]);

        let short = |expires| {
            Some(AdvertRecord { stored_expires_at: UnixMs(1_400), expires_at: UnixMs(expires), ..test_record() })
        };
        check_kinds(short(1_400), told(|it| it.expires_at = UnixMs(1_400)), &[]);
        check_kinds(short(1_401), told(|it| it.expires_at = UnixMs(1_400)), &[InconsistencyKind::Expiry]);

        let pending = Some(AdvertRecord { is_unwritten: true, ..test_record() });
        check_kinds(pending.clone(), None, &[]);
        check_kinds(pending, told(|it| it.version = AdvertVersion(8)), &[]);
        check_kinds(None, told(|it| it.expires_at = NOW), &[]);
        check_kinds(Some(AdvertRecord { expires_at: NOW, ..test_record() }), None, &[]);

        let astray = MemoryState { record: None, is_index_correct: false };
        assert_eq!(inconsistency_kinds(&astray, None, true, NOW), [Kind::Index]);
        let whole = MemoryState { record: Some(test_record()), is_index_correct: true };
        assert_eq!(inconsistency_kinds(&whole, Some(&StoredState::Unreadable), true, NOW), [Kind::Unreadable]);
        let alone = told(|it| (it.version, it.is_heartbeat_owner) = (AdvertVersion::default(), false));
        assert_eq!(inconsistency_kinds(&whole, alone.map(StoredState::Present).as_ref(), false, NOW), []);
    }

    /// R9: an index that shows something else than memory, or is missing, is noticed.
    #[test]
    fn consistency_check_detects_a_wrong_or_missing_index() {
        let ruleset = Arc::clone(&bundled::load_bundled().unwrap()[0].1);
        let (set_id, living) = (ruleset.set_id, [Arc::clone(&ruleset)]);
        let mut shelf = AdvertSet::default();
        shelf.upsert(test_record());
        assert!(!are_indexes_correct(&shelf, &test_record(), set_id, &living), "the ruleset has no index");
        assert!(are_indexes_correct(&shelf, &test_record(), set_id, &[]), "nor needs one when it has been forgotten");
        let records: Vec<AdvertRecord> = shelf.records().cloned().collect();
        shelf.finish_index_build(build_index(&ruleset, &records));
        assert!(are_indexes_correct(&shelf, &test_record(), set_id, &living));

        let changes: [fn(&mut AdvertRecord); 5] = [
            |it| it.reservations.clear(),
            |it| it.expires_at = UnixMs(1_501),
            |it| Arc::make_mut(&mut it.advertisement).connect_data.clear(),
            |it| it.encoded_advert = Arc::from([1]),
            |it| Arc::make_mut(&mut it.advertisement).id = AdvertisementId::from_bytes([8; 16]),
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let mut other = test_record();
            change(&mut other);
            assert!(!are_indexes_correct(&shelf, &other, set_id, &living), "change {number}");
        }
    }
}
