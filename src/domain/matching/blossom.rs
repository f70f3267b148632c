//! Odd cycles: made one, turned so that another of their nodes is the one to be matched outside, and taken apart again.

use crate::domain::matching::forest::{Blossom, Forest, Half, Label, back};

impl Forest {
    /// The edge of `half` joins two even blossoms of one tree: the cycle that it closes becomes an even blossom.
    pub(super) fn shrink(&mut self, half: Half) {
        let (down, up) = (self.way_up(self.reached(back(half))), self.way_up(self.reached(half)));
        // Both ways end at the root; the last that they have in common is where the cycle begins.
        let shared = down.iter().rev().zip(up.iter().rev()).take_while(|(a, b)| a == b).count();
        let (down, up) = (&down[..=down.len() - shared], &up[..=up.len() - shared]);
        let first = down[down.len() - 1];
        let cycle: Vec<usize> = down.iter().rev().chain(&up[..up.len() - 1]).copied().collect();
        let entry = |it: &usize| self.blossoms[*it].entry;
        let downwards = down[..down.len() - 1].iter().rev().filter_map(entry);
        let upwards = up[..up.len() - 1].iter().filter_map(entry).map(back);
        let links: Vec<Half> = downwards.chain([half]).chain(upwards).collect();
        let root = Blossom { parent: None, cycle: Vec::new(), links, ..self.blossoms[first].clone() };
        let new = self.unused.pop().unwrap_or(self.blossoms.len());
        let (tree, mut turned_even) = (root.tree, Vec::new());
        for &part in &cycle {
            if self.blossoms[part].label == Label::Odd {
                turned_even.extend(self.nodes_of(part));
            }
            self.relabel(part, Label::Free, None, tree);
            self.blossoms[part].parent = Some(new);
            for node in self.nodes_of(part) {
                self.outermost[node] = new;
            }
        }
        let made = Blossom { cycle, dual: 0, since: self.now, ..root };
        match new < self.blossoms.len() {
            true => self.blossoms[new] = made,
            false => self.blossoms.push(made),
        }
        self.trees[tree].push(new);
        self.look_around(&turned_even);
    }

    /// A blossom and those above it in its tree, up to the root.
    fn way_up(&self, from: usize) -> Vec<usize> {
        let mut way = vec![from];
        let mut at = from;
        while let Some(half) = self.blossoms[at].entry {
            at = self.reached(back(half));
            way.push(at);
        }
        way
    }

    /// Matches the nodes of `blossom` among themselves so that `node` is left for a partner outside.
    pub(super) fn turn(&mut self, blossom: usize, node: usize) {
        let mut left = vec![(blossom, node)];
        while let Some((blossom, node)) = left.pop() {
            if blossom < self.nodes {
                continue;
            }
            let at = self.part_with(blossom, node);
            left.push((self.blossoms[blossom].cycle[at], node));
            // Pairs along the even way to the old beginning.
            let count = self.blossoms[blossom].cycle.len();
            let pairs: Vec<usize> = match at % 2 {
                0 => (0..at).step_by(2).collect(),
                _ => (at + 1..count).step_by(2).collect(),
            };
            for from in pairs {
                let half = self.blossoms[blossom].links[from];
                let (one, next) = (self.blossoms[blossom].cycle[from], self.blossoms[blossom].cycle[(from + 1) % count]);
                let (a, b) = (self.ends[back(half)], self.ends[half]);
                (self.mates[a], self.mates[b]) = (Some(half), Some(back(half)));
                left.extend([(one, a), (next, b)]);
            }
            let it = &mut self.blossoms[blossom];
            it.cycle.rotate_left(at);
            it.links.rotate_left(at);
            it.base = node;
        }
    }

    /// Which part of a cycle holds `node`.
    fn part_with(&self, blossom: usize, node: usize) -> usize {
        let mut part = node;
        while let Some(parent) = self.blossoms[part].parent.filter(|parent| *parent != blossom) {
            part = parent;
        }
        self.blossoms[blossom].cycle.iter().position(|it| *it == part).unwrap_or(0)
    }

    /// Takes an odd blossom apart whose dual has run out. The even way from where the tree enters it to its base stays in the tree;
    /// the others are free.
    pub(super) fn expand(&mut self, blossom: usize) {
        let (tree, entry) = (self.blossoms[blossom].tree, self.blossoms[blossom].entry);
        self.relabel(blossom, Label::Free, None, tree);
        let cycle = std::mem::take(&mut self.blossoms[blossom].cycle);
        let links = std::mem::take(&mut self.blossoms[blossom].links);
        for &part in &cycle {
            let it = &mut self.blossoms[part];
            (it.parent, it.label, it.since) = (None, Label::Free, self.now);
            for node in self.nodes_of(part) {
                self.outermost[node] = part;
            }
        }
        self.unused.push(blossom);
        let mut next = entry;
        let mut at = entry.and_then(|half| cycle.iter().position(|&part| part == self.reached(half))).unwrap_or(0);
        let backwards = at % 2 == 0;
        let mut label = Label::Odd;
        loop {
            self.relabel(cycle[at], label, next, tree);
            if at == 0 {
                break;
            }
            next = Some(if backwards { back(links[at - 1]) } else { links[at] });
            at = if backwards { at - 1 } else { (at + 1) % cycle.len() };
            label = if label == Label::Odd { Label::Even } else { Label::Odd };
        }
        for part in cycle.into_iter().filter(|&part| self.blossoms[part].label != Label::Odd).collect::<Vec<_>>() {
            let nodes = self.nodes_of(part);
            self.look_around(&nodes);
        }
    }
}
