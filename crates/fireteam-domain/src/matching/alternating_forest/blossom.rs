//! Blossoms, that is odd cycles: shrinking a cycle into one node, changing its base, and expanding it again.

use crate::matching::alternating_forest::{AlternatingForest, Blossom, BlossomLabel, HalfEdge, opposite_half_edge};

impl AlternatingForest {
    /// Shrinks the cycle that the edge of `half_edge` closes between two even blossoms of one tree. The result is an
    /// even blossom.
    pub(super) fn shrink_cycle(&mut self, half_edge: HalfEdge) {
        let (down, up) = (
            self.path_to_root(self.target_blossom(opposite_half_edge(half_edge))),
            self.path_to_root(self.target_blossom(half_edge)),
        );
        // Both paths end at the root. The last common blossom is the start of the cycle.
        let shared = down.iter().rev().zip(up.iter().rev()).take_while(|(a, b)| a == b).count();
        let (down, up) = (&down[..=down.len() - shared], &up[..=up.len() - shared]);
        let first = down[down.len() - 1];
        let cycle: Vec<usize> = down.iter().rev().chain(&up[..up.len() - 1]).copied().collect();
        let tree_edge = |blossom: &usize| self.blossoms[*blossom].tree_edge;
        let downwards = down[..down.len() - 1].iter().rev().filter_map(tree_edge);
        let upwards = up[..up.len() - 1].iter().filter_map(tree_edge).map(opposite_half_edge);
        let cycle_edges: Vec<HalfEdge> = downwards.chain([half_edge]).chain(upwards).collect();
        let root = Blossom { parent: None, cycle: Vec::new(), cycle_edges, ..self.blossoms[first].clone() };
        let slot = self.unused_slots.pop().unwrap_or(self.blossoms.len());
        let (tree, mut newly_even) = (root.tree_root, Vec::new());
        for &part in &cycle {
            if self.blossoms[part].label == BlossomLabel::Odd {
                newly_even.extend(self.nodes_in_blossom(part));
            }
            self.relabel(part, BlossomLabel::Free, None, tree);
            self.blossoms[part].parent = Some(slot);
            for node in self.nodes_in_blossom(part) {
                self.outermost_blossoms[node] = slot;
            }
        }
        let shrunk = Blossom { cycle, dual: 0, dual_recorded_at: self.elapsed_dual, ..root };
        if slot < self.blossoms.len() {
            self.blossoms[slot] = shrunk;
        } else {
            self.blossoms.push(shrunk);
        }
        self.tree_members[tree].push(slot);
        self.schedule_tight_edges(&newly_even);
    }

    /// The blossom and its ancestors in the tree, up to the root.
    fn path_to_root(&self, blossom: usize) -> Vec<usize> {
        let mut path = vec![blossom];
        let mut current = blossom;
        while let Some(half_edge) = self.blossoms[current].tree_edge {
            current = self.target_blossom(opposite_half_edge(half_edge));
            path.push(current);
        }
        path
    }

    /// Rematches the nodes within `blossom`, so that `node` is free for a partner outside.
    pub(super) fn rematch_to_base(&mut self, blossom: usize, node: usize) {
        let mut stack = vec![(blossom, node)];
        while let Some((blossom, node)) = stack.pop() {
            if blossom < self.node_count {
                continue;
            }
            let index = self.cycle_index_of(blossom, node);
            stack.push((self.blossoms[blossom].cycle[index], node));
            // Matches pairs along the even path to the old base.
            let count = self.blossoms[blossom].cycle.len();
            let pairs: Vec<usize> = match index % 2 {
                0 => (0..index).step_by(2).collect(),
                _ => (index + 1..count).step_by(2).collect(),
            };
            for from in pairs {
                let half_edge = self.blossoms[blossom].cycle_edges[from];
                let (part, next_part) =
                    (self.blossoms[blossom].cycle[from], self.blossoms[blossom].cycle[(from + 1) % count]);
                let (a, b) = (self.half_edge_targets[opposite_half_edge(half_edge)], self.half_edge_targets[half_edge]);
                (self.mate_edges[a], self.mate_edges[b]) = (Some(half_edge), Some(opposite_half_edge(half_edge)));
                stack.extend([(part, a), (next_part, b)]);
            }
            let cycle = &mut self.blossoms[blossom];
            cycle.cycle.rotate_left(index);
            cycle.cycle_edges.rotate_left(index);
            cycle.base = node;
        }
    }

    /// Index in the cycle of the part that contains `node`.
    fn cycle_index_of(&self, blossom: usize, node: usize) -> usize {
        let mut part = node;
        while let Some(parent) = self.blossoms[part].parent.filter(|parent| *parent != blossom) {
            part = parent;
        }
        self.blossoms[blossom].cycle.iter().position(|member| *member == part).unwrap_or(0)
    }

    /// Expands an odd blossom whose dual is 0. The even path from its tree edge to its base stays in the tree; the
    /// other parts become free.
    pub(super) fn expand_blossom(&mut self, blossom: usize) {
        let (tree, tree_edge) = (self.blossoms[blossom].tree_root, self.blossoms[blossom].tree_edge);
        self.relabel(blossom, BlossomLabel::Free, None, tree);
        let cycle = std::mem::take(&mut self.blossoms[blossom].cycle);
        let cycle_edges = std::mem::take(&mut self.blossoms[blossom].cycle_edges);
        for &part in &cycle {
            let outermost = &mut self.blossoms[part];
            (outermost.parent, outermost.label, outermost.dual_recorded_at) =
                (None, BlossomLabel::Free, self.elapsed_dual);
            for node in self.nodes_in_blossom(part) {
                self.outermost_blossoms[node] = part;
            }
        }
        self.unused_slots.push(blossom);
        let mut next_edge = tree_edge;
        let mut index = tree_edge
            .and_then(|half_edge| cycle.iter().position(|&part| part == self.target_blossom(half_edge)))
            .unwrap_or(0);
        let backwards = index % 2 == 0;
        let mut label = BlossomLabel::Odd;
        loop {
            self.relabel(cycle[index], label, next_edge, tree);
            if index == 0 {
                break;
            }
            next_edge = Some(if backwards { opposite_half_edge(cycle_edges[index - 1]) } else { cycle_edges[index] });
            index = if backwards { index - 1 } else { (index + 1) % cycle.len() };
            label = if label == BlossomLabel::Odd { BlossomLabel::Even } else { BlossomLabel::Odd };
        }
        for part in cycle.into_iter().filter(|&part| self.blossoms[part].label != BlossomLabel::Odd).collect::<Vec<_>>()
        {
            let nodes = self.nodes_in_blossom(part);
            self.schedule_tight_edges(&nodes);
        }
    }
}
