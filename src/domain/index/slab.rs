//! Entries by slot, slots by id, and where each entry's row is.

use hashbrown::HashTable;

use crate::domain::id::AdvertisementId;
use crate::domain::index::Entry;
use crate::domain::index::tree::Place;

/// What an update needs to know of an entry comes first and, being aligned, lies in one cache line: among a million
/// entries each line costs a trip to memory.
#[derive(Debug)]
#[repr(align(32))]
struct Slot {
    id: AdvertisementId,
    place: Place,
    /// `None` where free.
    entry: Option<Entry>,
}

/// All entries of an index.
#[derive(Debug, Default)]
pub(super) struct Slab {
    slots: Vec<Slot>,
    free: Vec<u32>,
    ids: HashTable<u32>,
}

/// Ids are outputs of a keyed hash that nobody can choose, so their first bytes are hash enough.
fn hash(id: AdvertisementId) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = *id.as_bytes();
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

impl Slab {
    /// How many entries there are.
    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    /// The slot of an id.
    pub(super) fn find(&self, id: AdvertisementId) -> Option<u32> {
        self.ids.find(hash(id), |&slot| self.slots[slot as usize].id == id).copied()
    }

    /// A new slot for an id that has none.
    pub(super) fn add(&mut self, entry: Entry) -> u32 {
        let id = entry.advertisement.id;
        let new = Slot { id, place: Place::default(), entry: Some(entry) };
        let slot = match self.free.pop() {
            Some(free) => {
                self.slots[free as usize] = new;
                free
            }
            None => {
                self.slots.push(new);
                self.slots.len() as u32 - 1
            }
        };
        let slots = &self.slots;
        self.ids.insert_unique(hash(id), slot, |&it| hash(slots[it as usize].id));
        slot
    }

    /// Puts `entry` where the one of the same id was, which it returns.
    pub(super) fn replace(&mut self, slot: u32, entry: Entry) -> Option<Entry> {
        self.slots[slot as usize].entry.replace(entry)
    }

    /// Takes an entry out; with it, where its row is.
    pub(super) fn remove(&mut self, id: AdvertisementId) -> Option<(Place, Entry)> {
        let slots = &self.slots;
        let found = self.ids.find_entry(hash(id), |&slot| slots[slot as usize].id == id).ok()?;
        let (slot, _) = found.remove();
        self.free.push(slot);
        let place = self.place(slot);
        self.slots[slot as usize].entry.take().map(|entry| (place, entry))
    }

    /// The entry of a slot that is taken.
    pub(super) fn entry(&self, slot: u32) -> &Entry {
        self.slots[slot as usize].entry.as_ref().expect("a hit's slot is taken until the index changes")
    }

    /// The same, to be changed in all but its id.
    pub(super) fn entry_mut(&mut self, slot: u32) -> Option<&mut Entry> {
        self.slots[slot as usize].entry.as_mut()
    }

    /// All entries, in no particular order.
    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.slots.iter().filter_map(|slot| slot.entry.as_ref())
    }

    /// The entries of `most` slots from slot `from` on, and the slot to go on from, if there are more.
    pub(super) fn portion(&self, from: u32, most: u32) -> (impl Iterator<Item = &Entry>, Option<u32>) {
        let end = (from as usize).saturating_add(most as usize).min(self.slots.len());
        let slots = self.slots.get(from as usize..end).unwrap_or_default();
        (slots.iter().filter_map(|slot| slot.entry.as_ref()), (end < self.slots.len()).then_some(end as u32))
    }

    /// Where a row is.
    pub(super) fn place(&self, slot: u32) -> Place {
        self.slots[slot as usize].place
    }

    /// Notes where a row is now.
    pub(super) fn note(&mut self, slot: u32, place: Place) {
        self.slots[slot as usize].place = place;
    }
}
