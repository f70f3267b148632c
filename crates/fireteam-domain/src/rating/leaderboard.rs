//! Leaderboard that stays sorted while ratings change: index of a user, and entries from an index on.
//!
//! Entries lie in sorted blocks of up to 512, and a Fenwick tree counts the entries per block. A lookup costs two
//! binary searches and one walk of the tree. A move shifts half a block. Splitting or removing a block rebuilds the
//! tree; that happens about once in hundreds of changes. A plain sorted list would shift a million entries for each
//! change.

use std::cmp::Ordering;

use crate::id::UserKey;

/// Maximum number of entries in one block. Shifting a block of this size takes less time than finding it.
const BLOCK_ENTRIES_MAX: usize = 512;

/// Neighboring blocks with at most this many entries together are merged, so that blocks stay filled.
const MERGED_BLOCK_ENTRIES_MAX: usize = BLOCK_ENTRIES_MAX / 2;

/// User and the value that the leaderboard sorts by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LeaderboardEntry {
    /// Higher is better.
    pub conservative_rating: f64,
    /// Breaks ties: the lower key comes first.
    pub user: UserKey,
}

impl LeaderboardEntry {
    /// Compares best first. NaN sorts before or after all numbers, by its sign.
    fn cmp_best_first(&self, other: &Self) -> Ordering {
        other.conservative_rating.total_cmp(&self.conservative_rating).then(self.user.cmp(&other.user))
    }
}

/// Sorted entries. A user has one entry if the caller removes the old one before it inserts the new one.
#[derive(Clone, Debug, Default)]
pub struct Leaderboard {
    /// No block is empty.
    blocks: Vec<Vec<LeaderboardEntry>>,
    block_counts: FenwickTree,
}

impl Leaderboard {
    /// Builds the leaderboard from entries in any order, one per user.
    pub fn from_entries(mut entries: Vec<LeaderboardEntry>) -> Self {
        entries.sort_unstable_by(LeaderboardEntry::cmp_best_first);
        // Fills blocks to two thirds, so that later inserts do not split them at once.
        let blocks: Vec<Vec<LeaderboardEntry>> =
            entries.chunks(BLOCK_ENTRIES_MAX * 2 / 3).map(<[LeaderboardEntry]>::to_vec).collect();
        let block_counts = FenwickTree::from_blocks(&blocks);
        Self { blocks, block_counts }
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.block_counts.total
    }

    /// True without entries.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Inserts an entry. Returns `false`, without a change, if the same entry exists.
    pub fn insert(&mut self, entry: LeaderboardEntry) -> bool {
        if self.blocks.is_empty() {
            self.blocks.push(vec![entry]);
            self.block_counts = FenwickTree::from_blocks(&self.blocks);
            return true;
        }
        // An entry worse than all others goes to the last block.
        let block_index = self.block_index(&entry).min(self.blocks.len() - 1);
        let block = &mut self.blocks[block_index];
        let Err(index) = block.binary_search_by(|known| known.cmp_best_first(&entry)) else { return false };
        block.insert(index, entry);
        if block.len() <= BLOCK_ENTRIES_MAX {
            self.block_counts.add(block_index, 1);
            return true;
        }
        let upper = block.split_off(BLOCK_ENTRIES_MAX / 2);
        self.blocks.insert(block_index + 1, upper);
        self.block_counts = FenwickTree::from_blocks(&self.blocks);
        true
    }

    /// Removes an entry. Returns `false` if it does not exist.
    pub fn remove(&mut self, entry: &LeaderboardEntry) -> bool {
        let block_index = self.block_index(entry);
        let Some(block) = self.blocks.get_mut(block_index) else { return false };
        let Ok(index) = block.binary_search_by(|known| known.cmp_best_first(entry)) else { return false };
        block.remove(index);
        let len = block.len();
        let next_len = self.blocks.get(block_index + 1).map(Vec::len);
        if len == 0 {
            self.blocks.remove(block_index);
        } else if next_len.is_some_and(|next_len| len + next_len <= MERGED_BLOCK_ENTRIES_MAX) {
            let next = self.blocks.remove(block_index + 1);
            self.blocks[block_index].extend(next);
        } else {
            self.block_counts.add(block_index, -1);
            return true;
        }
        self.block_counts = FenwickTree::from_blocks(&self.blocks);
        true
    }

