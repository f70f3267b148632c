//! The search: from moment to moment, whatever becomes possible is done.

use std::cmp::Reverse;

use crate::matching::alternating_forest::{AlternatingForest, BlossomLabel, ForestEvent, HalfEdge, opposite_half_edge};

impl AlternatingForest {
    /// Grows trees from all nodes without a partner, and augments where two meet, until no root's dual is left.
    ///
    /// A chance is noted whenever a label changes, for the moment that follows from the labels as they are then; so of
    /// what comes up here, whatever is not so any more is noted elsewhere as it is, and is passed over.
    pub(super) fn find_maximum_matching(&mut self) {
        let all: Vec<usize> = (0..self.node_count).collect();
        self.schedule_tight_edges(&all);
        while let Some(Reverse((at, chance))) = self.event_queue.pop() {
            self.elapsed_dual = at;
            match chance {
                ForestEvent::OddBlossomDualZero(blossom) if self.is_dual_exhausted(blossom) => {
                    self.expand_blossom(blossom)
                }
                ForestEvent::OddBlossomDualZero(_) => {}
                ForestEvent::CrossTreeEdgeTight(edge) | ForestEvent::TreeEdgeTight(edge) => {
                    self.process_tight_edge(edge)
                }
            }
        }
    }

    fn process_tight_edge(&mut self, edge: usize) {
        let (here, there) = (self.target_blossom(2 * edge + 1), self.target_blossom(2 * edge));
        if here == there {
            return;
        }
        let labels = (self.blossoms[here].label, self.blossoms[there].label);
        let one_tree = self.blossoms[here].tree_root == self.blossoms[there].tree_root;
        let is_tight = |forest: &Self| forest.slack(edge) == 0;
        match labels {
            (BlossomLabel::Even, BlossomLabel::Free) if is_tight(self) => self.grow_tree(2 * edge),
            (BlossomLabel::Free, BlossomLabel::Even) if is_tight(self) => self.grow_tree(2 * edge + 1),
            (BlossomLabel::Even, BlossomLabel::Even) if is_tight(self) && one_tree => self.shrink_cycle(2 * edge),
            (BlossomLabel::Even, BlossomLabel::Even) if is_tight(self) => self.augment_between_trees(2 * edge),
            _ => {}
        }
    }

    /// `half` leads from an even blossom to a free one: it and its partner join the tree.
    fn grow_tree(&mut self, half: HalfEdge) {
        let tree = self.blossoms[self.target_blossom(opposite_half_edge(half))].tree_root;
        let odd = self.target_blossom(half);
        self.relabel(odd, BlossomLabel::Odd, Some(half), tree);
        // Whatever is free has a partner.
        if let Some(mate) = self.mate_edges[self.blossoms[odd].base] {
            let even = self.target_blossom(mate);
            self.relabel(even, BlossomLabel::Even, Some(mate), tree);
            let nodes = self.nodes_in_blossom(even);
            self.schedule_tight_edges(&nodes);
        }
    }

    /// The edge of `half` joins two trees: matched and unmatched edges change places on the way from root to root. Both
    /// trees are then dissolved, and the others stand.
    fn augment_between_trees(&mut self, half: HalfEdge) {
        let trees = [half, opposite_half_edge(half)].map(|half| self.blossoms[self.target_blossom(half)].tree_root);
        self.flip_path_to_root(opposite_half_edge(half));
        self.flip_path_to_root(half);
        let mut nodes = Vec::new();
        for tree in trees {
            for blossom in std::mem::take(&mut self.tree_members[tree]) {
                let it = &self.blossoms[blossom];
                if it.parent.is_none() && it.label != BlossomLabel::Free && it.tree_root == tree {
                    self.relabel(blossom, BlossomLabel::Free, None, tree);
                    nodes.extend(self.nodes_in_blossom(blossom));
                }
            }
        }
        self.schedule_tight_edges(&nodes);
    }

    /// From the node that `half` leads to up to its root: that node is matched by the other half, and so on.
    fn flip_path_to_root(&mut self, half: HalfEdge) {
        let mut half = half;
        loop {
            let even = self.target_blossom(half);
            self.set_base(even, self.half_edge_targets[half]);
            self.mate_edges[self.half_edge_targets[half]] = Some(opposite_half_edge(half));
            let Some(entry) = self.blossoms[even].tree_edge else { return };
            let odd = self.target_blossom(opposite_half_edge(entry));
            let Some(above) = self.blossoms[odd].tree_edge else { return };
            self.set_base(odd, self.half_edge_targets[above]);
            self.mate_edges[self.half_edge_targets[above]] = Some(opposite_half_edge(above));
            half = opposite_half_edge(above);
        }
    }
}
