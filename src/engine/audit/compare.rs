//! What two pictures of one advertisement differ in: memory's and the store's, memory's and its indices'.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::domain::id::{ReservationId, SetId};
use crate::domain::index::Entry;
use crate::domain::ruleset::Ruleset;
use crate::domain::time::UnixMs;
use crate::engine::command::DifferenceKind;
use crate::engine::shelf::{Record, Shelf, entry};
use crate::store::{Reservation, ReservationState, StoredAdvertisement};

/// What memory has under one name.
#[derive(Clone, Debug)]
pub(super) struct Held {
    /// The record; none where there is none.
    pub(super) record: Option<Record>,
    /// Every index shows what the record says, and none shows what is not there.
    pub(super) indexed: bool,
}

/// What the store has under one name.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Stored {
    /// An advertisement.
    There(StoredAdvertisement),
    /// A row that makes no sense.
    Unreadable,
}

/// In what the two differ. What nobody can see any more, because its time is over, may be on one side alone; what the store
/// has yet to be told of is not compared with it. Versions and holders count where servers share the store.
pub(super) fn differences(held: &Held, stored: Option<&Stored>, shared: bool, now: UnixMs) -> Vec<DifferenceKind> {
    use DifferenceKind as Kind;
    let mut kinds = Vec::new();
    match (&held.record, stored) {
        (Some(record), _) if record.pending => {}
        (_, Some(Stored::Unreadable)) => kinds.push(Kind::Unreadable),
        (None, None) => {}
        (None, Some(Stored::There(stored))) if stored.expires <= now => {}
        (None, Some(Stored::There(_))) => kinds.push(Kind::MissingInMemory),
        (Some(record), None) if record.expires <= now => {}
        (Some(_), None) => kinds.push(Kind::MissingInStore),
        (Some(record), Some(Stored::There(stored))) => {
            let short = record.held && stored.expires < record.expires;
            let found = [
                (Kind::Version, shared && record.version != stored.version),
                (Kind::Content, record.advertisement != stored.advertisement),
                (Kind::Seats, seats(&record.reservations) != seats(&stored.reservations)),
                (Kind::Expiry, short || record.stored_expires != stored.expires),
                (Kind::Holder, shared && record.held != stored.held_here),
            ];
            kinds.extend(found.into_iter().filter(|(_, differs)| *differs).map(|(kind, _)| kind));
        }
    }
    if !held.indexed {
        kinds.push(Kind::Index);
    }
    kinds
}

/// Reservations that take seats. Each side forgets ended ones in its own time.
fn seats(all: &[Reservation]) -> BTreeMap<ReservationId, &Reservation> {
    let live = all.iter().filter(|reservation| reservation.state != ReservationState::Ended);
    live.map(|reservation| (reservation.id, reservation)).collect()
}

/// Whether nothing has happened to an advertisement between two looks at memory. Heartbeats that the store need not hear of
/// are nothing.
pub(super) fn is_still(before: &Held, after: &Held) -> bool {
    before.indexed == after.indexed
        && match (&before.record, &after.record) {
            (Some(before), Some(after)) => {
                (before.version, before.held, before.pending) == (after.version, after.held, after.pending)
                    && before.stored_expires == after.stored_expires
                    && before.advertisement == after.advertisement
                    && before.reservations == after.reservations
            }
            (before, after) => before.is_none() && after.is_none(),
        }
}

/// Whether every ruleset of `living` that rules the set has an index, and each index of `shelf` shows `record` as it is.
pub(super) fn is_indexed(shelf: &Shelf, record: &Record, set_id: SetId, living: &[Arc<Ruleset>]) -> bool {
    let id = record.advertisement.id;
    let mut rulesets = living.iter().filter(|ruleset| ruleset.set_id == set_id);
    rulesets.all(|ruleset| shelf.view(ruleset.hash).is_some())
        && shelf.views().iter().all(|view| {
            let shown = view.get(id).is_some_and(|shown| is_same(shown, &entry(record, view.ruleset())));
            shown && view.is_sound(id)
        })
}

