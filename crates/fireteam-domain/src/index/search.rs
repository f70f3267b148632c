//! Index search: visits leaves in order of their score bounds, filters rows by columns, and scores the remaining rows
//! exactly.

mod predicted_search;

use std::cmp::Ordering;
use std::ops::Range;

use crate::filter::{Refusal, Searcher, admit_advertisement, admit_visible_advertisement};
use crate::index::certain_prediction::CertainPrediction;
use crate::index::column_block::{BLOCK_LEN_MAX, LeafBoundsBlock, RowBlock};
use crate::index::exact_score::{exact_score, exact_score_with_round_trip, row_round_trip};
use crate::index::kernel::{InstructionSet, evaluate_block};
use crate::index::leaf::{Leaf, ROWS_PER_LEAF};
use crate::index::plan::QueryPlan;
use crate::index::plan_compiler::compile_plan;
use crate::index::result::SearchBuffers;
use crate::index::route_bound::RouteBound;
use crate::index::top_k::ExactlyScoredRow;
use crate::index::tree::RowAddr;
use crate::index::{AdvertisementIndex, SearchHit, SearchQuery, SearchResult};
use crate::score::{for_each_soft_filter_term, score};

/// Number of leaves visited one by one, best first, before the remaining leaves are collected.
pub(super) const BEST_FIRST_LEAVES: usize = 16;
/// If more than one in this many leaves remains after the best-first leaves, they are visited in memory order.
pub(super) const SWEEP_LEAF_RATIO: usize = 6;
/// Up to this many leaves are all visited. That takes microseconds, and a search without hits in a small population
/// then has complete refusal counts.
const ALWAYS_VISITED_LEAVES: usize = 8;
/// Number of bounds that are compared together.
pub(super) const BOUND_COMPARISON_CHUNK_LEN: usize = 16;
/// Maximum number of rows that a search with too few hits evaluates only to count refusals.
const REFUSAL_COUNTING_ROWS_MAX: usize = 4096;
/// Number of own rows found after which the kernel checks the owner column.
const OWN_ROWS_THRESHOLD: u32 = 32;
/// Score bound of a visited leaf: NaN, for which all comparisons are false.
pub(super) const VISITED_LEAF_BOUND: f32 = f32::NAN;

impl AdvertisementIndex {
    /// Finds the best advertisements for `query`, exactly as defined by `filter::admit_advertisement` and `score::score`.
    pub fn search(&self, query: &SearchQuery<'_>, result: &mut SearchResult) {
        run_search(self, query, InstructionSet::Widest, result);
    }

    /// Like `search`, with a chosen instruction set; the result is identical.
    pub fn search_with_instruction_set(
        &self,
        instruction_set: InstructionSet,
        query: &SearchQuery<'_>,
        result: &mut SearchResult,
    ) {
        run_search(self, query, instruction_set, result);
    }
}

