//! One search: leaves in the order of their bounds, rows in columns, the survivors exactly.

use std::cmp::Ordering;

use crate::domain::filter::{Refusal, admit};
use crate::domain::index::best::{Best, Scored};
use crate::domain::index::block::{Leaves, Rows};
use crate::domain::index::exact::weigh;
use crate::domain::index::kernel::{BLOCK, Path, Scratch, judge};
use crate::domain::index::leaf::Leaf;
use crate::domain::index::plan::Plan;
use crate::domain::index::tree::Place;
use crate::domain::index::{Found, Hit, Index, Query};

/// Buffers that a search uses and leaves behind for the next.
#[derive(Debug, Default)]
pub(super) struct Desk {
    scratch: Scratch,
    best: Best,
    /// Of the best, one after the other.
    pub(super) terms: Vec<f64>,
    /// Bounds of the leaves of all partitions visited, one partition after the other.
    bounds: Vec<f32>,
    /// Partition, and where its leaves begin in `bounds`.
    parts: Vec<(u32, usize)>,
    /// Bound and place in `bounds` of leaves, to be sorted.
    order: Vec<u64>,
    counts: Vec<u32>,
    excluded: Vec<Place>,
    survivors: Vec<(f32, u32)>,
}

/// Leaves that are picked one by one, best first, before the rest is looked over.
const HEAD: usize = 16;
/// When more than one in this many leaves is left after the head, all are swept in the order of memory.
const SWEEP_SHARE: usize = 6;
/// So few leaves are all looked at: that takes microseconds, and whoever finds nothing in a small population is told
/// which rules refused whom.
const FEW: usize = 8;
/// Bounds that are passed over together.
const STRIDE: usize = 16;
/// Rows that a search which found too few looks at only to say what refused them.
const EXPLAINED_ROWS: usize = 4096;
/// After so many of the searcher's own rows were fetched, columns are asked first.
const OWN_MANY: u32 = 32;
/// The bound of a leaf that was looked at: less than nothing, and nothing is less.
const SEEN: f32 = f32::NAN;

pub(super) fn run(index: &Index, query: &Query<'_>, path: Path, found: &mut Found) {
    found.hits.clear();
    found.refusals.clear();
    (found.evaluated, found.truncated) = (0, false);
    if query.limits.max_results == 0 {
        return;
    }
    let Found { hits, evaluated, truncated, refusals, desk } = found;
    let plan = Plan::of(query, &index.layout, &index.codes, &index.clock);
    desk.best.begin(query.limits.max_results as usize);
    desk.counts.clear();
    desk.counts.resize(Refusal::counters(query.ruleset.hard.len()), 0);
    desk.excluded.clear();
    let slots = query.searcher.excluded.iter().filter_map(|&id| index.slab.find(id));
    desk.excluded.extend(slots.map(|slot| index.slab.place(slot)));
    // An id may have been given twice.
    desk.excluded.dedup();
    let left = query.limits.max_evaluated;
    let mut search = Search { index, query, path, plan, desk, left, truncated: false };
    search.bound_leaves();
    search.visit();
    search.settle();
    search.explain();
    search.list_terms();
    (*evaluated, *truncated) = (left - search.left, search.truncated);
    hits.extend(desk.best.rows().iter().map(|row| Hit { slot: row.slot, score: row.score }));
    let counts = desk.counts.iter().enumerate().filter(|&(_, &count)| 0 < count);
    refusals.extend(counts.map(|(counter, &count)| (Refusal::of_counter(counter), count)));
}

struct Search<'a, 'q> {
    index: &'a Index,
    query: &'a Query<'q>,
    path: Path,
    plan: Plan,
    desk: &'a mut Desk,
    /// Rows that may still be looked at.
    left: u32,
    truncated: bool,
}

impl Search<'_, '_> {
    fn bound_leaves(&mut self) {
        let Desk { bounds, parts, scratch, counts, .. } = &mut *self.desk;
        bounds.clear();
        parts.clear();
        let (index, plan, path) = (self.index, &self.plan, self.path);
        let mut leaves = 0;
        index.each_partition(self.query, |number, tree| {
            parts.push((number, leaves));
            leaves += tree.summary.leaves();
        });
        if leaves <= FEW {
            bounds.resize(leaves, plan.base);
            return;
        }
        for &(number, _) in &*parts {
            let tree = index.tree(number);
            for from in (0..tree.summary.leaves()).step_by(BLOCK) {
                let len = BLOCK.min(tree.summary.leaves() - from);
                let rows = &tree.summary.len[from..][..len];
                let begin = scratch.bound.iter_mut().zip(rows);
                begin.for_each(|(bound, &rows)| *bound = if rows == 0 { f32::INFINITY } else { plan.base });
                judge(path, plan, Leaves { summary: &tree.summary, from, len }, scratch, counts, len);
                bounds.extend_from_slice(&scratch.bound[..len]);
            }
        }
        // Leaves are no rows: what was refused here was not looked at.
        counts.fill(0);
    }

