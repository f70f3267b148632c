//! Maximum weight matching in a general graph.
//!
//! Edmonds' primal-dual blossom algorithm (J. Edmonds, "Maximum matching and a polyhedron with 0,1-vertices", 1965),
//! with the labels after Z. Galil ("Efficient algorithms for finding maximum matching in graphs", 1986). All trees grow
//! at the same time and survive when others augment. A priority queue holds the dual values at which edges become
//! tight. No maintained crate does this for 64-bit weights without a graph library.

mod alternating_forest;

use crate::matching::alternating_forest::AlternatingForest;

/// Maximum weight of an edge; heavier edges count as this. Sums of four weights must fit into `i64`.
pub const EDGE_WEIGHT_MAX: i64 = 1 << 60;

/// Matching of maximum total weight in a graph of `nodes` nodes: the partner of each node, if any. Each edge is `(node,
/// node, weight)`; of parallel edges the heaviest counts. Ignored are edges of weight 0 or less, loops, and edges to
/// unknown nodes.
///
/// Deterministic for the same edges in the same order. The worst case for n nodes and m edges is O(n m log n); with
/// mostly local edges it is far less.
pub fn maximum_weight_matching(nodes: usize, edges: &[(u32, u32, i64)]) -> Vec<Option<u32>> {
    let is_known = |node: u32| (node as usize) < nodes;
    let usable = edges.iter().filter(|(a, b, weight)| a != b && is_known(*a) && is_known(*b) && *weight > 0);
    let mut forest = AlternatingForest::new(
        nodes,
        usable.map(|&(a, b, weight)| (a as usize, b as usize, weight.min(EDGE_WEIGHT_MAX))),
    );
    forest.find_maximum_weight_matching();
    (0..nodes).map(|node| forest.partner(node).map(|partner| partner as u32)).collect()
}

#[cfg(test)]
mod tests;