/// Runs `query` and replaces the contents of `result`.
fn run_search(
    index: &AdvertisementIndex,
    query: &SearchQuery<'_>,
    instruction_set: InstructionSet,
    result: &mut SearchResult,
) {
    result.hits.clear();
    result.refusal_counts.clear();
    (result.evaluated_rows, result.truncated) = (0, false);
    if query.limits.max_results == 0 {
        return;
    }
    let SearchResult { hits, evaluated_rows, truncated, refusal_counts, buffers } = result;
    let AdvertisementIndex { layout, interner, tick_scale, vector_cache, .. } = index;
    let certain = CertainPrediction::of_query(query, layout.vector_trust, tick_scale, vector_cache.as_ref());
    let plan = compile_plan(query, layout, interner, tick_scale, certain);
    buffers.top_k.reset(query.limits.max_results as usize);
    buffers.refusal_counts.clear();
    buffers.refusal_counts.resize(Refusal::counter_count(query.ruleset.refusing_rule_count()), 0);
    buffers.excluded_rows.clear();
    buffers.candidate_round_trips.clear();
    let excluded_ids = query.searcher.excluded_ids.iter().filter(|&&id| !query.searcher.avoided.is_hidden(id));
    let slots = excluded_ids.filter_map(|&id| index.slab.slot_of(id));
    buffers.excluded_rows.extend(slots.map(|slot| index.slab.row_addr(slot)));
    // Removes duplicate ids.
    buffers.excluded_rows.dedup();
    find_avoided_rows(index, &query.searcher, buffers);
    find_probed_rows(index, query, buffers);
    let rows_left = query.limits.max_evaluated;
    let route_bound = RouteBound::of_plan(&plan, query);
    let mut search =
        IndexSearch { index, query, instruction_set, plan, route_bound, buffers, rows_left, truncated: false };
    search.judge_probed_rows();
    search.compute_leaf_score_bounds();
    match search.route_bound {
        Some(_) => search.find_hits_by_candidates(),
        None => search.visit_leaves(),
    }
    search.merge_pending_rows();
    search.count_refusals_in_skipped_leaves();
    search.compute_hit_terms();
    (*evaluated_rows, *truncated) = (rows_left - search.rows_left, search.truncated);
    hits.extend(buffers.top_k.best_rows().iter().map(|row| SearchHit { slot: row.slot, score: row.score }));
    let counts = buffers.refusal_counts.iter().enumerate().filter(|&(_, &count)| count > 0);
    refusal_counts.extend(counts.map(|(counter, &count)| (Refusal::from_counter_index(counter), count)));
}

/// Finds the rows of advertisements with players whom the searcher avoids.
fn find_avoided_rows(index: &AdvertisementIndex, searcher: &Searcher<'_>, buffers: &mut SearchBuffers) {
    let avoided = searcher.avoided;
    let SearchBuffers { skipped_rows: hidden_rows, slot_costs, .. } = buffers;
    hidden_rows.clear();
    slot_costs.clear();
    let slot_of = |id| index.slab.slot_of(id);
    hidden_rows.extend(avoided.hidden.iter().filter_map(|&id| slot_of(id)).map(|slot| index.slab.row_addr(slot)));
    hidden_rows.sort_unstable();
    hidden_rows.dedup();
    slot_costs.extend(avoided.costs.iter().filter_map(|&(id, cost)| Some((slot_of(id)?, cost))));
    slot_costs.sort_unstable_by_key(|(slot, _)| *slot);
}

/// Finds the rows that the searcher has probed. They are judged one by one, and their leaves skip them.
fn find_probed_rows(index: &AdvertisementIndex, query: &SearchQuery<'_>, buffers: &mut SearchBuffers) {
    let SearchBuffers { skipped_rows, excluded_rows, probed_slots, .. } = buffers;
    probed_slots.clear();
    let prefixes = query.searcher.probes.all().iter().map(|result| result.id_prefix);
    for slot in prefixes.flat_map(|prefix| index.slab.slots_with_id_prefix(prefix)) {
        let advertisement = &index.entry(slot).advertisement;
        let row = index.slab.row_addr(slot);
        let is_searched = advertisement.session.silo == query.silo && advertisement.kind == query.kind;
        if is_searched && !excluded_rows.contains(&row) && skipped_rows.binary_search(&row).is_err() {
            probed_slots.push(slot);
        }
    }
    if !probed_slots.is_empty() {
        skipped_rows.extend(probed_slots.iter().map(|&slot| index.slab.row_addr(slot)));
        skipped_rows.sort_unstable();
        probed_slots.sort_unstable();
    }
}

/// State of a running search.
pub(super) struct IndexSearch<'a, 'q> {
    pub(super) index: &'a AdvertisementIndex,
    pub(super) query: &'a SearchQuery<'q>,
    pub(super) instruction_set: InstructionSet,
    pub(super) plan: QueryPlan,
    /// `None` if no term is predicted.
    pub(super) route_bound: Option<RouteBound>,
    pub(super) buffers: &'a mut SearchBuffers,
    /// Number of rows that may still be evaluated.
    pub(super) rows_left: u32,
    truncated: bool,
}

