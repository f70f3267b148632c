//! SQLite store file: lock, permissions, schema versions, damage, and the error for each.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use fireteam::domain::time::UnixMs;
use fireteam::store::sqlite::SqliteStore;
use fireteam::store::{AdvertWrite, Store, StoreError, StoredAdvertisement, WriteOutcome};
use sqlx::sqlite::SqliteConnection;
use sqlx::{AssertSqlSafe, Connection};
use tempfile::TempDir;

use crate::store::advert_rows::{ad, ad_id, extend, put, reserve, seats};

fn file() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    (folder, path)
}

async fn sql(path: &Path, text: &str) {
    let mut connection = SqliteConnection::connect(&format!("sqlite:{}", path.display())).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(text)).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

async fn open_error(path: &Path) -> StoreError {
    SqliteStore::open(path).await.expect_err("the file was opened")
}

/// R17: a file is used by one server; the error names the file and the remedy.
#[tokio::test]
async fn sqlite_file_in_use_is_refused_with_a_remedy() {
    let (_folder, path) = file();
    let first = SqliteStore::open(&path).await.unwrap();
    let refused = open_error(&path).await;
    assert!(matches!(refused, StoreError::Locked(_)), "{refused}");
    let expected = format!("{} is in use by another server; stop that server or use another file", path.display());
    assert_eq!(refused.to_string(), expected);
    first.close().await;
    assert!(SqliteStore::open(&path).await.is_ok(), "close releases the lock");
}

#[tokio::test]
async fn sqlite_store_is_unavailable_after_close() {
    let (_folder, path) = file();
    let store = SqliteStore::open(&path).await.unwrap();
    store.commit_adverts(&[put(ad(1, 1, 1, "a"), 9, 1)]).await.unwrap();
    store.close().await;
    store.close().await;
    assert!(matches!(store.commit_adverts(&[extend(1, 20, 2)]).await, Err(StoreError::Unavailable(_))));
    assert!(matches!(store.load_advertisements(UnixMs(2)).await, Err(StoreError::Unavailable(_))));
    assert!(!path.with_extension("db-wal").exists(), "close removes the log");
    let again = SqliteStore::open(&path).await.unwrap();
    assert_eq!(again.load_advertisements(UnixMs(2)).await.unwrap().len(), 1);
}

/// F8: only the server's user may read the store files.
#[cfg(unix)]
#[tokio::test]
async fn sqlite_files_are_readable_by_the_server_only() {
    use std::os::unix::fs::PermissionsExt;
    let (folder, path) = file();
    let store = SqliteStore::open(&path).await.unwrap();
    store.commit_adverts(&[put(ad(1, 1, 1, "a"), 9, 1)]).await.unwrap();
    let mut file_count = 0;
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", entry.file_name());
        file_count += 1;
    }
    assert_eq!(file_count, 4, "the database, its log, the log's index and the lock");
}

#[tokio::test]
async fn sqlite_file_in_a_missing_folder_is_named() {
    let (folder, _) = file();
    let path = folder.path().join("no/such/a.db");
    let refused = open_error(&path).await;
    assert!(matches!(&refused, StoreError::Unavailable(what) if what.contains("no/such")), "{refused}");
}

/// R12: a file that another program has migrated is refused.
#[tokio::test]
async fn sqlite_file_with_an_unknown_migration_is_refused_with_a_remedy() {
    for (change, version) in [("insert into", 0), ("delete from store_setting; insert into", 9_999)] {
        let (_folder, path) = file();
        SqliteStore::open(&path).await.unwrap().close().await;
        let row = format!("values ({version}, 'unknown', current_timestamp, true, x'00', 1)");
        sql(&path, &format!("{change} _sqlx_migrations {row}")).await;
        let refused = open_error(&path).await;
        assert!(matches!(refused, StoreError::Incompatible(_)), "{refused}");
        let text = refused.to_string();
        assert!(text.contains(&format!("migration {version} of")), "{text}");
        assert!(text.contains("start the server that applied it, or move the file away"), "{text}");
        assert!(!text.contains('\n'));
    }
}