    /// Visits leaves until no other can hold anything better.
    fn visit(&mut self) {
        for _ in 0..HEAD {
            if self.desk.best.worst().is_some() {
                break;
            }
            let Some(at) = self.most_hopeful() else { return };
            if !self.visit_leaf(at) {
                return;
            }
        }
        let mut order = std::mem::take(&mut self.desk.order);
        self.list(&mut order);
        let rows_left = order.len() * super::leaf::ROWS;
        let sweep = self.desk.bounds.len() < order.len() * SWEEP_SHARE && rows_left < self.left as usize;
        if !sweep {
            order.sort_unstable();
        }
        for &key in &order {
            if !self.visit_leaf((key & u64::from(u32::MAX)) as usize) && !sweep {
                break;
            }
        }
        self.desk.order = order;
    }

    /// After a search that found fewer than were asked for, counts what refused the leaves that were passed over whole,
    /// so that who finds nothing is told why.
    fn explain(&mut self) {
        let mut budget = EXPLAINED_ROWS;
        for at in 0..self.desk.bounds.len() {
            if self.desk.best.worst().is_some() || self.truncated {
                return;
            }
            let rows = self.leaf_of(at).len();
            if self.desk.bounds[at] == f32::INFINITY && rows <= budget.min(self.left as usize) {
                budget -= rows;
                self.visit_leaf(at);
                self.settle();
            }
        }
    }

    fn leaf_of(&self, at: usize) -> &Leaf {
        let (number, first) = self.part_of(at);
        &self.index.tree(number).leaves[at - first]
    }

    /// The partition of a leaf, and where its leaves begin.
    fn part_of(&self, at: usize) -> (u32, usize) {
        self.desk.parts[self.desk.parts.partition_point(|&(_, from)| from <= at) - 1]
    }

    /// The leaf with the least bound; `None` when none is left.
    fn most_hopeful(&self) -> Option<usize> {
        let bounds = &self.desk.bounds;
        let least_of =
            |bounds: &[f32]| bounds.iter().fold(f32::INFINITY, |least, &it| if it < least { it } else { least });
        let mut lanes = [f32::INFINITY; STRIDE];
        let (strides, rest) = bounds.as_chunks::<STRIDE>();
        for stride in strides {
            lanes.iter_mut().zip(stride).for_each(|(lane, &it)| *lane = if it < *lane { it } else { *lane });
        }
        let least = least_of(&lanes).min(least_of(rest));
        (least < f32::INFINITY).then(|| bounds.iter().position(|&bound| bound == least)).flatten()
    }

    /// The leaves that may hold something, in the order of memory. Bounds are not negative, so their bits sort as
    /// they do.
    fn list(&mut self, order: &mut Vec<u64>) {
        let cutoff = self.cutoff().min(f32::MAX);
        order.clear();
        for (stride, bounds) in self.desk.bounds.chunks(STRIDE).enumerate() {
            if bounds.iter().fold(0, |hopeful, &bound| hopeful + u32::from(bound <= cutoff)) == 0 {
                continue;
            }
            let at = stride * STRIDE;
            let hopeful = bounds.iter().enumerate().filter(|&(_, &bound)| bound <= cutoff);
            order.extend(hopeful.map(|(i, bound)| (u64::from(bound.to_bits()) << 32) | (at + i) as u64));
        }
    }

    fn cutoff(&self) -> f32 {
        self.desk.best.worst().map_or(f32::INFINITY, |worst| self.plan.cutoff(worst.score))
    }

    /// Looks at a leaf; `false` when neither this nor any with a greater bound is of use, or when the limit is
    /// reached.
    fn visit_leaf(&mut self, at: usize) -> bool {
        if self.cutoff() < self.desk.bounds[at] {
            return false;
        }
        self.desk.bounds[at] = SEEN;
        let (number, first) = self.part_of(at);
        let leaf = &self.index.tree(number).leaves[at - first];
        for from in (0..leaf.end()).step_by(BLOCK) {
            let wanted = BLOCK.min(leaf.end() - from);
            let (mut len, mut rows) = (wanted, rows_in(leaf, from, wanted));
            if 0 < rows && self.left == 0 {
                self.truncated = true;
                return false;
            }
            while self.left < rows {
                len -= 1;
                rows = rows_in(leaf, from, len);
            }
            self.truncated |= len < wanted;
            self.left -= rows;
            let place = Place { partition: number, leaf: (at - first) as u32, row: from as u32 };
            self.look_at(leaf, place, len);
        }
        true
    }

    fn look_at(&mut self, leaf: &Leaf, at: Place, len: usize) {
        let from = at.row as usize;
        self.desk.scratch.bound[..len].fill(self.plan.base);
        for hole in leaf.holes().iter().map(|&hole| hole as usize) {
            if from <= hole && hole < from + len {
                self.desk.scratch.bound[hole - from] = f32::INFINITY;
            }
        }
        self.exclude(at, len);
        let cutoff = self.cutoff().min(f32::MAX);
        let Desk { scratch, counts, survivors, .. } = &mut *self.desk;
        if judge(self.path, &self.plan, Rows { leaf, from, len }, scratch, counts, len) == 0 {
            return;
        }
        survivors.clear();
        for (stride, bounds) in scratch.bound[..len].chunks(STRIDE).enumerate() {
            if bounds.iter().fold(0, |hopeful, &bound| hopeful | u32::from(bound <= cutoff)) == 0 {
                continue;
            }
            let hopeful = bounds.iter().enumerate().filter(|&(_, &bound)| bound <= cutoff);
            survivors.extend(hopeful.map(|(row, &bound)| (bound, (from + stride * STRIDE + row) as u32)));
        }
        self.weigh_survivors(leaf);
    }