impl IndexSearch<'_, '_> {
    /// Judges the rows that the searcher has probed, before all others: no bound of a leaf knows their round trips.
    fn judge_probed_rows(&mut self) {
        for index in 0..self.buffers.probed_slots.len() {
            if self.rows_left == 0 {
                self.truncated = true;
                return;
            }
            self.rows_left -= 1;
            let slot = self.buffers.probed_slots[index];
            let view = self.index.view(slot);
            match admit_visible_advertisement(self.query.ruleset, &self.query.searcher, &view, self.query.now) {
                Ok(()) => {
                    let score = score(self.query.ruleset, &self.query.searcher, &view);
                    let [a, b, c, d, ..] = *view.advertisement.id.as_bytes();
                    let id_prefix = u32::from_be_bytes([a, b, c, d]);
                    self.buffers.top_k.offer(ExactlyScoredRow { score, id_prefix, slot });
                }
                Err(refusal) => self.buffers.refusal_counts[refusal.counter_index()] += 1,
            }
        }
        self.merge_pending_rows();
    }

    /// Computes the score bounds of all leaves in the matching partitions.
    fn compute_leaf_score_bounds(&mut self) {
        let SearchBuffers { leaf_bounds, partition_starts, kernel_buffers, refusal_counts, .. } = &mut *self.buffers;
        leaf_bounds.clear();
        partition_starts.clear();
        let (index, plan, instruction_set) = (self.index, &self.plan, self.instruction_set);
        let mut leaves = 0;
        index.for_each_matching_partition(self.query, |partition, tree| {
            partition_starts.push((partition, leaves));
            leaves += tree.leaf_bounds.leaf_count();
        });
        if leaves <= ALWAYS_VISITED_LEAVES {
            leaf_bounds.resize(leaves, plan.constant_terms);
            return;
        }
        for &(partition, _) in &*partition_starts {
            let tree = index.partition_tree(partition);
            for first_leaf in (0..tree.leaf_bounds.leaf_count()).step_by(BLOCK_LEN_MAX) {
                let len = BLOCK_LEN_MAX.min(tree.leaf_bounds.leaf_count() - first_leaf);
                let rows = &tree.leaf_bounds.row_counts[first_leaf..][..len];
                let initial = kernel_buffers.score_bounds.iter_mut().zip(rows);
                initial.for_each(|(bound, &rows)| *bound = if rows == 0 { f32::INFINITY } else { plan.constant_terms });
                evaluate_block(
                    instruction_set,
                    plan,
                    LeafBoundsBlock { leaf_bounds: &tree.leaf_bounds, first_leaf, len },
                    kernel_buffers,
                    refusal_counts,
                    len,
                );
                leaf_bounds.extend_from_slice(&kernel_buffers.score_bounds[..len]);
            }
        }
        // These counts are of leaves, not of evaluated rows.
        refusal_counts.fill(0);
    }

    /// Visits leaves until no other leaf can contain a better row.
    fn visit_leaves(&mut self) {
        for _ in 0..BEST_FIRST_LEAVES {
            if self.buffers.top_k.kth_best_row().is_some() {
                break;
            }
            let Some(position) = self.leaf_with_lowest_bound() else { return };
            if !self.visit_leaf(position) {
                return;
            }
        }
        let mut order = std::mem::take(&mut self.buffers.leaf_order);
        self.collect_leaves_below_cutoff(self.bound_cutoff().min(f32::MAX), &mut order);
        let rows_left = order.len() * ROWS_PER_LEAF;
        let in_memory_order =
            self.buffers.leaf_bounds.len() < order.len() * SWEEP_LEAF_RATIO && rows_left < self.rows_left as usize;
        if !in_memory_order {
            order.sort_unstable();
        }
        for &key in &order {
            if !self.visit_leaf((key & u64::from(u32::MAX)) as usize) && !in_memory_order {
                break;
            }
        }
        self.buffers.leaf_order = order;
    }

