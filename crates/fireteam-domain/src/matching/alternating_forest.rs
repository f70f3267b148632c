//! What a search for a matching keeps: the graph, who is matched, blossoms within blossoms, trees of them, and duals.

/// One end of an edge: edge `e` has the halves `2 e` and `2 e + 1`, and each leads to one of its nodes.
pub(super) type HalfEdge = usize;

/// The other half of the same edge.
pub(super) fn opposite_half_edge(half: HalfEdge) -> HalfEdge {
    half ^ 1
}

/// Where an outermost blossom stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlossomLabel {
    /// In no tree; matched.
    Free,
    /// In a tree, at an even distance from its root: it can be augmented from.
    Even,
    /// In a tree, at an odd distance.
    Odd,
}

/// A node, or an odd cycle of blossoms that is treated as one node.
#[derive(Clone, Debug)]
pub(super) struct Blossom {
    /// The blossom that it is part of.
    pub(super) parent: Option<usize>,
    /// The cycle, beginning with the blossom that holds the base; empty for a node.
    pub(super) cycle: Vec<usize>,
    /// For each of the cycle, the half that leads from it to the next.
    pub(super) cycle_edges: Vec<HalfEdge>,
    /// The one node that is not matched within it.
    pub(super) base: usize,
    /// Its dual; 0 for a node, whose dual is in `Forest::duals`.
    pub(super) dual: i64,
    /// For outermost ones.
    pub(super) label: BlossomLabel,
    /// The half that leads to it from its parent in the tree; none for a root.
    pub(super) tree_edge: Option<HalfEdge>,
    /// The root of its tree, while it is labelled.
    pub(super) tree_root: usize,
    /// Its duals are those of this moment; since then they have moved as its label says.
    pub(super) dual_recorded_at: i64,
}

/// What may become possible at a moment; of several at once the first is tried first. Trees that meet go, so that as
/// few as can be are grown for nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ForestEvent {
    /// An edge between two trees becomes tight.
    CrossTreeEdgeTight(usize),
    /// An edge from a tree to a free blossom, or within a tree, does.
    TreeEdgeTight(usize),
    /// The dual of an odd blossom runs out.
    OddBlossomDualZero(usize),
}

/// Everything. Duals are kept doubled, as weights are in `slack`, so that halving a slack between two even blossoms is
/// exact: all duals in trees are alike modulo 2, because the roots' are and tight edges pass it on.
pub(super) struct AlternatingForest {
    pub(super) node_count: usize,
    /// Where each half leads.
    pub(super) half_edge_targets: Vec<usize>,
    edge_weights: Vec<i64>,
    /// The halves that lead away from each node: the range of `away` that is its own.
    adjacency_starts: Vec<usize>,
    adjacency: Vec<HalfEdge>,
    /// The half that leads to each node's partner.
    pub(super) mate_edges: Vec<Option<HalfEdge>>,
    pub(super) node_duals: Vec<i64>,
    /// The outermost blossom of each node.
    pub(super) outermost_blossoms: Vec<usize>,
    /// Nodes first, then cycles; places of cycles are used again.
    pub(super) blossoms: Vec<Blossom>,
    pub(super) unused_slots: Vec<usize>,
    /// What has been in the tree of each root; some of it may have left.
    pub(super) tree_members: Vec<Vec<usize>>,
    /// How far the roots' duals have come down.
    pub(super) elapsed_dual: i64,
    /// Where they began: the heaviest weight.
    pub(super) initial_dual: i64,
    pub(super) event_queue: std::collections::BinaryHeap<std::cmp::Reverse<(i64, ForestEvent)>>,
}