    /// Marks the rows of this block that the searcher asked not to see.
    fn exclude(&mut self, at: Place, len: usize) {
        for number in 0..self.desk.excluded.len() {
            let place = self.desk.excluded[number];
            let same_leaf = place.partition == at.partition && place.leaf == at.leaf;
            if same_leaf && at.row <= place.row && place.row < at.row + len as u32 {
                self.desk.scratch.bound[(place.row - at.row) as usize] = f32::INFINITY;
                let slot = self.index.tree(at.partition).leaves[at.leaf as usize].slot(place.row as usize);
                let verdict = admit(
                    self.query.ruleset,
                    &self.query.searcher,
                    &self.index.entry(slot).listed(),
                    None,
                    self.query.now,
                );
                if let Err(refused) = verdict {
                    self.desk.counts[refused.counter()] += 1;
                }
            }
        }
    }

    /// Scores survivors; while there are not enough admitted, the most promising first, so that few need be scored.
    fn weigh_survivors(&mut self, leaf: &Leaf) {
        let mut survivors = std::mem::take(&mut self.desk.survivors);
        let mut rest = &mut survivors[..];
        while !rest.is_empty() {
            let most = self.query.limits.max_results as usize;
            let mut turn = rest.len();
            if self.desk.best.worst().is_none() && 2 * most < rest.len() {
                turn = most + most / 8;
                rest.select_nth_unstable_by(turn, |one, other| one.0.total_cmp(&other.0));
            }
            let cutoff = self.cutoff();
            let (now, later) = rest.split_at_mut(turn);
            for &(bound, row) in now.iter() {
                if bound <= cutoff {
                    self.offer(leaf, row as usize);
                }
            }
            rest = later;
            if self.desk.best.is_full() || self.desk.best.could_fill() {
                self.settle();
            }
        }
        self.desk.survivors = survivors;
    }

    fn offer(&mut self, leaf: &Leaf, row: usize) {
        let (slot, id) = (leaf.slot(row), leaf.id(row));
        let score = weigh(self.index, self.query, &self.plan, leaf, row, |_| {});
        self.desk.best.offer(Scored { score, id, slot });
    }

    /// The terms of the best, computed once more for these few: keeping those of every row that is scored costs more.
    fn list_terms(&mut self) {
        let Desk { best, terms, .. } = &mut *self.desk;
        terms.clear();
        for row in best.rows() {
            let at = self.index.slab.place(row.slot);
            let leaf = &self.index.tree(at.partition).leaves[at.leaf as usize];
            weigh(self.index, self.query, &self.plan, leaf, at.row as usize, |term| terms.push(term));
        }
    }

    fn settle(&mut self) {
        let (index, query) = (self.index, self.query);
        let Desk { best, counts, .. } = &mut *self.desk;
        warm(index, best.waiting());
        let id = |slot: u32| index.entry(slot).advertisement.id;
        let order = |one: &Scored, other: &Scored| {
            let by_score = one.score.total_cmp(&other.score).then(one.id.cmp(&other.id));
            if by_score == Ordering::Equal { id(one.slot).cmp(&id(other.slot)) } else { by_score }
        };
        best.settle(order, |slot| {
            match admit(query.ruleset, &query.searcher, &index.entry(slot).listed(), None, query.now) {
                Ok(()) => true,
                Err(refused) => {
                    counts[refused.counter()] += 1;
                    false
                }
            }
        });
        self.plan.own = OWN_MANY <= counts[Refusal::Own.counter()];
    }
}

/// How many of the places `from..from + len` of a leaf have a row.
fn rows_in(leaf: &Leaf, from: usize, len: usize) -> u32 {
    let holes = leaf.holes().iter().filter(|&&hole| from <= hole as usize && (hole as usize) < from + len).count();
    (len - holes) as u32
}

/// Reads a little of each entry that is about to be admitted, level by level, so that the machine fetches many at once
/// and admitting them one after the other need not wait for memory.
fn warm(index: &Index, rows: &[Scored]) {
    let entries = || rows.iter().map(|row| index.entry(row.slot));
    let seats: usize = entries().map(|entry| usize::from(entry.open_seats)).sum();
    let players: usize = entries().map(|entry| entry.advertisement.session.players.len()).sum();
    let users: usize = entries()
        .filter_map(|entry| entry.advertisement.session.players.first())
        .map(|it| usize::from(it.user.as_bytes()[0]))
        .sum();
    std::hint::black_box(seats + players + users);
}
