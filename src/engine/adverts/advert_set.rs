//! Advertisements of one set in memory: the records, and an index for every cached ruleset, active or retired.

use std::collections::BTreeSet;
use std::sync::Arc;

use indexmap::IndexMap;
use indexmap::map::Entry as MapEntry;
use thin_vec::ThinVec;

use crate::domain::advertisement::Advertisement;
use crate::domain::attribute_values::AttributeValues;
use crate::domain::filter::AdvertisementView;
use crate::domain::id::{AdvertisementId, BuildIdHasher, ReservationId, RulesetHash, UserKey};
use crate::domain::index::{AdvertisementIndex, IndexEntry};
use crate::domain::latency::beacon_fleet::BeaconFleet;
use crate::domain::ruleset::Ruleset;
use crate::domain::time::UnixMs;
use crate::engine::adverts::reserved_user_index::ReservedUserIndex;
use crate::engine::open_silos::OpenSilos;
use crate::engine::party_values::PartyValueReader;
use crate::store::{AdvertVersion, Reservation, ReservationState};
use crate::telemetry::label::{AdvertisementKindLabel, SeatStateLabel};
use crate::telemetry::metric::set_gauges::AdvertisementCounts;

/// Beacon vectors that a sweep completes at most, in each set: a few milliseconds.
const COMPLETED_VECTORS_PER_SWEEP_MAX: usize = 2_000;

/// Advertisement and its state.
#[derive(Clone, Debug)]
pub(crate) struct AdvertRecord {
    pub(crate) advertisement: Arc<Advertisement>,
    /// Expiry acknowledged to the host.
    pub(crate) expires_at: UnixMs,
    /// Expiry in the store; never before `expires_at`, so that a restart keeps every acknowledged advertisement.
    pub(crate) stored_expires_at: UnixMs,
    pub(crate) ttl_ms: u32,
    /// Eight bytes: most advertisements have none.
    pub(crate) reservations: ThinVec<Reservation>,
    /// Version in the store.
    pub(crate) version: AdvertVersion,
    /// This replica received the last heartbeat, so `expires_at` was acknowledged here. Otherwise it is the stored
    /// expiry.
    pub(crate) is_heartbeat_owner: bool,
    /// Has a change that is not yet in the store.
    pub(crate) is_unwritten: bool,
}

impl AdvertRecord {
    /// Seats that no reservation holds.
    pub(crate) fn open_seats(&self) -> u16 {
        let taken: u32 = self.unended_reservations().map(|reservation| u32::from(reservation.seats)).sum();
        self.advertisement.session.offered_seats.saturating_sub(u16::try_from(taken).unwrap_or(u16::MAX))
    }

    /// Reservations that hold seats, including expired holds that the sweep has not ended yet.
    pub(crate) fn unended_reservations(&self) -> impl Iterator<Item = &Reservation> {
        self.reservations.iter().filter(|reservation| reservation.state != ReservationState::Ended)
    }

    /// Reservations valid at `now`; excludes expired holds.
    pub(crate) fn valid_reservations(&self, now: UnixMs) -> impl Iterator<Item = &Reservation> {
        self.unended_reservations().filter(move |reservation| !is_expired_hold(reservation, now))
    }

    /// Whether any of `users` (sorted) has a valid reservation other than those that are `excepted`.
    pub(crate) fn has_valid_reservation_for(
        &self,
        users: &[UserKey],
        is_excepted: impl Fn(&Reservation) -> bool,
        now: UnixMs,
    ) -> bool {
        let includes_any =
            |reservation: &Reservation| reservation.users.iter().any(|user| users.binary_search(user).is_ok());
        self.valid_reservations(now).any(|reservation| !is_excepted(reservation) && includes_any(reservation))
    }
}

/// Records and index entries replaced by publications. Freed outside the lock, because that takes long.
#[derive(Debug, Default)]
pub(crate) struct ReplacedRecordsToFree {
    records: Vec<AdvertRecord>,
    index_entries: Vec<IndexEntry>,
}

impl ReplacedRecordsToFree {
    pub(crate) fn with_capacity(records: usize, entries: usize) -> Self {
        Self { records: Vec::with_capacity(records), index_entries: Vec::with_capacity(entries) }
    }
}

/// Records of one set, and their indexes.
#[derive(Debug)]
pub(crate) struct AdvertSet {
    /// Records in a list, and a table of their places. A table of the records themselves would have up to twice as many places.
    records: IndexMap<AdvertisementId, AdvertRecord, BuildIdHasher>,
    indexes: Vec<AdvertisementIndex>,
    reserved_user_index: ReservedUserIndex,
    /// Held reservations by deadline, so that the sweep reads only expired ones.
    hold_expiries: ExpiryQueue,
    /// Advertisements whose expiry changed while an index is being built from a copy.
    expiry_changes_during_build: Option<Vec<AdvertisementId>>,
    unended_reservation_count: usize,
    counts: AdvertisementCounts,
    /// Counts each advertisement as one use of its silo.
    open_silos: Arc<OpenSilos>,
    party_values: PartyValueReader,
}

