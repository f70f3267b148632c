//! The file under SQLite's queues: what an older one becomes, and what is noticed of a damaged one.

use std::path::Path;

use fireteam::domain::id::SetId;
use fireteam::domain::match_result::SatisfactionStats;
use fireteam::domain::time::UnixMs;
use fireteam::store::queues::{QueueOutcome as Out, QueueStore, QueueWrite, RatingRow};
use fireteam::store::sqlite::SqliteStore;
use fireteam::store::{Store, StoreError};
use sqlx::sqlite::SqliteConnection;
use sqlx::{AssertSqlSafe, Connection};

use crate::store::queue_rows::{Fates, enter, match_id, move_on, over, play, propose, rating, then, ticket, user};
use crate::store::advert_rows::{ad, put};

async fn sql(path: &Path, text: &str) {
    let mut connection = SqliteConnection::connect(&format!("sqlite:{}", path.display())).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(text)).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

/// R12: a file of the version before queues keeps what it has, and takes them.
#[tokio::test]
async fn a_file_without_queues_is_given_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let store = SqliteStore::open(&path).await.unwrap();
    store.commit(&[put(ad(1, 4, 10, "kept"), 900, 10)]).await.unwrap();
    store.close().await;
    let before = "drop table ticket; drop table ticket_user; drop table match; drop table match_user; \
                  drop table penalty; drop table rating; drop table result; drop table rating_change; drop table score; \
                  delete from _sqlx_migrations where version in (2, 3, 4)";
    sql(&path, before).await;
    let store = SqliteStore::open(&path).await.unwrap();
    assert_eq!(*store.load_advertisements(UnixMs(10)).await.unwrap()[0].advertisement, *ad(1, 4, 10, "kept"));
    let outcomes = store.commit_queues(&[enter(ticket(1, 1, &[1]), 50, 0)]).await.unwrap();
    assert!(matches!(outcomes[..], [Out::Entered { is_replay: false, .. }]));
}

/// R12: a file of the version before results keeps its ratings, which have neither streak nor scores, and takes both.
#[tokio::test]
async fn a_file_without_results_is_given_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let store = SqliteStore::open(&path).await.unwrap();
    store.commit_queues(&[QueueWrite::ImportRatings { rows: vec![rating(1, 1, 1.5)] }]).await.unwrap();
    store.close().await;
    let before = "drop table result; drop table rating_change; drop table score; \
                  drop index rating_by_played; alter table rating drop column played; \
                  alter table rating drop column streak; alter table rating drop column abandoned; \
                  alter table rating drop column scores; alter table rating drop column score_sum; \
                  delete from _sqlx_migrations where version in (3, 4)";
    sql(&path, before).await;
    let store = SqliteStore::open(&path).await.unwrap();
    assert_eq!(store.load_queues(UnixMs(1)).await.unwrap().ratings, [rating(1, 1, 1.5)]);
    let score = |user| QueueWrite::RecordFeedback {
        match_id: match_id(1),
        set_id: SetId(1),
        user,
        stars: 4,
        rating_spec: None,
        now: UnixMs(1),
    };
    store.commit_queues(&[score(user(1))]).await.unwrap();
    let row = store.load_queues(UnixMs(1)).await.unwrap().ratings[0];
    assert_eq!((row.satisfaction.feedback_count, row.satisfaction.feedback_sum), (1, 4));
}

/// R12: a file of the version before decay could stand still keeps its ratings, checksums and all; none of them has been played by.
#[tokio::test]
async fn a_file_that_does_not_count_what_is_played_begins_to() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let store = SqliteStore::open(&path).await.unwrap();
    let known = RatingRow {
        satisfaction: SatisfactionStats { feedback_count: 1, ..SatisfactionStats::default() },
        ..rating(1, 1, 1.5)
    };
    store.commit_queues(&[QueueWrite::ImportRatings { rows: vec![known] }]).await.unwrap();
    store.close().await;
    let before = "drop index rating_by_played; alter table rating drop column played; \
                  delete from _sqlx_migrations where version = 4";
    sql(&path, before).await;
    let store = SqliteStore::open(&path).await.unwrap();
    assert_eq!(store.load_queues(UnixMs(1)).await.unwrap().ratings, [known]);
    let counted = RatingRow { active_periods: 3, ..known };
    store.commit_queues(&[QueueWrite::ImportRatings { rows: vec![counted] }]).await.unwrap();
    store.close().await;
    let store = SqliteStore::open(&path).await.unwrap();
    assert_eq!(store.load_queues(UnixMs(1)).await.unwrap().ratings, [counted]);
}

/// R16: a flipped bit in any row of the queues is found by whoever reads it, and named.
#[tokio::test]
async fn a_corrupt_row_of_queues_names_its_table_and_column() {
    let folder = tempfile::tempdir().unwrap();
    let cases = [
        ("update ticket set body = replace(body, '2', '3')", "ticket", "checksum"),
        ("update ticket set expires_ms = expires_ms + 1", "ticket", "standing"),
        ("update match set edition = edition + 1", "match", "checksum"),
        ("update rating set rating = rating + 1", "rating", "checksum"),
        ("update ticket_user set alone = 1", "ticket_user", "checksum"),
        ("update match_user set match_id = x'01020304050607080102030405060708'", "match_user", "checksum"),
        ("update penalty set until_ms = 0", "penalty", "checksum"),
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
