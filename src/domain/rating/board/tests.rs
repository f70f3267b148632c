//! The leaderboard against a sorted list.

use proptest::prelude::*;

use super::*;

/// Few scores, so that many are equal, and few users, so that they come again.
fn standing() -> impl Strategy<Value = Standing> {
    let scores = vec![f64::NEG_INFINITY, -1.5, -0.0, 0.0, 1.0, 1.0 + f64::EPSILON, 2.0, f64::INFINITY, f64::NAN];
    (prop::sample::select(scores), 0..40_u8)
        .prop_map(|(score, user)| Standing { score, user: UserKey::from_bytes([user; 16]) })
}

#[derive(Clone, Debug)]
enum Step {
    Insert(Standing),
    Remove(Standing),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![3 => standing().prop_map(Step::Insert), 2 => standing().prop_map(Step::Remove)]
}

/// As bits, so that what is no number equals itself.
fn bits(standing: &Standing) -> (u64, UserKey) {
    (standing.score.to_bits(), standing.user)
}

fn check(board: &Board, list: &[Standing], asked: &Standing) {
    assert_eq!((board.len(), board.is_empty()), (list.len(), list.is_empty()));
    let place = list.partition_point(|known| known.order(asked) == Ordering::Less);
    assert_eq!(board.place(asked), place);
    let better = list.iter().filter(|known| asked.score.total_cmp(&known.score) == Ordering::Less).count();
    assert_eq!(board.place_of_score(asked.score), better);
    let there: Vec<_> = board.from(place).map(|(at, it)| (at, bits(&it))).collect();
    let expected: Vec<_> = list.iter().enumerate().skip(place).map(|(at, it)| (at, bits(it))).collect();
    assert_eq!(there, expected);
    assert_eq!(board.from(list.len()).count() + board.from(list.len() + 7).count(), 0);
}

proptest! {
    /// S2-3: whatever comes and goes, everybody stands where a sorted list has them.
    #[test]
    fn it_stands_as_a_sorted_list_does(steps in prop::collection::vec(step(), 0..200), asked in standing()) {
        let (mut board, mut list) = (Board::default(), Vec::<Standing>::new());
        for step in steps {
            match step {
                Step::Insert(it) => {
                    let at = list.binary_search_by(|known| known.order(&it));
                    assert_eq!(board.insert(it), at.is_err());
                    if let Err(at) = at {
                        list.insert(at, it);
                    }
                }
                Step::Remove(it) => {
                    let at = list.binary_search_by(|known| known.order(&it));
                    assert_eq!(board.remove(&it), at.is_ok());
                    if let Ok(at) = at {
                        list.remove(at);
                    }
                }
            }
            check(&board, &list, &asked);
        }
        check(&Board::of(list.iter().rev().copied().collect()), &list, &asked);
    }
}

/// Thousands come, so that blocks are split, move about, and go, so that blocks are merged.
#[test]
fn many_come_move_and_go() {
    let user = |n: u32| UserKey::of(&n.to_string());
    let score = |n: u32, round: u32| f64::from(n.wrapping_mul(2_654_435_761).wrapping_add(round * 7_919) % 1_000);
    const USERS: u32 = 5_000;
    let mut board = Board::default();
    let standing = |n, round| Standing { score: score(n, round), user: user(n) };
    (0..USERS).for_each(|n| assert!(board.insert(standing(n, 0))));
    for round in 1..4 {
        for n in 0..USERS {
            assert!(board.remove(&standing(n, round - 1)) && board.insert(standing(n, round)));
        }
    }
    let mut list: Vec<Standing> = (0..USERS).map(|n| standing(n, 3)).collect();
    list.sort_unstable_by(Standing::order);
    (0..USERS).step_by(37).for_each(|n| check(&board, &list, &standing(n, 3)));
    for n in (0..USERS).filter(|n| n % 100 != 0) {
        assert!(board.remove(&standing(n, 3)));
    }
    list.retain(|it| (0..USERS).step_by(100).any(|n| user(n) == it.user));
    check(&board, &list, &standing(1, 3));
    assert!(board.blocks.len() < 3, "{} blocks for fifty", board.blocks.len());
}
