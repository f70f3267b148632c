//! Finds, for one ticket after another, those who suit it best by the soft filters, without asking everybody: a kd-tree over
//! what the filters measure (Bentley 1975; bounds per box as Friedman, Bentley and Finkel 1977 have them).
//!
//! A box says how bad the best in it can be; boxes that cannot beat the worst that is kept are not opened. What a box cannot
//! say, a value that somebody lacks or a round trip to a region, counts as nothing, so no box promises too little.

use crate::domain::measure::Measure;
use crate::domain::queue::field::Field;
use crate::domain::ruleset::{SoftFilter, SoftMode};
use crate::domain::score::weighed;

/// Rows in a box that is not divided any further.
const LEAF_MAX: usize = 12;

/// Dimensions at most: more divide nothing.
const AXES_MAX: usize = 8;

/// A soft filter whose term a box bounds.
#[derive(Clone, Copy, Debug)]
enum Term {
    /// The difference of a normalised number: its axis.
    Number(usize),
    /// The chord between two places: the first of three axes.
    Distance(usize),
    /// The round trip that the line expects over that chord.
    Latency(usize),
}

/// Rows of one pool in space.
pub(super) struct Tree<'t, 'a> {
    field: &'t Field<'a>,
    axes: usize,
    terms: Vec<(Term, &'a SoftFilter)>,
    /// Every soft filter has a term here, so the bound of a point is its score.
    is_exact: bool,
    /// Rows in the order of the leaves, and where each has its point.
    rows: Vec<u32>,
    points: Vec<f64>,
    /// What one unit of an axis is worth at most: boxes are divided where they are dearest.
    dear: Vec<f64>,
    /// The least and the greatest of each axis, box by box.
    boxes: Vec<f64>,
    nodes: Vec<Node>,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    from: u32,
    to: u32,
    /// The second half; the first follows its parent. 0 for leaves.
    second: u32,
}

/// The best few of those who suit: score and row, best first.
pub(super) type Kept = Vec<(f64, u32)>;

impl<'t, 'a> Tree<'t, 'a> {
    pub(super) fn of(field: &'t Field<'a>, pool: &[u32]) -> Self {
        let ruleset = field.input.ruleset;
        let seen = |row: u32| &field.rows[row as usize].waits.seen;
        let all_placed = pool.iter().all(|&row| seen(row).locality.is_some());
        let no_regions = pool.iter().all(|&row| seen(row).regions.is_empty());
        let (mut axes, mut terms, mut dear) = (0, Vec::new(), Vec::new());
        let mut place = None;
        for soft in &ruleset.soft {
            let unit = soft.weight / (soft.max - soft.min);
            match (soft.mode, soft.measure) {
                (SoftMode::Difference, Measure::Attribute(index))
                    if axes < AXES_MAX && pool.iter().all(|&row| seen(row).facts.number(index).is_some()) =>
                {
                    terms.push((Term::Number(axes), soft));
                    dear.push(soft.weight);
                    axes += 1;
                }
                (_, Measure::Distance | Measure::Latency) if all_placed => {
                    let at = *place.get_or_insert(axes);
                    if at == axes {
                        dear.extend([0.0; 3]);
                        axes += 3;
                    }
                    match soft.measure {
                        Measure::Distance => terms.push((Term::Distance(at), soft)),
                        _ if no_regions => terms.push((Term::Latency(at), soft)),
                        _ => continue,
                    }
                    dear[at..at + 3].iter_mut().for_each(|it| *it += unit);
                }
                _ => {}
            }
        }
        let mut tree = Self {
            field,
            axes,
            is_exact: terms.len() == ruleset.soft.len(),
            terms,
            rows: pool.to_vec(),
            points: Vec::new(),
            dear,
            boxes: Vec::new(),
            nodes: Vec::new(),
        };
        tree.build();
        tree
    }

    /// Rows in an order in which neighbours come one after the other.
    pub(super) fn rows(&self) -> &[u32] {
        &self.rows
    }

    /// Whether points alone tell scores; where they do not, everybody who comes near is judged by all that is known.
    pub(super) fn is_exact(&self) -> bool {
        self.is_exact
    }

