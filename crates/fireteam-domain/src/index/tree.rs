//! One partition: a kd-B-tree whose leaves are columns. It grows by splitting full leaves and shrinks by joining
//! leaves that have run empty.

use crate::index::layout::{ColumnLayout, MISSING_SPLIT_VALUE, RowBuffer, word_column};
use crate::index::leaf::{Leaf, ROWS_PER_LEAF};
use crate::index::leaf_bounds::LeafBounds;
use crate::index::row_rules::SEATS_MASK;

/// Where a row is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RowAddr {
    /// Which partition.
    pub(super) partition: u32,
    /// Which leaf of it.
    pub(super) leaf: u32,
    /// Which row of it.
    pub(super) row: u32,
}

/// A node or a leaf, in one word so that a node is a quarter of a cache line: a way down passes a dozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NodeOrLeaf(u32);

impl NodeOrLeaf {
    const LEAF_FLAG: u32 = 1 << 31;

    fn from_leaf_index(leaf: usize) -> Self {
        Self(leaf as u32 | Self::LEAF_FLAG)
    }

    fn leaf_index(self) -> Option<usize> {
        (self.0 & Self::LEAF_FLAG != 0).then_some((self.0 & !Self::LEAF_FLAG) as usize)
    }
}

/// Rows below `at` along `dim` are under the first child, the others under the second.
#[derive(Clone, Copy, Debug)]
struct SplitNode {
    dimension: u32,
    split_value: f32,
    children: [NodeOrLeaf; 2],
}

/// The rows of one partition.
#[derive(Debug)]
pub(super) struct KdTree {
    root: NodeOrLeaf,
    nodes: Vec<SplitNode>,
    /// By node: the one above.
    parent_nodes: Vec<Option<u32>>,
    free_nodes: Vec<u32>,
    /// The leaves; those that are not in the tree at the moment are empty.
    pub(super) leaves: Vec<Leaf>,
    free_leaves: Vec<u32>,
    /// Their bounds.
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
            root: NodeOrLeaf::from_leaf_index(0),
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

    /// How many rows it has.
    pub(super) fn len(&self) -> usize {
        self.row_count
    }

    /// How many leaves have rows.
    #[cfg(test)]
    pub(super) fn non_empty_leaf_count(&self) -> usize {
        self.leaves.iter().filter(|leaf| 0 < leaf.len()).count()
    }

    /// Puts `row` in. `moved` hears of every row that now is somewhere else: its slot, leaf and row.
    pub(super) fn insert_row(&mut self, layout: &ColumnLayout, row: &RowBuffer, moved: impl FnMut(u32, u32, u32)) {
        self.insert_into_leaf(self.find_leaf(row), layout, row, moved);
    }

    fn insert_into_leaf(
        &mut self,
        leaf: usize,
        layout: &ColumnLayout,
        row: &RowBuffer,
        mut moved: impl FnMut(u32, u32, u32),
    ) {
        let at = self.leaves[leaf].insert_row(row);
        self.leaf_bounds.widen_to_row(leaf, row);
        self.leaf_bounds.row_counts[leaf] += 1;
        self.row_count += 1;
        moved(row.slot, leaf as u32, at as u32);
        if self.leaves[leaf].split_threshold <= self.leaves[leaf].len() {
            self.split_leaf(layout, leaf, &mut moved);
        }
    }

    /// Takes a row out. Bounds stay as wide as they were.
    pub(super) fn remove_row(&mut self, leaf: u32, row: u32) {
        self.leaves[leaf as usize].remove_row(row as usize);
        self.leaf_bounds.row_counts[leaf as usize] -= 1;
        self.row_count -= 1;
    }

