//! Finds, for one ticket after another, those who suit it best by the soft filters, without asking everybody: a kd-tree over
//! what the filters measure (Bentley 1975; bounds per box as Friedman, Bentley and Finkel 1977 have them).
//!
//! A box says how bad the best in it can be; boxes that cannot beat the worst that is kept are not opened. What a box cannot
//! say, a value that somebody lacks or a round trip to a region, counts as nothing, so no box promises too little.

use crate::measure::Measure;
use crate::queue::pass_state::PassState;
use crate::ruleset::{SoftFilter, SoftFilterMode};
use crate::score::weighted_term;

/// Rows in a box that is not divided any further.
const LEAF_TICKETS_MAX: usize = 12;

/// Dimensions at most: more divide nothing.
const AXES_MAX: usize = 8;

/// A soft filter whose term a box bounds.
#[derive(Clone, Copy, Debug)]
enum AxisTerm {
    /// The difference of a normalised number: its axis.
    NumberDifference(usize),
    /// The chord between two places: the first of three axes.
    Distance(usize),
    /// The round trip that the line expects over that chord.
    Latency(usize),
}

/// Rows of one pool in space.
pub(super) struct SoftKdTree<'t, 'a> {
    pass_state: &'t PassState<'a>,
    axis_count: usize,
    filter_terms: Vec<(AxisTerm, &'a SoftFilter)>,
    /// Every soft filter has a term here, so the bound of a point is its score.
    covers_all_filters: bool,
    /// Rows in the order of the leaves, and where each has its point.
    ticket_indices: Vec<u32>,
    points: Vec<f64>,
    /// What one unit of an axis is worth at most: boxes are divided where they are dearest.
    axis_weights: Vec<f64>,
    /// The least and the greatest of each axis, box by box.
    node_bounds: Vec<f64>,
    nodes: Vec<SoftKdNode>,
}

#[derive(Clone, Copy, Debug)]
struct SoftKdNode {
    start: u32,
    end: u32,
    /// The second half; the first follows its parent. 0 for leaves.
    second_child: u32,
}

/// The best few of those who suit: score and row, best first.
pub(super) type BestCandidates = Vec<(f64, u32)>;

impl<'t, 'a> SoftKdTree<'t, 'a> {
    pub(super) fn new(field: &'t PassState<'a>, pool: &[u32]) -> Self {
        let ruleset = field.input.ruleset;
        let seen = |row: u32| &field.tickets[row as usize].waiting_session.session;
        let all_placed = pool.iter().all(|&row| seen(row).locality.is_some());
        let no_regions = pool.iter().all(|&row| seen(row).region_latencies.is_empty());
        let (mut axes, mut terms, mut dear) = (0, Vec::new(), Vec::new());
        let mut place = None;
        for soft in &ruleset.soft_filters {
            let unit = soft.weight / (soft.max - soft.min);
            match (soft.mode, soft.measure) {
                (SoftFilterMode::Difference, Measure::AttributeDifference(index))
                    if axes < AXES_MAX
                        && pool.iter().all(|&row| seen(row).attribute_values.number(index).is_some()) =>
                {
                    terms.push((AxisTerm::NumberDifference(axes), soft));
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
                        Measure::Distance => terms.push((AxisTerm::Distance(at), soft)),
                        _ if no_regions => terms.push((AxisTerm::Latency(at), soft)),
                        _ => continue,
                    }
                    dear[at..at + 3].iter_mut().for_each(|it| *it += unit);
                }
                _ => {}
            }
        }
        let mut tree = Self {
            pass_state: field,
            axis_count: axes,
            covers_all_filters: terms.len() == ruleset.soft_filters.len(),
            filter_terms: terms,
            ticket_indices: pool.to_vec(),
            points: Vec::new(),
            axis_weights: dear,
            node_bounds: Vec::new(),
            nodes: Vec::new(),
        };
        tree.build();
        tree
    }

    /// Rows in an order in which neighbours come one after the other.
    pub(super) fn ticket_indices(&self) -> &[u32] {
        &self.ticket_indices
    }

    /// Whether points alone tell scores; where they do not, everybody who comes near is judged by all that is known.
    pub(super) fn covers_all_filters(&self) -> bool {
        self.covers_all_filters
    }

    fn build(&mut self) {
        let axes = self.axis_count;
        let mut points = vec![0.0; axes * self.ticket_indices.len()];
        for (at, &row) in self.ticket_indices.iter().enumerate() {
            self.write_point(row, &mut points[at * axes..][..axes]);
        }
        let mut order: Vec<u32> = (0..self.ticket_indices.len() as u32).collect();
        if !order.is_empty() {
            self.split_node(&points, &mut order, 0);
        }
        self.points = order.iter().flat_map(|&at| &points[at as usize * axes..][..axes]).copied().collect();
        self.ticket_indices = order.iter().map(|&at| self.ticket_indices[at as usize]).collect();
    }