    fn build(&mut self) {
        let axes = self.axes;
        let mut points = vec![0.0; axes * self.rows.len()];
        for (at, &row) in self.rows.iter().enumerate() {
            self.write_point(row, &mut points[at * axes..][..axes]);
        }
        let mut order: Vec<u32> = (0..self.rows.len() as u32).collect();
        if !order.is_empty() {
            self.divide(&points, &mut order, 0);
        }
        self.points = order.iter().flat_map(|&at| &points[at as usize * axes..][..axes]).copied().collect();
        self.rows = order.iter().map(|&at| self.rows[at as usize]).collect();
    }

    fn write_point(&self, row: u32, point: &mut [f64]) {
        let seen = &self.field.rows[row as usize].waits.seen;
        for (term, soft) in &self.terms {
            match (*term, soft.measure) {
                (Term::Number(at), Measure::Attribute(index)) => {
                    point[at] = soft.norm(seen.facts.number(index).unwrap_or(0.0));
                }
                (Term::Distance(at) | Term::Latency(at), _) => {
                    if let Some(place) = seen.locality {
                        point[at..at + 3].copy_from_slice(&[place.x.into(), place.y.into(), place.z.into()]);
                    }
                }
                (Term::Number(_), _) => {}
            }
        }
    }

    fn divide(&mut self, points: &[f64], order: &mut [u32], from: usize) {
        let (axes, node) = (self.axes, self.nodes.len());
        let (from_row, to_row) = (from as u32, (from + order.len()) as u32);
        self.nodes.push(Node { from: from_row, to: to_row, second: 0 });
        let mut widest = (0.0, None);
        for axis in 0..axes {
            let values = order.iter().map(|&at| points[at as usize * axes + axis]);
            let (least, greatest) =
                values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), it| (low.min(it), high.max(it)));
            self.boxes.extend([least, greatest]);
            let width = (greatest - least) * self.dear[axis];
            if widest.0 < width {
                widest = (width, Some(axis));
            }
        }
        let Some(axis) = widest.1.filter(|_| LEAF_MAX < order.len()) else { return };
        let value = |at: u32| points[at as usize * axes + axis];
        let half = order.len() / 2;
        order.select_nth_unstable_by(half, |&one, &other| value(one).total_cmp(&value(other)).then(one.cmp(&other)));
        let (first, second) = order.split_at_mut(half);
        self.divide(points, first, from);
        self.nodes[node].second = self.nodes.len() as u32;
        self.divide(points, second, from + half);
    }

    /// The `most` who suit the row at place `at` best among those whom `admits` lets through; best first, ties by row. `admits`
    /// is asked of those alone who would be kept, and ends the search by `None`.
    pub(super) fn nearest(&self, at: usize, most: usize, kept: &mut Kept, mut admits: impl FnMut(u32) -> Option<bool>) {
        kept.clear();
        let point = &self.points[at * self.axes..][..self.axes];
        let mut search = Search { tree: self, at: at as u32, point, most, kept };
        search.open(0, &mut admits);
    }

    /// How bad the best of a box can be for a point; infinite when worse than `most`.
    fn bound(&self, node: usize, point: &[f64], most: f64) -> f64 {
        let sides = &self.boxes[node * 2 * self.axes..][..2 * self.axes];
        let gap = |axis: usize| (sides[2 * axis] - point[axis]).max(point[axis] - sides[2 * axis + 1]).max(0.0);
        self.score(most, gap).unwrap_or(f64::INFINITY)
    }

    /// The score of two, terms that boxes cannot bound included.
    fn whole_score(&self, one: u32, other: u32) -> f64 {
        self.field.columns.score(self.rows[one as usize], self.rows[other as usize])
    }

    /// What the terms come to at these distances along the axes; `None` when that is more than `most`.
    fn score(&self, most: f64, gap: impl Fn(usize) -> f64) -> Option<f64> {
        let chord = |at: usize| {
            let (x, y, z) = (gap(at), gap(at + 1), gap(at + 2));
            (x * x + y * y + z * z).sqrt()
        };
        let mut sum = 0.0;
        for (term, soft) in &self.terms {
            let distance = match *term {
                Term::Number(at) => gap(at),
                Term::Distance(at) => soft.norm(chord(at)),
                Term::Latency(at) => soft.norm(self.field.input.ruleset.line.round_trip_ms(chord(at))),
            };
            sum += weighed(soft, Some(distance));
            // No term is negative.
            if most < sum {
                return None;
            }
        }
        Some(sum)
    }
}