    /// If there are fewer hits than requested, evaluates leaves that were refused as a whole. This counts the refusals
    /// of their rows, up to a budget.
    fn count_refusals_in_skipped_leaves(&mut self) {
        let mut budget = REFUSAL_COUNTING_ROWS_MAX;
        for position in 0..self.buffers.leaf_bounds.len() {
            if self.buffers.top_k.kth_best_row().is_some() || self.truncated {
                return;
            }
            let rows = self.leaf_at(position).len();
            if self.buffers.leaf_bounds[position] == f32::INFINITY && rows <= budget.min(self.rows_left as usize) {
                budget -= rows;
                self.visit_leaf(position);
                self.merge_pending_rows();
            }
        }
    }

    /// Leaf at a position in `leaf_bounds`.
    pub(super) fn leaf_at(&self, position: usize) -> &Leaf {
        let (partition, first) = self.partition_of_leaf(position);
        &self.index.partition_tree(partition).leaves[position - first]
    }

    /// Partition number of the leaf at `position`, and position of the partition's first leaf.
    pub(super) fn partition_of_leaf(&self, position: usize) -> (u32, usize) {
        self.buffers.partition_starts
            [self.buffers.partition_starts.partition_point(|&(_, first)| first <= position) - 1]
    }

    /// Position of the leaf with the lowest score bound; `None` if no leaf is left.
    pub(super) fn leaf_with_lowest_bound(&self) -> Option<usize> {
        let bounds = &self.buffers.leaf_bounds;
        let lowest_of = |bounds: &[f32]| {
            bounds.iter().fold(f32::INFINITY, |lowest, &bound| if bound < lowest { bound } else { lowest })
        };
        let mut lanes = [f32::INFINITY; BOUND_COMPARISON_CHUNK_LEN];
        let (chunks, rest) = bounds.as_chunks::<BOUND_COMPARISON_CHUNK_LEN>();
        for chunk in chunks {
            lanes.iter_mut().zip(chunk).for_each(|(lane, &bound)| *lane = if bound < *lane { bound } else { *lane });
        }
        let lowest = lowest_of(&lanes).min(lowest_of(rest));
        (lowest < f32::INFINITY).then(|| bounds.iter().position(|&bound| bound == lowest)).flatten()
    }

    /// Collects the leaves with score bounds up to `cutoff`, in memory order, as score bound and position. Bounds are not
    /// negative, so their bits sort like their values.
    pub(super) fn collect_leaves_below_cutoff(&self, cutoff: f32, order: &mut Vec<u64>) {
        order.clear();
        for (chunk, bounds) in self.buffers.leaf_bounds.chunks(BOUND_COMPARISON_CHUNK_LEN).enumerate() {
            if bounds.iter().fold(0, |below, &bound| below + u32::from(bound <= cutoff)) == 0 {
                continue;
            }
            let first = chunk * BOUND_COMPARISON_CHUNK_LEN;
            let below = bounds.iter().enumerate().filter(|&(_, &bound)| bound <= cutoff);
            order.extend(below.map(|(offset, bound)| (u64::from(bound.to_bits()) << 32) | (first + offset) as u64));
        }
    }

    /// Score bound above which a row cannot be a hit; infinite until there are enough hits.
    pub(super) fn bound_cutoff(&self) -> f32 {
        self.buffers.top_k.kth_best_row().map_or(f32::INFINITY, |kth| self.plan.bound_cutoff_for_score(kth.score))
    }

