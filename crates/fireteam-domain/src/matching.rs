//! Pairs up the nodes of a graph so that the weights of the pairs add up to as much as can be.
//!
//! Edmonds' primal-dual method for general graphs (J. Edmonds, "Maximum matching and a polyhedron with 0,1-vertices",
//! 1965; the bookkeeping of labels after Z. Galil, "Efficient algorithms for finding maximum matching in graphs",
//! 1986), with all trees growing at once and left standing when others augment, and with a queue of the moments at
//! which something becomes possible. No kept crate does this for weights of 64 bits without a graph library around it.

mod alternating_forest;
mod augmentation;
mod blossom;

use crate::matching::alternating_forest::AlternatingForest;

/// The heaviest that an edge counts; heavier ones count as this. Sums of four weights have to fit.
pub const EDGE_WEIGHT_MAX: i64 = 1 << 60;

/// A matching of greatest total weight in the graph of `nodes` nodes: each node's partner, if it has one. Every edge
/// joins two nodes, in either order, and says what the pair is worth; of several between the same two the heaviest
/// counts. Edges that are worth 0 or less, from a node to itself, or to a node that is not there, are passed over: they
/// add nothing.
///
/// The same edges in the same order give the same matching. For n nodes and m edges the work is of the order of n m log
/// n at worst, and far less where neighbours are near.
pub fn maximum_weight_matching(nodes: usize, edges: &[(u32, u32, i64)]) -> Vec<Option<u32>> {
    let is_there = |node: u32| (node as usize) < nodes;
    let worth = edges.iter().filter(|(a, b, weight)| a != b && is_there(*a) && is_there(*b) && 0 < *weight);
    let mut forest = AlternatingForest::new(
        nodes,
        worth.map(|&(a, b, weight)| (a as usize, b as usize, weight.min(EDGE_WEIGHT_MAX))),
    );
    forest.find_maximum_matching();
    (0..nodes).map(|node| forest.partner(node).map(|partner| partner as u32)).collect()
}

#[cfg(test)]
mod tests;
