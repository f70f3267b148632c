//! A k-d tree over the inputs of soft filters: finds the best candidates of a ticket without evaluating all pairs.
//!
//! Tree: Bentley 1975; bounds per node: Friedman, Bentley and Finkel 1977. A node gives a lower bound of the score of
//! its tickets, and nodes above the worst kept score are skipped. Terms that a node cannot bound, as missing values and
//! measured and predicted round trips, count as 0. So the bound is never too high.

use crate::measure::Measure;
use crate::queue::pass_state::PassState;
use crate::ruleset::{SoftFilter, SoftFilterObjective};
use crate::score::term_of_normalized_distance;

/// Maximum number of tickets in a leaf.
const LEAF_TICKETS_MAX: usize = 12;

/// Maximum number of axes; more do not improve the search.
const AXES_MAX: usize = 8;

/// Axes of a soft filter that nodes can bound.
#[derive(Clone, Copy, Debug)]
enum AxisTerm {
    /// Difference of a normalized number: its axis.
    NumberDifference(usize),
    /// Chord between two locations: the first of three axes.
    Distance(usize),
    /// Latency estimated from that chord: the first of three axes.
    Latency(usize),
}

/// Tickets of one pool as points in the tree.
pub(super) struct SoftKdTree<'t, 'a> {
    pass_state: &'t PassState<'a>,
    axis_count: usize,
    filter_terms: Vec<(AxisTerm, &'a SoftFilter)>,
    /// Every soft filter has axes here, so the bound of a point is its score.
    covers_all_filters: bool,
    /// Ticket indices in leaf order. `points` has the same order.
    ticket_indices: Vec<u32>,
    points: Vec<f64>,
    /// Maximum score per unit of each axis. Nodes are split on the axis with the largest weighted extent.
    axis_weights: Vec<f64>,
    /// Minimum and maximum of each axis, per node.
    node_bounds: Vec<f64>,
    nodes: Vec<SoftKdNode>,
}

#[derive(Clone, Copy, Debug)]
struct SoftKdNode {
    start: u32,
    end: u32,
    /// Index of the second child; the first child follows its parent. 0 for leaves.
    second_child: u32,
}

/// Best candidates, as score and ticket index, best first.
pub(super) type ScoredCandidates = Vec<(f64, u32)>;

impl<'t, 'a> SoftKdTree<'t, 'a> {
    pub(super) fn new(pass_state: &'t PassState<'a>, pool: &[u32]) -> Self {
        let ruleset = pass_state.input.ruleset;
        let session = |row: u32| &pass_state.tickets[row as usize].waiting_session.session;
        let all_located = pool.iter().all(|&row| session(row).locality.is_some());
        let by_distance_only =
            pool.iter().all(|&row| session(row).region_latencies.is_empty() && session(row).prediction_end.is_none());
        let (mut axis_count, mut filter_terms, mut axis_weights) = (0, Vec::new(), Vec::new());
        let mut location_axis = None;
        for soft in &ruleset.soft_filters {
            let unit = soft.weight / (soft.max - soft.min);
            match (soft.mode, soft.measure) {
                (SoftFilterObjective::Difference, Measure::AttributeDifference(index))
                    if axis_count < AXES_MAX
                        && pool.iter().all(|&row| session(row).attribute_values.number(index).is_some()) =>
                {
                    filter_terms.push((AxisTerm::NumberDifference(axis_count), soft));
                    axis_weights.push(soft.weight);
                    axis_count += 1;
                }
                (_, Measure::Distance | Measure::Latency) if all_located => {
                    let axis = *location_axis.get_or_insert(axis_count);
                    if axis == axis_count {
                        axis_weights.extend([0.0; 3]);
                        axis_count += 3;
                    }
                    match soft.measure {
                        Measure::Distance => filter_terms.push((AxisTerm::Distance(axis), soft)),
                        _ if by_distance_only => filter_terms.push((AxisTerm::Latency(axis), soft)),
                        _ => continue,
                    }
                    axis_weights[axis..axis + 3].iter_mut().for_each(|it| *it += unit);
                }
                _ => {}
            }
        }
        let mut tree = Self {
            pass_state,
            axis_count,
            covers_all_filters: filter_terms.len() == ruleset.soft_filters.len(),
            filter_terms,
            ticket_indices: pool.to_vec(),
            points: Vec::new(),
            axis_weights,
            node_bounds: Vec::new(),
            nodes: Vec::new(),
        };
        tree.build();
        tree
    }

    /// Ticket indices in leaf order, so that near tickets are adjacent.
    pub(super) fn ticket_indices(&self) -> &[u32] {
        &self.ticket_indices
    }