    fn write_point(&self, row: u32, point: &mut [f64]) {
        let seen = &self.pass_state.tickets[row as usize].waiting_session.session;
        for (term, soft) in &self.filter_terms {
            match (*term, soft.measure) {
                (AxisTerm::NumberDifference(at), Measure::AttributeDifference(index)) => {
                    point[at] = soft.normalize(seen.attribute_values.number(index).unwrap_or(0.0));
                }
                (AxisTerm::Distance(at) | AxisTerm::Latency(at), _) => {
                    if let Some(place) = seen.locality {
                        point[at..at + 3].copy_from_slice(&[place.x.into(), place.y.into(), place.z.into()]);
                    }
                }
                (AxisTerm::NumberDifference(_), _) => {}
            }
        }
    }

    fn split_node(&mut self, points: &[f64], order: &mut [u32], from: usize) {
        let (axes, node) = (self.axis_count, self.nodes.len());
        let (from_row, to_row) = (from as u32, (from + order.len()) as u32);
        self.nodes.push(SoftKdNode { start: from_row, end: to_row, second_child: 0 });
        let mut widest = (0.0, None);
        for axis in 0..axes {
            let values = order.iter().map(|&at| points[at as usize * axes + axis]);
            let (least, greatest) =
                values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), it| (low.min(it), high.max(it)));
            self.node_bounds.extend([least, greatest]);
            let width = (greatest - least) * self.axis_weights[axis];
            if widest.0 < width {
                widest = (width, Some(axis));
            }
        }
        let Some(axis) = widest.1.filter(|_| LEAF_TICKETS_MAX < order.len()) else { return };
        let value = |at: u32| points[at as usize * axes + axis];
        let half = order.len() / 2;
        order.select_nth_unstable_by(half, |&one, &other| value(one).total_cmp(&value(other)).then(one.cmp(&other)));
        let (first, second) = order.split_at_mut(half);
        self.split_node(points, first, from);
        self.nodes[node].second_child = self.nodes.len() as u32;
        self.split_node(points, second, from + half);
    }

    /// The `most` who suit the row at place `at` best among those whom `admits` lets through; best first, ties by row. `admits`
    /// is asked of those alone who would be kept, and ends the search by `None`.
    pub(super) fn find_nearest(
        &self,
        at: usize,
        most: usize,
        kept: &mut BestCandidates,
        mut admits: impl FnMut(u32) -> Option<bool>,
    ) {
        kept.clear();
        let point = &self.points[at * self.axis_count..][..self.axis_count];
        let mut search =
            NearestSearch { tree: self, query_position: at as u32, query_point: point, max_results: most, best: kept };
        search.visit_node(0, &mut admits);
    }

    /// How bad the best of a box can be for a point; infinite when worse than `most`.
    fn score_lower_bound(&self, node: usize, point: &[f64], most: f64) -> f64 {
        let sides = &self.node_bounds[node * 2 * self.axis_count..][..2 * self.axis_count];
        let gap = |axis: usize| (sides[2 * axis] - point[axis]).max(point[axis] - sides[2 * axis + 1]).max(0.0);
        self.score_from_axes(most, gap).unwrap_or(f64::INFINITY)
    }

    /// The score of two, terms that boxes cannot bound included.
    fn full_score(&self, one: u32, other: u32) -> f64 {
        self.pass_state
            .filter_columns
            .pair_score(self.ticket_indices[one as usize], self.ticket_indices[other as usize])
    }

    /// What the terms come to at these distances along the axes; `None` when that is more than `most`.
    fn score_from_axes(&self, most: f64, gap: impl Fn(usize) -> f64) -> Option<f64> {
        let chord = |at: usize| {
            let (x, y, z) = (gap(at), gap(at + 1), gap(at + 2));
            (x * x + y * y + z * z).sqrt()
        };
        let mut sum = 0.0;
        for (term, soft) in &self.filter_terms {
            let distance = match *term {
                AxisTerm::NumberDifference(at) => gap(at),
                AxisTerm::Distance(at) => soft.normalize(chord(at)),
                AxisTerm::Latency(at) => {
                    soft.normalize(self.pass_state.input.ruleset.latency_model.round_trip_ms(chord(at)))
                }
            };
            sum += weighted_term(soft, Some(distance));
            // No term is negative.
            if most < sum {
                return None;
            }
        }
        Some(sum)
    }
}

