//! One set's advertisements in memory, laid out so that a search reads little and reads it in order.
//!
//! Partitions by silo, kind and the values that `Equal` filters ask for; in each a kd-B-tree whose leaves are columns
//! (DESIGN section 8). Columns only prefilter: `filter::admit` and `score::score` define every answer.

mod column_block;
mod distance_bounds;
mod exact_score;
mod interner;
mod kernel;
mod layout;
mod leaf;
mod leaf_bounds;
pub mod oracle;
mod partition_key;
mod plan;
mod row_rules;
mod rule_compiler;
mod search;
mod slab;
#[cfg(test)]
mod tests;
mod top_k;
mod tree;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::advertisement::{Advertisement, AdvertisementKind};
use crate::attribute_values::AttributeValues;
use crate::filter::{AdvertisementView, Refusal, Searcher};
use crate::id::{AdvertisementId, SiloId};
use crate::index::interner::Interner;
use crate::index::layout::{ColumnLayout, RowBuffer, TickScale, word_column};
use crate::index::partition_key::{PartitionKey, WantedKeys};
use crate::index::slab::EntrySlab;
use crate::index::tree::{KdTree, RowAddr};
use crate::ruleset::{Ruleset, SearchLimits};
use crate::time::UnixMs;

pub use kernel::InstructionSet;

/// One advertisement in the index.
#[derive(Clone, Debug)]
pub struct IndexEntry {
    /// As published.
    pub advertisement: Arc<Advertisement>,
    /// What the index's ruleset sees of it.
    pub attribute_values: AttributeValues,
    /// Until when it is believed.
    pub expires_at: UnixMs,
    /// Seats that nobody holds.
    pub open_seats: u16,
    /// The part of an answer that does not depend on the search, encoded by whoever fills the index; opaque here.
    pub encoded_response: Arc<[u8]>,
}

impl IndexEntry {
    /// The entry as filters and scores see it.
    pub fn view(&self) -> AdvertisementView<'_> {
        AdvertisementView {
            advertisement: &self.advertisement,
            attribute_values: &self.attribute_values,
            expires_at: self.expires_at,
            open_seats: self.open_seats,
        }
    }
}

/// One search.
#[derive(Clone, Copy, Debug)]
pub struct SearchQuery<'a> {
    /// The rules to judge by: the index's own, or the same with overridden weights and limits.
    pub ruleset: &'a Ruleset,
    /// Who asks.
    pub searcher: Searcher<'a>,
    /// The population.
    pub silo: SiloId,
    /// What is looked for.
    pub kind: AdvertisementKind,
    /// How much may be looked at and returned.
    pub limits: SearchLimits,
    /// The moment that it is judged at.
    pub now: UnixMs,
}

/// One advertisement found, and its exact score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SearchHit {
    /// Where it is in the index; good until the index next changes.
    pub slot: u32,
    /// Lower is better.
    pub score: f64,
}

/// What a search found. Kept by the caller and used again, so that a search allocates nothing per candidate.
#[derive(Debug, Default)]
pub struct SearchResult {
    /// Best first; ties by advertisement id.
    pub hits: Vec<SearchHit>,
    /// Rows looked at.
    pub evaluated_rows: u32,
    /// Whether the evaluation limit cut the search short.
    pub truncated: bool,
    /// Of the rows looked at, how many each rule refused; in the order of `Refusal`.
    ///
    /// Each row is counted under the first rule that refuses it as far as columns tell; where they cannot, a later rule
    /// that they can judge takes its place: a row of the searcher's own that is also full may count as full, for one.
    /// A row whose score is too bad in any case is not held against rules that need more than columns.
    pub refusal_counts: Vec<(Refusal, u32)>,
    buffers: search::SearchBuffers,
}

impl SearchResult {
    /// The exact terms of the hit at `number` in `hits`, in the order of `Ruleset::soft`.
    pub fn hit_terms(&self, number: usize) -> &[f64] {
        let width = self.buffers.hit_terms.len() / self.hits.len().max(1);
        &self.buffers.hit_terms[number * width..][..width]
    }
}

/// The advertisements of one set under one ruleset.
#[derive(Debug)]
pub struct AdvertisementIndex {
    ruleset: Arc<Ruleset>,
    layout: ColumnLayout,
    interner: Interner,
    tick_scale: TickScale,
    slab: EntrySlab,
    partition_by_key: BTreeMap<PartitionKey, u32>,
    /// By number; `None` where free.
    partitions: Vec<Option<(PartitionKey, KdTree)>>,
    free_partitions: Vec<u32>,
    row_buffer: RowBuffer,
    next_maintained_partition: usize,
}

impl AdvertisementIndex {
    /// An empty index for `ruleset`.
    pub fn new(ruleset: Arc<Ruleset>) -> Self {
        let layout = ColumnLayout::for_ruleset(&ruleset);
        let codes = Interner::new(layout.interned_attributes.len());
        Self {
            ruleset,
            layout,
            interner: codes,
            tick_scale: TickScale::default(),
            slab: EntrySlab::default(),
            partition_by_key: BTreeMap::new(),
            partitions: Vec::new(),
            free_partitions: Vec::new(),
            row_buffer: RowBuffer::default(),
            next_maintained_partition: 0,
        }
    }

