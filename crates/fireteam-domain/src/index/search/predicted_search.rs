//! Searches that predict round trips: an exact score reads a vector and an entry that are in no cache, so leaves are visited before any
//! row is scored.
//!
//! Rows of visited leaves become candidates, with lower bounds of their scores by the least routes. Leaves are visited while one can have
//! a row with a lower bound than the k-th candidate; then the best candidates are scored, which may call for further leaves. So hardly
//! a row is scored that is no hit.

use crate::index::candidates::Candidate;
use crate::index::column_block::BLOCK_LEN_MAX;
use crate::index::exact_score::{exact_score_with_round_trip, row_round_trip};
use crate::index::leaf::{Leaf, ROWS_PER_LEAF};
use crate::index::result::SearchBuffers;
use crate::index::search::{BEST_FIRST_LEAVES, IndexSearch, SWEEP_LEAF_RATIO, VISITED_LEAF_BOUND};
use crate::index::top_k::ExactlyScoredRow;
use crate::index::tree::RowAddr;

/// Number of rows whose round trips are predicted between two merges of the top k.
const PREDICTED_ROWS_PER_MERGE: usize = 8;
/// Rows with bounds up to this multiple of the threshold are kept as candidates: the scores of the best may be a little above their bounds.
const KEPT_BOUND_RATIO: f32 = 1.0 + 1.0 / 32.0;
/// Least number of rows whose bounds are raised together.
const ROWS_RAISED_MIN: usize = 32;
/// Number of leaves whose columns are touched together: their cache misses overlap.
const LEAVES_TOUCHED: usize = 8;

impl IndexSearch<'_, '_> {
    /// Visits leaves and scores candidates until no other row can be a hit.
    pub(super) fn find_hits_by_candidates(&mut self) {
        let mut wanted = self.query.limits.max_results as usize;
        self.buffers.candidates.reset();
        loop {
            let SearchBuffers { candidates, top_k, .. } = &mut *self.buffers;
            let admitted = top_k.best_rows().iter().map(|row| self.plan.bound_cutoff_for_score(row.score));
            candidates.restart_threshold(wanted, admitted);
            self.visit_leaves_for_candidates();
            if !self.score_best_candidates() {
                return;
            }
            // If many of the best are refused, more are scored together.
            wanted = wanted.saturating_mul(2);
        }
    }

    /// Score bound above which a row is not scored now.
    fn candidate_cutoff(&self) -> f32 {
        match self.buffers.top_k.kth_best_row() {
            Some(_) => self.bound_cutoff(),
            None => self.buffers.candidates.threshold(),
        }
    }

    /// Visits leaves, the best first, until no other can have a row up to the cutoff.
    fn visit_leaves_for_candidates(&mut self) {
        while let Some(position) = self.buffers.candidates.take_leaf_to_visit_again(self.candidate_cutoff()) {
            self.visit_leaf_for_candidates(position as usize, false);
        }
        for _ in 0..BEST_FIRST_LEAVES {
            if self.candidate_cutoff() < f32::INFINITY {
                break;
            }
            let Some(position) = self.leaf_with_lowest_bound() else { return };
            self.visit_leaf_for_candidates(position, true);
        }
        let mut leaves = std::mem::take(&mut self.buffers.bounded_leaves);
        self.list_bounded_leaves(&mut leaves);
        let is_sweep = self.buffers.leaf_bounds.len() < leaves.len() * SWEEP_LEAF_RATIO
            && leaves.len() * ROWS_PER_LEAF < self.rows_left as usize;
        if !is_sweep {
            leaves.sort_unstable_by(|one, other| one.0.total_cmp(&other.0));
        }
        for (index, &(bound, position)) in leaves.iter().enumerate() {
            if index % LEAVES_TOUCHED == 0 {
                self.touch_leaves(&leaves[index..]);
            }
            if bound <= self.candidate_cutoff() {
                self.visit_leaf_for_candidates(position as usize, true);
            } else if !is_sweep {
                break;
            }
        }
        self.buffers.bounded_leaves = leaves;
    }

