//! Connection state after failures, and checkpoints of the write-ahead log.

use sqlx::{AssertSqlSafe, Executor, SqlSafeStr};

use super::*;
use crate::domain::advertisement::{Advertisement, AdvertisementKind};
use crate::domain::id::{AdvertisementId, RulesetHash, SetId};
use crate::domain::session::Session;
use crate::domain::time::UnixMs;
use crate::store::Store;
use crate::store::adverts::AdvertWrite;
use crate::store::sqlite::connection::sql_script::{MultiRowTemplate, ROWS_PER_STATEMENT_MAX};
use crate::supervisor::TaskSupervisor;

fn publish(n: u8) -> AdvertWrite {
    publish_until(n, 9_000)
}

fn publish_until(n: u8, expires_at: u64) -> AdvertWrite {
    let advertisement = Advertisement {
        id: AdvertisementId::from_bytes([n; 16]),
        set_id: SetId(1),
        kind: AdvertisementKind::Session,
        publisher: None,
        advertised_since: UnixMs(1),
        ruleset_hash: RulesetHash(1),
        session: Session { party_sizes: [1].into(), ..Session::default() },
        ttl_ms: None,
        allowed_ranges: Box::default(),
        connect_data: [n; 512].into(),
        probe: None,
    };
    let (expires_at, now) = (UnixMs(expires_at), UnixMs(1));
    AdvertWrite::Publish {
        advertisement: Arc::new(advertisement),
        expires_at,
        confirmed_reservations: vec![],
        joined_reservations: vec![],
        owner: None,
        create_digest: None,
        now,
    }
}

/// Checks that every statement is valid SQL, and that its tables and columns exist.
pub(in crate::store::sqlite) async fn prepare_statements(
    store: &SqliteStore,
    single: &[&'static str],
    multi_row: &[MultiRowTemplate],
) {
    let mut guard = store.connection_for_test().await;
    let connection = guard.as_mut().unwrap();
    for sql in single {
        connection.prepare(sql.into_sql_str()).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
    for statement in multi_row {
        for rows in [1, 2, ROWS_PER_STATEMENT_MAX] {
            let sql = AssertSqlSafe(statement.sql_text(rows)).into_sql_str();
            connection.prepare(sql).await.unwrap_or_else(|error| panic!("{}: {error}", statement.head));
        }
    }
}

async fn execute_sql(store: &SqliteStore, sql: String) {
    let mut guard = store.connection_for_test().await;
    let connection = guard.as_mut().unwrap();
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await.unwrap();
}

/// R15: on a full disk a batch fails as a whole, nothing is damaged, and writes succeed when there is space again.
#[tokio::test]
async fn full_disk_fails_the_batch_and_recovers() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&folder.path().join("a.db")).await.unwrap();
    store.commit_adverts(&[publish(1)]).await.unwrap();
    // SQLite's page limit causes the same error as a full disk. It ends with the connection, as if space were freed.
    execute_sql(&store, "pragma max_page_count = 30".into()).await;
    let batch: Vec<AdvertWrite> = (2..200).map(publish).collect();
    let error = store.commit_adverts(&batch).await.unwrap_err();
    assert!(error.to_string().ends_with("a.db: the disk is full; free disk space"), "{error}");
    assert_eq!(store.load_advertisements(UnixMs(2)).await.unwrap().len(), 1, "the batch was not committed");
    store.commit_adverts(&batch).await.unwrap();
    assert_eq!(store.load_advertisements(UnixMs(2)).await.unwrap().len(), 199);
}

/// R4: a transaction that a failed batch left open ends with its connection.
#[tokio::test]
async fn failed_batch_does_not_leave_a_transaction_open() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let store = SqliteStore::open(&path).await.unwrap();
    execute_sql(&store, "begin immediate".into()).await;
    assert!(store.commit_adverts(&[publish(1)]).await.is_err(), "a transaction is open already");
    assert_eq!(store.commit_adverts(&[publish(2)]).await.unwrap().outcomes.len(), 1);
    drop(store);
    assert_eq!(SqliteStore::open(&path).await.unwrap().load_advertisements(UnixMs(2)).await.unwrap().len(), 1);
}

