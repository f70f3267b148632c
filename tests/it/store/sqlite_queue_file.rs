//! Queue rows in the SQLite file: reopening it, and corrupt rows.

use std::path::Path;

use fireteam::domain::id::{RatingKey, RulesetHash, SetId};
use fireteam::domain::match_result::UserSatisfactionStatistics;
use fireteam::domain::ruleset::rating::scale::KeyedRatingSpec;
use fireteam::domain::ruleset::rating::{RatingSpec, RatingSystem};
use fireteam::domain::time::UnixMs;
use fireteam::store::queues::{QueueStore, QueueWrite, RatingRow};
use fireteam::store::sqlite::SqliteStore;
use fireteam::store::{Store, StoreError};
use sqlx::sqlite::SqliteConnection;
use sqlx::{AssertSqlSafe, Connection};

use crate::store::queue_rows::{
    TransitionEffects, ended_stage, enter, first_scale, match_id, new_match, next_version, propose, rating, ticket,
    transition, user,
};

async fn sql(path: &Path, text: &str) {
    let mut connection = SqliteConnection::connect(&format!("sqlite:{}", path.display())).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(text)).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

const ELO: RatingSystem = RatingSystem::Elo { initial: 1500.0, k: 16.0, scale: 400.0 };

/// R12: ratings keep every value when the file is opened again, zero or not, and feedback counts on top of them.
#[tokio::test]
async fn ratings_survive_a_reopened_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let store = SqliteStore::open(&path).await.unwrap();
    let known = RatingRow {
        satisfaction: UserSatisfactionStatistics { given_feedback_count: 1, ..UserSatisfactionStatistics::default() },
        ..rating(1, 1, 1.5)
    };
    store.commit_queues(&[QueueWrite::ImportRatings { rows: vec![known, rating(2, 1, 1.5)] }]).await.unwrap();
    store.close().await;
    let store = SqliteStore::open(&path).await.unwrap();
    assert_eq!(store.purge_and_load_queues(UnixMs(1)).await.unwrap().ratings, [known, rating(2, 1, 1.5)]);
    let counted = RatingRow { last_match_active_period: 3, ..known };
    store.commit_queues(&[QueueWrite::ImportRatings { rows: vec![counted] }]).await.unwrap();
    let feedback = QueueWrite::RecordFeedback {
        match_id: match_id(1),
        ruleset: (SetId(1), RulesetHash(1)),
        user: user(2),
        stars: 4,
        rating: Some(KeyedRatingSpec { key: first_scale(1), spec: RatingSpec::with_defaults(ELO) }),
        now: UnixMs(1),
    };
    store.commit_queues(&[feedback]).await.unwrap();
    store.close().await;
    let store = SqliteStore::open(&path).await.unwrap();
    let ratings = store.purge_and_load_queues(UnixMs(1)).await.unwrap().ratings;
    assert_eq!(ratings[0], counted);
    assert_eq!((ratings[1].satisfaction.given_feedback_count, ratings[1].satisfaction.given_feedback_sum), (1, 4));
}

/// R16: a flipped bit in any row of the queues is detected, and the error names table and column.
#[tokio::test]
async fn queue_row_corruption_names_table_and_column() {
    let folder = tempfile::tempdir().unwrap();
    let cases = [
        ("update ticket set body = replace(body, '2', '3')", "ticket", "checksum"),
        ("update ticket set expires_ms = expires_ms + 1", "ticket", "state_checksum"),
        ("update match set version = version + 1", "match", "checksum"),
        ("update rating set rating = rating + 1", "rating", "checksum"),
        ("update keyed_rating set rating = rating + 1", "keyed_rating", "checksum"),
        ("update ticket_user set exclusive = 1", "ticket_user", "checksum"),
        ("update match_user set match_id = x'01020304050607080102030405060708'", "match_user", "checksum"),
        ("update penalty set cooldown_until_ms = 0", "penalty", "checksum"),
    ];
    for (n, (damage, table, column)) in cases.into_iter().enumerate() {
        let path = folder.path().join(format!("{n}.db"));
        let store = SqliteStore::open(&path).await.unwrap();
        let (first, second) = (new_match(1, 1, &[(1, &[1])]), new_match(2, 1, &[(2, &[2])]));
        let failed = next_version(&second, ended_stage(fireteam::domain::lifecycle::MatchEndReason::Declined));
        let failed = transition(
            failed,
            &TransitionEffects { requeued: vec![(2, 50)], penalized: vec![2], ..TransitionEffects::default() },
        );
        let all = [
            enter(ticket(1, 1, &[1]), 50, 0),
            enter(ticket(2, 1, &[2]), 50, 0),
            propose(first, 1),
            propose(second, 1),
            failed,
            QueueWrite::ImportRatings {
                rows: vec![
                    rating(1, 1, 1.5),
                    RatingRow { key: RatingKey::of_pool_and_scale_digest(7), ..rating(1, 1, 1.5) },
                ],
            },
        ];
        store.commit_queues(&all).await.unwrap();
        drop(store);
        sql(&path, damage).await;
        let store = SqliteStore::open(&path).await.unwrap();
        // Rows that are not loaded are read by an enter.
        let refused = match store.purge_and_load_queues(UnixMs(1)).await {
            Err(refused) => refused,
            Ok(_) => store.commit_queues(&[enter(ticket(9, 2, &[1, 2]), 50, 0)]).await.unwrap_err(),
        };
        match refused {
            StoreError::CorruptRow { table: found, column: at, .. } => assert_eq!((found, at), (table, column)),
            other => panic!("{damage}: {other}"),
        }
    }
}
