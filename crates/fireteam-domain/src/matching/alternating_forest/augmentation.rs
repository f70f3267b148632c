//! Main loop of the matching search: handles events in the order of the dual value.

use std::cmp::Reverse;

use crate::matching::alternating_forest::{AlternatingForest, BlossomLabel, ForestEvent, HalfEdge, opposite_half_edge};

impl AlternatingForest {
    /// Grows trees from all unmatched nodes, and augments where two trees meet, until the roots' duals reach 0.
    ///
    /// Each change of a label schedules the events that follow from it. An event that no longer holds was scheduled
    /// again with its new value and is skipped here.
    pub(in crate::matching) fn find_maximum_weight_matching(&mut self) {
        let all_nodes: Vec<usize> = (0..self.node_count).collect();
        self.schedule_tight_edges(&all_nodes);
        while let Some(Reverse((elapsed, event))) = self.event_queue.pop() {
            self.elapsed_dual = elapsed;
            match event {
                ForestEvent::OddBlossomDualZero(blossom) if self.is_odd_blossom_dual_zero(blossom) => {
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
        let (first, second) = (self.target_blossom(2 * edge + 1), self.target_blossom(2 * edge));
        if first == second {
            return;
        }
        let labels = (self.blossoms[first].label, self.blossoms[second].label);
        let same_tree = self.blossoms[first].tree_root == self.blossoms[second].tree_root;
        let is_tight = |forest: &Self| forest.slack(edge) == 0;
        match labels {
            (BlossomLabel::Even, BlossomLabel::Free) if is_tight(self) => self.grow_tree(2 * edge),
            (BlossomLabel::Free, BlossomLabel::Even) if is_tight(self) => self.grow_tree(2 * edge + 1),
            (BlossomLabel::Even, BlossomLabel::Even) if is_tight(self) && same_tree => self.shrink_cycle(2 * edge),
            (BlossomLabel::Even, BlossomLabel::Even) if is_tight(self) => self.augment_between_trees(2 * edge),
            _ => {}
        }
    }

    /// Adds a free blossom, to which `half_edge` leads from an even one, and its partner to the tree.
    fn grow_tree(&mut self, half_edge: HalfEdge) {
        let tree = self.blossoms[self.target_blossom(opposite_half_edge(half_edge))].tree_root;
        let odd = self.target_blossom(half_edge);
        self.relabel(odd, BlossomLabel::Odd, Some(half_edge), tree);
        // A free blossom has a partner.
        if let Some(mate) = self.mate_edges[self.blossoms[odd].base] {
            let even = self.target_blossom(mate);
            self.relabel(even, BlossomLabel::Even, Some(mate), tree);
            let nodes = self.nodes_in_blossom(even);
            self.schedule_tight_edges(&nodes);
        }
    }

    /// Augments along the edge of `half_edge` between two trees: matched and unmatched edges swap on the path from root
    /// to root. Both trees are dissolved; the others stay.
    fn augment_between_trees(&mut self, half_edge: HalfEdge) {
        let trees = [half_edge, opposite_half_edge(half_edge)]
            .map(|half_edge| self.blossoms[self.target_blossom(half_edge)].tree_root);
        self.flip_path_to_root(opposite_half_edge(half_edge));
        self.flip_path_to_root(half_edge);
        let mut nodes = Vec::new();
        for tree in trees {
            for blossom in std::mem::take(&mut self.tree_members[tree]) {
                let member = &self.blossoms[blossom];
                if member.parent.is_none() && member.label != BlossomLabel::Free && member.tree_root == tree {
                    self.relabel(blossom, BlossomLabel::Free, None, tree);
                    nodes.extend(self.nodes_in_blossom(blossom));
                }
            }
        }
        self.schedule_tight_edges(&nodes);
    }

    /// Swaps matched and unmatched edges from the target of `half_edge` up to its root.
    fn flip_path_to_root(&mut self, half_edge: HalfEdge) {
        let mut half_edge = half_edge;
        loop {
            let even = self.target_blossom(half_edge);
            self.rematch_to_base(even, self.half_edge_targets[half_edge]);
            self.mate_edges[self.half_edge_targets[half_edge]] = Some(opposite_half_edge(half_edge));
            let Some(even_edge) = self.blossoms[even].tree_edge else { return };
            let odd = self.target_blossom(opposite_half_edge(even_edge));
            let Some(odd_edge) = self.blossoms[odd].tree_edge else { return };
            self.rematch_to_base(odd, self.half_edge_targets[odd_edge]);
            self.mate_edges[self.half_edge_targets[odd_edge]] = Some(opposite_half_edge(odd_edge));
            half_edge = opposite_half_edge(odd_edge);
        }
    }
}
