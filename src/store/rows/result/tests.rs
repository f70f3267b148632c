//! What goes into a result's row comes out of it, to the last bit.

use proptest::prelude::*;

use super::*;
use crate::domain::id::{RulesetHash, UserKey};
use crate::domain::queue::ticket::Rated;
use crate::domain::result::{Change, Placed, RatingChange, Report, Satisfaction, Unrated, Wanted};
use crate::domain::time::UnixMs;
use crate::store::queues::RatingRow;
use crate::store::rows::queue_user::{change_checksum, rating_checksum, score_checksum};
use crate::store::rows::tests::{key, number, text};

fn any_number() -> impl Strategy<Value = f64> {
    prop_oneof![8 => number(), 1 => Just(f64::NAN), 1 => Just(1.0 / 3.0)]
}

fn moment() -> impl Strategy<Value = UnixMs> {
    (0_u64..1 << 60).prop_map(UnixMs)
}

fn rated() -> impl Strategy<Value = Rated> {
    (any_number(), any_number()).prop_map(|(rating, deviation)| Rated { rating, deviation })
}

fn wanted() -> impl Strategy<Value = Wanted> {
    let lists = (prop::collection::vec(any_number(), 0..3), prop::collection::vec(any::<u64>(), 0..3));
    let trips = prop::collection::vec(prop::option::of((0_u16..9_000).prop_map(f32::from)), 0..3);
    (any_number(), any_number(), lists, trips, prop::option::of(text())).prop_map(
        |(quality, gap, (chances, waits_ms), round_trips_ms, region)| Wanted {
            quality,
            chances,
            gap,
            waits_ms,
            round_trips_ms,
            region,
        },
    )
}

fn result() -> impl Strategy<Value = MatchResult> {
    let users = || prop::collection::vec(key(), 0..3);
    let side = (any::<u16>(), users(), any::<u32>()).prop_map(|(team, users, rank)| Placed { team, users, rank });
    let change = (key(), rated(), rated()).prop_map(|(user, before, after)| Change { user, before, after });
    let unrated = prop::sample::select(vec![Unrated::NoSystem, Unrated::OneSide, Unrated::Disconnected]);
    let names = (any::<[u8; 16]>(), any::<u32>(), any::<u64>(), any::<u32>(), any::<[u8; 16]>());
    let moments = (moment(), moment(), any::<Option<u64>>());
    let lists = (prop::collection::vec(side, 0..3), users(), prop::collection::vec(change, 0..3));
    (names, moments, lists, prop::option::of(unrated), wanted()).prop_map(
        |(
            (id, set, silo, hash, payload),
            (began, reported, duration_ms),
            (sides, disconnected, changes),
            unrated,
            wanted,
        )| {
            let report = Report {
                match_id: MatchId::from_bytes(id),
                set_id: SetId(set),
                silo: SiloId(silo),
                hash: RulesetHash(hash),
                sides,
                disconnected,
                began,
                duration_ms,
                wanted,
            };
            MatchResult { report, payload, reported, changes, unrated }
        },
    )
}

proptest! {
    /// `Debug` tells -0.0 from 0.0, and what is no number from itself, which `==` does not.
    #[test]
    fn a_result_that_goes_in_comes_out(result in result()) {
        let row = ResultRow::of(&result);
        let sum = row.checksum();
        let read = row.clone().result().unwrap();
        prop_assert_eq!(format!("{read:?}"), format!("{:?}", Arc::new(result)));
        prop_assert_eq!(ResultRow::of(&read).checksum(), sum);
    }
}

/// R16: every column of every row counts.
#[test]
fn every_column_changes_the_checksum() {
    let row = ResultRow { id: [1; 16], silo_id: 2, set_id: 3, reported_ms: 4, payload: [5; 16], body: "{}".into() };
    let others = [
        ResultRow { id: [9; 16], ..row.clone() },
        ResultRow { silo_id: 9, ..row.clone() },
        ResultRow { set_id: 9, ..row.clone() },
        ResultRow { reported_ms: 9, ..row.clone() },
        ResultRow { payload: [9; 16], ..row.clone() },
        ResultRow { body: "[]".into(), ..row.clone() },
    ];
    others.iter().for_each(|other| assert_ne!(other.checksum(), row.checksum(), "{other:?}"));

    let rated = |rating| Rated { rating, deviation: 2.0 };
    let change = RatingChange {
        user: UserKey::from_bytes([1; 16]),
        set_id: SetId(2),
        number: 3,
        match_id: MatchId::from_bytes([4; 16]),
        at: UnixMs(5),
        rank: 6,
        sides: 7,
        before: rated(8.0),
        after: rated(9.0),
    };
    let others = [
        RatingChange { user: UserKey::from_bytes([9; 16]), ..change },
        RatingChange { set_id: SetId(9), ..change },
        RatingChange { number: 9, ..change },
        RatingChange { match_id: MatchId::from_bytes([9; 16]), ..change },
        RatingChange { at: UnixMs(9), ..change },
        RatingChange { rank: 9, ..change },
        RatingChange { sides: 9, ..change },
        RatingChange { before: rated(1.0), ..change },
        RatingChange { after: rated(1.0), ..change },
    ];
    others.iter().for_each(|other| assert_ne!(change_checksum(other), change_checksum(&change), "{other:?}"));

    let (id, user) = (MatchId::from_bytes([1; 16]), UserKey::from_bytes([2; 16]));
    let sum = score_checksum(id, user, 3, UnixMs(4));
    assert_ne!(score_checksum(MatchId::from_bytes([9; 16]), user, 3, UnixMs(4)), sum);
    assert_ne!(score_checksum(id, UserKey::from_bytes([9; 16]), 3, UnixMs(4)), sum);
    assert_ne!(score_checksum(id, user, 4, UnixMs(4)), sum);
    assert_ne!(score_checksum(id, user, 3, UnixMs(5)), sum);
}

/// The sum of a row of before, by the code of before.
const AS_BEFORE: i64 = -4_550_200_178_181_031_199;

/// R12: rows that were written before there were streaks keep their sums; one that has any does not.
#[test]
fn what_came_later_counts_when_it_says_anything() {
    let row = RatingRow {
        user: UserKey::from_bytes([1; 16]),
        set_id: SetId(2),
        rated: Rated { rating: 3.0, deviation: 4.0 },
        volatility: 5.0,
        matches: 6,
        last: UnixMs(7),
        streak: 0,
        satisfaction: Satisfaction::default(),
        played: 0,
    };
    assert_eq!(rating_checksum(&row), AS_BEFORE, "as the code before had it");
    let all = Satisfaction { abandoned: 1, scores: 1, score_sum: 1 };
    let others = [
        RatingRow { streak: -1, ..row },
        RatingRow { satisfaction: Satisfaction { abandoned: 1, ..row.satisfaction }, ..row },
        RatingRow { satisfaction: Satisfaction { scores: 1, ..row.satisfaction }, ..row },
        RatingRow { satisfaction: Satisfaction { score_sum: 1, ..row.satisfaction }, ..row },
        RatingRow { satisfaction: all, ..row },
        RatingRow { played: 1, ..row },
        RatingRow { played: 1, satisfaction: all, ..row },
    ];
    let mut sums: Vec<i64> = others.iter().chain([&row]).map(rating_checksum).collect();
    sums.sort_unstable();
    sums.dedup();
    assert_eq!(sums.len(), 8);
}
