//! Candidates of a search that predicts: rows with lower bounds of their scores, which are scored in the order of these bounds once no
//! unseen row can have a lower one.

use std::collections::BinaryHeap;

/// Row that may be a hit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    /// Lower bound of its score, in the unit of score bounds.
    pub(super) bound: f32,
    /// Position of its leaf in `SearchBuffers::leaf_bounds`.
    pub(super) leaf_position: u32,
    /// Row index in the leaf.
    pub(super) row: u32,
}

/// Candidates of one search.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    /// First those that were scored or have become too bad.
    rows: Vec<Candidate>,
    judged_count: usize,
    /// The `wanted` least bounds of rows, as bits: bounds are not negative, so their bits sort like their values.
    k_smallest_bounds: BinaryHeap<u32>,
    wanted: usize,
    /// Visited leaves with rows that are no candidates: the least bound of these rows, and the leaf's position.
    left_out: Vec<(f32, u32)>,
}

impl Candidates {
    /// Removes all rows.
    pub(super) fn reset(&mut self) {
        self.rows.clear();
        self.judged_count = 0;
        self.left_out.clear();
        self.restart_threshold(1, std::iter::empty());
    }

    /// From now on, the threshold is the `wanted`-th least of these bounds and those of all rows that are not judged.
    pub(super) fn restart_threshold(&mut self, wanted: usize, bounds: impl Iterator<Item = f32>) {
        self.wanted = wanted;
        self.k_smallest_bounds.clear();
        bounds.for_each(|bound| self.lower_threshold(bound));
        for position in self.judged_count..self.rows.len() {
            self.lower_threshold(self.rows[position].bound);
        }
    }

    /// Bound up to which there are as many rows as wanted; infinite if there are fewer.
    pub(super) fn threshold(&self) -> f32 {
        let is_full = self.k_smallest_bounds.len() == self.wanted;
        self.k_smallest_bounds.peek().filter(|_| is_full).map_or(f32::INFINITY, |&bits| f32::from_bits(bits))
    }

    /// Adds a row.
    pub(super) fn push(&mut self, candidate: Candidate) {
        self.rows.push(candidate);
        self.lower_threshold(candidate.bound);
    }

    fn lower_threshold(&mut self, bound: f32) {
        if self.k_smallest_bounds.len() < self.wanted {
            self.k_smallest_bounds.push(bound.to_bits());
        } else if let Some(mut greatest) =
            self.k_smallest_bounds.peek_mut().filter(|greatest| bound.to_bits() < **greatest)
        {
            *greatest = bound.to_bits();
        }
    }

    /// Notes that rows of a visited leaf with bounds above `bound` are no candidates.
    pub(super) fn leave_out_rows(&mut self, leaf_position: u32, bound: f32) {
        if bound < f32::MAX {
            self.left_out.push((bound, leaf_position));
        }
    }

    /// Takes a visited leaf that may have rows with bounds up to `cutoff` which are no candidates.
    pub(super) fn take_leaf_to_visit_again(&mut self, cutoff: f32) -> Option<u32> {
        let index = self.left_out.iter().position(|&(bound, _)| bound < cutoff)?;
        Some(self.left_out.swap_remove(index).1)
    }

    /// Rows of a leaf that are or were candidates.
    pub(super) fn rows_of_leaf(&self, leaf_position: u32) -> impl Iterator<Item = u32> {
        self.rows.iter().filter(move |row| row.leaf_position == leaf_position).map(|row| row.row)
    }

    /// Moves the rows with bounds up to `cutoff` that are not judged to `best`, best first. They count as judged.
    pub(super) fn judge_up_to(&mut self, cutoff: f32, best: &mut Vec<Candidate>) {
        let first = self.judged_count;
        for position in first..self.rows.len() {
            if self.rows[position].bound <= cutoff {
                self.rows.swap(self.judged_count, position);
                self.judged_count += 1;
            }
        }
        best.clear();
        best.extend_from_slice(&self.rows[first..self.judged_count]);
        best.sort_unstable_by(|one, other| one.bound.total_cmp(&other.bound));
    }
}

/// Round trip to a row, where it follows from columns or from its completed vector.
#[derive(Clone, Copy, Debug)]
pub(super) enum RowRoundTrip {
    /// By the latency model.
    ByDistance,
    /// Predicted, milliseconds.
    Predicted(f64),
}
