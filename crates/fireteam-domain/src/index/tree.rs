//! A kd-B-tree with columnar leaves, one per partition. It grows by splitting full leaves and shrinks by joining small
//! ones.

use crate::index::layout::{ColumnLayout, MISSING_SPLIT_VALUE, RowBuffer};
use crate::index::leaf::{Leaf, ROWS_PER_LEAF};
use crate::index::leaf_bounds::LeafBounds;
use crate::index::row_rules::SEATS_MASK;
use crate::index::word_column;

/// Address of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RowAddr {
    /// Partition number.
    pub(super) partition: u32,
    /// Leaf index in the partition.
    pub(super) leaf: u32,
    /// Row index in the leaf.
    pub(super) row: u32,
}

/// Index of a node or a leaf, in one word. A node then fits a quarter of a cache line; one descent visits about a dozen
/// nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NodeOrLeafIndex(u32);

impl NodeOrLeafIndex {
    const LEAF_FLAG: u32 = 1 << 31;

    fn from_leaf_index(leaf: usize) -> Self {
        Self(leaf as u32 | Self::LEAF_FLAG)
    }

    fn leaf_index(self) -> Option<usize> {
        (self.0 & Self::LEAF_FLAG != 0).then_some((self.0 & !Self::LEAF_FLAG) as usize)
    }
}

/// Inner node: rows below `split_value` in `dimension` are under the first child, other rows under the second.
#[derive(Clone, Copy, Debug)]
struct SplitNode {
    dimension: u32,
    split_value: f32,
    children: [NodeOrLeafIndex; 2],
}

/// kd-B-tree with the rows of one partition.
#[derive(Debug)]
pub(super) struct KdTree {
    root: NodeOrLeafIndex,
    nodes: Vec<SplitNode>,
    /// Parent of each node.
    parent_nodes: Vec<Option<u32>>,
    free_nodes: Vec<u32>,
    /// Leaves; those that are currently not in the tree are empty.
    pub(super) leaves: Vec<Leaf>,
    free_leaves: Vec<u32>,
    /// Bounds of the leaves.
    pub(super) leaf_bounds: LeafBounds,
    row_count: usize,
    next_maintained_leaf: usize,
}

impl KdTree {
    pub(super) fn new(layout: &ColumnLayout) -> Self {
        let mut summary = LeafBounds::new(layout);
        summary.push_empty_leaf();
        let leaves = vec![Leaf::new()];
        Self {
            root: NodeOrLeafIndex::from_leaf_index(0),
            nodes: Vec::new(),
            parent_nodes: Vec::new(),
            free_nodes: Vec::new(),
            leaves,
            free_leaves: Vec::new(),
            leaf_bounds: summary,
            row_count: 0,
            next_maintained_leaf: 0,
        }
    }

    /// Number of rows.
    pub(super) fn len(&self) -> usize {
        self.row_count
    }

    /// Number of leaves with rows.
    #[cfg(test)]
    pub(super) fn non_empty_leaf_count(&self) -> usize {
        self.leaves.iter().filter(|leaf| leaf.len() > 0).count()
    }

    /// Inserts `row`. Calls `on_move` with slot, leaf and row of the new row and of each row that moved.
    pub(super) fn insert_row(&mut self, layout: &ColumnLayout, row: &RowBuffer, on_move: impl FnMut(u32, u32, u32)) {
        self.insert_into_leaf(self.find_leaf(row), layout, row, on_move);
    }

    fn insert_into_leaf(
        &mut self,
        leaf: usize,
        layout: &ColumnLayout,
        row: &RowBuffer,
        mut on_move: impl FnMut(u32, u32, u32),
    ) {
        let row_index = self.leaves[leaf].insert_row(row);
        self.leaf_bounds.widen_to_row(leaf, row);
        self.leaf_bounds.row_counts[leaf] += 1;
        self.row_count += 1;
        on_move(row.slot, leaf as u32, row_index as u32);
        if self.leaves[leaf].split_threshold <= self.leaves[leaf].len() {
            self.split_leaf(layout, leaf, &mut on_move);
        }
    }

    /// Removes a row. Bounds are not tightened.
    pub(super) fn remove_row(&mut self, leaf: u32, row: u32) {
        self.leaves[leaf as usize].remove_row(row as usize);
        self.leaf_bounds.row_counts[leaf as usize] -= 1;
        self.row_count -= 1;
    }

    /// Replaces the row at `row_addr` by `row`.
    pub(super) fn replace_row(
        &mut self,
        layout: &ColumnLayout,
        row_addr: RowAddr,
        row: &RowBuffer,
        on_move: impl FnMut(u32, u32, u32),
    ) {
        let leaf = self.find_leaf(row);
        if leaf == row_addr.leaf as usize {
            self.leaves[leaf].overwrite_row(row_addr.row as usize, row);
            self.leaf_bounds.widen_to_row(leaf, row);
        } else {
            self.remove_row(row_addr.leaf, row_addr.row);
            self.insert_into_leaf(leaf, layout, row, on_move);
        }
    }

