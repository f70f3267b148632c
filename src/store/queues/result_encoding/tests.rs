//! Round trips of result rows, and checksums of results, rating changes and feedback.

use proptest::prelude::*;

use super::*;
use crate::domain::id::{RatingKey, RulesetHash, UserKey};
use crate::domain::match_result::{
    MatchForecast, RatingHistoryEntry, RatingUpdate, ResultReport, SideRank, UnratedReason, UserSatisfactionStatistics,
};
use crate::domain::queue::ticket::PlayerRating;
use crate::domain::time::UnixMs;
use crate::store::queues::RatingRow;
use crate::store::queues::row_checksums::{feedback_checksum, rating_change_checksum, rating_checksum};
use crate::store::rows::tests::{any_text, any_user_key, finite_number};

fn number_or_nan() -> impl Strategy<Value = f64> {
    prop_oneof![8 => finite_number(), 1 => Just(f64::NAN), 1 => Just(1.0 / 3.0)]
}

fn any_time() -> impl Strategy<Value = UnixMs> {
    (0_u64..1 << 60).prop_map(UnixMs)
}

fn any_rating() -> impl Strategy<Value = PlayerRating> {
    (number_or_nan(), number_or_nan()).prop_map(|(rating, deviation)| PlayerRating { rating, deviation })
}

fn any_expectation() -> impl Strategy<Value = MatchForecast> {
    let lists = (prop::collection::vec(number_or_nan(), 0..3), prop::collection::vec(any::<u64>(), 0..3));
    let ticket_round_trips_ms = prop::collection::vec(prop::option::of((0_u16..9_000).prop_map(f32::from)), 0..3);
    (number_or_nan(), number_or_nan(), lists, ticket_round_trips_ms, prop::option::of(any_text())).prop_map(
        |(match_quality, max_rating_gap, (win_probabilities, ticket_waits_ms), ticket_round_trips_ms, region)| {
            MatchForecast {
                match_quality,
                win_probabilities,
                max_rating_gap,
                ticket_waits_ms,
                ticket_round_trips_ms,
                region,
            }
        },
    )
}

fn any_result() -> impl Strategy<Value = MatchResult> {
    let users = || prop::collection::vec(any_user_key(), 0..3);
    let side = (any::<u16>(), users(), any::<u32>()).prop_map(|(team, users, rank)| SideRank {
        team_index: team,
        users,
        rank,
    });
    let change = (any_user_key(), any_rating(), any_rating()).prop_map(|(user, before, after)| RatingUpdate {
        user,
        before,
        after,
        category_after: None,
    });
    let unrated_reason = prop::sample::select(vec![
        UnratedReason::NoRatingSystem,
        UnratedReason::SingleSide,
        UnratedReason::PlayerLeftEarly,
        UnratedReason::Disputed,
    ]);
    let columns = (any::<[u8; 16]>(), any::<u32>(), any::<u64>(), any::<u32>(), any::<[u8; 16]>());
    let times = (any_time(), any_time(), any::<Option<u64>>());
    let special_users = (users(), users(), users());
    let lists = (prop::collection::vec(side, 0..3), special_users, prop::collection::vec(change, 0..3));
    let reasons = (prop::option::of(unrated_reason), any::<Option<u16>>());
    (columns, times, lists, reasons, any_expectation()).prop_map(
        |(
            (id, set_id, silo, ruleset_hash, report_digest),
            (started_at, reported_at, duration_ms),
            (sides, (left_early, left_by_call, disputing_users), mut rating_updates),
            (unrated_reason, category),
            forecast,
        )| {
            let report = ResultReport {
                match_id: MatchId::from_bytes(id),
                set_id: SetId(set_id),
                silo: SiloId(silo),
                ruleset_hash: RulesetHash(ruleset_hash),
                sides,
                left_early,
                always_rated_leavers: left_by_call,
                disputing_users,
                started_at,
                duration_ms,
                forecast,
            };
            rating_updates.iter_mut().for_each(|update| update.category_after = category);
            MatchResult { report, report_digest, reported_at, rating_updates, unrated_reason }
        },
    )
}

proptest! {
    /// `Debug` distinguishes -0.0 from 0.0 and shows NaN; `==` does neither.
    #[test]
    fn result_row_round_trips(result in any_result()) {
        let row = ResultRow::encode(&result);
        let checksum = row.checksum();
        let decoded = row.clone().decode().unwrap();
        prop_assert_eq!(format!("{decoded:?}"), format!("{:?}", Arc::new(result)));
        prop_assert_eq!(ResultRow::encode(&decoded).checksum(), checksum);
    }
}