    /// Index of `entry`, 0 for the best; or the index at which it would be inserted.
    pub fn index_of(&self, entry: &LeaderboardEntry) -> usize {
        let block_index = self.block_index(entry);
        let offset = self
            .blocks
            .get(block_index)
            .map_or(0, |block| block.partition_point(|known| known.cmp_best_first(entry) == Ordering::Less));
        self.block_counts.prefix_sum(block_index) + offset
    }

    /// Number of entries with a better rating than `conservative_rating`: the index of a new user with that rating.
    pub fn index_of_rating(&self, conservative_rating: f64) -> usize {
        self.index_of(&LeaderboardEntry { conservative_rating, user: UserKey::from_bytes([0; 16]) })
    }

    /// Indexes and entries from `index` on, best first; empty beyond the last entry.
    pub fn iter_from(&self, index: usize) -> impl Iterator<Item = (usize, LeaderboardEntry)> + '_ {
        let (block, offset) = self.block_counts.block_and_offset(index);
        let rest = self.blocks.get(block..).unwrap_or_default().iter().flatten();
        // For an index beyond the last entry, `block_and_offset` returns a block beyond the last one.
        (index..).zip(rest.skip(offset).copied())
    }

    /// Index of the block that may contain the entry: the first block that does not end before it.
    fn block_index(&self, entry: &LeaderboardEntry) -> usize {
        let ends_before = |block: &Vec<LeaderboardEntry>| {
            block.last().is_some_and(|last| last.cmp_best_first(entry) == Ordering::Less)
        };
        self.blocks.partition_point(ends_before)
    }
}

/// Number of entries per block as a Fenwick tree: sums over ranges whose lengths are powers of two (Fenwick 1994).
#[derive(Clone, Debug, Default)]
struct FenwickTree {
    /// Element `i` is the sum of blocks `i + 1 - lowest_set_bit(i + 1)` to `i`.
    sums: Vec<usize>,
    total: usize,
}

impl FenwickTree {
    fn from_blocks(blocks: &[Vec<LeaderboardEntry>]) -> Self {
        let mut sums: Vec<usize> = blocks.iter().map(Vec::len).collect();
        for at in 1..=sums.len() {
            let parent = at + lowest_set_bit(at);
            if parent <= sums.len() {
                sums[parent - 1] += sums[at - 1];
            }
        }
        Self { sums, total: blocks.iter().map(Vec::len).sum() }
    }

    /// Adds `difference` to the count of a block.
    fn add(&mut self, block: usize, difference: isize) {
        self.total = self.total.saturating_add_signed(difference);
        let mut at = block + 1;
        while at <= self.sums.len() {
            self.sums[at - 1] = self.sums[at - 1].saturating_add_signed(difference);
            at += lowest_set_bit(at);
        }
    }

    /// Number of entries in the blocks before `block`.
    fn prefix_sum(&self, block: usize) -> usize {
        let (mut at, mut sum) = (block.min(self.sums.len()), 0);
        while at > 0 {
            sum += self.sums[at - 1];
            at -= lowest_set_bit(at);
        }
        sum
    }

    /// Block that contains an index, and the position within the block.
    fn block_and_offset(&self, index: usize) -> (usize, usize) {
        let (mut block, mut remaining) = (0, index);
        let mut step = self.sums.len().checked_ilog2().map_or(0, |log| 1_usize << log);
        while step > 0 {
            if let Some(sum) = self.sums.get(block + step - 1).filter(|sum| **sum <= remaining) {
                remaining -= sum;
                block += step;
            }
            step /= 2;
        }
        (block, remaining)
    }
}

fn lowest_set_bit(number: usize) -> usize {
    number & number.wrapping_neg()
}

#[cfg(test)]
mod tests;
