//! One set's advertisements in memory: the records, which are the truth here, and an index for every living ruleset.

use std::collections::hash_map::Entry as MapEntry;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::domain::advertisement::Advertisement;
use crate::domain::attribute_values::AttributeValues;
use crate::domain::filter::AdvertisementView;
use crate::domain::id::{AdvertisementId, BuildIdHasher, ReservationId, RulesetHash, UserKey};
use crate::domain::index::{AdvertisementIndex, IndexEntry};
use crate::domain::ruleset::Ruleset;
use crate::domain::time::UnixMs;
use crate::store::{AdvertVersion, Reservation, ReservationState};

/// One advertisement and what changes under it.
#[derive(Clone, Debug)]
pub(in crate::engine) struct AdvertRecord {
    pub(in crate::engine) advertisement: Arc<Advertisement>,
    /// What was acknowledged to the host.
    pub(in crate::engine) expires_at: UnixMs,
    /// What the store has: never before `expires`, so that a restart forgets nothing that was promised.
    pub(in crate::engine) stored_expires_at: UnixMs,
    pub(in crate::engine) ttl_ms: u32,
    pub(in crate::engine) encoded_advert: Arc<[u8]>,
    pub(in crate::engine) reservations: Vec<Reservation>,
    /// The state in the store that this is.
    pub(in crate::engine) version: AdvertVersion,
    /// This server took its last heartbeat: `expires` is what its host was promised. Otherwise it is what is stored.
    pub(in crate::engine) is_heartbeat_owner: bool,
    /// The store has yet to be told of it.
    pub(in crate::engine) is_unwritten: bool,
}

impl AdvertRecord {
    /// Seats that nobody holds.
    pub(in crate::engine) fn open_seats(&self) -> u16 {
        let taken: u32 = self.unended_reservations().map(|reservation| u32::from(reservation.seats)).sum();
        self.advertisement.session.join_seats.saturating_sub(u16::try_from(taken).unwrap_or(u16::MAX))
    }

    /// Reservations that hold seats; a hold past its deadline does until the sweep has ended it.
    pub(in crate::engine) fn unended_reservations(&self) -> impl Iterator<Item = &Reservation> {
        self.reservations.iter().filter(|reservation| reservation.state != ReservationState::Ended)
    }

    /// Reservations that are good at `now`, swept or not.
    pub(in crate::engine) fn valid_reservations(&self, now: UnixMs) -> impl Iterator<Item = &Reservation> {
        self.unended_reservations().filter(move |reservation| !is_expired_hold(reservation, now))
    }

    /// Whether one of `users`, sorted, already has a seat coming, other than by reservation `but`.
    pub(in crate::engine) fn has_valid_reservation_for(
        &self,
        users: &[UserKey],
        but: ReservationId,
        now: UnixMs,
    ) -> bool {
        let theirs = |reservation: &Reservation| reservation.users.iter().any(|user| users.binary_search(user).is_ok());
        self.valid_reservations(now).any(|reservation| reservation.id != but && theirs(reservation))
    }
}

/// What publications have replaced. Giving it back takes as long as they do, and need not be done under the lock.
#[derive(Debug, Default)]
pub(in crate::engine) struct ReplacedRecords {
    records: Vec<AdvertRecord>,
    index_entries: Vec<IndexEntry>,
}

impl ReplacedRecords {
    /// Room for so many of each.
    pub(in crate::engine) fn with_capacity(records: usize, entries: usize) -> Self {
        Self { records: Vec::with_capacity(records), index_entries: Vec::with_capacity(entries) }
    }
}

/// The records of one set and their views.
#[derive(Debug, Default)]
pub(in crate::engine) struct AdvertSet {
    records: HashMap<AdvertisementId, AdvertRecord, BuildIdHasher>,
    indexes: Vec<AdvertisementIndex>,
    /// Held reservations by deadline, so that the sweep looks at those that are due and at no others.
    hold_expiries: BTreeSet<(UnixMs, AdvertisementId, ReservationId)>,
    /// While a new view is being built from a copy: whose expiry has changed since the copy was made.
    expiry_changes_during_build: Option<Vec<AdvertisementId>>,
    unended_reservation_count: usize,
}

impl AdvertSet {
    pub(in crate::engine) fn len(&self) -> usize {
        self.records.len()
    }

    /// Reservations that hold seats.
    pub(in crate::engine) fn unended_reservation_count(&self) -> usize {
        self.unended_reservation_count
    }

    pub(in crate::engine) fn get(&self, id: AdvertisementId) -> Option<&AdvertRecord> {
        self.records.get(&id)
    }

    /// All of them, in no order.
    pub(in crate::engine) fn records(&self) -> impl Iterator<Item = &AdvertRecord> {
        self.records.values()
    }

