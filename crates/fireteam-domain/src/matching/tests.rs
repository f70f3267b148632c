//! Matchings compared with an exhaustive search on small graphs.

use proptest::prelude::*;

use super::*;

/// Maximum total weight by dynamic programming over sets of nodes: the first node stays single or takes another one.
fn exhaustive_maximum_weight(nodes: usize, edges: &[(u32, u32, i64)]) -> i64 {
    let mut best = vec![0_i64; 1 << nodes];
    for set in 1_usize..1 << nodes {
        let first = set.trailing_zeros();
        let rest = set & !(1 << first);
        best[set] = best[rest];
        for &(a, b, weight) in edges {
            let other = if a == first { b } else { a };
            if (a == first || b == first) && rest >> other & 1 == 1 {
                best[set] = best[set].max(weight + best[rest & !(1 << other)]);
            }
        }
    }
    best[(1 << nodes) - 1]
}

/// Weight of a matching; panics if it is invalid.
fn matching_weight(edges: &[(u32, u32, i64)], matching: &[Option<u32>]) -> i64 {
    let pairs = (0..).zip(matching).filter_map(|(node, partner)| Some((node, (*partner)?)));
    let weights = pairs.map(|(node, partner)| {
        assert_eq!(matching[partner as usize], Some(node), "{matching:?}");
        let joins = |(a, b, _): &&(u32, u32, i64)| (*a, *b) == (node, partner) || (*b, *a) == (node, partner);
        edges.iter().filter(joins).map(|(_, _, weight)| *weight).max().expect("matched nodes have an edge")
    });
    weights.sum::<i64>() / 2
}

#[test]
fn matching_is_empty_without_usable_edges() {
    assert_eq!(maximum_weight_matching(0, &[]), []);
    assert_eq!(maximum_weight_matching(2, &[]), [None, None]);
    assert_eq!(maximum_weight_matching(2, &[(0, 1, 0), (0, 1, -5), (0, 0, 9), (1, 7, 9)]), [None, None]);
}

#[test]
fn matching_prefers_one_heavy_pair_to_two_light_ones() {
    assert_eq!(maximum_weight_matching(4, &[(0, 1, 5), (1, 2, 11), (2, 3, 5)]), [None, Some(2), Some(1), None]);
    assert_eq!(maximum_weight_matching(4, &[(0, 1, 6), (1, 2, 11), (2, 3, 6)]), [Some(1), Some(0), Some(3), Some(2)]);
}

#[test]
fn matching_uses_the_heaviest_of_parallel_edges() {
    let edges = [(0, 1, 3), (1, 0, 8), (1, 2, 7)];
    assert_eq!(maximum_weight_matching(3, &edges), [Some(1), Some(0), None]);
}

#[test]
fn matching_with_the_largest_weights_does_not_overflow() {
    let edges: Vec<(u32, u32, i64)> = (0..7).flat_map(|a| (0..a).map(move |b| (a, b, i64::MAX))).collect();
    assert_eq!(maximum_weight_matching(7, &edges).iter().flatten().count(), 6);
}

/// Two triangles in a row, each attached to the one before: nested blossoms that are expanded again.
#[test]
fn matching_handles_nested_blossoms() {
    let edges = [
        (0, 1, 45),
        (0, 4, 45),
        (1, 2, 50),
        (2, 3, 45),
        (3, 4, 50),
        (0, 5, 30),
        (2, 8, 35),
        (3, 7, 35),
        (4, 6, 26),
        (8, 9, 5),
    ];
    assert_eq!(matching_weight(&edges, &maximum_weight_matching(10, &edges)), exhaustive_maximum_weight(10, &edges));
}

#[test]
fn matching_is_deterministic() {
    let edges: Vec<(u32, u32, i64)> = (0..40).flat_map(|a| (0..a).map(move |b| (a, b, 1))).collect();
    assert_eq!(maximum_weight_matching(40, &edges), maximum_weight_matching(40, &edges));
}

/// Graphs of up to eleven nodes, with few different weights, so that ties occur, or with many.
fn any_graph() -> impl Strategy<Value = (usize, Vec<(u32, u32, i64)>)> {
    (2_u32..12, prop_oneof![Just(3_i64), Just(12), Just(100_000)]).prop_flat_map(|(nodes, heaviest)| {
        let edge = (0..nodes, 0..nodes, 1..=heaviest);
        (Just(nodes as usize), proptest::collection::vec(edge, 0..45))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn matching_weight_equals_the_exhaustive_maximum((nodes, edges) in any_graph()) {
        let edges: Vec<(u32, u32, i64)> = edges.into_iter().filter(|(a, b, _)| a != b).collect();
        prop_assert_eq!(matching_weight(&edges, &maximum_weight_matching(nodes, &edges)), exhaustive_maximum_weight(nodes, &edges));
    }
}
