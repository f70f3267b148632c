//! One set's advertisements in memory, laid out so that a search reads little and reads it in order.
//!
//! Partitions by silo, kind and the values that `Equal` filters ask for; in each a kd-B-tree whose leaves are columns
//! (DESIGN section 8). Columns only prefilter: `filter::admit` and `score::score` define every answer.

mod best;
mod block;
mod code;
mod exact;
mod gauge;
mod guard;
mod kernel;
mod key;
mod layout;
mod leaf;
pub mod oracle;
mod plan;
mod rules;
mod search;
mod slab;
mod summary;
#[cfg(test)]
mod tests;
mod tree;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::domain::advertisement::{Advertisement, Kind};
use crate::domain::facts::Facts;
use crate::domain::filter::{Listed, Refusal, Searcher};
use crate::domain::id::{AdvertisementId, SiloId};
use crate::domain::index::code::Codes;
use crate::domain::index::key::{Key, Wish};
use crate::domain::index::layout::{Layout, Row, Ticks, word};
use crate::domain::index::slab::Slab;
use crate::domain::index::tree::{Place, Tree};
use crate::domain::ruleset::{Ruleset, SearchLimits};
use crate::domain::time::UnixMs;

pub use kernel::Path;

/// One advertisement in the index.
#[derive(Clone, Debug)]
pub struct Entry {
    /// As published.
    pub advertisement: Arc<Advertisement>,
    /// What the index's ruleset sees of it.
    pub facts: Facts,
    /// Until when it is believed.
    pub expires: UnixMs,
    /// Seats that nobody holds.
    pub open_seats: u16,
    /// The part of an answer that does not depend on the search, encoded by whoever fills the index; opaque here.
    pub encoded: Arc<[u8]>,
}

impl Entry {
    /// The entry as filters and scores see it.
    pub fn listed(&self) -> Listed<'_> {
        Listed {
            advertisement: &self.advertisement,
            facts: &self.facts,
            expires: self.expires,
            open_seats: self.open_seats,
        }
    }
}

/// One search.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    /// The rules to judge by: the index's own, or the same with overridden weights and limits.
    pub ruleset: &'a Ruleset,
    /// Who asks.
    pub searcher: Searcher<'a>,
    /// The population.
    pub silo: SiloId,
    /// What is looked for.
    pub kind: Kind,
    /// How much may be looked at and returned.
    pub limits: SearchLimits,
    /// The moment that it is judged at.
    pub now: UnixMs,
}

/// One advertisement found, and its exact score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hit {
    /// Where it is in the index; good until the index next changes.
    pub slot: u32,
    /// Lower is better.
    pub score: f64,
}

/// What a search found. Kept by the caller and used again, so that a search allocates nothing per candidate.
#[derive(Debug, Default)]
pub struct Found {
    /// Best first; ties by advertisement id.
    pub hits: Vec<Hit>,
    /// Rows looked at.
    pub evaluated: u32,
    /// Whether the evaluation limit cut the search short.
    pub truncated: bool,
    /// Of the rows looked at, how many each rule refused; in the order of `Refusal`.
    ///
    /// Each row is counted under the first rule that refuses it as far as columns tell; where they cannot, a later rule
    /// that they can judge takes its place: a row of the searcher's own that is also full may count as full, for one.
    /// A row whose score is too bad in any case is not held against rules that need more than columns.
    pub refusals: Vec<(Refusal, u32)>,
    desk: search::Desk,
}

impl Found {
    /// The exact terms of the hit at `number` in `hits`, in the order of `Ruleset::soft`.
    pub fn terms(&self, number: usize) -> &[f64] {
        let width = self.desk.terms.len() / self.hits.len().max(1);
        &self.desk.terms[number * width..][..width]
    }
}

/// The advertisements of one set under one ruleset.
#[derive(Debug)]
pub struct Index {
    ruleset: Arc<Ruleset>,
    layout: Layout,
    codes: Codes,
    clock: Ticks,
    slab: Slab,
    keys: BTreeMap<Key, u32>,
    /// By number; `None` where free.
    partitions: Vec<Option<(Key, Tree)>>,
    free_partitions: Vec<u32>,
    row: Row,
    tidied: usize,
}

