//! Entries by slot, slots by id, and where each entry's row is.

use hashbrown::HashTable;

use crate::id::AdvertisementId;
use crate::index::IndexEntry;
use crate::index::tree::RowAddr;

/// What an update needs to know of an entry comes first and, being aligned, lies in one cache line: among a million
/// entries each line costs a trip to memory.
#[derive(Debug)]
#[repr(align(32))]
struct SlabSlot {
    id: AdvertisementId,
    row_addr: RowAddr,
    /// `None` where free.
    entry: Option<IndexEntry>,
}

/// All entries of an index.
#[derive(Debug, Default)]
pub(super) struct EntrySlab {
    slots: Vec<SlabSlot>,
    free_slots: Vec<u32>,
    slot_by_id: HashTable<u32>,
}

/// Ids are outputs of a keyed hash that nobody can choose, so their first bytes are hash enough.
fn hash_id(id: AdvertisementId) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = *id.as_bytes();
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

impl EntrySlab {
    /// How many entries there are.
    pub(super) fn len(&self) -> usize {
        self.slot_by_id.len()
    }

    /// The slot of an id.
    pub(super) fn slot_of(&self, id: AdvertisementId) -> Option<u32> {
        self.slot_by_id.find(hash_id(id), |&slot| self.slots[slot as usize].id == id).copied()
    }

    /// A new slot for an id that has none.
    pub(super) fn insert_entry(&mut self, entry: IndexEntry) -> u32 {
        let id = entry.advertisement.id;
        let new = SlabSlot { id, row_addr: RowAddr::default(), entry: Some(entry) };
        let slot = match self.free_slots.pop() {
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
        self.slot_by_id.insert_unique(hash_id(id), slot, |&it| hash_id(slots[it as usize].id));
        slot
    }

    /// Puts `entry` where the one of the same id was, which it returns.
    pub(super) fn replace_entry(&mut self, slot: u32, entry: IndexEntry) -> Option<IndexEntry> {
        self.slots[slot as usize].entry.replace(entry)
    }

    /// Takes an entry out; with it, where its row is.
    pub(super) fn remove_entry(&mut self, id: AdvertisementId) -> Option<(RowAddr, IndexEntry)> {
        let slots = &self.slots;
        let found = self.slot_by_id.find_entry(hash_id(id), |&slot| slots[slot as usize].id == id).ok()?;
        let (slot, _) = found.remove();
        self.free_slots.push(slot);
        let place = self.row_addr(slot);
        self.slots[slot as usize].entry.take().map(|entry| (place, entry))
    }

    /// The entry of a slot that is taken.
    pub(super) fn entry(&self, slot: u32) -> &IndexEntry {
        self.slots[slot as usize].entry.as_ref().expect("a hit's slot is taken until the index changes")
    }

    /// The same, to be changed in all but its id.
    pub(super) fn entry_mut(&mut self, slot: u32) -> Option<&mut IndexEntry> {
        self.slots[slot as usize].entry.as_mut()
    }

    /// All entries, in no particular order.
    pub(super) fn entries(&self) -> impl Iterator<Item = &IndexEntry> {
        self.slots.iter().filter_map(|slot| slot.entry.as_ref())
    }

    /// The entries of `most` slots from slot `from` on, and the slot to go on from, if there are more.
    pub(super) fn entries_page(&self, from: u32, most: u32) -> (impl Iterator<Item = &IndexEntry>, Option<u32>) {
        let end = (from as usize).saturating_add(most as usize).min(self.slots.len());
        let slots = self.slots.get(from as usize..end).unwrap_or_default();
        (slots.iter().filter_map(|slot| slot.entry.as_ref()), (end < self.slots.len()).then_some(end as u32))
    }

    /// Where a row is.
    pub(super) fn row_addr(&self, slot: u32) -> RowAddr {
        self.slots[slot as usize].row_addr
    }

    /// Notes where a row is now.
    pub(super) fn set_row_addr(&mut self, slot: u32, place: RowAddr) {
        self.slots[slot as usize].row_addr = place;
    }
}
