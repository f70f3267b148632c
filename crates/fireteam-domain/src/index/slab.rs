//! Slab of index entries: entries by slot, slots by id, and the row address of each entry.

use hashbrown::HashTable;

use crate::id::AdvertisementId;
use crate::index::entry::IndexEntry;
use crate::index::tree::RowAddr;

/// Slot of the slab. The fields that updates read come first: due to the alignment, three of four slots have them in one cache
/// line. With a million entries, each cache line costs a memory access, and a slot of 96 bytes, which would have them in one
/// always, costs 16 bytes.
#[derive(Debug)]
#[repr(C, align(16))]
struct SlotContents {
    id: AdvertisementId,
    row_addr: RowAddr,
    /// `None` for a free slot.
    entry: Option<IndexEntry>,
}

/// Entries of an index.
#[derive(Debug, Default)]
pub(super) struct EntrySlab {
    slots: Vec<SlotContents>,
    free_slots: Vec<u32>,
    slot_by_id: HashTable<u32>,
}

/// Hash of an id: its first eight bytes. Ids come from a keyed hash, so callers cannot choose them.
fn hash_id(id: AdvertisementId) -> u64 {
    u64::from_le_bytes(id.first_eight_bytes())
}

impl EntrySlab {
    /// Number of entries.
    pub(super) fn len(&self) -> usize {
        self.slot_by_id.len()
    }

    /// Slot of an id.
    pub(super) fn slot_of(&self, id: AdvertisementId) -> Option<u32> {
        self.slot_by_id.find(hash_id(id), |&slot| self.slots[slot as usize].id == id).copied()
    }

    /// Slots of the ids that start with `prefix`: practically one.
    pub(super) fn slots_with_id_prefix(&self, prefix: [u8; 8]) -> impl Iterator<Item = u32> {
        let slots = self.slot_by_id.iter_hash(u64::from_le_bytes(prefix)).copied();
        slots.filter(move |&slot| self.slots[slot as usize].id.first_eight_bytes() == prefix)
    }

    /// Inserts an entry with a new id and returns its slot.
    pub(super) fn insert_entry(&mut self, entry: IndexEntry) -> u32 {
        let id = entry.advertisement.id;
        let new = SlotContents { id, row_addr: RowAddr::default(), entry: Some(entry) };
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
        self.slot_by_id.insert_unique(hash_id(id), slot, |&slot| hash_id(slots[slot as usize].id));
        slot
    }

    /// Replaces the entry in `slot` by one with the same id, and returns the old entry.
    pub(super) fn replace_entry(&mut self, slot: u32, entry: IndexEntry) -> Option<IndexEntry> {
        self.slots[slot as usize].entry.replace(entry)
    }

    /// Removes an entry; returns it with the address of its row.
    pub(super) fn remove_entry(&mut self, id: AdvertisementId) -> Option<(RowAddr, IndexEntry)> {
        let slots = &self.slots;
        let found = self.slot_by_id.find_entry(hash_id(id), |&slot| slots[slot as usize].id == id).ok()?;
        let (slot, _) = found.remove();
        self.free_slots.push(slot);
        let row_addr = self.row_addr(slot);
        self.slots[slot as usize].entry.take().map(|entry| (row_addr, entry))
    }

    /// Entry of an occupied slot.
    pub(super) fn entry(&self, slot: u32) -> &IndexEntry {
        self.slots[slot as usize].entry.as_ref().expect("the slot is occupied")
    }

    /// Entry of a slot, mutable; the caller must not change its id.
    pub(super) fn entry_mut(&mut self, slot: u32) -> Option<&mut IndexEntry> {
        self.slots[slot as usize].entry.as_mut()
    }

    /// Number of slots, occupied or free.
    pub(super) fn slot_count(&self) -> usize {
        self.slots.len()
    }

    /// Entry of a slot, if it is occupied.
    pub(super) fn entry_if_occupied(&self, slot: usize) -> Option<&IndexEntry> {
        self.slots.get(slot)?.entry.as_ref()
    }

    /// All entries, in no particular order.
    pub(super) fn entries(&self) -> impl Iterator<Item = &IndexEntry> {
        self.slots.iter().filter_map(|slot| slot.entry.as_ref())
    }

    /// Entries of up to `max_slots` slots from `first_slot`, and the first slot of the next page, if any.
    pub(super) fn entries_page(
        &self,
        first_slot: u32,
        max_slots: u32,
    ) -> (impl Iterator<Item = &IndexEntry>, Option<u32>) {
        let end = (first_slot as usize).saturating_add(max_slots as usize).min(self.slots.len());
        let slots = self.slots.get(first_slot as usize..end).unwrap_or_default();
        (slots.iter().filter_map(|slot| slot.entry.as_ref()), (end < self.slots.len()).then_some(end as u32))
    }

    /// Address of an entry's row.
    pub(super) fn row_addr(&self, slot: u32) -> RowAddr {
        self.slots[slot as usize].row_addr
    }

    /// Sets the address of an entry's row.
    pub(super) fn set_row_addr(&mut self, slot: u32, row_addr: RowAddr) {
        self.slots[slot as usize].row_addr = row_addr;
    }
}
