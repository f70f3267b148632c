//! Slots of an index by the users of their sessions, so that a changed rating, or a searcher who avoids
//! users, finds their advertisements.

use hashbrown::HashTable;

use crate::id::UserKey;
use crate::index::entry::IndexEntry;
use crate::index::slab::EntrySlab;

/// Player of an entry.
#[derive(Clone, Copy, Debug, PartialEq)]
struct EntryPlayer {
    slot: u32,
    /// Index in the session's players.
    player: u32,
}

/// Slots by user. It has one pair per player of each entry, and reads the users from the slab.
#[derive(Debug, Default)]
pub(super) struct SlotsByUser(HashTable<EntryPlayer>);

impl SlotsByUser {
    /// Adds the players of the entry in `slot`.
    pub(super) fn insert(&mut self, slab: &EntrySlab, slot: u32) {
        for (player, user) in users_of(slab.entry(slot)).enumerate() {
            let added = EntryPlayer { slot, player: player as u32 };
            self.0.insert_unique(hash_user(user), added, |known| hash_user(user_at(slab, *known)));
        }
    }

    /// Removes the players of `slot`, whose entry is or was `entry`.
    pub(super) fn remove(&mut self, entry: &IndexEntry, slot: u32) {
        for (player, user) in users_of(entry).enumerate() {
            let removed = EntryPlayer { slot, player: player as u32 };
            if let Ok(found) = self.0.find_entry(hash_user(user), |known| *known == removed) {
                found.remove();
            }
        }
    }

    /// Slots whose entries have `user` as a player, sorted, without duplicates.
    pub(super) fn slots_of(&self, slab: &EntrySlab, user: UserKey) -> Vec<u32> {
        let same_hash = self.0.iter_hash(hash_user(user));
        let mut slots: Vec<u32> =
            same_hash.filter(|known| user_at(slab, **known) == user).map(|known| known.slot).collect();
        slots.sort_unstable();
        slots.dedup();
        slots
    }

    /// Number of players of all entries.
    pub(super) fn player_count(&self) -> usize {
        self.0.len()
    }
}

/// Whether two entries have the same players, in the same order.
pub(super) fn have_same_users_in_order(one: &IndexEntry, other: &IndexEntry) -> bool {
    users_of(one).eq(users_of(other))
}

fn users_of(entry: &IndexEntry) -> impl Iterator<Item = UserKey> {
    entry.advertisement.session.players.iter().map(|player| player.user)
}

fn user_at(slab: &EntrySlab, EntryPlayer { slot, player }: EntryPlayer) -> UserKey {
    slab.entry(slot).advertisement.session.players[player as usize].user
}

/// Hash of a user: the first eight bytes of its key, which is a digest.
fn hash_user(user: UserKey) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = *user.as_bytes();
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}