/// R16: the checksum covers every column of every row.
#[test]
fn result_checksums_cover_every_column() {
    let row =
        ResultRow { id: [1; 16], silo_id: 2, set_id: 3, reported_ms: 4, request_digest: [5; 16], body: "{}".into() };
    let others = [
        ResultRow { id: [9; 16], ..row.clone() },
        ResultRow { silo_id: 9, ..row.clone() },
        ResultRow { set_id: 9, ..row.clone() },
        ResultRow { reported_ms: 9, ..row.clone() },
        ResultRow { request_digest: [9; 16], ..row.clone() },
        ResultRow { body: "[]".into(), ..row.clone() },
    ];
    others.iter().for_each(|other| assert_ne!(other.checksum(), row.checksum(), "{other:?}"));

    let estimate = |rating| PlayerRating { rating, deviation: 2.0 };
    let change = RatingHistoryEntry {
        user: UserKey::from_bytes([1; 16]),
        key: RatingKey::of_set_on_first_scale(SetId(2)),
        rated_match_number: 3,
        match_id: MatchId::from_bytes([4; 16]),
        reported_at: UnixMs(5),
        rank: 6,
        side_count: 7,
        before: estimate(8.0),
        after: estimate(9.0),
    };
    let others = [
        RatingHistoryEntry { user: UserKey::from_bytes([9; 16]), ..change },
        RatingHistoryEntry { key: RatingKey::of_set_on_first_scale(SetId(9)), ..change },
        RatingHistoryEntry { key: RatingKey::of_pool_and_scale_digest(2), ..change },
        RatingHistoryEntry { rated_match_number: 9, ..change },
        RatingHistoryEntry { match_id: MatchId::from_bytes([9; 16]), ..change },
        RatingHistoryEntry { reported_at: UnixMs(9), ..change },
        RatingHistoryEntry { rank: 9, ..change },
        RatingHistoryEntry { side_count: 9, ..change },
        RatingHistoryEntry { before: estimate(1.0), ..change },
        RatingHistoryEntry { after: estimate(1.0), ..change },
    ];
    others
        .iter()
        .for_each(|other| assert_ne!(rating_change_checksum(other), rating_change_checksum(&change), "{other:?}"));

    let (id, user) = (MatchId::from_bytes([1; 16]), UserKey::from_bytes([2; 16]));
    let checksum = feedback_checksum(id, user, 3, UnixMs(4));
    assert_ne!(feedback_checksum(MatchId::from_bytes([9; 16]), user, 3, UnixMs(4)), checksum);
    assert_ne!(feedback_checksum(id, UserKey::from_bytes([9; 16]), 3, UnixMs(4)), checksum);
    assert_ne!(feedback_checksum(id, user, 4, UnixMs(4)), checksum);
    assert_ne!(feedback_checksum(id, user, 3, UnixMs(5)), checksum);
}

/// R12: after a rollback, version 0.2.0 writes the row again with its own checksum, and leaves the number as it is.
#[test]
fn rating_checksum_does_not_cover_disputed_matches() {
    let satisfaction = UserSatisfactionStatistics { abandoned_matches: 2, ..UserSatisfactionStatistics::default() };
    let row = new_rating(satisfaction);
    let disputed = new_rating(UserSatisfactionStatistics { disputed_matches: 3, ..satisfaction });
    assert_eq!(rating_checksum(&disputed), rating_checksum(&row));
}

fn new_rating(satisfaction: UserSatisfactionStatistics) -> RatingRow {
    RatingRow {
        user: UserKey::from_bytes([1; 16]),
        key: RatingKey::of_set_on_first_scale(SetId(2)),
        rating: PlayerRating { rating: 3.0, deviation: 4.0 },
        volatility: 5.0,
        rated_match_count: 6,
        last_match_at: UnixMs(7),
        streak: 0,
        satisfaction,
        last_match_active_period: 0,
    }
}

/// Checksum of a rating row as computed before streaks existed.
const CHECKSUM_BEFORE_STREAKS: i64 = -4_550_200_178_181_031_199;

/// R12: rows without a streak keep their old checksum; a value in a later column changes it.
#[test]
fn rating_checksum_ignores_later_columns_while_they_are_zero() {
    let row = new_rating(UserSatisfactionStatistics::default());
    assert_eq!(rating_checksum(&row), CHECKSUM_BEFORE_STREAKS, "the old checksum");
    let all = UserSatisfactionStatistics {
        abandoned_matches: 1,
        disputed_matches: 1,
        given_feedback_count: 1,
        given_feedback_sum: 1,
    };
    let others = [
        RatingRow { streak: -1, ..row },
        RatingRow { satisfaction: UserSatisfactionStatistics { abandoned_matches: 1, ..row.satisfaction }, ..row },
        RatingRow { satisfaction: UserSatisfactionStatistics { given_feedback_count: 1, ..row.satisfaction }, ..row },
        RatingRow { satisfaction: UserSatisfactionStatistics { given_feedback_sum: 1, ..row.satisfaction }, ..row },
        RatingRow { satisfaction: all, ..row },
        RatingRow { last_match_active_period: 1, ..row },
        RatingRow { last_match_active_period: 1, satisfaction: all, ..row },
    ];
    let mut checksums: Vec<i64> = others.iter().chain([&row]).map(rating_checksum).collect();
    checksums.sort_unstable();
    checksums.dedup();
    assert_eq!(checksums.len(), 8, "seven different rows and the row itself");
}