impl AlternatingForest {
    pub(super) fn new(nodes: usize, edges: impl Iterator<Item = (usize, usize, i64)>) -> Self {
        let (mut ends, mut weights) = (Vec::new(), Vec::new());
        for (a, b, weight) in edges {
            ends.extend([b, a]);
            weights.push(weight);
        }
        let mut starts = vec![0; nodes + 1];
        for half in 0..ends.len() {
            starts[ends[opposite_half_edge(half)] + 1] += 1;
        }
        for node in 0..nodes {
            starts[node + 1] += starts[node];
        }
        let (mut next, mut away) = (starts.clone(), vec![0; ends.len()]);
        for half in 0..ends.len() {
            let from = ends[opposite_half_edge(half)];
            away[next[from]] = half;
            next[from] += 1;
        }
        let end = weights.iter().copied().max().unwrap_or(0);
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
            node_count: nodes,
            half_edge_targets: ends,
            edge_weights: weights,
            adjacency_starts: starts,
            adjacency: away,
            mate_edges: vec![None; nodes],
            node_duals: vec![end; nodes],
            outermost_blossoms: (0..nodes).collect(),
            blossoms: (0..nodes).map(root).collect(),
            unused_slots: Vec::new(),
            tree_members: (0..nodes).map(|node| vec![node]).collect(),
            elapsed_dual: 0,
            initial_dual: end,
            event_queue: std::collections::BinaryHeap::new(),
        }
    }

    /// A node's partner.
    pub(super) fn partner(&self, node: usize) -> Option<usize> {
        self.mate_edges[node].map(|half| self.half_edge_targets[half])
    }

    /// The outermost blossom that a half leads to.
    pub(super) fn target_blossom(&self, half: HalfEdge) -> usize {
        self.outermost_blossoms[self.half_edge_targets[half]]
    }

    /// How far an edge between two outermost blossoms is from being tight.
    pub(super) fn slack(&self, edge: usize) -> i64 {
        self.current_dual(self.half_edge_targets[2 * edge]) + self.current_dual(self.half_edge_targets[2 * edge + 1])
            - 2 * self.edge_weights[edge]
    }

    /// A node's dual at this moment.
    fn current_dual(&self, node: usize) -> i64 {
        let outermost = &self.blossoms[self.outermost_blossoms[node]];
        self.node_duals[node] + self.dual_change(outermost)
    }

    /// How far the duals of an outermost blossom's nodes have moved since they were written down.
    fn dual_change(&self, outermost: &Blossom) -> i64 {
        match outermost.label {
            BlossomLabel::Free => 0,
            BlossomLabel::Even => outermost.dual_recorded_at - self.elapsed_dual,
            BlossomLabel::Odd => self.elapsed_dual - outermost.dual_recorded_at,
        }
    }

    /// The nodes of a blossom.
    pub(super) fn nodes_in_blossom(&self, blossom: usize) -> Vec<usize> {
        let (mut nodes, mut left) = (Vec::new(), vec![blossom]);
        while let Some(one) = left.pop() {
            match one < self.node_count {
                true => nodes.push(one),
                false => left.extend(&self.blossoms[one].cycle),
            }
        }
        nodes
    }

    /// Writes down the duals of an outermost blossom as they are now, and gives it another label.
    pub(super) fn relabel(&mut self, blossom: usize, label: BlossomLabel, entry: Option<HalfEdge>, tree: usize) {
        let moved = self.dual_change(&self.blossoms[blossom]);
        if moved != 0 {
            for node in self.nodes_in_blossom(blossom) {
                self.node_duals[node] += moved;
            }
        }
        let it = &mut self.blossoms[blossom];
        it.dual -= if blossom < self.node_count { 0 } else { 2 * moved };
        (it.dual_recorded_at, it.label, it.tree_edge, it.tree_root) = (self.elapsed_dual, label, entry, tree);
        if label != BlossomLabel::Free {
            self.tree_members[tree].push(blossom);
        }
        if label == BlossomLabel::Odd && self.node_count <= blossom {
            let runs_out = self.elapsed_dual + self.blossoms[blossom].dual / 2;
            self.schedule_event(runs_out, ForestEvent::OddBlossomDualZero(blossom));
        }
    }

    /// Notes when the edges at these nodes become tight, those that will: between even blossoms, or an even and a free
    /// one.
    pub(super) fn schedule_tight_edges(&mut self, nodes: &[usize]) {
        for &node in nodes {
            let own = self.outermost_blossoms[node];
            for at in self.adjacency_starts[node]..self.adjacency_starts[node + 1] {
                let half = self.adjacency[at];
                let other = self.target_blossom(half);
                let labels = (self.blossoms[own].label, self.blossoms[other].label);
                if own == other {
                    continue;
                }
                let edge = half / 2;
                let (slack, chance) = match labels {
                    (BlossomLabel::Even, BlossomLabel::Even)
                        if self.blossoms[own].tree_root != self.blossoms[other].tree_root =>
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
                self.schedule_event(self.elapsed_dual + slack, chance);
            }
        }
    }

    /// What comes when no root's dual is left would add nothing.
    fn schedule_event(&mut self, at: i64, chance: ForestEvent) {
        if at < self.initial_dual {
            self.event_queue.push(std::cmp::Reverse((at, chance)));
        }
    }

    /// Whether an odd blossom's dual has run out.
    pub(super) fn is_dual_exhausted(&self, blossom: usize) -> bool {
        let it = &self.blossoms[blossom];
        it.parent.is_none() && it.label == BlossomLabel::Odd && it.dual == 2 * (self.elapsed_dual - it.dual_recorded_at)
    }
}
