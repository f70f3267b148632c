//! One search: leaves in the order of their bounds, rows in columns, the survivors exactly.

use std::cmp::Ordering;

use crate::filter::{Refusal, admit};
use crate::index::column_block::{LeafBlock, RowBlock};
use crate::index::exact_score::exact_score;
use crate::index::kernel::{BLOCK_LEN_MAX, InstructionSet, KernelBuffers, evaluate_block};
use crate::index::leaf::Leaf;
use crate::index::plan::QueryPlan;
use crate::index::top_k::{ScoredRow, TopK};
use crate::index::tree::RowAddr;
use crate::index::{AdvertisementIndex, SearchHit, SearchQuery, SearchResult};

/// Buffers that a search uses and leaves behind for the next.
#[derive(Debug, Default)]
pub(super) struct SearchBuffers {
    kernel_buffers: KernelBuffers,
    top_k: TopK,
    /// Of the best, one after the other.
    pub(super) hit_terms: Vec<f64>,
    /// Bounds of the leaves of all partitions visited, one partition after the other.
    leaf_bounds: Vec<f32>,
    /// Partition, and where its leaves begin in `bounds`.
    partition_starts: Vec<(u32, usize)>,
    /// Bound and place in `bounds` of leaves, to be sorted.
    leaf_order: Vec<u64>,
    refusal_counts: Vec<u32>,
    excluded_rows: Vec<RowAddr>,
    surviving_rows: Vec<(f32, u32)>,
}

/// Leaves that are picked one by one, best first, before the rest is looked over.
const BEST_FIRST_LEAVES: usize = 16;
/// When more than one in this many leaves is left after the head, all are swept in the order of memory.
const SWEEP_LEAF_RATIO: usize = 6;
/// So few leaves are all looked at: that takes microseconds, and whoever finds nothing in a small population is told
/// which rules refused whom.
const ALWAYS_VISITED_LEAVES: usize = 8;
/// Bounds that are passed over together.
const BOUNDS_CHUNK_LEN: usize = 16;
/// Rows that a search which found too few looks at only to say what refused them.
const EXPLAINED_ROWS_MAX: usize = 4096;
/// After so many of the searcher's own rows were fetched, columns are asked first.
const OWN_ROWS_THRESHOLD: u32 = 32;
/// The bound of a leaf that was looked at: less than nothing, and nothing is less.
const VISITED_LEAF_BOUND: f32 = f32::NAN;

pub(super) fn run_search(
    index: &AdvertisementIndex,
    query: &SearchQuery<'_>,
    path: InstructionSet,
    found: &mut SearchResult,
) {
    found.hits.clear();
    found.refusal_counts.clear();
    (found.evaluated_rows, found.truncated) = (0, false);
    if query.limits.max_results == 0 {
        return;
    }
    let SearchResult { hits, evaluated_rows: evaluated, truncated, refusal_counts: refusals, buffers: desk } = found;
    let plan = QueryPlan::for_query(query, &index.layout, &index.interner, &index.tick_scale);
    desk.top_k.reset(query.limits.max_results as usize);
    desk.refusal_counts.clear();
    desk.refusal_counts.resize(Refusal::counter_count(query.ruleset.hard_filters.len()), 0);
    desk.excluded_rows.clear();
    let slots = query.searcher.excluded_ids.iter().filter_map(|&id| index.slab.slot_of(id));
    desk.excluded_rows.extend(slots.map(|slot| index.slab.row_addr(slot)));
    // An id may have been given twice.
    desk.excluded_rows.dedup();
    let left = query.limits.max_evaluated;
    let mut search =
        IndexSearch { index, query, instruction_set: path, plan, buffers: desk, rows_left: left, truncated: false };
    search.compute_leaf_bounds();
    search.visit_leaves();
    search.merge_pending_rows();
    search.count_refusals_in_skipped_leaves();
    search.compute_hit_terms();
    (*evaluated, *truncated) = (left - search.rows_left, search.truncated);
    hits.extend(desk.top_k.best_rows().iter().map(|row| SearchHit { slot: row.slot, score: row.score }));
    let counts = desk.refusal_counts.iter().enumerate().filter(|&(_, &count)| 0 < count);
    refusals.extend(counts.map(|(counter, &count)| (Refusal::from_counter_index(counter), count)));
}

struct IndexSearch<'a, 'q> {
    index: &'a AdvertisementIndex,
    query: &'a SearchQuery<'q>,
    instruction_set: InstructionSet,
    plan: QueryPlan,
    buffers: &'a mut SearchBuffers,
    /// Rows that may still be looked at.
    rows_left: u32,
    truncated: bool,
}

