//! What a search for a matching keeps: the graph, who is matched, blossoms within blossoms, trees of them, and duals.

/// One end of an edge: edge `e` has the halves `2 e` and `2 e + 1`, and each leads to one of its nodes.
pub(super) type Half = usize;

/// The other half of the same edge.
pub(super) fn back(half: Half) -> Half {
    half ^ 1
}

/// Where an outermost blossom stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Label {
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
    pub(super) links: Vec<Half>,
    /// The one node that is not matched within it.
    pub(super) base: usize,
    /// Its dual; 0 for a node, whose dual is in `Forest::duals`.
    pub(super) dual: i64,
    /// For outermost ones.
    pub(super) label: Label,
    /// The half that leads to it from its parent in the tree; none for a root.
    pub(super) entry: Option<Half>,
    /// The root of its tree, while it is labelled.
    pub(super) tree: usize,
    /// Its duals are those of this moment; since then they have moved as its label says.
    pub(super) since: i64,
}

/// What may become possible at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Chance {
    /// The dual of an odd blossom runs out.
    Expand(usize),
    /// An edge becomes tight.
    Tight(usize),
}

/// Everything. Duals are kept doubled, as weights are in `slack`, so that halving a slack between two even blossoms is exact:
/// all duals in trees are alike modulo 2, because the roots' are and tight edges pass it on.
pub(super) struct Forest {
    pub(super) nodes: usize,
    /// Where each half leads.
    pub(super) ends: Vec<usize>,
    weights: Vec<i64>,
    /// The halves that lead away from each node: the range of `away` that is its own.
    starts: Vec<usize>,
    away: Vec<Half>,
    /// The half that leads to each node's partner.
    pub(super) mates: Vec<Option<Half>>,
    pub(super) duals: Vec<i64>,
    /// The outermost blossom of each node.
    pub(super) outermost: Vec<usize>,
    /// Nodes first, then cycles; places of cycles are used again.
    pub(super) blossoms: Vec<Blossom>,
    pub(super) unused: Vec<usize>,
    /// What has been in the tree of each root; some of it may have left.
    pub(super) trees: Vec<Vec<usize>>,
    /// How far the roots' duals have come down.
    pub(super) now: i64,
    /// Where they began: the heaviest weight.
    pub(super) end: i64,
    pub(super) queue: std::collections::BinaryHeap<std::cmp::Reverse<(i64, Chance)>>,
}

impl Forest {
    pub(super) fn new(nodes: usize, edges: impl Iterator<Item = (usize, usize, i64)>) -> Self {
        let (mut ends, mut weights) = (Vec::new(), Vec::new());
        for (a, b, weight) in edges {
            ends.extend([b, a]);
            weights.push(weight);
        }
        let mut starts = vec![0; nodes + 1];
        for half in 0..ends.len() {
            starts[ends[back(half)] + 1] += 1;
        }
        for node in 0..nodes {
            starts[node + 1] += starts[node];
        }
        let (mut next, mut away) = (starts.clone(), vec![0; ends.len()]);
        for half in 0..ends.len() {
            let from = ends[back(half)];
            away[next[from]] = half;
            next[from] += 1;
        }
        let end = weights.iter().copied().max().unwrap_or(0);
        let root = |node| Blossom {
            parent: None,
            cycle: Vec::new(),
            links: Vec::new(),
            base: node,
            dual: 0,
            label: Label::Even,
            entry: None,
            tree: node,
            since: 0,
        };
        Self {
            nodes,
            ends,
            weights,
            starts,
            away,
            mates: vec![None; nodes],
            duals: vec![end; nodes],
            outermost: (0..nodes).collect(),
            blossoms: (0..nodes).map(root).collect(),
            unused: Vec::new(),
            trees: (0..nodes).map(|node| vec![node]).collect(),
            now: 0,
            end,
            queue: std::collections::BinaryHeap::new(),
        }
    }

    /// A node's partner.
    pub(super) fn partner(&self, node: usize) -> Option<usize> {
        self.mates[node].map(|half| self.ends[half])
    }

    /// The outermost blossom that a half leads to.
    pub(super) fn reached(&self, half: Half) -> usize {
        self.outermost[self.ends[half]]
    }

    /// How far an edge between two outermost blossoms is from being tight.
    pub(super) fn slack(&self, edge: usize) -> i64 {
        self.dual(self.ends[2 * edge]) + self.dual(self.ends[2 * edge + 1]) - 2 * self.weights[edge]
    }

    /// A node's dual at this moment.
    fn dual(&self, node: usize) -> i64 {
        let outermost = &self.blossoms[self.outermost[node]];
        self.duals[node] + self.moved(outermost)
    }

    /// How far the duals of an outermost blossom's nodes have moved since they were written down.
    fn moved(&self, outermost: &Blossom) -> i64 {
        match outermost.label {
            Label::Free => 0,
            Label::Even => outermost.since - self.now,
            Label::Odd => self.now - outermost.since,
        }
    }

    /// The nodes of a blossom.
    pub(super) fn nodes_of(&self, blossom: usize) -> Vec<usize> {
        let (mut nodes, mut left) = (Vec::new(), vec![blossom]);
        while let Some(one) = left.pop() {
            match one < self.nodes {
                true => nodes.push(one),
                false => left.extend(&self.blossoms[one].cycle),
            }
        }
        nodes
    }

    /// Writes down the duals of an outermost blossom as they are now, and gives it another label.
    pub(super) fn relabel(&mut self, blossom: usize, label: Label, entry: Option<Half>, tree: usize) {
        let moved = self.moved(&self.blossoms[blossom]);
        if moved != 0 {
            for node in self.nodes_of(blossom) {
                self.duals[node] += moved;
            }
        }
        let it = &mut self.blossoms[blossom];
        it.dual -= if blossom < self.nodes { 0 } else { 2 * moved };
        (it.since, it.label, it.entry, it.tree) = (self.now, label, entry, tree);
        if label != Label::Free {
            self.trees[tree].push(blossom);
        }
        if label == Label::Odd && self.nodes <= blossom {
            let runs_out = self.now + self.blossoms[blossom].dual / 2;
            self.note(runs_out, Chance::Expand(blossom));
        }
    }

    /// Notes when the edges at these nodes become tight, those that will: between even blossoms, or an even and a free one.
    pub(super) fn look_around(&mut self, nodes: &[usize]) {
        for &node in nodes {
            let own = self.outermost[node];
            for at in self.starts[node]..self.starts[node + 1] {
                let half = self.away[at];
                let other = self.reached(half);
                let labels = (self.blossoms[own].label, self.blossoms[other].label);
                if own == other {
                    continue;
                }
                let slack = match labels {
                    (Label::Even, Label::Even) => self.slack(half / 2) / 2,
                    (Label::Even, Label::Free) | (Label::Free, Label::Even) => self.slack(half / 2),
                    _ => continue,
                };
                self.note(self.now + slack, Chance::Tight(half / 2));
            }
        }
    }

    /// What comes when no root's dual is left would add nothing.
    fn note(&mut self, at: i64, chance: Chance) {
        if at < self.end {
            self.queue.push(std::cmp::Reverse((at, chance)));
        }
    }

    /// Whether an odd blossom's dual has run out.
    pub(super) fn has_run_out(&self, blossom: usize) -> bool {
        let it = &self.blossoms[blossom];
        it.parent.is_none() && it.label == Label::Odd && it.dual == 2 * (self.now - it.since)
    }
}
