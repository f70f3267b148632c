//! What goes into a result's row comes out of it, to the last bit.

use proptest::prelude::*;

use super::*;
use crate::domain::id::{RulesetHash, UserKey};
use crate::domain::match_result::{
    MatchExpectation, RatingHistoryEntry, RatingUpdate, ResultReport, SatisfactionStats, SideRank, UnratedReason,
};
use crate::domain::queue::ticket::PlayerRating;
use crate::domain::time::UnixMs;
use crate::store::queues::RatingRow;
use crate::store::rows::queue_checksums::{feedback_checksum, rating_change_checksum, rating_checksum};
use crate::store::rows::tests::{key, number, text};

fn any_number() -> impl Strategy<Value = f64> {
    prop_oneof![8 => number(), 1 => Just(f64::NAN), 1 => Just(1.0 / 3.0)]
}

fn moment() -> impl Strategy<Value = UnixMs> {
    (0_u64..1 << 60).prop_map(UnixMs)
}

fn rated() -> impl Strategy<Value = PlayerRating> {
    (any_number(), any_number()).prop_map(|(rating, deviation)| PlayerRating { rating, deviation })
}

fn wanted() -> impl Strategy<Value = MatchExpectation> {
    let lists = (prop::collection::vec(any_number(), 0..3), prop::collection::vec(any::<u64>(), 0..3));
    let trips = prop::collection::vec(prop::option::of((0_u16..9_000).prop_map(f32::from)), 0..3);
    (any_number(), any_number(), lists, trips, prop::option::of(text())).prop_map(
        |(quality, gap, (chances, waits_ms), round_trips_ms, region)| MatchExpectation {
            match_quality: quality,
            win_probabilities: chances,
            max_rating_gap: gap,
            ticket_waits_ms: waits_ms,
            ticket_round_trips_ms: round_trips_ms,
            region,
        },
    )
}

fn result() -> impl Strategy<Value = MatchResult> {
    let users = || prop::collection::vec(key(), 0..3);
    let side = (any::<u16>(), users(), any::<u32>()).prop_map(|(team, users, rank)| SideRank {
        team_index: team,
        users,
        rank,
    });
    let change = (key(), rated(), rated()).prop_map(|(user, before, after)| RatingUpdate { user, before, after });
    let unrated = prop::sample::select(vec![
        UnratedReason::NoRatingSystem,
        UnratedReason::SingleSide,
        UnratedReason::PlayerLeftEarly,
    ]);
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
            let report = ResultReport {
                match_id: MatchId::from_bytes(id),
                set_id: SetId(set),
                silo: SiloId(silo),
                ruleset_hash: RulesetHash(hash),
                sides,
                left_early: disconnected,
                started_at: began,
                duration_ms,
                expectation: wanted,
            };
            MatchResult {
                report,
                report_digest: payload,
                reported_at: reported,
                rating_updates: changes,
                unrated_reason: unrated,
            }
        },
    )
}

proptest! {
    /// `Debug` tells -0.0 from 0.0, and what is no number from itself, which `==` does not.
    #[test]
    fn a_result_that_goes_in_comes_out(result in result()) {
        let row = ResultRow::encode(&result);
        let sum = row.checksum();
        let read = row.clone().decode().unwrap();
        prop_assert_eq!(format!("{read:?}"), format!("{:?}", Arc::new(result)));
        prop_assert_eq!(ResultRow::encode(&read).checksum(), sum);
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

    let rated = |rating| PlayerRating { rating, deviation: 2.0 };
    let change = RatingHistoryEntry {
        user: UserKey::from_bytes([1; 16]),
        set_id: SetId(2),
        rated_match_number: 3,
        match_id: MatchId::from_bytes([4; 16]),
        reported_at: UnixMs(5),
        rank: 6,
        side_count: 7,
        before: rated(8.0),
        after: rated(9.0),
    };
    let others = [
        RatingHistoryEntry { user: UserKey::from_bytes([9; 16]), ..change },
        RatingHistoryEntry { set_id: SetId(9), ..change },
        RatingHistoryEntry { rated_match_number: 9, ..change },
        RatingHistoryEntry { match_id: MatchId::from_bytes([9; 16]), ..change },
        RatingHistoryEntry { reported_at: UnixMs(9), ..change },
        RatingHistoryEntry { rank: 9, ..change },
        RatingHistoryEntry { side_count: 9, ..change },
        RatingHistoryEntry { before: rated(1.0), ..change },
        RatingHistoryEntry { after: rated(1.0), ..change },
    ];
    others
        .iter()
        .for_each(|other| assert_ne!(rating_change_checksum(other), rating_change_checksum(&change), "{other:?}"));

    let (id, user) = (MatchId::from_bytes([1; 16]), UserKey::from_bytes([2; 16]));
    let sum = feedback_checksum(id, user, 3, UnixMs(4));
    assert_ne!(feedback_checksum(MatchId::from_bytes([9; 16]), user, 3, UnixMs(4)), sum);
    assert_ne!(feedback_checksum(id, UserKey::from_bytes([9; 16]), 3, UnixMs(4)), sum);
    assert_ne!(feedback_checksum(id, user, 4, UnixMs(4)), sum);
    assert_ne!(feedback_checksum(id, user, 3, UnixMs(5)), sum);
}

/// The sum of a row of before, by the code of before.
const AS_BEFORE: i64 = -4_550_200_178_181_031_199;

/// R12: rows that were written before there were streaks keep their sums; one that has any does not.
#[test]
fn what_came_later_counts_when_it_says_anything() {
    let row = RatingRow {
        user: UserKey::from_bytes([1; 16]),
        set_id: SetId(2),
        rating: PlayerRating { rating: 3.0, deviation: 4.0 },
        volatility: 5.0,
        match_count: 6,
        last_match_at: UnixMs(7),
        streak: 0,
        satisfaction: SatisfactionStats::default(),
        periods_played: 0,
    };
    assert_eq!(rating_checksum(&row), AS_BEFORE, "as the code before had it");
    let all = SatisfactionStats { abandoned_matches: 1, feedback_count: 1, feedback_sum: 1 };
    let others = [
        RatingRow { streak: -1, ..row },
        RatingRow { satisfaction: SatisfactionStats { abandoned_matches: 1, ..row.satisfaction }, ..row },
        RatingRow { satisfaction: SatisfactionStats { feedback_count: 1, ..row.satisfaction }, ..row },
        RatingRow { satisfaction: SatisfactionStats { feedback_sum: 1, ..row.satisfaction }, ..row },
        RatingRow { satisfaction: all, ..row },
        RatingRow { periods_played: 1, ..row },
        RatingRow { periods_played: 1, satisfaction: all, ..row },
    ];
    let mut sums: Vec<i64> = others.iter().chain([&row]).map(rating_checksum).collect();
    sums.sort_unstable();
    sums.dedup();
    assert_eq!(sums.len(), 8);
}