    /// Sets one word of a row and widens the leaf's bounds if needed.
    pub(super) fn set_word(&mut self, column: usize, leaf: u32, row: u32, value: u32) {
        let leaf_index = leaf as usize;
        let bits = if column == word_column::SEATS_AND_OWNER { SEATS_MASK } else { u32::MAX };
        self.leaves[leaf_index].set_word_bits(column, row as usize, value, bits);
        if column == word_column::EXPIRES_AT {
            self.leaf_bounds.latest_expiry[leaf_index] = self.leaf_bounds.latest_expiry[leaf_index].max(value);
        }
        if column == word_column::SEATS_AND_OWNER {
            self.leaf_bounds.max_open_seats[leaf_index] = self.leaf_bounds.max_open_seats[leaf_index].max(value);
        }
    }

    /// Whether the row at `row_addr` belongs to `slot` with this expiry tick and number of seats, and its leaf's bounds
    /// include them.
    pub(super) fn row_matches(&self, row_addr: RowAddr, slot: u32, expiry_tick: u32, seats: u32) -> bool {
        let (leaf_index, row) = (row_addr.leaf as usize, row_addr.row as usize);
        let Some(leaf) = self
            .leaves
            .get(leaf_index)
            .filter(|leaf| row < leaf.used_len() && !leaf.hole_positions().contains(&row_addr.row))
        else {
            return false;
        };
        leaf.slot(row) == slot
            && leaf.word_column(word_column::EXPIRES_AT)[row] == expiry_tick
            && leaf.word_column(word_column::SEATS_AND_OWNER)[row] & SEATS_MASK == seats
            && expiry_tick <= self.leaf_bounds.latest_expiry[leaf_index]
            && seats <= self.leaf_bounds.max_open_seats[leaf_index]
    }

    /// Tightens the bounds of the next `count` leaves and joins small siblings.
    pub(super) fn tighten_and_join_next_leaves(&mut self, count: usize, mut on_move: impl FnMut(u32, u32, u32)) {
        for _ in 0..count {
            let leaf = self.next_maintained_leaf % self.leaves.len();
            self.next_maintained_leaf = leaf + 1;
            self.join_with_sibling(leaf, &mut on_move);
            self.compact_leaf(leaf, &mut on_move);
        }
    }

    fn find_leaf(&self, row: &RowBuffer) -> usize {
        let mut child = self.root;
        loop {
            if let Some(leaf) = child.leaf_index() {
                return leaf;
            }
            let node = &self.nodes[child.0 as usize];
            child = node.children
                [usize::from(node.split_value <= value_for_split(row.float_columns[node.dimension as usize]))];
        }
    }

    /// Splits a leaf in two along the dimension with the largest weighted spread. A leaf with identical rows is not
    /// split and grows beyond its normal size.
    fn split_leaf(&mut self, layout: &ColumnLayout, leaf: usize, on_move: &mut impl FnMut(u32, u32, u32)) {
        self.compact_leaf(leaf, on_move);
        let Some((dimension, split_value)) = best_split(layout, &self.leaves[leaf]) else {
            self.leaves[leaf].split_threshold = 2 * self.leaves[leaf].len();
            return;
        };
        let parent = self.leaves[leaf].parent_node;
        let other = self.allocate_leaf();
        let children = [NodeOrLeafIndex::from_leaf_index(leaf), NodeOrLeafIndex::from_leaf_index(other)];
        let node = self.allocate_node(SplitNode { dimension: dimension as u32, split_value, children }, parent);
        self.replace_child(parent, NodeOrLeafIndex::from_leaf_index(leaf), NodeOrLeafIndex(node));
        let is_upper = |tree: &Self, row_index: usize| {
            split_value <= value_for_split(tree.leaves[leaf].float_value(dimension, row_index))
        };
        self.move_rows(leaf, other, is_upper, on_move);
        for half in [leaf, other] {
            self.leaves[half].split_threshold = ROWS_PER_LEAF.max(self.leaves[half].len() + 1);
            self.compact_leaf(half, on_move);
        }
    }