impl Index {
    /// An empty index for `ruleset`.
    pub fn new(ruleset: Arc<Ruleset>) -> Self {
        let layout = Layout::of(&ruleset);
        let codes = Codes::new(layout.coded.len());
        Self {
            ruleset,
            layout,
            codes,
            clock: Ticks::default(),
            slab: Slab::default(),
            keys: BTreeMap::new(),
            partitions: Vec::new(),
            free_partitions: Vec::new(),
            row: Row::default(),
            tidied: 0,
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
    pub fn upsert(&mut self, entry: Entry) -> Option<Entry> {
        self.clock.anchor(entry.advertisement.since);
        let Some(slot) = self.slab.find(entry.advertisement.id) else {
            let partition = self.partition_of(&entry);
            let slot = self.slab.add(entry);
            let Self { ruleset, layout, slab, clock, codes, row, .. } = self;
            layout.write(ruleset, slab.entry(slot), slot, clock, codes, row);
            self.insert_row(partition);
            return None;
        };
        self.layout.write(&self.ruleset, &entry, slot, &self.clock, &mut self.codes, &mut self.row);
        let place = self.slab.place(slot);
        let (key, tree) = self.partitions[place.partition as usize].as_mut().expect("a row's partition exists");
        let (silo, kind) = (entry.advertisement.session.silo, entry.advertisement.kind);
        if key.is_of(silo, kind, &self.layout.keyed, &entry.facts) {
            let slab = &mut self.slab;
            let moved = |slot, leaf, row| slab.note(slot, Place { partition: place.partition, leaf, row });
            tree.replace(&self.layout, place, &self.row, moved);
        } else {
            self.remove_row(place);
            let partition = self.partition_of(&entry);
            self.insert_row(partition);
        }
        self.slab.replace(slot, entry)
    }

    /// Reads what changes of `ids` are about to read, so that the machine fetches for many at once; worth it for ten or
    /// so. Changes nothing.
    pub fn warm(&self, ids: impl IntoIterator<Item = AdvertisementId>) {
        let rows = ids.into_iter().filter_map(|id| self.slab.find(id)).map(|slot| self.slab.place(slot).row);
        std::hint::black_box(rows.fold(0, u32::wrapping_add));
    }

    /// Takes an entry out; `None` when there is none.
    pub fn remove(&mut self, id: AdvertisementId) -> Option<Entry> {
        let (place, entry) = self.slab.remove(id)?;
        self.remove_row(place);
        if self.slab.len() == 0 {
            self.codes.clear();
        }
        Some(entry)
    }

    /// The entry of that id.
    pub fn get(&self, id: AdvertisementId) -> Option<&Entry> {
        self.slab.find(id).map(|slot| self.slab.entry(slot))
    }

    /// The entry of a hit.
    pub fn entry(&self, slot: u32) -> &Entry {
        self.slab.entry(slot)
    }

    /// All entries, in no particular order.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.slab.entries()
    }

    /// The entries of `most` slots from slot `from` on, and the slot to go on from, if there are more. What is added while
    /// somebody goes from portion to portion may be passed over; what stays is not.
    pub fn portion(&self, from: u32, most: u32) -> (impl Iterator<Item = &Entry>, Option<u32>) {
        self.slab.portion(from, most)
    }

    /// Whether the columns say the same as the entry of that id about what changes most: that it is there, until when it is
    /// believed, and how many seats are open. A search believes the columns first. `false` when it is not there.
    pub fn is_sound(&self, id: AdvertisementId) -> bool {
        let Some(slot) = self.slab.find(id) else { return false };
        let (place, entry) = (self.slab.place(slot), self.slab.entry(slot));
        let tick = self.clock.tick(entry.expires);
        let partition = self.partitions.get(place.partition as usize);
        let (silo, kind) = (entry.advertisement.session.silo, entry.advertisement.kind);
        partition.and_then(Option::as_ref).is_some_and(|(key, tree)| {
            key.is_of(silo, kind, &self.layout.keyed, &entry.facts)
                && tree.says(place, slot, tick, u32::from(entry.open_seats))
        })
    }

    /// Sets until when an advertisement is believed. `false` when it is not there.
    pub fn set_expires(&mut self, id: AdvertisementId, expires: UnixMs) -> bool {
        let tick = self.clock.tick(expires);
        self.change(id, word::EXPIRES, tick, |entry| entry.expires = expires)
    }

    /// Sets how many seats are open. `false` when it is not there.
    pub fn set_open_seats(&mut self, id: AdvertisementId, open_seats: u16) -> bool {
        self.change(id, word::SEATS, u32::from(open_seats), |entry| entry.open_seats = open_seats)
    }

    /// Appends up to `most` ids of advertisements that are expired at `now`.
    pub fn expired(&self, now: UnixMs, most: usize, out: &mut Vec<AdvertisementId>) {
        let tick = self.clock.tick(now);
        let leaves = self.partitions.iter().flatten().flat_map(|(_, tree)| &tree.leaves);
        let perhaps = leaves.flat_map(|leaf| {
            let rows = leaf.words(word::EXPIRES).iter().enumerate().filter(move |&(_, &expires)| expires <= tick);
            rows.filter(|&(row, _)| !leaf.holes().contains(&(row as u32))).map(|(row, _)| leaf.slot(row))
        });
        let due = perhaps.map(|slot| self.entry(slot)).filter(|entry| entry.expires <= now);
        out.extend(due.map(|entry| entry.advertisement.id).take(most));
    }

    /// Recomputes the bounds of some leaves that removals have left wider than needed; call it now and then. About
    /// one leaf in a hundred a call, and at least one of a partition.
    pub fn tidy(&mut self) {
        let slab = &mut self.slab;
        let turns = self.partitions.len().div_ceil(100).max(1);
        for _ in 0..turns.min(self.partitions.len()) {
            let number = self.tidied % self.partitions.len();
            self.tidied = number + 1;
            if let Some((_, tree)) = &mut self.partitions[number] {
                let leaves = if turns == 1 { tree.leaves.len().div_ceil(100) } else { tree.leaves.len() };
                tree.tidy(leaves, |slot, leaf, row| slab.note(slot, Place { partition: number as u32, leaf, row }));
            }
        }
    }

    /// The best advertisements for `query`, exactly as `filter::admit` and `score::score` define them.
    pub fn search(&self, query: &Query<'_>, found: &mut Found) {
        search::run(self, query, Path::Widest, found);
    }

    /// The same on a chosen instruction set; the answer is the same.
    pub fn search_on(&self, path: Path, query: &Query<'_>, found: &mut Found) {
        search::run(self, query, path, found);
    }

    fn tree(&self, partition: u32) -> &Tree {
        &self.partitions[partition as usize].as_ref().expect("a row's partition exists").1
    }

    /// The partitions that no `Equal` filter of `query` refuses.
    fn each_partition(&self, query: &Query<'_>, mut each: impl FnMut(u32, &Tree)) {
        let wish = Wish::of(query, &self.layout.keyed);
        match wish.keys() {
            Some(keys) => {
                let numbers = keys.iter().filter_map(|key| self.keys.get(key));
                numbers.for_each(|&number| each(number, self.tree(number)));
            }
            None => {
                let near = self.keys.range(wish.least()..).take_while(|(key, _)| wish.is_near(key));
                near.filter(|(key, _)| wish.fits(key)).for_each(|(_, &number)| each(number, self.tree(number)));
            }
        }
    }

    fn partition_of(&mut self, entry: &Entry) -> u32 {
        let session = &entry.advertisement.session;
        let key = Key::of(session.silo, entry.advertisement.kind, &self.layout.keyed, &entry.facts);
        if let Some(&number) = self.keys.get(&key) {
            return number;
        }
        let number = self.free_partitions.pop().unwrap_or(self.partitions.len() as u32);
        if number as usize == self.partitions.len() {
            self.partitions.push(None);
        }
        self.partitions[number as usize] = Some((key.clone(), Tree::new(&self.layout)));
        self.keys.insert(key, number);
        number
    }

    fn insert_row(&mut self, number: u32) {
        let slab = &mut self.slab;
        if let Some((_, tree)) = &mut self.partitions[number as usize] {
            let moved = |slot, leaf, row| slab.note(slot, Place { partition: number, leaf, row });
            tree.insert(&self.layout, &self.row, moved);
        }
    }

    fn remove_row(&mut self, place: Place) {
        let partition = &mut self.partitions[place.partition as usize];
        let Some((key, tree)) = partition else { return };
        tree.remove(place.leaf, place.row);
        if tree.len() == 0 {
            self.keys.remove(key);
            *partition = None;
            self.free_partitions.push(place.partition);
        }
    }

    fn change(&mut self, id: AdvertisementId, column: usize, value: u32, change: impl FnOnce(&mut Entry)) -> bool {
        let Some(slot) = self.slab.find(id) else { return false };
        let Place { partition, leaf, row } = self.slab.place(slot);
        if let Some((_, tree)) = &mut self.partitions[partition as usize] {
            tree.set_word(column, leaf, row, value);
        }
        self.slab.entry_mut(slot).map(change);
        true
    }
}
