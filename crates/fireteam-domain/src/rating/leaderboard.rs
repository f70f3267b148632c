//! A leaderboard that keeps its order while scores change: who stands where, and who stands at a place.
//!
//! Standings lie in blocks of a few hundred, in order, and a Fenwick tree counts them. To find a user's place, or who is at one, is
//! two binary searches and a walk of the tree; to move one costs shifting half a block. A block that is split or emptied has the
//! tree made anew, which happens once in hundreds of changes. A sorted list would shift a million entries for each.

use std::cmp::Ordering;

use crate::id::UserKey;

/// Standings in one block at most: a block is shifted in less time than it takes to find it.
const BLOCK_ENTRIES_MAX: usize = 512;

/// Neighbouring blocks that have no more than this together become one, so that blocks stay filled however users move.
const MERGED_BLOCK_ENTRIES_MAX: usize = BLOCK_ENTRIES_MAX / 2;

/// A user and what it is ranked by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LeaderboardEntry {
    /// Higher is better.
    pub conservative_rating: f64,
    /// Decides between equals: the lesser first.
    pub user: UserKey,
}

impl LeaderboardEntry {
    /// Best first. What is no number has a place as well: before all numbers or after them, by its sign.
    fn cmp_best_first(&self, other: &Self) -> Ordering {
        other.conservative_rating.total_cmp(&self.conservative_rating).then(self.user.cmp(&other.user))
    }
}

/// Standings in order. A user has one as long as the caller removes the old one first.
#[derive(Clone, Debug, Default)]
pub struct Leaderboard {
    /// None is empty.
    blocks: Vec<Vec<LeaderboardEntry>>,
    block_counts: FenwickTree,
}

impl Leaderboard {
    /// All of them at once, in any order, each user once.
    pub fn from_entries(mut standings: Vec<LeaderboardEntry>) -> Self {
        standings.sort_unstable_by(LeaderboardEntry::cmp_best_first);
        // Two thirds full: room for those who come, before anything is split.
        let blocks: Vec<Vec<LeaderboardEntry>> =
            standings.chunks(BLOCK_ENTRIES_MAX * 2 / 3).map(<[LeaderboardEntry]>::to_vec).collect();
        let counts = FenwickTree::from_blocks(&blocks);
        Self { blocks, block_counts: counts }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.block_counts.total
    }

    /// Nobody is there.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Adds one; changes nothing and says `false` when it is there.
    pub fn insert(&mut self, standing: LeaderboardEntry) -> bool {
        if self.blocks.is_empty() {
            self.blocks.push(vec![standing]);
            self.block_counts = FenwickTree::from_blocks(&self.blocks);
            return true;
        }
        // Whoever is worse than all goes to the last block.
        let at = self.block_index(&standing).min(self.blocks.len() - 1);
        let block = &mut self.blocks[at];
        let Err(within) = block.binary_search_by(|known| known.cmp_best_first(&standing)) else { return false };
        block.insert(within, standing);
        if block.len() <= BLOCK_ENTRIES_MAX {
            self.block_counts.add(at, 1);
            return true;
        }
        let upper = block.split_off(BLOCK_ENTRIES_MAX / 2);
        self.blocks.insert(at + 1, upper);
        self.block_counts = FenwickTree::from_blocks(&self.blocks);
        true
    }

    /// Takes one away; says `false` when it is not there.
    pub fn remove(&mut self, standing: &LeaderboardEntry) -> bool {
        let at = self.block_index(standing);
        let Some(block) = self.blocks.get_mut(at) else { return false };
        let Ok(within) = block.binary_search_by(|known| known.cmp_best_first(standing)) else { return false };
        block.remove(within);
        let left = block.len();
        let next = self.blocks.get(at + 1).map(Vec::len);
        if left == 0 {
            self.blocks.remove(at);
        } else if next.is_some_and(|next| left + next <= MERGED_BLOCK_ENTRIES_MAX) {
            let next = self.blocks.remove(at + 1);
            self.blocks[at].extend(next);
        } else {
            self.block_counts.add(at, -1);
            return true;
        }
        self.block_counts = FenwickTree::from_blocks(&self.blocks);
        true
    }

    /// The place of `standing`, 0 for the best, or where it would stand.
    pub fn index_of(&self, standing: &LeaderboardEntry) -> usize {
        let at = self.block_index(standing);
        let within = self
            .blocks
            .get(at)
            .map_or(0, |block| block.partition_point(|known| known.cmp_best_first(standing) == Ordering::Less));
        self.block_counts.prefix_sum(at) + within
    }

    /// How many have a better score than `score`: where somebody new with it would stand.
    pub fn index_of_rating(&self, score: f64) -> usize {
        self.index_of(&LeaderboardEntry { conservative_rating: score, user: UserKey::from_bytes([0; 16]) })
    }

    /// Places and standings from a place on, best first.
    pub fn iter_from(&self, place: usize) -> impl Iterator<Item = (usize, LeaderboardEntry)> + '_ {
        let (at, within) = self.block_counts.locate(place);
        let rest = self.blocks.get(at..).unwrap_or_default().iter().flatten();
        // What `find` says of a place beyond the last is the end.
        (place..).zip(rest.skip(within).copied())
    }

    /// The block that a standing is in, if it is anywhere: the first that does not end before it.
    fn block_index(&self, standing: &LeaderboardEntry) -> usize {
        let ends_before = |block: &Vec<LeaderboardEntry>| {
            block.last().is_some_and(|it| it.cmp_best_first(standing) == Ordering::Less)
        };
        self.blocks.partition_point(ends_before)
    }
}

/// How many standings the blocks have: sums over ranges whose lengths are powers of two (Fenwick 1994).
#[derive(Clone, Debug, Default)]
struct FenwickTree {
    /// Element `i` counts the blocks from `i + 1 - lowest_bit(i + 1)` to `i`.
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

    /// A block has one more, or one less.
    fn add(&mut self, block: usize, difference: isize) {
        self.total = self.total.saturating_add_signed(difference);
        let mut at = block + 1;
        while at <= self.sums.len() {
            self.sums[at - 1] = self.sums[at - 1].saturating_add_signed(difference);
            at += lowest_set_bit(at);
        }
    }

    /// Standings in the blocks before this one.
    fn prefix_sum(&self, block: usize) -> usize {
        let (mut at, mut sum) = (block.min(self.sums.len()), 0);
        while 0 < at {
            sum += self.sums[at - 1];
            at -= lowest_set_bit(at);
        }
        sum
    }

    /// The block that a place is in, and how far in it.
    fn locate(&self, place: usize) -> (usize, usize) {
        let (mut at, mut left) = (0, place);
        let mut step = self.sums.len().checked_ilog2().map_or(0, |log| 1_usize << log);
        while 0 < step {
            if let Some(sum) = self.sums.get(at + step - 1).filter(|sum| **sum <= left) {
                left -= sum;
                at += step;
            }
            step /= 2;
        }
        (at, left)
    }
}

fn lowest_set_bit(number: usize) -> usize {
    number & number.wrapping_neg()
}

#[cfg(test)]
mod tests;