    /// Evaluates the leaf at `position`. Returns `false` if its bound exceeds the cutoff, so that leaves with higher
    /// bounds are useless too, or if the evaluation limit is reached.
    fn visit_leaf(&mut self, position: usize) -> bool {
        if self.bound_cutoff() < self.buffers.leaf_bounds[position] {
            return false;
        }
        self.buffers.leaf_bounds[position] = VISITED_LEAF_BOUND;
        let (partition, first) = self.partition_of_leaf(position);
        let leaf = &self.index.partition_tree(partition).leaves[position - first];
        for first_row in (0..leaf.used_len()).step_by(BLOCK_LEN_MAX) {
            let full_len = BLOCK_LEN_MAX.min(leaf.used_len() - first_row);
            let first_addr = RowAddr { partition, leaf: (position - first) as u32, row: first_row as u32 };
            let Some(len) = self.take_rows(leaf, first_addr, full_len) else { return false };
            self.evaluate_rows(leaf, first_addr, len);
        }
        true
    }

    /// Takes the first rows of a block from the evaluation limit, and returns their number, with holes. `None` if the limit is reached.
    pub(super) fn take_rows(&mut self, leaf: &Leaf, first_addr: RowAddr, full_len: usize) -> Option<usize> {
        let (mut len, mut rows) = (full_len, self.unskipped_row_count(leaf, first_addr, full_len));
        if rows > 0 && self.rows_left == 0 {
            self.truncated = true;
            return None;
        }
        while self.rows_left < rows {
            len -= 1;
            rows = self.unskipped_row_count(leaf, first_addr, len);
        }
        self.truncated |= len < full_len;
        self.rows_left -= rows;
        Some(len)
    }

    /// Evaluates `len` rows of `leaf` from `first_addr`.
    fn evaluate_rows(&mut self, leaf: &Leaf, first_addr: RowAddr, len: usize) {
        let cutoff = self.bound_cutoff().min(f32::MAX);
        if self.compute_row_score_bounds(leaf, first_addr, len) == 0 {
            return;
        }
        self.list_surviving_rows(first_addr, len, cutoff);
        self.score_surviving_rows(leaf);
    }

    /// Computes the score bounds of `len` rows of `leaf` from `first_addr`. Returns the number of rows that are not refused.
    pub(super) fn compute_row_score_bounds(&mut self, leaf: &Leaf, first_addr: RowAddr, len: usize) -> u32 {
        let first_row = first_addr.row as usize;
        self.buffers.kernel_buffers.score_bounds[..len].fill(self.plan.constant_terms);
        for hole in leaf.hole_positions().iter().map(|&hole| hole as usize) {
            if first_row <= hole && hole < first_row + len {
                self.buffers.kernel_buffers.score_bounds[hole - first_row] = f32::INFINITY;
            }
        }
        for index in self.skipped_rows_in(first_addr, len) {
            let row = self.buffers.skipped_rows[index].row as usize;
            self.buffers.kernel_buffers.score_bounds[row - first_row] = f32::INFINITY;
        }
        self.refuse_rows_excluded_by_id(first_addr, len);
        let SearchBuffers { kernel_buffers, refusal_counts, .. } = &mut *self.buffers;
        let block = RowBlock { leaf, first_row, len };
        evaluate_block(self.instruction_set, &self.plan, block, kernel_buffers, refusal_counts, len)
    }

    /// Lists the rows of the last block with score bounds up to `cutoff`, with their bounds.
    pub(super) fn list_surviving_rows(&mut self, first_addr: RowAddr, len: usize, cutoff: f32) {
        let SearchBuffers { kernel_buffers, surviving_rows, .. } = &mut *self.buffers;
        surviving_rows.clear();
        for (chunk, bounds) in kernel_buffers.score_bounds[..len].chunks(BOUND_COMPARISON_CHUNK_LEN).enumerate() {
            if bounds.iter().fold(0, |below, &bound| below | u32::from(bound <= cutoff)) == 0 {
                continue;
            }
            let first = first_addr.row as usize + chunk * BOUND_COMPARISON_CHUNK_LEN;
            let below = bounds.iter().enumerate().filter(|&(_, &bound)| bound <= cutoff);
            surviving_rows.extend(below.map(|(offset, &bound)| (bound, (first + offset) as u32)));
        }
    }

