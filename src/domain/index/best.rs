//! The best few, ties by id, admitted only when they would be among them.

use std::cmp::Ordering;

/// A row with its exact score.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scored {
    pub(super) score: f64,
    /// The id's first four bytes.
    pub(super) id: u32,
    pub(super) slot: u32,
}

/// Keeps the `most` best of what is offered. Offers wait in a buffer, because admitting a row means reading its entry.
#[derive(Debug, Default)]
pub(super) struct Best {
    most: usize,
    admitted: Vec<Scored>,
    waiting: Vec<Scored>,
    spare: Vec<Scored>,
}

/// Offers that wait before they are looked through, at least.
const WAITING_MIN: usize = 64;

impl Best {
    /// Forgets everything; `most` is at least 1.
    pub(super) fn begin(&mut self, most: usize) {
        self.most = most;
        self.admitted.clear();
        self.waiting.clear();
    }

    /// The worst of the best, once there are enough.
    pub(super) fn worst(&self) -> Option<&Scored> {
        self.admitted.get(self.most - 1)
    }

    /// Whether offers should be looked through now.
    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() >= self.most.max(WAITING_MIN)
    }

    /// Whether there are enough offers to fill the best, were they all admitted.
    pub(super) fn could_fill(&self) -> bool {
        self.worst().is_none() && self.most <= self.admitted.len() + self.waiting.len()
    }

    /// Offers a row; ignored when it is surely worse than the worst.
    pub(super) fn offer(&mut self, row: Scored) {
        let worse = self.worst().is_some_and(|worst| match row.score.total_cmp(&worst.score) {
            Ordering::Less => false,
            Ordering::Equal => worst.id < row.id,
            Ordering::Greater => true,
        });
        if !worse {
            self.waiting.push(row);
        }
    }

    /// The offers not yet looked through.
    pub(super) fn waiting(&self) -> &[Scored] {
        &self.waiting
    }

    /// Merges the offers in: best first, admitting each until there are enough.
    pub(super) fn settle(&mut self, order: impl Fn(&Scored, &Scored) -> Ordering, mut admit: impl FnMut(u32) -> bool) {
        self.waiting.sort_unstable_by(&order);
        self.spare.clear();
        let (mut admitted, mut waiting) = (self.admitted.iter().peekable(), self.waiting.iter().peekable());
        while self.spare.len() < self.most {
            let take_waiting = match (admitted.peek(), waiting.peek()) {
                (None, None) => break,
                (Some(_), None) => false,
                (None, Some(_)) => true,
                (Some(one), Some(other)) => order(other, one) == Ordering::Less,
            };
            let next = if take_waiting { waiting.next() } else { admitted.next() };
            self.spare.extend(next.filter(|row| !take_waiting || admit(row.slot)));
        }
        std::mem::swap(&mut self.admitted, &mut self.spare);
        self.waiting.clear();
    }

    /// The best, best first.
    pub(super) fn rows(&self) -> &[Scored] {
        &self.admitted
    }
}