impl IndexSearch<'_, '_> {
    fn compute_leaf_bounds(&mut self) {
        let SearchBuffers {
            leaf_bounds: bounds,
            partition_starts: parts,
            kernel_buffers: scratch,
            refusal_counts: counts,
            ..
        } = &mut *self.buffers;
        bounds.clear();
        parts.clear();
        let (index, plan, path) = (self.index, &self.plan, self.instruction_set);
        let mut leaves = 0;
        index.for_each_matching_partition(self.query, |number, tree| {
            parts.push((number, leaves));
            leaves += tree.leaf_bounds.leaf_count();
        });
        if leaves <= ALWAYS_VISITED_LEAVES {
            bounds.resize(leaves, plan.constant_terms);
            return;
        }
        for &(number, _) in &*parts {
            let tree = index.partition_tree(number);
            for from in (0..tree.leaf_bounds.leaf_count()).step_by(BLOCK_LEN_MAX) {
                let len = BLOCK_LEN_MAX.min(tree.leaf_bounds.leaf_count() - from);
                let rows = &tree.leaf_bounds.row_counts[from..][..len];
                let begin = scratch.score_bounds.iter_mut().zip(rows);
                begin.for_each(|(bound, &rows)| *bound = if rows == 0 { f32::INFINITY } else { plan.constant_terms });
                evaluate_block(
                    path,
                    plan,
                    LeafBlock { leaf_bounds: &tree.leaf_bounds, first_leaf: from, len },
                    scratch,
                    counts,
                    len,
                );
                bounds.extend_from_slice(&scratch.score_bounds[..len]);
            }
        }
        // Leaves are no rows: what was refused here was not looked at.
        counts.fill(0);
    }

    /// Visits leaves until no other can hold anything better.
    fn visit_leaves(&mut self) {
        for _ in 0..BEST_FIRST_LEAVES {
            if self.buffers.top_k.kth_best().is_some() {
                break;
            }
            let Some(at) = self.leaf_with_lowest_bound() else { return };
            if !self.visit_leaf(at) {
                return;
            }
        }
        let mut order = std::mem::take(&mut self.buffers.leaf_order);
        self.collect_leaves_below_cutoff(&mut order);
        let rows_left = order.len() * super::leaf::ROWS_PER_LEAF;
        let sweep =
            self.buffers.leaf_bounds.len() < order.len() * SWEEP_LEAF_RATIO && rows_left < self.rows_left as usize;
        if !sweep {
            order.sort_unstable();
        }
        for &key in &order {
            if !self.visit_leaf((key & u64::from(u32::MAX)) as usize) && !sweep {
                break;
            }
        }
        self.buffers.leaf_order = order;
    }

    /// After a search that found fewer than were asked for, counts what refused the leaves that were passed over whole,
    /// so that who finds nothing is told why.
    fn count_refusals_in_skipped_leaves(&mut self) {
        let mut budget = EXPLAINED_ROWS_MAX;
        for at in 0..self.buffers.leaf_bounds.len() {
            if self.buffers.top_k.kth_best().is_some() || self.truncated {
                return;
            }
            let rows = self.leaf_at(at).len();
            if self.buffers.leaf_bounds[at] == f32::INFINITY && rows <= budget.min(self.rows_left as usize) {
                budget -= rows;
                self.visit_leaf(at);
                self.merge_pending_rows();
            }
        }
    }

    fn leaf_at(&self, at: usize) -> &Leaf {
        let (number, first) = self.partition_of_leaf(at);
        &self.index.partition_tree(number).leaves[at - first]
    }

    /// The partition of a leaf, and where its leaves begin.
    fn partition_of_leaf(&self, at: usize) -> (u32, usize) {
        self.buffers.partition_starts[self.buffers.partition_starts.partition_point(|&(_, from)| from <= at) - 1]
    }

    /// The leaf with the least bound; `None` when none is left.
    fn leaf_with_lowest_bound(&self) -> Option<usize> {
        let bounds = &self.buffers.leaf_bounds;
        let least_of =
            |bounds: &[f32]| bounds.iter().fold(f32::INFINITY, |least, &it| if it < least { it } else { least });
        let mut lanes = [f32::INFINITY; BOUNDS_CHUNK_LEN];
        let (strides, rest) = bounds.as_chunks::<BOUNDS_CHUNK_LEN>();
        for stride in strides {
            lanes.iter_mut().zip(stride).for_each(|(lane, &it)| *lane = if it < *lane { it } else { *lane });
        }
        let least = least_of(&lanes).min(least_of(rest));
        (least < f32::INFINITY).then(|| bounds.iter().position(|&bound| bound == least)).flatten()
    }

