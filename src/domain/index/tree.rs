//! One partition: a kd-B-tree whose leaves are columns. It grows by splitting full leaves and shrinks by joining
//! leaves that have run empty.

use crate::domain::index::guard::SEATS_BITS;
use crate::domain::index::layout::{Layout, Row, STAND_IN, word};
use crate::domain::index::leaf::{Leaf, ROWS};
use crate::domain::index::summary::Summary;

/// Where a row is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// Which partition.
    pub(super) partition: u32,
    /// Which leaf of it.
    pub(super) leaf: u32,
    /// Which row of it.
    pub(super) row: u32,
}

/// A node or a leaf, in one word so that a node is a quarter of a cache line: a way down passes a dozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Child(u32);

impl Child {
    const LEAF: u32 = 1 << 31;

    fn leaf(leaf: usize) -> Self {
        Self(leaf as u32 | Self::LEAF)
    }

    fn as_leaf(self) -> Option<usize> {
        (self.0 & Self::LEAF != 0).then_some((self.0 & !Self::LEAF) as usize)
    }
}

/// Rows below `at` along `dim` are under the first child, the others under the second.
#[derive(Clone, Copy, Debug)]
struct Node {
    dim: u32,
    at: f32,
    children: [Child; 2],
}

/// The rows of one partition.
#[derive(Debug)]
pub(super) struct Tree {
    root: Child,
    nodes: Vec<Node>,
    /// By node: the one above.
    parents: Vec<Option<u32>>,
    free_nodes: Vec<u32>,
    /// The leaves; those that are not in the tree at the moment are empty.
    pub(super) leaves: Vec<Leaf>,
    free_leaves: Vec<u32>,
    /// Their bounds.
    pub(super) summary: Summary,
    len: usize,
    tidied: usize,
}

impl Tree {
    pub(super) fn new(layout: &Layout) -> Self {
        let mut summary = Summary::new(layout);
        summary.push();
        let leaves = vec![Leaf::new()];
        Self {
            root: Child::leaf(0),
            nodes: Vec::new(),
            parents: Vec::new(),
            free_nodes: Vec::new(),
            leaves,
            free_leaves: Vec::new(),
            summary,
            len: 0,
            tidied: 0,
        }
    }

    /// How many rows it has.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// How many leaves have rows.
    #[cfg(test)]
    pub(super) fn filled_leaves(&self) -> usize {
        self.leaves.iter().filter(|leaf| 0 < leaf.len()).count()
    }

    /// Puts `row` in. `moved` hears of every row that now is somewhere else: its slot, leaf and row.
    pub(super) fn insert(&mut self, layout: &Layout, row: &Row, moved: impl FnMut(u32, u32, u32)) {
        self.insert_into(self.leaf_of(row), layout, row, moved);
    }

    fn insert_into(&mut self, leaf: usize, layout: &Layout, row: &Row, mut moved: impl FnMut(u32, u32, u32)) {
        let at = self.leaves[leaf].push(row);
        self.summary.widen(leaf, row);
        self.summary.len[leaf] += 1;
        self.len += 1;
        moved(row.slot, leaf as u32, at as u32);
        if self.leaves[leaf].split_at <= self.leaves[leaf].len() {
            self.split(layout, leaf, &mut moved);
        }
    }

    /// Takes a row out. Bounds stay as wide as they were.
    pub(super) fn remove(&mut self, leaf: u32, row: u32) {
        self.leaves[leaf as usize].remove(row as usize);
        self.summary.len[leaf as usize] -= 1;
        self.len -= 1;
    }

    /// Puts `row` in for the one at `place`.
    pub(super) fn replace(&mut self, layout: &Layout, place: Place, row: &Row, moved: impl FnMut(u32, u32, u32)) {
        let leaf = self.leaf_of(row);
        if leaf == place.leaf as usize {
            self.leaves[leaf].write(place.row as usize, row);
            self.summary.widen(leaf, row);
        } else {
            self.remove(place.leaf, place.row);
            self.insert_into(leaf, layout, row, moved);
        }
    }

    /// Changes one word of a row; `bound` is the bound that it may widen.
    pub(super) fn set_word(&mut self, column: usize, leaf: u32, row: u32, value: u32) {
        let at = leaf as usize;
        let bits = if column == word::SEATS { SEATS_BITS } else { u32::MAX };
        self.leaves[at].set_word(column, row as usize, value, bits);
        if column == word::EXPIRES {
            self.summary.expires[at] = self.summary.expires[at].max(value);
        }
        if column == word::SEATS {
            self.summary.seats[at] = self.summary.seats[at].max(value);
        }
    }

    /// Whether the row at `place` is that of `slot`, and its words and its leaf's bounds are of that expiry and those seats.
    pub(super) fn says(&self, place: Place, slot: u32, expires: u32, seats: u32) -> bool {
        let (at, row) = (place.leaf as usize, place.row as usize);
        let Some(leaf) = self.leaves.get(at).filter(|leaf| row < leaf.end() && !leaf.holes().contains(&place.row))
        else {
            return false;
        };
        leaf.slot(row) == slot
            && leaf.words(word::EXPIRES)[row] == expires
            && leaf.words(word::SEATS)[row] & SEATS_BITS == seats
            && expires <= self.summary.expires[at]
            && seats <= self.summary.seats[at]
    }

    /// Recomputes the bounds of the next `leaves` leaves and joins small neighbours.
    pub(super) fn tidy(&mut self, leaves: usize, mut moved: impl FnMut(u32, u32, u32)) {
        for _ in 0..leaves {
            let leaf = self.tidied % self.leaves.len();
            self.tidied = leaf + 1;
            self.join(leaf, &mut moved);
            self.close(leaf, &mut moved);
        }
    }

