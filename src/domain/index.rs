//! One set's advertisements in memory, laid out so that a search reads little and reads it in order.
//!
//! Partitions by silo, kind and the values that `Equal` filters ask for; in each a kd-B-tree whose leaves are columns
//! (DESIGN section 8). Columns only prefilter: `filter::admit` and `score::score` define every answer.

mod best;
mod block;
mod code;
mod kernel;
mod key;
mod layout;
mod leaf;
pub mod oracle;
mod plan;
mod rules;
mod search;
mod summary;
#[cfg(test)]
mod tests;
mod tree;

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashTable;

use crate::domain::advertisement::{Advertisement, Kind};
use crate::domain::facts::Facts;
use crate::domain::filter::{Listed, Refusal, Searcher};
use crate::domain::id::{AdvertisementId, SiloId};
use crate::domain::index::code::Codes;
use crate::domain::index::key::{Key, Wish};
use crate::domain::index::layout::{Layout, Row, Ticks, word};
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

/// The advertisements of one set under one ruleset.
#[derive(Debug)]
pub struct Index {
    ruleset: Arc<Ruleset>,
    layout: Layout,
    codes: Codes,
    clock: Ticks,
    /// By slot; `None` where free.
    entries: Vec<Option<Entry>>,
    /// By slot: where its row is.
    places: Vec<Place>,
    free: Vec<u32>,
    /// Slots by id.
    ids: HashTable<u32>,
    keys: BTreeMap<Key, u32>,
    /// By number; `None` where free.
    partitions: Vec<Option<(Key, Tree)>>,
    free_partitions: Vec<u32>,
    row: Row,
    tidied: usize,
}

/// Ids are outputs of a keyed hash that nobody can choose, so their first bytes are hash enough.
fn hash(id: AdvertisementId) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = *id.as_bytes();
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
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
            entries: Vec::new(),
            places: Vec::new(),
            free: Vec::new(),
            ids: HashTable::new(),
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
        self.ids.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds `entry`, or replaces the one of the same id wholly.
    pub fn upsert(&mut self, entry: Entry) {
        self.clock.anchor(entry.advertisement.since);
        let id = entry.advertisement.id;
        let Some(slot) = self.slot(id) else {
            let slot = self.free.pop().unwrap_or(self.entries.len() as u32);
            if slot as usize == self.entries.len() {
                self.entries.push(None);
                self.places.push(Place::default());
            }
            self.write_row(&entry, slot);
            let partition = self.partition_of(&entry);
            self.entries[slot as usize] = Some(entry);
            let entries = &self.entries;
            self.ids.insert_unique(hash(id), slot, |&it| hash(id_of(entries, it)));
            return self.insert_row(partition);
        };
        self.write_row(&entry, slot);
        let place = self.places[slot as usize];
        let (key, tree) = self.partitions[place.partition as usize].as_mut().expect("a row's partition exists");
        let (silo, kind) = (entry.advertisement.session.silo, entry.advertisement.kind);
        if key.is_of(silo, kind, &self.layout.keyed, &entry.facts) {
            if !tree.overwrite(place.leaf, place.row, &self.row) {
                let places = &mut self.places;
                let mut moved = |slot, leaf, row| note(places, place.partition, slot, leaf, row);
                tree.remove(place.leaf, place.row, &mut moved);
                tree.insert(&self.layout, &self.row, &mut moved);
            }
        } else {
            self.remove_row(place);
            let partition = self.partition_of(&entry);
            self.insert_row(partition);
        }
        self.entries[slot as usize] = Some(entry);
    }

    /// Takes an entry out; `None` when there is none.
    pub fn remove(&mut self, id: AdvertisementId) -> Option<Entry> {
        let entries = &self.entries;
        let found = self.ids.find_entry(hash(id), |&slot| id_of(entries, slot) == id).ok()?;
        let (slot, _) = found.remove();
        self.remove_row(self.places[slot as usize]);
        self.free.push(slot);
        if self.ids.is_empty() {
            self.codes.clear();
        }
        self.entries[slot as usize].take()
    }

    /// The entry of that id.
    pub fn get(&self, id: AdvertisementId) -> Option<&Entry> {
        self.slot(id).map(|slot| self.entry(slot))
    }

    /// The entry of a hit.
    pub fn entry(&self, slot: u32) -> &Entry {
        self.entries[slot as usize].as_ref().expect("a hit's slot is taken until the index changes")
    }

    /// All entries, in no particular order.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().flatten()
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
        let rows = leaves.flat_map(|leaf| leaf.words(word::EXPIRES).iter().zip(leaf.words(word::SLOT)));
        let perhaps = rows.filter(|&(&expires, _)| expires <= tick).map(|(_, &slot)| self.entry(slot));
        out.extend(perhaps.filter(|entry| entry.expires <= now).map(|entry| entry.advertisement.id).take(most));
    }

    /// Recomputes the bounds of some leaves that removals have left wider than needed; call it now and then. About
    /// one leaf in a hundred a call, and at least one of a partition.
    pub fn tidy(&mut self) {
        let places = &mut self.places;
        let turns = self.partitions.len().div_ceil(100).max(1);
        for _ in 0..turns.min(self.partitions.len()) {
            let number = self.tidied % self.partitions.len();
            self.tidied = number + 1;
            if let Some((_, tree)) = &mut self.partitions[number] {
                let leaves = if turns == 1 { tree.leaves.len().div_ceil(100) } else { tree.leaves.len() };
                tree.tidy(leaves, |slot, leaf, row| note(places, number as u32, slot, leaf, row));
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

    fn slot(&self, id: AdvertisementId) -> Option<u32> {
        self.ids.find(hash(id), |&slot| id_of(&self.entries, slot) == id).copied()
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

    fn write_row(&mut self, entry: &Entry, slot: u32) {
        self.layout.write(entry, slot, &self.clock, &mut self.codes, &mut self.row);
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
        let places = &mut self.places;
        if let Some((_, tree)) = &mut self.partitions[number as usize] {
            tree.insert(&self.layout, &self.row, |slot, leaf, row| note(places, number, slot, leaf, row));
        }
    }

    fn remove_row(&mut self, place: Place) {
        let (places, partition) = (&mut self.places, &mut self.partitions[place.partition as usize]);
        let Some((key, tree)) = partition else { return };
        tree.remove(place.leaf, place.row, |slot, leaf, row| note(places, place.partition, slot, leaf, row));
        if tree.len() == 0 {
            self.keys.remove(key);
            *partition = None;
            self.free_partitions.push(place.partition);
        }
    }

    fn change(&mut self, id: AdvertisementId, column: usize, value: u32, change: impl FnOnce(&mut Entry)) -> bool {
        let Some(slot) = self.slot(id) else { return false };
        let Place { partition, leaf, row } = self.places[slot as usize];
        if let Some((_, tree)) = &mut self.partitions[partition as usize] {
            tree.set_word(column, leaf, row, value);
        }
        self.entries[slot as usize].as_mut().map(change);
        true
    }
}

fn id_of(entries: &[Option<Entry>], slot: u32) -> AdvertisementId {
    entries[slot as usize].as_ref().expect("a listed slot is taken").advertisement.id
}

fn note(places: &mut [Place], partition: u32, slot: u32, leaf: u32, row: u32) {
    places[slot as usize] = Place { partition, leaf, row };
}