    /// Changes what no view shows of a record.
    pub(in crate::engine) fn update_unindexed(&mut self, id: AdvertisementId, mark: impl FnOnce(&mut AdvertRecord)) {
        if let Some(record) = self.records.get_mut(&id) {
            mark(record);
        }
    }

    /// The index whose facts are seen through the ruleset of that hash.
    pub(in crate::engine) fn index_of_ruleset(&self, hash: RulesetHash) -> Option<&AdvertisementIndex> {
        self.indexes.iter().find(|view| view.ruleset().hash == hash)
    }

    /// All views.
    pub(in crate::engine) fn indexes(&self) -> &[AdvertisementIndex] {
        &self.indexes
    }

    /// Any one view: all hold the same advertisements with the same expiries.
    pub(in crate::engine) fn first_index(&self) -> Option<&AdvertisementIndex> {
        self.indexes.first()
    }

    /// The rulesets of the views, in their order.
    pub(in crate::engine) fn indexed_rulesets(&self) -> Vec<Arc<Ruleset>> {
        self.indexes.iter().map(|view| Arc::clone(view.ruleset())).collect()
    }

    /// Reads what changes of `ids` are about to read, so that the machine fetches for many at once.
    pub(in crate::engine) fn prefetch(&self, ids: impl Iterator<Item = AdvertisementId> + Clone) {
        let records = ids.clone().filter_map(|id| self.records.get(&id));
        std::hint::black_box(records.fold(0, |sum, record| sum ^ record.expires_at.0));
        self.indexes.iter().for_each(|view| view.prefetch(ids.clone()));
    }

    /// Adds or replaces a record, in every view.
    pub(in crate::engine) fn upsert(&mut self, mut record: AdvertRecord) {
        let entries: Vec<IndexEntry> = self.indexes.iter().map(|view| index_entry(&record, view.ruleset())).collect();
        let kept = std::mem::take(&mut record.reservations);
        self.upsert_with_entries(record, &mut entries.into_iter(), |all| *all = kept, &mut ReplacedRecords::default());
    }

    /// Adds or replaces a record, with the next of `entries` for each view. What is replaced leaves its reservations to
    /// it, as `change` makes them, and the rest to `replaced`.
    pub(in crate::engine) fn upsert_with_entries<T>(
        &mut self,
        mut record: AdvertRecord,
        entries: &mut impl Iterator<Item = IndexEntry>,
        change: impl FnOnce(&mut Vec<Reservation>) -> T,
        replaced: &mut ReplacedRecords,
    ) -> (&AdvertRecord, T) {
        let known = self.records.entry(record.advertisement.id);
        if let MapEntry::Occupied(old) = &known {
            let old = old.get();
            unschedule_hold_expiries(&mut self.hold_expiries, old);
            self.unended_reservation_count -= old.unended_reservations().count();
            record.reservations.clone_from(&old.reservations);
        }
        let changed = change(&mut record.reservations);
        schedule_hold_expiries(&mut self.hold_expiries, &record);
        self.unended_reservation_count += record.unended_reservations().count();
        let open_seats = record.open_seats();
        for (view, entry) in self.indexes.iter_mut().zip(entries) {
            replaced.index_entries.extend(view.upsert(IndexEntry { open_seats, ..entry }));
        }
        let record = match known {
            MapEntry::Occupied(mut known) => {
                replaced.records.push(known.insert(record));
                known.into_mut()
            }
            MapEntry::Vacant(free) => free.insert(record),
        };
        (record, changed)
    }

    /// Takes a record out, of every view.
    pub(in crate::engine) fn remove(&mut self, id: AdvertisementId) -> Option<AdvertRecord> {
        let record = self.records.remove(&id)?;
        unschedule_hold_expiries(&mut self.hold_expiries, &record);
        self.unended_reservation_count -= record.unended_reservations().count();
        for view in &mut self.indexes {
            view.remove(id);
        }
        Some(record)
    }

    /// Believes an advertisement until `expires` at least; what is stored already covers it.
    pub(in crate::engine) fn extend_expiry(&mut self, id: AdvertisementId, expires: UnixMs) {
        let Some(record) = self.records.get_mut(&id) else { return };
        if expires <= record.expires_at {
            return;
        }
        record.expires_at = expires;
        for view in &mut self.indexes {
            view.set_expires_at(id, expires);
        }
        if let Some(touched) = &mut self.expiry_changes_during_build {
            touched.push(id);
        }
    }

    /// Notes what the store has been told of an expiry.
    pub(in crate::engine) fn record_stored_expiry(&mut self, id: AdvertisementId, stored_expires: UnixMs) {
        if let Some(record) = self.records.get_mut(&id) {
            record.stored_expires_at = record.stored_expires_at.max(stored_expires);
        }
    }