struct NearestSearch<'s, 't, 'a> {
    tree: &'s SoftKdTree<'t, 'a>,
    query_position: u32,
    query_point: &'s [f64],
    max_results: usize,
    best: &'s mut BestCandidates,
}

impl NearestSearch<'_, '_, '_> {
    fn worst_kept_score(&self) -> f64 {
        if self.best.len() < self.max_results {
            f64::INFINITY
        } else {
            self.best.last().map_or(f64::INFINITY, |it| it.0)
        }
    }

    fn visit_node(&mut self, node: usize, admits: &mut impl FnMut(u32) -> Option<bool>) -> Option<()> {
        let SoftKdNode { start: from, end: to, second_child: second } = self.tree.nodes[node];
        if second == 0 {
            return self.visit_leaf(from, to, admits);
        }
        let worst = self.worst_kept_score();
        let halves =
            [node + 1, second as usize].map(|half| (self.tree.score_lower_bound(half, self.query_point, worst), half));
        let [near, far] = if halves[1].0 < halves[0].0 { [halves[1], halves[0]] } else { halves };
        for (bound, half) in [near, far] {
            // As bad as the worst may still come before it, by its row.
            if bound <= self.worst_kept_score() {
                self.visit_node(half, admits)?;
            }
        }
        Some(())
    }

    fn visit_leaf(&mut self, from: u32, to: u32, admits: &mut impl FnMut(u32) -> Option<bool>) -> Option<()> {
        let axes = self.tree.axis_count;
        for at in (from..to).filter(|&at| at != self.query_position) {
            let (row, other) = (self.tree.ticket_indices[at as usize], &self.tree.points[at as usize * axes..][..axes]);
            let Some(bound) =
                self.tree.score_from_axes(self.worst_kept_score(), |axis| (self.query_point[axis] - other[axis]).abs())
            else {
                continue;
            };
            let score =
                if self.tree.covers_all_filters { bound } else { self.tree.full_score(self.query_position, at) };
            let place = self.best.partition_point(|&kept| (kept.0, kept.1) < (score, row));
            if place < self.max_results && admits(row)? {
                self.best.truncate(self.max_results - 1);
                self.best.insert(place, (score, row));
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::locality::Locality;
    use crate::queue::tests::fixture::random_queue_fixture;
    use crate::score::mutual_score;

    /// The tree keeps those whom asking everybody would keep, whatever the filters measure and whoever lacks what.
    #[test]
    fn kd_tree_search_finds_the_same_tickets_as_scoring_all_pairs() {
        let mut exact = 0;
        for seed in 0..60 {
            let mut world = random_queue_fixture(seed, 120);
            if seed % 2 == 0 {
                // Everybody lacks nothing, so that points tell all.
                world.ruleset.soft_filters =
                    world.ruleset.soft_filters.iter().filter(|it| &*it.name != "taste").cloned().collect();
                for (number, ticket) in world.tickets.iter_mut().enumerate() {
                    let session = &mut Arc::make_mut(ticket).session;
                    let number = number as f64;
                    session.locality =
                        Locality::from_degrees((number * 37.0) % 150.0 - 75.0, (number * 73.0) % 340.0 - 170.0);
                    session.region_latencies = Box::default();
                }
            }
            world.with_input(&world.prepared_tickets(), |input| {
                let field = PassState::new(input);
                let pool: Vec<u32> = (0..field.tickets.len() as u32).collect();
                let tree = SoftKdTree::new(&field, &pool);
                exact += u32::from(tree.covers_all_filters());
                let seen = |row: u32| &field.tickets[row as usize].waiting_session.session;
                let mut kept = Vec::new();
                for (at, &row) in tree.ticket_indices().iter().enumerate() {
                    tree.find_nearest(at, 5, &mut kept, |other| Some(field.check_pair(row, other).is_ok()));
                    let others = pool.iter().filter(|&&other| other != row && field.check_pair(row, other).is_ok());
                    let mut slow: Vec<(f64, u32)> =
                        others.map(|&other| (mutual_score(input.ruleset, seen(row), seen(other)), other)).collect();
                    slow.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
                    slow.truncate(5);
                    let scores =
                        |list: &BestCandidates| list.iter().map(|it| (it.0 * 1e9).round()).collect::<Vec<f64>>();
                    assert_eq!(scores(&kept), scores(&slow), "seed {seed}, row {row}");
                }
            });
        }
        assert!((30..60).contains(&exact), "{exact}");
    }
}