    fn leaf_of(&self, row: &Row) -> usize {
        let mut child = self.root;
        loop {
            if let Some(leaf) = child.as_leaf() {
                return leaf;
            }
            let node = &self.nodes[child.0 as usize];
            child = node.children[usize::from(node.at <= placed(row.floats[node.dim as usize]))];
        }
    }

    /// Splits a leaf in two along the dimension in which its rows are spread widest, by worth. When all its rows are
    /// alike it stays whole and overflows.
    fn split(&mut self, layout: &Layout, leaf: usize, moved: &mut impl FnMut(u32, u32, u32)) {
        self.close(leaf, moved);
        let Some((dim, at)) = best_split(layout, &self.leaves[leaf]) else {
            self.leaves[leaf].split_at = 2 * self.leaves[leaf].len();
            return;
        };
        let parent = self.leaves[leaf].parent;
        let other = self.new_leaf();
        let children = [Child::leaf(leaf), Child::leaf(other)];
        let node = self.new_node(Node { dim: dim as u32, at, children }, parent);
        self.hang(parent, Child::leaf(leaf), Child(node));
        let goes = |tree: &Self, from: usize| at <= placed(tree.leaves[leaf].float(dim, from));
        self.carry(leaf, other, goes, moved);
        for half in [leaf, other] {
            self.leaves[half].split_at = ROWS.max(self.leaves[half].len() + 1);
            self.close(half, moved);
        }
    }

    /// Joins a leaf with its sibling when both together leave a quarter of a leaf empty: less would split again soon,
    /// and more would leave searches to go through many half-empty leaves once everybody has moved.
    fn join(&mut self, leaf: usize, moved: &mut impl FnMut(u32, u32, u32)) {
        let Some(node) = self.leaves[leaf].parent else { return };
        let [Some(one), Some(other)] = self.nodes[node as usize].children.map(Child::as_leaf) else { return };
        if ROWS * 3 / 4 < self.leaves[one].len() + self.leaves[other].len() {
            return;
        }
        self.close(other, moved);
        self.carry(other, one, |_, _| true, moved);
        let parent = self.parents[node as usize];
        self.hang(parent, Child(node), Child::leaf(one));
        self.leaves[one].parent = parent;
        self.leaves[one].split_at = ROWS;
        self.leaves[other].parent = None;
        self.leaves[other].clear();
        self.free_leaves.push(other as u32);
        self.free_nodes.push(node);
        self.close(one, moved);
        self.close(other, moved);
    }

    /// Moves the rows of a leaf without holes that `goes` picks to another.
    fn carry(
        &mut self,
        from: usize,
        to: usize,
        goes: impl Fn(&Self, usize) -> bool,
        moved: &mut impl FnMut(u32, u32, u32),
    ) {
        let mut row = Row::default();
        for at in (0..self.leaves[from].len()).rev() {
            if goes(self, at) {
                self.leaves[from].read(at, &mut row);
                self.leaves[from].remove(at);
                let now = self.leaves[to].push(&row);
                moved(row.slot, to as u32, now as u32);
            }
        }
    }

    /// Closes a leaf's holes and computes its bounds anew.
    fn close(&mut self, leaf: usize, moved: &mut impl FnMut(u32, u32, u32)) {
        self.leaves[leaf].compact(|slot, row| moved(slot, leaf as u32, row));
        self.summary.recompute(leaf, &self.leaves[leaf]);
    }

    fn new_leaf(&mut self) -> usize {
        if let Some(free) = self.free_leaves.pop() {
            return free as usize;
        }
        self.leaves.push(Leaf::new());
        self.summary.push();
        self.leaves.len() - 1
    }

    fn new_node(&mut self, node: Node, parent: Option<u32>) -> u32 {
        let new = match self.free_nodes.pop() {
            Some(free) => {
                (self.nodes[free as usize], self.parents[free as usize]) = (node, parent);
                free
            }
            None => {
                self.nodes.push(node);
                self.parents.push(parent);
                self.nodes.len() as u32 - 1
            }
        };
        for child in node.children {
            match child.as_leaf() {
                Some(leaf) => self.leaves[leaf].parent = Some(new),
                None => self.parents[child.0 as usize] = Some(new),
            }
        }
        new
    }

    fn hang(&mut self, parent: Option<u32>, old: Child, new: Child) {
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
fn placed(value: f32) -> f32 {
    if value.is_nan() { STAND_IN } else { value }
}

/// The dimension and the value to split at. Both sides are sure to get rows: the value is greater than the least, so
/// runs of equal values stay together.
fn best_split(layout: &Layout, leaf: &Leaf) -> Option<(usize, f32)> {
    let spread = |dim: usize| {
        let values = leaf.floats(dim).iter().map(|&value| placed(value));
        let (least, greatest) = values.fold((f32::INFINITY, f32::NEG_INFINITY), |(l, g), it| (l.min(it), g.max(it)));
        (least < greatest).then(|| (layout.pull(dim) * (greatest - least), dim, least))
    };
    let widest = |one: &(f32, usize, f32), other: &(f32, usize, f32)| one.0.total_cmp(&other.0);
    let (_, dim, least) = (0..layout.dims()).filter_map(spread).max_by(widest)?;
    let mut values: Vec<f32> = leaf.floats(dim).iter().map(|&value| placed(value)).collect();
    let middle = values.len() / 2;
    let (_, median, above) = values.select_nth_unstable_by(middle, f32::total_cmp);
    if least < *median {
        return Some((dim, *median));
    }
    above.iter().copied().filter(|&value| least < value).min_by(f32::total_cmp).map(|at| (dim, at))
}