impl AdvertSet {
    /// Set without advertisements, which keeps their silos open in `open_silos`.
    pub(crate) fn new(open_silos: Arc<OpenSilos>, party_values: PartyValueReader) -> Self {
        Self {
            records: IndexMap::default(),
            indexes: Vec::new(),
            reserved_user_index: ReservedUserIndex::default(),
            hold_expiries: ExpiryQueue::new(),
            expiry_changes_during_build: None,
            unended_reservation_count: 0,
            counts: AdvertisementCounts::default(),
            open_silos,
            party_values,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    /// Advertisements by the users who have seats reserved in them.
    pub(crate) fn reserved_user_index(&self) -> &ReservedUserIndex {
        &self.reserved_user_index
    }

    /// Number of reservations that hold seats.
    pub(crate) fn unended_reservation_count(&self) -> usize {
        self.unended_reservation_count
    }

    /// Number of advertisements by kind, with and without open seats.
    pub(crate) fn counts(&self) -> AdvertisementCounts {
        self.counts
    }

    pub(crate) fn get(&self, id: AdvertisementId) -> Option<&AdvertRecord> {
        self.records.get(&id)
    }

    /// All records, in no order.
    pub(crate) fn records(&self) -> impl Iterator<Item = &AdvertRecord> {
        self.records.values()
    }

    /// Changes fields of a record that no index contains.
    pub(crate) fn update_unindexed_fields(&mut self, id: AdvertisementId, update: impl FnOnce(&mut AdvertRecord)) {
        if let Some(record) = self.records.get_mut(&id) {
            update(record);
        }
    }

    /// Index of the ruleset with `hash`.
    pub(crate) fn index_of_ruleset(&self, hash: RulesetHash) -> Option<&AdvertisementIndex> {
        self.indexes.iter().find(|index| index.ruleset().hash == hash)
    }

    /// Index entry of a record under `ruleset`.
    pub(crate) fn build_index_entry(&self, record: &AdvertRecord, ruleset: &Ruleset) -> IndexEntry {
        build_index_entry(record, ruleset, &self.party_values)
    }

    /// All indexes.
    pub(crate) fn indexes(&self) -> &[AdvertisementIndex] {
        &self.indexes
    }

    /// Any index: all contain the same advertisements and expiries.
    pub(crate) fn first_index(&self) -> Option<&AdvertisementIndex> {
        self.indexes.first()
    }

    /// Rulesets of the indexes, in index order.
    pub(crate) fn indexed_rulesets(&self) -> Vec<Arc<Ruleset>> {
        self.indexes.iter().map(|index| Arc::clone(index.ruleset())).collect()
    }

    /// Reads the records of `ids` in advance, so that their cache misses overlap.
    pub(crate) fn prefetch(&self, ids: impl Iterator<Item = AdvertisementId> + Clone) {
        let records = ids.clone().filter_map(|id| self.records.get(&id));
        std::hint::black_box(records.fold(0, |sum, record| sum ^ record.expires_at.0));
        self.indexes.iter().for_each(|index| index.prefetch(ids.clone()));
    }

    /// Inserts or replaces a record, in every index.
    pub(crate) fn upsert(&mut self, mut record: AdvertRecord) {
        let entries: Vec<IndexEntry> =
            self.indexes.iter().map(|index| self.build_index_entry(&record, index.ruleset())).collect();
        let reservations = std::mem::take(&mut record.reservations);
        self.upsert_with_entries(
            record,
            &mut entries.into_iter(),
            |all| *all = reservations,
            &mut ReplacedRecordsToFree::default(),
        );
    }

    /// Inserts or replaces a record, with one of `entries` per index.
    ///
    /// The new record inherits the reservations, changed by `change`. The replaced record and entries go to `replaced`.
    pub(crate) fn upsert_with_entries<T>(
        &mut self,
        mut record: AdvertRecord,
        entries: &mut impl Iterator<Item = IndexEntry>,
        change: impl FnOnce(&mut ThinVec<Reservation>) -> T,
        replaced: &mut ReplacedRecordsToFree,
    ) -> (&AdvertRecord, T) {
        let slot = self.records.entry(record.advertisement.id);
        if let MapEntry::Occupied(old) = &slot {
            let old = old.get();
            unschedule_hold_expiries(&mut self.hold_expiries, old);
            self.reserved_user_index.remove(&old.reservations);
            self.unended_reservation_count -= old.unended_reservations().count();
            *count_of(&mut self.counts, old) -= 1;
            record.reservations.clone_from(&old.reservations);
        }
        let result = change(&mut record.reservations);
        schedule_hold_expiries(&mut self.hold_expiries, &record);
        self.reserved_user_index.add(&record.reservations);
        self.unended_reservation_count += record.unended_reservations().count();
        *count_of(&mut self.counts, &record) += 1;
        let open_seats = record.open_seats();
        for (index, entry) in self.indexes.iter_mut().zip(entries) {
            replaced.index_entries.extend(index.upsert(IndexEntry { open_seats, ..entry }));
        }
        let (silo, publisher) = (record.advertisement.session.silo, record.advertisement.publisher);
        let replaced_silo = match &slot {
            MapEntry::Occupied(old) => Some(old.get().advertisement.session.silo),
            MapEntry::Vacant(_) => None,
        };
        if replaced_silo != Some(silo) {
            self.open_silos.add_unlimited_use(silo, publisher);
            replaced_silo.into_iter().for_each(|silo| self.open_silos.remove_use(silo));
        }
        let record = match slot {
            MapEntry::Occupied(mut slot) => {
                replaced.records.push(slot.insert(record));
                slot.into_mut()
            }
            MapEntry::Vacant(vacant) => vacant.insert(record),
        };
        (record, result)
    }

    /// Replaces an advertisement's attribute values under the ruleset with `hash`.
    pub(crate) fn set_attribute_values(&mut self, hash: RulesetHash, id: AdvertisementId, values: AttributeValues) {
        if let Some(index) = self.indexes.iter_mut().find(|index| index.ruleset().hash == hash) {
            index.set_attribute_values(id, values);
        }
    }

    /// Removes a record from the set and from every index.
    pub(crate) fn remove(&mut self, id: AdvertisementId) -> Option<AdvertRecord> {
        let record = self.records.swap_remove(&id)?;
        self.open_silos.remove_use(record.advertisement.session.silo);
        unschedule_hold_expiries(&mut self.hold_expiries, &record);
        self.reserved_user_index.remove(&record.reservations);
        self.unended_reservation_count -= record.unended_reservations().count();
        *count_of(&mut self.counts, &record) -= 1;
        for index in &mut self.indexes {
            index.remove(id);
        }
        Some(record)
    }

    /// Extends an advertisement's expiry to `expires_at`; never shortens it. The stored expiry must already cover it.
    pub(crate) fn extend_expiry(&mut self, id: AdvertisementId, expires_at: UnixMs) {
        let Some(record) = self.records.get_mut(&id) else { return };
        if expires_at <= record.expires_at {
            return;
        }
        record.expires_at = expires_at;
        for index in &mut self.indexes {
            index.set_expires_at(id, expires_at);
        }
        if let Some(changed) = &mut self.expiry_changes_during_build {
            changed.push(id);
        }
    }

    /// Records the expiry that is now in the store; never lowers it.
    pub(crate) fn record_stored_expiry(&mut self, id: AdvertisementId, stored_expires_at: UnixMs) {
        if let Some(record) = self.records.get_mut(&id) {
            record.stored_expires_at = record.stored_expires_at.max(stored_expires_at);
        }
    }

    /// Changes a record's reservations and updates its open seats.
    pub(crate) fn update_reservations<T>(
        &mut self,
        id: AdvertisementId,
        change: impl FnOnce(&mut ThinVec<Reservation>) -> T,
    ) -> Option<T> {
        let record = self.records.get_mut(&id)?;
        unschedule_hold_expiries(&mut self.hold_expiries, record);
        self.reserved_user_index.remove(&record.reservations);
        self.unended_reservation_count -= record.unended_reservations().count();
        *count_of(&mut self.counts, record) -= 1;
        let result = change(&mut record.reservations);
        schedule_hold_expiries(&mut self.hold_expiries, record);
        self.reserved_user_index.add(&record.reservations);
        self.unended_reservation_count += record.unended_reservations().count();
        *count_of(&mut self.counts, record) += 1;
        let open_seats = record.open_seats();
        for index in &mut self.indexes {
            index.set_open_seats(id, open_seats);
        }
        Some(result)
    }

    /// Appends up to `max` advertisements that have expired at `now`.
    pub(crate) fn collect_expired(&self, now: UnixMs, max: usize, out: &mut Vec<AdvertisementId>) {
        match self.first_index() {
            Some(index) => index.collect_expired(now, max, out),
            None => {
                let expired = self.records.values().filter(|record| record.expires_at <= now).take(max);
                out.extend(expired.map(|record| record.advertisement.id));
            }
        }
    }

    /// Held reservations whose deadline has passed, at most `max`.
    pub(crate) fn expired_holds(&self, now: UnixMs, max: usize) -> Vec<(AdvertisementId, ReservationId)> {
        let expired = self.hold_expiries.iter().take_while(|(deadline, ..)| *deadline <= now).take(max);
        expired.map(|&(_, advertisement, reservation)| (advertisement, reservation)).collect()
    }

    /// Shrinks some of the index bounds that removals left too wide, and completes some beacon vectors with the current fleet.
    pub(crate) fn maintain_indexes(&mut self, fleet: Option<&Arc<BeaconFleet>>) {
        for index in &mut self.indexes {
            index.tighten_and_join_some_leaves();
            index.complete_vectors(fleet, COMPLETED_VECTORS_PER_SWEEP_MAX);
        }
    }

    /// Drops the indexes of rulesets that are not in `cached`.
    pub(crate) fn retain_indexes(&mut self, cached: &[Arc<Ruleset>]) {
        self.indexes.retain(|index| cached.iter().any(|ruleset| ruleset.hash == index.ruleset().hash));
    }

    /// Starts an index build: returns a copy of the records, and tracks expiry changes until the build ends.
    pub(crate) fn copy_records_for_index_build(&mut self) -> Vec<AdvertRecord> {
        self.expiry_changes_during_build = Some(Vec::new());
        self.records.values().cloned().collect()
    }

    /// Adds a built index. Only expiries may have changed since `copy_records_for_index_build`.
    pub(crate) fn finish_index_build(&mut self, mut index: AdvertisementIndex) {
        for id in self.expiry_changes_during_build.take().unwrap_or_default() {
            if let Some(record) = self.records.get(&id) {
                index.set_expires_at(id, record.expires_at);
            }
        }
        self.indexes.push(index);
    }
}

/// Count to which a record belongs.
fn count_of<'a>(counts: &'a mut AdvertisementCounts, record: &AdvertRecord) -> &'a mut u64 {
    let state = if record.open_seats() > 0 { SeatStateLabel::Open } else { SeatStateLabel::Full };
    counts.count_mut(AdvertisementKindLabel::from_kind(record.advertisement.kind), state)
}