    /// Number of rows of a block that are evaluated with it.
    fn unskipped_row_count(&self, leaf: &Leaf, first_addr: RowAddr, len: usize) -> u32 {
        row_count_without_holes(leaf, first_addr.row as usize, len) - self.skipped_rows_in(first_addr, len).len() as u32
    }

    /// Indexes in `skipped_rows` of the rows in a block.
    fn skipped_rows_in(&self, first_addr: RowAddr, len: usize) -> Range<usize> {
        let skipped = &self.buffers.skipped_rows;
        if skipped.is_empty() {
            return 0..0;
        }
        let end = RowAddr { row: first_addr.row + len as u32, ..first_addr };
        skipped.partition_point(|addr| *addr < first_addr)..skipped.partition_point(|addr| *addr < end)
    }

    /// Marks excluded rows of this block as refused, and counts each under the first rule that refuses it.
    fn refuse_rows_excluded_by_id(&mut self, first_addr: RowAddr, len: usize) {
        let rows = first_addr.row..first_addr.row + len as u32;
        let leaf = &self.index.partition_tree(first_addr.partition).leaves[first_addr.leaf as usize];
        for index in 0..self.buffers.excluded_rows.len() {
            let excluded = self.buffers.excluded_rows[index];
            let same_leaf = excluded.partition == first_addr.partition && excluded.leaf == first_addr.leaf;
            if same_leaf && rows.contains(&excluded.row) {
                self.buffers.kernel_buffers.score_bounds[(excluded.row - first_addr.row) as usize] = f32::INFINITY;
                let slot = leaf.slot(excluded.row as usize);
                let verdict = admit_advertisement(
                    self.query.ruleset,
                    &self.query.searcher,
                    &self.index.view(slot),
                    self.query.now,
                );
                if let Err(refusal) = verdict {
                    self.buffers.refusal_counts[refusal.counter_index()] += 1;
                }
            }
        }
    }

    /// Scores the surviving rows exactly. Until enough rows are admitted, starts with the lowest bounds, so that few
    /// rows need an exact score.
    fn score_surviving_rows(&mut self, leaf: &Leaf) {
        let mut survivors = std::mem::take(&mut self.buffers.surviving_rows);
        let mut rest = &mut survivors[..];
        while !rest.is_empty() {
            let k = self.query.limits.max_results as usize;
            let mut batch_len = rest.len();
            if self.buffers.top_k.kth_best_row().is_none() && rest.len() > 2 * k {
                batch_len = k + k / 8;
                rest.select_nth_unstable_by(batch_len, |one, other| one.0.total_cmp(&other.0));
            }
            let cutoff = self.bound_cutoff();
            let (batch, later) = rest.split_at_mut(batch_len);
            for &(bound, row) in &*batch {
                if cutoff < bound {
                    continue;
                }
                self.offer_row(leaf, row as usize);
            }
            self.merge_if_due();
            rest = later;
        }
        self.buffers.surviving_rows = survivors;
    }

    pub(super) fn merge_if_due(&mut self) {
        if self.buffers.top_k.should_merge() || self.buffers.top_k.merge_could_complete_k() {
            self.merge_pending_rows();
        }
    }

    /// Scores a row exactly and offers it to the top k.
    fn offer_row(&mut self, leaf: &Leaf, row: usize) {
        let (slot, id_prefix) = (leaf.slot(row), leaf.id_first_four_bytes(row));
        let score = exact_score(self.index, self.query, &self.plan, leaf, row, |_| {}) + self.cost_of(slot);
        self.buffers.top_k.offer(ExactlyScoredRow { score, id_prefix, slot });
    }