    /// Puts `row` in for the one at `place`.
    pub(super) fn replace_row(
        &mut self,
        layout: &ColumnLayout,
        place: RowAddr,
        row: &RowBuffer,
        moved: impl FnMut(u32, u32, u32),
    ) {
        let leaf = self.find_leaf(row);
        if leaf == place.leaf as usize {
            self.leaves[leaf].overwrite_row(place.row as usize, row);
            self.leaf_bounds.widen_to_row(leaf, row);
        } else {
            self.remove_row(place.leaf, place.row);
            self.insert_into_leaf(leaf, layout, row, moved);
        }
    }

    /// Changes one word of a row; `bound` is the bound that it may widen.
    pub(super) fn set_word(&mut self, column: usize, leaf: u32, row: u32, value: u32) {
        let at = leaf as usize;
        let bits = if column == word_column::SEATS_AND_OWNER { SEATS_MASK } else { u32::MAX };
        self.leaves[at].set_word(column, row as usize, value, bits);
        if column == word_column::EXPIRES_AT {
            self.leaf_bounds.latest_expiry[at] = self.leaf_bounds.latest_expiry[at].max(value);
        }
        if column == word_column::SEATS_AND_OWNER {
            self.leaf_bounds.max_open_seats[at] = self.leaf_bounds.max_open_seats[at].max(value);
        }
    }

    /// Whether the row at `place` is that of `slot`, and its words and its leaf's bounds are of that expiry and those seats.
    pub(super) fn row_matches(&self, place: RowAddr, slot: u32, expires: u32, seats: u32) -> bool {
        let (at, row) = (place.leaf as usize, place.row as usize);
        let Some(leaf) = self.leaves.get(at).filter(|leaf| row < leaf.used_len() && !leaf.holes().contains(&place.row))
        else {
            return false;
        };
        leaf.slot(row) == slot
            && leaf.word_column(word_column::EXPIRES_AT)[row] == expires
            && leaf.word_column(word_column::SEATS_AND_OWNER)[row] & SEATS_MASK == seats
            && expires <= self.leaf_bounds.latest_expiry[at]
            && seats <= self.leaf_bounds.max_open_seats[at]
    }

