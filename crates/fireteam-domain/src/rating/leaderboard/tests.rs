//! The leaderboard against a sorted list.

use proptest::prelude::*;

use super::*;

/// Few scores, so that many are equal, and few users, so that they come again.
fn any_entry() -> impl Strategy<Value = LeaderboardEntry> {
    let scores = vec![f64::NEG_INFINITY, -1.5, -0.0, 0.0, 1.0, 1.0 + f64::EPSILON, 2.0, f64::INFINITY, f64::NAN];
    (prop::sample::select(scores), 0..40_u8).prop_map(|(score, user)| LeaderboardEntry {
        conservative_rating: score,
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

/// As bits, so that what is no number equals itself.
fn bit_pattern(standing: &LeaderboardEntry) -> (u64, UserKey) {
    (standing.conservative_rating.to_bits(), standing.user)
}

fn assert_equals_sorted_list(board: &Leaderboard, list: &[LeaderboardEntry], asked: &LeaderboardEntry) {
    assert_eq!((board.len(), board.is_empty()), (list.len(), list.is_empty()));
    let place = list.partition_point(|known| known.cmp_best_first(asked) == Ordering::Less);
    assert_eq!(board.index_of(asked), place);
    let better = list
        .iter()
        .filter(|known| asked.conservative_rating.total_cmp(&known.conservative_rating) == Ordering::Less)
        .count();
    assert_eq!(board.index_of_rating(asked.conservative_rating), better);
    let there: Vec<_> = board.iter_from(place).map(|(at, it)| (at, bit_pattern(&it))).collect();
    let expected: Vec<_> = list.iter().enumerate().skip(place).map(|(at, it)| (at, bit_pattern(it))).collect();
    assert_eq!(there, expected);
    assert_eq!(board.iter_from(list.len()).count() + board.iter_from(list.len() + 7).count(), 0);
}

proptest! {
    /// S2-3: whatever comes and goes, everybody stands where a sorted list has them.
    #[test]
    fn it_stands_as_a_sorted_list_does(steps in prop::collection::vec(any_operation(), 0..200), asked in any_entry()) {
        let (mut board, mut list) = (Leaderboard::default(), Vec::<LeaderboardEntry>::new());
        for step in steps {
            match step {
                LeaderboardOperation::Insert(it) => {
                    let at = list.binary_search_by(|known| known.cmp_best_first(&it));
                    assert_eq!(board.insert(it), at.is_err());
                    if let Err(at) = at {
                        list.insert(at, it);
                    }
                }
                LeaderboardOperation::Remove(it) => {
                    let at = list.binary_search_by(|known| known.cmp_best_first(&it));
                    assert_eq!(board.remove(&it), at.is_ok());
                    if let Ok(at) = at {
                        list.remove(at);
                    }
                }
            }
            assert_equals_sorted_list(&board, &list, &asked);
        }
        assert_equals_sorted_list(&Leaderboard::from_entries(list.iter().rev().copied().collect()), &list, &asked);
    }
}

/// Thousands come, so that blocks are split, move about, and go, so that blocks are merged.
#[test]
fn leaderboard_order_survives_block_splits_and_merges() {
    let user = |n: u32| UserKey::from_name(&n.to_string());
    let score = |n: u32, round: u32| f64::from(n.wrapping_mul(2_654_435_761).wrapping_add(round * 7_919) % 1_000);
    const USERS: u32 = 5_000;
    let mut board = Leaderboard::default();
    let standing = |n, round| LeaderboardEntry { conservative_rating: score(n, round), user: user(n) };
    (0..USERS).for_each(|n| assert!(board.insert(standing(n, 0))));
    for round in 1..4 {
        for n in 0..USERS {
            assert!(board.remove(&standing(n, round - 1)) && board.insert(standing(n, round)));
        }
    }
    let mut list: Vec<LeaderboardEntry> = (0..USERS).map(|n| standing(n, 3)).collect();
    list.sort_unstable_by(LeaderboardEntry::cmp_best_first);
    (0..USERS).step_by(37).for_each(|n| assert_equals_sorted_list(&board, &list, &standing(n, 3)));
    for n in (0..USERS).filter(|n| n % 100 != 0) {
        assert!(board.remove(&standing(n, 3)));
    }
    list.retain(|it| (0..USERS).step_by(100).any(|n| user(n) == it.user));
    assert_equals_sorted_list(&board, &list, &standing(1, 3));
    assert!(board.blocks.len() < 3, "{} blocks for fifty", board.blocks.len());
}