/// Index of `records` under `ruleset`. Slow for many records; needs no lock.
pub(crate) fn build_index(
    ruleset: &Arc<Ruleset>,
    records: &[AdvertRecord],
    party_values: &PartyValueReader,
) -> AdvertisementIndex {
    let mut index = AdvertisementIndex::new(Arc::clone(ruleset));
    for record in records {
        index.upsert(build_index_entry(record, ruleset, party_values));
    }
    index
}

/// Record as filters and scores see it.
pub(crate) fn candidate_from_record<'a>(
    record: &'a AdvertRecord,
    attribute_values: &'a AttributeValues,
) -> AdvertisementView<'a> {
    AdvertisementView {
        advertisement: &record.advertisement,
        attribute_values,
        expires_at: record.expires_at,
        open_seats: record.open_seats(),
        completed_vector: None,
    }
}

/// Index entry of a record under `ruleset`.
pub(crate) fn build_index_entry(
    record: &AdvertRecord,
    ruleset: &Ruleset,
    party_values: &PartyValueReader,
) -> IndexEntry {
    IndexEntry {
        advertisement: Arc::clone(&record.advertisement),
        attribute_values: party_values.attribute_values(ruleset, &record.advertisement.session),
        expires_at: record.expires_at,
        open_seats: record.open_seats(),
    }
}

/// Whether a hold is past its deadline.
pub(crate) fn is_expired_hold(reservation: &Reservation, now: UnixMs) -> bool {
    reservation.state == ReservationState::Held && reservation.expires_or_purge_at <= now
}

/// Held reservations by deadline.
type ExpiryQueue = BTreeSet<(UnixMs, AdvertisementId, ReservationId)>;

fn schedule_hold_expiries(expiries: &mut ExpiryQueue, record: &AdvertRecord) {
    let held = record.reservations.iter().filter(|reservation| reservation.state == ReservationState::Held);
    expiries.extend(held.map(|held| (held.expires_or_purge_at, held.advertisement_id, held.id)));
}

fn unschedule_hold_expiries(expiries: &mut ExpiryQueue, record: &AdvertRecord) {
    for held in record.reservations.iter().filter(|reservation| reservation.state == ReservationState::Held) {
        expiries.remove(&(held.expires_or_purge_at, held.advertisement_id, held.id));
    }
}
