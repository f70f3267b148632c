//! In-memory search index of one matchmaking set: partitions, kd-B-trees and columns.
//!
//! Partitions separate silos, kinds and the values of `Equal` filters. Each partition is a kd-B-tree with columnar
//! leaves, so a search reads little memory and reads it in order. Columns only prefilter: `filter::admit_advertisement` and
//! `score::score` define each result.

mod candidates;
mod certain_prediction;
mod column_block;
mod distance_bounds;
mod entry;
mod exact_score;
mod interner;
mod kernel;
mod layout;
mod leaf;
mod leaf_bounds;
pub mod oracle;
mod partition_key;
mod plan;
mod plan_compiler;
mod player_slots;
mod prediction_bound;
mod query;
mod result;
mod route_bound;
mod row_rules;
mod rule_compiler;
mod search;
mod slab;
#[cfg(test)]
mod tests;
mod top_k;
mod tree;
mod vector_cache;
mod vector_columns;
mod word_column;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::attribute_values::AttributeValues;
use crate::filter::AdvertisementView;
use crate::id::{AdvertisementId, UserKey};
use crate::index::interner::ValueInterner;
use crate::index::layout::{ColumnLayout, RowBuffer, TickScale};
use crate::index::partition_key::{PartitionKey, WantedKeys};
use crate::index::player_slots::SlotsByUser;
use crate::index::slab::EntrySlab;
use crate::index::tree::{KdTree, RowAddr};
use crate::index::vector_cache::VectorCache;
use crate::latency::beacon_fleet::BeaconFleet;
use crate::player_standing;
use crate::ruleset::Ruleset;
use crate::ruleset::probing::LatencyEstimatePolicy;
use crate::time::UnixMs;

pub use crate::index::entry::IndexEntry;
pub use crate::index::kernel::InstructionSet;
pub use crate::index::query::SearchQuery;
pub use crate::index::result::{SearchHit, SearchResult};

/// Search index of the advertisements of one set under one ruleset.
#[derive(Debug)]
pub struct AdvertisementIndex {
    ruleset: Arc<Ruleset>,
    layout: ColumnLayout,
    interner: ValueInterner,
    tick_scale: TickScale,
    slab: EntrySlab,
    /// Slots by player; `None` if the ruleset has no use for them.
    player_slots: Option<SlotsByUser>,
    partition_by_key: BTreeMap<PartitionKey, u32>,
    /// Partitions by number; `None` for a free number.
    partitions: Vec<Option<(PartitionKey, KdTree)>>,
    free_partitions: Vec<u32>,
    row_buffer: RowBuffer,
    /// Completed beacon vectors; `None` if the ruleset predicts no round trips.
    vector_cache: Option<VectorCache>,
    next_maintained_partition: usize,
}

impl AdvertisementIndex {
    /// Empty index for `ruleset`.
    pub fn new(ruleset: Arc<Ruleset>) -> Self {
        let layout = ColumnLayout::for_ruleset(&ruleset);
        let interner = ValueInterner::new(layout.interned_attributes.len());
        let needs_players = player_standing::uses_standings(&ruleset) || !ruleset.avoid.is_empty();
        let vector_cache =
            (ruleset.probing.latency_estimate_policy == LatencyEstimatePolicy::PredictedV1).then(VectorCache::default);
        let player_slots = needs_players.then(SlotsByUser::default);
        Self {
            ruleset,
            layout,
            interner,
            tick_scale: TickScale::default(),
            slab: EntrySlab::default(),
            player_slots,
            partition_by_key: BTreeMap::new(),
            partitions: Vec::new(),
            free_partitions: Vec::new(),
            row_buffer: RowBuffer::default(),
            vector_cache,
            next_maintained_partition: 0,
        }
    }

    /// Ruleset of the index.
    pub fn ruleset(&self) -> &Arc<Ruleset> {
        &self.ruleset
    }

    /// Number of advertisements.
    pub fn len(&self) -> usize {
        self.slab.len()
    }

