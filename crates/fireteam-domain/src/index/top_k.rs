//! The best few, ties by id, admitted only when they would be among them.

use std::cmp::Ordering;

/// A row with its exact score.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScoredRow {
    pub(super) score: f64,
    /// The id's first four bytes.
    pub(super) id_prefix: u32,
    pub(super) slot: u32,
}

/// Keeps the `most` best of what is offered. Offers wait in a buffer, because admitting a row means reading its entry.
#[derive(Debug, Default)]
pub(super) struct TopK {
    k: usize,
    admitted: Vec<ScoredRow>,
    pending: Vec<ScoredRow>,
    merge_buffer: Vec<ScoredRow>,
}

/// Offers that wait before they are looked through, at least.
const PENDING_ROWS_MIN: usize = 64;

impl TopK {
    /// Forgets everything; `most` is at least 1.
    pub(super) fn reset(&mut self, most: usize) {
        self.k = most;
        self.admitted.clear();
        self.pending.clear();
    }

    /// The worst of the best, once there are enough.
    pub(super) fn kth_best(&self) -> Option<&ScoredRow> {
        self.admitted.get(self.k - 1)
    }

    /// Whether offers should be looked through now.
    pub(super) fn should_merge(&self) -> bool {
        self.pending.len() >= self.k.max(PENDING_ROWS_MIN)
    }

    /// Whether there are enough offers to fill the best, were they all admitted.
    pub(super) fn could_reach_k(&self) -> bool {
        self.kth_best().is_none() && self.k <= self.admitted.len() + self.pending.len()
    }

    /// Offers a row; ignored when it is surely worse than the worst.
    pub(super) fn offer(&mut self, row: ScoredRow) {
        let worse = self.kth_best().is_some_and(|worst| match row.score.total_cmp(&worst.score) {
            Ordering::Less => false,
            Ordering::Equal => worst.id_prefix < row.id_prefix,
            Ordering::Greater => true,
        });
        if !worse {
            self.pending.push(row);
        }
    }

    /// The offers not yet looked through.
    pub(super) fn pending_rows(&self) -> &[ScoredRow] {
        &self.pending
    }

    /// Merges the offers in: best first, admitting each until there are enough.
    pub(super) fn merge_pending(
        &mut self,
        order: impl Fn(&ScoredRow, &ScoredRow) -> Ordering,
        mut admit: impl FnMut(u32) -> bool,
    ) {
        self.pending.sort_unstable_by(&order);
        self.merge_buffer.clear();
        let (mut admitted, mut waiting) = (self.admitted.iter().peekable(), self.pending.iter().peekable());
        while self.merge_buffer.len() < self.k {
            let take_waiting = match (admitted.peek(), waiting.peek()) {
                (None, None) => break,
                (Some(_), None) => false,
                (None, Some(_)) => true,
                (Some(one), Some(other)) => order(other, one) == Ordering::Less,
            };
            let next = if take_waiting { waiting.next() } else { admitted.next() };
            self.merge_buffer.extend(next.filter(|row| !take_waiting || admit(row.slot)));
        }
        std::mem::swap(&mut self.admitted, &mut self.merge_buffer);
        self.pending.clear();
    }

    /// The best, best first.
    pub(super) fn best_rows(&self) -> &[ScoredRow] {
        &self.admitted
    }
}
