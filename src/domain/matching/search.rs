//! The search: from moment to moment, whatever becomes possible is done.

use std::cmp::Reverse;

use crate::domain::matching::forest::{Chance, Forest, Half, Label, back};

impl Forest {
    /// Grows trees from all nodes without a partner, and augments where two meet, until no root's dual is left.
    ///
    /// A chance is noted whenever a label changes, for the moment that follows from the labels as they are then; so of what comes up
    /// here, whatever is not so any more is noted elsewhere as it is, and is passed over.
    pub(super) fn match_all(&mut self) {
        let all: Vec<usize> = (0..self.nodes).collect();
        self.look_around(&all);
        while let Some(Reverse((at, chance))) = self.queue.pop() {
            self.now = at;
            match chance {
                Chance::Expand(blossom) if self.has_run_out(blossom) => self.expand(blossom),
                Chance::Expand(_) => {}
                Chance::Tight(edge) => self.use_edge(edge),
            }
        }
    }

    fn use_edge(&mut self, edge: usize) {
        let (here, there) = (self.reached(2 * edge + 1), self.reached(2 * edge));
        if here == there {
            return;
        }
        let labels = (self.blossoms[here].label, self.blossoms[there].label);
        let one_tree = self.blossoms[here].tree == self.blossoms[there].tree;
        let is_tight = |forest: &Self| forest.slack(edge) == 0;
        match labels {
            (Label::Even, Label::Free) if is_tight(self) => self.grow(2 * edge),
            (Label::Free, Label::Even) if is_tight(self) => self.grow(2 * edge + 1),
            (Label::Even, Label::Even) if is_tight(self) && one_tree => self.shrink(2 * edge),
            (Label::Even, Label::Even) if is_tight(self) => self.augment(2 * edge),
            _ => {}
        }
    }

    /// `half` leads from an even blossom to a free one: it and its partner join the tree.
    fn grow(&mut self, half: Half) {
        let tree = self.blossoms[self.reached(back(half))].tree;
        let odd = self.reached(half);
        self.relabel(odd, Label::Odd, Some(half), tree);
        // Whatever is free has a partner.
        if let Some(mate) = self.mates[self.blossoms[odd].base] {
            let even = self.reached(mate);
            self.relabel(even, Label::Even, Some(mate), tree);
            let nodes = self.nodes_of(even);
            self.look_around(&nodes);
        }
    }

    /// The edge of `half` joins two trees: matched and unmatched edges change places on the way from root to root. Both trees are
    /// then dissolved, and the others stand.
    fn augment(&mut self, half: Half) {
        let trees = [half, back(half)].map(|half| self.blossoms[self.reached(half)].tree);
        self.flip(back(half));
        self.flip(half);
        let mut nodes = Vec::new();
        for tree in trees {
            for blossom in std::mem::take(&mut self.trees[tree]) {
                let it = &self.blossoms[blossom];
                if it.parent.is_none() && it.label != Label::Free && it.tree == tree {
                    self.relabel(blossom, Label::Free, None, tree);
                    nodes.extend(self.nodes_of(blossom));
                }
            }
        }
        self.look_around(&nodes);
    }

    /// From the node that `half` leads to up to its root: that node is matched by the other half, and so on.
    fn flip(&mut self, half: Half) {
        let mut half = half;
        loop {
            let even = self.reached(half);
            self.turn(even, self.ends[half]);
            self.mates[self.ends[half]] = Some(back(half));
            let Some(entry) = self.blossoms[even].entry else { return };
            let odd = self.reached(back(entry));
            let Some(above) = self.blossoms[odd].entry else { return };
            self.turn(odd, self.ends[above]);
            self.mates[self.ends[above]] = Some(back(above));
            half = back(above);
        }
    }
}