#[tokio::test]
async fn sqlite_file_with_a_different_migration_is_refused_with_a_remedy() {
    let (_folder, path) = file();
    SqliteStore::open(&path).await.unwrap().close().await;
    sql(&path, "update _sqlx_migrations set checksum = x'00'").await;
    let refused = open_error(&path).await;
    assert!(matches!(&refused, StoreError::Incompatible(text) if text.contains("a different text")), "{refused}");
}

/// R4, F1: a cancelled commit neither undoes its batch nor leaves a transaction open.
#[tokio::test]
async fn commit_that_is_cancelled_is_still_written() {
    let (_folder, path) = file();
    let store = SqliteStore::open(&path).await.unwrap();
    for n in 0..200_u32 {
        let batch = [put(ad(n, 1, 1, "a"), 9_000, 1), reserve(seats(n, n, 1, 500), 1)];
        {
            let mut commit = pin!(store.commit_adverts(&batch));
            // Dropped after a different number of polls each time, before the answer is taken.
            for _ in 0..=n % 7 {
                if commit.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        let other = store.commit_adverts(&[put(ad(10_000 + n, 1, 1, "b"), 9_000, 1)]).await.unwrap().outcomes;
        assert_eq!(other, [WriteOutcome::Published { created: true, advertised_since: UnixMs(1), replaced: vec![] }]);
    }
    drop(store);
    let stored = SqliteStore::open(&path).await.unwrap().load_advertisements(UnixMs(2)).await.unwrap();
    assert_eq!(stored.len(), 400);
    assert_eq!(stored.iter().map(|it| it.reservations.len()).sum::<usize>(), 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_on_one_sqlite_store_are_serialized() {
    let (_folder, path) = file();
    let store = std::sync::Arc::new(SqliteStore::open(&path).await.unwrap());
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..8 {
        let store = std::sync::Arc::clone(&store);
        writers.spawn(async move {
            for round in 0..10_u64 {
                let batch: Vec<AdvertWrite> = (0..20).map(|n| put(ad(n, 1, writer, "w"), 1_000 + round, 1)).collect();
                store.commit_adverts(&batch).await.unwrap();
            }
        });
    }
    writers.join_all().await;
    let stored = store.load_advertisements(UnixMs(2)).await.unwrap();
    assert_eq!(stored.len(), 20);
    let sinces: Vec<_> = stored.iter().map(|it| it.advertisement.advertised_since).collect();
    assert!(sinces.iter().all(|since| *since == sinces[0]), "one writer's batch was first for all: {sinces:?}");
}

/// A batch larger than one statement's limit, with every id twice.
#[tokio::test]
async fn commit_of_a_large_batch_is_one_transaction() {
    let (_folder, path) = file();
    let store = SqliteStore::open(&path).await.unwrap();
    let twice = (0..3_000).chain(0..3_000);
    let batch: Vec<AdvertWrite> = twice.enumerate().map(|(at, n)| put(ad(n, 2, at as u64, "x"), 9_000, 1)).collect();
    let outcomes = store.commit_adverts(&batch).await.unwrap().outcomes;
    for (at, outcome) in outcomes.iter().enumerate() {
        let since = UnixMs(at as u64 % 3_000);
        assert_eq!(
            *outcome,
            WriteOutcome::Published { created: at < 3_000, advertised_since: since, replaced: vec![] }
        );
    }
    let heartbeats: Vec<AdvertWrite> = (0..3_000).map(|n| extend(n, 9_500, 2)).collect();
    assert!(
        store
            .commit_adverts(&heartbeats)
            .await
            .unwrap()
            .outcomes
            .iter()
            .all(|outcome| *outcome == WriteOutcome::Applied)
    );
    let deletes: Vec<AdvertWrite> = (0..2_999)
        .map(|n| AdvertWrite::Delete { advertisement_id: ad_id(n), tombstone_until: UnixMs(9_999) })
        .collect();
    store.commit_adverts(&deletes).await.unwrap();
    let stored = store.load_advertisements(UnixMs(3)).await.unwrap();
    assert_eq!((stored.len(), stored[0].expires_at), (1, UnixMs(9_500)));
    // Several rounds of purging.
    store.purge_tombstones_and_reservations(UnixMs(9_999)).await.unwrap();
    assert_eq!(store.commit_adverts(&[put(ad(0, 1, 4, "back"), 20_000, 4)]).await.unwrap().outcomes.len(), 1);
}

/// The advertisements without the column that no checksum covers, because older servers write the rest of the row.
fn without_ttls(stored: Vec<StoredAdvertisement>) -> Vec<StoredAdvertisement> {
    let without_ttl = |mut stored: StoredAdvertisement| {
        Arc::make_mut(&mut stored.advertisement).ttl_ms = None;
        stored
    };
    stored.into_iter().map(without_ttl).collect()
}

/// R16, short version: a file that is cut off, overwritten or has flipped bits is refused or read unchanged, without a
/// panic.
#[tokio::test]
async fn sqlite_file_that_is_damaged_is_refused_with_a_remedy() {
    let (folder, path) = file();
    let store = SqliteStore::open(&path).await.unwrap();
    let batch: Vec<AdvertWrite> = (0..200).map(|n| put(ad(n, 2, 1, "sound and whole"), 9_000, 1)).collect();
    store.commit_adverts(&batch).await.unwrap();
    store.close().await;
    let intact = std::fs::read(&path).unwrap();
    let expected = SqliteStore::open(&path).await.unwrap().load_advertisements(UnixMs(2)).await.unwrap();

    let damaged_path = folder.path().join("spoiled.db");
    let (mut refused, mut unharmed) = (0, 0);
    for case in 0..120_usize {
        let mut bytes = intact.clone();
        match case % 3 {
            0 => bytes.truncate(intact.len() * (case + 1) / 125),
            1 => bytes[case * intact.len() / 120] ^= 1 << (case % 8),
            _ => bytes[case * intact.len() / 121..].iter_mut().take(100).for_each(|byte| *byte = 0xff),
        }
        for suffix in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(folder.path().join(format!("spoiled.db{suffix}")));
        }
        std::fs::write(&damaged_path, bytes).unwrap();
        let loaded = match SqliteStore::open(&damaged_path).await {
            Ok(store) => store.load_advertisements(UnixMs(2)).await,
            Err(error) => Err(error),
        };
        match loaded {
            Ok(loaded) => {
                assert_eq!(without_ttls(loaded), without_ttls(expected.clone()), "case {case}: accepted");
                unharmed += 1;
            }
            Err(error) => {
                assert!(!error.to_string().contains('\n'), "case {case}: {error}");
                refused += 1;
            }
        }
    }
    // Flips in unused pages have no effect; most cases are refused.
    assert!(60 < refused, "{refused} refused, {unharmed} unharmed");
}

/// R16: a flipped byte in a row is detected, and the error names table and column.
#[tokio::test]
async fn sqlite_row_corruption_names_table_and_column() {
    let cases = [
        ("update advertisement set body = replace(body, '7', '8')", "advertisement", "checksum"),
        ("update advertisement set join_seats = 9", "advertisement", "checksum"),
        ("update reservation set deadline_ms = deadline_ms + 1", "reservation", "checksum"),
        ("update reservation set seats = 2", "reservation", "checksum"),
    ];
    for (damage, expected_table, expected_column) in cases {
        let (_folder, path) = file();
        let store = SqliteStore::open(&path).await.unwrap();
        store.commit_adverts(&[put(ad(1, 3, 1, "a"), 9_000, 1), reserve(seats(1, 1, 1, 500), 1)]).await.unwrap();
        store.close().await;
        sql(&path, damage).await;
        match SqliteStore::open(&path).await.unwrap().load_advertisements(UnixMs(2)).await {
            Err(StoreError::CorruptRow { table, column, .. }) => {
                assert_eq!((table, column), (expected_table, expected_column), "{damage}");
            }
            other => panic!("{damage}: {other:?}"),
        }
    }
}