    /// The ruleset that its facts are seen through.
    pub fn ruleset(&self) -> &Arc<Ruleset> {
        &self.ruleset
    }

    /// How many advertisements it holds.
    pub fn len(&self) -> usize {
        self.slab.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds `entry`, or replaces the one of the same id wholly and returns it: giving back what it holds takes as long
    /// as the rest, and need not be done while others wait for the index.
    pub fn upsert(&mut self, entry: IndexEntry) -> Option<IndexEntry> {
        self.tick_scale.set_origin_once(entry.advertisement.advertised_since);
        let Some(slot) = self.slab.slot_of(entry.advertisement.id) else {
            let partition = self.find_or_create_partition(&entry);
            let slot = self.slab.insert_entry(entry);
            let Self { ruleset, layout, slab, tick_scale: clock, interner: codes, row_buffer: row, .. } = self;
            layout.write_row(ruleset, slab.entry(slot), slot, clock, codes, row);
            self.insert_row(partition);
            return None;
        };
        self.layout.write_row(&self.ruleset, &entry, slot, &self.tick_scale, &mut self.interner, &mut self.row_buffer);
        let place = self.slab.row_addr(slot);
        let (key, tree) = self.partitions[place.partition as usize].as_mut().expect("a row's partition exists");
        let (silo, kind) = (entry.advertisement.session.silo, entry.advertisement.kind);
        if key.matches_advertisement(silo, kind, &self.layout.partition_attributes, &entry.attribute_values) {
            let slab = &mut self.slab;
            let moved = |slot, leaf, row| slab.set_row_addr(slot, RowAddr { partition: place.partition, leaf, row });
            tree.replace_row(&self.layout, place, &self.row_buffer, moved);
        } else {
            self.remove_row(place);
            let partition = self.find_or_create_partition(&entry);
            self.insert_row(partition);
        }
        self.slab.replace_entry(slot, entry)
    }

    /// Reads what changes of `ids` are about to read, so that the machine fetches for many at once; worth it for ten or
    /// so. Changes nothing.
    pub fn prefetch(&self, ids: impl IntoIterator<Item = AdvertisementId>) {
        let rows = ids.into_iter().filter_map(|id| self.slab.slot_of(id)).map(|slot| self.slab.row_addr(slot).row);
        std::hint::black_box(rows.fold(0, u32::wrapping_add));
    }

    /// Takes an entry out; `None` when there is none.
    pub fn remove(&mut self, id: AdvertisementId) -> Option<IndexEntry> {
        let (place, entry) = self.slab.remove_entry(id)?;
        self.remove_row(place);
        if self.slab.len() == 0 {
            self.interner.clear();
        }
        Some(entry)
    }

    /// The entry of that id.
    pub fn get(&self, id: AdvertisementId) -> Option<&IndexEntry> {
        self.slab.slot_of(id).map(|slot| self.slab.entry(slot))
    }

    /// The entry of a hit.
    pub fn entry(&self, slot: u32) -> &IndexEntry {
        self.slab.entry(slot)
    }

    /// All entries, in no particular order.
    pub fn entries(&self) -> impl Iterator<Item = &IndexEntry> {
        self.slab.entries()
    }

    /// The entries of `most` slots from slot `from` on, and the slot to go on from, if there are more. What is added while
    /// somebody goes from portion to portion may be passed over; what stays is not.
    pub fn entries_page(&self, from: u32, most: u32) -> (impl Iterator<Item = &IndexEntry>, Option<u32>) {
        self.slab.entries_page(from, most)
    }

    /// Whether the columns say the same as the entry of that id about what changes most: that it is there, until when it is
    /// believed, and how many seats are open. A search believes the columns first. `false` when it is not there.
    pub fn is_consistent(&self, id: AdvertisementId) -> bool {
        let Some(slot) = self.slab.slot_of(id) else { return false };
        let (place, entry) = (self.slab.row_addr(slot), self.slab.entry(slot));
        let tick = self.tick_scale.to_tick(entry.expires_at);
        let partition = self.partitions.get(place.partition as usize);
        let (silo, kind) = (entry.advertisement.session.silo, entry.advertisement.kind);
        partition.and_then(Option::as_ref).is_some_and(|(key, tree)| {
            key.matches_advertisement(silo, kind, &self.layout.partition_attributes, &entry.attribute_values)
                && tree.row_matches(place, slot, tick, u32::from(entry.open_seats))
        })
    }

    /// Sets until when an advertisement is believed. `false` when it is not there.
    pub fn set_expires_at(&mut self, id: AdvertisementId, expires: UnixMs) -> bool {
        let tick = self.tick_scale.to_tick(expires);
        self.update_entry_and_column(id, word_column::EXPIRES_AT, tick, |entry| entry.expires_at = expires)
    }

    /// Sets how many seats are open. `false` when it is not there.
    pub fn set_open_seats(&mut self, id: AdvertisementId, open_seats: u16) -> bool {
        self.update_entry_and_column(id, word_column::SEATS_AND_OWNER, u32::from(open_seats), |entry| {
            entry.open_seats = open_seats
        })
    }

    /// Appends up to `most` ids of advertisements that are expired at `now`.
    pub fn collect_expired(&self, now: UnixMs, most: usize, out: &mut Vec<AdvertisementId>) {
        let tick = self.tick_scale.to_tick(now);
        let leaves = self.partitions.iter().flatten().flat_map(|(_, tree)| &tree.leaves);
        let perhaps = leaves.flat_map(|leaf| {
            let rows = leaf
                .word_column(word_column::EXPIRES_AT)
                .iter()
                .enumerate()
                .filter(move |&(_, &expires)| expires <= tick);
            rows.filter(|&(row, _)| !leaf.holes().contains(&(row as u32))).map(|(row, _)| leaf.slot(row))
        });
        let due = perhaps.map(|slot| self.entry(slot)).filter(|entry| entry.expires_at <= now);
        out.extend(due.map(|entry| entry.advertisement.id).take(most));
    }

    /// Recomputes the bounds of some leaves that removals have left wider than needed; call it now and then. About
    /// one leaf in a hundred a call, and at least one of a partition.
    pub fn maintain(&mut self) {
        let slab = &mut self.slab;
        let turns = self.partitions.len().div_ceil(100).max(1);
        for _ in 0..turns.min(self.partitions.len()) {
            let number = self.next_maintained_partition % self.partitions.len();
            self.next_maintained_partition = number + 1;
            if let Some((_, tree)) = &mut self.partitions[number] {
                let leaves = if turns == 1 { tree.leaves.len().div_ceil(100) } else { tree.leaves.len() };
                tree.maintain_leaves(leaves, |slot, leaf, row| {
                    slab.set_row_addr(slot, RowAddr { partition: number as u32, leaf, row })
                });
            }
        }
    }

    /// The best advertisements for `query`, exactly as `filter::admit` and `score::score` define them.
    pub fn search(&self, query: &SearchQuery<'_>, found: &mut SearchResult) {
        search::run_search(self, query, InstructionSet::Widest, found);
    }

    /// The same on a chosen instruction set; the answer is the same.
    pub fn search_with_instruction_set(&self, path: InstructionSet, query: &SearchQuery<'_>, found: &mut SearchResult) {
        search::run_search(self, query, path, found);
    }

    fn partition_tree(&self, partition: u32) -> &KdTree {
        &self.partitions[partition as usize].as_ref().expect("a row's partition exists").1
    }

    /// The partitions that no `Equal` filter of `query` refuses.
    fn for_each_matching_partition(&self, query: &SearchQuery<'_>, mut each: impl FnMut(u32, &KdTree)) {
        let wish = WantedKeys::for_query(query, &self.layout.partition_attributes);
        match wish.enumerate_keys() {
            Some(keys) => {
                let numbers = keys.iter().filter_map(|key| self.partition_by_key.get(key));
                numbers.for_each(|&number| each(number, self.partition_tree(number)));
            }
            None => {
                let near = self
                    .partition_by_key
                    .range(wish.range_start()..)
                    .take_while(|(key, _)| wish.has_same_silo_and_kind(key));
                near.filter(|(key, _)| wish.matches_key(key))
                    .for_each(|(_, &number)| each(number, self.partition_tree(number)));
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
        if let Some(&number) = self.partition_by_key.get(&key) {
            return number;
        }
        let number = self.free_partitions.pop().unwrap_or(self.partitions.len() as u32);
        if number as usize == self.partitions.len() {
            self.partitions.push(None);
        }
        self.partitions[number as usize] = Some((key.clone(), KdTree::new(&self.layout)));
        self.partition_by_key.insert(key, number);
        number
    }

    fn insert_row(&mut self, number: u32) {
        let slab = &mut self.slab;
        if let Some((_, tree)) = &mut self.partitions[number as usize] {
            let moved = |slot, leaf, row| slab.set_row_addr(slot, RowAddr { partition: number, leaf, row });
            tree.insert_row(&self.layout, &self.row_buffer, moved);
        }
    }

    fn remove_row(&mut self, place: RowAddr) {
        let partition = &mut self.partitions[place.partition as usize];
        let Some((key, tree)) = partition else { return };
        tree.remove_row(place.leaf, place.row);
        if tree.len() == 0 {
            self.partition_by_key.remove(key);
            *partition = None;
            self.free_partitions.push(place.partition);
        }
    }

    fn update_entry_and_column(
        &mut self,
        id: AdvertisementId,
        column: usize,
        value: u32,
        change: impl FnOnce(&mut IndexEntry),
    ) -> bool {
        let Some(slot) = self.slab.slot_of(id) else { return false };
        let RowAddr { partition, leaf, row } = self.slab.row_addr(slot);
        if let Some((_, tree)) = &mut self.partitions[partition as usize] {
            tree.set_word(column, leaf, row, value);
        }
        self.slab.entry_mut(slot).map(change);
        true
    }
}
