//! Queue rows in the SQLite file: reopening it, and corrupt rows.

use std::path::Path;

use fireteam::domain::id::SetId;
use fireteam::domain::match_result::SatisfactionStats;
use fireteam::domain::time::UnixMs;
use fireteam::store::queues::{QueueStore, QueueWrite, RatingRow};
use fireteam::store::sqlite::SqliteStore;
use fireteam::store::{Store, StoreError};
use sqlx::sqlite::SqliteConnection;
use sqlx::{AssertSqlSafe, Connection};

use crate::store::queue_rows::{Fates, enter, match_id, move_on, over, play, propose, rating, then, ticket, user};

async fn sql(path: &Path, text: &str) {
    let mut connection = SqliteConnection::connect(&format!("sqlite:{}", path.display())).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(text)).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

/// R12: ratings keep every value when the file is opened again, zero or not, and feedback counts on top of them.
#[tokio::test]
async fn ratings_survive_a_reopened_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let store = SqliteStore::open(&path).await.unwrap();
    let known = RatingRow {
        satisfaction: SatisfactionStats { feedback_count: 1, ..SatisfactionStats::default() },
        ..rating(1, 1, 1.5)
    };
    store.commit_queues(&[QueueWrite::ImportRatings { rows: vec![known, rating(2, 1, 1.5)] }]).await.unwrap();
    store.close().await;
    let store = SqliteStore::open(&path).await.unwrap();
    assert_eq!(store.load_queues(UnixMs(1)).await.unwrap().ratings, [known, rating(2, 1, 1.5)]);
    let counted = RatingRow { active_periods: 3, ..known };
    store.commit_queues(&[QueueWrite::ImportRatings { rows: vec![counted] }]).await.unwrap();
    let feedback = QueueWrite::RecordFeedback {
        match_id: match_id(1),
        set_id: SetId(1),
        user: user(2),
        stars: 4,
        rating_spec: None,
        now: UnixMs(1),
    };
    store.commit_queues(&[feedback]).await.unwrap();
    store.close().await;
    let store = SqliteStore::open(&path).await.unwrap();
    let ratings = store.load_queues(UnixMs(1)).await.unwrap().ratings;
    assert_eq!(ratings[0], counted);
    assert_eq!((ratings[1].satisfaction.feedback_count, ratings[1].satisfaction.feedback_sum), (1, 4));
}

/// R16: a flipped bit in any row of the queues is found by whoever reads it, and named.
#[tokio::test]
async fn a_corrupt_row_of_queues_names_its_table_and_column() {
    let folder = tempfile::tempdir().unwrap();
    let cases = [
        ("update ticket set body = replace(body, '2', '3')", "ticket", "checksum"),
        ("update ticket set expires_ms = expires_ms + 1", "ticket", "state_checksum"),
        ("update match set version = version + 1", "match", "checksum"),
        ("update rating set rating = rating + 1", "rating", "checksum"),
        ("update ticket_user set exclusive = 1", "ticket_user", "checksum"),
        ("update match_user set match_id = x'01020304050607080102030405060708'", "match_user", "checksum"),
        ("update penalty set cooldown_until_ms = 0", "penalty", "checksum"),
    ];
    for (n, (spoil, table, column)) in cases.into_iter().enumerate() {
        let path = folder.path().join(format!("{n}.db"));
        let store = SqliteStore::open(&path).await.unwrap();
        let (first, second) = (play(1, 1, &[(1, &[1])]), play(2, 1, &[(2, &[2])]));
        let fails = then(&second, over(fireteam::domain::lifecycle::MatchEndReason::Declined));
        let fails = move_on(fails, &Fates { returns: vec![(2, 50)], punished: vec![2], ..Fates::default() });
        let all = [
            enter(ticket(1, 1, &[1]), 50, 0),
            enter(ticket(2, 1, &[2]), 50, 0),
            propose(first, 1),
            propose(second, 1),
            fails,
            QueueWrite::ImportRatings { rows: vec![rating(1, 1, 1.5)] },
        ];
        store.commit_queues(&all).await.unwrap();
        drop(store);
        sql(&path, spoil).await;
        let store = SqliteStore::open(&path).await.unwrap();
        // What is not loaded is asked for by whoever enters.
        let refused = match store.load_queues(UnixMs(1)).await {
            Err(refused) => refused,
            Ok(_) => store.commit_queues(&[enter(ticket(9, 2, &[1, 2]), 50, 0)]).await.unwrap_err(),
        };
        match refused {
            StoreError::CorruptRow { table: found, column: at, .. } => assert_eq!((found, at), (table, column)),
            other => panic!("{spoil}: {other}"),
        }
    }
}
