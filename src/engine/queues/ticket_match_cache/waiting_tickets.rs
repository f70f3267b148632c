//! Waiting tickets of one queue, longest wait first, with the position of each.

use std::collections::{BTreeMap, BTreeSet};

use crate::domain::id::TicketId;
use crate::domain::time::UnixMs;

/// Most tickets of a bucket.
const BUCKET_SIZE_MAX: u32 = 512;

/// Buckets that together have at most this many tickets are joined, so that their number stays small.
const JOINED_SIZE_MAX: u32 = BUCKET_SIZE_MAX / 2;

/// Place of a ticket in the order: time of entering, then id.
type SeniorityKey = (UnixMs, TicketId);

/// Start of the first bucket.
const LOWEST_KEY: SeniorityKey = (UnixMs(0), TicketId::from_bytes([0; 16]));

/// Waiting tickets in order. Neighbours are counted in buckets, so that a position costs one step for each bucket before it and for
/// each ticket of its own, not one for each ticket ahead.
#[derive(Debug, Default)]
pub(crate) struct WaitingTickets {
    tickets: BTreeSet<SeniorityKey>,
    /// Number of tickets from each key until the next key. None is zero.
    bucket_sizes: BTreeMap<SeniorityKey, u32>,
}

impl WaitingTickets {
    /// Tickets, longest wait first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = SeniorityKey> + '_ {
        self.tickets.iter().copied()
    }

    pub(crate) fn len(&self) -> usize {
        self.tickets.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tickets.is_empty()
    }

    pub(crate) fn insert(&mut self, ticket: SeniorityKey) {
        if self.tickets.insert(ticket) {
            let start = self.bucket_start(&ticket);
            let size = self.bucket_sizes.entry(start).or_default();
            *size += 1;
            if *size > BUCKET_SIZE_MAX {
                self.split_bucket(start);
            }
        }
    }

    pub(crate) fn remove(&mut self, ticket: &SeniorityKey) {
        if self.tickets.remove(ticket) {
            let start = self.bucket_start(ticket);
            let size_before = self.bucket_sizes.remove(&start).unwrap_or_default();
            self.put_back_or_join(start, size_before.saturating_sub(1));
        }
    }

    /// Number of tickets ahead of `ticket`, whether it waits or not.
    pub(crate) fn count_ahead_of(&self, ticket: &SeniorityKey) -> usize {
        let start = self.bucket_start(ticket);
        let in_earlier_buckets: u64 = self.bucket_sizes.range(..start).map(|(_, size)| u64::from(*size)).sum();
        in_earlier_buckets as usize + self.tickets.range(start..*ticket).count()
    }

    fn bucket_start(&self, ticket: &SeniorityKey) -> SeniorityKey {
        self.bucket_sizes.range(..=ticket).next_back().map_or(LOWEST_KEY, |(start, _)| *start)
    }

    fn split_bucket(&mut self, start: SeniorityKey) {
        let Some(size) = self.bucket_sizes.get_mut(&start) else { return };
        let kept = *size / 2;
        if let Some(middle) = self.tickets.range(start..).nth(kept as usize) {
            let moved = std::mem::replace(size, kept) - kept;
            self.bucket_sizes.insert(*middle, moved);
        }
    }

    /// Puts a bucket back in which `size` tickets are left. Joins it with the one before it if both are small.
    fn put_back_or_join(&mut self, start: SeniorityKey, size: u32) {
        if size == 0 {
            return;
        }
        match self.bucket_sizes.range_mut(..start).next_back() {
            Some((_, size_before)) if *size_before + size <= JOINED_SIZE_MAX => *size_before += size,
            _ => {
                self.bucket_sizes.insert(start, size);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket(number: u64) -> SeniorityKey {
        (UnixMs(number / 3), TicketId::from_bytes(u128::from(number % 3).to_be_bytes()))
    }

    /// The position is the number of tickets before it, counted one by one, while tickets enter and leave in several orders.
    #[test]
    fn positions_equal_those_counted_one_by_one() {
        let mut waiting = WaitingTickets::default();
        let mut counted = BTreeSet::new();
        let mut state = 7_u64;
        let mut below = |limit: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % limit
        };
        for step in 0..70_000_u64 {
            let (number, is_entering) = match step / 10_000 {
                // Enter in order; enter anywhere; leave from the front; mostly leave; all leave.
                0 => (step * 2, true),
                1 => (below(30_000), true),
                2 => (step - 20_000, false),
                3 => (below(30_000), below(5) == 0),
                _ => (step - 40_000, false),
            };
            if is_entering {
                waiting.insert(ticket(number));
                counted.insert(ticket(number));
            } else {
                waiting.remove(&ticket(number));
                counted.remove(&ticket(number));
            }
            if step % 500 == 0 {
                for number in [0, 1, number, below(30_000), u64::MAX] {
                    let key = ticket(number);
                    assert_eq!(waiting.count_ahead_of(&key), counted.range(..key).count(), "step {step}, {number}");
                }
                assert!(waiting.iter().eq(counted.iter().copied()), "step {step}");
                let total: u32 = waiting.bucket_sizes.values().sum();
                assert_eq!(total as usize, waiting.len(), "step {step}");
                assert!(waiting.bucket_sizes.values().all(|size| (1..=BUCKET_SIZE_MAX).contains(size)), "step {step}");
                let most_buckets = 2 + 2 * waiting.len() / (JOINED_SIZE_MAX as usize / 2);
                assert!(waiting.bucket_sizes.len() <= most_buckets, "step {step}: {}", waiting.bucket_sizes.len());
            }
        }
        assert!(waiting.is_empty() && waiting.bucket_sizes.is_empty());
    }
}
