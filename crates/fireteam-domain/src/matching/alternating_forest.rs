//! State of a matching search: the graph, the current matching, nested blossoms, alternating trees and duals.

mod augmentation;
mod blossom;

/// One direction of an edge. Edge `e` has the half-edges `2 e` and `2 e + 1`; each leads to one of its nodes.
pub(super) type HalfEdge = usize;

/// The other half-edge of the same edge.
pub(super) fn opposite_half_edge(half_edge: HalfEdge) -> HalfEdge {
    half_edge ^ 1
}

/// Position of an outermost blossom in the forest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlossomLabel {
    /// In no tree; matched.
    Free,
    /// In a tree, at an even distance from the root; a start of augmenting paths.
    Even,
    /// In a tree, at an odd distance from the root.
    Odd,
}

/// A node, or an odd cycle of blossoms treated as one node.
#[derive(Clone, Debug)]
pub(super) struct Blossom {
    /// Blossom that contains it.
    pub(super) parent: Option<usize>,
    /// Parts of the cycle, beginning with the one that holds the base; empty for a node.
    pub(super) cycle: Vec<usize>,
    /// For each part of the cycle, the half-edge to the next part.
    pub(super) cycle_edges: Vec<HalfEdge>,
    /// The one node that is not matched within the blossom.
    pub(super) base: usize,
    /// Dual of the blossom; 0 for a node, whose dual is in `AlternatingForest::node_duals`.
    pub(super) dual: i64,
    /// Label, valid for outermost blossoms.
    pub(super) label: BlossomLabel,
    /// Half-edge that leads to it from its parent in the tree; `None` for a root.
    pub(super) tree_edge: Option<HalfEdge>,
    /// Root of its tree, while it is labelled.
    pub(super) tree_root: usize,
    /// Value of `elapsed_dual` at which its duals were recorded. They have changed since then as its label says.
    pub(super) dual_recorded_at: i64,
}

/// Event at a value of `elapsed_dual`. Among simultaneous events, the first variant is handled first: trees that meet
/// are dissolved, which avoids growing them for nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ForestEvent {
    /// An edge between two trees becomes tight.
    CrossTreeEdgeTight(usize),
    /// An edge within a tree, or from a tree to a free blossom, becomes tight.
    TreeEdgeTight(usize),
    /// The dual of an odd blossom becomes 0.
    OddBlossomDualZero(usize),
}

/// Complete state of the search. Node duals are doubled, like weights in `slack`, so that half the slack between two
/// even blossoms is an integer. All duals in trees have the same parity: the roots' duals do, and tight edges preserve
/// it.
pub(super) struct AlternatingForest {
    pub(super) node_count: usize,
    /// Node to which each half-edge leads.
    pub(super) half_edge_targets: Vec<usize>,
    edge_weights: Vec<i64>,
    /// Range of `adjacency` with the half-edges that leave each node.
    adjacency_starts: Vec<usize>,
    adjacency: Vec<HalfEdge>,
    /// Half-edge to the partner of each node.
    pub(super) mate_edges: Vec<Option<HalfEdge>>,
    pub(super) node_duals: Vec<i64>,
    /// Outermost blossom of each node.
    pub(super) outermost_blossoms: Vec<usize>,
    /// Nodes first, then cycles. Slots of expanded cycles are reused.
    pub(super) blossoms: Vec<Blossom>,
    pub(super) unused_slots: Vec<usize>,
    /// Blossoms that have been in the tree of each root; some may have left it.
    pub(super) tree_members: Vec<Vec<usize>>,
    /// Total decrease of the roots' duals.
    pub(super) elapsed_dual: i64,
    /// Initial dual of the roots: the largest weight.
    pub(super) initial_dual: i64,
    pub(super) event_queue: std::collections::BinaryHeap<std::cmp::Reverse<(i64, ForestEvent)>>,
}

impl AlternatingForest {
    pub(super) fn new(node_count: usize, edges: impl Iterator<Item = (usize, usize, i64)>) -> Self {
        let (mut half_edge_targets, mut edge_weights) = (Vec::new(), Vec::new());
        for (a, b, weight) in edges {
            half_edge_targets.extend([b, a]);
            edge_weights.push(weight);
        }
        let mut adjacency_starts = vec![0; node_count + 1];
        for half_edge in 0..half_edge_targets.len() {
            adjacency_starts[half_edge_targets[opposite_half_edge(half_edge)] + 1] += 1;
        }
        for node in 0..node_count {
            adjacency_starts[node + 1] += adjacency_starts[node];
        }
        let (mut next, mut adjacency) = (adjacency_starts.clone(), vec![0; half_edge_targets.len()]);
        for half_edge in 0..half_edge_targets.len() {
            let node = half_edge_targets[opposite_half_edge(half_edge)];
            adjacency[next[node]] = half_edge;
            next[node] += 1;
        }
        let initial_dual = edge_weights.iter().copied().max().unwrap_or(0);
        let root = |node| Blossom {
            parent: None,
            cycle: Vec::new(),
            cycle_edges: Vec::new(),
            base: node,
            dual: 0,
            label: BlossomLabel::Even,
            tree_edge: None,
            tree_root: node,
            dual_recorded_at: 0,
        };
        Self {
            node_count,
            half_edge_targets,
            edge_weights,
            adjacency_starts,
            adjacency,
            mate_edges: vec![None; node_count],
            node_duals: vec![initial_dual; node_count],
            outermost_blossoms: (0..node_count).collect(),
            blossoms: (0..node_count).map(root).collect(),
            unused_slots: Vec::new(),
            tree_members: (0..node_count).map(|node| vec![node]).collect(),
            elapsed_dual: 0,
            initial_dual,
            event_queue: std::collections::BinaryHeap::new(),
        }
    }