    /// Whether the index has no advertisements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds `entry`, or replaces and returns the entry with the same id. The caller can drop the old entry after
    /// releasing its lock; dropping it takes as long as the update.
    pub fn upsert(&mut self, entry: IndexEntry) -> Option<IndexEntry> {
        self.tick_scale.set_origin_once(entry.advertisement.advertised_since);
        let Some(slot) = self.slab.slot_of(entry.advertisement.id) else {
            let partition = self.find_or_create_partition(&entry);
            let slot = self.slab.insert_entry(entry);
            if let Some(cache) = &mut self.vector_cache {
                cache.count_beacons(self.slab.entry(slot));
                cache.complete_and_insert(slot, self.slab.entry(slot));
            }
            if let Some(player_slots) = &mut self.player_slots {
                player_slots.insert(&self.slab, slot);
            }
            let Self { ruleset, layout, slab, tick_scale, interner, row_buffer, .. } = self;
            layout.write_row(ruleset, slab.entry(slot), slot, tick_scale, interner, row_buffer);
            self.insert_row(partition);
            return None;
        };
        self.layout.write_row(&self.ruleset, &entry, slot, &self.tick_scale, &mut self.interner, &mut self.row_buffer);
        if let Some(cache) = &mut self.vector_cache {
            cache.count_beacons(&entry);
            cache.discount_beacons(self.slab.entry(slot));
            cache.complete_and_insert(slot, &entry);
        }
        let row_addr = self.slab.row_addr(slot);
        let (key, tree) = self.partitions[row_addr.partition as usize].as_mut().expect("a row's partition exists");
        let (silo, kind) = (entry.advertisement.session.silo, entry.advertisement.kind);
        if key.matches_advertisement(silo, kind, &self.layout.partition_attributes, &entry.attribute_values) {
            let slab = &mut self.slab;
            let moved = |slot, leaf, row| slab.set_row_addr(slot, RowAddr { partition: row_addr.partition, leaf, row });
            tree.replace_row(&self.layout, row_addr, &self.row_buffer, moved);
        } else {
            self.remove_row(row_addr);
            let partition = self.find_or_create_partition(&entry);
            self.insert_row(partition);
        }
        self.replace_entry(slot, entry)
    }

    /// Ids of the advertisements of which `user` is a player. None if neither the values under the ruleset depend on what the
    /// server keeps about players, nor players avoid each other by it.
    pub fn tracked_ids_of_user(&self, user: UserKey) -> Vec<AdvertisementId> {
        let slots = self.player_slots.as_ref().map(|player_slots| player_slots.slots_of(&self.slab, user));
        slots.into_iter().flatten().map(|slot| self.slab.entry(slot).advertisement.id).collect()
    }

    /// Number of players that [`ids_of_user`](Self::ids_of_user) finds; one in several advertisements counts several times.
    pub fn tracked_player_count(&self) -> usize {
        self.player_slots.as_ref().map_or(0, SlotsByUser::player_count)
    }

    /// Whether a change of what the server keeps about a player may change an advertisement's values.
    pub fn depends_on_standings(&self) -> bool {
        self.tracked_player_count() != 0 && player_standing::uses_standings(&self.ruleset)
    }

    /// Replaces the attribute values of an advertisement. `false` if they are equal, or the id is unknown.
    pub fn set_attribute_values(&mut self, id: AdvertisementId, attribute_values: AttributeValues) -> bool {
        let changed = self.get(id).filter(|entry| entry.attribute_values != attribute_values).cloned();
        let entry = changed.map(|entry| IndexEntry { attribute_values, ..entry });
        entry.map(|entry| self.upsert(entry)).is_some()
    }

    /// Prefetches the memory that updates of `ids` will read, so that cache misses overlap. Useful from about ten ids
    /// on. Changes nothing.
    pub fn prefetch(&self, ids: impl IntoIterator<Item = AdvertisementId>) {
        let rows = ids.into_iter().filter_map(|id| self.slab.slot_of(id)).map(|slot| self.slab.row_addr(slot).row);
        std::hint::black_box(rows.fold(0, u32::wrapping_add));
    }

    /// Removes and returns an entry; `None` if the id is unknown.
    pub fn remove(&mut self, id: AdvertisementId) -> Option<IndexEntry> {
        let slot = self.slab.slot_of(id)?;
        let (row_addr, entry) = self.slab.remove_entry(id)?;
        if let Some(player_slots) = &mut self.player_slots {
            player_slots.remove(&entry, slot);
        }
        if let Some(cache) = &mut self.vector_cache {
            cache.discount_beacons(&entry);
            cache.remove(slot);
        }
        self.remove_row(row_addr);
        if self.slab.len() == 0 {
            self.interner.clear();
        }
        Some(entry)
    }

    /// Entry with this id; `None` if the id is unknown.
    pub fn get(&self, id: AdvertisementId) -> Option<&IndexEntry> {
        self.slab.slot_of(id).map(|slot| self.slab.entry(slot))
    }