    /// The leaves that may hold something, in the order of memory. Bounds are not negative, so their bits sort as
    /// they do.
    fn collect_leaves_below_cutoff(&mut self, order: &mut Vec<u64>) {
        let cutoff = self.bound_cutoff().min(f32::MAX);
        order.clear();
        for (stride, bounds) in self.buffers.leaf_bounds.chunks(BOUNDS_CHUNK_LEN).enumerate() {
            if bounds.iter().fold(0, |hopeful, &bound| hopeful + u32::from(bound <= cutoff)) == 0 {
                continue;
            }
            let at = stride * BOUNDS_CHUNK_LEN;
            let hopeful = bounds.iter().enumerate().filter(|&(_, &bound)| bound <= cutoff);
            order.extend(hopeful.map(|(i, bound)| (u64::from(bound.to_bits()) << 32) | (at + i) as u64));
        }
    }

    fn bound_cutoff(&self) -> f32 {
        self.buffers.top_k.kth_best().map_or(f32::INFINITY, |worst| self.plan.bound_cutoff(worst.score))
    }

    /// Looks at a leaf; `false` when neither this nor any with a greater bound is of use, or when the limit is
    /// reached.
    fn visit_leaf(&mut self, at: usize) -> bool {
        if self.bound_cutoff() < self.buffers.leaf_bounds[at] {
            return false;
        }
        self.buffers.leaf_bounds[at] = VISITED_LEAF_BOUND;
        let (number, first) = self.partition_of_leaf(at);
        let leaf = &self.index.partition_tree(number).leaves[at - first];
        for from in (0..leaf.used_len()).step_by(BLOCK_LEN_MAX) {
            let wanted = BLOCK_LEN_MAX.min(leaf.used_len() - from);
            let (mut len, mut rows) = (wanted, row_count_between(leaf, from, wanted));
            if 0 < rows && self.rows_left == 0 {
                self.truncated = true;
                return false;
            }
            while self.rows_left < rows {
                len -= 1;
                rows = row_count_between(leaf, from, len);
            }
            self.truncated |= len < wanted;
            self.rows_left -= rows;
            let place = RowAddr { partition: number, leaf: (at - first) as u32, row: from as u32 };
            self.evaluate_rows(leaf, place, len);
        }
        true
    }

    fn evaluate_rows(&mut self, leaf: &Leaf, at: RowAddr, len: usize) {
        let from = at.row as usize;
        self.buffers.kernel_buffers.score_bounds[..len].fill(self.plan.constant_terms);
        for hole in leaf.holes().iter().map(|&hole| hole as usize) {
            if from <= hole && hole < from + len {
                self.buffers.kernel_buffers.score_bounds[hole - from] = f32::INFINITY;
            }
        }
        self.refuse_excluded_rows(at, len);
        let cutoff = self.bound_cutoff().min(f32::MAX);
        let SearchBuffers { kernel_buffers: scratch, refusal_counts: counts, surviving_rows: survivors, .. } =
            &mut *self.buffers;
        if evaluate_block(
            self.instruction_set,
            &self.plan,
            RowBlock { leaf, first_row: from, len },
            scratch,
            counts,
            len,
        ) == 0
        {
            return;
        }
        survivors.clear();
        for (stride, bounds) in scratch.score_bounds[..len].chunks(BOUNDS_CHUNK_LEN).enumerate() {
            if bounds.iter().fold(0, |hopeful, &bound| hopeful | u32::from(bound <= cutoff)) == 0 {
                continue;
            }
            let hopeful = bounds.iter().enumerate().filter(|&(_, &bound)| bound <= cutoff);
            survivors.extend(hopeful.map(|(row, &bound)| (bound, (from + stride * BOUNDS_CHUNK_LEN + row) as u32)));
        }
        self.score_surviving_rows(leaf);
    }