    /// Reads the starts of the columns of the next leaves into the cache.
    fn touch_leaves(&self, leaves: &[(f32, u32)]) {
        let cutoff = self.candidate_cutoff();
        let next = leaves.iter().take(LEAVES_TOUCHED).filter(|(bound, _)| *bound <= cutoff);
        std::hint::black_box(next.map(|&(_, position)| self.leaf_at(position as usize).touch_columns()).sum::<f32>());
    }

    /// Lists the leaves that can have a row up to the cutoff, in memory order, with their bounds by the least routes.
    fn list_bounded_leaves(&mut self, leaves: &mut Vec<(f32, u32)>) {
        let cutoff = self.candidate_cutoff();
        let mut order = std::mem::take(&mut self.buffers.leaf_order);
        self.collect_leaves_below_cutoff(cutoff.min(f32::MAX), &mut order);
        leaves.clear();
        leaves.extend(order.iter().map(|&key| (f32::from_bits((key >> 32) as u32), key as u32)));
        self.buffers.leaf_order = order;
        if let Some(route_bound) = self.route_bound.as_ref().filter(|_| cutoff < f32::INFINITY) {
            let bounds_of = |position: u32| {
                let (partition, first) = self.partition_of_leaf(position as usize);
                (&self.index.partition_tree(partition).leaf_bounds, position as usize - first)
            };
            route_bound.raise_leaf_bounds(self.instruction_set, &self.plan, bounds_of, leaves);
            // A later round need not raise them again.
            leaves.iter().for_each(|&(bound, position)| self.buffers.leaf_bounds[position as usize] = bound);
        }
    }

    /// Makes candidates of the rows of a leaf. Those with bounds far above the cutoff are left out, until the leaf is visited again.
    fn visit_leaf_for_candidates(&mut self, position: usize, is_first_visit: bool) {
        self.buffers.leaf_bounds[position] = VISITED_LEAF_BOUND;
        let (partition, first) = self.partition_of_leaf(position);
        let tree = self.index.partition_tree(partition);
        let leaf = &tree.leaves[position - first];
        if let Some(bound) = &self.route_bound {
            self.plan.set_certain_for_all(bound.is_certain_for_leaf(&tree.leaf_bounds, position - first));
        }
        // A visit that the evaluation limit cuts short, or that takes several blocks, cannot be repeated.
        let keeps_all = leaf.used_len() > BLOCK_LEN_MAX || (is_first_visit && (self.rows_left as usize) < leaf.len());
        // Refusals are counted once.
        let counts = (!is_first_visit).then(|| self.buffers.refusal_counts.clone());
        for first_row in (0..leaf.used_len()).step_by(BLOCK_LEN_MAX) {
            let full_len = BLOCK_LEN_MAX.min(leaf.used_len() - first_row);
            let first_addr = RowAddr { partition, leaf: (position - first) as u32, row: first_row as u32 };
            let len = if is_first_visit { self.take_rows(leaf, first_addr, full_len) } else { Some(full_len) };
            let Some(len) = len else { break };
            if self.compute_row_score_bounds(leaf, first_addr, len) == 0 {
                continue;
            }
            self.refuse_known_candidates(position as u32, first_row, is_first_visit);
            self.add_candidates(leaf, position as u32, first_addr, len, keeps_all);
        }
        if let Some(counts) = counts {
            self.buffers.refusal_counts = counts;
        }
        self.plan.set_certain_for_all(false);
    }

    /// Marks the rows of a block that are candidates from an earlier visit.
    fn refuse_known_candidates(&mut self, leaf_position: u32, first_row: usize, is_first_visit: bool) {
        if is_first_visit {
            return;
        }
        let SearchBuffers { candidates, kernel_buffers, .. } = &mut *self.buffers;
        for row in candidates.rows_of_leaf(leaf_position) {
            kernel_buffers.score_bounds[row as usize - first_row] = f32::INFINITY;
        }
    }