    /// Completes beacon vectors with `fleet` from now on, where the ruleset predicts round trips. No result depends on it, but
    /// searches with another fleet take longer. Completes up to `max_slots` of those that it has with another fleet.
    pub fn complete_vectors(&mut self, fleet: Option<&Arc<BeaconFleet>>, max_slots: usize) {
        let Some(cache) = &mut self.vector_cache else { return };
        cache.set_fleet(fleet.cloned());
        for slot in cache.take_stale_slots(self.slab.slot_count(), max_slots) {
            if let Some(entry) = self.slab.entry_if_occupied(slot) {
                cache.complete_and_insert(slot as u32, entry);
            }
        }
    }

    /// Entry of a slot as filters and scores read it, with its completed vector.
    pub fn view(&self, slot: u32) -> AdvertisementView<'_> {
        let completed_vector = self.vector_cache.as_ref().and_then(|cache| cache.get(slot));
        AdvertisementView { completed_vector, ..self.entry(slot).view() }
    }

    /// Entry of a hit.
    pub fn entry(&self, slot: u32) -> &IndexEntry {
        self.slab.entry(slot)
    }

    /// All entries, in no particular order.
    pub fn entries(&self) -> impl Iterator<Item = &IndexEntry> {
        self.slab.entries()
    }

    /// Entries of up to `max_slots` slots from `first_slot`, and the first slot of the next page, if any. Paging can
    /// miss entries that are added meanwhile, but not entries that stay.
    pub fn entries_page(&self, first_slot: u32, max_slots: u32) -> (impl Iterator<Item = &IndexEntry>, Option<u32>) {
        self.slab.entries_page(first_slot, max_slots)
    }

    /// Whether columns and entry of `id` agree on partition, expiry and open seats. Searches read the columns first.
    /// `false` if the id is unknown.
    pub fn is_entry_consistent(&self, id: AdvertisementId) -> bool {
        let Some(slot) = self.slab.slot_of(id) else { return false };
        let (row_addr, entry) = (self.slab.row_addr(slot), self.slab.entry(slot));
        let tick = self.tick_scale.tick_of(entry.expires_at);
        let partition = self.partitions.get(row_addr.partition as usize);
        let (silo, kind) = (entry.advertisement.session.silo, entry.advertisement.kind);
        partition.and_then(Option::as_ref).is_some_and(|(key, tree)| {
            key.matches_advertisement(silo, kind, &self.layout.partition_attributes, &entry.attribute_values)
                && tree.row_matches(row_addr, slot, tick, u32::from(entry.open_seats))
        })
    }

    /// Sets the expiry of an advertisement. `false` if the id is unknown.
    pub fn set_expires_at(&mut self, id: AdvertisementId, expires_at: UnixMs) -> bool {
        let tick = self.tick_scale.tick_of(expires_at);
        self.update_entry_and_column(id, word_column::EXPIRES_AT, tick, |entry| entry.expires_at = expires_at)
    }

    /// Sets the number of open seats. `false` if the id is unknown.
    pub fn set_open_seats(&mut self, id: AdvertisementId, open_seats: u16) -> bool {
        self.update_entry_and_column(id, word_column::SEATS_AND_OWNER, u32::from(open_seats), |entry| {
            entry.open_seats = open_seats
        })
    }

    /// Appends up to `max_ids` ids of advertisements that are expired at `now`.
    pub fn collect_expired(&self, now: UnixMs, max_ids: usize, out: &mut Vec<AdvertisementId>) {
        let tick = self.tick_scale.tick_of(now);
        let leaves = self.partitions.iter().flatten().flat_map(|(_, tree)| &tree.leaves);
        let candidates = leaves.flat_map(|leaf| {
            let rows = leaf
                .word_column(word_column::EXPIRES_AT)
                .iter()
                .enumerate()
                .filter(move |&(_, &expiry_tick)| expiry_tick <= tick);
            rows.filter(|&(row, _)| !leaf.hole_positions().contains(&(row as u32))).map(|(row, _)| leaf.slot(row))
        });
        let expired = candidates.map(|slot| self.entry(slot)).filter(|entry| entry.expires_at <= now);
        out.extend(expired.map(|entry| entry.advertisement.id).take(max_ids));
    }

    /// Tightens the bounds of some leaves and joins small ones, which removals leave behind. Call it regularly: one
    /// call covers about one leaf in a hundred, at least one.
    pub fn tighten_and_join_some_leaves(&mut self) {
        let slab = &mut self.slab;
        let partition_count = self.partitions.len().div_ceil(100).max(1);
        for _ in 0..partition_count.min(self.partitions.len()) {
            let partition = self.next_maintained_partition % self.partitions.len();
            self.next_maintained_partition = partition + 1;
            if let Some((_, tree)) = &mut self.partitions[partition] {
                let leaves = if partition_count == 1 { tree.leaves.len().div_ceil(100) } else { tree.leaves.len() };
                tree.tighten_and_join_next_leaves(leaves, |slot, leaf, row| {
                    slab.set_row_addr(slot, RowAddr { partition: partition as u32, leaf, row })
                });
            }
        }
    }

    fn partition_tree(&self, partition: u32) -> &KdTree {
        &self.partitions[partition as usize].as_ref().expect("a row's partition exists").1
    }

    /// Calls `visit` for each partition that no `Equal` filter of `query` refuses.
    fn for_each_matching_partition(&self, query: &SearchQuery<'_>, mut visit: impl FnMut(u32, &KdTree)) {
        let wanted_keys = WantedKeys::for_query(query, &self.layout.partition_attributes);
        match wanted_keys.enumerate_keys() {
            Some(keys) => {
                let partitions = keys.iter().filter_map(|key| self.partition_by_key.get(key));
                partitions.for_each(|&partition| visit(partition, self.partition_tree(partition)));
            }
            None => {
                let candidates = self
                    .partition_by_key
                    .range(wanted_keys.range_start()..)
                    .take_while(|(key, _)| wanted_keys.has_same_silo_and_kind(key));
                candidates
                    .filter(|(key, _)| wanted_keys.matches_key(key))
                    .for_each(|(_, &partition)| visit(partition, self.partition_tree(partition)));
            }
        }
    }

    fn find_or_create_partition(&mut self, entry: &IndexEntry) -> u32 {
        let session = &entry.advertisement.session;
        let key = PartitionKey::of_advertisement(
            session.silo,
            entry.advertisement.kind,
            &self.layout.partition_attributes,
            &entry.attribute_values,
        );
        if let Some(&partition) = self.partition_by_key.get(&key) {
            return partition;
        }
        let partition = self.free_partitions.pop().unwrap_or(self.partitions.len() as u32);
        if partition as usize == self.partitions.len() {
            self.partitions.push(None);
        }
        self.partitions[partition as usize] = Some((key.clone(), KdTree::new(&self.layout)));
        self.partition_by_key.insert(key, partition);
        partition
    }

    fn replace_entry(&mut self, slot: u32, entry: IndexEntry) -> Option<IndexEntry> {
        let Some(player_slots) = &mut self.player_slots else { return self.slab.replace_entry(slot, entry) };
        if player_slots::have_same_users_in_order(self.slab.entry(slot), &entry) {
            return self.slab.replace_entry(slot, entry);
        }
        player_slots.remove(self.slab.entry(slot), slot);
        let replaced = self.slab.replace_entry(slot, entry);
        player_slots.insert(&self.slab, slot);
        replaced
    }

    fn insert_row(&mut self, partition: u32) {
        let slab = &mut self.slab;
        if let Some((_, tree)) = &mut self.partitions[partition as usize] {
            let moved = |slot, leaf, row| slab.set_row_addr(slot, RowAddr { partition, leaf, row });
            tree.insert_row(&self.layout, &self.row_buffer, moved);
        }
    }

    fn remove_row(&mut self, row_addr: RowAddr) {
        let partition = &mut self.partitions[row_addr.partition as usize];
        let Some((key, tree)) = partition else { return };
        tree.remove_row(row_addr.leaf, row_addr.row);
        if tree.len() == 0 {
            self.partition_by_key.remove(key);
            *partition = None;
            self.free_partitions.push(row_addr.partition);
        }
    }

    fn update_entry_and_column(
        &mut self,
        id: AdvertisementId,
        column: usize,
        value: u32,
        update: impl FnOnce(&mut IndexEntry),
    ) -> bool {
        let Some(slot) = self.slab.slot_of(id) else { return false };
        let RowAddr { partition, leaf, row } = self.slab.row_addr(slot);
        if let Some((_, tree)) = &mut self.partitions[partition as usize] {
            tree.set_word(column, leaf, row, value);
        }
        self.slab.entry_mut(slot).map(update);
        true
    }
}
