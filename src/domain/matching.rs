//! Pairs up the nodes of a graph so that the weights of the pairs add up to as much as can be.

/// A matching of greatest total weight in the graph of `nodes` nodes: each node's partner, if it has one. Every edge joins two
/// nodes, in either order, and says what the pair is worth; of several between the same two the heaviest counts. Edges that are
/// worth 0 or less, from a node to itself, or to a node that is not there, are passed over: they could only add nothing.
///
/// The same edges in the same order give the same matching.
pub fn maximum_weight(nodes: usize, edges: &[(u32, u32, i64)]) -> Vec<Option<u32>> {
    let _ = edges;
    vec![None; nodes]
}