/// Pages in the log file; each has a header of 24 bytes.
fn wal_pages(path: &std::path::Path) -> u64 {
    std::fs::metadata(path.with_extension("db-wal")).unwrap().len() / (1_024 + 24)
}

/// Pages that one batch of thirty writes can add to the log.
const BATCH_PAGES_MAX: u64 = 200;

/// Each batch differs, because unchanged rows are not written.
async fn commit_forty_batches(store: &SqliteStore) {
    for round in 0..40_u8 {
        let batch: Vec<AdvertWrite> =
            (0..30).map(|n| publish_until(round.wrapping_mul(7).wrapping_add(n), 9_000 + u64::from(round))).collect();
        store.commit_adverts(&batch).await.unwrap();
    }
}

/// The writer checkpoints the log itself if no other task has; otherwise the log would fill the disk.
#[tokio::test]
async fn wal_stays_below_the_writer_limit_without_background_checkpoints() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let limits = WalLimits { checkpoint_due_pages: i64::MAX, writer_waits_pages: 300, final_pass_pages: 1 };
    let store = SqliteStore::open_with_limits(&path, limits, &TaskSupervisor::default()).await.unwrap();
    commit_forty_batches(&store).await;
    let pages = wal_pages(&path);
    assert!(pages < 300 + BATCH_PAGES_MAX, "{pages}");
    // Without a limit the log grows longer, so the test writes enough.
    let path = folder.path().join("b.db");
    let limits = WalLimits { checkpoint_due_pages: i64::MAX, writer_waits_pages: i64::MAX, final_pass_pages: 1 };
    let store = SqliteStore::open_with_limits(&path, limits, &TaskSupervisor::default()).await.unwrap();
    commit_forty_batches(&store).await;
    let pages = wal_pages(&path);
    assert!(pages > 2 * (300 + BATCH_PAGES_MAX), "{pages}");
}

/// A long log is checkpointed beside the writer and then reused from its start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wal_is_checkpointed_in_the_background() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let limits = WalLimits { checkpoint_due_pages: 100, writer_waits_pages: i64::MAX, final_pass_pages: 50 };
    let store = SqliteStore::open_with_limits(&path, limits, &TaskSupervisor::default()).await.unwrap();
    commit_forty_batches(&store).await;
    // Either the last commit requested a checkpoint, or a round just ended. In both cases the whole log is checkpointed
    // eventually.
    loop {
        let wal_length = store.file_access.lock().await.wal_length;
        if wal_length.pages < limits.checkpoint_due_pages || wal_length.pages == wal_length.checkpointed_pages {
            break;
        }
        tokio::task::yield_now().await;
    }
    store.commit_adverts(&[publish(1)]).await.unwrap();
    let wal_length = store.file_access.lock().await.wal_length;
    assert!(wal_length.pages < limits.checkpoint_due_pages, "{wal_length:?}");
    assert_eq!(store.load_advertisements(UnixMs(2)).await.unwrap().len(), 256);
}

/// At the length limit, writes continue even if a reader never ends.
#[tokio::test]
async fn wal_grows_but_writes_continue_during_a_long_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let store = SqliteStore::open_with_limits(
        &path,
        WalLimits { checkpoint_due_pages: i64::MAX, writer_waits_pages: 50, final_pass_pages: 1 },
        &TaskSupervisor::default(),
    )
    .await
    .unwrap();
    store.commit_adverts(&[publish(1)]).await.unwrap();
    let mut reader = open::connect(&path).await.unwrap();
    sqlx::raw_sql("begin; select count(*) from advertisement").execute(&mut reader).await.unwrap();
    commit_forty_batches(&store).await;
    sqlx::raw_sql("commit").execute(&mut reader).await.unwrap();
    store.checkpoint().await.unwrap();
    store.commit_adverts(&[publish(1)]).await.unwrap();
    assert!(store.file_access.lock().await.wal_length.pages < 50, "the log is reused after the reader has ended");
}