    /// Recomputes the bounds of the next `leaves` leaves and joins small neighbours.
    pub(super) fn maintain_leaves(&mut self, leaves: usize, mut moved: impl FnMut(u32, u32, u32)) {
        for _ in 0..leaves {
            let leaf = self.next_maintained_leaf % self.leaves.len();
            self.next_maintained_leaf = leaf + 1;
            self.join_with_sibling(leaf, &mut moved);
            self.compact_leaf(leaf, &mut moved);
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

    /// Splits a leaf in two along the dimension in which its rows are spread widest, by worth. When all its rows are
    /// alike it stays whole and overflows.
    fn split_leaf(&mut self, layout: &ColumnLayout, leaf: usize, moved: &mut impl FnMut(u32, u32, u32)) {
        self.compact_leaf(leaf, moved);
        let Some((dim, at)) = best_split(layout, &self.leaves[leaf]) else {
            self.leaves[leaf].split_threshold = 2 * self.leaves[leaf].len();
            return;
        };
        let parent = self.leaves[leaf].parent_node;
        let other = self.allocate_leaf();
        let children = [NodeOrLeaf::from_leaf_index(leaf), NodeOrLeaf::from_leaf_index(other)];
        let node = self.allocate_node(SplitNode { dimension: dim as u32, split_value: at, children }, parent);
        self.replace_child(parent, NodeOrLeaf::from_leaf_index(leaf), NodeOrLeaf(node));
        let goes = |tree: &Self, from: usize| at <= value_for_split(tree.leaves[leaf].float_value(dim, from));
        self.move_rows(leaf, other, goes, moved);
        for half in [leaf, other] {
            self.leaves[half].split_threshold = ROWS_PER_LEAF.max(self.leaves[half].len() + 1);
            self.compact_leaf(half, moved);
        }
    }

    /// Joins a leaf with its sibling when both together leave a quarter of a leaf empty: less would split again soon,
    /// and more would leave searches to go through many half-empty leaves once everybody has moved.
    fn join_with_sibling(&mut self, leaf: usize, moved: &mut impl FnMut(u32, u32, u32)) {
        let Some(node) = self.leaves[leaf].parent_node else { return };
        let [Some(one), Some(other)] = self.nodes[node as usize].children.map(NodeOrLeaf::leaf_index) else { return };
        if ROWS_PER_LEAF * 3 / 4 < self.leaves[one].len() + self.leaves[other].len() {
            return;
        }
        self.compact_leaf(other, moved);
        self.move_rows(other, one, |_, _| true, moved);
        let parent = self.parent_nodes[node as usize];
        self.replace_child(parent, NodeOrLeaf(node), NodeOrLeaf::from_leaf_index(one));
        self.leaves[one].parent_node = parent;
        self.leaves[one].split_threshold = ROWS_PER_LEAF;
        self.leaves[other].parent_node = None;
        self.leaves[other].clear();
        self.free_leaves.push(other as u32);
        self.free_nodes.push(node);
        self.compact_leaf(one, moved);
        self.compact_leaf(other, moved);
    }

    /// Moves the rows of a leaf without holes that `goes` picks to another.
    fn move_rows(
        &mut self,
        from: usize,
        to: usize,
        goes: impl Fn(&Self, usize) -> bool,
        moved: &mut impl FnMut(u32, u32, u32),
    ) {
        let mut row = RowBuffer::default();
        for at in (0..self.leaves[from].len()).rev() {
            if goes(self, at) {
                self.leaves[from].copy_row_to(at, &mut row);
                self.leaves[from].remove_row(at);
                let now = self.leaves[to].insert_row(&row);
                moved(row.slot, to as u32, now as u32);
            }
        }
    }

    /// Closes a leaf's holes and computes its bounds anew.
    fn compact_leaf(&mut self, leaf: usize, moved: &mut impl FnMut(u32, u32, u32)) {
        self.leaves[leaf].fill_holes(|slot, row| moved(slot, leaf as u32, row));
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

    fn replace_child(&mut self, parent: Option<u32>, old: NodeOrLeaf, new: NodeOrLeaf) {
        match parent {
            None => self.root = new,
            Some(parent) => {
                let children = &mut self.nodes[parent as usize].children;
                children.iter_mut().filter(|child| **child == old).for_each(|child| *child = new);
            }
        }
    }
}

/// Where the tree puts a value: a missing one has a fixed stand-in, so that it can be found again.
fn value_for_split(value: f32) -> f32 {
    if value.is_nan() { MISSING_SPLIT_VALUE } else { value }
}

/// The dimension and the value to split at. Both sides are sure to get rows: the value is greater than the least, so
/// runs of equal values stay together.
fn best_split(layout: &ColumnLayout, leaf: &Leaf) -> Option<(usize, f32)> {
    let spread = |dim: usize| {
        let values = leaf.float_column(dim).iter().map(|&value| value_for_split(value));
        let (least, greatest) = values.fold((f32::INFINITY, f32::NEG_INFINITY), |(l, g), it| (l.min(it), g.max(it)));
        (least < greatest).then(|| (layout.split_weight(dim) * (greatest - least), dim, least))
    };
    let widest = |one: &(f32, usize, f32), other: &(f32, usize, f32)| one.0.total_cmp(&other.0);
    let (_, dim, least) = (0..layout.split_dimension_count()).filter_map(spread).max_by(widest)?;
    let mut values: Vec<f32> = leaf.float_column(dim).iter().map(|&value| value_for_split(value)).collect();
    let middle = values.len() / 2;
    let (_, median, above) = values.select_nth_unstable_by(middle, f32::total_cmp);
    if least < *median {
        return Some((dim, *median));
    }
    above.iter().copied().filter(|&value| least < value).min_by(f32::total_cmp).map(|at| (dim, at))
}
