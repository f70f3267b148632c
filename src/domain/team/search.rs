//! Parties into teams one after the other: the first way down is greedy, and where all ways are wanted, those that cannot be better
//! than what is known are cut off.
//!
//! Greedy (S4-13): large parties first, for they are hardest to seat, then by rating downwards; each into the team whose total is
//! lowest, the later of two that are level; a full team closes. Where that leads nowhere the search turns back.
//!
//! Nothing is cut off for being unlikely (B-23): only where a bound says that no way on from here leads to a smaller gap. Teams of
//! one size that are still empty are interchangeable, and the first party in one of them stands for all (B-19).

use crate::domain::team::board::{Board, Team};
use crate::domain::team::bound::Rest;
use crate::domain::team::improve::improve;

/// Parties that may be seated on the way to one split. Two teams of ten players who come alone take some 350,000 when nothing is
/// cut off: all that a ruleset may ask to be exact is within it.
const SEATED_MAX: u32 = 500_000;

/// The same where the first split will do: one way down and what it takes to turn back from where parties, roles or those who are to
/// stay apart do not let it end.
const SEATED_FOR_ONE_MAX: u32 = 20_000;

/// What a search has found.
pub(super) struct Found {
    pub(super) teams: Vec<Team>,
    /// Nothing is better.
    pub(super) exact: bool,
}

/// The best split where `exhaustive`, as far as the bound on work lets it be found; otherwise a good one.
pub(super) fn search(board: &Board<'_>, exhaustive: bool) -> Option<Found> {
    let mut search = Search::new(board, exhaustive);
    search.seat(0, &mut board.empty());
    let exact = search.is_perfect() || exhaustive && search.seated < search.seated_max();
    let mut teams = search.best?;
    if !exact {
        improve(board, &mut teams);
    }
    Some(Found { teams, exact })
}

/// The first way down, as it is.
#[cfg(test)]
pub(super) fn greedy(board: &Board<'_>) -> Option<Vec<Team>> {
    let mut search = Search::new(board, false);
    search.seat(0, &mut board.empty());
    search.best
}

struct Search<'a> {
    board: &'a Board<'a>,
    /// Who is seated when.
    order: Vec<usize>,
    /// What is known about those who are still to be seated; `None` where the first split will do.
    rest: Option<Rest>,
    best: Option<Vec<Team>>,
    gap: f64,
    seated: u32,
}

impl<'a> Search<'a> {
    fn new(board: &'a Board<'a>, exhaustive: bool) -> Self {
        let mut order: Vec<usize> = (0..board.parties.len()).collect();
        let mean = |party: usize| board.sums[party] / board.size(party) as f64;
        order.sort_by(|&a, &b| board.size(b).cmp(&board.size(a)).then(mean(b).total_cmp(&mean(a))).then(a.cmp(&b)));
        let rest = exhaustive.then(|| Rest::new(board, &order));
        Self { board, order, rest, best: None, gap: f64::INFINITY, seated: 0 }
    }

    /// Seats whoever is `depth`th in order, and all after them, in every way that could be better.
    fn seat(&mut self, depth: usize, teams: &mut [Team]) {
        let Some(&party) = self.order.get(depth) else {
            return self.keep(teams);
        };
        for at in self.preferred(teams, party) {
            if self.is_done() {
                return;
            }
            self.seated += 1;
            let before = teams[at].sum;
            teams[at].members.push(party);
            teams[at].open -= self.board.size(party);
            teams[at].sum = before + self.board.sums[party];
            if self.may_be_better(depth + 1, teams) {
                self.seat(depth + 1, teams);
            }
            teams[at].members.pop();
            teams[at].open += self.board.size(party);
            teams[at].sum = before;
        }
    }

    /// The teams that `party` could join, the one that greedy would choose first.
    fn preferred(&self, teams: &[Team], party: usize) -> Vec<usize> {
        let sizes = &self.board.spec.sizes;
        let is_first_empty = |at: usize| {
            let later = at + 1..teams.len();
            !teams[at].members.is_empty()
                || !later.into_iter().any(|other| teams[other].members.is_empty() && sizes[other] == sizes[at])
        };
        let fits = (0..teams.len()).filter(|&at| is_first_empty(at) && self.board.fits(&teams[at], party));
        let mut fits: Vec<usize> = fits.collect();
        let total = |at: usize| self.board.measure(at, teams[at].sum);
        fits.sort_by(|&a, &b| total(a).total_cmp(&total(b)).then(b.cmp(&a)));
        fits
    }

    fn may_be_better(&self, depth: usize, teams: &[Team]) -> bool {
        self.rest.as_ref().is_none_or(|rest| rest.least_gap(self.board, depth, teams) - self.board.slack < self.gap)
    }

    /// All are seated. The first split is made as good as it can be at once: the better what is known, the more is cut off.
    fn keep(&mut self, teams: &[Team]) {
        let mut teams = teams.to_vec();
        if self.best.is_none() && self.rest.is_some() {
            improve(self.board, &mut teams);
        }
        let gap = self.board.gap(&teams);
        if gap < self.gap {
            (self.gap, self.best) = (gap, Some(teams));
        }
    }

    fn is_done(&self) -> bool {
        self.seated_max() <= self.seated || self.is_perfect() || self.rest.is_none() && self.best.is_some()
    }

    fn seated_max(&self) -> u32 {
        if self.rest.is_some() { SEATED_MAX } else { SEATED_FOR_ONE_MAX }
    }

    /// As even as sums of these numbers can be told to be.
    fn is_perfect(&self) -> bool {
        self.gap <= self.board.slack
    }
}