struct Search<'s, 't, 'a> {
    tree: &'s Tree<'t, 'a>,
    at: u32,
    point: &'s [f64],
    most: usize,
    kept: &'s mut Kept,
}

impl Search<'_, '_, '_> {
    fn worst(&self) -> f64 {
        if self.kept.len() < self.most { f64::INFINITY } else { self.kept.last().map_or(f64::INFINITY, |it| it.0) }
    }

    fn open(&mut self, node: usize, admits: &mut impl FnMut(u32) -> Option<bool>) -> Option<()> {
        let Node { from, to, second } = self.tree.nodes[node];
        if second == 0 {
            return self.ask(from, to, admits);
        }
        let worst = self.worst();
        let halves = [node + 1, second as usize].map(|half| (self.tree.bound(half, self.point, worst), half));
        let [near, far] = if halves[1].0 < halves[0].0 { [halves[1], halves[0]] } else { halves };
        for (bound, half) in [near, far] {
            // As bad as the worst may still come before it, by its row.
            if bound <= self.worst() {
                self.open(half, admits)?;
            }
        }
        Some(())
    }

    fn ask(&mut self, from: u32, to: u32, admits: &mut impl FnMut(u32) -> Option<bool>) -> Option<()> {
        let axes = self.tree.axes;
        for at in (from..to).filter(|&at| at != self.at) {
            let (row, other) = (self.tree.rows[at as usize], &self.tree.points[at as usize * axes..][..axes]);
            let Some(bound) = self.tree.score(self.worst(), |axis| (self.point[axis] - other[axis]).abs()) else {
                continue;
            };
            let score = if self.tree.is_exact { bound } else { self.tree.whole_score(self.at, at) };
            let place = self.kept.partition_point(|&kept| (kept.0, kept.1) < (score, row));
            if place < self.most && admits(row)? {
                self.kept.truncate(self.most - 1);
                self.kept.insert(place, (score, row));
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::domain::locality::Locality;
    use crate::domain::queue::tests::world::random;
    use crate::domain::score::score_between;

    /// The tree keeps those whom asking everybody would keep, whatever the filters measure and whoever lacks what.
    #[test]
    fn the_best_few_are_those_that_asking_everybody_finds() {
        let mut exact = 0;
        for seed in 0..60 {
            let mut world = random(seed, 120);
            if seed % 2 == 0 {
                // Everybody lacks nothing, so that points tell all.
                world.ruleset.soft = world.ruleset.soft.iter().filter(|it| &*it.name != "taste").cloned().collect();
                for (number, ticket) in world.tickets.iter_mut().enumerate() {
                    let session = &mut Arc::make_mut(ticket).session;
                    let number = number as f64;
                    session.locality =
                        Locality::from_degrees((number * 37.0) % 150.0 - 75.0, (number * 73.0) % 340.0 - 170.0);
                    session.regions = Box::default();
                }
            }
            world.with(&world.entrants(), |input| {
                let field = Field::of(input);
                let pool: Vec<u32> = (0..field.rows.len() as u32).collect();
                let tree = Tree::of(&field, &pool);
                exact += u32::from(tree.is_exact());
                let seen = |row: u32| &field.rows[row as usize].waits.seen;
                let mut kept = Vec::new();
                for (at, &row) in tree.rows().iter().enumerate() {
                    tree.nearest(at, 5, &mut kept, |other| Some(field.meet(row, other).is_ok()));
                    let others = pool.iter().filter(|&&other| other != row && field.meet(row, other).is_ok());
                    let mut slow: Vec<(f64, u32)> =
                        others.map(|&other| (score_between(input.ruleset, seen(row), seen(other)), other)).collect();
                    slow.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
                    slow.truncate(5);
                    let scores = |list: &Kept| list.iter().map(|it| (it.0 * 1e9).round()).collect::<Vec<f64>>();
                    assert_eq!(scores(&kept), scores(&slow), "seed {seed}, row {row}");
                }
            });
        }
        assert!((30..60).contains(&exact), "{exact}");
    }
}