fn is_same(shown: &Entry, right: &Entry) -> bool {
    (shown.expires, shown.open_seats) == (right.expires, right.open_seats)
        && shown.facts == right.facts
        && shown.advertisement == right.advertisement
        && shown.encoded == right.encoded
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::advertisement::{Advertisement, Kind};
    use crate::domain::id::{AdvertisementId, RulesetHash};
    use crate::domain::session::Session;
    use crate::engine::shelf::build_view;
    use crate::rules::bundled;
    use crate::store::Version;

    const NOW: UnixMs = UnixMs(1_000);

    fn reservation(state: ReservationState, until: u64) -> Reservation {
        Reservation {
            id: ReservationId::from_bytes([2; 16]),
            advertisement_id: AdvertisementId::from_bytes([1; 16]),
            seats: 2,
            users: Vec::new(),
            payload: [0; 16],
            state,
            until: UnixMs(until),
        }
    }

    fn record() -> Record {
        let advertisement = Arc::new(Advertisement {
            id: AdvertisementId::from_bytes([1; 16]),
            set_id: SetId(1),
            kind: Kind::Session,
            subject: None,
            since: UnixMs(10),
            hash: RulesetHash(3),
            session: Session { join_seats: 4, ..Session::default() },
            allowed: Vec::new(),
            connect_data: b"here".to_vec(),
        });
        Record {
            advertisement,
            expires: UnixMs(1_500),
            stored_expires: UnixMs(2_000),
            time_to_live_ms: 500,
            encoded: Arc::from([]),
            reservations: vec![reservation(ReservationState::Held, 1_200)],
            version: Version(7),
            held: true,
            pending: false,
        }
    }

    fn stored() -> StoredAdvertisement {
        let Record { advertisement, stored_expires: expires, reservations, version, .. } = record();
        StoredAdvertisement { advertisement, expires, reservations, version, held_here: true }
    }

    fn check(record: Option<Record>, stored: Option<StoredAdvertisement>, expected: &[DifferenceKind]) {
        let held = Held { record, indexed: true };
        let stored = stored.map(Stored::There);
        assert_eq!(differences(&held, stored.as_ref(), true, NOW), expected, "{held:?} {stored:?}");
    }

    /// R9: each way in which memory and store can differ has a name, and what is none has none.
    #[test]
    fn every_difference_has_its_name() {
        use DifferenceKind as Kind;
        check(Some(record()), Some(stored()), &[]);
        check(None, None, &[]);
        check(None, Some(stored()), &[Kind::MissingInMemory]);
        check(Some(record()), None, &[Kind::MissingInStore]);
        let told = |change: fn(&mut StoredAdvertisement)| {
            let mut stored = stored();
            change(&mut stored);
            Some(stored)
        };
        check(Some(record()), told(|it| it.version = Version(8)), &[Kind::Version]);
        check(Some(record()), told(|it| Arc::make_mut(&mut it.advertisement).connect_data.clear()), &[Kind::Content]);
        check(Some(record()), told(|it| it.reservations.clear()), &[Kind::Seats]);
        check(Some(record()), told(|it| it.reservations[0].state = ReservationState::Confirmed), &[Kind::Seats]);
        check(Some(record()), told(|it| it.reservations[0].state = ReservationState::Ended), &[Kind::Seats]);
        check(Some(record()), told(|it| it.expires = UnixMs(2_001)), &[Kind::Expiry]);
        check(Some(record()), told(|it| it.held_here = false), &[Kind::Holder]);
        let ended = told(|it| {
            it.reservations.push(Reservation {
                id: ReservationId::from_bytes([9; 16]),
                ..reservation(ReservationState::Ended, 9_000)
            })
        });
        check(Some(record()), ended, &[]);

        let short = |expires| Some(Record { stored_expires: UnixMs(1_400), expires: UnixMs(expires), ..record() });
        check(short(1_400), told(|it| it.expires = UnixMs(1_400)), &[]);
        check(short(1_401), told(|it| it.expires = UnixMs(1_400)), &[Kind::Expiry]);

        let pending = Some(Record { pending: true, ..record() });
        check(pending.clone(), None, &[]);
        check(pending, told(|it| it.version = Version(8)), &[]);
        check(None, told(|it| it.expires = NOW), &[]);
        check(Some(Record { expires: NOW, ..record() }), None, &[]);

        let astray = Held { record: None, indexed: false };
        assert_eq!(differences(&astray, None, true, NOW), [Kind::Index]);
        let whole = Held { record: Some(record()), indexed: true };
        assert_eq!(differences(&whole, Some(&Stored::Unreadable), true, NOW), [Kind::Unreadable]);
        let alone = told(|it| (it.version, it.held_here) = (Version::default(), false));
        assert_eq!(differences(&whole, alone.map(Stored::There).as_ref(), false, NOW), []);
    }

    /// R9: an index that shows something else than memory, or is missing, is noticed.
    #[test]
    fn an_index_that_shows_something_else_is_noticed() {
        let ruleset = Arc::clone(&bundled::load().unwrap()[0].1);
        let (set_id, living) = (ruleset.set_id, [Arc::clone(&ruleset)]);
        let mut shelf = Shelf::default();
        shelf.put(record());
        assert!(!is_indexed(&shelf, &record(), set_id, &living), "the ruleset has no index");
        assert!(is_indexed(&shelf, &record(), set_id, &[]), "nor needs one when it has been forgotten");
        let records: Vec<Record> = shelf.records().cloned().collect();
        shelf.end_view(build_view(&ruleset, &records));
        assert!(is_indexed(&shelf, &record(), set_id, &living));

        let changes: [fn(&mut Record); 5] = [
            |it| it.reservations.clear(),
            |it| it.expires = UnixMs(1_501),
            |it| Arc::make_mut(&mut it.advertisement).connect_data.clear(),
            |it| it.encoded = Arc::from([1]),
            |it| Arc::make_mut(&mut it.advertisement).id = AdvertisementId::from_bytes([8; 16]),
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let mut other = record();
            change(&mut other);
            assert!(!is_indexed(&shelf, &other, set_id, &living), "change {number}");
        }
    }
}