    /// Whether points alone determine scores. Otherwise candidates are scored by all filters.
    pub(super) fn covers_all_filters(&self) -> bool {
        self.covers_all_filters
    }

    fn build(&mut self) {
        let axis_count = self.axis_count;
        let mut points = vec![0.0; axis_count * self.ticket_indices.len()];
        for (position, &row) in self.ticket_indices.iter().enumerate() {
            self.write_point(row, &mut points[position * axis_count..][..axis_count]);
        }
        let mut order: Vec<u32> = (0..self.ticket_indices.len() as u32).collect();
        if !order.is_empty() {
            self.split_node(&points, &mut order, 0);
        }
        self.points = order
            .iter()
            .flat_map(|&position| &points[position as usize * axis_count..][..axis_count])
            .copied()
            .collect();
        self.ticket_indices = order.iter().map(|&position| self.ticket_indices[position as usize]).collect();
    }

    fn write_point(&self, row: u32, point: &mut [f64]) {
        let session = &self.pass_state.tickets[row as usize].waiting_session.session;
        for (term, soft) in &self.filter_terms {
            match (*term, soft.measure) {
                (AxisTerm::NumberDifference(axis), Measure::AttributeDifference(index)) => {
                    point[axis] = soft.normalize(session.attribute_values.number(index).unwrap_or(0.0));
                }
                (AxisTerm::Distance(axis) | AxisTerm::Latency(axis), _) => {
                    if let Some(locality) = session.locality {
                        point[axis..axis + 3].copy_from_slice(&[
                            locality.x.into(),
                            locality.y.into(),
                            locality.z.into(),
                        ]);
                    }
                }
                (AxisTerm::NumberDifference(_), _) => {}
            }
        }
    }