    /// Marks the rows of this block that the searcher asked not to see.
    fn refuse_excluded_rows(&mut self, at: RowAddr, len: usize) {
        for number in 0..self.buffers.excluded_rows.len() {
            let place = self.buffers.excluded_rows[number];
            let same_leaf = place.partition == at.partition && place.leaf == at.leaf;
            if same_leaf && at.row <= place.row && place.row < at.row + len as u32 {
                self.buffers.kernel_buffers.score_bounds[(place.row - at.row) as usize] = f32::INFINITY;
                let slot = self.index.partition_tree(at.partition).leaves[at.leaf as usize].slot(place.row as usize);
                let verdict = admit(
                    self.query.ruleset,
                    &self.query.searcher,
                    &self.index.entry(slot).view(),
                    None,
                    self.query.now,
                );
                if let Err(refused) = verdict {
                    self.buffers.refusal_counts[refused.counter_index()] += 1;
                }
            }
        }
    }

    /// Scores survivors; while there are not enough admitted, the most promising first, so that few need be scored.
    fn score_surviving_rows(&mut self, leaf: &Leaf) {
        let mut survivors = std::mem::take(&mut self.buffers.surviving_rows);
        let mut rest = &mut survivors[..];
        while !rest.is_empty() {
            let most = self.query.limits.max_results as usize;
            let mut turn = rest.len();
            if self.buffers.top_k.kth_best().is_none() && 2 * most < rest.len() {
                turn = most + most / 8;
                rest.select_nth_unstable_by(turn, |one, other| one.0.total_cmp(&other.0));
            }
            let cutoff = self.bound_cutoff();
            let (now, later) = rest.split_at_mut(turn);
            for &(bound, row) in now.iter() {
                if bound <= cutoff {
                    self.offer_row(leaf, row as usize);
                }
            }
            rest = later;
            if self.buffers.top_k.should_merge() || self.buffers.top_k.could_reach_k() {
                self.merge_pending_rows();
            }
        }
        self.buffers.surviving_rows = survivors;
    }

    fn offer_row(&mut self, leaf: &Leaf, row: usize) {
        let (slot, id) = (leaf.slot(row), leaf.id_prefix(row));
        let score = exact_score(self.index, self.query, &self.plan, leaf, row, |_| {});
        self.buffers.top_k.offer(ScoredRow { score, id_prefix: id, slot });
    }

    /// The terms of the best, computed once more for these few: keeping those of every row that is scored costs more.
    fn compute_hit_terms(&mut self) {
        let SearchBuffers { top_k: best, hit_terms: terms, .. } = &mut *self.buffers;
        terms.clear();
        for row in best.best_rows() {
            let at = self.index.slab.row_addr(row.slot);
            let leaf = &self.index.partition_tree(at.partition).leaves[at.leaf as usize];
            exact_score(self.index, self.query, &self.plan, leaf, at.row as usize, |term| terms.push(term));
        }
    }

    fn merge_pending_rows(&mut self) {
        let (index, query) = (self.index, self.query);
        let SearchBuffers { top_k: best, refusal_counts: counts, .. } = &mut *self.buffers;
        prefetch_entries(index, best.pending_rows());
        let id = |slot: u32| index.entry(slot).advertisement.id;
        let order = |one: &ScoredRow, other: &ScoredRow| {
            let by_score = one.score.total_cmp(&other.score).then(one.id_prefix.cmp(&other.id_prefix));
            if by_score == Ordering::Equal { id(one.slot).cmp(&id(other.slot)) } else { by_score }
        };
        best.merge_pending(order, |slot| {
            match admit(query.ruleset, &query.searcher, &index.entry(slot).view(), None, query.now) {
                Ok(()) => true,
                Err(refused) => {
                    counts[refused.counter_index()] += 1;
                    false
                }
            }
        });
        self.plan.check_owner_column = OWN_ROWS_THRESHOLD <= counts[Refusal::OwnSession.counter_index()];
    }
}

/// How many of the places `from..from + len` of a leaf have a row.
fn row_count_between(leaf: &Leaf, from: usize, len: usize) -> u32 {
    let holes = leaf.holes().iter().filter(|&&hole| from <= hole as usize && (hole as usize) < from + len).count();
    (len - holes) as u32
}

/// Reads a little of each entry that is about to be admitted, level by level, so that the machine fetches many at once
/// and admitting them one after the other need not wait for memory.
fn prefetch_entries(index: &AdvertisementIndex, rows: &[ScoredRow]) {
    let entries = || rows.iter().map(|row| index.entry(row.slot));
    let seats: usize = entries().map(|entry| usize::from(entry.open_seats)).sum();
    let players: usize = entries().map(|entry| entry.advertisement.session.players.len()).sum();
    let users: usize = entries()
        .filter_map(|entry| entry.advertisement.session.players.first())
        .map(|it| usize::from(it.user.as_bytes()[0]))
        .sum();
    std::hint::black_box(seats + players + users);
}