    /// Joins a leaf with its sibling if both together fill at most three quarters of a leaf. A higher threshold would
    /// cause splits soon after; a lower one would leave many half-empty leaves for searches to visit.
    fn join_with_sibling(&mut self, leaf: usize, on_move: &mut impl FnMut(u32, u32, u32)) {
        let Some(node) = self.leaves[leaf].parent_node else { return };
        let [Some(one), Some(other)] = self.nodes[node as usize].children.map(NodeOrLeafIndex::leaf_index) else {
            return;
        };
        if self.leaves[one].len() + self.leaves[other].len() > ROWS_PER_LEAF * 3 / 4 {
            return;
        }
        self.compact_leaf(other, on_move);
        self.move_rows(other, one, |_, _| true, on_move);
        let parent = self.parent_nodes[node as usize];
        self.replace_child(parent, NodeOrLeafIndex(node), NodeOrLeafIndex::from_leaf_index(one));
        self.leaves[one].parent_node = parent;
        self.leaves[one].split_threshold = ROWS_PER_LEAF;
        self.leaves[other].parent_node = None;
        self.leaves[other].reset();
        self.free_leaves.push(other as u32);
        self.free_nodes.push(node);
        self.compact_leaf(one, on_move);
        self.compact_leaf(other, on_move);
    }

    /// Moves the rows selected by `selects` from a leaf without holes to another leaf.
    fn move_rows(
        &mut self,
        from: usize,
        to: usize,
        selects: impl Fn(&Self, usize) -> bool,
        on_move: &mut impl FnMut(u32, u32, u32),
    ) {
        let mut row = RowBuffer::default();
        for row_index in (0..self.leaves[from].len()).rev() {
            if selects(self, row_index) {
                self.leaves[from].copy_row_to(row_index, &mut row);
                self.leaves[from].remove_row(row_index);
                let new_index = self.leaves[to].insert_row(&row);
                on_move(row.slot, to as u32, new_index as u32);
            }
        }
    }

    /// Fills the holes of a leaf and recomputes its bounds.
    fn compact_leaf(&mut self, leaf: usize, on_move: &mut impl FnMut(u32, u32, u32)) {
        self.leaves[leaf].fill_holes(|slot, row| on_move(slot, leaf as u32, row));
        self.leaf_bounds.recompute_leaf(leaf, &self.leaves[leaf]);
    }

    fn allocate_leaf(&mut self) -> usize {
        if let Some(free) = self.free_leaves.pop() {
            return free as usize;
        }
        self.leaves.push(Leaf::new());
        self.leaf_bounds.push_empty_leaf();
        self.leaves.len() - 1
    }

    fn allocate_node(&mut self, node: SplitNode, parent: Option<u32>) -> u32 {
        let new = match self.free_nodes.pop() {
            Some(free) => {
                (self.nodes[free as usize], self.parent_nodes[free as usize]) = (node, parent);
                free
            }
            None => {
                self.nodes.push(node);
                self.parent_nodes.push(parent);
                self.nodes.len() as u32 - 1
            }
        };
        for child in node.children {
            match child.leaf_index() {
                Some(leaf) => self.leaves[leaf].parent_node = Some(new),
                None => self.parent_nodes[child.0 as usize] = Some(new),
            }
        }
        new
    }

    fn replace_child(&mut self, parent: Option<u32>, old: NodeOrLeafIndex, new: NodeOrLeafIndex) {
        match parent {
            None => self.root = new,
            Some(parent) => {
                let children = &mut self.nodes[parent as usize].children;
                children.iter_mut().filter(|child| **child == old).for_each(|child| *child = new);
            }
        }
    }
}

/// Value by which rows are assigned to leaves. A missing value has a fixed replacement, so that the row can be found
/// again.
fn value_for_split(value: f32) -> f32 {
    if value.is_nan() { MISSING_SPLIT_VALUE } else { value }
}

/// Dimension and value of the best split; `None` if all rows are identical. The value is greater than the lowest one,
/// so both sides get rows and equal values stay together.
fn best_split(layout: &ColumnLayout, leaf: &Leaf) -> Option<(usize, f32)> {
    let spread = |dimension: usize| {
        let values = leaf.float_column(dimension).iter().map(|&value| value_for_split(value));
        let (lowest, highest) =
            values.fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
        (lowest < highest).then(|| (layout.leaf_split_weight(dimension) * (highest - lowest), dimension, lowest))
    };
    let widest = |one: &(f32, usize, f32), other: &(f32, usize, f32)| one.0.total_cmp(&other.0);
    let (_, dimension, lowest) = (0..layout.split_dimension_count()).filter_map(spread).max_by(widest)?;
    let mut values: Vec<f32> = leaf.float_column(dimension).iter().map(|&value| value_for_split(value)).collect();
    let middle = values.len() / 2;
    let (_, median, above) = values.select_nth_unstable_by(middle, f32::total_cmp);
    if lowest < *median {
        return Some((dimension, *median));
    }
    above
        .iter()
        .copied()
        .filter(|&value| lowest < value)
        .min_by(f32::total_cmp)
        .map(|split_value| (dimension, split_value))
}
