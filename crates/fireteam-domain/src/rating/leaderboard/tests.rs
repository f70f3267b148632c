//! Leaderboard compared with a sorted list.

use proptest::prelude::*;

use super::*;

/// Few different ratings, so that ties occur, and few users, so that users recur.
fn any_entry() -> impl Strategy<Value = LeaderboardEntry> {
    let ratings = vec![f64::NEG_INFINITY, -1.5, -0.0, 0.0, 1.0, 1.0 + f64::EPSILON, 2.0, f64::INFINITY, f64::NAN];
    (prop::sample::select(ratings), 0..40_u8).prop_map(|(rating, user)| LeaderboardEntry {
        conservative_rating: rating,
        user: UserKey::from_bytes([user; 16]),
    })
}

#[derive(Clone, Debug)]
enum LeaderboardOperation {
    Insert(LeaderboardEntry),
    Remove(LeaderboardEntry),
}

fn any_operation() -> impl Strategy<Value = LeaderboardOperation> {
    prop_oneof![3 => any_entry().prop_map(LeaderboardOperation::Insert), 2 => any_entry().prop_map(LeaderboardOperation::Remove)]
}

/// Entry as bits, so that NaN equals itself.
fn bit_pattern(entry: &LeaderboardEntry) -> (u64, UserKey) {
    (entry.conservative_rating.to_bits(), entry.user)
}

fn assert_equals_sorted_list(leaderboard: &Leaderboard, list: &[LeaderboardEntry], query: &LeaderboardEntry) {
    assert_eq!((leaderboard.len(), leaderboard.is_empty()), (list.len(), list.is_empty()));
    let index = list.partition_point(|known| known.cmp_best_first(query) == Ordering::Less);
    assert_eq!(leaderboard.index_of(query), index);
    let better = list
        .iter()
        .filter(|known| query.conservative_rating.total_cmp(&known.conservative_rating) == Ordering::Less)
        .count();
    assert_eq!(leaderboard.index_of_rating(query.conservative_rating), better);
    let actual: Vec<_> = leaderboard.iter_from(index).map(|(index, entry)| (index, bit_pattern(&entry))).collect();
    let expected: Vec<_> =
        list.iter().enumerate().skip(index).map(|(index, entry)| (index, bit_pattern(entry))).collect();
    assert_eq!(actual, expected);
    assert_eq!(leaderboard.iter_from(list.len()).count() + leaderboard.iter_from(list.len() + 7).count(), 0);
}

proptest! {
    /// S2-3: after any inserts and removals, the leaderboard has the order of a sorted list.
    #[test]
    fn leaderboard_order_equals_a_sorted_list(operations in prop::collection::vec(any_operation(), 0..200), query in any_entry()) {
        let (mut leaderboard, mut list) = (Leaderboard::default(), Vec::<LeaderboardEntry>::new());
        for operation in operations {
            match operation {
                LeaderboardOperation::Insert(entry) => {
                    let position = list.binary_search_by(|known| known.cmp_best_first(&entry));
                    assert_eq!(leaderboard.insert(entry), position.is_err());
                    if let Err(position) = position {
                        list.insert(position, entry);
                    }
                }
                LeaderboardOperation::Remove(entry) => {
                    let position = list.binary_search_by(|known| known.cmp_best_first(&entry));
                    assert_eq!(leaderboard.remove(&entry), position.is_ok());
                    if let Ok(position) = position {
                        list.remove(position);
                    }
                }
            }
            assert_equals_sorted_list(&leaderboard, &list, &query);
        }
        assert_equals_sorted_list(&Leaderboard::from_entries(list.iter().rev().copied().collect()), &list, &query);
    }
}

/// Thousands of inserts split blocks, moves keep them balanced, and removals merge them.
#[test]
fn leaderboard_order_survives_block_splits_and_merges() {
    let user = |n: u32| UserKey::from_name(&n.to_string());
    let rating = |n: u32, round: u32| f64::from(n.wrapping_mul(2_654_435_761).wrapping_add(round * 7_919) % 1_000);
    const USERS: u32 = 5_000;
    let mut leaderboard = Leaderboard::default();
    let entry_in_round = |n, round| LeaderboardEntry { conservative_rating: rating(n, round), user: user(n) };
    (0..USERS).for_each(|n| assert!(leaderboard.insert(entry_in_round(n, 0))));
    for round in 1..4 {
        for n in 0..USERS {
            assert!(leaderboard.remove(&entry_in_round(n, round - 1)) && leaderboard.insert(entry_in_round(n, round)));
        }
    }
    let mut list: Vec<LeaderboardEntry> = (0..USERS).map(|n| entry_in_round(n, 3)).collect();
    list.sort_unstable_by(LeaderboardEntry::cmp_best_first);
    (0..USERS).step_by(37).for_each(|n| assert_equals_sorted_list(&leaderboard, &list, &entry_in_round(n, 3)));
    for n in (0..USERS).filter(|n| n % 100 != 0) {
        assert!(leaderboard.remove(&entry_in_round(n, 3)));
    }
    list.retain(|entry| (0..USERS).step_by(100).any(|n| user(n) == entry.user));
    assert_equals_sorted_list(&leaderboard, &list, &entry_in_round(1, 3));
    assert!(leaderboard.blocks.len() < 3, "{} blocks for fifty entries", leaderboard.blocks.len());
}