    /// Makes candidates of the rows of the last block. Until there are enough candidates, starts with the lowest bounds.
    fn add_candidates(&mut self, leaf: &Leaf, leaf_position: u32, first_addr: RowAddr, len: usize, keeps_all: bool) {
        let kept_cutoff = |search: &Self| match keeps_all {
            true => f32::MAX,
            false => (search.candidate_cutoff() * KEPT_BOUND_RATIO).min(f32::MAX),
        };
        let cutoff = kept_cutoff(self);
        self.list_surviving_rows(first_addr, len, cutoff);
        let mut survivors = std::mem::take(&mut self.buffers.surviving_rows);
        let mut rest = &mut survivors[..];
        let k = self.query.limits.max_results as usize;
        if self.candidate_cutoff() == f32::INFINITY && rest.len() > 2 * k {
            rest.select_nth_unstable_by(k + k / 8, |one, other| one.0.total_cmp(&other.0));
        }
        while !rest.is_empty() {
            let batch_len = (k + k / 8).max(ROWS_RAISED_MIN).min(rest.len());
            let (batch, later) = rest.split_at_mut(batch_len);
            let cutoff = kept_cutoff(self);
            let batch_len = partition_in_place(batch, |(bound, _)| *bound <= cutoff);
            let batch = &mut batch[..batch_len];
            if let Some(route_bound) = &self.route_bound {
                route_bound.raise_row_bounds(self.instruction_set, &self.plan, leaf, batch);
            }
            for &(bound, row) in &*batch {
                if bound <= cutoff {
                    self.buffers.candidates.push(Candidate { bound, leaf_position, row });
                }
            }
            rest = later;
        }
        self.buffers.surviving_rows = survivors;
        if !keeps_all {
            self.buffers.candidates.leave_out_rows(leaf_position, kept_cutoff(self));
        }
    }

    /// Scores the candidates up to the cutoff exactly, and offers them to the top k, the best first and a few at a time: few others can be
    /// hits once there are enough. Returns whether there were any.
    fn score_best_candidates(&mut self) -> bool {
        let cutoff = self.candidate_cutoff();
        let mut best = std::mem::take(&mut self.buffers.best_candidates);
        self.buffers.candidates.judge_up_to(cutoff, &mut best);
        for chunk in best.chunks(PREDICTED_ROWS_PER_MERGE) {
            if self.bound_cutoff() < chunk[0].bound {
                break;
            }
            self.touch_vectors(chunk);
            for candidate in chunk {
                let (partition, first) = self.partition_of_leaf(candidate.leaf_position as usize);
                let leaf = &self.index.partition_tree(partition).leaves[candidate.leaf_position as usize - first];
                self.offer_candidate(leaf, candidate.row as usize);
            }
            if self.buffers.top_k.kth_best_row().is_some() {
                self.merge_pending_rows();
            } else {
                self.merge_if_due();
            }
        }
        self.merge_pending_rows();
        let has_scored = !best.is_empty();
        self.buffers.best_candidates = best;
        has_scored
    }

    /// Scores a row exactly and offers it to the top k.
    fn offer_candidate(&mut self, leaf: &Leaf, row: usize) {
        let (index, query, plan) = (self.index, self.query, &self.plan);
        let (slot, id_prefix) = (leaf.slot(row), leaf.id_first_four_bytes(row));
        let round_trip = row_round_trip(index, query, plan, leaf, row);
        let score =
            exact_score_with_round_trip(index, query, plan, (leaf, row), round_trip, |_| {}) + self.cost_of(slot);
        self.buffers.candidate_round_trips.push((slot, round_trip));
        self.buffers.top_k.offer(ExactlyScoredRow { score, id_prefix, slot });
    }

    /// Reads the vectors of rows into the cache: the cache misses of the rows overlap.
    fn touch_vectors(&self, rows: &[Candidate]) {
        let Some(cache) = &self.index.vector_cache else { return };
        let touched = rows.iter().map(|candidate| {
            let leaf = self.leaf_at(candidate.leaf_position as usize);
            cache.touch(leaf.slot(candidate.row as usize))
        });
        std::hint::black_box(touched.sum::<f64>());
    }
}

/// Moves the items that `belongs` selects to the front, and returns their number.
fn partition_in_place<T>(items: &mut [T], belongs: impl Fn(&T) -> bool) -> usize {
    let mut count = 0;
    for position in 0..items.len() {
        if belongs(&items[position]) {
            items.swap(count, position);
            count += 1;
        }
    }
    count
}
