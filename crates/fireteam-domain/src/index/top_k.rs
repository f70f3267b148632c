//! Top-k selection: the k best admitted rows, ties by id. Rows are admitted only if they would rank among the k best.

use std::cmp::Ordering;

/// Row with its exact score.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExactlyScoredRow {
    pub(super) score: f64,
    /// First four bytes of the advertisement id, big-endian.
    pub(super) id_prefix: u32,
    pub(super) slot: u32,
}

/// Keeps the `k` best offered rows. Offered rows are buffered, because admitting a row reads its entry, which is slow.
#[derive(Debug, Default)]
pub(super) struct TopK {
    k: usize,
    admitted: Vec<ExactlyScoredRow>,
    pending: Vec<ExactlyScoredRow>,
    merge_buffer: Vec<ExactlyScoredRow>,
}

/// Minimum number of buffered rows before a merge.
const PENDING_ROWS_MIN: usize = 64;

impl TopK {
    /// Removes all rows and sets `k`, which is at least 1.
    pub(super) fn reset(&mut self, k: usize) {
        self.k = k;
        self.admitted.clear();
        self.pending.clear();
    }

    /// The k-th best admitted row; `None` while fewer are admitted.
    pub(super) fn kth_best_row(&self) -> Option<&ExactlyScoredRow> {
        self.admitted.get(self.k - 1)
    }

    /// Whether enough rows are buffered for a merge.
    pub(super) fn should_merge(&self) -> bool {
        self.pending.len() >= self.k.max(PENDING_ROWS_MIN)
    }

    /// Whether the buffered rows could complete the top k, if all were admitted.
    pub(super) fn merge_could_complete_k(&self) -> bool {
        self.kth_best_row().is_none() && self.k <= self.admitted.len() + self.pending.len()
    }

    /// Offers a row; ignored if it is certainly worse than the k-th best.
    pub(super) fn offer(&mut self, row: ExactlyScoredRow) {
        let is_worse = self.kth_best_row().is_some_and(|kth| match row.score.total_cmp(&kth.score) {
            Ordering::Less => false,
            Ordering::Equal => row.id_prefix > kth.id_prefix,
            Ordering::Greater => true,
        });
        if !is_worse {
            self.pending.push(row);
        }
    }

    /// Buffered rows that are not merged yet.
    pub(super) fn pending_rows(&self) -> &[ExactlyScoredRow] {
        &self.pending
    }

    /// Merges the buffered rows, best first, and admits each until there are k.
    pub(super) fn merge_pending(
        &mut self,
        compare: impl Fn(&ExactlyScoredRow, &ExactlyScoredRow) -> Ordering,
        mut admit: impl FnMut(u32) -> bool,
    ) {
        self.pending.sort_unstable_by(&compare);
        self.merge_buffer.clear();
        let (mut admitted, mut pending) = (self.admitted.iter().peekable(), self.pending.iter().peekable());
        while self.merge_buffer.len() < self.k {
            let take_pending = match (admitted.peek(), pending.peek()) {
                (None, None) => break,
                (Some(_), None) => false,
                (None, Some(_)) => true,
                (Some(one), Some(other)) => compare(other, one) == Ordering::Less,
            };
            let next = if take_pending { pending.next() } else { admitted.next() };
            self.merge_buffer.extend(next.filter(|row| !take_pending || admit(row.slot)));
        }
        std::mem::swap(&mut self.admitted, &mut self.merge_buffer);
        self.pending.clear();
    }

    /// Admitted rows, best first.
    pub(super) fn best_rows(&self) -> &[ExactlyScoredRow] {
        &self.admitted
    }
}
