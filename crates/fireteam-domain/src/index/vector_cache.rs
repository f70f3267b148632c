//! Cache of completed beacon vectors, by slot: completing a vector takes ten times as long as a prediction with it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::index::entry::IndexEntry;
use crate::latency::beacon_fleet::BeaconFleet;
use crate::latency::beacon_vector::{CompletedVector, complete_published_vector};

/// Completed vectors of the entries. Those of another fleet are of no use, and are replaced bit by bit.
#[derive(Debug, Default)]
pub(super) struct VectorCache {
    /// Fleet with which vectors are completed; `None` completes none.
    fleet: Option<Arc<BeaconFleet>>,
    by_slot: Vec<Option<CompletedVector>>,
    /// First slot that may have a vector of another fleet.
    next_stale_slot: usize,
    /// Number of entries with a floor to a beacon, by beacon id.
    entry_counts: BTreeMap<u32, u32>,
}

impl VectorCache {
    /// Completes vectors with `fleet` from now on.
    pub(super) fn set_fleet(&mut self, fleet: Option<Arc<BeaconFleet>>) {
        let revision =
            |fleet: &Option<Arc<BeaconFleet>>| fleet.as_ref().map(|fleet| fleet.fingerprint_with_round_trips());
        if revision(&self.fleet) != revision(&fleet) {
            (self.fleet, self.next_stale_slot) = (fleet, 0);
        }
    }

    /// Vector of the entry in a slot.
    pub(super) fn get(&self, slot: u32) -> Option<&CompletedVector> {
        self.by_slot.get(slot as usize)?.as_ref()
    }

    /// Reads one number from each cache line of the vector in a slot.
    pub(super) fn touch(&self, slot: u32) -> f64 {
        self.get(slot).map_or(0.0, CompletedVector::touch)
    }

    /// Completes the vector of an entry.
    pub(super) fn complete_and_insert(&mut self, slot: u32, entry: &IndexEntry) {
        let completed = self.fleet.as_ref().and_then(|fleet| {
            let session = &entry.advertisement.session;
            complete_published_vector(fleet, session.locality, session.published_beacon_vector()?).ok()
        });
        let slot = slot as usize;
        if completed.is_some() && self.by_slot.len() <= slot {
            self.by_slot.resize_with(slot + 1, || None);
        }
        if let Some(place) = self.by_slot.get_mut(slot) {
            *place = completed;
        }
    }

    /// Counts the beacons of an entry that was added.
    pub(super) fn count_beacons(&mut self, entry: &IndexEntry) {
        for id in beacon_ids(entry) {
            *self.entry_counts.entry(id).or_default() += 1;
        }
    }

    /// Counts the beacons of an entry that was removed no longer.
    pub(super) fn discount_beacons(&mut self, entry: &IndexEntry) {
        for id in beacon_ids(entry) {
            if let Some(count) = self.entry_counts.get_mut(&id) {
                *count -= 1;
                if *count == 0 {
                    self.entry_counts.remove(&id);
                }
            }
        }
    }

    /// Number of beacons to which entries have floors, and which are not in `fleet`.
    pub(super) fn beacon_count_outside(&self, fleet: &BeaconFleet) -> usize {
        self.entry_counts.keys().filter(|id| fleet.index_of(**id).is_none()).count()
    }

    /// Forgets the vector of a slot.
    pub(super) fn remove(&mut self, slot: u32) {
        self.by_slot.get_mut(slot as usize).into_iter().for_each(|place| *place = None);
    }

    /// Takes the next slots, at most `max_slots` of `slot_count`, whose vectors may be of another fleet.
    pub(super) fn take_stale_slots(&mut self, slot_count: usize, max_slots: usize) -> std::ops::Range<usize> {
        let first = self.next_stale_slot.min(slot_count);
        self.next_stale_slot = (first + max_slots).min(slot_count);
        first..self.next_stale_slot
    }
}

/// Beacons to which an entry has floors.
fn beacon_ids(entry: &IndexEntry) -> impl Iterator<Item = u32> {
    let vector = entry.advertisement.session.published_beacon_vector();
    vector.into_iter().flat_map(|vector| vector.floors()).map(|floor| floor.beacon_id)
}