    /// Cost of avoided players that is added to the score of a row.
    pub(super) fn cost_of(&self, slot: u32) -> f64 {
        let costs = &self.buffers.slot_costs;
        costs.binary_search_by_key(&slot, |(slot, _)| *slot).map_or(0.0, |index| costs[index].1)
    }

    /// Computes the terms of the hits. Computing them again for the few hits is cheaper than storing them for all rows.
    fn compute_hit_terms(&mut self) {
        let SearchBuffers { top_k, hit_terms, probed_slots, candidate_round_trips, .. } = &mut *self.buffers;
        candidate_round_trips.sort_unstable_by_key(|(slot, _)| *slot);
        hit_terms.clear();
        for row in top_k.best_rows() {
            let addr = self.index.slab.row_addr(row.slot);
            let leaf = &self.index.partition_tree(addr.partition).leaves[addr.leaf as usize];
            if probed_slots.binary_search(&row.slot).is_ok() {
                let (searcher, view) = (&self.query.searcher, self.index.view(row.slot));
                for_each_soft_filter_term(self.query.ruleset, searcher, &view, |term| hit_terms.push(term));
                continue;
            }
            let known = candidate_round_trips.binary_search_by_key(&row.slot, |(slot, _)| *slot);
            let round_trip = match known {
                Ok(index) => candidate_round_trips[index].1,
                Err(_) => row_round_trip(self.index, self.query, &self.plan, leaf, addr.row as usize),
            };
            let row = (leaf, addr.row as usize);
            exact_score_with_round_trip(self.index, self.query, &self.plan, row, round_trip, |term| {
                hit_terms.push(term);
            });
        }
    }

    /// Admits the pending rows of the top k and merges them.
    pub(super) fn merge_pending_rows(&mut self) {
        let (index, query) = (self.index, self.query);
        let SearchBuffers { top_k, refusal_counts, .. } = &mut *self.buffers;
        prefetch_entries(index, top_k.pending_rows());
        let id = |slot: u32| index.entry(slot).advertisement.id;
        let compare = |one: &ExactlyScoredRow, other: &ExactlyScoredRow| {
            let by_score = one.score.total_cmp(&other.score).then(one.id_prefix.cmp(&other.id_prefix));
            if by_score == Ordering::Equal { id(one.slot).cmp(&id(other.slot)) } else { by_score }
        };
        // Hidden rows are never offered.
        top_k.merge_pending(compare, |slot| {
            match admit_visible_advertisement(query.ruleset, &query.searcher, &index.view(slot), query.now) {
                Ok(()) => true,
                Err(refusal) => {
                    refusal_counts[refusal.counter_index()] += 1;
                    false
                }
            }
        });
        self.plan.check_owner_column = refusal_counts[Refusal::OwnSession.counter_index()] >= OWN_ROWS_THRESHOLD;
    }
}

/// Number of rows, without holes, at positions `first_row..first_row + len` of a leaf.
fn row_count_without_holes(leaf: &Leaf, first_row: usize, len: usize) -> u32 {
    let holes =
        leaf.hole_positions().iter().filter(|&&hole| (first_row..first_row + len).contains(&(hole as usize))).count();
    (len - holes) as u32
}

/// Prefetches the entries that are about to be admitted: reads a few bytes of each, one level of indirection at a time,
/// so that the cache misses overlap.
fn prefetch_entries(index: &AdvertisementIndex, rows: &[ExactlyScoredRow]) {
    let entries = || rows.iter().map(|row| index.entry(row.slot));
    let seats: usize = entries().map(|entry| usize::from(entry.open_seats)).sum();
    let players: usize = entries().map(|entry| entry.advertisement.session.players.len()).sum();
    let users: usize = entries()
        .filter_map(|entry| entry.advertisement.session.players.first())
        .map(|player| usize::from(player.user.as_bytes()[0]))
        .sum();
    std::hint::black_box(seats + players + users);
}