    /// Changes the reservations of one record and recounts its open seats.
    pub(in crate::engine) fn update_reservations<T>(
        &mut self,
        id: AdvertisementId,
        change: impl FnOnce(&mut Vec<Reservation>) -> T,
    ) -> Option<T> {
        let record = self.records.get_mut(&id)?;
        unschedule_hold_expiries(&mut self.hold_expiries, record);
        self.unended_reservation_count -= record.unended_reservations().count();
        let changed = change(&mut record.reservations);
        schedule_hold_expiries(&mut self.hold_expiries, record);
        self.unended_reservation_count += record.unended_reservations().count();
        let open_seats = record.open_seats();
        for view in &mut self.indexes {
            view.set_open_seats(id, open_seats);
        }
        Some(changed)
    }

    /// Appends up to `most` advertisements that are expired at `now`.
    pub(in crate::engine) fn collect_expired(&self, now: UnixMs, most: usize, out: &mut Vec<AdvertisementId>) {
        match self.first_index() {
            Some(view) => view.collect_expired(now, most, out),
            None => {
                let due = self.records.values().filter(|record| record.expires_at <= now).take(most);
                out.extend(due.map(|record| record.advertisement.id));
            }
        }
    }

    /// Up to `most` held reservations whose deadline has passed.
    pub(in crate::engine) fn expired_holds(&self, now: UnixMs, most: usize) -> Vec<(AdvertisementId, ReservationId)> {
        let due = self.hold_expiries.iter().take_while(|(until, ..)| *until <= now).take(most);
        due.map(|&(_, advertisement, reservation)| (advertisement, reservation)).collect()
    }

    /// Shrinks a few bounds that removals have left too wide.
    pub(in crate::engine) fn shrink_index_bounds(&mut self) {
        self.indexes.iter_mut().for_each(AdvertisementIndex::maintain);
    }

    /// Drops the views of rulesets that are no longer in `living`.
    pub(in crate::engine) fn retain_indexes(&mut self, living: &[Arc<Ruleset>]) {
        self.indexes.retain(|view| living.iter().any(|ruleset| ruleset.hash == view.ruleset().hash));
    }

    /// Begins a new view: what to build it from. Expiries that change from now on are noted.
    pub(in crate::engine) fn begin_index_build(&mut self) -> Vec<AdvertRecord> {
        self.expiry_changes_during_build = Some(Vec::new());
        self.records.values().cloned().collect()
    }

    /// Takes in a finished view, brought up to date. Only expiries may have changed since `begin_view`.
    pub(in crate::engine) fn finish_index_build(&mut self, mut view: AdvertisementIndex) {
        for id in self.expiry_changes_during_build.take().unwrap_or_default() {
            if let Some(record) = self.records.get(&id) {
                view.set_expires_at(id, record.expires_at);
            }
        }
        self.indexes.push(view);
    }
}

/// A view of `records` through `ruleset`. Takes a while for many records, and needs no lock.
pub(in crate::engine) fn build_index(ruleset: &Arc<Ruleset>, records: &[AdvertRecord]) -> AdvertisementIndex {
    let mut view = AdvertisementIndex::new(Arc::clone(ruleset));
    for record in records {
        view.upsert(index_entry(record, ruleset));
    }
    view
}

/// A record as filters and scores see it through facts of some ruleset.
pub(in crate::engine) fn candidate_of_record<'a>(
    record: &'a AdvertRecord,
    facts: &'a AttributeValues,
) -> AdvertisementView<'a> {
    AdvertisementView {
        advertisement: &record.advertisement,
        attribute_values: facts,
        expires_at: record.expires_at,
        open_seats: record.open_seats(),
    }
}

/// A record as the view of `ruleset` holds it.
pub(in crate::engine) fn index_entry(record: &AdvertRecord, ruleset: &Ruleset) -> IndexEntry {
    IndexEntry {
        advertisement: Arc::clone(&record.advertisement),
        attribute_values: AttributeValues::from_session(ruleset, &record.advertisement.session),
        expires_at: record.expires_at,
        open_seats: record.open_seats(),
        encoded_response: Arc::clone(&record.encoded_advert),
    }
}

/// Whether a hold is past its deadline.
pub(in crate::engine) fn is_expired_hold(reservation: &Reservation, now: UnixMs) -> bool {
    reservation.state == ReservationState::Held && reservation.deadline <= now
}

type ExpiryQueue = BTreeSet<(UnixMs, AdvertisementId, ReservationId)>;

fn schedule_hold_expiries(lapses: &mut ExpiryQueue, record: &AdvertRecord) {
    let held = record.reservations.iter().filter(|reservation| reservation.state == ReservationState::Held);
    lapses.extend(held.map(|held| (held.deadline, held.advertisement_id, held.id)));
}

fn unschedule_hold_expiries(lapses: &mut ExpiryQueue, record: &AdvertRecord) {
    for held in record.reservations.iter().filter(|reservation| reservation.state == ReservationState::Held) {
        lapses.remove(&(held.deadline, held.advertisement_id, held.id));
    }
}
