//! Odd cycles: made one, turned so that another of their nodes is the one to be matched outside, and taken apart again.

use crate::matching::alternating_forest::{AlternatingForest, Blossom, BlossomLabel, HalfEdge, opposite_half_edge};

impl AlternatingForest {
    /// The edge of `half` joins two even blossoms of one tree: the cycle that it closes becomes an even blossom.
    pub(super) fn shrink_cycle(&mut self, half: HalfEdge) {
        let (down, up) = (
            self.path_to_root(self.target_blossom(opposite_half_edge(half))),
            self.path_to_root(self.target_blossom(half)),
        );
        // Both ways end at the root; the last that they have in common is where the cycle begins.
        let shared = down.iter().rev().zip(up.iter().rev()).take_while(|(a, b)| a == b).count();
        let (down, up) = (&down[..=down.len() - shared], &up[..=up.len() - shared]);
        let first = down[down.len() - 1];
        let cycle: Vec<usize> = down.iter().rev().chain(&up[..up.len() - 1]).copied().collect();
        let entry = |it: &usize| self.blossoms[*it].tree_edge;
        let downwards = down[..down.len() - 1].iter().rev().filter_map(entry);
        let upwards = up[..up.len() - 1].iter().filter_map(entry).map(opposite_half_edge);
        let links: Vec<HalfEdge> = downwards.chain([half]).chain(upwards).collect();
        let root = Blossom { parent: None, cycle: Vec::new(), cycle_edges: links, ..self.blossoms[first].clone() };
        let new = self.unused_slots.pop().unwrap_or(self.blossoms.len());
        let (tree, mut turned_even) = (root.tree_root, Vec::new());
        for &part in &cycle {
            if self.blossoms[part].label == BlossomLabel::Odd {
                turned_even.extend(self.nodes_in_blossom(part));
            }
            self.relabel(part, BlossomLabel::Free, None, tree);
            self.blossoms[part].parent = Some(new);
            for node in self.nodes_in_blossom(part) {
                self.outermost_blossoms[node] = new;
            }
        }
        let made = Blossom { cycle, dual: 0, dual_recorded_at: self.elapsed_dual, ..root };
        match new < self.blossoms.len() {
            true => self.blossoms[new] = made,
            false => self.blossoms.push(made),
        }
        self.tree_members[tree].push(new);
        self.schedule_tight_edges(&turned_even);
    }

    /// A blossom and those above it in its tree, up to the root.
    fn path_to_root(&self, from: usize) -> Vec<usize> {
        let mut way = vec![from];
        let mut at = from;
        while let Some(half) = self.blossoms[at].tree_edge {
            at = self.target_blossom(opposite_half_edge(half));
            way.push(at);
        }
        way
    }

    /// Matches the nodes of `blossom` among themselves so that `node` is left for a partner outside.
    pub(super) fn set_base(&mut self, blossom: usize, node: usize) {
        let mut left = vec![(blossom, node)];
        while let Some((blossom, node)) = left.pop() {
            if blossom < self.node_count {
                continue;
            }
            let at = self.cycle_index_of(blossom, node);
            left.push((self.blossoms[blossom].cycle[at], node));
            // Pairs along the even way to the old beginning.
            let count = self.blossoms[blossom].cycle.len();
            let pairs: Vec<usize> = match at % 2 {
                0 => (0..at).step_by(2).collect(),
                _ => (at + 1..count).step_by(2).collect(),
            };
            for from in pairs {
                let half = self.blossoms[blossom].cycle_edges[from];
                let (one, next) =
                    (self.blossoms[blossom].cycle[from], self.blossoms[blossom].cycle[(from + 1) % count]);
                let (a, b) = (self.half_edge_targets[opposite_half_edge(half)], self.half_edge_targets[half]);
                (self.mate_edges[a], self.mate_edges[b]) = (Some(half), Some(opposite_half_edge(half)));
                left.extend([(one, a), (next, b)]);
            }
            let it = &mut self.blossoms[blossom];
            it.cycle.rotate_left(at);
            it.cycle_edges.rotate_left(at);
            it.base = node;
        }
    }

    /// Which part of a cycle holds `node`.
    fn cycle_index_of(&self, blossom: usize, node: usize) -> usize {
        let mut part = node;
        while let Some(parent) = self.blossoms[part].parent.filter(|parent| *parent != blossom) {
            part = parent;
        }
        self.blossoms[blossom].cycle.iter().position(|it| *it == part).unwrap_or(0)
    }

    /// Takes an odd blossom apart whose dual has run out. The even way from where the tree enters it to its base stays
    /// in the tree; the others are free.
    pub(super) fn expand_blossom(&mut self, blossom: usize) {
        let (tree, entry) = (self.blossoms[blossom].tree_root, self.blossoms[blossom].tree_edge);
        self.relabel(blossom, BlossomLabel::Free, None, tree);
        let cycle = std::mem::take(&mut self.blossoms[blossom].cycle);
        let links = std::mem::take(&mut self.blossoms[blossom].cycle_edges);
        for &part in &cycle {
            let it = &mut self.blossoms[part];
            (it.parent, it.label, it.dual_recorded_at) = (None, BlossomLabel::Free, self.elapsed_dual);
            for node in self.nodes_in_blossom(part) {
                self.outermost_blossoms[node] = part;
            }
        }
        self.unused_slots.push(blossom);
        let mut next = entry;
        let mut at =
            entry.and_then(|half| cycle.iter().position(|&part| part == self.target_blossom(half))).unwrap_or(0);
        let backwards = at % 2 == 0;
        let mut label = BlossomLabel::Odd;
        loop {
            self.relabel(cycle[at], label, next, tree);
            if at == 0 {
                break;
            }
            next = Some(if backwards { opposite_half_edge(links[at - 1]) } else { links[at] });
            at = if backwards { at - 1 } else { (at + 1) % cycle.len() };
            label = if label == BlossomLabel::Odd { BlossomLabel::Even } else { BlossomLabel::Odd };
        }
        for part in cycle.into_iter().filter(|&part| self.blossoms[part].label != BlossomLabel::Odd).collect::<Vec<_>>()
        {
            let nodes = self.nodes_in_blossom(part);
            self.schedule_tight_edges(&nodes);
        }
    }
}