    /// Partner of a node.
    pub(super) fn partner(&self, node: usize) -> Option<usize> {
        self.mate_edges[node].map(|half_edge| self.half_edge_targets[half_edge])
    }

    /// Outermost blossom to which a half-edge leads.
    pub(super) fn target_blossom(&self, half_edge: HalfEdge) -> usize {
        self.outermost_blossoms[self.half_edge_targets[half_edge]]
    }

    /// Distance of an edge between two outermost blossoms from being tight.
    pub(super) fn slack(&self, edge: usize) -> i64 {
        self.current_dual(self.half_edge_targets[2 * edge]) + self.current_dual(self.half_edge_targets[2 * edge + 1])
            - 2 * self.edge_weights[edge]
    }

    /// Current dual of a node.
    fn current_dual(&self, node: usize) -> i64 {
        let outermost = &self.blossoms[self.outermost_blossoms[node]];
        self.node_duals[node] + self.dual_change(outermost)
    }

    /// Change of the node duals in an outermost blossom since they were recorded.
    fn dual_change(&self, outermost: &Blossom) -> i64 {
        match outermost.label {
            BlossomLabel::Free => 0,
            BlossomLabel::Even => outermost.dual_recorded_at - self.elapsed_dual,
            BlossomLabel::Odd => self.elapsed_dual - outermost.dual_recorded_at,
        }
    }

    /// Nodes of a blossom.
    pub(super) fn nodes_in_blossom(&self, blossom: usize) -> Vec<usize> {
        let (mut nodes, mut stack) = (Vec::new(), vec![blossom]);
        while let Some(current) = stack.pop() {
            if current < self.node_count {
                nodes.push(current);
            } else {
                stack.extend(&self.blossoms[current].cycle);
            }
        }
        nodes
    }

    /// Records the current duals of an outermost blossom and changes its label.
    pub(super) fn relabel(
        &mut self,
        blossom: usize,
        label: BlossomLabel,
        tree_edge: Option<HalfEdge>,
        tree_root: usize,
    ) {
        let change = self.dual_change(&self.blossoms[blossom]);
        if change != 0 {
            for node in self.nodes_in_blossom(blossom) {
                self.node_duals[node] += change;
            }
        }
        let relabelled = &mut self.blossoms[blossom];
        relabelled.dual -= if blossom < self.node_count { 0 } else { 2 * change };
        (relabelled.dual_recorded_at, relabelled.label, relabelled.tree_edge, relabelled.tree_root) =
            (self.elapsed_dual, label, tree_edge, tree_root);
        if label != BlossomLabel::Free {
            self.tree_members[tree_root].push(blossom);
        }
        if label == BlossomLabel::Odd && blossom >= self.node_count {
            let zero_at = self.elapsed_dual + self.blossoms[blossom].dual / 2;
            self.schedule_event(zero_at, ForestEvent::OddBlossomDualZero(blossom));
        }
    }

    /// Schedules the edges at these nodes that will become tight: between even blossoms, or between an even and a free
    /// one.
    pub(super) fn schedule_tight_edges(&mut self, nodes: &[usize]) {
        for &node in nodes {
            let own_blossom = self.outermost_blossoms[node];
            for index in self.adjacency_starts[node]..self.adjacency_starts[node + 1] {
                let half_edge = self.adjacency[index];
                let other_blossom = self.target_blossom(half_edge);
                let labels = (self.blossoms[own_blossom].label, self.blossoms[other_blossom].label);
                if own_blossom == other_blossom {
                    continue;
                }
                let edge = half_edge / 2;
                let (slack, event) = match labels {
                    (BlossomLabel::Even, BlossomLabel::Even)
                        if self.blossoms[own_blossom].tree_root != self.blossoms[other_blossom].tree_root =>
                    {
                        (self.slack(edge) / 2, ForestEvent::CrossTreeEdgeTight(edge))
                    }
                    (BlossomLabel::Even, BlossomLabel::Even) => {
                        (self.slack(edge) / 2, ForestEvent::TreeEdgeTight(edge))
                    }
                    (BlossomLabel::Even, BlossomLabel::Free) | (BlossomLabel::Free, BlossomLabel::Even) => {
                        (self.slack(edge), ForestEvent::TreeEdgeTight(edge))
                    }
                    _ => continue,
                };
                self.schedule_event(self.elapsed_dual + slack, event);
            }
        }
    }

    /// Schedules an event, unless the roots' duals are 0 by then; it would add no weight.
    fn schedule_event(&mut self, elapsed: i64, event: ForestEvent) {
        if elapsed < self.initial_dual {
            self.event_queue.push(std::cmp::Reverse((elapsed, event)));
        }
    }

    /// True if the dual of an odd blossom has reached 0.
    pub(super) fn is_odd_blossom_dual_zero(&self, blossom: usize) -> bool {
        let odd = &self.blossoms[blossom];
        odd.parent.is_none()
            && odd.label == BlossomLabel::Odd
            && odd.dual == 2 * (self.elapsed_dual - odd.dual_recorded_at)
    }
}