    fn split_node(&mut self, points: &[f64], order: &mut [u32], first_position: usize) {
        let (axis_count, node) = (self.axis_count, self.nodes.len());
        let (start, end) = (first_position as u32, (first_position + order.len()) as u32);
        self.nodes.push(SoftKdNode { start, end, second_child: 0 });
        let mut widest = (0.0, None);
        for axis in 0..axis_count {
            let values = order.iter().map(|&position| points[position as usize * axis_count + axis]);
            let (least, greatest) =
                values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), it| (low.min(it), high.max(it)));
            self.node_bounds.extend([least, greatest]);
            let width = (greatest - least) * self.axis_weights[axis];
            if widest.0 < width {
                widest = (width, Some(axis));
            }
        }
        let Some(axis) = widest.1.filter(|_| order.len() > LEAF_TICKETS_MAX) else { return };
        let value = |position: u32| points[position as usize * axis_count + axis];
        let half = order.len() / 2;
        order.select_nth_unstable_by(half, |&one, &other| value(one).total_cmp(&value(other)).then(one.cmp(&other)));
        let (first, second) = order.split_at_mut(half);
        self.split_node(points, first, first_position);
        self.nodes[node].second_child = self.nodes.len() as u32;
        self.split_node(points, second, first_position + half);
    }

    /// Finds the `max_results` best candidates of the ticket at `position` that pass `admits`; ties by ticket index.
    /// `admits` is called only for candidates that would be kept. It returns `None` to stop the search.
    pub(super) fn find_nearest(
        &self,
        position: usize,
        max_results: usize,
        best: &mut ScoredCandidates,
        mut admits: impl FnMut(u32) -> Option<bool>,
    ) {
        best.clear();
        let query_point = &self.points[position * self.axis_count..][..self.axis_count];
        let mut search = NearestSearch { tree: self, query_position: position as u32, query_point, max_results, best };
        search.visit_node(0, &mut admits);
    }

    /// Lower bound of the score of a point and the tickets of a node; infinite if above `max_score`.
    fn score_lower_bound(&self, node: usize, point: &[f64], max_score: f64) -> f64 {
        let bounds = &self.node_bounds[node * 2 * self.axis_count..][..2 * self.axis_count];
        let gap = |axis: usize| (bounds[2 * axis] - point[axis]).max(point[axis] - bounds[2 * axis + 1]).max(0.0);
        self.score_from_axes(max_score, gap).unwrap_or(f64::INFINITY)
    }

    /// Score of two tickets, with terms that nodes cannot bound.
    fn full_score(&self, one: u32, other: u32) -> f64 {
        self.pass_state
            .filter_columns
            .pair_score(self.ticket_indices[one as usize], self.ticket_indices[other as usize])
    }

    /// Score from distances along the axes. `None` if it is above `max_score`.
    fn score_from_axes(&self, max_score: f64, gap: impl Fn(usize) -> f64) -> Option<f64> {
        let chord = |axis: usize| {
            let (x, y, z) = (gap(axis), gap(axis + 1), gap(axis + 2));
            (x * x + y * y + z * z).sqrt()
        };
        let mut sum = 0.0;
        for (term, soft) in &self.filter_terms {
            let distance = match *term {
                AxisTerm::NumberDifference(axis) => gap(axis),
                AxisTerm::Distance(axis) => soft.normalize(chord(axis)),
                AxisTerm::Latency(axis) => {
                    soft.normalize(self.pass_state.input.ruleset.latency_model.round_trip_ms(chord(axis)))
                }
            };
            sum += term_of_normalized_distance(soft, Some(distance));
            // Terms are never negative.
            if max_score < sum {
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
    best: &'s mut ScoredCandidates,
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
        let SoftKdNode { start, end, second_child } = self.tree.nodes[node];
        if second_child == 0 {
            return self.visit_leaf(start, end, admits);
        }
        let worst = self.worst_kept_score();
        let children = [node + 1, second_child as usize]
            .map(|child| (self.tree.score_lower_bound(child, self.query_point, worst), child));
        let [near, far] = if children[1].0 < children[0].0 { [children[1], children[0]] } else { children };
        for (bound, child) in [near, far] {
            // With an equal score, a lower ticket index still comes first.
            if bound <= self.worst_kept_score() {
                self.visit_node(child, admits)?;
            }
        }
        Some(())
    }

    fn visit_leaf(&mut self, start: u32, end: u32, admits: &mut impl FnMut(u32) -> Option<bool>) -> Option<()> {
        let axis_count = self.tree.axis_count;
        for position in (start..end).filter(|&position| position != self.query_position) {
            let (row, point) = (
                self.tree.ticket_indices[position as usize],
                &self.tree.points[position as usize * axis_count..][..axis_count],
            );
            let Some(bound) =
                self.tree.score_from_axes(self.worst_kept_score(), |axis| (self.query_point[axis] - point[axis]).abs())
            else {
                continue;
            };
            let score =
                if self.tree.covers_all_filters { bound } else { self.tree.full_score(self.query_position, position) };
            let rank = self.best.partition_point(|&kept| (kept.0, kept.1) < (score, row));
            if rank < self.max_results && admits(row)? {
                self.best.truncate(self.max_results - 1);
                self.best.insert(rank, (score, row));
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
    use crate::score::worse_of_both_scores;

    /// The tree finds the same tickets as scoring all pairs, for any filters and missing values.
    #[test]
    fn kd_tree_search_finds_the_same_tickets_as_scoring_all_pairs() {
        let mut exact = 0;
        for seed in 0..60 {
            let mut fixture = random_queue_fixture(seed, 120);
            if seed % 2 == 0 {
                fixture.vectors.clear();
                // No value is missing, so that points determine the scores.
                fixture.ruleset.soft_filters = fixture
                    .ruleset
                    .soft_filters
                    .iter()
                    .filter(|it| !matches!(&*it.name, "taste" | "delta_ping"))
                    .cloned()
                    .collect();
                for (number, ticket) in fixture.tickets.iter_mut().enumerate() {
                    let session = &mut Arc::make_mut(ticket).session;
                    let number = number as f64;
                    session.locality =
                        Locality::from_degrees((number * 37.0) % 150.0 - 75.0, (number * 73.0) % 340.0 - 170.0);
                    session.region_latencies = Box::default();
                }
            }
            fixture.with_input(&fixture.prepared_tickets(), |input| {
                let pass_state = PassState::new(input);
                let pool: Vec<u32> = (0..pass_state.tickets.len() as u32).collect();
                let tree = SoftKdTree::new(&pass_state, &pool);
                exact += u32::from(tree.covers_all_filters());
                let session_of = |row: u32| &pass_state.tickets[row as usize].waiting_session.session;
                let mut found = Vec::new();
                for (position, &row) in tree.ticket_indices().iter().enumerate() {
                    tree.find_nearest(position, 5, &mut found, |other| Some(pass_state.check_pair(row, other).is_ok()));
                    let others =
                        pool.iter().filter(|&&other| other != row && pass_state.check_pair(row, other).is_ok());
                    let mut expected: Vec<(f64, u32)> = others
                        .map(|&other| (worse_of_both_scores(input.ruleset, session_of(row), session_of(other)), other))
                        .collect();
                    expected.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
                    expected.truncate(5);
                    let scores =
                        |list: &ScoredCandidates| list.iter().map(|it| (it.0 * 1e9).round()).collect::<Vec<f64>>();
                    assert_eq!(scores(&found), scores(&expected), "seed {seed}, row {row}");
                }
            });
        }
        assert!((30..60).contains(&exact), "{exact}");
    }
}
